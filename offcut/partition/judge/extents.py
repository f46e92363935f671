"""Extents of a tile and of its sums: whether a microkernel has a tile for each of their combinations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from math import inf

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.core.memo import memo
from offcut.core.program import MAX_SIZE
from offcut.describe.microkernel import Microkernel
from offcut.partition.judge.match import Match
from offcut.partition.judge.question import Question, Refusal

_MAX_HEIGHTS = 1 << 12  # combinations of extents of the axes but the last that are looked at


def extents_refusal(
    match: Match,
    heights: Mapping[str, tuple[float, float]],
    extents: Mapping[str, Expr],
    masked: Collection[str],
    issued: Collection[str],
) -> Refusal | None:
    """Return why there is no tile for some of these extents; None where there is one for each.

    heights  the least and the greatest extent, by iterator; of those that are not there, any
    extents  the extent, by iterator
    masked   iterators of axes along which instances may be off
    issued   axes along which it is issued several times
    """
    kernel = match.microkernel
    ends: list[tuple[float, float] | None] = []
    for name, iterator in match.axes:
        low, high = (1, 1) if iterator is None else heights.get(iterator, (0, inf))
        if name in kernel.axes:
            ends.append(None if name in kernel.repeats or name in issued else (low, high))
        if iterator is None:
            continue
        if iterator in masked and name not in kernel.predicates:
            because = (
                f"some of {iterator} may be off, and {kernel.name} has no predicate along {name}"
            )
            return Refusal(Question.EXTENTS, because)
        if name not in kernel.predicates and name not in issued:
            because = _no_extent(kernel, name, iterator, (max(low, 0), high), extents[iterator])
            if because:
                return Refusal(Question.EXTENTS, because)
    refusal = _no_tile(kernel, tuple(ends))
    if refusal is None:
        return None
    position, because, witness = refusal
    along = dict(match.axes)[kernel.axes[position]] if position is not None else ""
    return Refusal(Question.EXTENTS, because.format(along), witness.format(along))


def _no_extent(
    kernel: Microkernel, name: str, iterator: str, ends: tuple[float, float], extent: Expr
) -> str:
    """Why an axis of a microkernel cannot be as long as the extent of an iterator; "" where it can."""
    allowed, (low, high) = kernel.extents_of(name), ends
    divisor = int(low) if low == high else ix.known_divisor(extent)
    text = str(int(low)) if low == high else f"from {int(low)} to {high}"
    if name in kernel.repeats:
        step = allowed.only or allowed.multiple_of
        return (
            "" if divisor % step == 0 else f"{iterator} is {text} long, and no multiple of {step}"
        )
    most = inf if allowed.most == MAX_SIZE else allowed.most
    if allowed.least <= low and high <= most and divisor % allowed.multiple_of == 0:
        return ""
    return f"{iterator} is {text} long, and {kernel.name} takes {allowed}"


@memo(1 << 8)
def _no_tile(
    kernel: Microkernel, ends: tuple[tuple[float, float] | None, ...]
) -> tuple[int | None, str, str] | None:
    """Why there is no tile for some combination of extents: (axis, reason, witness), {} for its iterator.

    ends  the least and the greatest extent along each axis of the result; None: it is issued along it
    """
    ranges: list[range] = []
    positions = [position for position, end in enumerate(ends) if end is not None]
    columns = kernel.columns if kernel.columns in kernel.predicates else ""
    for position in positions:
        low, high = ends[position] or (1, 1)
        most = max([tile.extents[position] for tile in kernel.tiles])
        if high > most:
            count = f"up to {int(high)}" if high < inf else "any number of"
            because = f"{count} instances along {{}} are more than its {most}"
            return position, because, f"{{}} = {most + 1}" if low < high < inf else ""
        # what holds the most columns holds fewer
        first = max(int(high if kernel.axes[position] == columns else low), 1)
        ranges.append(range(first, max(int(high), first) + 1))
    for number, extents in enumerate(product(*ranges)):
        tiles = list(kernel.tiles)
        for position, extent in zip(positions, extents, strict=True):
            exact = [tile for tile in tiles if tile.extents[position] == extent]
            larger = [tile for tile in tiles if tile.extents[position] > extent]
            tiles = exact + larger if kernel.axes[position] == columns else exact
            if not exact and kernel.axes[position] in kernel.predicates:
                tiles = larger
        if not tiles or number > _MAX_HEIGHTS:
            return None, f"it has no tile of {'×'.join(map(str, extents))}", ""
    return None
