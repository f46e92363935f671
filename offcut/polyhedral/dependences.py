"""Dependences of a loop program: which statement instances must keep their order, and which loop
carries them.

Two accesses of one element, at least one of them a write, make a dependence from the instance that
runs first to the one that runs later: *flow* (a write, then a read), *anti* (a read, then a write),
*output* (two writes). A loop *carries* it where the two instances agree on all loops further out
and differ on this one. A loop that carries none is parallel.

A condition that is not quasi-affine is taken as true, and an index that is not as any element:
there may be fewer dependences than these, never more.

Sets are asked last: what no statement around a common loop writes makes no dependence, and a loop whose iterator is
itself an index of the element, in both accesses and of one axis, carries none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product

import islpy as isl

from offcut.core.conditions import conjuncts
from offcut.core.expr import Binary, Compare, Expr, Load, Logic, Var, loads
from offcut.core.memo import lazy_property, memo
from offcut.core.program import Alloc, Choose, For, If, Let, Program, Stmt, Store, Tile
from offcut.polyhedral.affine import Space, coordinates, parse_map
from offcut.polyhedral.witness import smallest_point


@dataclass(frozen=True)
class Statement:
    """A store, and the loops around it.

    path        positions in the blocks around it, from `Program.body` down; a loop is one entry
    loops       the iterators of these loops, outermost first, each with the path of its node
    conditions  what encloses it: bounds and guards over the iterators
    """

    store: Store
    path: tuple[int, ...]
    loops: tuple[tuple[str, tuple[int, ...]], ...]
    conditions: tuple[Expr, ...]

    @property
    def iterators(self) -> tuple[str, ...]:
        """Return the names of the loops around it, outermost first."""
        return tuple(name for name, _ in self.loops)


@dataclass(frozen=True)
class Dependence:
    """``source -> target``, carried by the loop at `path`.

    kind       flow, anti or output
    reduction  whether both are updates of one declared reduction, which add up in any order
    relation   isl map from source to target instances, over the sizes
    certain    whether sets say all indices and conditions; if not, it may be none
    """

    kind: str
    source: Statement
    target: Statement
    path: tuple[int, ...]
    reduction: bool
    relation: isl.Map
    certain: bool

    @property
    def buffer(self) -> str:
        """Return the array that both instances touch."""
        return (self.target if self.kind == "anti" else self.source).store.buffer

    @property
    def loop(self) -> str:
        """Return the iterator of the loop that carries it."""
        return next(name for name, path in self.source.loops if path == self.path)

    @lazy_property
    def witness(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the smallest sizes at which it exists, and the two instances."""
        witness = smallest_point(self.relation.wrap().flatten())
        assert witness is not None
        sizes, point = witness
        rank = len(self.source.loops)
        return sizes, point[:rank], point[rank:]


def statements(program: Program) -> tuple[Statement, ...]:
    """Return every store of `program`, in the order of the text."""
    return tuple(_statements(program.body, Statement(Store("", (), Var("")), (), (), ())))


def _statements(body: Sequence[Stmt], at: Statement) -> Iterator[Statement]:
    for position, stmt in enumerate(body):
        statement_at = replace(at, path=(*at.path, position))
        match stmt:
            case For() | Tile():
                names = [stmt.iter] if isinstance(stmt, For) else [a.iter for a in stmt.axes]
                bound_conditions = bounds(stmt)
                if isinstance(stmt, Tile) and stmt.where is not None:
                    bound_conditions = (*bound_conditions, stmt.where)
                loops = (*statement_at.loops, *((name, statement_at.path) for name in names))
                inner = replace(
                    statement_at,
                    loops=loops,
                    conditions=(*statement_at.conditions, *bound_conditions),
                )
                yield from _statements(stmt.body, inner)
            case If(condition, then, other):
                yes = replace(statement_at, conditions=(*statement_at.conditions, condition))
                no = replace(
                    statement_at, conditions=(*statement_at.conditions, Logic("not", (condition,)))
                )
                yield from _statements(then, replace(yes, path=(*statement_at.path, 0)))
                yield from _statements(other, replace(no, path=(*statement_at.path, 1)))
            case Alloc() | Let():
                yield from _statements(stmt.body, statement_at)
            case Choose(options):
                for number, option in enumerate(options):
                    inner = replace(statement_at, path=(*statement_at.path, number))
                    yield from _statements(option.body, inner)
            case Store():
                yield replace(statement_at, store=stmt)


def bounds(stmt: For | Tile) -> tuple[Expr, ...]:
    """Return the conditions that the bounds of a loop, or of the axes of a tile, give for the statements inside."""
    if isinstance(stmt, For):
        return _between(stmt.lo, Var(stmt.iter), stmt.hi)
    axes = ((a.start, Var(a.iter), Binary("+", a.start, a.extent)) for a in stmt.axes)
    return tuple(bound for axis in axes for bound in _between(*axis))


def _between(lo: Expr, x: Expr, hi: Expr) -> tuple[Expr, Expr]:
    return Compare("<=", lo, x), Compare("<", x, hi)


def dependences(program: Program, buffers: Set[str] | None = None) -> Iterator[Dependence]:
    """Yield every dependence of `program` that a loop carries, by pairs of accesses, one for each loop; if `buffers` are given, those on
    these alone.
    """
    space = Space(program.sizes, program.assumptions)
    accesses = [(one, _accesses(space, one)) for one in statements(program)]
    for (one, mine), (other, theirs) in product(accesses, accesses):
        common = tuple(_common(one, other))
        for a, b in product(mine, theirs):
            if a.buffer != b.buffer or not (a.writes or b.writes):
                continue
            if buffers is not None and a.buffer not in buffers:
                continue
            levels = [
                (n, path)
                for n, name, path in common
                if not _has_equal_index(name, a.index, b.index)
            ]
            if not levels:
                continue
            same = a.relation.apply_range(b.relation.reverse())
            if same.is_empty():
                continue
            kind = "output" if a.writes and b.writes else "flow" if a.writes else "anti"
            reduction = a.accumulates and b.accumulates and one.store == other.store
            for level, path in levels:
                ranks = len(one.loops), len(other.loops)
                carried = same & _carried_at(space.parameters, ranks, level)
                if not carried.is_empty():
                    certain = a.certain and b.certain
                    yield Dependence(kind, one, other, path, reduction, carried, certain)


def _has_equal_index(name: str, index: tuple[Expr, ...], other: tuple[Expr, ...]) -> bool:
    """Return whether two accesses of one element agree on an iterator: it is an index of both, of one axis."""
    return any(a == b == Var(name) for a, b in zip(index, other, strict=True))


def carried_by(program: Program) -> dict[tuple[int, ...], list[Dependence]]:
    """Return the dependences that each loop carries, by the path of the loop; none: it is parallel."""
    by_path: dict[tuple[int, ...], list[Dependence]] = {}
    for one in statements(program):
        for _, path in one.loops:
            by_path.setdefault(path, [])
    for dependence in dependences(program):
        by_path[dependence.path].append(dependence)
    return by_path


def _common(one: Statement, other: Statement) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """Return (level, iterator, path) of the loops that enclose both."""
    for level, (mine, theirs) in enumerate(zip(one.loops, other.loops, strict=False)):
        if mine != theirs:
            return
        yield level, *mine


@dataclass(frozen=True)
class _Domain:
    """The instances of a statement, as far as its conditions are quasi-affine."""

    space: Space
    statement: Statement

    @lazy_property
    def at(self) -> dict[str, str]:
        """Return the coordinate of each iterator."""
        return coordinates(self.statement.iterators)

    @lazy_property
    def condition_texts(self) -> tuple[str | None, ...]:
        """Return each condition as isl text; None for one that is not quasi-affine."""
        parts = (part for condition in self.statement.conditions for part in conjuncts(condition))
        return tuple(self.space.condition(part, self.at) for part in parts)

    @lazy_property
    def instances(self) -> isl.Set:
        """Return the instances at which all quasi-affine conditions hold."""
        texts = [text for text in self.condition_texts if text is not None]
        return self.space.set(self.statement.iterators, texts)


@dataclass(frozen=True)
class _Access:
    """An access of an element by a statement, under the conditions of `path`.

    accumulates  whether it is of an update of a declared reduction
    """

    domain: _Domain
    buffer: str
    index: tuple[Expr, ...]
    path: tuple[Expr, ...]
    writes: bool
    accumulates: bool

    @lazy_property
    def relation(self) -> isl.Map:
        """Return ``instance -> element``."""
        space, at = self.domain.space, self.domain.at
        relation = _relation(space, len(at), self.index, self.path, at)
        return relation.intersect_domain(self.domain.instances)

    @lazy_property
    def certain(self) -> bool:
        """Return whether sets say all indices and conditions."""
        space, at = self.domain.space, self.domain.at
        texts = [space.expr(part, at) for part in self.index]
        texts += [space.condition(condition, at) for condition in self.path]
        return None not in (*self.domain.condition_texts, *texts)


def _accesses(space: Space, one: Statement) -> list[_Access]:
    """Return the accesses of a statement; the target of an update is read too.

    A term that reads the very element it is added to is no term of a reduction.
    """
    store, domain = one.store, _Domain(space, one)
    index_reads = [read for part in store.index for read in loads(part)]
    reads = [*loads(store.value), *index_reads, *_guards(one)]
    is_update = any((load.buffer, load.index) == (store.buffer, store.index) for load, _ in reads)
    updates = store.reduce is not None and not is_update
    is_update_of: dict[tuple[str, tuple[Expr, ...], tuple[Expr, ...], bool], bool] = {}
    is_update_of[store.buffer, store.index, (), True] = updates
    if store.reduce is not None:
        is_update_of[store.buffer, store.index, (), False] = updates
    for load, path in reads:
        is_update_of.setdefault((load.buffer, load.index, path, False), False)
    return [_Access(domain, *access, updated) for access, updated in is_update_of.items()]


def _guards(one: Statement) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    for condition in one.conditions:
        yield from loads(condition)


def _relation(
    space: Space, rank: int, index: Sequence[Expr], path: Sequence[Expr], at: dict[str, str]
) -> isl.Map:
    xs = ", ".join(f"x{k}" for k in range(rank))
    outs, equal = [], []
    for k, part in enumerate(index):
        outs.append(f"e{k}")
        text = space.expr(part, at)
        if text is not None:
            equal.append(f"e{k} = {text}")
    texts = (space.condition(condition, at) for condition in path)
    domain = " and ".join([*equal, *(text for text in texts if text is not None)]) or "true"
    return parse_map(f"{space.parameters}{{ [{xs}] -> [{', '.join(outs)}] : {domain} }}")


@memo(256)
def _carried_at(parameters: str, ranks: tuple[int, int], level: int) -> isl.Map:
    """Return pairs of instances in so many loops that agree before `level`, the first one earlier on it."""
    first = [f"a{k}" for k in range(ranks[0])]
    second = [f"b{k}" for k in range(ranks[1])]
    equal = [f"a{k} = b{k}" for k in range(level)]
    order = " and ".join([*equal, f"a{level} < b{level}"])
    head = f"{parameters}{{ [{', '.join(first)}] -> [{', '.join(second)}]"
    return parse_map(f"{head} : {order} }}")
