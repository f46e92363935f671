"""The jobs of a child: a candidate is compiled, and its results compared with the reference; candidates are timed in turns, until they can be ranked.

The arrays of timed calls lie at the same places in every process. A kernel that writes what lies some bytes further in its page (`host.scratch`) than what it reads next takes up to 1.6 times as long, and
the allocator decides. Here each array begins at a multiple of such a page, plus a part of one of its own, as far from all others as so
many can be: times that differ from one process to the next by a tenth and more differ by a few hundredths.

Source: AMD, Software Optimization Guide for AMD64 Processors (25112), section 5.5, "false dependencies": bits 11 to 2 of addresses; Intel 64
and IA-32 Architectures Optimization Reference Manual, "4-KByte aliasing"; measured on Zen 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from offcut.backends.host.scratch import PAGE
from offcut.core.dtypes import numpy_dtype
from offcut.core.interpret.interpreter import poison_array
from offcut.describe.request import Array
from offcut.errors import OffcutError
from offcut.experiment.reference import Reference
from offcut.experiment.timing import ROUNDS, Clock, Run, Timing, measure
from offcut.kernel import Kernel, kernel_of
from offcut.schedule import Schedule
from offcut.search import Outcome
from offcut.tuning.measuring.reference import (
    Draw,
    Operands,
    load_reference,
    operands,
    with_constants,
)
from offcut.tuning.problem import Limits, Problem, Time

_MARGIN = 256
"""Bytes around a result that nothing may write."""

Verdict = tuple[Outcome, str, Mapping[str, int]]
"""What became of it, why, and at which sizes."""


def check_candidate(
    argument: tuple[Problem, Schedule, Path, Draw], say: Callable[[Any], None]
) -> Verdict:
    """Whether a candidate gives what the program means, at each of the problem's sizes in turn.

    It says the sizes that it is called at. Results are written over poison, between margins.
    """
    problem, schedule, folder, draw = argument
    request = with_constants(problem.request, problem.seed, draw)
    try:
        kernel = kernel_of(request, problem.scheduled(schedule), problem.target)
    except OffcutError as refused:
        return Outcome.REFUSED, str(refused), {}
    for number, (sizes, _) in enumerate(problem.sizes):
        say(dict(sizes))
        called = operands(request, sizes, problem.seed, draw)
        try:
            wrong = _wrong(kernel, called, load_reference(folder, number))
        except OffcutError as refused:
            return Outcome.REFUSED, str(refused), dict(sizes)
        if wrong:
            return Outcome.WRONG, wrong, dict(sizes)
    return Outcome.OK, "", {}


def results_of(kernel: Kernel, called: Operands, out: tuple[Array, ...]) -> None:
    """Call a kernel, its results into `out`."""
    kernel(*called.given, out=out[0] if len(out) == 1 else out, **called.sizes)


def _wrong(kernel: Kernel, called: Operands, references: tuple[Reference, ...]) -> str:
    """What is wrong with the results of a call, in words; "" where nothing is."""
    outputs = [_guarded(shape, dtype) for shape, dtype in called.results]
    before = [array.tobytes() for array in called.given]
    results_of(kernel, called, tuple(out for _, out in outputs))
    for argument, array, bits in zip(kernel.signature.inputs, called.given, before, strict=True):
        if array.tobytes() != bits:
            return f"it writes its input {argument.name}"
    names = [argument.name for argument in kernel.signature.outputs]
    for name, (margins, out), reference in zip(names, outputs, references, strict=True):
        if any((margin != _BYTE).any() for margin in margins):
            return f"it writes outside of {name}"
        if wrong := _alike(reference, out).mismatch(out):
            return f"{name}: {wrong}"
    return ""


_BYTE = 0xA5


def _guarded(shape: tuple[int, ...], dtype: str) -> tuple[tuple[Array, Array], Array]:
    """An array full of poison, and the margins around it."""
    filled = poison_array(shape, dtype)
    whole = np.full(filled.nbytes + 2 * _MARGIN, _BYTE, np.uint8)
    inner = whole[_MARGIN : _MARGIN + filled.nbytes]
    out = inner.view(numpy_dtype(dtype)).reshape(shape)
    out[...] = filled
    return (whole[:_MARGIN], whole[_MARGIN + filled.nbytes :]), out


def _alike(reference: Reference, result: Array) -> Reference:
    """A reference to which what is not finite in both, and the same, is equal."""
    if np.isfinite(reference.value).all():
        return reference
    actual = result.astype(np.float64)
    same = (actual == reference.value) | (np.isnan(actual) & np.isnan(reference.value))
    value = np.where(same, 0.0, reference.value)
    result[same] = 0
    return Reference(value, reference.allowed)


_PARTS = 4
"""Parts of the budget; after each but the first it is asked whether the spread is small enough."""

_NOTCH = 1.57
"""Half the width of a notch is this times the distance of the quartiles over the root of the number of samples."""

Candidates = Mapping[str, Schedule | None]
"""Schedules by a name; None: what the default policy decides."""


def time_candidates(
    argument: tuple[Problem, Candidates, Limits, Draw], say: Callable[[Any], None]
) -> dict[str, tuple[Time, ...]]:
    """Times of each candidate at each of the problem's sizes.

    It says whose turn it is, and the sizes; before the first call none.
    """
    problem, candidates, limits, draw = argument
    request = with_constants(problem.request, problem.seed, draw)
    kernels = {}
    for name, schedule in candidates.items():
        say((name, {}))
        kernels[name] = kernel_of(request, problem.scheduled(schedule), problem.target)
    times: dict[str, tuple[Time, ...]] = dict.fromkeys(candidates, ())
    clock = time.process_time if problem.options.threads == 1 else time.perf_counter
    for sizes, _ in problem.sizes:
        arrays = operands(request, sizes, problem.seed, draw)
        runs = partial(_runs, kernels, arrays)
        timings = sample_until_ranked(runs, limits, clock, partial(_turn, say, dict(sizes)))
        for name, timing in timings.items():
            times[name] += (Time(dict(sizes), timing.seconds, timing.spread),)
    return times


def _runs(kernels: Mapping[str, Kernel], arrays: Operands) -> dict[str, Run]:
    """A call of each kernel, on operands of their own that all share."""
    called, out = place_operands(arrays)
    return {name: partial(results_of, kernel, called, out) for name, kernel in kernels.items()}


def _turn(say: Callable[[Any], None], sizes: Mapping[str, int], name: str) -> None:
    say((name, sizes))


def sample_until_ranked(
    runs: Callable[[], Mapping[str, Run]],
    limits: Limits,
    clock: Clock = time.process_time,
    turn: Callable[[str], None] = lambda name: None,
) -> dict[str, Timing]:
    """Samples of all in turns, until each median is known to `limits.resolution` or the budget is spent.

    Those that are hopeless after the first part of it take no further turns. Each part runs on arrays of its own, whose pages
    lie elsewhere in caches: what that makes is noise like any other, and two parts there are at least.

    runs  a call of each candidate, on arrays that are made for it
    """
    timings: dict[str, Timing] = {}
    candidates: Collection[str] | None = None
    for number in range(_PARTS):
        run_by_name = runs()
        part = measure(
            {
                name: run
                for name, run in run_by_name.items()
                if candidates is None or name in candidates
            },
            budget=limits.budget / _PARTS,
            rounds=-(-ROUNDS // _PARTS),
            clock=clock,
            turn=turn,
        )
        for name, timing in part.items():
            before = timings[name].samples if name in timings else ()
            timings[name] = Timing((*before, *timing.samples), timing.calls)
        most = limits.hopeless * min(timing.seconds for timing in timings.values())
        candidates = [name for name in part if timings[name].seconds <= most]
        if number and all(median_error(timings[name]) <= limits.resolution for name in candidates):
            break
    return timings


def median_error(timing: Timing) -> float:
    """Half the width of the 95 % interval of the median, over the median.

    Source: McGill, Tukey, Larsen, Variations of box plots, The American Statistician 32 (1), 1978.
    """
    return _NOTCH * timing.spread / sqrt(len(timing.samples))


def noise(times: Sequence[Time]) -> float:
    """The median, over the sizes, of the spread of one kernel."""
    return float(np.median([time.spread for time in times])) if times else 0.0


_ALIGNED = 64
"""Bytes that each begins at a multiple of, so that vectors of all arrays lie alike."""


def place_operands(called: Operands) -> tuple[Operands, tuple[Array, ...]]:
    """The operands of a call where they always lie, and arrays for its results."""
    shapes = [*((one.shape, one.dtype) for one in called.given)]
    shapes += [(shape, numpy_dtype(dtype)) for shape, dtype in called.results]
    step = max(PAGE >> (len(shapes) - 1).bit_length(), _ALIGNED)
    arrays = [_at(number * step % PAGE, *one) for number, one in enumerate(shapes)]
    count = len(called.given)
    for array, operand in zip(arrays[:count], called.given, strict=True):
        array[...] = operand
    return replace(called, given=tuple(arrays[:count])), tuple(arrays[count:])


def _at(place: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """An array that begins so many bytes into a page."""
    size = prod(shape) * dtype.itemsize
    pages = np.empty(size + 2 * PAGE, np.uint8)
    first = -pages.ctypes.data % PAGE + place
    return pages[first : first + size].view(dtype).reshape(shape)
