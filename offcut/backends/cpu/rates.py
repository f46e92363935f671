"""How long functions take on this machine, in the cycles that its microkernels are predicted by.

Clocks change, and other programs run: so a function is timed in turn with a loop of multiply–adds
from registers, whose cycles are known, and each counts by its shortest time. That gives ratios to
a few percent, in milliseconds.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from offcut.backends.cpu import cache as objects
from offcut.backends.cpu import fma, jit
from offcut.backends.cpu.family import TILES, Variant
from offcut.backends.cpu.isa import Host, here

ROUNDS = 12  # in which each is timed once
SECONDS = 0.05  # after which no further round begins
_STRIDED = Variant(unit_depth=False, panels=False)
_CLOCK = 8, 3, 4096  # rows, vectors and terms of the clock's tile, whose operands never move


class Bound:
    """A function of generated code with all its arguments.

    parameters   LLVM's types, with ", " between
    arguments    a number each, or an array, of which the function gets the address
    """

    def __init__(
        self,
        loaded: jit.Loaded,
        symbol: str,
        parameters: str,
        arguments: Sequence[int | np.ndarray[Any, Any]],
    ) -> None:
        self._held = loaded, arguments
        kinds = [ctypes.c_void_p if p == "ptr" else ctypes.c_int64 for p in parameters.split(", ")]
        values = [given if isinstance(given, int) else given.ctypes.data for given in arguments]
        self._call = partial(ctypes.CFUNCTYPE(None, *kinds)(loaded.address(symbol)), *values)

    def __call__(self) -> None:
        """Call it."""
        self._call()


def cycles(host: Host, calls: Sequence[Callable[[], None]]) -> list[float]:
    """The cycles that each of `calls` takes on this machine, where a multiply–add of a vector takes
    half of one; less what calling from Python takes.
    """
    rows, vectors, depth = _CLOCK
    text = fma.tiles(host.isa, "float32", _STRIDED, [(rows, vectors)])
    symbol = fma.symbol(host.isa, "float32", _STRIDED, rows, vectors)
    loaded = jit.load([jit.object_code(text, host, passes=False)], host)
    a, b, c = (np.zeros(vectors * rows * 64, np.uint8) for _ in range(3))
    last = host.isa.lanes("float32")
    lengths = depth, 0  # the second is what calling takes
    clock, empty = (
        Bound(loaded, symbol, TILES, (a, 0, 0, b, 0, 0, c, 64 * vectors, k, last, 0))
        for k in lengths
    )
    least = _least((clock, empty, *calls))
    unit = fma.step_cycles(host.isa, rows, vectors) * depth / max(least[0] - least[1], 1e-9)
    return [max(seconds - least[1], 0.0) * unit for seconds in least[2:]]


def _least(calls: Sequence[Callable[[], None]]) -> list[float]:
    """The least seconds of each, over rounds in which each runs once."""
    least = [float("inf")] * len(calls)
    end = time.perf_counter() + SECONDS
    for number in range(ROUNDS):
        for position, call in enumerate(calls):
            start = time.perf_counter()
            call()
            least[position] = min(least[position], time.perf_counter() - start)
        if number and time.perf_counter() > end:
            break
    return least


def kept(
    parts: Sequence[str], needs: Collection[str], measure: Callable[[], Sequence[float]]
) -> tuple[float, ...] | None:
    """What `measure` gives, or gave on this processor for the same `parts`.

    None where this machine lacks what it `needs`, LLVM's names of features.
    """
    processor = here(needs)
    if processor is None:
        return None
    name = objects.key("rates", processor, *parts)
    found = objects.read(name)
    if found is None:
        found = json.dumps(list(measure())).encode()
        objects.write(name, found)
    return tuple(json.loads(found))
