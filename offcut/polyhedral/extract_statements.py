"""Extract the statements of a loop program over named sizes, each with its instances and times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Compare, Expr, Logic, Var, substitute, variables
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    walk,
)
from offcut.core.traversal import map_expressions
from offcut.errors import PartitionError
from offcut.polyhedral.affine import parse_set
from offcut.polyhedral.facts import equal, in_range
from offcut.polyhedral.program_sets import Entry, ProgramSets, Statement, Storage, bounds_of


class NotRepresentable(PartitionError):
    """Raised for a program, or a part of it, that sets cannot represent."""


def extract_statements(flows: ProgramSets, program: Program, letter: str) -> list[Statement]:
    """Return every store of `program`, which has no `Choose`, in the order of the text.

    program   prepared by `flows`
    letter    with which their names start

    Raises NotReadable for a bound that is not quasi-affine, PartitionError for a value that leaves
    its range.
    """
    extracted = list(_Reader(flows, program).block(program.body, _everywhere(flows, flows.context)))
    return [
        replace(s, name=f"{letter}{k}", domain=s.domain.set_tuple_name(f"{letter}{k}"))
        for k, s in enumerate(extracted)
    ]


def cases(flows: ProgramSets, program: Program) -> Iterator[ProgramSets]:
    """Yield `flows` once for every literal of the bounded values that depend on sizes alone."""
    ranges: dict[Expr, tuple[int, int]] = {}
    size_names = {size.name for size in flows.space.sizes}
    for stmt in walk(program.body):
        if isinstance(stmt, Let) and variables(stmt.value) <= size_names:
            lo, hi = ranges.get(stmt.value, (stmt.lo, stmt.hi))
            ranges[stmt.value] = min(lo, stmt.lo), max(hi, stmt.hi)
    yield from _cases(_Reader(flows, program), tuple(ranges.items()), {}, flows.context)


def _cases(
    reader: _Reader,
    ranges: Sequence[tuple[Expr, tuple[int, int]]],
    fixed: Mapping[Expr, int | None],
    context: isl.Set,
) -> Iterator[ProgramSets]:
    if context.is_empty():
        return
    if not ranges:
        yield reader.flows.at(fixed, context)
        return
    (value, (lo, hi)), *rest = ranges
    remaining = context
    for literal in range(lo, hi):
        scope = _everywhere(reader.flows, context)
        part = reader.equal(scope, value, literal).params()
        remaining = remaining - part
        yield from _cases(reader, rest, {**fixed, value: literal}, part)
    yield from _cases(reader, rest, {**fixed, value: None}, remaining)


@dataclass(frozen=True, slots=True)
class _Scope:
    domain: isl.Set
    iters: tuple[str, ...] = ()
    predicates: tuple[Expr, ...] = ()
    time: tuple[Entry, ...] = ()
    storages: tuple[Storage, ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    in_tile: bool = False


def _everywhere(flows: ProgramSets, context: isl.Set) -> _Scope:
    """Return the scope of a whole program, at these sizes."""
    return _Scope(parse_set(f"{flows.space.parameters}{{ [] }}").intersect_params(context))


class _Reader:
    def __init__(self, flows: ProgramSets, program: Program) -> None:
        self.flows = flows
        self.buffers = {b.name: b for b in program.buffers}

    def block(self, body: Sequence[Stmt], scope: _Scope) -> Iterator[Statement]:
        for position, stmt in enumerate(body):
            yield from self.statement(stmt, replace(scope, time=(*scope.time, position)))

    def statement(self, stmt: Stmt, scope: _Scope) -> Iterator[Statement]:
        match stmt:
            case For(iter, lo, hi, body):
                inner = self.bind(scope, iter)
                inner = self.where(
                    inner, Compare(">=", Var(iter), lo), f"the bound {self.flows.text(lo)}"
                )
                inner = self.where(
                    inner, Compare("<", Var(iter), hi), f"the bound {self.flows.text(hi)}"
                )
                yield from self.block(body, replace(inner, time=(*scope.time, iter)))
            case If(condition, then, other):
                holds = self.where(scope, condition)
                yield from self.block(then, replace(holds, time=(*scope.time, 0)))
                if other:
                    fails = self.where(scope, Logic("not", (condition,)))
                    yield from self.block(other, replace(fails, time=(*scope.time, 1)))
            case Let(name, lo, hi, value, body):
                self.check_bounded(stmt, scope)
                value = self.close(value, scope)
                fixed_to = self.flows.fixed.get(value)
                literals = range(lo, hi) if value not in self.flows.fixed else [fixed_to]
                for literal in literals:
                    if literal is None or not lo <= literal < hi:
                        continue
                    inner_scope = self.equal(scope, value, literal)
                    values = (*scope.values, (name, literal))
                    inner = replace(scope, domain=inner_scope, values=values)
                    if not inner_scope.is_empty():
                        yield from self.block(body, inner)
            case Tile(axes, body, where, _, _, _):
                inner = scope
                for axis in axes:
                    inner = self.bind(inner, axis.iter)
                    end = ix.add(self.close(axis.start, scope), self.close(axis.extent, scope))
                    text = (
                        f"the tile {self.flows.text(axis.start)} +: {self.flows.text(axis.extent)}"
                    )
                    inner = self.where(inner, Compare(">=", Var(axis.iter), axis.start), text)
                    inner = self.where(inner, Compare("<", Var(axis.iter), end), text)
                if where is not None:
                    inner = self.where(inner, where)
                storages = scope.storages
                if not scope.in_tile:
                    storages += self.own(stmt, inner.iters)
                lanes = tuple(axis.iter for axis in axes)
                time = (*scope.time, lanes)
                inner = replace(inner, time=time, storages=storages, in_tile=True)
                yield from self.block(body, inner)
            case Alloc(buffer, axes, body):
                if scope.in_tile:
                    raise NotRepresentable(
                        "prove",
                        f"cannot take a window of {buffer} in a tile",
                        because="its lanes would share it",
                    )
                window = tuple(
                    (self.close(start, scope), self.close(extent, scope)) for start, extent in axes
                )
                fresh = Storage(buffer, self.flows.fresh(), scope.iters, window)
                yield from self.block(body, replace(scope, storages=(*scope.storages, fresh)))
            case Store():
                if not scope.domain.is_empty():
                    closed_stmt = map_expressions(stmt, lambda expr: self.close(expr, scope))
                    assert isinstance(closed_stmt, Store)
                    yield Statement(
                        "",
                        closed_stmt,
                        scope.iters,
                        scope.domain,
                        scope.predicates,
                        scope.time,
                        scope.storages,
                    )
            case Choose():
                raise NotRepresentable(
                    "prove",
                    "cannot read a choice as a set",
                    because="its options are read one by one",
                )
            case Sync():
                pass
            case _:
                assert_never(stmt)

    def check_bounded(self, let: Let, scope: _Scope) -> None:
        """Reject a bounded value that leaves its range where it is reached."""
        value = self.close(let.value, scope)
        domain, coordinates = scope.domain, {name: f"x{k}" for k, name in enumerate(scope.iters)}
        parts = (part for one in in_range(value, let.lo, let.hi) for part in bounds_of(one))
        for part in parts:
            violations: isl.Set | None = domain
            for opposite in bounds_of(Logic("not", (part,))):
                violations = (
                    None
                    if violations is None
                    else self.flows.restrict(violations, opposite, coordinates)
                )
            if violations is None:
                raise NotRepresentable(
                    "prove",
                    f"cannot read the value of {let.name} as a set",
                    because="it is not quasi-affine",
                )
            witness = self.flows.smallest(violations)
            if witness is not None:
                raise PartitionError(
                    "prove",
                    f"the value of {let.name} is not in {let.lo}:{let.hi}",
                    because=f"{self.flows.given(witness[0])}{self.flows.text(let.value)} leaves it",
                )

    def own(self, tile: Tile, iters: tuple[str, ...]) -> tuple[Storage, ...]:
        """Return a copy for each lane of the private buffers that the outermost tile starts anew.

        Such a one is assigned at an index that leaves out an axis of the tile.
        """
        axes = {axis.iter for axis in tile.axes}
        storages: dict[str, Storage] = {}
        for inner in walk(tile.body):
            if isinstance(inner, Store) and inner.reduce is None:
                buffer = self.buffers.get(inner.buffer)
                index_names = set().union(*map(variables, inner.index))
                if buffer is not None and buffer.kind is Kind.PRIVATE and not axes <= index_names:
                    storages[buffer.name] = Storage(buffer.name, self.flows.fresh(), iters, None)
        return tuple(storages.values())

    def close(self, expr: Expr, scope: _Scope) -> Expr:
        if not scope.values:
            return expr
        values: dict[str, Expr] = {name: ix.const(value) for name, value in scope.values}
        return ix.fold_indices(substitute(expr, values))

    def bind(self, scope: _Scope, name: str) -> _Scope:
        domain = scope.domain.add_dims(isl.dim_type.set, 1)
        return replace(scope, domain=domain, iters=(*scope.iters, name))

    def where(self, scope: _Scope, condition: Expr, what: str = "") -> _Scope:
        """Return `scope` where `condition` holds; one that isl cannot decide is a predicate, if `what` is ""."""
        condition = self.close(condition, scope)
        coordinates = {name: f"x{k}" for k, name in enumerate(scope.iters)}
        domain, predicates = scope.domain, list(scope.predicates)
        for part in bounds_of(condition):
            restricted_domain = self.flows.restrict(domain, part, coordinates)
            if restricted_domain is not None:
                domain = restricted_domain
            elif what:
                raise NotRepresentable(
                    "prove",
                    f"cannot read {what} as a set",
                    because="it is not quasi-affine: isl decides sums, integer multiples, and // "
                    "and % by positive constants",
                )
            else:
                predicates.append(part)
        return replace(scope, domain=domain, predicates=tuple(predicates))

    def equal(self, scope: _Scope, value: Expr, literal: int) -> isl.Set:
        """Return the part of the domain where a bounded value is `literal`."""
        value = self.close(value, scope)
        condition = conjunction(equal(value, ix.const(literal)))
        return self.where(scope, condition, f"the value {self.flows.text(value)}").domain
