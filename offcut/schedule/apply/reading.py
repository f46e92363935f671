"""Nests from what a user wrote: tensors, or a loop program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from offcut.core.expr import Expr, Load, Logic, Var
from offcut.core.expr import walk as nodes
from offcut.core.program import For, If, Kind, Program, Stmt, Store, walk
from offcut.core.text.printer import format_head
from offcut.core.traversal import canonicalize, expressions, substitute_coordinates
from offcut.describe.computation import Names, computation, source
from offcut.describe.tensor import Tensor
from offcut.errors import PartitionError
from offcut.partition import Users
from offcut.schedule.apply.staged_form import Mark, Nest, Nests, Part, Root


def nests_of_tensors(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Nests:
    """Return one nest for each stage of the computation of `outputs`, in dependence order."""
    described = computation(outputs, inputs)
    nests = nests_of_program(source(described))
    called = tuple(
        (stage.buffer, axis.name, axis.label)
        for group in described.groups
        for stage in group
        for axis in (*stage.axes, *stage.reduce_axes)
        if axis.label != axis.name
    )
    return replace(
        nests, labels=described.labels, size_names=described.size_names, axis_labels=called
    )


def with_axis_labels(nests: Nests, users: Users) -> Nests:
    """Return nests whose axes answer to the names in `users`, too.

    A name that another loop of the stage has stays that loop's: texts that a target prints name loops of the program.
    """
    buffers = dict(users.buffers)
    loops = {name: nest.loops_of(name) for nest in nests.nests for name in nest.stored_buffers}
    pairs = ((full.rpartition("."), loop) for full, loop in users.axes)
    called = ((buffers.get(stage, stage), loop, label) for (stage, _, label), loop in pairs)
    return replace(
        nests, axis_labels=tuple(one for one in called if one[2] not in loops.get(one[0], ()))
    )


def nests_of_program(program: Program) -> Nests:
    """Return one nest for each stage of `program`; several of one buffer are C_0, C_1, … in order."""
    program = canonicalize(program)
    bodies = [body for run in _runs(program.body) for body in _apart(run) if _stores(body)]
    firsts = [_stores(body)[0].buffer for body in bodies]
    nests = []
    for position, (body, first) in enumerate(zip(bodies, firsts, strict=True)):
        several = firsts.count(first) > 1
        name = f"{first}_{firsts[:position].count(first)}" if several else first
        nests.append(read_nest(body, name))
    crossing = {
        one.buffer for n in nests for one in loads_of(n.plain) if one.buffer not in n.stored_buffers
    }
    buffers = tuple(
        replace(one, kind=Kind.LOCAL) if one.kind is Kind.PRIVATE and one.name in crossing else one
        for one in program.buffers
    )
    return Nests(program.name, program.sizes, program.assumptions, buffers, tuple(nests))


def _runs(body: Sequence[Stmt]) -> Iterator[tuple[Stmt, ...]]:
    """Neighbours that compute one element together: a store, and what then updates it."""
    run: tuple[Stmt, ...] = ()
    for stmt in body:
        start = run[0] if run else None
        if isinstance(start, Store) and {s.buffer for s in _stores((stmt,))} == {start.buffer}:
            run = (*run, stmt)
            continue
        if run:
            yield run
        run = (stmt,)
    if run:
        yield run


def _apart(nest: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """Yield the stages of a nest that computes several arrays point by point, each in loops of its own.

    Theorem: where every access of an array that it stores is at the point of the iteration, no iteration
    meets another, and each run of statements may go through all points before the next one begins.
    """
    loops, body = [], nest
    while len(body) == 1 and isinstance(body[0], For):
        loops.append(body[0])
        body = body[0].body
    runs = list(_runs(body))
    if len(runs) == 1 or not _pointwise(nest, {Var(loop.iter) for loop in loops}, runs):
        yield nest
        return
    for run in runs:
        for loop in reversed(loops):
            run = (replace(loop, body=run),)
        yield run


def _pointwise(nest: tuple[Stmt, ...], loops: set[Var], runs: Sequence[tuple[Stmt, ...]]) -> bool:
    """Return whether each run stores one array, at the point of `loops`, and all of `nest` reads it there."""
    stores = [_stores(run) for run in runs]
    points = {store.buffer: store.index for run in stores for store in run}
    return (
        len(points) == len(runs)
        and all(len({store.buffer for store in run}) == 1 for run in stores)
        and all(isinstance(stmt, For | If | Store) for stmt in walk(nest))
        and all(store.index == points[store.buffer] for run in stores for store in run)
        and all(len(point) == len(loops) == len({*point} & loops) for point in points.values())
        and all(load.index == points.get(load.buffer, load.index) for load in loads_of(nest))
    )


def loads_of(body: tuple[Stmt, ...]) -> Iterator[Load]:
    """Yield every read of statements, of those inside them too."""
    for stmt in walk(body):
        for expr in expressions(stmt):
            yield from (node for node in nodes(expr) if isinstance(node, Load))


def _stores(body: tuple[Stmt, ...]) -> list[Store]:
    return [stmt for stmt in walk(body) if isinstance(stmt, Store)]


def read_nest(body: tuple[Stmt, ...], name: str, copies: bool = False) -> Nest:
    """Return the nest of these statements.

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
        """Return the parts of a list of statements: neighbours without a loop in them are one."""
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
                        at=format_head(stmt),
                        because="a schedule is made of plain loops, conditions and stores",
                    )
        close()
        return parts

    def loop(self, stmt: For, loops: tuple[str, ...], conditions: tuple[Expr, ...]) -> list[Part]:
        name = self.names.fresh(stmt.iter)
        self.roots.append(Root(name, stmt.iter, stmt.lo, stmt.hi))
        if stmt.unit is not None:
            self.marks.append(Mark(name, stmt.unit))
        body, known = stmt.body, conditions
        if name != stmt.iter:
            renamed: dict[str, Expr] = {stmt.iter: Var(name)}
            body = substitute_coordinates(body, renamed)
        return self.block(body, (*loops, name), known)


def _under(conditions: tuple[Expr, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for condition in reversed(conditions):
        body = (If(condition, body),)
    return body


def _has_loop(stmt: Stmt) -> bool:
    return any(not isinstance(inner, (If, Store)) for inner in walk((stmt,)))
