"""A schedule by hand prints, parses, is edited and replays: the same kernel again, or a refusal by its line.

Schedules are drawn (`tests.hand_schedules`). Of each that a target takes, the text of the kernel's schedule is compiled again: it gives
the same loops, the same text and the same predicted time; the kernel is right at sizes around tiles.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import refusals, slow

import offcut as oc
from tests.agree import agree
from tests.hand_programs import CASES, Case
from tests.hand_schedules import ENDINGS, drawn_schedule, edited_schedule, varied_schedule

MAX_COMPILE_SECONDS = 20
"""Processor seconds of a compile, at most."""
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
    made = oc.compile(**of.request, target=TARGETS[target])
    return str(made.schedule)


def compiled(of: Case, schedule: oc.Schedule | str, target: str, threads: int) -> oc.Kernel[Any]:
    """Return the kernel of a schedule, or of its text."""
    options = {"threads": threads} if target == "cpu" else {}
    if isinstance(schedule, str):
        schedule = oc.Schedule.parse(schedule)
    start = time.process_time()
    try:
        return oc.compile(**of.request, target=TARGETS[target], schedule=schedule, **options)
    finally:
        assert time.process_time() - start < MAX_COMPILE_SECONDS, schedule


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
    schedule = drawn_schedule(of, rng, TARGETS[target].microkernels())
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


DRAWS, EDITS = 24, {"cpu": 6, "vta": 16, "gemmini": 16, "cuda": 12}
"""Schedules that are drawn for each program of a target, and edits of each, of all tests."""


QUICK = [slow(name) if name == "gemmini" else name for name in TARGETS]
"""Machines of queues share their policy: `make test` asks one of them."""


@pytest.mark.parametrize("target", QUICK)
def test_a_schedule_by_hand_replays(target: str) -> None:
    step = 8 if target == "cpu" else 2
    taken = [check_drawn(name, target, 0) for name in programs_of(target)[::step]]
    assert any(taken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "name"), [(target, name) for target in TARGETS for name in programs_of(target)]
)
def test_any_schedule_by_hand_replays(target: str, name: str) -> None:
    taken = [check_drawn(name, target, seed) for seed in range(1 + DRAWS)]
    assert any(taken)


@pytest.mark.parametrize("target", QUICK)
def test_an_edited_schedule_by_hand_is_right_or_refused(target: str) -> None:
    step = 8 if target == "cpu" else 3
    taken = [check_edited(name, target, 0) for name in programs_of(target)[1::step]]
    assert len(taken) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "name"), [(target, name) for target in TARGETS for name in programs_of(target)]
)
def test_any_edited_schedule_by_hand_is_right_or_refused(target: str, name: str) -> None:
    taken = [check_edited(name, target, seed) for seed in range(1 + EDITS[target])]
    assert any(taken)


HOST_KERNEL = TARGETS["cpu"].microkernels()[0].name
REPLAYED = {
    "a loop of a reader, written out": ("epilogue", ("bind D.j unroll",), 1),
    "a loop of a reader, on threads": ("epilogue", ("bind D.i thread",), 2),
    "chunks of rows on threads": ("dense", ("split C.i cut 8 as io ii", "bind C.io thread"), 2),
    "tiles of columns on lanes": ("dense", ("split C.j shift 16 as jo ji", "bind C.ji lane"), 1),
    "lanes of a loop that is fused": ("dense", ("bind C.j lane", "fuse C.i C.j as i_j"), 1),
    "a tile of one element": ("dense", (f"cover C at k {HOST_KERNEL}", "separate 16"), 1),
    "a split inside of a nest": ("recurrence", ("split H.k cut 4 as a b",), 1),
    "several strategies": ("dense", ("split C.j mix 16 as jo ji",), 1),
}
"""By what is bound: the program, lines of its schedule, and threads."""


@pytest.mark.parametrize("what", REPLAYED)
def test_a_schedule_of_binds_replays(what: str) -> None:
    name, lines, threads = REPLAYED[what]
    of = case(name)
    text = "\n".join((f"schedule {oc.create_schedule(**of.request).schedule.name}", *lines))
    kernel = compiled(of, text, "cpu", threads)
    assert kernel.schedule.steps[: len(lines)] == oc.Schedule.parse(text).steps
    check_replay(of, kernel, "cpu", threads)
    check_values(of, kernel, text)


def test_a_loop_that_is_bound_to_lanes_by_hand_runs_so_whatever_a_target_binds() -> None:
    text = "schedule C\nsplit C.j shift 16 as jo ji\nbind C.ji lane\nseparate 16"
    loops = str(compiled(case("dense"), text, "cpu", 1).loops)
    assert "tile ji in 0 +: 16" in loops
    assert "@lane" not in loops


def test_separate_begins_what_a_target_decides_before_nests() -> None:
    kernel = compiled(case("epilogue"), "schedule D\nbind D.j unroll", "cpu", 1)
    first, second, *nests = str(kernel.schedule).splitlines()[1:]
    assert (first, second) == ("bind D.j unroll", "separate 1")
    assert nests[-1].startswith("cover D at ")


REFUSED = refusals(
    r"""
a proof that is not decided
given "cpu", "dense", "schedule C\nsplit C.j cut 7 as jo ji\nfuse C.jo C.ji as f\nseparate 16\nbind * lane"
prove: cannot tell whether the emitted program computes what the source does
  at       line 5: bind * lane
  because  the proof does not see through C[i, 7*f_7] += A[i, k] * W[k, 7*f_7]: with n = 1, runs show no difference

a stage that others are computed in
given "cpu", "two stages", "schedule C\nstage read A for B as A_in\nat A_in B.i\ninline B"
inline: cannot inline B
  at       line 4: inline B
  because  A_in is computed in its loops
  help     inline B, before the line that says where A_in is computed

a window that may be too small
given "cpu", "dense", "schedule C\nstage read A for C as A_in\norder C k j i\nat A_in C.i\nsplit A_in.i guard 7 as io ii\nfuse A_in.ii A_in.k as f"
compile: cannot compile C
  at       line 4: at A_in C.i
  because  nothing shows that all that is accessed of A_in lies in a window of it
  help     a larger window, or A_in without alloc, which holds all of it
""",
    {},
)


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_behind_primitives_is_refused_by_its_line(what: str) -> None:
    target, name, text, expected = REFUSED[what]
    with pytest.raises(oc.OffcutError) as refused:
        compiled(case(name), text, target, 1)
    assert str(refused.value) == expected


def test_a_line_that_a_schedule_before_has_decided_says_which() -> None:
    of = case("dense")
    made = oc.create_schedule(**of.request).apply(oc.Schedule.parse("schedule C\nbind C.j lane"))
    with pytest.raises(oc.OffcutError) as refused:
        made.apply(oc.Schedule.parse("schedule C\nbind C.j thread"))
    assert str(refused.value) == (
        "bind: cannot bind j to thread\n"
        "  at       line 2: bind C.j thread\n"
        "  because  bind C.j lane has decided it\n"
        "  help     one line for a loop"
    )


@pytest.mark.parametrize(
    "splits",
    ["split S.i mix 8 as t s", slow("split S.i 3 as io ii\nsplit S.io mix 8 as t s")],
)
def test_a_grid_of_no_rows_has_a_cheapest_strategy(splits: str) -> None:
    of, text = case("softmax"), f"schedule Y\n{splits}"
    kernel = compiled(of, text, "cuda", 1)
    check_values(of, kernel, text, (0, 1, 29))
