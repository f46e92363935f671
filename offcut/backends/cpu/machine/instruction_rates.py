"""How long functions take on this machine, in the cycles that its microkernels are predicted by.

Clocks change, and other programs run: so a function is timed in turn with a loop of multiply–adds
from registers, whose cycles are known, and each counts by its shortest time. That gives ratios to
a few percent, in milliseconds.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from offcut.backends.cpu.machine import jit
from offcut.backends.cpu.machine.isa import Host, Isa, detect_processor
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
    loaded = _load_rates(host, text)
    data, output = np.zeros(128, np.uint8), np.zeros(64 * (NUM_CHAINS + 1), np.uint8)
    at, to = (array[-array.ctypes.data % 64 :] for array in (data, output))
    return Bound(loaded, "loop", PARAMETERS, (at, count, to))


@lru_cache(maxsize=8)
def _load_rates(host: Host, text: str) -> JitModule:
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


# Loops of one instruction on registers, as LLVM IR: how often a processor issues it, and nothing else.
#
# Every loop is a function ``void loop(ptr data, i64 count, ptr kept)``: `count` iterations, at least one, on
# memory that starts with a vector; what it accumulates ends in the `64 * CHAINS` bytes at `store_accumulators`.

NUM_CHAINS = 12
"""Independent accumulators: more than latency times instructions per cycle on any known core."""

PARAMETERS = "ptr, i64, ptr"
"""Of a loop."""


def multiply_add(dtype: str, isa: Isa) -> str:
    """A loop of `NUM_CHAINS` multiply–adds of vectors of `dtype`, float32 or float64."""
    element = "float" if dtype == "float32" else "double"
    vector = f"<{isa.lanes(dtype)} x {element}>"
    if not isa.fma:
        step = f"%p{{k}} = fmul {vector} %old{{k}}, %b\n%new{{k}} = fadd {vector} %p{{k}}, %b"
        return instruction_loop(vector, "", step)
    function = f"@llvm.fma.v{isa.lanes(dtype)}f{32 if dtype == 'float32' else 64}"
    step = f"%new{{k}} = call {vector} {function}({vector} %b, {vector} %b, {vector} %old{{k}})"
    return instruction_loop(
        vector, f"declare {vector} {function}({vector}, {vector}, {vector})", step
    )


def instruction_loop(vector: str, declared: str, step: str, operands: Sequence[str] = ()) -> str:
    """A loop of `NUM_CHAINS` independent instructions, each on what it gave the time before.

    step       computes ``%new{k}`` from ``%old{k}``, both of type `vector`, and ``%b`` from memory
    operands   what is made of ``%b`` before the loop
    """
    phis = [
        f"%old{k} = phi {vector} [ zeroinitializer, %entry ], [ %new{k}, %again ]"
        for k in range(NUM_CHAINS)
    ]
    lines = [step.format(k=k) for k in range(NUM_CHAINS)]
    before = [f"%b = load {vector}, ptr %data, align 64", *operands]
    return (
        f"{declared}\n{counted_loop(phis, lines, store_accumulators(vector, NUM_CHAINS), before)}"
    )


def store_accumulators(vector: str, count: int) -> Iterator[str]:
    """Store every accumulator, so that nothing is dead."""
    for k in range(count):
        yield f"%place{k} = getelementptr i8, ptr %kept, i64 {64 * k}"
        yield f"store {vector} %new{k}, ptr %place{k}, align 16"


def counted_loop(
    phis: Sequence[str], body: Sequence[str], after: Iterable[str], before: Sequence[str] = ()
) -> str:
    """The function `loop`: `body` `count` times, then `after`."""
    lines = [
        "define void @loop(ptr %data, i64 %count, ptr %kept) {",
        "entry:",
        *before,
        "br label %again",
        "again:",
        "%left = phi i64 [ %count, %entry ], [ %less, %again ]",
        *phis,
        *body,
        "%less = sub i64 %left, 1",
        "%more = icmp ne i64 %less, 0",
        "br i1 %more, label %again, label %end",
        "end:",
        *after,
        "ret void",
        "}",
    ]
    return "\n".join(lines)
