"""Iterations of a loop around tiles that are jammed: what they read alike is loaded once, and nothing else changes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from compiled import Array, floats
from conftest import rejection

import offcut as oc
from offcut.backends.cpu.lowering.lower import Lowering
from offcut.backends.cpu.machine import isa
from offcut.core import index as ix
from offcut.ir import Kind
from tests.agree import agree, computed
from tests.facade import load_machine

WINDOW = """\
program window
size n in 0:100
size m in 0:100
input X: float32[n, m]
input W: float32[3, m]
private S: float32[n, m]
output Y: float32[n, m]
for j in 0:n
  for c in 0:m
    Y[j, c] = 0.0
for j in 1:n - 1
  for c in 0:m
    S[j, c] = 0.0
    for r in 0:3
      S[j, c] += X[j + r - 1, c] * W[r, c]
    Y[j, c] = S[j, c] + {more}"""


def window(more: str = "1.0") -> oc.Kernel:
    return oc.compile(oc.parse(WINDOW.format(more=more)))


def products(kernel: oc.Kernel) -> int:
    """In the text of a kernel: five times as many where four rows are jammed."""
    return len(re.findall(r"call <\d+ x float> @llvm.fma", kernel.source("llvm")))


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize("m", [1, 15, 16, 40, 64, 99])
def test_windows_of_any_number_of_rows_are_the_sums_in_their_order(m: int) -> None:
    kernel = window()
    assert products(kernel) == 5 * products(window("Y[j - 1, c]"))
    for n in (0, 1, 2, 3, 5, 6, 7, 13):
        x, w = floats("x", n, m), floats("w", 3, m)
        wanted = np.zeros((n, m), np.float32)
        for j in range(1, n - 1):
            for r in range(3):  # the products are added without rounding, as the kernel does
                exact = wanted[j].astype(np.float64) + x[j + r - 1].astype(np.float64) * w[r]
                wanted[j] = exact.astype(np.float32)
            wanted[j] += 1
        np.testing.assert_array_equal(kernel(x, w), wanted)


@pytest.mark.isa("avx512f")
def test_rows_that_read_what_others_write_run_in_turn() -> None:
    kernel = window("Y[j - 1, c]")
    x, w = floats("x", 9, 40), floats("w", 3, 40)

    def sums(x: Array, w: Array) -> Array:
        wanted = np.zeros((9, 40))
        for j in range(1, 8):
            wanted[j] = sum(x[j + r - 1] * w[r] for r in range(3)) + wanted[j - 1]
        return wanted

    agree(kernel(x, w), computed(sums, x, w))


LINES = "schedule window\nseparate 16\nbind Y.c lane\n"


def unrolled(lines: str) -> oc.Kernel:
    return oc.compile(
        oc.parse(WINDOW.format(more="1.0")), schedule=oc.Schedule.parse(LINES + lines)
    )


@pytest.mark.isa("avx512f")
def test_how_many_rows_run_together_is_a_decision() -> None:
    kernel, x, w = window(), floats("x", 13, 40), floats("w", 3, 40)
    assert "split Y.j 4 as j_tile j_in" in str(kernel.schedule)
    assert "bind Y.j_in unroll" in str(kernel.schedule)
    assert "for j in 1:n - 1  @unroll(4)\n" in str(kernel.loops)
    assert oc.parse(str(kernel.loops)) == kernel.loops
    again = oc.compile(oc.parse(WINDOW.format(more="1.0")), schedule=kernel.schedule)
    assert (again.loops, again.schedule) == (kernel.loops, kernel.schedule)
    assert oc.compile(kernel.loops).source("llvm").count("fma") == again.source("llvm").count("fma")
    one_row = products(window("Y[j - 1, c]"))
    for factor, copies in ((1, 1), (2, 3), (3, 4), (8, 9)):
        edited = unrolled(f"split Y.j {factor} as a b\nbind Y.b unroll")
        assert products(edited) == copies * one_row
        np.testing.assert_array_equal(edited(x, w), kernel(x, w))
    older = unrolled("")  # says nothing of it
    assert older.loops == kernel.loops
    assert "bind Y.j_in unroll" in str(older.schedule)


REFUSED = {
    "rows that read other rows": (
        "split Y.j 4 as a b\nbind Y.b unroll",
        """\
bind: cannot run 4 iterations of Y.j together
  at       line 5: bind Y.b unroll
  because  an iteration reads what another one writes to Y, or writes it too
  help     split Y.j 1 as a b""",
    ),
    "no number": (
        "bind Y.j unroll",
        """\
schedule: cannot unroll Y.j
  at       line 4: bind Y.j unroll
  because  no split says how many iterations run together
  help     split Y.j 4 as j_tile j_in
  help     bind Y.j_in unroll, where j runs in turn around tiles""",
    ),
    "a loop that is none": (
        "split Y.k 4 as a b\nbind Y.b unroll",
        """\
bind: cannot run 4 iterations of Y.k together
  at       line 5: bind Y.b unroll
  because  no loop of that name runs in turn around tiles
  help     the schedule without this line, and without the split""",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_line_that_no_loop_may_follow_is_refused(what: str) -> None:
    lines, message = REFUSED[what]
    text = WINDOW.format(more="Y[j - 1, c]").replace("output Y", "inout Y")
    zero = "for j in 0:n\n  for c in 0:m\n    Y[j, c] = 0.0\n"
    assert zero in text
    program, schedule = oc.parse(text.replace(zero, "")), oc.Schedule.parse(LINES + lines)
    with rejection(f"PartitionError: {message}"):
        oc.compile(program, schedule=schedule)


def test_a_mark_that_may_not_stand_is_refused() -> None:
    loops = str(window("Y[j - 1, c]").loops).replace("1:n - 1", "1:n - 1  @unroll(4)")
    with rejection(
        "PartitionError: compile: cannot run 4 iterations of j together\n"
        "  at       for j in 1:n - 1  @unroll(4)\n"
        "  because  an iteration reads what another one writes to Y, or writes it too\n"
        "  help     without @unroll(4)"
    ):
        oc.compile(oc.parse(loops))
    with pytest.raises(oc.ParseError, match="cannot run 0 iterations together"):
        oc.parse(loops.replace("unroll(4)", "unroll(0)"))


SAMPLES = """\
program samples
size c in 0:100
size h in 1:100
size w in 1:100
size n in 0:100
input X: float32[c, h, w]
input P: int32[n]
input Q: int32[n]
output Y: float32[c, n]
for k in 0:c
  for i in 0:n
    Y[k, i] = X[k, max(min(index(P[i]), h - 1), 0), max(min(index(Q[i]), w - 1), 0)]"""


@pytest.mark.isa("avx512f")
def test_rows_that_read_at_the_same_places_run_together() -> None:
    kernel = oc.compile(oc.parse(SAMPLES))
    assert "unroll" in str(kernel.schedule)
    for c in range(10):
        for n in (0, 1, 16, 37):
            x = floats("x", c, 7, 9)
            places = np.random.default_rng(n)
            p, q = (places.integers(-3, 12, n).astype(np.int32) for _ in range(2))
            wanted = x[:, np.clip(p, 0, 6), np.clip(q, 0, 8)]
            np.testing.assert_array_equal(kernel(x, p, q), wanted)


# Rows of what belongs to a call lie a line further apart where they would meet in one set of a cache.


SOURCE = """
program sums
size h in 1:9
size n in 1:2049
size m in 1:2049
input A: {dtype}[h, n, m]
output R: {dtype}[h, n]
local T: {dtype}[h, n, m]
for g in 0:h
  for i in 0:n
    for j in 0:m
      T[g, i, j] = A[g, i, j] + {one}
for g in 0:h
  for i in 0:n
    R[g, i] = {zero}
    for j in 0:m
      R[g, i] += T[g, i, j] * A[g, n - 1 - i, j]
"""


def row_bytes(kind: Kind, columns: int) -> int | None:
    """Bytes of a row of `columns` float32 on Zen 4, whose first cache has ways of 4096 bytes."""
    program = oc.parse(SOURCE.format(dtype="float32", one="1.0", zero="0.0"))
    lowering = Lowering(program, isa.host_for_machine(load_machine("zen4")).isa, (), ix.const(0), 1)
    buffer = replace(program.buffer("T"), kind=kind, shape=(ix.const(4), ix.const(columns)))
    return ix.literal_value(lowering.row_bytes(buffer))


def test_only_scratch_has_lines_between_its_rows() -> None:
    assert [row_bytes(Kind.LOCAL, n) for n in (512, 1023, 1024, 2048)] == [2048, 4092, 4160, 8256]
    assert row_bytes(Kind.CONSTANT, 1024) == 4096
