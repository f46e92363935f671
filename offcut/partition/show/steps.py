"""What encloses the instances of a tile, as a list of steps: loops, bound values, tests."""

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
    """``name in lo:hi``; `lane`: the tile has it whole; `boxed`: its tests switch lanes off."""

    name: str
    lo: Expr
    hi: Expr
    lane: bool = False
    boxed: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """``let name = value``."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Test:
    """Runs where `condition` holds; with `costs`, where that of `chosen` is the least; with `ways`, where any of them has an instance.

    pads  whether a padded tile runs the instances at which it does not hold
    """

    condition: Expr | None = None
    costs: tuple[Expr, ...] = ()
    chosen: int = 0
    ways: tuple[tuple[Step, ...], ...] = ()
    pads: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """The names in it that it does not bind itself."""
        found = {name for cost in self.costs for name in variables(cost)}
        found |= set() if self.condition is None else variables(self.condition)
        for way in self.ways:
            bound: set[str] = set()
            for step in way:
                found |= needs(step) - bound
                bound |= set() if isinstance(step, Test) else {step.name}
        return frozenset(found)


Step: TypeAlias = "Loop | Value | Test"


def needs(step: Step) -> frozenset[str]:
    """The names, sizes among them, on which a step depends."""
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
    outside = tuple(piece.entered)
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
            places[key] = list(_entered(path[:depth], len(outside))), []
        pads = [Test(condition, pads=True) for condition in _padding(piece, store)]
        places[key][1].append((*_entered(path[depth:], 0), *pads))
    return [[*steps, *_inside(ways)] for steps, ways in places.values()]


def padded(steps: Sequence[Step]) -> list[Step]:
    """Return the steps without what a padded tile does not ask of the instances that it runs."""
    left: list[Step] = []
    for step in steps:
        if isinstance(step, Test) and step.ways:
            ways = tuple(tuple(padded(way)) for way in step.ways)
            left += [replace(step, ways=ways)] if all(ways) else []
        elif not isinstance(step, Test) or not step.pads:
            left.append(step)
    return left


def _depth(path: Sequence[tuple[Stmt, int]], missing: set[str]) -> int | None:
    """How many of the statements of `path` bind all names; None where they do not."""
    for depth, (stmt, _) in enumerate(path, 1):
        missing = missing - set(bound_names(stmt))
        if not missing:
            return depth
    return None if missing else 0


def _entered(path: Sequence[tuple[Stmt, int]], leaf: int) -> Iterator[Step]:
    """The steps of statements of which these blocks are entered; from number `leaf` on they are of the tile itself."""
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
    """The conditions outside of which padded terms of `store` are neutral."""
    padded = {axis for axis, segment in piece.segments if segment.form is Form.PAD}
    value = store.value
    while isinstance(value, Select):
        match value.condition:
            case Compare("<", Var(name)) if store.reduce is not None and name in padded:
                yield value.condition
            case _:
                return
        value = value.then


def _inside(ways: Sequence[tuple[Step, ...]]) -> Iterator[Test]:
    """What is asked of a point of the plane: nothing, where a statement runs at every one; each condition by itself, where there is one way
    to all statements.
    """
    known = [tuple(_known(way)) for way in dict.fromkeys(ways)]
    least = [way for way in dict.fromkeys(known) if not any(set(w) < set(way) for w in known)]
    if any(not way for way in least):
        return
    if len(least) > 1:
        yield Test(ways=tuple(least))
        return
    for way in least:
        bound = {step.name for step in way if not isinstance(step, Test)}
        yield from (s for s in way if isinstance(s, Test) and not s.needs & bound)
        rest = tuple(s for s in way if not isinstance(s, Test) or s.needs & bound)
        yield from (Test(ways=(rest,)),) if rest else ()


def _known(way: Sequence[Step]) -> Iterator[Step]:
    """The steps whose bounds and conditions no data decides: a loop over data may have iterations."""
    unknown: set[str] = set()
    for step in way:
        reads = isinstance(step, Loop) and (reads_memory(step.lo) or reads_memory(step.hi))
        reads = reads or (isinstance(step, Value) and reads_memory(step.value))
        if not reads and not needs(step) & unknown:
            yield step
        elif not isinstance(step, Test):
            unknown.add(step.name)


def _tests(condition: Expr, pads: bool = False) -> list[Test]:
    """A test for each part of a conjunction, but for those that depend on data."""
    if isinstance(condition, Logic) and condition.op == "and":
        return [test for part in condition.args for test in _tests(part, pads)]
    return [] if reads_memory(condition) else [Test(condition, pads=pads)]
