"""How one axis of a way may be cut: an axis and what covers it in, the splits to choose from out.

Heights are what a microkernel has, or multiples and divisors of the tile that stands there; strategies are
those of the catalogue that leave its tiles to the microkernel; groups are what the memories hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import lcm

from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.core.memo import memoize_method
from offcut.core.program import Form
from offcut.costmodel import Machine
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import LADDER, STRATEGIES, AxisCut, Segment, Strategy, segments

_ANY = Var("extent")


@dataclass(frozen=True)
class Cuts:
    """The splits of one axis that there are, in ascending order of their tiles and groups."""

    options: tuple[AxisCut, ...]

    def joined(self, other: Cuts) -> Cuts:
        """Those of both."""
        return _ordered((*self.options, *other.options), None)

    @memoize_method
    def near(self, cut: AxisCut) -> tuple[AxisCut, ...]:
        """Those that differ from `cut` in one thing: another strategy, the next tile, the next group."""
        found = [one for one in self.options if _differ(one, cut) == (True, False, False)]
        for place in (1, 2):
            alike = [
                one
                for one in self.options
                if all(same == (k == place) for k, same in enumerate(_differ(one, cut)))
            ]
            size = _tile if place == 1 else _group
            below = [one for one in alike if size(one) < size(cut)]
            above = [one for one in alike if size(one) > size(cut)]
            found += [*below[-1:], *above[:1]]
        return tuple(found)

    @memoize_method
    def nearest(self, cut: AxisCut) -> AxisCut:
        """The one that is most like `cut`: of its strategy where there is one, then of the next tile and group."""
        tile, group = _tile(cut), _group(cut)
        return min(
            self.options,
            key=lambda one: (
                one.strategy != cut.strategy,
                abs(_tile(one) - tile),
                abs(_group(one) - group),
            ),
        )


def row_cuts(axis: str, kernel: Microkernel, own: AxisCut | None) -> Cuts:
    """The splits of a microkernel's rows: every height that it has, by every strategy that keeps to its tiles."""
    masks = kernel.rows in kernel.predicates
    heights = sorted({tile.rows for tile in kernel.tiles})
    made = (
        AxisCut(axis, strategy, tile)
        for strategy in _usable()
        for tile in heights
        if _keeps(strategy, tile, masks)
    )
    return _ordered(made, own)


def column_cuts(
    axis: str,
    kernel: Microkernel,
    rows: bool,
    extent: Expr,
    column_bytes: int,
    machine: Machine,
    own: AxisCut | None,
) -> Cuts:
    """The splits of a microkernel's columns: the widest tiles by height, in cache groups.

    rows          whether the sum has rows; else its tiles are one row high
    extent        of the axis: a group is no larger than what holds all of it
    column_bytes  of one column of the operand that is read again for each row
    """
    panel = kernel.panel
    whole = ix.literal_value(extent)
    room = max(memory.bytes for memory in machine.memory) // max(column_bytes, 1)
    most = min(room, -(-whole // panel) * panel) if whole else room
    if kernel.any_columns or (own is not None and not own.by_height and own.heights is None):
        tiles = _doubled(panel, max(most, panel))
        return _ordered((AxisCut(axis, LADDER, tile) for tile in tiles), own)
    tallest = kernel.max_rows if rows else 1
    widest = {height: kernel.columns_for(height) // panel for height in range(1, tallest + 1)}
    made: list[AxisCut] = []
    for cap in sorted(set(widest.values()) - {0}):
        by_height = _classes({height: min(cap, most) for height, most in widest.items()}, panel)
        unit = lcm(*(tile for _, _, heights in by_height for tile in heights))
        for group in _doubled(unit, max(most, unit)):
            if rows:
                made.append(AxisCut(axis, LADDER, 0, None, by_height, group))
            else:
                _, tile, heights = by_height[0]
                made.append(AxisCut(axis, LADDER, tile, heights, group=group))
    return _ordered(made, own)


def plain_cuts(own: AxisCut, copies: int) -> Cuts:
    """The splits of an axis without a microkernel: tiles that are multiples and divisors of the one there.

    copies   of a statement, at most, that a strategy may make
    """
    if own.by_height or own.heights is not None:
        return Cuts((own,))
    tiles = {own.tile, own.tile * 2, own.tile * 4}
    tiles |= {own.tile // part for part in (2, 4) if own.tile % part == 0}
    made = (
        AxisCut(own.axis, strategy, tile, group=own.group)
        for strategy in _usable()
        for tile in tiles
        if own.group is None and len(_segments(strategy, tile)) in range(1, copies + 1)
    )
    return _ordered(made, own)


def tile_forms(cut: AxisCut) -> frozenset[Form]:
    """How the instances of its tiles are executed."""
    return frozenset(one.form for one in _segments(cut.strategy, cut.tile))


def _usable() -> Iterator[Strategy]:
    """The strategies of the catalogue for any extent, that are one."""
    return (one for one in STRATEGIES if not one.among and not one.divides)


def _keeps(strategy: Strategy, tile: int, masks: bool) -> bool:
    """Whether a microkernel computes all that `strategy` takes.

    masks  whether it has a predicate on the axis
    """
    found = _segments(strategy, tile)
    kinds = {Form.FULL, Form.SHIFT} | ({Form.MASK} if masks else set())
    return bool(found) and all(one.form in kinds for one in found)


def _segments(strategy: Strategy, tile: int) -> tuple[Segment, ...]:
    """What a strategy takes of an axis of any extent; nothing where it takes no such tile."""
    try:
        return segments(strategy, _ANY, tile)
    except PartitionError:
        return ()


def _classes(
    widths: dict[int, int], panel: int
) -> tuple[tuple[tuple[int, int], int, tuple[int, ...]], ...]:
    """Tile and narrower tiles by height, alike ones together; `widths` in panels by height, from 1 on."""
    found: list[tuple[tuple[int, int], int, tuple[int, ...]]] = []
    for height, width in widths.items():
        steps = tuple(w * panel for w in sorted({width, min(2, width), 1}, reverse=True))
        if found and found[-1][2] == steps:
            found[-1] = ((found[-1][0][0], height), steps[0], steps)
        else:
            found.append(((height, height), steps[0], steps))
    return tuple(found)


def _doubled(first: int, most: int) -> list[int]:
    """`first`, twice that, and so on, until one is `most` at least."""
    sizes = [first]
    while sizes[-1] < most:
        sizes.append(2 * sizes[-1])
    return sizes


def _ordered(made: Iterable[AxisCut], own: AxisCut | None) -> Cuts:
    every = dict.fromkeys(made if own is None else (own, *made))
    return Cuts(tuple(sorted(every, key=lambda one: (str(one.strategy), _tile(one), _group(one)))))


def _tile(cut: AxisCut) -> int:
    return max((tile for _, tile, _ in cut.by_height), default=cut.tile)


def _group(cut: AxisCut) -> int:
    return cut.group or 0


def _differ(one: AxisCut, other: AxisCut) -> tuple[bool, bool, bool]:
    """Whether strategy, tile and group differ."""
    tiles = (one.tile, one.heights, one.by_height) != (other.tile, other.heights, other.by_height)
    return one.strategy != other.strategy, tiles, one.group != other.group
