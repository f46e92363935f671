"""Programs at which code generation once ended the process, or found no value; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import offcut as oc
import offcut.core.program as ir

HEAD = "size n in 0:60\nsize m in 0:60\n"
PROGRAMS = {
    "a choice inside a loop, priced for threads": (
        "inout S: int32[n + m + 8]\nfor i in n:1\n  for j in 0:i + 1\n    S[j] = 1\n",
        "tile={'j': 1}, tail='mix'",
        2,
    ),
    "rows of a maximum in tiles of two, on threads": (
        "input X: int32[n, m]\noutput V: int32[n]\n"
        "for i in 0:n\n  for j in 0:m\n    V[i] max= X[i, j]\n",
        "tile={'j': 2}, tail='mix'",
        2,
    ),
    "rows of a sum in tiles of nearly one height": (
        "input A: float32[n, m]\noutput S: float32[n]\n"
        "for i in 0:n\n  S[i] = 0\n  for j in 0:m\n    S[i] += A[i, j]\n",
        "tile={'j': 7}, tail='balance'",
        1,
    ),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("what", PROGRAMS)
def test_code_is_generated(what: str) -> None:
    body, cut, threads = PROGRAMS[what]
    program = f"program p\n{HEAD}{body}"
    text = f"oc.compile(oc.partition(oc.parse({program!r}), {cut}).loops, threads={threads})"
    done = subprocess.run(
        [sys.executable, "-c", f"import offcut as oc; {text}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_private_buffer_of_a_tile_around_tiles_has_memory() -> None:
    program = oc.parse("""
program p
size n in 0:60
input X: float32[n]
private P: float32[n]
output Z: float32[n]
tile x in 0 +: n
  P[x] = 0.0
  tile s in 0 +: 1
    P[x] += X[x]
  Z[x] = P[x]
""")
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(oc.compile(program)(x), x)


@pytest.mark.parametrize("tail", ["balance", "even", "version", "mix"])
def test_a_cut_program_takes_a_constant_of_no_element(tail: str) -> None:
    program = oc.parse("""
program p
size n in 0:60
constant A: float32[n]
output Z: float32[n]
for i in 0:n
  Z[i] = A[i]
""")
    cut = oc.partition(program, tile={"i": 8}, tail=tail)
    for n in (0, 1, 9):
        a = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(oc.compile(cut.loops, constants={"A": a})(), a)


def test_the_copies_of_many_statements_are_bounded_together() -> None:
    stores = "".join(f"    B[i, j] += where(j < {k}, A[i, j], 1.0)\n" for k in range(1, 13))
    program = oc.parse(
        "program p\nsize n in 0:60\ninput A: float32[n, n]\ninout B: float32[n, n]\n"
        f"for i in 0:n\n  for j in 0:n\n{stores}"
    )
    assert sum(isinstance(stmt, ir.Store) for stmt in ir.walk(oc.compile(program).loops.body)) <= 75


@pytest.mark.parametrize(
    ("extent", "read", "legal"), [(1, "+= X[i, q + r]", True), (8, "= X[i, r]", False)]
)
def test_a_tile_within_a_tile_of_two_axes_is_judged_by_its_own(
    extent: int, read: str, legal: bool
) -> None:
    program = oc.parse(f"""
program p
size n in 0:60
input X: float32[n, 8]
inout O: float32[n, n]
tile i in 0 +: n, j in 0 +: n
  for q in 0:8
    tile r in 0 +: {extent}
      O[i, j] {read}
""")
    if not legal:
        with pytest.raises(oc.PartitionError, match="instances need each other"):
            oc.compile(program)
        return
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    found = oc.compile(program)(x, np.zeros((3, 3), np.float32))
    np.testing.assert_array_equal(found, np.repeat(x.sum(axis=1), 3).reshape(3, 3))


def test_code_that_is_left_without_loop_passes_computes_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = oc.parse("""
program p
size n in 0:60
input X: float32[n, n]
inout O: float32[n]
for i in 0:n
  for j in 0:i
    O[i] += exp(X[i, j]) / 3.0
""")
    x = np.random.default_rng(0).standard_normal((19, 19), np.float32)
    start = np.ones(19, np.float32)
    expected = oc.compile(program)(x, start)
    monkeypatch.setattr("offcut.backends.cpu.machine.jit._MOST_LINES", 0)
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    np.testing.assert_array_equal(oc.compile(program)(x, start), expected)
