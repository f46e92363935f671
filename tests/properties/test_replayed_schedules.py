"""A schedule by hand prints, parses, is edited and replays: the same kernel again, or a refusal by its line.

Schedules are drawn (`tests.hand_schedules`). Of each that a target takes, the text of the kernel's schedule is compiled again: it gives
the same loops, the same text and the same predicted time; the kernel is right at sizes around tiles.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import slow

import offcut as oc
from tests.agree import agree
from tests.hand_schedules import (
    CASES,
    ENDINGS,
    Case,
    drawn_schedule,
    edited_schedule,
    varied_schedule,
)

SIZES = (0, 1, 7, 8, 9, 29)
TARGETS: dict[str, Any] = {
    **{name: oc.target(name) for name in ("cpu", "vta", "gemmini")},
    "cuda": oc.target("cuda", machine="h200", device="emulated"),
}
OF_BYTES = ("requantized", "two layers", "residual", "byte sums", "byte convolution")
OF_GRIDS = ("dense", "dense bfloat16", "epilogue bfloat16", "two stages", "row sums", "softmax")
"""Programs of which machines of queues, and GPUs, have microkernels, and some that have none."""


@cache
def case(name: str) -> Case:
    """Return a program by its name."""
    return CASES[name]()


@cache
def policy_text(name: str, target: str) -> str:
    """Return the text of the schedule that the policy of a target prefers."""
    of = case(name)
    made = oc.compile(of.output, inputs=list(of.arguments), target=TARGETS[target])
    return str(made.schedule)


def compiled(of: Case, schedule: oc.Schedule | str, target: str, threads: int) -> oc.Kernel[Any]:
    """Return the kernel of a schedule, or of its text."""
    options = {"threads": threads} if target == "cpu" else {}
    if isinstance(schedule, str):
        schedule = oc.Schedule.parse(schedule)
    inputs = list(of.arguments)
    return oc.compile(of.output, inputs=inputs, target=TARGETS[target], schedule=schedule, **options)


def check_values(of: Case, kernel: oc.Kernel[Any], what: str, sizes: Sequence[int] = SIZES) -> None:
    """Compare a kernel with numpy."""
    for size in sizes:
        arrays = of.arrays(size)
        agree(np.asarray(kernel(*arrays)), of.exact(*arrays), what=f"n = {size}\n{what}")


def check_replay(of: Case, kernel: oc.Kernel[Any], target: str, threads: int) -> None:
    """Compile the text of a kernel's schedule, and compare loops, text, digest and predicted time."""
    text = str(kernel.schedule)
    again = compiled(of, text, target, threads)
    assert again.loops == kernel.loops, f"{text}\n{kernel.loops}\n{again.loops}"
    assert str(again.schedule) == text
    assert again.schedule.digest == kernel.schedule.digest
    for size in SIZES:
        assert again.cost(n=size).seconds == kernel.cost(n=size).seconds, (text, size)


def drawn(name: str, target: str, seed: int) -> tuple[Case, oc.Schedule | str, int]:
    """Return a program, a schedule that is drawn for it, and a number of threads."""
    of, rng = case(name), Random(f"{name} {target} {seed}")
    if target != "cpu" and rng.random() < 0.7:
        return of, varied_schedule(policy_text(name, target), rng), 1
    kernels = () if target == "cpu" else TARGETS[target].microkernels()
    schedule = drawn_schedule(of, rng, kernels)
    if target == "cpu":
        ending = rng.choice(ENDINGS)
        schedule = oc.Schedule.parse("\n".join((str(schedule), *ending)))
    return of, schedule, rng.choice((1, 1, 2))


def check_drawn(name: str, target: str, seed: int) -> bool:
    """Check a drawn schedule; return whether the target takes it. What it does not take is refused in words."""
    of, schedule, threads = drawn(name, target, seed)
    try:
        kernel = compiled(of, schedule, target, threads)
    except oc.OffcutError as refused:
        check_words(refused, str(schedule))
        return False
    check_replay(of, kernel, target, threads)
    check_values(of, kernel, str(schedule))
    return True


def check_words(refused: oc.OffcutError, text: str) -> None:
    """Check that a refusal says why, and by which line, or of which statement that lines have left as it is."""
    assert refused.because, f"{text}\n{refused}"
    assert re.match(r"line \d+|\w+\[.*\] [+*]?=", refused.at), f"{text}\n{refused}"


def check_edited(name: str, target: str, seed: int) -> bool:
    """Check an edit of a drawn schedule's text as its kernel prints it; return whether the target takes it."""
    of, schedule, threads = drawn(name, target, seed)
    try:
        text = str(compiled(of, schedule, target, threads).schedule)
    except oc.OffcutError:
        text = policy_text(name, target)
    edited = edited_schedule(text, Random(f"edit {name} {target} {seed}"))
    try:
        kernel = compiled(of, edited, target, threads)
    except oc.OffcutError as refused:
        check_words(refused, edited)
        return False
    check_replay(of, kernel, target, threads)
    check_values(of, kernel, edited)
    return True


def programs_of(target: str) -> tuple[str, ...]:
    """Return the programs that are compiled for a target."""
    return tuple(CASES) if target == "cpu" else OF_GRIDS if target == "cuda" else OF_BYTES
