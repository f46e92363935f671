"""The tiles along axes, in numbers: cuts and extents in, how many of which height and form out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.core.program import Form, Role
from offcut.costmodel.arrays import Array, Calls
from offcut.partition import AxisCut, Strategy, runs_of, segments


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of tiles along an axis, whatever the sizes.

    form    how instances past the last one are treated
    height  of the tile; None: it goes by the sizes
    """

    form: Form = Form.FULL
    height: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Tiles of one height, by call.

    height  of the instances that are in the domain
    tile    of all of them
    body    whether they are whole ones
    """

    count: Array
    height: Array
    tile: Array
    shape: Shape
    body: bool


@dataclass(frozen=True, slots=True)
class Tiles:
    """All tiles of a nest along the axes that are cut, by number and by call.

    count    how many of them
    heights  by axis, of the instances that are in the domain
    tiles    by axis, of all instances
    body     which are whole ones
    shapes   the numbers of those of the same shapes, by axis
    """

    count: Array
    heights: Mapping[str, Array]
    tiles: Mapping[str, Array]
    body: npt.NDArray[np.bool_]
    shapes: Mapping[tuple[Shape, ...], npt.NDArray[np.int64]]


def tiles_of_nest(cuts: Sequence[AxisCut], extents: Mapping[str, Expr], calls: Calls) -> Tiles:
    """The tiles along axes that are cut, outermost first."""
    count = around = np.ones((1, calls.count))
    heights, tiles = dict[str, Array](), dict[str, Array]()
    every: list[tuple[bool, tuple[Shape, ...]]] = [(True, ())]
    for cut in cuts:
        runs = list(_in_groups(cut, extents[cut.axis], calls, around))
        counts = np.concatenate([count * run.count for run in runs])
        some = np.flatnonzero(counts.any(axis=1))
        heights, tiles = (
            {axis: np.concatenate([each] * len(runs))[some] for axis, each in known.items()}
            for known in (heights, tiles)
        )
        heights[cut.axis], tiles[cut.axis] = (
            np.concatenate([np.broadcast_to(each, count.shape) for each in along])[some]
            for along in ([run.height for run in runs], [run.tile for run in runs])
        )
        count, around = counts[some], tiles[cut.axis]
        pairs = [(body and run.body, (*one, run.shape)) for run in runs for body, one in every]
        every = [pairs[number] for number in some]
    numbers: dict[tuple[Shape, ...], list[int]] = {}
    for number, (_, shapes) in enumerate(every):
        numbers.setdefault(shapes, []).append(number)
    body = np.array([whole for whole, _ in every], bool)
    places = {shapes: np.array(those) for shapes, those in numbers.items()}
    return Tiles(count, heights, tiles, body, places)


def _in_groups(cut: AxisCut, extent: Expr, calls: Calls, around: Array) -> Iterator[Run]:
    """The tiles along an axis by all its groups."""
    if cut.group is None:
        yield from tiles_of(cut, extent, calls, around)
        return
    full, rest = ix.floordiv(extent, cut.group), ix.mod(extent, cut.group)
    for number, part in ((full, ix.const(cut.group)), (ix.minimum(rest, 1), rest)):
        times = calls.of(number)
        if times.any():
            for run in tiles_of(cut, part, calls, around):
                yield replace(run, count=run.count * times)


def tiles_of(cut: AxisCut, extent: Expr, calls: Calls, around: Array) -> tuple[Run, ...]:
    """The tiles of an axis.

    around  heights of the tile that was cut before, by which the widths go where the cut says so
    """
    if not cut.by_height:
        return _runs(cut.strategy.with_heights(cut.heights), extent, cut.tile, calls)
    runs: list[Run] = []
    for (low, high), tile, heights in cut.by_height:
        here = (around >= low) & (around <= high)
        for run in _runs(cut.strategy.with_heights(heights), extent, tile, calls):
            runs.append(replace(run, count=run.count * here))
    return tuple(runs)


def _runs(strategy: Strategy, extent: Expr, tile: int, calls: Calls) -> tuple[Run, ...]:
    def at(expr: Expr) -> Array:
        return np.maximum(calls.of(expr), 0)

    return tuple(
        Run(at(count), at(height), at(whole), shape, body)
        for count, height, whole, shape, body in _symbolic(strategy, extent, tile)
    )


@lru_cache(1 << 12)
def _symbolic(
    strategy: Strategy, extent: Expr, tile: int
) -> tuple[tuple[Expr, Expr, Expr, Shape, bool], ...]:
    """What a strategy runs of an extent: counts, heights, those of whole tiles, shapes, whether they are whole ones."""
    runs = []
    for segment in segments(strategy, extent, tile):
        for count, height in runs_of(segment):
            form, whole = segment.form, height
            if form in (Form.GUARD, Form.PAD) or segment.on is not None:
                whole = segment.height
            if form is Form.PAD and segment.on is not None:
                height = segment.on
            if form is Form.SHIFT or (form is not Form.FULL and height == whole):
                form = Form.GUARD if form is Form.GUARD else Form.FULL
            shape = Shape(form, ix.literal_value(whole))
            runs.append((count, height, whole, shape, segment.role is Role.BODY))
    return tuple(runs)
