"""Loops whose bounds depend on a loop of the same tile, split by hand: full tiles ask nothing, and run no instance outside of the bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import offcut as oc

T = 4
SIZES = (0, 1, T - 1, T, T + 1, 3 * T, 3 * T + 5)

# bounds of j -> whether an instance is one
SHAPES: dict[str, Callable[[int, int, int], bool]] = {
    "0:i + 1": lambda i, j, n: j <= i,
    "i:n": lambda i, j, n: i <= j < n,
    "n - i:n": lambda i, j, n: n - i <= j < n,
    "max(i - 2, 0):min(i + 3, n)": lambda i, j, n: i - 2 <= j <= i + 2,
    "i//2:i": lambda i, j, n: i // 2 <= j < i,
}
STRATEGIES = ("cut", "ladder", "ladder of 4 2 1", "balance", "mask", "guard", "even")


def program(bounds: str, inside: str = "") -> oc.Program:
    """Return a program that adds to each element (i, j) that its bounds hold, once for each k of `inside`."""
    sums = (
        f"    for k in {inside}\n      C[i, j] += A[i, k]" if inside else "    C[i, j] += A[i, j]"
    )
    return oc.parse(
        f"program p\nsize n in 0:65\ninput A: int32[n, n]\ninout C: int32[n, n]\n"
        f"for i in 0:n\n  for j in {bounds}\n{sums}\n"
    )


def scheduled(source: oc.Program, *lines: str) -> oc.schedule.HandSchedule:
    text = "\n".join(("schedule p", *lines))
    return oc.create_schedule(source).apply(oc.Schedule.parse(text))


@pytest.mark.every(3)
@pytest.mark.parametrize("bounds", SHAPES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_instance_of_a_triangle_runs_once(bounds: str, strategy: str) -> None:
    size = "" if " of " in strategy else f" {T}"
    lines = (
        f"split C.i ladder {T} as io ii",
        f"split C.j {strategy}{size} as jo ji",
        "order C io jo ii ji",
    )
    loops = scheduled(program(bounds), *lines).lower()  # proved for all sizes
    for n in SIZES:
        a = np.random.default_rng(n).integers(1, 9, (n, n)).astype("int32")
        c = np.zeros((n, n), "int32")
        held = np.array([[SHAPES[bounds](i, j, n) for j in range(n)] for i in range(n)])
        got = loops.run({"A": a, "C": c}, n=n)
        assert np.array_equal(got, np.where(held.reshape(n, n), a, 0)), n


def test_full_tiles_of_a_triangle_ask_nothing_and_others_stay_in_the_rows_of_the_tile() -> None:
    lines = f"split C.i cut {T} as io ii", f"split C.j cut {T} as jo ji", "order C io jo ii ji"
    text = str(scheduled(program("0:i + 1"), *lines).loops).split("for io in 0:n//4  @body\n")[1]
    assert text.startswith("""\
  for jo in 0:io  @body
    for ii in 0:4
      for ji in 0:4
        C[4*io + ii, 4*jo + ji] += A[4*io + ii, 4*jo + ji]
  for jo in 0:1
    for ii in 0:4
      for ji in 0:4
        if 4*io + 4*jo + ji < 4*io + ii + 1
""")
