"""The tiles along axes, in numbers: cuts and extents in, how many of which height out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.core.interpret.values import evaluate_all
from offcut.core.program import Form as TileForm
from offcut.core.program import Role
from offcut.costmodel.nests.calls import Array
from offcut.partition import LADDER, AxisCut, Strategy, runs_of, segments

_EXTENT = Var("extent")


@dataclass(frozen=True, slots=True)
class Form:
    """What is known of tiles, whatever the extent.

    body   whether they are whole ones
    fixed  whether their height along the last axis is: their code has no loop along the lanes then
    apart  whether each is one instance along the last axis
    asked  instances along the last axis that ask whether they are in the domain, in whole vectors; 0: none do
    """

    body: bool
    fixed: bool
    apart: bool
    asked: int = 0

    def around(self, other: Form) -> Form:
        """Of tiles that are cut along another axis, too, along which lanes run."""
        return Form(self.body and other.body, other.fixed, other.apart, other.asked)


@dataclass(frozen=True, slots=True)
class Run:
    """Tiles of one height.

    height  of the instances that run
    tile    height of the tile, with rows that a mask switches off
    form    of the tiles
    """

    count: Array
    height: Array
    tile: Array
    form: Form


@dataclass(frozen=True, slots=True)
class Tiles:
    """All tiles of a nest along the axes that are cut, by number and by call.

    count    how many of them
    heights  by axis
    body     which are whole ones
    forms    the numbers of those of a form
    """

    count: Array
    heights: Mapping[str, Array]
    body: npt.NDArray[np.bool_]
    forms: tuple[tuple[Form, npt.NDArray[np.int64]], ...]

    @staticmethod
    def of(
        cuts: Sequence[AxisCut],
        extents: Mapping[str, Array],
        calls: int,
        plain: bool,
        known: Mapping[str, int],
    ) -> Tiles:
        """Those of axes that are cut, outermost first, at so many calls.

        plain  whether no microkernel computes them
        known  extents that are the same whatever the sizes
        """
        count, heights = np.ones((1, calls)), dict[str, Array]()
        forms = [Form(body=True, fixed=True, apart=False)]
        around = count
        for cut in cuts:
            runs = list(_in_groups(cut, extents[cut.axis], around, plain, known.get(cut.axis)))
            if not runs:
                return Tiles(count[:0], {cut.axis: count[:0] for cut in cuts}, _NONE, ())
            shape = count.shape
            counts = np.concatenate([count * run.count for run in runs])
            now = np.concatenate([np.broadcast_to(run.height, shape) for run in runs])
            some = np.flatnonzero(counts.any(axis=1))
            heights = {
                axis: np.concatenate([height] * len(runs))[some] for axis, height in heights.items()
            }
            heights[cut.axis], count = now[some], counts[some]
            around = np.concatenate([np.broadcast_to(run.tile, shape) for run in runs])[some]
            every = [form.around(run.form) for run in runs for form in forms]
            forms = [every[number] for number in some]
        numbers: dict[Form, list[int]] = {}
        for number, form in enumerate(forms):
            numbers.setdefault(form, []).append(number)
        return Tiles(
            count,
            heights,
            np.array([form.body for form in forms], bool),
            tuple((form, np.array(those)) for form, those in numbers.items()),
        )


_NONE = np.zeros(0, bool)


def _in_groups(
    cut: AxisCut, extent: Array, around: Array, plain: bool, known: int | None
) -> Iterator[Run]:
    """The tiles along an axis by all its groups."""
    if cut.group is None:
        yield from tiles_of(cut, extent, around, plain, known)
        return
    full, left = np.divmod(extent, cut.group)
    if full.any():
        for run in tiles_of(cut, np.full_like(extent, cut.group), around, plain, cut.group):
            yield replace(run, count=run.count * full)
    if left.any():
        rest = None if known is None else known % cut.group
        for run in tiles_of(cut, left, around, plain, rest):
            yield replace(run, count=run.count * (left > 0))


def tiles_of(
    cut: AxisCut, extent: Array, around: Array, plain: bool = False, known: int | None = None
) -> tuple[Run, ...]:
    """The tiles of an axis.

    around  heights of the tile that was cut before, by which the widths go where the cut says so
    plain   whether no microkernel computes them: vectors that are switched off whole, as of a tile that is padded, do not
            run then
    known   the extent, where it is the same whatever the sizes: tiles whose heights follow from it are fixed then
    """
    if not cut.by_height:
        return _runs(cut.strategy.stepped(cut.heights), extent, cut.tile, plain, known)
    if cut.strategy != LADDER:
        found = []
        for (low, high), tile, heights in cut.by_height:
            here = (around >= low) & (around <= high)
            for run in _runs(cut.strategy.stepped(heights), extent, tile, plain, known):
                found.append(replace(run, count=run.count * here))
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
        tile = np.maximum(width, 1)
        yield Run(count, tile, tile, Form(step == 0, fixed=True, apart=False))
        left = left - count * width
    yield Run(np.minimum(left, 1), left, left, Form(body=False, fixed=False, apart=False))


def _runs(
    strategy: Strategy, extent: Array, tile: int, plain: bool, known: int | None
) -> tuple[Run, ...]:
    extents = np.maximum(extent, 0).astype(np.int64).tobytes()
    return _known_runs(strategy, tile, plain, known, extents)


@lru_cache(1 << 12)
def _known_runs(
    strategy: Strategy, tile: int, plain: bool, known: int | None, extents: bytes
) -> tuple[Run, ...]:
    values = {"extent": np.frombuffer(extents, np.int64)}
    return tuple(
        Run(_at(count, values), _at(height, values), _at(whole, values), form)
        for count, height, whole, form in _symbolic(strategy, tile, plain, known)
    )


def _at(expr: Expr, values: dict[str, npt.NDArray[np.int64]]) -> Array:
    size = len(values["extent"])
    found = np.asarray(evaluate_all(expr, values, size), np.float64)
    return np.broadcast_to(np.maximum(found, 0), size)


@lru_cache(1 << 12)
def _symbolic(
    strategy: Strategy, tile: int, plain: bool, known: int | None
) -> tuple[tuple[Expr, Expr, Expr, Form], ...]:
    """What a strategy runs of an extent: counts, heights, those of the tiles; None: of any."""
    found = []
    extent = _EXTENT if known is None else ix.const(known)
    every = segments(strategy, extent, tile)
    for (count, height), segment in ((run, one) for one in every for run in runs_of(one)):
        guarded = segment.form is TileForm.GUARD
        whole = height if segment.on is None else segment.height
        form = Form(
            segment.role is Role.BODY,
            guarded or ix.literal_value(whole) is not None,
            ix.literal_value(whole) == 1 and tile > 1,
            tile if guarded else 0,
        )
        if plain and segment.on is not None:
            height = segment.on
        found.append((count, height, whole, form))
    return tuple(found)
