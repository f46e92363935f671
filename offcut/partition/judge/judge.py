"""The judge: one tile before one microkernel, question by question."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import copysign

from offcut.core import index as ix
from offcut.core.analysis import limits, normalize_start, residual_conditions
from offcut.core.conditions import conditional_term
from offcut.core.dtypes import ANY_ORDER, FLOATS, reduction_start
from offcut.core.expr import (
    Const,
    Expr,
    Var,
    all_loads,
    substitute,
    variables,
)
from offcut.core.panels import as_panels
from offcut.core.program import Choose, Cover, For, Form, Program, Stmt, Store, Tile
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr, format_stmt
from offcut.core.traversal import substitute_coordinates
from offcut.describe.microkernel import CORE, LOOP_UNITS, Microkernel
from offcut.partition.judge.coverage import Coverage, Covered, Surroundings, extents_refusal
from offcut.partition.judge.match import Match, Question, Refusal
from offcut.partition.judge.places import Places, element_text
from offcut.partition.judge.ways import find_ways, no_way_refusal
from offcut.polyhedral import coefficient


def cover(
    tile: Tile,
    program: Program,
    microkernel: Microkernel,
    request: Cover | None = None,
    *,
    at: Surroundings | None = None,
    heights: Mapping[str, tuple[int, int]] | None = None,
    undecided: Collection[Question] = (),
    issued: Collection[str] = (),
) -> Coverage | Refusal:
    """Return how `microkernel` runs `tile`, or the first question that it fails.

    request    which axis is which, and which array which operand; what it leaves out is found
    at         what stands around the tile; None: what the program shows
    heights    the least and the greatest extent of axes of the tile, where more is known than `at` shows
    undecided  questions that are not asked, since their answers are not decided yet
    issued     axes of the microkernel along which its target issues it several times
    """
    if any(isinstance(stmt, Choose | Tile) for stmt in statements(tile.body)):
        return Refusal(Question.TERM, "it holds tiles of its own")
    return _Judge(
        normalize_start(tile),
        program,
        microkernel,
        request or Cover(microkernel.name),
        at or Surroundings.of(tile, program),
        heights or {},
        frozenset(undecided),
        frozenset(issued),
    ).coverage()


@dataclass
class _Judge:
    """One tile before one microkernel."""

    tile: Tile
    program: Program
    kernel: Microkernel
    wanted: Cover
    at: Surroundings
    heights: Mapping[str, tuple[int, int]]
    undecided: frozenset[Question]
    issued: frozenset[str]

    def __post_init__(self) -> None:
        self.axes = {axis.iter: axis for axis in self.tile.axes}
        self.padded = self.tile.form is Form.PAD
        self.refusals: list[Refusal] = []

    def coverage(self) -> Coverage | Refusal:
        """What becomes of each statement of the tile."""
        if (refusal := self.of_wanted()) is not None:
            return refusal
        if conditions := residual_conditions(self.tile):
            because = f"{format_expr(conditions[0])} is asked of each instance"
            return Refusal(Question.BOUNDS, because)
        parts: list[Covered | Stmt | None] = []
        for stmt in self.tile.body:
            part = self.cover_statement(stmt)
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
        covered = [part for part in parts if isinstance(part, Covered)]
        if not covered:
            what = "it has no sum" if self.kernel.reducer else "it is not what it computes"
            refusal = [*self.refusals, Refusal(Question.TERM, what)][0]
            return self.reset() or refusal
        refusal = self.of_start(parts, covered) or self.of_inside(covered) or self.of_unit()
        return refusal or Coverage(self.as_cover(covered), tuple(parts))

    def of_wanted(self) -> Refusal | None:
        """Why the cover that is wanted names what there is not."""
        if not self.wanted.axes and not self.wanted.operands:
            return None
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

    def cover_statement(self, stmt: Stmt) -> Covered | None:
        """Return a statement as the microkernel computes it, with the loops around its sum; None where it does not."""
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
        return self.cover_store(inner, tuple(nest[cut:]), tuple(nest[:cut]))

    def with_whole_terms(self, store: Store) -> Store:
        """Return an update without the condition that pads it: a term past the last is neutral, as zeros of its operands are. A
        condition that is another one for each instance leaves out terms of which nothing is zero: it stays.
        """
        term = conditional_term(store.value, store.reduce)
        if term is None or self.kernel.at_once == 1:
            return store
        condition, value = term
        return store if variables(condition) & self.axes.keys() else replace(store, value=value)

    def counted_from_axes(self, store: Store, nest: Sequence[For]) -> tuple[Store, list[For]]:
        """Return the loops of a sum, those whose bounds move with the axes of the tile counted from where they begin."""
        loops: list[For] = []
        inner: tuple[Stmt, ...] = (store,)
        values: dict[str, Expr] = {}
        for loop in nest:
            lo, hi = (substitute(bound, values) for bound in (loop.lo, loop.hi))
            moving: Expr = ix.const(0)
            for atom, factor in ix.to_linear(lo).terms:
                if variables(atom) & self.axes.keys():
                    moving = ix.add(moving, ix.mul(factor, atom))
            lo, hi = ix.sub(lo, moving), ix.sub(hi, moving)
            values[loop.iter] = ix.add(Var(loop.iter), moving)
            loops.append(replace(loop, lo=lo, hi=hi))
        shifts = {name: value for name, value in values.items() if value != Var(name)}
        if shifts:
            inner = substitute_coordinates(inner, shifts)
        (moved_store,) = inner
        assert isinstance(moved_store, Store)
        return moved_store, loops

    def cover_store(
        self, store: Store, loops: tuple[For, ...], around: tuple[For, ...]
    ) -> Covered | None:
        """Return a store and the loops of its sum as the microkernel computes them; None where it does not."""
        ways = find_ways(self.kernel, self.wanted, self.axes, store, loops, self.program)
        reasons: list[Refusal] = []
        runs: list[tuple[int, Match]] = []
        for rank, match in enumerate(ways):
            refusal = self.refusal(store, match, loops, around)
            if refusal is not None:
                reasons.append(refusal)
                continue
            runs.append((rank, match))
            # of ways that run where layouts are undecided, one whose arrays lie so already
            places = Places(store, match, loops, self.program, self.at)
            is_decided = Question.LAYOUT not in self.undecided
            if is_decided or places.layout_refusal(self.padded) is None:
                runs = runs[-1:]
                break
        if runs:
            rank, match = runs[0]
            start = "adds" if self.kernel.reducer else ""
            turns = self.turns(match, loops, around)
            outer = around[: len(around) - len(turns)]
            return Covered(store, match, loops, turns, outer, start, rank)
        if reasons:
            self.refusals.append(reasons[0])
        elif self.kernel.reducer is None or store.reduce is not None:
            because = no_way_refusal(self.kernel, self.wanted, store, self.program)
            self.refusals.append(because)
        return None

    def turns(
        self, match: Match, loops: tuple[For, ...], around: tuple[For, ...]
    ) -> tuple[For, ...]:
        """Return the innermost of the loops around a sum that the microkernel runs as well: along which both operands move by
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
        """Return whether a loop moves all operands by a constant step each, and none along the columns of panels, or to a row inside of a group of rows."""
        for _, load in match.operands:
            steps = [coefficient(part, loop.iter) for part in load.index]
            if None in steps:
                return False
            panels = as_panels(self.at.layout_of(self.program.buffer(load.buffer)))
            if panels is not None:
                row, column = steps[panels.rows] or 0, steps[panels.columns]
                if row % panels.multiple or column:
                    return False
        return loop.unit is None

    def refusal(
        self, store: Store, match: Match, loops: tuple[For, ...], around: tuple[For, ...]
    ) -> Refusal | None:
        """Why a way to lay the microkernel over a store is no cover; None where it is one."""
        places = Places(store, match, loops, self.program, self.at)
        return (
            self.of_type(store)
            or self.of_bounds(store, loops, around)
            or self.of_extents(match, loops)
            or self.of_moves(store, match, loops)
            or (None if Question.MEMORY in self.undecided else places.memory_refusal())
            or (None if Question.LAYOUT in self.undecided else places.layout_refusal(self.padded))
        )

    def reads_results(self, bound: Expr) -> bool:
        """Return whether a bound reads an array that the program writes."""
        return any(one.buffer not in self.program.read_only_arrays for one in all_loads(bound))

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
                if variables(bound) & self.axes.keys() or self.reads_results(bound):
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
        extents = {name: axis.extent for name, axis in self.axes.items()}
        extents |= {loop.iter: ix.sub(loop.hi, loop.lo) for loop in loops}
        heights = {
            name: self.heights.get(name) or self.at.range_of(extent)
            for name, extent in extents.items()
        }
        masked = () if self.padded else [n for n in self.axes if any(limits(self.tile, n))]
        return extents_refusal(match, heights, extents, masked, self.issued)

    def of_moves(self, store: Store, match: Match, loops: tuple[For, ...]) -> Refusal | None:
        """Why the result does not move as the declared one does."""
        index, element = store.index, element_text(store)
        for loop in loops:
            if any(loop.iter in variables(part) for part in index):
                return Refusal(Question.MOVES, f"{element} moves with {loop.iter}")
        for name in self.kernel.axes:
            iterator = match.axis(name)
            steps = [1] if iterator is None else [coefficient(part, iterator) for part in index]
            if None in steps or not any(steps):
                return Refusal(Question.MOVES, f"{element} has no step of its own along {iterator}")
        order = [loop.iter for loop in loops]
        mapped = [match.axis(name) for name in self.kernel.reduce_axes]
        exact = store.reduce in ANY_ORDER or self.kernel.computes.dtype not in FLOATS
        if loops and mapped != order and self.kernel.ascending and not exact:
            because = f"it adds its terms along {', '.join(map(str, mapped))}, and the loops run along {', '.join(order)}"
            return Refusal(Question.MOVES, because)
        return None

    def of_start(
        self, parts: Sequence[Covered | Stmt | None], covered: Sequence[Covered]
    ) -> Refusal | None:
        """Why its sums do not begin as the microkernel begins them, or it leaves a statement over."""
        kernel = self.kernel
        for one in covered:
            if one.start == "reset" and kernel.reset is None:
                because = f"{kernel.name} adds to what is there, and has no reset"
                return Refusal(Question.START, because)
            if one.start == "adds" and kernel.accumulate == "fresh":
                because = f"{element_text(one.store)} is added to what was there before, and {kernel.name} starts from {_neutral(one.store, kernel)}"
                return Refusal(Question.START, because)
        refusal = next((part for part in parts if not isinstance(part, Covered | None)), None)
        whole = kernel.at_once > 1 and any(
            isinstance(stmt, Store) and stmt.reduce is not None
            for part in parts
            if not isinstance(part, Covered | None)
            for stmt in statements((part,))
        )
        if refusal is not None and (kernel.unit != CORE or whole):
            because = f"{format_stmt(refusal)} is not of {kernel.name}, which runs all of a tile"
            return Refusal(Question.TERM, because)
        return None

    def of_inside(self, covered: Sequence[Covered]) -> Refusal | None:
        """Why the result is read while it is computed."""
        for one in covered:
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
        """Return the tile as the reset of the microkernel: it stores where its sums start, and does no more."""
        kernel = self.kernel
        match self.tile.body:
            case (Store(reduce=None) as store,) if kernel.reset is not None and _is_start(
                store.value, kernel
            ):
                result = Match(kernel, self.own_axes(store), ())
                refusal = self.refusal(store, result, (), ()) or self.of_unit()
                if refusal is not None:
                    return refusal
                covered = Covered(store, result, start="reset")
                cover = replace(self.as_cover([covered]), microkernel=kernel.reset)
                return Coverage(cover, (covered,))
        return None

    def own_axes(self, store: Store) -> tuple[tuple[str, str | None], ...]:
        """Return the axes of a tile that starts sums: those that the cover says, else in the order of the result."""
        named_axes = dict(self.wanted.axes)
        free = [
            part.name
            for part in store.index
            if isinstance(part, Var)
            and part.name in self.axes
            and part.name not in named_axes.values()
        ]
        names = [name for name in self.kernel.axes if name not in named_axes]
        free = free[len(free) - len(names) :] if len(free) > len(names) else free
        late = dict(zip(reversed(names), reversed(free), strict=False))
        return tuple((name, named_axes.get(name, late.get(name))) for name in self.kernel.axes)

    def as_cover(self, covered: Sequence[Covered]) -> Cover:
        """What is kept on the tile."""
        first = next((one for one in covered if one.match.operands), covered[0])
        axes = tuple((a, b) for a, b in first.match.axes if b is not None)
        operands = {name: load.buffer for name, load in first.match.operands}
        starts = any(one.start != "adds" for one in covered)
        name = self.kernel.name if starts else self.kernel.update or self.kernel.name
        result = self.kernel.computes.name, first.store.buffer
        return Cover(name, axes, (*operands.items(), result))


def _starts(stmt: Covered | Stmt | None, covered: Covered) -> bool:
    """Return whether `stmt` stores what a sum starts from at its element."""
    if not isinstance(stmt, Store):
        return False
    same = list(map(ix.simplify, stmt.index)) == list(map(ix.simplify, covered.store.index))
    here = stmt.buffer == covered.store.buffer and stmt.reduce is None and same
    return here and _is_start(stmt.value, covered.match.microkernel)


def _is_start(value: Expr, kernel: Microkernel) -> bool:
    """Return whether a value is what a microkernel starts its reduction from: +0 of a sum."""
    if not isinstance(value, Const) or kernel.reducer is None:
        return False
    start = reduction_start(kernel.reducer, kernel.computes.dtype)
    return value.value == start and copysign(1.0, value.value) == copysign(1.0, start)


def _neutral(store: Store, kernel: Microkernel) -> str:
    return format_expr(
        Const(reduction_start(store.reduce or "sum", kernel.computes.dtype), kernel.computes.dtype)
    )


def is_run(loop: For) -> bool:
    """Return whether a loop has an iteration, as its text shows."""
    times = ix.literal_value(ix.sub(loop.hi, loop.lo))
    return times is not None and times > 0
