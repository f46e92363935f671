"""The tiles along an axis, in numbers: a cut and an extent in, how many of which height out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from offcut.core.expr import Expr, Var
from offcut.core.interpret.values import evaluate_all
from offcut.core.program import Role
from offcut.costmodel.nests.calls import Array
from offcut.partition import LADDER, AxisCut, Strategy, runs, segments

_EXTENT = Var("extent")


@dataclass(frozen=True, slots=True)
class Run:
    """Tiles of one height.

    body   whether they are whole tiles
    apart  whether each is an instance under a condition of its own
    """

    count: Array
    height: Array
    body: bool
    apart: bool = False


def tiles_of(cut: AxisCut, extent: Array, around: Array) -> tuple[Run, ...]:
    """The tiles of an axis.

    around  heights of the tile that was cut before, by which the widths go where the cut says so
    """
    if not cut.by_height:
        return tuple(_runs(cut.strategy.stepped(cut.heights), extent, cut.tile))
    if cut.strategy != LADDER:
        found = []
        for (low, high), tile, heights in cut.by_height:
            here = (around >= low) & (around <= high)
            for run in _runs(cut.strategy.stepped(heights), extent, tile):
                found.append(Run(run.count * here, run.height, run.body, run.apart))
        return tuple(found)
    return tuple(_steps(cut, extent, around))


def _steps(cut: AxisCut, extent: Array, around: Array) -> Iterator[Run]:
    """Of a ladder whose widths go by the tile around: the widest, the narrower ones, what is left."""
    lasts = np.array([high for (_, high), _, _ in cut.by_height], float)
    number = np.minimum(np.searchsorted(lasts, around), len(lasts) - 1)
    most = max(len(heights) for _, _, heights in cut.by_height)
    left = np.maximum(extent, 0)
    for step in range(most):
        widths = np.array([heights[step] if step < len(heights) else 0 for _, _, heights in cut.by_height], float)
        width = widths[number]
        count = np.where(width > 0, left // np.maximum(width, 1), 0)
        yield Run(count, np.maximum(width, 1), body=step == 0)
        left = left - count * width
    yield Run(np.minimum(left, 1), left, body=False)


def _runs(strategy: Strategy, extent: Array, tile: int) -> Iterator[Run]:
    values = {"extent": np.maximum(extent, 0).astype(np.int64)}
    for count, height, body, apart in _symbolic(strategy, tile):
        yield Run(_at(count, values), _at(height, values), body, apart)


def _at(expr: Expr, values: dict[str, np.ndarray]) -> Array:
    size = len(values["extent"])
    found = np.asarray(evaluate_all(expr, values, size), np.float64)
    return np.broadcast_to(np.maximum(found, 0), size)


@lru_cache(1 << 12)
def _symbolic(strategy: Strategy, tile: int) -> tuple[tuple[Expr, Expr, bool, bool], ...]:
    """What a strategy runs of any extent; `Role` and guards are those of its segments."""
    found = []
    for run, segment in zip(runs(strategy, _EXTENT, tile), segments(strategy, _EXTENT, tile), strict=True):
        found.append((*run, segment.role is Role.BODY, segment.guarded is not None))
    return tuple(found)
