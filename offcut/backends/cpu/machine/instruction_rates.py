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
from functools import lru_cache, partial
from typing import Any

import numpy as np

from offcut.backends.cpu.machine import jit
from offcut.backends.cpu.machine.isa import Host, detect_processor
from offcut.backends.cpu.machine.throughput_loops import NUM_CHAINS, PARAMETERS, multiply_add
from offcut.backends.host import cache as objects
from offcut.backends.llvm.loader import JitModule

ROUNDS = 12  # in which each is timed once
SECONDS = 0.05  # after which no further round begins
COUNT = 4096  # iterations of a loop that is timed


class Bound:
    """A function of generated code with all its arguments.

    parameters   LLVM's types, with ", " between
    arguments    a number each, or an array, of which the function gets the address
    """

    def __init__(
        self,
        loaded: JitModule,
        symbol: str,
        parameters: str,
        arguments: Sequence[int | np.ndarray[Any, Any]],
    ) -> None:
        self._held = loaded, arguments
        kinds = [ctypes.c_void_p if p == "ptr" else ctypes.c_int64 for p in parameters.split(", ")]
        values = [
            argument if isinstance(argument, int) else argument.ctypes.data
            for argument in arguments
        ]
        self._call = partial(ctypes.CFUNCTYPE(None, *kinds)(loaded.address(symbol)), *values)

    def __call__(self) -> None:
        """Call it."""
        self._call()


def cycles(host: Host, calls: Sequence[Callable[[], None]]) -> list[float]:
    """The cycles that each of `calls` takes on this machine, where a multiply–add of a vector takes
    half of one; less what calling from Python takes.
    """
    clock, empty = (loop(host, multiply_add("float32", host.isa), count) for count in (COUNT, 1))
    least = _least((clock, empty, *calls))
    each = 2.0 if host.isa.fma else 1.0
    unit = NUM_CHAINS * (COUNT - 1) / each / max(least[0] - least[1], 1e-9)
    return [max(seconds - least[1], 0.0) * unit for seconds in least[2:]]


def loop(host: Host, text: str, count: int = COUNT) -> Bound:
    """So many iterations of one of `chains`."""
    loaded = _loaded(host, text)
    data, output = np.zeros(128, np.uint8), np.zeros(64 * (NUM_CHAINS + 1), np.uint8)
    at, to = (array[-array.ctypes.data % 64 :] for array in (data, output))
    return Bound(loaded, "loop", PARAMETERS, (at, count, to))


@lru_cache(maxsize=8)
def _loaded(host: Host, text: str) -> JitModule:
    return jit.load([jit.object_code(text, host, passes=False)], host)


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


def cached_measurement(
    parts: Sequence[str], needs: Collection[str], measure: Callable[[], Sequence[float]]
) -> tuple[float, ...] | None:
    """What `measure` gives, or gave on this processor for the same `parts`.

    None where this machine lacks what it `needs`, LLVM's names of features.
    """
    processor = detect_processor(needs)
    if processor is None:
        return None
    name = objects.key("rates", processor, *parts)
    return tuple(
        json.loads(objects.get_or_build(name, lambda: json.dumps(list(measure())).encode()))
    )
