"""A candidate compiled, and its results compared with the reference: the job of a child."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.core.interpret.interpreter import poison_array
from offcut.describe.request import Array
from offcut.errors import OffcutError
from offcut.experiment.contraction import Reference
from offcut.kernel import Kernel, kernel_of
from offcut.schedule import Schedule
from offcut.search import Outcome
from offcut.tuning.measuring.operands import Draw, Operands, operands, with_constants
from offcut.tuning.measuring.reference import kept
from offcut.tuning.problem import Problem

_MARGIN = 256
"""Bytes around a result that nothing may write."""

Verdict = tuple[Outcome, str, Mapping[str, int]]
"""What became of it, why, and at which sizes."""


def checked(argument: tuple[Problem, Schedule, Path, Draw], say: Callable[[Any], None]) -> Verdict:
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
            wrong = _wrong(kernel, called, kept(folder, number))
        except OffcutError as refused:
            return Outcome.REFUSED, str(refused), dict(sizes)
        if wrong:
            return Outcome.WRONG, wrong, dict(sizes)
    return Outcome.OK, "", {}


def results_of(kernel: Kernel, called: Operands, out: tuple[Array, ...]) -> None:
    """Call a kernel, its results into `out`."""
    kernel(*called.given, out=out[0] if len(out) == 1 else out, **called.sizes)


def _wrong(kernel: Kernel, called: Operands, wanted: tuple[Reference, ...]) -> str:
    """What is wrong with the results of a call, in words; "" where nothing is."""
    made = [_guarded(shape, dtype) for shape, dtype in called.results]
    before = [array.tobytes() for array in called.given]
    results_of(kernel, called, tuple(out for _, out in made))
    for argument, array, bits in zip(kernel.signature.inputs, called.given, before, strict=True):
        if array.tobytes() != bits:
            return f"it writes its input {argument.name}"
    names = [argument.name for argument in kernel.signature.outputs]
    for name, (margins, out), reference in zip(names, made, wanted, strict=True):
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


def _alike(reference: Reference, found: Array) -> Reference:
    """A reference to which what is not finite in both, and the same, is equal."""
    if np.isfinite(reference.value).all():
        return reference
    given = found.astype(np.float64)
    same = (given == reference.value) | (np.isnan(given) & np.isnan(reference.value))
    value = np.where(same, 0.0, reference.value)
    found[same] = 0
    return Reference(value, reference.allowed)
