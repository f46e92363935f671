"""An operator at one vector of sizes: its arrays, what its result must be, and how it is described to offcut."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from offcut.core.dtypes import FLOATS
from offcut.describe.request import Array
from offcut.errors import DescribeError
from offcut.experiment.reference import Reference
from offcut.studies.errors import Place, refusal
from offcut.studies.peers import LoopTask
from offcut.studies.sizes import Point, Values

HOW = ("normal", "positive", "small", "dominant", "definite")
"""How floats are drawn; `drawn` says what each means."""

PAGE_BYTES, LINE_BYTES = 4096, 64
APART_LINES = 13
"""Lines of a cache from the begin of one array in its page to that of the next one: near no part of a page for few arrays."""

TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""By element type, how far a result may be off the one in float64, of its largest element: beyond, it is wrong."""


@dataclass(frozen=True)
class Exact:
    """What the results must be.

    values     in float64, or integers
    tolerance  how far an element may be off, as a part of the largest one
    by         how they were computed
    bounds     by how much each element may be off whatever the order of its sum; none: the tolerance is all
    """

    values: tuple[NDArray[Any], ...]
    tolerance: float
    by: str
    bounds: tuple[Reference, ...] = ()

    def error(self, results: Sequence[Array]) -> float:
        """Return the largest distance of an element, as a part of the largest magnitude; infinity for other shapes or NaN."""
        if len(results) != len(self.values):
            return math.inf
        return max(
            (_distance(r, v) for r, v in zip(results, self.values, strict=True)), default=0.0
        )

    def mismatch(self, results: Sequence[Array]) -> str:
        """Return what is wrong with results, "" where they are right."""
        shapes = [tuple(one.shape) for one in results]
        exact_shapes = [tuple(one.shape) for one in self.values]
        if shapes != exact_shapes:
            return f"results of shape {_listed(shapes)} where {_listed(exact_shapes)} are due"
        if self.bounds:
            pairs = zip(self.bounds, results, strict=True)
            return next(filter(None, (bound.mismatch(result) for bound, result in pairs)), "")
        off = self.error(results)
        if off <= self.tolerance:
            return ""
        if math.isinf(off):
            return "an infinity or a NaN on one side alone"
        return f"off by {off:.3g} of the largest one, {self.tolerance:.3g} allowed"


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join(map(str, shapes)) or "none"


def _distance(result: Array, value: NDArray[Any]) -> float:
    if result.shape != value.shape:
        return math.inf
    if not value.size:
        return 0.0
    wide = np.asarray(result).astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(wide - value)
    off[(wide == value) | (np.isnan(wide) & np.isnan(value))] = 0.0
    finite = np.abs(value[np.isfinite(value)])
    largest = float(finite.max()) if finite.size else 0.0
    distance = float(off.max()) / (largest or 1.0)
    return math.inf if math.isnan(distance) else distance


@dataclass(frozen=True)
class Task:
    """An operator's arrays at some sizes.

    operands   those that a call is given, by name, in order
    constants  those that are known when a kernel is compiled; the same at all sizes
    kind       element type of the first operand
    flop, moved  operations, and bytes of operands, constants and results; 0 where unknown
    exact      what the results must be, computed when it is first asked for
    for_peers  the same as a task that libraries know; None where they know none
    loops      the same as the loops that are described; None of a model
    """

    sizes: Mapping[str, int]
    operands: Mapping[str, Array]
    constants: Mapping[str, Array]
    kind: str
    flop: int
    moved: int
    exact: Callable[[], Exact]
    for_peers: Any = None
    loops: LoopTask | None = None


class Workload(Protocol):
    """What is computed, at any sizes."""

    def task(self, sizes: Mapping[str, int], seed: int) -> Task:
        """Return its arrays at `sizes`, fixed axes among them."""

    def compiled(self, options: Mapping[str, Any]) -> Compiled:
        """Return it, compiled once for all sizes, with the arguments that a contender gives to `offcut.compile`.

        Raises OffcutError where it cannot be.
        """


class Compiled(Protocol):
    """A kernel or a model of offcut's."""

    def call(self, task: Task) -> tuple[Callable[[], Any], Callable[[Any], tuple[Array, ...]]]:
        """Return a call on the task's operands, and what takes its results from what it returns."""

    def cost(self, task: Task) -> Any:
        """Return what the call is predicted to cost, or None."""

    # It may have `way`, the name of the contender's way in tables, and ``simulated(task)``, the seconds of the call by a
    # simulator, in whose place nothing is timed; None where it runs.


@dataclass(frozen=True)
class Operator:
    """A workload with its sizes.

    name      in tables
    identity  what it computes, as plain data with digests of the files that it is in: another one is measured anew
    axes      extents by axis, of one extent where the axis is fixed
    points    the vectors that are measured; None: all combinations of `axes`
    """

    name: str
    identity: Mapping[str, Any]
    axes: Mapping[str, Values]
    points: tuple[Point, ...]
    workload: Workload


def drawn(shape: Sequence[int], dtype: Any, rng: np.random.Generator, how: str = "") -> Array:
    """Return random values.

    how  ``low:high``: whole numbers, both included; all of an integer type by default
         ``normal``, by default; ``positive``: 1/2 to 3/2; ``small``: normal over 2.5 times the length of the first axis;
         ``dominant``: a matrix whose diagonal outweighs its rows; ``definite``: one that is symmetric and positive definite

    Raises DescribeError for another word, and where they are more than memory holds.
    """
    try:
        return _drawn(np.dtype(dtype), tuple(shape), rng, how)
    except (MemoryError, ValueError) as error:
        if isinstance(error, ValueError) and "dimension" not in str(error):
            raise
        because = f"it takes {np.dtype(dtype).itemsize * math.prod(shape):,} bytes"
        what = f"cannot hold an array of shape {tuple(shape)}"
        raise DescribeError("study", what, because=because) from error


def check_values(how: Any, at: Place | str) -> None:
    """Refuse what is no way to draw values, as `drawn` takes it."""
    if not isinstance(how, str) or (how not in ("", *HOW) and _ends(how) is None):
        raise refusal(at, f"{how!r} draws nothing", *HOW, '"0:30521" of whole numbers')


def _ends(how: str) -> tuple[int, int] | None:
    """Return the ends of ``low:high``; None of another text, and where the range is empty."""
    match = re.fullmatch(r"(-?\d{1,18}):(-?\d{1,18})", how)
    if match is None or int(match[1]) > int(match[2]):
        return None
    return int(match[1]), int(match[2])


def _drawn(
    element: np.dtype[Any], extents: tuple[int, ...], rng: np.random.Generator, how: str
) -> Array:
    check_values(how, "values")
    if (ends := _ends(how)) is not None:
        return rng.integers(*ends, extents, np.int64, endpoint=True).astype(element)
    if element.name not in FLOATS:
        if element == np.bool_:
            return rng.integers(0, 2, extents).astype(element)
        limits = np.iinfo(element)
        return rng.integers(limits.min, limits.max, extents, element, endpoint=True)
    if how == "positive":
        return (0.5 + rng.random(extents)).astype(element)
    values = rng.standard_normal(extents, np.float32).astype(np.float64)
    if how == "small":
        values /= 2.5 * extents[0]
    elif how == "dominant":
        values[np.diag_indices(extents[0])] = 4.0 * extents[0]
    elif how == "definite":
        values = values @ values.T + extents[0] * np.eye(extents[0])
    return values.astype(element)


LAYOUT: ContextVar[str] = ContextVar("LAYOUT", default="")
"""What decides where `at_page_offset` lays arrays, such as the number of a process and a row; "": `APART_LINES` apart."""


def at_page_offset(array: Array, number: int) -> Array:
    """Return a copy whose first byte begins a line of the cache that `LAYOUT` says for the array of that number.

    Two arrays that begin alike in their pages make some processors take loads of one for loads of what was just stored to the
    other; where the arrays of a call lie is the same for all contenders of a row, and no two of a row begin alike.
    """
    lines, layout = PAGE_BYTES // LINE_BYTES, LAYOUT.get()
    line = number * APART_LINES % lines
    if layout:
        line = random.Random(layout).sample(range(lines), lines)[number % lines]
    pages = np.empty(array.nbytes + 2 * PAGE_BYTES, np.uint8)
    first = -pages.ctypes.data % PAGE_BYTES + line * LINE_BYTES
    copy: Array = pages[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
