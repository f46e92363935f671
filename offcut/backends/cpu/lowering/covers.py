"""The judge of covers: a tile and a microkernel in, how its sums are computed by it or why they are not.

A microkernel computes a rectangle of sums, of terms in ascending order, into memory that it reads and
writes at one step per row and side by side along its columns; it starts from +0 or from what lies
there. So a sum of a tile is the microkernel's where all of that is what the text says:

the term      is the microkernel's product, each operand moving along its axes (`matches`)
the bounds    of its loops are the same for all instances of the tile
the result    moves with the rows and the columns by steps of its own, not with the depth, is of the
              microkernel's type, and is no operand of the same sum
the start     a +0 that is stored at the very element right before it is the microkernel's own; any
              other start is a statement that runs first, and the sum adds to it
the operands  lie as the functions read them, side by side or in panels
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import copysign

from offcut.backends.cpu.lowering.addressing import Addressing, Lanes
from offcut.backends.cpu.microkernels.family import Family
from offcut.core import index as ix
from offcut.core.accesses import indices
from offcut.core.expr import Compare, Const, Expr, Load, Select, Var, reads_memory, variables
from offcut.core.layout import Layout, as_panels
from offcut.core.program import (
    LANE,
    Buffer,
    Choose,
    For,
    Form,
    Kind,
    Program,
    Stmt,
    Store,
    Tile,
)
from offcut.core.program import walk as statements
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr
from offcut.core.tile_limits import begun, limits, unlimited
from offcut.partition import Match, matches
from offcut.polyhedral import NEXT, coefficient
from offcut.polyhedral.units.private import begins_with_store


@dataclass(frozen=True, slots=True)
class CoveredSum:
    """A sum inside a tile: its store, how the microkernel covers it, and its loops.

    around  the loops around what the functions run, outermost first
    turns   those inside of these that the functions run as well as the innermost one
    fresh   whether it starts from the microkernel's own zero; else it adds to what is there
    """

    store: Store
    found: Match
    loop: For
    around: tuple[For, ...]
    turns: tuple[For, ...] = ()
    fresh: bool = False

    @property
    def runs(self) -> bool:
        """Whether the functions are called once, and run each loop of theirs at least once."""
        return not self.around and all(map(is_run, self.turns))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a microkernel does not take a tile."""

    reason: str


Parts = tuple[CoveredSum | Stmt | None, ...]
"""What becomes of each statement of a tile: a sum of the microkernel's; itself; None: nothing, it is
the start of the sum that follows."""


def cover(low: Addressing, tile: Tile, family: Family) -> Parts | Refusal:
    """How `family` computes `tile` where `low` stands, or why it does not."""
    if any(isinstance(stmt, Choose | Tile) for stmt in statements(tile.body)):
        return Refusal("it holds tiles of its own")
    tile = begun(tile)
    if conditions := unlimited(tile):
        return Refusal(f"{format_expr(conditions[0])} is asked of each instance")
    return _Judge(low, tile, family).parts()


def nearest(low: Addressing, tile: Tile, families: Iterable[Family]) -> str:
    """Why a tile that names no microkernel has none: what keeps the first that sums its terms."""
    sums = [s for s in statements(tile.body) if isinstance(s, Store) and s.reduce is not None]
    if not sums:
        return "it has no sum"
    for family in families:
        judge = _Judge(low, tile, family)
        found = judge.parts()
        if not isinstance(found, Refusal):
            return f"no register tile of {family.microkernel.name} has its rows and columns"
        if judge.is_its_sum:
            return f"{family.microkernel.name} does not: {found.reason}"
    return f"no microkernel sums {format_expr(sums[0].value)}"


class _Judge:
    def __init__(self, low: Addressing, tile: Tile, family: Family) -> None:
        self.low, self.tile, self.family = low, tile, family
        self.kernel = family.microkernel
        self.axes = {axis.iter: axis for axis in tile.axes}
        self.padded = tile.form is Form.PAD
        self.refusals: list[str] = []
        self.is_its_sum = False  # whether some sum of the tile is of the microkernel's terms

    def parts(self) -> Parts | Refusal:
        for axis in self.tile.axes:
            if not self.low.bounded(axis.extent):
                return Refusal(
                    f"nothing bounds the extent {format_expr(axis.extent)} of {axis.iter}"
                )
        found = [self.sum_of(stmt) for stmt in self.tile.body]
        sums = [one for one in found if one is not None]
        if not sums:
            reason = self.refusals[0] if self.refusals else "it has no sum"
            return Refusal(reason)
        target = sums[0].store.buffer
        if (self.padded or target not in self.low.memory) and not self.is_by_axes(target):
            return Refusal(f"{target} is not indexed by the axes of the tile alone")
        first = sums[0].found
        parts: list[CoveredSum | Stmt | None] = []
        for stmt, one in zip(self.tile.body, found, strict=True):
            apart = self.padded or (one is not None and one.store.buffer not in self.low.memory)
            if one is None or (apart and not _lies_alike(one, target, first)):
                parts.append(stmt)
                continue
            if parts and one.runs and _is_zero_of(parts[-1], one.store):
                parts[-1] = None
                one = replace(one, fresh=True)
            parts.append(one)
        return tuple(parts)

    def is_by_axes(self, buffer: str) -> bool:
        """Whether the tile accesses a buffer at one element of each instance, by its axes and loops
        around the tile, each once, and fills it before it reads it if it is nobody else's.
        """
        points = {tuple(map(ix.simplify, index)) for index in indices(self.tile.body, buffer)}
        (point, *others) = points
        names = [part.name for part in point if isinstance(part, Var)]
        filled = buffer in self.low.memory or begins_with_store(buffer, self.tile.body)
        return (
            not others
            and len(set(names)) == len(names) == len(point)
            and self.axes.keys() <= set(names)
            and all(name in self.axes or name in self.low.values for name in names)
            and filled
        )

    def sum_of(self, stmt: Stmt) -> CoveredSum | None:
        """A sum that the microkernel computes, with the loops around its innermost one."""
        around: list[For] = []
        while isinstance(stmt, For) and len(stmt.body) == 1:
            inner = stmt.body[0]
            if isinstance(inner, Store):
                return self.matched(inner, stmt, tuple(around))
            around.append(stmt)
            stmt = inner
        return None

    def matched(self, store: Store, loop: For, around: tuple[For, ...]) -> CoveredSum | None:
        if loop.unit == LANE:
            self.refusals.append(f"loop {loop.iter} runs as lanes of its own")
            return None
        reasons: list[str] = []
        for way in matches(self.kernel, store.value, store.reduce, list(self.axes), [loop.iter]):
            self.is_its_sum = True
            reason = self.refusal(store, way, loop, around)
            if reason is None:
                turns = self.turns(way, around, loop)
                return CoveredSum(store, way, loop, around[: len(around) - len(turns)], turns)
            reasons.append(reason)
        if reasons:
            self.refusals.append(reasons[0])
        elif store.reduce is not None:
            self.refusals.append(f"{format_expr(store.value)} is not what it sums")
        return None

    def turns(self, found: Match, around: tuple[For, ...], terms: For) -> tuple[For, ...]:
        """The innermost of the loops around a sum that the functions run as well: by which both operands move by
        steps of their own, and no bound inside, those of `terms` among them.
        """
        most = 0 if self.padded else self.kernel.turns
        count = 0
        inner: set[str] = set(variables(terms.lo) | variables(terms.hi))
        for one in reversed(around[len(around) - most :] if most < len(around) else around):
            if one.iter in inner or not self.is_turn(one, found):
                break
            inner |= variables(one.lo) | variables(one.hi)
            count += 1
        return around[len(around) - count :]

    def is_turn(self, loop: For, found: Match) -> bool:
        """Whether a loop moves both operands by a constant step each."""
        b = found.by_columns
        steps = {x: [coefficient(p, loop.iter) for p in x.index] for x in (found.by_rows, b)}
        panels = as_panels(self.low.memory[b.buffer].layout)
        inside = [] if panels is None else [steps[b][panels.rows], steps[b][panels.columns]]
        constant = all(None not in of for of in steps.values())
        plain = loop.unit is None
        return constant and plain and not any(inside)

    def refusal(self, store: Store, found: Match, loop: For, around: tuple[For, ...]) -> str | None:
        """Why a match is no cover; None where it is one."""
        a, b = found.by_rows, found.by_columns
        for one in (*around, loop):
            for bound in (one.lo, one.hi):
                if variables(bound) & self.axes.keys() or reads_memory(bound):
                    return f"the bound {format_expr(bound)} differs between its instances"
        if store.buffer in (a.buffer, b.buffer):
            return f"{store.buffer} is read while it is summed"
        if any(load.buffer not in self.low.memory for load in (a, b)):
            return "an operand lies in registers"
        if self.low.program.buffer(store.buffer).dtype != self.kernel.computes.dtype:
            return f"its sums are {self.kernel.computes.dtype}"
        return self.of_result(store, found, loop) or self.of_operands(found, loop)

    def of_result(self, store: Store, found: Match, loop: For) -> str | None:
        """Why the result does not lie as the functions write it."""
        low, index = self.low, store.index
        shown = f"{store.buffer}[{', '.join(map(format_expr, index))}]"
        rows, columns = (self.axes.get(name or "") for name in (found.rows, found.columns))
        if any(loop.iter in variables(part) for part in index):
            return f"{shown} moves with {loop.iter}"
        for axis in (rows, columns):
            steps = [coefficient(part, axis.iter) for part in index] if axis else [1]
            if None in steps or not any(steps):
                return f"{shown} has no step of its own along {axis.iter if axis else ''}"
        if rows is not None:
            most = low.range_of(rows.extent)[1]
            if most > self.kernel.max_rows:
                return f"up to {most} rows of {rows.iter} are more than its {self.kernel.max_rows}"
            if self.padded and any(limits(self.tile, rows.iter)):
                known = {size.name for size in low.program.sizes}
                if not variables(ix.mul(rows.extent, ix.sub(loop.hi, loop.lo))) <= known:
                    return f"the rows that are padded are as long as {loop.iter} is, which varies"
        held = low.memory.get(store.buffer)
        if held is not None and held.layout is not None and as_panels(held.layout) is None:
            return f"{shown} lies as {format_layout(held.layout)}"
        if columns is None or held is None or self.padded:
            return None
        if low.along(held, index, Lanes(2, columns.iter)) != NEXT:
            return f"{shown} does not lie side by side along {columns.iter}"
        return None

    def of_operands(self, found: Match, loop: For) -> str | None:
        """Why the operands do not lie as the functions read them."""
        low = self.low
        a, b = found.by_rows, found.by_columns
        if self.family.unit_depth and (
            low.along(low.memory[a.buffer], a.index, Lanes(2, found.depth)) != NEXT
        ):
            return f"{format_expr(a)} does not lie side by side along {found.depth}"
        if low.memory[a.buffer].layout is not None:
            return f"{format_expr(a)} is packed, and its rows are read one step apart"
        layout = low.memory[b.buffer].layout
        if not self.reads(layout, low.program.buffer(b.buffer), b, loop):
            return f"{format_expr(b)} is not packed as it reads it"
        columns = self.axes.get(found.columns or "")
        if columns is None:
            return None
        if layout is None:
            beside = low.along(low.memory[b.buffer], b.index, Lanes(2, columns.iter)) == NEXT
        else:
            panels = as_panels(layout)
            beside = panels is not None and b.index[panels.columns] == Var(columns.iter)
        if not beside:
            return f"{format_expr(b)} does not lie side by side along {columns.iter}"
        return None

    def reads(self, layout: Layout | None, buffer: Buffer, b: Load, loop: For) -> bool:
        """Whether B lies as the functions read it, from the first term of `loop` on, zeros past the last."""
        kernel = self.kernel
        if layout is None:
            return kernel.interleave == 1
        panels = as_panels(layout)
        if panels is None or panels.width != kernel.panel:
            return False
        if layout != kernel.layout_on(panels.rows, panels.columns):
            return False
        terms = [coefficient(part, loop.iter) for part in b.index]
        if terms.pop(panels.rows) != 1 or any(term != 0 for term in terms):
            return False
        whole = is_multiple(loop.lo, kernel.multiple)
        return whole and self.ends_in_zeros(panels.rows, buffer, loop.hi)

    def ends_in_zeros(self, rows: int, buffer: Buffer, end: Expr) -> bool:
        """Whether the last group of terms is whole, or what follows `end` in it is zero in B.

        The unit multiplies all of a group, and what lies past the last term of A may be no NaN.
        """
        multiple, depth = self.kernel.multiple, buffer.shape[rows]
        if is_multiple(end, multiple):
            return True
        if buffer.kind is Kind.CONSTANT:
            return end == depth
        whole = ix.mul(ix.ceildiv(end, multiple), multiple)
        return depth == whole and _is_zero_beyond(self.low.program, buffer.name, rows, end)


def is_run(loop: For) -> bool:
    """Whether a loop has an iteration, as its text shows."""
    times = ix.literal(ix.sub(loop.hi, loop.lo))
    return times is not None and times > 0


def _lies_alike(one: CoveredSum, target: str, first: Match) -> bool:
    """Whether a sum is into the scratch of `target`, which lies as the match of its first sum says."""
    found = one.found
    return one.store.buffer == target and (found.rows, found.columns) == (first.rows, first.columns)


def is_multiple(value: Expr, of: int) -> bool:
    """Whether the form of an index expression shows that `of` divides it."""
    form = ix.linear(value)
    return all(step % of == 0 for step in (form.const, *(factor for _, factor in form.terms)))


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


def _is_zero_of(stmt: CoveredSum | Stmt | None, total: Store) -> bool:
    """Whether `stmt` stores +0 at the element that `total` sums into."""
    match stmt:
        case Store(buffer, index, Const(value), None) if buffer == total.buffer:
            same = list(map(ix.simplify, index)) == list(map(ix.simplify, total.index))
            return same and value == 0 and copysign(1.0, value) > 0
        case _:
            return False
