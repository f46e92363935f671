"""The judge of covers: a tile, its program and a microkernel in; how the microkernel runs it, or why not.

    microkernel  C[i, j] = sum over p of A[i, p] * B[p, j]
    tile         for k in 0:64: Y[b, r, s] += V[s, k] * X[b, k, r]        i -> s, j -> r, p -> k;  A = V, B = X

It asks in this order, and names the first that fails (`Question`):

term      the expressions agree node by node (sums and products commute), the reducers and the types too
bounds    of the loops of the sum are the same for all instances; an instance is off along one axis only
extents   are such as the microkernel has, or are predicated, padded, repeated
moves     elements move along the axes of the tile as the declared ones do along their axes: there is a
          linear map from declared places to those of the program
memory    each operand lies in a memory that the microkernel accepts
layout    there it lies as declared, or the target may lay it so
start     a sum starts from the neutral element, by the microkernel or by its reset, or is added to
inside    the result is not read while it is computed
unit      what runs the microkernel runs the loops around

Names of axes and of arrays are never compared. Which axis is which is found by access relations, the
innermost axis first, unless a cover says it: then loops whose bounds move with the axes of the tile are
counted from there (``for k in i:i + 4`` runs r = k - i, a unimodular change of axes), too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from math import copysign, inf
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.dtypes import ANY_ORDER, FLOATS, identity, neutral
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Reduce,
    Select,
    Unary,
    Var,
    children,
    dtype_of,
    reads_memory,
    rebuild,
    substitute,
    variables,
)
from offcut.core.intervals import combined
from offcut.core.layout import Layout, as_panels
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    Cover,
    For,
    Form,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    substituted,
)
from offcut.core.program import walk as statements
from offcut.core.sizes import MAX_SIZE
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr, format_stmt
from offcut.core.tile_limits import begun, limits, unlimited
from offcut.core.walking import around as paths
from offcut.core.walking import rewrite
from offcut.describe.computation import Stage
from offcut.describe.microkernel import CORE, LOOP_UNITS, Microkernel, Place
from offcut.errors import PartitionError
from offcut.polyhedral import NEXT, coefficient, row_spacing

MAIN = "main memory"
_MAX_HEIGHTS = 1 << 12  # combinations of extents of the axes but the last that are looked at


class Question(Enum):
    """What the judge asks, in its order."""

    TERM = "term"
    BOUNDS = "bounds"
    EXTENTS = "extents"
    MOVES = "moves"
    MEMORY = "memory"
    LAYOUT = "layout"
    START = "start"
    INSIDE = "inside"
    UNIT = "unit"


BEFORE_STAGING = frozenset({Question.MEMORY, Question.LAYOUT, Question.UNIT})
"""What is not decided yet where loops are cut: memories, layouts, units."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a microkernel does not run a tile.

    question  the first one that fails
    because   what fails, with its value
    witness   the smallest case in which it does; "" where the text shows it for all
    """

    question: Question
    because: str
    witness: str = ""

    def __str__(self) -> str:
        return f"{self.because}: {self.witness}" if self.witness else self.because


@dataclass(frozen=True, slots=True)
class Match:
    """A microkernel laid over a statement.

    axes      (axis of the microkernel, iterator of the statement); None: the statement has no such
              axis, which has one value
    operands  what the statement reads for each operand of the microkernel, by its name
    """

    microkernel: Microkernel
    axes: tuple[tuple[str, str | None], ...]
    operands: tuple[tuple[str, Load], ...]

    def axis(self, name: str) -> str | None:
        """The iterator of an axis of the microkernel."""
        return dict(self.axes).get(name)

    def operand(self, name: str) -> Load:
        """What the statement reads for the microkernel's operand `name`."""
        return dict(self.operands)[name]

    @property
    def rows(self) -> str | None:
        """The iterator of the axis before the last one of the microkernel's result."""
        return self.axis(self.microkernel.rows)

    @property
    def columns(self) -> str | None:
        """The iterator of the last axis of the microkernel's result."""
        return self.axis(self.microkernel.columns)

    @property
    def depth(self) -> str:
        """The innermost loop of the sum; "" where the microkernel has none."""
        return self.axis(self.microkernel.depth) or ""

    @property
    def by_rows(self) -> Load:
        """What the statement reads for the operand that moves along the microkernel's rows."""
        return self.operand(self.microkernel.operand_along(self.microkernel.rows))

    @property
    def by_columns(self) -> Load:
        """What the statement reads for the operand that moves along the microkernel's columns."""
        return self.operand(self.microkernel.operand_along(self.microkernel.columns))

    def turned(self, lead: Stage) -> tuple[str, ...]:
        """The axes of a sum, of known extents, that run inside of the microkernel's functions around its depth."""
        others = [axis for axis in lead.reduce_axes if axis.name != self.depth]
        inside: list[str] = []
        for axis in others[::-1][: self.microkernel.turns]:
            if not ix.literal(axis.extent):
                break
            inside.insert(0, axis.name)
        return tuple(inside)


@dataclass(frozen=True, slots=True)
class Covered:
    """A statement of a tile that the microkernel computes.

    store    where it writes
    match    which axis is which, and what it reads
    loops    those of its reduction, outermost first
    turns    loops around these that it runs as well
    around   loops around those, in each iteration of which it is issued
    rank     how many preferred ways to lay it were refused before
    start    "fresh": it starts from the neutral element itself; "reset": its reset does; "adds": it adds
             to what is there; "": it reduces nothing
    """

    store: Store
    match: Match
    loops: tuple[For, ...] = ()
    turns: tuple[For, ...] = ()
    around: tuple[For, ...] = ()
    start: str = ""
    rank: int = 0

    @property
    def loop(self) -> For:
        """The innermost loop of its sum."""
        return self.loops[-1]


Parts: TypeAlias = tuple[Covered | Stmt | None, ...]
"""What becomes of each statement of a tile: the microkernel's; itself; None: nothing, it is the start of
the sum that follows, which is the microkernel's own."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How a microkernel runs a tile.

    cover  the same in words: what is kept on the tile, and printed
    parts  by statement of the tile
    """

    cover: Cover
    parts: Parts

    @property
    def covered(self) -> tuple[Covered, ...]:
        """What the microkernel computes."""
        return tuple(part for part in self.parts if isinstance(part, Covered))


@dataclass(frozen=True)
class Surroundings:
    """What stands around a tile.

    path      the statements around it, outermost first
    range_of  the least and the greatest value of an index expression there
    is_held   whether each instance holds its own element of a buffer, which has no address
    """

    path: tuple[Stmt, ...]
    range_of: Callable[[Expr], tuple[float, float]]
    is_held: Callable[[Buffer], bool] = lambda buffer: buffer.kind is Kind.PRIVATE

    @classmethod
    def of(cls, tile: Tile, program: Program) -> Surroundings:
        """Those of a tile of a program, as its text shows them."""
        path = next((way for one, way in paths(program) if one is tile), ())
        return cls.in_path(tuple(stmt for stmt, _ in path), program)

    @classmethod
    def in_path(cls, outer: tuple[Stmt, ...], program: Program) -> Surroundings:
        """Those of a tile inside these statements."""
        ranges: dict[str, tuple[float, float]] = {s.name: (s.min, s.last) for s in program.sizes}
        for stmt in outer:
            match stmt:
                case For(name, lo, hi):
                    ranges[name] = _interval(lo, ranges)[0], _interval(hi, ranges)[1] - 1
                case Let(name, lo, hi):
                    ranges[name] = lo, hi - 1
                case _:
                    pass
        return cls(outer, lambda expr: _interval(expr, ranges))


def _interval(expr: Expr, ranges: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    match expr:
        case Const(value):
            return int(value), int(value)
        case Var(name):
            return ranges.get(name, (-inf, inf))
        case Binary(op, a, b) if op in ("+", "-", "*", "//", "%", "min", "max"):
            return combined(op, _interval(a, ranges), _interval(b, ranges))
        case _:
            return -inf, inf


def cover(
    tile: Tile,
    program: Program,
    microkernel: Microkernel,
    wanted: Cover | None = None,
    *,
    at: Surroundings | None = None,
    heights: Mapping[str, tuple[int, int]] | None = None,
    undecided: Collection[Question] = (),
    issued: Collection[str] = (),
) -> Coverage | Refusal:
    """Return how `microkernel` runs `tile`, or the first question that it fails.

    wanted     which axis is which, and which array which operand; what it leaves out is found
    at         what stands around the tile; None: what the program shows
    heights    the least and the greatest extent of axes of the tile, where more is known than `at` shows
    undecided  questions that are not asked, since their answers are not decided yet
    issued     axes of the microkernel along which its target issues it several times
    """
    if any(isinstance(stmt, Choose | Tile) for stmt in statements(tile.body)):
        return Refusal(Question.TERM, "it holds tiles of its own")
    return _Judge(
        begun(tile),
        program,
        microkernel,
        wanted or Cover(microkernel.name),
        at or Surroundings.of(tile, program),
        heights or {},
        frozenset(undecided),
        frozenset(issued),
    ).coverage()


def matches(
    microkernel: Microkernel,
    value: Expr,
    reducer: str | None,
    axes: Sequence[str],
    reduce_axes: Sequence[str],
) -> Iterator[Match]:
    """Every way to lay `microkernel` over ``C[axes] reducer= value``, the preferred ones first.

    Preferred: the last axis of the microkernel on the innermost axis, the one before it on the next that
    fits, its reductions on the innermost ones.
    """
    if microkernel.reducer != reducer:
        return
    pairings = list(_pairings(microkernel, value))
    reduced = list(reversed(reduce_axes))
    for own in _choices(microkernel.axes, list(reversed(axes))):
        for summed in _assignments(microkernel.reduce_axes, reduced):
            mapping = {**own, **summed}
            for operands in pairings:
                if _moves_alike(operands, mapping):
                    loads = tuple(
                        (m.buffer, t)
                        for m, t in operands
                        if isinstance(t, Load) and isinstance(m, Load)
                    )
                    yield Match(microkernel, tuple(mapping.items()), loads)


def all_matches(stage: Stage, microkernels: Sequence[Microkernel]) -> Iterator[Match]:
    """Every way in which a microkernel computes what `stage` does, the preferred ones first."""
    axes = [axis.name for axis in stage.axes]
    reduced = [axis.name for axis in stage.reduce_axes]
    for kernel in microkernels:
        yield from matches(kernel, stage.value, stage.reducer, axes, reduced)


def first_cover(
    tile: Tile,
    program: Program,
    microkernels: Sequence[Microkernel],
    heights: Mapping[str, tuple[int, int]],
) -> Cover | None:
    """Return the cover of a tile that was cut by one of `microkernels`; None where there is none.

    The statement that comes first is covered, in the preferred way before others, by the microkernel that
    comes first. Memories, layouts and units are not decided yet.
    """
    at = Surroundings((), lambda expr: _interval(expr, {}))
    best: tuple[tuple[int, bool, int], Cover] | None = None
    for number, kernel in enumerate(microkernels):
        found = cover(tile, program, kernel, at=at, heights=heights, undecided=BEFORE_STAGING)
        if isinstance(found, Refusal):
            continue
        place, one = next((n, p) for n, p in enumerate(found.parts) if isinstance(p, Covered))
        key = place, one.rank > 0, number
        if best is None or key < best[0]:
            best = key, found.cover
    return None if best is None else best[1]


def match_cover(
    tile: Tile, program: Program, match: Match, heights: Mapping[str, tuple[int, int]]
) -> Cover | None:
    """Return the cover of a tile that was cut for `match`; None where the microkernel does not run it so."""
    axes = tuple((name, iterator) for name, iterator in match.axes if iterator is not None)
    wanted = Cover(match.microkernel.name, axes)
    at = Surroundings((), lambda expr: _interval(expr, {}))
    undecided = BEFORE_STAGING
    found = cover(
        tile, program, match.microkernel, wanted, at=at, heights=heights, undecided=undecided
    )
    return None if isinstance(found, Refusal) else found.cover


def with_covers(
    program: Program,
    named: Callable[[str], Microkernel | None],
    undecided: Collection[Question] = (),
) -> Program:
    """Return `program` whose tiles say the whole of the covers that they name.

    named      the microkernel of a name; None of one whose tiles stay as they are
    undecided  questions that are not asked

    Raises PartitionError for a tile that its microkernel does not run, with the first question that it fails.
    """

    def rule(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Tile) or stmt.cover is None:
            return None
        kernel = named(stmt.cover.microkernel)
        if kernel is None:
            return None
        found = cover(stmt, program, kernel, stmt.cover, at=around[id(stmt)], undecided=undecided)
        if isinstance(found, Coverage) and found.cover.microkernel != stmt.cover.microkernel:
            because = f"the tile is of {found.cover.microkernel}: it starts its sum, or adds to one"
            found = Refusal(Question.START, because)
        if isinstance(found, Refusal):
            raise PartitionError(
                "cover",
                f"cannot cover a tile by {stmt.cover.microkernel}",
                at=f"tile {', '.join(axis.iter for axis in stmt.axes)}",
                because=f"{found.question.value}: {found}",
            )
        return replace(stmt, cover=found.cover)

    around = {
        id(stmt): Surroundings.in_path(tuple(outer for outer, _ in path), program)
        for stmt, path in paths(program)
        if isinstance(stmt, Tile)
    }
    return rewrite(program, rule)


class _Judge:
    """One tile before one microkernel."""

    def __init__(
        self,
        tile: Tile,
        program: Program,
        kernel: Microkernel,
        wanted: Cover,
        at: Surroundings,
        heights: Mapping[str, tuple[int, int]],
        undecided: frozenset[Question],
        issued: frozenset[str],
    ) -> None:
        self.tile, self.program, self.kernel, self.wanted = tile, program, kernel, wanted
        self.at, self.undecided, self.issued = at, undecided, issued
        self.heights = heights
        self.axes = {axis.iter: axis for axis in tile.axes}
        self.padded = tile.form is Form.PAD
        self.refusals: list[Refusal] = []

    def coverage(self) -> Coverage | Refusal:
        """What becomes of each statement of the tile."""
        if (refusal := self.of_wanted()) is not None:
            return refusal
        if conditions := unlimited(self.tile):
            because = f"{format_expr(conditions[0])} is asked of each instance"
            return Refusal(Question.BOUNDS, because)
        parts: list[Covered | Stmt | None] = []
        for stmt in self.tile.body:
            part = self.covered(stmt)
            if part is None:
                parts.append(stmt)
                continue
            if part.start and parts and _starts(parts[-1], part):
                if not part.around and all(map(is_run, part.turns)):
                    parts[-1] = None
                    start = "reset" if self.kernel.accumulate == "adds" else "fresh"
                    part = replace(part, start=start)
                elif self.kernel.reset is not None:
                    store = self.tile.body[len(parts) - 1]
                    assert isinstance(store, Store)
                    parts[-1] = Covered(store, replace(part.match, operands=()), start="reset")
            parts.append(part)
        found = [part for part in parts if isinstance(part, Covered)]
        if not found:
            reset = self.reset()
            if reset is not None:
                return reset
            none = Refusal(
                Question.TERM,
                "it has no sum" if self.kernel.reducer else "it is not what it computes",
            )
            return self.refusals[0] if self.refusals else none
        refusal = self.of_start(parts, found) or self.of_inside(found) or self.of_unit()
        if refusal is not None:
            return refusal
        return Coverage(self.as_cover(found), tuple(parts))

    def of_wanted(self) -> Refusal | None:
        """Why the cover that is wanted names what there is not."""
        known = {*self.axes, *(s.iter for s in statements(self.tile.body) if isinstance(s, For))}
        axes = {*self.kernel.axes, *self.kernel.reduce_axes}
        tensors = {t.name for t in (self.kernel.computes, *self.kernel.definition.reads)}
        because = ""
        for name, iterator in self.wanted.axes:
            if name not in axes:
                because = f"{self.kernel.name} has no axis {name}: {', '.join(sorted(axes))}"
            elif iterator not in known:
                because = f"nothing in the tile runs over {iterator}: {', '.join(sorted(known))}"
        for name, _ in self.wanted.operands:
            if name not in tensors:
                because = f"{self.kernel.name} has no operand {name}: {', '.join(sorted(tensors))}"
        return Refusal(Question.TERM, because) if because else None

    def covered(self, stmt: Stmt) -> Covered | None:
        """A statement as the microkernel computes it, with the loops around its sum; None where it does not."""
        nest: list[For] = []
        inner = stmt
        while isinstance(inner, For) and len(inner.body) == 1:
            nest.append(inner)
            inner = inner.body[0]
        summed = len(self.kernel.reduce_axes)
        if not isinstance(inner, Store) or len(nest) < summed:
            return None
        inner = self.with_whole_terms(inner)
        if (inner.reduce is None) != (self.kernel.reducer is None) and summed:
            return None
        cut = len(nest) - summed
        for loop in nest[cut:]:
            if loop.unit in LOOP_UNITS and loop.unit != "thread":
                what = "as lanes of its own" if loop.unit == "lane" else f"on each {loop.unit}"
                self.refusals.append(Refusal(Question.BOUNDS, f"loop {loop.iter} runs {what}"))
                return None
        if self.wanted.axes:
            inner, nest = self.counted_from_axes(inner, nest)
        return self.judged(inner, tuple(nest[cut:]), tuple(nest[:cut]))

    def with_whole_terms(self, store: Store) -> Store:
        """An update without the condition that pads it: a term past the last is neutral, as zeros of its operands are."""
        match store:
            case Store(_, _, Select(_, value, Const(nothing)), reduce) if reduce is not None:
                dtype = self.kernel.computes.dtype
                if nothing == identity(reduce, dtype) and self.kernel.at_once > 1:
                    return replace(store, value=value)
        return store

    def counted_from_axes(self, store: Store, nest: Sequence[For]) -> tuple[Store, list[For]]:
        """The loops of a sum, those whose bounds move with the axes of the tile counted from where they begin."""
        loops: list[For] = []
        inner: tuple[Stmt, ...] = (store,)
        values: dict[str, Expr] = {}
        for loop in nest:
            lo, hi = (substitute(bound, values) for bound in (loop.lo, loop.hi))
            moving: Expr = ix.const(0)
            for atom, factor in ix.linear(lo).terms:
                if variables(atom) & self.axes.keys():
                    moving = ix.add(moving, ix.mul(factor, atom))
            lo, hi = ix.sub(lo, moving), ix.sub(hi, moving)
            values[loop.iter] = ix.add(Var(loop.iter), moving)
            loops.append(replace(loop, lo=lo, hi=hi))
        moved = {name: value for name, value in values.items() if value != Var(name)}
        if moved:
            inner = substituted(inner, moved)
        (moved_store,) = inner
        assert isinstance(moved_store, Store)
        return moved_store, loops

    def judged(
        self, store: Store, loops: tuple[For, ...], around: tuple[For, ...]
    ) -> Covered | None:
        """A store and the loops of its sum as the microkernel computes them; None where it does not."""
        reasons: list[Refusal] = []
        for rank, match in enumerate(self.ways(store, loops)):
            refusal = self.refusal(store, match, loops, around)
            if refusal is None:
                start = "adds" if self.kernel.reducer else ""
                turns = self.turns(match, loops, around)
                left = around[: len(around) - len(turns)]
                return Covered(store, match, loops, turns, left, start, rank)
            reasons.append(refusal)
        if reasons:
            self.refusals.append(reasons[0])
        elif self.kernel.reducer is None or store.reduce is not None:
            self.refusals.append(self.no_way(store, loops))
        return None

    def ways(self, store: Store, loops: tuple[For, ...]) -> Iterator[Match]:
        """Every way to lay the microkernel over a store that the cover which is wanted allows."""
        value, reducer = store.value, store.reduce
        if self.kernel.reducer is None and reducer is not None:
            current = Load(store.buffer, store.index, self.kernel.computes.dtype)
            value, reducer = Binary(_AS_BINARY[reducer], current, value), None
        axes, names = dict(self.wanted.axes), dict(self.wanted.operands)
        result = names.pop(self.kernel.computes.name, store.buffer)
        if result != store.buffer:
            return
        for match in matches(self.kernel, value, reducer, list(self.axes), [x.iter for x in loops]):
            as_said = not axes or all(axes.get(name) == iterator for name, iterator in match.axes)
            same = all(names.get(name, load.buffer) == load.buffer for name, load in match.operands)
            left_out = (name for name, iterator in match.axes if iterator is None)
            if as_said and same and all(self.takes_one(name) for name in left_out):
                yield match

    def takes_one(self, name: str) -> bool:
        """Whether an axis of the result may have one value, and so be left out."""
        kernel = self.kernel
        place = kernel.axes.index(name)
        return name in kernel.predicates or any(t.extents[place] == 1 for t in kernel.tiles)

    def no_way(self, store: Store, loops: tuple[For, ...]) -> Refusal:
        """Why no way is one: another term, or elements that move along other axes."""
        shown = format_expr(store.value)
        if store.reduce != self.kernel.reducer:
            kind = "no reduction" if store.reduce is None else f"a reduction by {store.reduce}"
            own = self.kernel.reducer
            does = "reduces nothing" if own is None else f"reduces by {own}"
            return Refusal(Question.TERM, f"it is {kind}, and {self.kernel.name} {does}")
        pairings = list(_pairings(self.kernel, store.value))
        types = dtype_of(store.value), self.kernel.computes.dtype
        if types[0] != types[1]:
            because = f"its elements are {types[0]}, and those of {self.kernel.name} {types[1]}"
            return Refusal(Question.TERM, because)
        if not pairings:
            return Refusal(Question.TERM, f"{shown} is not what it sums")
        if not self.wanted.axes and not self.wanted.operands:
            return Refusal(Question.MOVES, f"{shown} is not what it sums")
        names = dict(self.wanted.operands)
        given = names.get(self.kernel.computes.name, store.buffer)
        if given != store.buffer:
            because = f"it computes {store.buffer}, and the cover says {given}"
            return Refusal(Question.MOVES, because)
        mapping = dict(self.wanted.axes)
        for operands in pairings:
            for mine, theirs in operands:
                if not (isinstance(mine, Load) and isinstance(theirs, Load)):
                    continue
                if names.get(mine.buffer, theirs.buffer) != theirs.buffer:
                    continue
                if _steps(mine, theirs, mapping) is None:
                    own, of = format_expr(mine), format_expr(theirs)
                    said = ", ".join(f"{a}={b}" for a, b in self.wanted.axes)
                    because = f"{of} does not move as {own} with {said}"
                    return Refusal(Question.MOVES, because)
        said = ", ".join(f"{a}={b}" for a, b in (*self.wanted.axes, *self.wanted.operands))
        return Refusal(Question.MOVES, f"{shown} is not what it computes with {said}")

    def turns(
        self, match: Match, loops: tuple[For, ...], around: tuple[For, ...]
    ) -> tuple[For, ...]:
        """The innermost of the loops around a sum that the microkernel runs as well: along which both operands move by
        steps of their own, and no bound inside.
        """
        most = 0 if self.padded else self.kernel.turns
        count = 0
        inner = {name for one in loops for bound in (one.lo, one.hi) for name in variables(bound)}
        for one in reversed(around[len(around) - most :] if most < len(around) else around):
            if one.iter in inner or not self.is_turn(one, match):
                break
            inner |= variables(one.lo) | variables(one.hi)
            count += 1
        return around[len(around) - count :]

    def is_turn(self, loop: For, match: Match) -> bool:
        """Whether a loop moves all operands by a constant step each, and none inside of a panel."""
        for _, load in match.operands:
            steps = [coefficient(part, loop.iter) for part in load.index]
            if None in steps:
                return False
            panels = as_panels(self.layout_at(load.buffer))
            if panels is not None and (steps[panels.rows] or steps[panels.columns]):
                return False
        return loop.unit is None

    def refusal(
        self, store: Store, match: Match, loops: tuple[For, ...], around: tuple[For, ...]
    ) -> Refusal | None:
        """Why a way to lay the microkernel over a store is no cover; None where it is one."""
        asked: tuple[Callable[[], Refusal | None], ...] = (
            lambda: self.of_type(store),
            lambda: self.of_bounds(store, loops, around),
            lambda: self.of_extents(match, loops),
            lambda: self.of_moves(store, match, loops),
            lambda: self.of_memory(store, match),
            lambda: self.of_layout(store, match, loops),
        )
        return next((found for ask in asked if (found := ask()) is not None), None)

    def of_type(self, store: Store) -> Refusal | None:
        """Why the result is of another type."""
        dtype = self.kernel.computes.dtype
        if self.program.buffer(store.buffer).dtype == dtype:
            return None
        what = "sums" if self.kernel.reducer else "results"
        return Refusal(Question.TERM, f"its {what} are {dtype}")

    def of_bounds(
        self, store: Store, loops: tuple[For, ...], around: tuple[For, ...]
    ) -> Refusal | None:
        """Why its loops are not the same for all instances, or run in another order."""
        if Question.BOUNDS in self.undecided:
            return None
        for one in (*around, *loops):
            for bound in (one.lo, one.hi):
                if variables(bound) & self.axes.keys() or reads_memory(bound):
                    because = f"the bound {format_expr(bound)} differs between its instances"
                    return Refusal(Question.BOUNDS, because)
        inside = {one.iter for one in loops}
        for one in loops:
            for bound in (one.lo, one.hi):
                if variables(bound) & inside:
                    because = f"the bound {format_expr(bound)} differs between its terms"
                    return Refusal(Question.BOUNDS, because)
        return None

    def of_extents(self, match: Match, loops: tuple[For, ...]) -> Refusal | None:
        """Why none of its tiles is the rectangle of instances and terms."""
        if Question.EXTENTS in self.undecided:
            return None
        heights: dict[str, tuple[float, float]] = {}
        masked: set[str] = set()
        for name, axis in self.axes.items():
            heights[name] = self.heights.get(name) or self.at.range_of(axis.extent)
            if not self.padded and any(limits(self.tile, name)):
                masked.add(name)
        for loop in loops:
            heights[loop.iter] = self.at.range_of(ix.sub(loop.hi, loop.lo))
        multiples = {
            name: ix.multiple_of(extent)
            for name, extent in (
                *((axis.iter, axis.extent) for axis in self.tile.axes),
                *((loop.iter, ix.sub(loop.hi, loop.lo)) for loop in loops),
            )
        }
        return _extents(match, heights, frozenset(masked), self.issued, multiples)

    def of_moves(self, store: Store, match: Match, loops: tuple[For, ...]) -> Refusal | None:
        """Why the result does not move as the declared one does."""
        index, shown = store.index, _shown(store)
        for loop in loops:
            if any(loop.iter in variables(part) for part in index):
                return Refusal(Question.MOVES, f"{shown} moves with {loop.iter}")
        for name in self.kernel.axes:
            iterator = match.axis(name)
            steps = [1] if iterator is None else [coefficient(part, iterator) for part in index]
            if None in steps or not any(steps):
                return Refusal(Question.MOVES, f"{shown} has no step of its own along {iterator}")
        order = [loop.iter for loop in loops]
        mapped = [match.axis(name) for name in self.kernel.reduce_axes]
        exact = store.reduce in ANY_ORDER or self.kernel.computes.dtype not in FLOATS
        if loops and mapped != order and self.kernel.ascending and not exact:
            because = f"it adds its terms along {', '.join(map(str, mapped))}, and the loops run along {', '.join(order)}"
            return Refusal(Question.MOVES, because)
        return None

    def of_memory(self, store: Store, match: Match) -> Refusal | None:
        """Why an operand lies where the microkernel cannot find it."""
        if Question.MEMORY in self.undecided:
            return None
        both: tuple[tuple[str, Load | Store], ...] = match.operands
        for name, load in (*both, (self.kernel.computes.name, store)):
            place = self.kernel.place_of(name)
            held = self.at.is_held(self.program.buffer(load.buffer))
            if held and not place.memories and load is not store:
                return Refusal(Question.MEMORY, "an operand lies in registers")
            lies = self.memory_of(load.buffer)
            if place.memories and lies not in place.memories:
                takes = " or ".join(place.memories)
                because = (
                    f"{load.buffer} lies in {lies}, and {self.kernel.name} has {name} in {takes}"
                )
                return Refusal(Question.MEMORY, because)
        return None

    def memory_of(self, buffer: str) -> str:
        """The memory that holds a buffer where the tile stands."""
        for stmt in reversed(self.at.path):
            if isinstance(stmt, Alloc) and stmt.buffer == buffer and stmt.memory is not None:
                return stmt.memory
        return self.program.buffer(buffer).scope or MAIN

    def layout_at(self, buffer: str) -> Layout | None:
        """The layout of a buffer where the tile stands; None where none is stated."""
        for stmt in reversed(self.at.path):
            if isinstance(stmt, Alloc) and stmt.buffer == buffer and stmt.layout is not None:
                return stmt.layout
        return self.program.buffer(buffer).layout

    def of_layout(self, store: Store, match: Match, loops: tuple[For, ...]) -> Refusal | None:
        """Why operands and the result do not lie as the microkernel reads and writes them."""
        if Question.LAYOUT in self.undecided:
            return None
        for name, load in match.operands:
            found = self.of_operand(name, load, match, loops)
            if found is not None:
                return Refusal(Question.LAYOUT, found)
        return self.of_result(store, match)

    def of_result(self, store: Store, match: Match) -> Refusal | None:
        """Why the result does not lie as the microkernel writes it."""
        name = self.kernel.computes.name
        place, layout = self.kernel.place_of(name), self.layout_at(store.buffer)
        iterator = match.axis(place.beside)
        if layout is None and (lane := self.shared_lane(name, store.index, match, ())):
            because = f"{_shown(store)} does not move by itself along {lane}"
            return Refusal(Question.LAYOUT, because)
        if layout is not None and as_panels(layout) is None:
            if place.layout is not None and self.is_laid(name, store.index, match, layout):
                return None
            because = f"{_shown(store)} lies as {format_layout(layout)}"
            return Refusal(Question.LAYOUT, because)
        if iterator is None or self.at.is_held(self.program.buffer(store.buffer)) or self.padded:
            return None
        if layout is None and row_spacing(store.index, iterator, 2, 1) == NEXT:
            return None
        because = f"{_shown(store)} does not lie side by side along {iterator}"
        return Refusal(Question.LAYOUT, because)

    def of_operand(self, name: str, load: Load, match: Match, loops: tuple[For, ...]) -> str | None:
        """Why an operand does not lie as the microkernel reads it."""
        place, buffer, shown = (
            self.kernel.place_of(name),
            self.program.buffer(load.buffer),
            format_expr(load),
        )
        layout, iterator = self.layout_at(load.buffer), match.axis(place.beside)
        if layout is None:
            if place.layout is not None and not self.is_derivable(place, name, buffer):
                return f"{shown} is not packed as it reads it"
            if lane := self.shared_lane(name, load.index, match, loops):
                return f"{shown} does not move by itself along {lane}"
            if iterator is None or row_spacing(load.index, iterator, 2, 1) == NEXT:
                return None
            return f"{shown} does not lie side by side along {iterator}"
        if place.layout is None:
            return f"{shown} is packed, and its rows are read one step apart"
        if not (
            self.is_packed(layout, buffer, load, loops)
            if name == self.kernel.packed and place.by == "plain"
            else self.is_laid(name, load.index, match, layout)
        ):
            return f"{shown} is not packed as it reads it"
        panels, columns = as_panels(layout), match.columns
        if (
            panels is not None
            and columns is not None
            and load.index[panels.columns] != Var(columns)
        ):
            return f"{shown} does not lie side by side along {columns}"
        return None

    def is_laid(self, name: str, index: Sequence[Expr], match: Match, layout: Layout) -> bool:
        """Whether a stated layout is the declared one, each of its axes an axis of the array."""
        declared = self.kernel.layout_of(name)
        axes: list[int] = []
        for part in self.kernel.index_of(name):
            iterator = match.axis(part.name) if isinstance(part, Var) else None
            places = [
                at for at, one in enumerate(index) if iterator and coefficient(one, iterator) == 1
            ]
            if len(places) != 1:
                return False
            axes += places
        return declared is not None and declared.on(*axes) == layout

    def shared_lane(
        self, name: str, index: Sequence[Expr], match: Match, loops: tuple[For, ...]
    ) -> str:
        """Return the first iterator along which blocks of a declared layout cannot be had of an array, since it is no index
        of its own there, from whole blocks on; "" where there is none.
        """
        layout = self.kernel.layout_of(name)
        own = self.kernel.index_of(name)
        if layout is None or not self.kernel.place_of(name).memories:
            return ""
        inside = {*self.axes, *(loop.iter for loop in loops)}
        for part, block in zip(own, layout.multiple, strict=True):
            iterator = match.axis(part.name) if isinstance(part, Var) else None
            if block == 1 or iterator is None:
                continue
            moved = [one for one in index if iterator in variables(one)]
            if len(moved) != 1 or variables(moved[0]) & inside != {iterator}:
                return iterator
            if not is_multiple(ix.sub(moved[0], Var(iterator)), block):
                return iterator
        return ""

    def is_derivable(self, place: Place, name: str, buffer: Buffer) -> bool:
        """Whether the declared layout of an operand may be had of an array of rows: read in place, or laid so by
        the target, in a memory that is its own.
        """
        if self.memory_of(buffer.name) in place.memories and buffer.kind is Kind.LOCAL:
            return True
        return place.by == "plain" and name == self.kernel.packed and self.kernel.interleave == 1

    def is_packed(self, layout: Layout, buffer: Buffer, load: Load, loops: tuple[For, ...]) -> bool:
        """Whether an operand lies in panels as the microkernel reads them, from the first term on, zeros past the last."""
        kernel, loop, panels = self.kernel, loops[-1], as_panels(layout)
        if panels is None or panels.width != kernel.panel:
            return False
        if layout != kernel.layout_on(panels.rows, panels.columns):
            return False
        terms = [coefficient(part, loop.iter) for part in load.index]
        if terms.pop(panels.rows) != 1 or any(term != 0 for term in terms):
            return False
        whole = is_multiple(loop.lo, kernel.multiple)
        return whole and self.ends_in_zeros(panels.rows, buffer, loop.hi)

    def ends_in_zeros(self, rows: int, buffer: Buffer, end: Expr) -> bool:
        """Whether the last group of terms is whole, or what follows `end` in it is zero.

        The unit multiplies all of a group, and what lies past the last term of the other operand may be no NaN.
        """
        multiple, depth = self.kernel.multiple, buffer.shape[rows]
        if is_multiple(end, multiple):
            return True
        if buffer.kind is Kind.CONSTANT:
            return end == depth
        whole = ix.mul(ix.ceildiv(end, multiple), multiple)
        return depth == whole and _is_zero_beyond(self.program, buffer.name, rows, end)

    def of_start(
        self, parts: Sequence[Covered | Stmt | None], found: Sequence[Covered]
    ) -> Refusal | None:
        """Why its sums do not begin as the microkernel begins them, or it leaves a statement over."""
        kernel = self.kernel
        for one in found:
            if one.start == "reset" and kernel.reset is None:
                because = f"{kernel.name} adds to what is there, and has no reset"
                return Refusal(Question.START, because)
            if one.start == "adds" and kernel.accumulate == "fresh":
                because = f"{_shown(one.store)} is added to what was there before, and {kernel.name} starts from {_neutral(one.store, kernel)}"
                return Refusal(Question.START, because)
        left = next((part for part in parts if not isinstance(part, Covered | None)), None)
        whole = kernel.at_once > 1 and any(
            isinstance(stmt, Store) and stmt.reduce is not None
            for part in parts
            if not isinstance(part, Covered | None)
            for stmt in statements((part,))
        )
        if left is not None and (kernel.unit != CORE or whole):
            because = f"{format_stmt(left)} is not of {kernel.name}, which runs all of a tile"
            return Refusal(Question.TERM, because)
        return None

    def of_inside(self, found: Sequence[Covered]) -> Refusal | None:
        """Why the result is read while it is computed."""
        for one in found:
            for _, load in one.match.operands:
                same = load.index == one.store.index and self.kernel.reducer is None
                if load.buffer == one.store.buffer and not same:
                    what = "summed" if self.kernel.reducer else "computed"
                    because = f"{load.buffer} is read while it is {what}"
                    return Refusal(Question.INSIDE, because)
        return None

    def of_unit(self) -> Refusal | None:
        """Why what runs the microkernel does not run the tile."""
        unit = self.kernel.unit
        if Question.UNIT in self.undecided:
            return None
        bound = [s.unit for s in self.at.path if isinstance(s, For) and s.unit in LOOP_UNITS]
        if self.tile.unit is not None and self.tile.unit != unit:
            return Refusal(
                Question.UNIT, f"the tile is run by {self.tile.unit}, and it runs on a {unit}"
            )
        if unit not in LOOP_UNITS or unit == "thread":
            return None
        if not bound or bound[-1] != unit:
            here = f"stands in a loop of {bound[-1]}" if bound else "stands in no loop of one"
            return Refusal(Question.UNIT, f"it runs on a {unit}, and the tile {here}")
        return None

    def reset(self) -> Coverage | Refusal | None:
        """The tile as the reset of the microkernel: it stores where its sums start, and does no more."""
        kernel = self.kernel
        match self.tile.body:
            case (Store(reduce=None) as store,) if kernel.reset is not None and _is_start(
                store.value, kernel
            ):
                result = Match(kernel, self.own_axes(store), ())
                found = Covered(store, result, start="reset")
                refusal = (
                    self.of_type(store)
                    or self.of_extents(result, ())
                    or self.of_moves(store, result, ())
                    or self.of_memory(store, result)
                    or self.of_unit()
                )
                if refusal is not None:
                    return refusal
                cover = self.as_cover([found])
                return Coverage(replace(cover, microkernel=kernel.reset), (found,))
        return None

    def own_axes(self, store: Store) -> tuple[tuple[str, str | None], ...]:
        """The axes of a tile that starts sums: those that the cover says, else in the order of the result."""
        said = dict(self.wanted.axes)
        free = [
            part.name
            for part in store.index
            if isinstance(part, Var) and part.name in self.axes and part.name not in said.values()
        ]
        names = [name for name in self.kernel.axes if name not in said]
        free = free[len(free) - len(names) :] if len(free) > len(names) else free
        late = dict(zip(reversed(names), reversed(free), strict=False))
        return tuple((name, said.get(name, late.get(name))) for name in self.kernel.axes)

    def as_cover(self, found: Sequence[Covered]) -> Cover:
        """What is kept on the tile."""
        first = next((one for one in found if one.match.operands), found[0])
        axes = tuple((a, b) for a, b in first.match.axes if b is not None)
        operands = {name: load.buffer for name, load in first.match.operands}
        starts = any(one.start != "adds" for one in found)
        name = self.kernel.name if starts else self.kernel.update or self.kernel.name
        result = self.kernel.computes.name, first.store.buffer
        return Cover(name, axes, (*operands.items(), result))


def is_multiple(value: Expr, of: int) -> bool:
    """Whether the form of an index expression shows that `of` divides it."""
    form = ix.linear(value)
    return all(step % of == 0 for step in (form.const, *(factor for _, factor in form.terms)))


_AS_BINARY = {"sum": "+", "max": "max", "min": "min"}

Pairing: TypeAlias = tuple[tuple[Expr, Expr], ...]
"""Loads, and axes, of a microkernel, each with what stands in its place in a statement."""


def _pairings(kernel: Microkernel, value: Expr) -> Iterator[Pairing]:
    """Every way in which the term of a microkernel is `value`, node by node."""
    body = kernel.definition.body
    immediate = {
        t.name for t in kernel.definition.reads if kernel.place_of(t.name).by == "immediate"
    }
    for found in _unify(body.value if isinstance(body, Reduce) else body, value, immediate):
        buffers: dict[str, Expr] = {}
        same = all(
            buffers.setdefault(f"{mine.buffer}{mine.index}", theirs) == theirs
            for mine, theirs in found
            if isinstance(mine, Load)
        )
        if same:  # one element of an operand is one element of an array
            yield found


def _unify(mine: Expr, theirs: Expr, immediate: Collection[str]) -> Iterator[Pairing]:
    match mine, theirs:
        case Load(buffer), Const() if buffer in immediate and mine.dtype == theirs.dtype:
            yield ()
        case Load(), Load() if mine.dtype == theirs.dtype:
            yield ((mine, theirs),)
        case Var(), _ if dtype_of(theirs) == "index":
            yield ((mine, theirs),)
        case Binary(op, a, b), Binary(other, x, y) if op == other:
            orders = [(x, y), (y, x)] if op in _COMMUTE else [(x, y)]
            for left, right in orders:
                for one in _unify(a, left, immediate):
                    yield from (one + two for two in _unify(b, right, immediate))
        case (
            (Unary(), Unary())
            | (Cast(), Cast())
            | (Select(), Select())
            | (Compare(), Compare())
            | (Logic(), Logic())
            | (Lookup(), Lookup())
        ):
            own, of = children(mine), children(theirs)
            if len(own) == len(of) and rebuild(mine, of) == theirs:
                yield from _unify_all(own, of, immediate)
        case _ if mine == theirs and not variables(mine) and not reads_memory(mine):
            yield ()


def _unify_all(
    mine: Sequence[Expr], theirs: Sequence[Expr], immediate: Collection[str]
) -> Iterator[Pairing]:
    if not mine:
        yield ()
        return
    for first in _unify(mine[0], theirs[0], immediate):
        yield from (first + rest for rest in _unify_all(mine[1:], theirs[1:], immediate))


_COMMUTE = ("+", "*", "min", "max")


def _choices(kernel: Sequence[str], inner: Sequence[str]) -> Iterator[dict[str, str | None]]:
    """Iterators of the axes of a result, the last axis on the innermost one first. An axis is left out where those
    behind it are on the innermost axes in their order, or left out too.

    inner  the axes of the statement, innermost first
    """

    def chosen(
        names: Sequence[str], before: tuple[str | None, ...]
    ) -> Iterator[tuple[str | None, ...]]:
        if not names:
            yield before
            return
        free = [name for name in inner if name not in before]
        ordered = before == tuple(inner[: len(before)])
        left_out: list[str | None] = [None] if ordered or not any(before) else []
        for name in (*free, *left_out):
            yield from chosen(names[1:], (*before, name))

    backwards = list(reversed(kernel))
    for found in chosen(backwards, ()):
        yield dict(reversed(list(zip(backwards, found, strict=True))))


def _assignments(kernel: Sequence[str], inner: Sequence[str]) -> Iterator[dict[str, str | None]]:
    """Loops of the reductions of a microkernel, each one of its own, the last on the innermost one first."""
    if not kernel:
        yield {}
        return
    for name in inner:
        rest = [other for other in inner if other != name]
        for others in _assignments(kernel[:-1], rest):
            yield {**others, kernel[-1]: name}


def _steps(
    mine: Expr, theirs: Expr, mapping: Mapping[str, str | None]
) -> tuple[tuple[int, ...], ...] | None:
    """By how much elements of `theirs` move, in each of its dimensions, with each dimension of `mine`.

    That is the linear map u from places of the declared operand to those of the array, for which
    ``theirs(y) = u(mine(x)) + constant`` with each axis x run by ``y = mapping[x]``; None where there is
    none, or where it lets different elements fall into one.
    """
    if isinstance(mine, Var):
        alike = mapping.get(mine.name) is not None and theirs == Var(mapping[mine.name] or "")
        return () if alike else None
    if not (isinstance(mine, Load) and isinstance(theirs, Load)):
        return None
    moved: dict[str, tuple[int, ...]] = {}
    for name, iterator in mapping.items():
        if iterator is not None:
            steps = tuple(coefficient(part, iterator) for part in theirs.index)
            if None in steps:
                return None
            moved[name] = tuple(step or 0 for step in steps)
    factors = [{name: coefficient(part, name) or 0 for name in moved} for part in mine.index]
    zero = (0,) * len(theirs.index)
    found: dict[int, tuple[int, ...]] = {}
    left = dict(moved)
    while left:
        axis = next((name for name in left if len(_open(factors, name, found)) <= 1), None)
        if axis is None:
            return None
        rest = left.pop(axis)
        for d, own in found.items():
            rest = tuple(r - factors[d][axis] * u for r, u in zip(rest, own, strict=True))
        unknown = _open(factors, axis, found)
        factor = factors[unknown[0]][axis] if unknown else 0
        if any(r % factor for r in rest) if factor else any(rest):
            return None
        if factor:
            found[unknown[0]] = tuple(r // factor for r in rest)
    if any(steps == zero for steps in found.values()):
        return None
    return tuple(found.get(d, zero) for d in range(len(mine.index)))


def _moves_alike(operands: Pairing, mapping: Mapping[str, str | None]) -> bool:
    """Whether there is one linear map for each operand, by which all its elements are those of one array."""
    first: dict[str, tuple[Load, Load, tuple[tuple[int, ...], ...]]] = {}
    for mine, theirs in operands:
        steps = _steps(mine, theirs, mapping)
        if steps is None:
            return False
        if not (isinstance(mine, Load) and isinstance(theirs, Load)):
            continue
        own, of, known = first.setdefault(mine.buffer, (mine, theirs, steps))
        if of.buffer != theirs.buffer or known != steps:
            return False
        apart = [ix.literal(ix.sub(a, b)) for a, b in zip(mine.index, own.index, strict=True)]
        there = [ix.literal(ix.sub(a, b)) for a, b in zip(theirs.index, of.index, strict=True)]
        moved = [
            sum((n or 0) * u[d] for n, u in zip(apart, steps, strict=True))
            for d in range(len(there))
        ]
        if None in apart or there != moved:
            return False
    return True


def _open(
    factors: Sequence[Mapping[str, int]], name: str, found: Mapping[int, object]
) -> list[int]:
    """The dimensions that an axis moves, of those whose steps are not found yet."""
    return [d for d, factor in enumerate(factors) if factor[name] and d not in found]


def _extents(
    match: Match,
    heights: Mapping[str, tuple[float, float]],
    masked: frozenset[str],
    issued: frozenset[str],
    multiples: Mapping[str, int] | None = None,
) -> Refusal | None:
    """Why none of its tiles has these extents.

    heights    the least and the greatest extent, by iterator; of those that are not there, any
    masked     iterators of axes along which instances may be off
    issued     axes along which it is issued several times
    multiples  what divides the extent, by iterator
    """
    kernel = match.microkernel
    for name, iterator in match.axes:
        if iterator is None:
            continue
        if iterator in masked and name not in kernel.predicates:
            because = (
                f"some of {iterator} may be off, and {kernel.name} has no predicate along {name}"
            )
            return Refusal(Question.EXTENTS, because)
        low, high = heights.get(iterator, (0, inf))
        divisor = (multiples or {}).get(iterator, 1) if low != high else int(low)
        if name not in kernel.predicates and name not in issued:
            because = _no_extent(kernel, name, (max(low, 0), high), divisor)
            if because:
                return Refusal(Question.EXTENTS, because.format(iterator))
    return _no_tile(match, heights, issued)


def _no_extent(kernel: Microkernel, name: str, ends: tuple[float, float], divisor: int) -> str:
    """Why an axis of a microkernel cannot be as long, with {} for its iterator; "" where it can."""
    extents, (low, high) = kernel.extents_of(name), ends
    step = extents.only or extents.multiple_of
    shown = str(int(low)) if low == high else f"from {int(low)} to {high}"
    if name in kernel.repeats:
        return "" if divisor % step == 0 else f"{{}} is {shown} long, and no multiple of {step}"
    most = inf if extents.most == MAX_SIZE else extents.most
    if extents.least <= low and high <= most and divisor % extents.multiple_of == 0:
        return ""
    return f"{{}} is {shown} long, and {kernel.name} takes {extents}"


def _no_tile(
    match: Match, heights: Mapping[str, tuple[float, float]], issued: frozenset[str]
) -> Refusal | None:
    """Why there is no tile for some combination of extents; None where there is one for each."""
    kernel = match.microkernel
    ranges: list[range] = []
    alone: list[tuple[int, str]] = []
    for position, name in enumerate(kernel.axes):
        if name in kernel.repeats or name in issued:
            continue
        iterator = match.axis(name)
        low, high = (1, 1) if iterator is None else heights.get(iterator, (0, inf))
        most = max(tile.extents[position] for tile in kernel.tiles)
        if high > most:
            shown = f"up to {int(high)}" if high < inf else "any number of"
            because = f"{shown} instances along {iterator} are more than its {most}"
            witness = f"{iterator} = {most + 1}" if low < high < inf else ""
            return Refusal(Question.EXTENTS, because, witness)
        last = position == len(kernel.axes) - 1 and name in kernel.predicates
        first = max(int(high if last else low), 1)  # what holds the most columns holds fewer
        ranges.append(range(first, max(int(high), first) + 1))
        alone.append((position, name))
    for number, extents in enumerate(product(*ranges)):
        tiles = list(kernel.tiles)
        for (position, name), extent in zip(alone, extents, strict=True):
            exact = [tile for tile in tiles if tile.extents[position] == extent]
            larger = [tile for tile in tiles if tile.extents[position] > extent]
            last = position == len(kernel.axes) - 1
            tiles = exact + larger if last and name in kernel.predicates else exact
            if not exact and name in kernel.predicates:
                tiles = larger
        if not tiles or number > _MAX_HEIGHTS:
            return Refusal(Question.EXTENTS, f"it has no tile of {'×'.join(map(str, extents))}")
    return None


def _starts(stmt: Covered | Stmt | None, covered: Covered) -> bool:
    """Whether `stmt` stores what a sum starts from at its element."""
    if not isinstance(stmt, Store):
        return False
    same = list(map(ix.simplify, stmt.index)) == list(map(ix.simplify, covered.store.index))
    here = stmt.buffer == covered.store.buffer and stmt.reduce is None and same
    return here and _is_start(stmt.value, covered.match.microkernel)


def _is_start(value: Expr, kernel: Microkernel) -> bool:
    """Whether a value is what a microkernel starts its reduction from: +0 of a sum."""
    if not isinstance(value, Const) or kernel.reducer is None:
        return False
    wanted = neutral(kernel.reducer, kernel.computes.dtype)
    return value.value == wanted and copysign(1.0, value.value) == copysign(1.0, wanted)


def _neutral(store: Store, kernel: Microkernel) -> str:
    return format_expr(
        Const(neutral(store.reduce or "sum", kernel.computes.dtype), kernel.computes.dtype)
    )


def is_run(loop: For) -> bool:
    """Whether a loop has an iteration, as its text shows."""
    times = ix.literal(ix.sub(loop.hi, loop.lo))
    return times is not None and times > 0


def _is_zero_beyond(program: Program, buffer: str, rows: int, depth: Expr) -> bool:
    """Whether all that is stored in a buffer from row `depth` on is zero."""
    for stmt in statements(program.body):
        match stmt:
            case Store(name) if name != buffer:
                pass
            case Store(_, index, Select(Compare("<", row, end), _, Const(0)), None):
                if (row, end) != (index[rows], depth):
                    return False
            case Store():
                return False
            case _:
                pass
    return True


def _shown(store: Store) -> str:
    return f"{store.buffer}[{', '.join(map(format_expr, store.index))}]"
