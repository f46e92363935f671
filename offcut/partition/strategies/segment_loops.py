"""Emit the loops that run the tiles of a segment; make segments for axes without a strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Expr, Var, substitute
from offcut.core.program import For, Form, If, Let, Role, Stmt
from offcut.describe.computation import Names
from offcut.partition.strategies.segment_placement import ITER, Segment, fold_conjunction

EmitTile = Callable[[Expr, Expr], tuple[Stmt, ...]]


def segment_loops(
    segment: Segment, axis: str, names: Names, emit_tile: EmitTile
) -> tuple[Stmt, ...]:
    """Return the loops with ``emit_tile(start, height)`` for every tile of `segment`, in ascending order.

    Tile counters and the names of bounded values are new in `names`.
    """
    values: dict[str, Expr] = {
        let.name: Var(names.fresh(let.name.strip("#"))) for let in segment.lets
    }

    def rename(expr: Expr) -> Expr:
        return substitute(expr, values)

    once = segment.count is None or ix.literal_value(segment.count) == 1
    counter = "" if once else names.fresh(f"{axis}_tile")
    values[ITER.name] = Var(counter) if counter else ix.const(0)
    start = ix.simplify(rename(segment.start))
    body = emit_tile(start, ix.simplify(rename(segment.height)))
    if counter and segment.count is not None:
        body = (For(counter, ix.const(0), ix.simplify(rename(segment.count)), body, segment.role),)
    for let in reversed(segment.lets):
        name = values[let.name]
        assert isinstance(name, Var)
        body = (Let(name.name, let.lo, let.hi, let.value, body),)
        names.release(name.name)
    if counter:
        names.release(counter)
    if segment.when is not None and ix.literal_value(segment.when) is None:
        body = (If(segment.when, body),)
    return body


def _segment(
    role: Role, heights: tuple[int, int], owned: tuple[Expr, Expr], count: Expr | None
) -> Segment:
    return Segment(role, Form.FULL, owned[0], ix.const(heights[1]), heights, owned, count)


def whole_segment(lo: Expr, hi: Expr, tile: int) -> Segment:
    """Return the segment of a loop that is shorter than a tile."""
    return _segment(Role.TAIL, (0, tile - 1), (ix.const(0), ix.sub(hi, lo)), None)


def full_segment(tile: int, lo: Expr, end: Expr) -> Segment:
    """Return the segment of full tiles from `lo` to `end`."""
    count = ix.floordiv(ix.sub(end, lo), tile)
    return _segment(Role.BODY, (tile, tile), (ix.const(0), ix.sub(end, lo)), count)


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
