"""List the steps that enclose the instances of a tile: loops, bound values, tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.expr import Compare, Expr, Logic, Select, Var, reads_memory, variables
from offcut.core.program import Choose, For, Form, If, Let, Stmt, Store, Tile
from offcut.core.traversal import bound_names, walk_with_parents
from offcut.partition.pieces import Piece


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop ``name in lo:hi``; `lane`: the whole range is one tile; `boxed`: tests switch lanes off."""

    name: str
    lo: Expr
    hi: Expr
    lane: bool = False
    boxed: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A bound value, ``let name = value``."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Test:
    """A test: `condition` holds; with `costs`, the cost of `chosen` is the least; with `ways`, any of them has an instance.

    pads  whether a padded tile runs the instances at which it does not hold
    """

    condition: Expr | None = None
    costs: tuple[Expr, ...] = ()
    chosen: int = 0
    ways: tuple[tuple[Step, ...], ...] = ()
    pads: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """Return the free names of the test."""
        names = {name for cost in self.costs for name in variables(cost)}
        names |= set() if self.condition is None else variables(self.condition)
        for way in self.ways:
            bound: set[str] = set()
            for step in way:
                names |= needs(step) - bound
                bound |= set() if isinstance(step, Test) else {step.name}
        return frozenset(names)


Step: TypeAlias = "Loop | Value | Test"


def needs(step: Step) -> frozenset[str]:
    """Return the names, sizes included, on which a step depends."""
    match step:
        case Loop(_, lo, hi):
            return frozenset(variables(lo) | variables(hi))
        case Value(_, value):
            return frozenset(variables(value))
        case Test():
            return step.needs


def steps_of(piece: Piece, plane: Sequence[str]) -> list[list[Step]]:
    """Return what encloses the instances of the tiles of `piece`, outermost first: a list for each place in a tile that has
    all axes of the plane, of which most pieces have one.

    What stands further inside, loops and conditions, is one test: whether it has an instance at a point of the plane.
    Conditions on data are left out: what they decide is not known before the program runs.
    """
    outside = tuple(piece.enclosing_blocks)
    places: dict[tuple[int, ...], tuple[list[Step], list[tuple[Step, ...]]]] = {}
    for store, below in walk_with_parents(piece.path[-1]):
        if not isinstance(store, Store):
            continue
        path = (*outside, *below)
        depth = _depth(path, set(plane))
        if depth is None:
            continue
        key = tuple(id(stmt) for stmt, _ in path[:depth])
        if key not in places:
            places[key] = list(_enclosing_steps(path[:depth], len(outside))), []
        pads = [Test(condition, pads=True) for condition in _padding(piece, store)]
        places[key][1].append((*_enclosing_steps(path[depth:], 0), *pads))
    return [[*steps, *_tests_of_ways(ways)] for steps, ways in places.values()]


def without_padding_tests(steps: Sequence[Step]) -> list[Step]:
    """Return the steps without what a padded tile does not ask of the instances that it runs."""
    remaining: list[Step] = []
    for step in steps:
        if isinstance(step, Test) and step.ways:
            ways = tuple(tuple(without_padding_tests(way)) for way in step.ways)
            remaining += [replace(step, ways=ways)] if all(ways) else []
        elif not isinstance(step, Test) or not step.pads:
            remaining.append(step)
    return remaining


def _depth(path: Sequence[tuple[Stmt, int]], missing: set[str]) -> int | None:
    """Return how many of the statements of `path` bind all names; None if they do not."""
    for depth, (stmt, _) in enumerate(path, 1):
        missing = missing - set(bound_names(stmt))
        if not missing:
            return depth
    return None if missing else 0


def _enclosing_steps(path: Sequence[tuple[Stmt, int]], leaf: int) -> Iterator[Step]:
    """Yield the steps of the statements around these blocks; from number `leaf` on they belong to the tile itself."""
    for place, (stmt, number) in enumerate(path):
        match stmt:
            case For(name, lo, hi):
                yield Loop(name, lo, hi, lane=place >= leaf)
            case Let(name, _, _, value):
                yield Value(name, value)
            case Tile(axes, _, where, form):
                for axis in axes:
                    end = ix.add(axis.start, axis.extent)
                    yield Loop(axis.iter, axis.start, end, lane=True, boxed=True)
                yield from () if where is None else _tests(where, form is Form.PAD)
            case If(condition):
                yield from _tests(condition if number == 0 else Logic("not", (condition,)))
            case Choose(options):
                yield Test(costs=tuple(option.cost for option in options), chosen=number)
            case _:
                pass


def _padding(piece: Piece, store: Store) -> Iterator[Expr]:
    """Return the conditions outside of which padded terms of `store` are neutral."""
    padded_axes = {axis for axis, segment in piece.segments if segment.form is Form.PAD}
    value = store.value
    while isinstance(value, Select):
        match value.condition:
            case Compare("<", Var(name)) if store.reduce is not None and name in padded_axes:
                yield value.condition
            case _:
                return
        value = value.then


def _tests_of_ways(ways: Sequence[tuple[Step, ...]]) -> Iterator[Test]:
    """What is asked of a point of the plane: nothing, where a statement runs at every one; each condition by itself, where there is one way
    to all statements.
    """
    static_ways = [tuple(_static_steps(way)) for way in dict.fromkeys(ways)]
    minimal_ways = [
        way for way in dict.fromkeys(static_ways) if not any(set(w) < set(way) for w in static_ways)
    ]
    if any(not way for way in minimal_ways):
        return
    if len(minimal_ways) > 1:
        yield Test(ways=tuple(minimal_ways))
        return
    for way in minimal_ways:
        bound = {step.name for step in way if not isinstance(step, Test)}
        yield from (s for s in way if isinstance(s, Test) and not s.needs & bound)
        inner_steps = tuple(s for s in way if not isinstance(s, Test) or s.needs & bound)
        yield from (Test(ways=(inner_steps,)),) if inner_steps else ()


def _static_steps(way: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps whose bounds and conditions do not depend on data: a loop over data may have iterations."""
    unknown: set[str] = set()
    for step in way:
        reads = isinstance(step, Loop) and (reads_memory(step.lo) or reads_memory(step.hi))
        reads = reads or (isinstance(step, Value) and reads_memory(step.value))
        if not reads and not needs(step) & unknown:
            yield step
        elif not isinstance(step, Test):
            unknown.add(step.name)


def _tests(condition: Expr, pads: bool = False) -> list[Test]:
    """Yield a test for each part of a conjunction, except those that depend on data."""
    if isinstance(condition, Logic) and condition.op == "and":
        return [test for part in condition.args for test in _tests(part, pads)]
    return [] if reads_memory(condition) else [Test(condition, pads=pads)]
