"""Nests from what a user wrote: tensors, or a loop program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core.computation import Names, Stage, computation
from offcut.core.expr import Expr, Load, Logic, Var
from offcut.core.printer import format_stmt
from offcut.core.program import (
    Execution,
    For,
    If,
    Kind,
    Program,
    Stmt,
    Store,
    substituted,
    walk,
)
from offcut.core.source import instance, plain_loop
from offcut.core.tensor import Tensor
from offcut.errors import PartitionError
from offcut.schedule.nests import Mark, Nest, Nests, Part, Root


def nests_of_tensors(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Nests:
    """One nest for each stage of the computation of `outputs`, in dependence order."""
    described = computation(outputs, inputs)
    buffers = tuple(
        replace(buffer, kind=Kind.LOCAL) if buffer.kind is Kind.PRIVATE else buffer
        for buffer in described.buffers
    )
    stages = [stage for group in described.groups for stage in group]
    return Nests(
        described.name,
        described.sizes,
        described.assumptions,
        buffers,
        tuple(read_nest(plain(stage), stage.buffer) for stage in stages),
        described.labels,
        described.size_names,
    )


def plain(stage: Stage) -> tuple[Stmt, ...]:
    """The loops of one stage, not cut."""
    body = instance((stage,))
    for axis in reversed(stage.axes):
        body = (plain_loop(axis, body),)
    return body


def nests_of_program(program: Program) -> Nests:
    """One nest for each statement of `program`; several of one buffer are C_0, C_1, … in order."""
    stmts = [stmt for stmt in program.body if _stores((stmt,))]
    firsts = [_stores((stmt,))[0].buffer for stmt in stmts]
    nests = []
    for position, (stmt, first) in enumerate(zip(stmts, firsts, strict=True)):
        several = firsts.count(first) > 1
        name = f"{first}_{firsts[:position].count(first)}" if several else first
        nests.append(read_nest((stmt,), name))
    return Nests(program.name, program.sizes, program.assumptions, program.buffers, tuple(nests))


def _stores(body: tuple[Stmt, ...]) -> list[Store]:
    return [stmt for stmt in walk(body) if isinstance(stmt, Store)]


def read_nest(body: tuple[Stmt, ...], name: str, copies: bool = False) -> Nest:
    """The nest of these statements.

    Raises PartitionError for statements of a program that is cut already: tiles, choices, bounded
    values, windows.
    """
    reader = _Reader()
    parts = reader.block(body, (), ())
    copies = copies or all(
        isinstance(store.value, Load) and store.reduce is None
        for part in parts
        for store in part.stores
    )
    return Nest(
        name, tuple(reader.roots), tuple(parts), body, (), tuple(reader.marks), copies=copies
    )


class _Reader:
    def __init__(self) -> None:
        self.names = Names()
        self.roots: list[Root] = []
        self.marks: list[Mark] = []

    def block(
        self, body: tuple[Stmt, ...], loops: tuple[str, ...], conditions: tuple[Expr, ...]
    ) -> list[Part]:
        """The parts of a list of statements: neighbours without a loop in them are one."""
        parts: list[Part] = []
        together: list[Stmt] = []

        def close() -> None:
            if together:
                parts.append(Part(loops, _under(conditions, tuple(together))))
                together.clear()

        for stmt in body:
            match stmt:
                case Store():
                    together.append(stmt)
                case If() if not _has_loop(stmt):
                    together.append(stmt)
                case If(condition, then, other):
                    close()
                    parts += self.block(then, loops, (*conditions, condition))
                    if other:
                        negated = Logic("not", (condition,))
                        parts += self.block(other, loops, (*conditions, negated))
                case For():
                    close()
                    parts += self.loop(stmt, loops, conditions)
                case _:
                    raise PartitionError(
                        "create_schedule",
                        "cannot schedule a program that is cut already",
                        at=format_stmt(stmt).splitlines()[0],
                        because="a schedule is made of plain loops, conditions and stores",
                    )
        close()
        return parts

    def loop(self, stmt: For, loops: tuple[str, ...], conditions: tuple[Expr, ...]) -> list[Part]:
        name = self.names.fresh(stmt.iter)
        self.roots.append(Root(name, stmt.iter, stmt.lo, stmt.hi))
        if stmt.execution is not Execution.SERIAL or stmt.bound is not None:
            self.marks.append(Mark(name, stmt.execution, stmt.bound))
        body, known = stmt.body, conditions
        if name != stmt.iter:
            renamed: dict[str, Expr] = {stmt.iter: Var(name)}
            body = substituted(body, renamed)
        return self.block(body, (*loops, name), known)


def _under(conditions: tuple[Expr, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for condition in reversed(conditions):
        body = (If(condition, body),)
    return body


def _has_loop(stmt: Stmt) -> bool:
    return any(not isinstance(inner, (If, Store)) for inner in walk((stmt,)))
