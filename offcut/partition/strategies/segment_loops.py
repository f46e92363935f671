"""Make loops of the segments of a strategy: the one place where bodies and tails become statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import Const, Expr, Logic, Var, substitute
from offcut.core.intervals import Ends
from offcut.core.program import For, Form, If, Let, Role, Stmt
from offcut.describe.computation import Names
from offcut.partition.cutting import ByHeight
from offcut.partition.strategies.segment_placement import ITER, Segment, fold_conjunction
from offcut.polyhedral import Facts


@dataclass(frozen=True, slots=True)
class TilePlace:
    """One tile of a segment, inside the loop over its tiles.

    start    its first iteration, counted from the start of the loop that is split
    height   its iterations
    counter  the loop over the tiles; None: there is one tile, and no loop
    count    trip count of that loop
    """

    start: Expr
    height: Expr
    counter: Var | None = None
    count: Expr | None = None

    def inside(self, at: Facts) -> Facts:
        """Return the facts `at` the segment, inside the loop over its tiles."""
        if self.counter is None or self.count is None:
            return at
        return at.loop(self.counter.name, ix.const(0), self.count)


EmitTile = Callable[[TilePlace], tuple[Stmt, ...]]


def segment_loops(
    segment: Segment,
    counter: str,
    names: Names,
    emit_tile: EmitTile,
    unit: str | None = None,
    always_loop: bool = False,
) -> tuple[Stmt, ...]:
    """Return the loops with what `emit_tile` returns for every tile of `segment`, in ascending order; nothing if that is empty.

    counter      name of the loop over the tiles, made new in `names` as the names of bounded values are
    unit         runs that loop
    always_loop  whether the one tile of a segment with a count of 1 has a loop too
    """
    values: dict[str, Expr] = {
        let.name: Var(names.fresh(let.name.strip("#"))) for let in segment.lets
    }

    def rename(expr: Expr) -> Expr:
        return ix.simplify(substitute(expr, values))

    count = segment.count
    tiles: Var | None = None
    if count is not None and (always_loop or ix.literal_value(count) != 1):
        tiles, count = Var(names.fresh(counter)), rename(count)
    values[ITER.name] = tiles or ix.const(0)
    body = emit_tile(TilePlace(rename(segment.start), rename(segment.height), tiles, count))
    if tiles is not None:
        assert count is not None
        loop = For(tiles.name, ix.const(0), count, body, segment.role, unit)
        body = (loop,) if body else ()
        names.release(tiles.name)
    for let in reversed(segment.lets):
        name = values[let.name]
        assert isinstance(name, Var)
        body = (Let(name.name, let.lo, let.hi, let.value, body),) if body else ()
        names.release(name.name)
    if segment.when is not None and body and ix.literal_value(segment.when) is None:
        body = (If(segment.when, body),)
    return body


def possible_segments(segments: Iterable[Segment], at: Facts) -> Iterator[Segment]:
    """Yield the segments that may exist where `at` is known, each with the part of its condition that is not known."""
    for segment in segments:
        when = segment.when
        if when is None:
            yield segment
        elif not at.holds(Logic("not", (when,))):
            unknown = [part for part in conjuncts(when) if not at.holds(part)]
            yield replace(segment, when=conjunction(unknown) if unknown else None)


def height_cases(
    classes: ByHeight,
    segment: Segment,
    height: Expr,
    emit_case: Callable[[int, tuple[int, ...], Segment], tuple[Stmt, ...]],
) -> tuple[Stmt, ...]:
    """Return what `emit_case` returns for the tiles of `segment`, by their height: one case for each range of heights that they have.

    classes    (range of heights, tile of another loop, sizes of its tiles), in ascending order
    height     of the tile
    emit_case  (tile, sizes, `segment` restricted to the range) -> statements
    """
    low, high = segment.heights
    body: tuple[Stmt, ...] = ()
    for (first, last), tile, sizes in reversed(classes):
        if first > high or last < low:
            continue
        limited = restrict_heights(segment, max(first, low), min(last, high))
        inner = emit_case(tile, sizes, limited)
        condition = ix.compare("<=", height, last)
        if isinstance(condition, Const):
            body = inner if condition.value else body
        else:
            body = (If(condition, inner, body),) if body else inner
    return body


def _segment(
    role: Role, heights: tuple[int, int], owned: tuple[Expr, Expr], count: Expr | None
) -> Segment:
    return Segment(role, Form.FULL, owned[0], ix.const(heights[1]), heights, owned, count)


def whole_segment(lo: Expr, hi: Expr, tile: int) -> Segment:
    """Return the segment of a loop that is shorter than a tile."""
    return _segment(Role.TAIL, (0, tile - 1), (ix.const(0), ix.sub(hi, lo)), None)


def full_segment(tile: int, count: Expr, extent: Expr, role: Role = Role.BODY) -> Segment:
    """Return the segment of `count` full tiles, which are all of a loop of `extent` iterations."""
    return replace(
        _segment(role, (tile, tile), (ix.const(0), extent), count), start=ix.mul(tile, ITER)
    )


def inner_segment(lower: Ends, upper: Ends, tile: int, at: Facts) -> Segment:
    """Return the segment of the full tiles of a loop whose bounds differ between the rows of a tile around: those that lie in all rows.

    lower, upper  the least and the greatest value of its bounds in these rows; the segment begins at the greatest lower bound
    """
    length = at.extreme("max", ix.sub(upper[0], lower[1]), ix.const(0))
    count = ix.floordiv(length, tile)
    return full_segment(tile, count, ix.mul(tile, count))


def crossing_segment(tile: int) -> Segment:
    """Return the segment of tiles that the bounds cross; its ranges differ from row to row."""
    return _segment(Role.TAIL, (0, tile), (ix.const(0), ix.const(0)), None)


def to_outer_axis(outer: Segment, inner: Segment, extent: Expr) -> Segment:
    """Return `inner`, a segment of one tile of `outer`, as a segment of the loop over all of these tiles."""
    lo, hi = inner.owned
    if outer.count is None:
        start, owned = ix.add(outer.start, inner.start), (outer.start, outer.start)
        owned = ix.add(owned[0], lo), ix.add(owned[1], hi)
        return replace(
            inner, start=start, owned=owned, when=fold_conjunction(inner.when, outer.when)
        )
    if (ix.literal_value(lo), hi) != (0, extent):
        return inner
    count = ix.floordiv(outer.owned[1], inner.height)
    return replace(
        inner, count=count, owned=outer.owned, when=fold_conjunction(inner.when, outer.when)
    )


def restrict_heights(segment: Segment, low: int, high: int) -> Segment:
    """Return `segment`, restricted to tile heights in ``low…high``."""
    if segment.heights == (low, high):
        return segment
    when = segment.when
    for op, limit, all_are in (
        (">=", low, segment.heights[0] >= low),
        ("<=", high, segment.heights[1] <= high),
    ):
        if not all_are:
            when = fold_conjunction(when, ix.compare(op, segment.height, limit))
    return replace(segment, heights=(low, high), when=when)
