"""Measures what a call of a kernel takes beside its loops: the call itself, and each way that competes in it.

Both are of calls without rows, in which no loop runs an iteration.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import offcut as oc
from offcut.experiment.timing import in_rounds
from offcut.partition import BALANCE
from offcut.schedule import Nest, parts_of, with_parts

TIMES = 2000
"""Calls that are timed together: one is as short as what a clock can tell."""


def call_samples(rounds: int) -> dict[str, list[float]]:
    """Return samples of ``call_seconds`` and ``way_seconds`` of a machine's description, one for each round."""
    kernels = {"one way": _product(1), "two ways": _product(2)}
    rows = np.zeros((0, _DEPTH), np.float32)
    samplers: dict[str, Callable[[], float]] = {
        name: lambda kernel=kernel: _seconds(kernel, rows)  # type: ignore[misc]
        for name, kernel in kernels.items()
    }
    samplers["nothing"] = lambda: _seconds(_nothing, rows)
    samples = in_rounds(samplers, rounds)
    loop = statistics.median(samples["nothing"])
    pairs = zip(samples["one way"], samples["two ways"], strict=True)
    floor = 1e-9  # what no call and no choice is faster than
    return {
        "call_seconds": [max(one - loop, floor) for one in samples["one way"]],
        "way_seconds": [max((two - one) / 2, floor) for one, two in pairs],
    }


_DEPTH = 32


def _product(ways: int) -> oc.Kernel:
    """A product of any rows, of which so many ways compete, one or two."""
    n = oc.dim("n", max=512)
    a, w = oc.placeholder((n, _DEPTH), name="A"), oc.placeholder((_DEPTH, 64), name="W")
    product, weights = oc.ops.matmul(a, w), {"W": np.zeros((_DEPTH, 64), np.float32)}
    kernel = oc.compile(product, inputs=[a, w], constants=weights, strategy="ladder")
    if ways == 1:
        return kernel
    (nest,) = parts_of(kernel.schedule)
    assert isinstance(nest, Nest)
    (way,) = nest.ways
    rows = way.cover.rows if way.cover is not None else ""
    splits = (replace(cut, strategy=BALANCE) if cut.axis == rows else cut for cut in way.splits)
    both = replace(nest, ways=(way, replace(way, label="balance", splits=tuple(splits))))
    schedule = with_parts(kernel.schedule, (both,))
    return oc.compile(product, inputs=[a, w], constants=weights, schedule=schedule)


def _nothing(rows: np.ndarray) -> None:
    """What a loop around calls takes without them."""


def _seconds(call: Callable[[np.ndarray], object], rows: np.ndarray) -> float:
    begin = time.thread_time()
    for _ in range(TIMES):
        call(rows)
    return (time.thread_time() - begin) / TIMES
