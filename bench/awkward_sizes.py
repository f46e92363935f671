"""What awkward sizes cost where no microkernel matches: a stencil, a pooling, an element-wise chain.

    python bench/awkward_sizes.py            # a minute
    python bench/awkward_sizes.py --quick    # some seconds

Time per element of the result at sizes that fit no vector, over the time at sizes that do: 1 means
that an awkward size costs nothing. One compiled kernel runs at all sizes, which take turns. One
thread, float32, results into memory that is there already.

An array lies in the same memory at all sizes, each `APART` bytes further into a page than the one
before: where arrays lie decides as much as how long their rows are.

*   Two arrays that start alike in their pages: a processor that compares the low 12 bits of
    addresses takes loads of one for loads of what was just stored to the other, and waits. The
    stencil then takes 1.10 to 1.25 of its time per element at 251×253, against 1.00 to 1.04 where
    the result starts half a page further on. Loads of several vectors before their stores avoid
    that, and cost 10 % everywhere else.
*   Rows that start inside a cache line, as rows of 253 elements do: every vector touches two.
    Without fetching ahead, the chain takes 1.08 to 1.21 of its time at 256×256 where the rows are
    259 elements apart, the count the same, and 0.88 to 1.07 at 251×253 where they are 256 apart.
    Fetching ahead takes 10 to 15 % off; a masked vector in front, which makes the others start
    with their lines, takes nothing off.
*   Arrays that nearly fill a cache: the physical pages that they got move the same call by 10 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod

import numpy as np
import numpy.typing as npt

import offcut as oc
from offcut.experiment.bench import publish, read_options
from offcut.experiment.table import NS, Cell, Row, overs, table, wide_console
from offcut.experiment.timing import Timing, measure

JACOBI = """\
program jacobi_2d
size m in 2:8193
size n in 2:8193
input A: float32[m, n]
output B: float32[m, n]
for i in 1:m - 1
  for j in 1:n - 1
    B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])"""

POOLING = """\
program max_pooling
size m in 1:8193
size n in 1:8193
input A: float32[m, n]
output P: float32[m, n]
for i in 0:m
  for j in 0:n
    P[i, j] = -inf
    for di in 0:3
      for dj in 0:3
        if 1 <= i + di and i + di <= m and 1 <= j + dj and j + dj <= n
          P[i, j] max= A[i + di - 1, j + dj - 1]"""

CHAIN = """\
program chain
size m in 1:8193
size n in 1:8193
input A: float32[m, n]
input B: float32[m, n]
input S: float32[n]
private t: float32[]
output C: float32[m, n]
for i in 0:m
  for j in 0:n
    t[] = A[i, j] * S[j] + B[i, j]
    C[i, j] = max(t[], 0.0) + 0.5 * abs(t[])"""

PROGRAMS = {"jacobi-2d": JACOBI, "3×3 pooling": POOLING, "element-wise chain": CHAIN}
GROUPS = {
    (1024, 1024): ((997, 1003), (1023, 1023), (1025, 1025)),
    (256, 256): ((251, 253), (255, 255), (257, 257)),
}
"""Aligned sizes, each with awkward ones near it: beyond the caches of a core, and within them."""

ASKED = "≤ 1.10"
PAGE = 4096  # bytes
APART = 832  # bytes: 13 cache lines, near no part of a page for few arrays
FloatArray = npt.NDArray[np.float32]


def memory(number: int, elements: int, rng: np.random.Generator) -> FloatArray:
    """Elements that start ``number * APART`` bytes into a page."""
    there = np.empty(4 * elements + 2 * PAGE, np.uint8)
    start = -there.ctypes.data % PAGE + number * APART % PAGE
    made = there[start : start + 4 * elements].view(np.float32)
    made[:] = rng.standard_normal(elements, dtype=np.float32)
    return made


def call(
    kernel: oc.Kernel, shape: tuple[int, int], arrays: Sequence[FloatArray]
) -> partial[object]:
    """A call of `kernel` at one shape, on the start of each array, the last one for the result."""
    shapes = [shape[-len(given.shape) :] for given in kernel.signature.inputs]
    views = [
        array[: prod(part)].reshape(part)
        for array, part in zip(arrays, (*shapes, shape), strict=True)
    ]
    return partial(kernel, *views[:-1], out=views[-1])


def rows_of(name: str, text: str, budget: float) -> Iterator[Row]:
    """A row for every awkward size of a program; seconds are those of an element."""
    rng, kernel = np.random.default_rng(0), oc.compile(oc.parse(text))
    for aligned, awkward in GROUPS.items():
        shapes = (aligned, *awkward)
        elements = max(map(prod, shapes))
        count = len(kernel.signature.inputs) + 1
        arrays = [memory(number, elements, rng) for number in range(count)]
        timings = measure({str(s): call(kernel, s, arrays) for s in shapes}, budget=budget)
        each = {
            shape: Timing(tuple(x / prod(shape) for x in timings[str(shape)].samples), 1)
            for shape in shapes
        }
        for m, n in awkward:
            cells = Cell("aligned", timing=each[aligned]), Cell("awkward", timing=each[m, n])
            label = f"{m}×{n} against {aligned[0]}×{aligned[1]}"
            yield Row(f"{name}, an element", label, cells, NS, asked=ASKED)


def main() -> None:
    """Measure every program at every size, and print time per element over that at aligned sizes."""
    options = read_options(__doc__ or "", without=("slow", "cells", "threads", "budget"))
    console, rows = wide_console(), list[Row]()
    for name, text in PROGRAMS.items():
        found = list(rows_of(name, text, options.budget if options.quick else 0.5))
        console.print(table(found, "awkward over aligned"))
        rows += found
    worst = max(overs(rows), key=lambda over: over.ratio.value)
    lines = [("largest awkward over aligned", ASKED, str(worst.ratio), worst.where)]
    raise SystemExit(publish("awkward_sizes", rows, options, lines))


if __name__ == "__main__":
    main()
