"""The loops of one stage, as decisions about it say them: plain ones, groups and tiles, and what covers these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from offcut.partition import LADDER, AxisCut
from offcut.schedule.decisions import (
    VECTORS,
    Cover,
    Level,
    Order,
    Split,
    Step,
    each_decision,
)
from offcut.schedule.nests import KERNEL_AXES, WORDS, KernelAxes


class OtherLoops(Exception):
    """Raised for decisions that are of no nests."""


@dataclass(frozen=True)
class StageLoops:
    """The loops of a stage: plain ones around groups and inside of them, and splits, outermost first.

    roots   the axis that each loop of a split is of
    around  the loops that have others inside of them
    """

    splits: tuple[AxisCut, ...]
    outer: tuple[str, ...]
    inner: tuple[str, ...]
    cover: Cover | None
    cover_line: int
    roots: Mapping[str, str]
    around: frozenset[str]

    def kernel(self) -> KernelAxes | None:
        """Return the axes of what covers the tiles; None where it is no microkernel."""
        if self.cover is None or self.cover.microkernel == VECTORS:
            return None
        pairs = [(axis, self.roots.get(loop, loop)) for axis, loop in self.cover.axes]
        if not {axis for axis, _ in pairs} <= {*KERNEL_AXES}:
            pairs = list(
                zip(KERNEL_AXES[3 - len(pairs) :], (loop for _, loop in pairs), strict=False)
            )
        along = dict(pairs)
        return KernelAxes(
            self.cover.microkernel, along.get("i"), along.get("j"), along.get("p", "")
        )


def read_loops(
    steps: Sequence[tuple[Step, int]], lines: dict[int, int], named: list[tuple[str, str, int]]
) -> StageLoops:
    """Return what decisions about one stage make of its loops.

    lines  notes the line of each split, by its identity
    named  notes (stage, loop, line) for each loop inside of tiles that an order names

    Raises OtherLoops where they are loops of no nest.
    """
    cuts: dict[str, AxisCut] = {}
    repeated: list[AxisCut] = []
    groups: set[str] = set()
    roots: dict[str, str] = {}
    heights: dict[str, str] = {}
    inside: list[str] = []
    order: tuple[str, ...] | None = None
    order_stage, order_line = "", 0
    cover, cover_line = None, 0
    for step, line in steps:
        match step:
            case Split(_, axis, levels, names):
                cut = _axis_cut(axis, levels, inside)
                if levels[-1].by is not None:
                    heights[names[-2]] = levels[-1].by
                if names[-2] in cuts:
                    repeated.append(cut)  # applying it is refused by its line
                else:
                    cuts[names[-2]] = cut
                lines[id(cut)] = line
                groups |= {*names[:-2]}
                roots |= dict.fromkeys(names, axis)
                inside.append(names[-1])
            case Order(stage, loops) if order is None:
                order, order_stage, order_line = loops, stage, line
            case Cover(_, axis, name, along) if (
                cover is None and axis in ("", *inside) and (along or name in (VECTORS, WORDS))
            ):
                cover, cover_line = step, line
            case _:
                raise OtherLoops
    loop_names = list(order or ())
    tiles = [name for name in loop_names if name in cuts]
    first = loop_names.index(tiles[0]) if tiles else len(loop_names)
    head, rest = loop_names[:first], loop_names[first + len(tiles) :]
    grouped = [name for name in head if name in groups]
    if len(grouped) > 1 or {*rest} & {*tiles, *groups} or {*head} & {*inside}:
        raise OtherLoops
    in_tile = (name for name in rest if name not in inside)
    named += ((order_stage, name, order_line) for name in in_tile)
    place = head.index(grouped[0]) if grouped else len(head)
    inner_loops = dict(zip(cuts, inside, strict=False))
    tile_around = dict(zip(tiles[1:], map(inner_loops.get, tiles), strict=False))
    if any(tile_around.get(name) != by for name, by in heights.items()):
        raise OtherLoops
    others = (cut for name, cut in cuts.items() if name not in tiles)
    splits = (*(cuts[name] for name in tiles), *others, *repeated)
    outer, inner = tuple(head[:place]), tuple(head[place + 1 :])
    innermost = {*inside} & {*loop_names[-1:]} if loop_names else {*inside}
    around = frozenset((*loop_names, *roots)) - innermost
    return StageLoops(splits, outer, inner, cover, cover_line, roots, around)


def _axis_cut(axis: str, levels: Sequence[Level], inside: Sequence[str]) -> AxisCut:
    """Return the tiles of an axis.

    inside  loops inside of tiles that were split before

    Raises OtherLoops where they are none of a nest.
    """
    *outer, last = levels
    plain = all(
        level.tail in (None, LADDER) and level.heights is None and level.by is None
        for level in outer
    )
    rooms = any(level.room is not None for level in levels)
    by_known_tile = last.by is None or last.by in inside
    if len(outer) > 1 or last.tail is None or rooms or not plain or not by_known_tile:
        raise OtherLoops
    group = outer[0].tile if outer else None
    return AxisCut(axis, last.tail, last.tile, last.heights, last.classes, group)


def take_shared_loops(steps: list[tuple[Step, int]]) -> tuple[tuple[str, str, Level | None], ...]:
    """Take what decisions say of loops that a nest shares off them: (loop, axis, its blocks), outermost first."""
    blocks: dict[str, tuple[str, Level]] = {}
    while steps:
        match steps.pop(0)[0]:
            case Split(_, axis, (Level(_, None, None, None, (), int()) as level,), (outer, _)):
                blocks[outer] = axis, level
            case Order(_, loops) if loops:
                return tuple((name, *blocks.get(name, (name, None))) for name in loops)
            case _:
                break
    raise OtherLoops


def loops_in(steps: Iterable[Step]) -> Iterator[tuple[str, str]]:
    """Yield (stage, loop) of what decisions split or put in order."""
    for step in each_decision(steps):
        match step:
            case Split(stage, axis):
                yield stage, axis
            case Order(stage, loops):
                yield from ((stage, loop) for loop in loops)
            case _:
                pass
