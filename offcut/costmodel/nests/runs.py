"""The tiles along an axis, in numbers: a cut and an extent in, how many of which height out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.core.interpret.values import evaluate_all
from offcut.core.program import Role
from offcut.costmodel.nests.calls import Array
from offcut.partition import LADDER, AxisCut, Strategy, runs, segments

_EXTENT = Var("extent")


@dataclass(frozen=True, slots=True)
class Form:
    """What is known of tiles, whatever the extent.

    body   whether they are whole ones
    fixed  whether their height is: their code has no loop then
    apart  whether each is one instance, under a condition of its own or not
    """

    body: bool
    fixed: bool
    apart: bool

    def within(self, other: Form) -> Form:
        """Of tiles that are cut along another axis, too."""
        return Form(self.body and other.body, self.fixed and other.fixed, self.apart or other.apart)


@dataclass(frozen=True, slots=True)
class Run:
    """Tiles of one height.

    form  of the tiles
    """

    count: Array
    height: Array
    form: Form


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
                found.append(Run(run.count * here, run.height, run.form))
        return tuple(found)
    return tuple(_steps(cut, extent, around))


def _steps(cut: AxisCut, extent: Array, around: Array) -> Iterator[Run]:
    """Of a ladder whose widths go by the tile around: the widest, the narrower ones, what is left."""
    lasts = np.array([high for (_, high), _, _ in cut.by_height], float)
    number = np.minimum(np.searchsorted(lasts, around), len(lasts) - 1)
    most = max(len(heights) for _, _, heights in cut.by_height)
    left = np.maximum(extent, 0)
    for step in range(most):
        widths = np.array(
            [heights[step] if step < len(heights) else 0 for _, _, heights in cut.by_height], float
        )
        width = widths[number]
        count = np.where(width > 0, left // np.maximum(width, 1), 0)
        yield Run(count, np.maximum(width, 1), Form(step == 0, fixed=True, apart=False))
        left = left - count * width
    yield Run(np.minimum(left, 1), left, Form(body=False, fixed=False, apart=False))


def _runs(strategy: Strategy, extent: Array, tile: int) -> Iterator[Run]:
    values = {"extent": np.maximum(extent, 0).astype(np.int64)}
    for count, height, form in _symbolic(strategy, tile):
        yield Run(_at(count, values), _at(height, values), form)


def _at(expr: Expr, values: dict[str, np.ndarray]) -> Array:
    size = len(values["extent"])
    found = np.asarray(evaluate_all(expr, values, size), np.float64)
    return np.broadcast_to(np.maximum(found, 0), size)


@lru_cache(1 << 12)
def _symbolic(strategy: Strategy, tile: int) -> tuple[tuple[Expr, Expr, Form], ...]:
    """What a strategy runs of any extent."""
    found = []
    pairs = zip(runs(strategy, _EXTENT, tile), segments(strategy, _EXTENT, tile), strict=True)
    for (count, height), segment in pairs:
        single = ix.literal(height) == 1
        form = Form(
            segment.role is Role.BODY,
            ix.literal(height) is not None,
            segment.guarded is not None or (single and tile > 1),
        )
        found.append((count, height, form))
    return tuple(found)
