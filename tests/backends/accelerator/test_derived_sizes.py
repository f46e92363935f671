"""``let`` on machines of queues: of sizes alone, computed by the host; of loops, one iteration; promises are checked at a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from accelerators import bytes_of, clipped
from conftest import rejection

import offcut as oc
from offcut.polyhedral.derived_sizes import derive_sizes

SIZES = (1, 15, 16, 17, 33, 100, 512)

HEAD = """\
program dense
size n in {least}:513
input A: int8[n, 64]
input W: int8[64, 64]
output C: int8[n, 64]
local W_in: int8[64, 64] @scope(weights)
local A_in: int8[n, 64] @scope(inputs)
local S: int32[n, 64] @scope(accumulators)
local Y1: int32[n, 64] @scope(accumulators)
local Y2: int32[n, 64] @scope(accumulators)
local Y3: int32[n, 64] @scope(accumulators)
"""
WEIGHTS = """\
alloc W_in[0 +: 64, 0 +: 64]
  tile k in 0 +: 64, j in 0 +: 64
    W_in[k, j] = W[k, j]
"""
TILE = """\
alloc A_in[{start} +: {rows}, 0 +: 64]
  tile r in {start} +: {rows}, k in 0 +: 64
    A_in[r, k] = A[r, k]
  alloc S[{start} +: {rows}, 0 +: 64]
    tile r in {start} +: {rows}, j in 0 +: 64
      S[r, j] = 0
    tile r in {start} +: {rows}, j in 0 +: 64
      for k in 0:64
        S[r, j] += int32(A_in[r, k]) * int32(W_in[k, j])
    alloc Y1[{start} +: {rows}, 0 +: 64]
      tile r in {start} +: {rows}, j in 0 +: 64
        Y1[r, j] = S[r, j] // 64
      alloc Y2[{start} +: {rows}, 0 +: 64]
        tile r in {start} +: {rows}, j in 0 +: 64
          Y2[r, j] = min(Y1[r, j], 127)
        alloc Y3[{start} +: {rows}, 0 +: 64]
          tile r in {start} +: {rows}, j in 0 +: 64
            Y3[r, j] = max(Y2[r, j], -128)
          tile r in {start} +: {rows}, j in 0 +: 64
            C[r, j] = int8(Y3[r, j])
"""


def inside(head: str, body: str) -> str:
    return head + "\n" + "".join(f"  {line}\n" for line in body.splitlines())


def tiles(start: str, rows: str) -> str:
    return TILE.format(start=start, rows=rows)


def balanced() -> str:
    """Tiles of q + 1 rows, then of q, as even as 16 rows at most allow."""
    first = inside("for i in 0:t1  @body", tiles("(q + 1)*i", "q + 1"))
    rest = inside("for i in 0:t2  @tail", tiles("((q + 1)*t1 + q*i)", "q"))
    body = WEIGHTS + "".join(f"  {line}\n" for line in (first + rest).splitlines())
    body = inside("let t2 in 0:33 = t - t1", body)
    body = inside("let t1 in 0:33 = n - q*t", body)
    body = inside("let q in 1:17 = n//t", body)
    return HEAD.format(least=1) + inside("let t in 1:33 = (n + 15)//16", body)


def program(text: str, machine: str = "vta") -> oc.Program:
    if machine == "gemmini":
        text = text.replace("accumulators", "accumulator")
        text = text.replace("inputs", "scratchpad").replace("weights", "scratchpad")
    return oc.parse(text)


def check(kernel: Any, sizes: tuple[int, ...]) -> dict[int, float]:
    """Values against numpy, no race; cycles by size."""
    rng = np.random.default_rng(0)
    w = bytes_of(rng, (64, 64))
    found: dict[int, float] = {}
    for n in sizes:
        a = bytes_of(rng, (n, 64))
        expected = clipped(a.astype(np.int64) @ w.astype(np.int64), 6)
        np.testing.assert_array_equal(kernel(a, w), expected)
        run = kernel.timeline(n=n)
        assert not run.races
        found[n] = run.cycles
    return found


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", ["vta", "gemmini"])
def test_even_tiles_of_heights_that_the_host_derives_take_no_longer_than_full_tiles_and_a_rest(
    machine: str,
) -> None:
    kernel = oc.compile(program(balanced(), machine), target=machine)
    cycles = check(kernel, SIZES)
    least = inside("for i in 0:(n + 15)//16", tiles("16*i", "min(16, n - 16*i)"))
    whole = WEIGHTS + "".join(f"  {line}\n" for line in least.splitlines())
    plain = oc.compile(program(HEAD.format(least=1) + whole, machine), target=machine)
    expected = check(plain, SIZES)
    assert all(cycles[n] <= expected[n] for n in SIZES)
    if machine == "vta":
        assert [cycles[n] for n in (33, 100, 512)] == [2168, 5063, 23146]
    assert kernel.cost(n=100).cycles == cycles[100]
    formula = kernel.cost().cycles
    (size,) = formula.free_symbols
    for n in (17, 100, 512):
        assert abs(float(formula.subs({size: n})) - cycles[n]) <= 0.1 * cycles[n]


def test_a_let_of_the_loops_around_is_a_loop_of_one_iteration() -> None:
    body = inside("let h in 1:17 = min(16, n - 16*i)", tiles("16*i", "h"))
    text = WEIGHTS + "".join(
        f"  {line}\n" for line in inside("for i in 0:(n + 15)//16", body).splitlines()
    )
    check(oc.compile(program(HEAD.format(least=0) + text), target="vta"), (0, *SIZES))


def test_a_let_under_a_condition_is_computed_where_that_holds_alone() -> None:
    body = inside("let t in 1:33 = (n + 15)//16", inside("let q in 1:17 = n//t", tiles("0", "q")))
    text = HEAD.format(least=0).replace("513", "17")
    text += WEIGHTS + "".join(f"  {line}\n" for line in inside("if n > 0", body).splitlines())
    check(oc.compile(program(text), target="vta"), (0, 1, 15, 16))


def test_lets_of_one_name_are_sizes_of_their_own() -> None:
    first = inside("let h in 0:257 = n//2", inside("for i in 0:h", tiles("2*i", "2")))
    rest = inside("let h in 0:2 = n % 2", inside("for i in 0:h", tiles("(n - 1 + i)", "1")))
    body = WEIGHTS + "".join(f"  {line}\n" for line in (first + rest).splitlines())
    check(oc.compile(program(HEAD.format(least=0) + body), target="vta"), (0, 1, 2, 3, 33))


def test_lets_of_one_value_are_one_size() -> None:
    height = "let h in 0:257 = n//2"
    wider, third = height.replace("257", "300"), "let h in 0:257 = n//3"
    for promise, count in ((height, 1), (wider, 1), (third, 2)):
        first = inside(height, inside("for i in 0:h", tiles("2*i", "2")))
        text = first + first.replace(height, promise)
        body = WEIGHTS + "".join(f"  {line}\n" for line in text.splitlines())
        _, derived = derive_sizes(program(HEAD.format(least=0) + body))
        assert len(derived.lets) == count


def test_a_broken_promise_is_refused_with_the_size_that_breaks_it() -> None:
    text = balanced().replace("1:17 = n//t", "1:13 = n//t")
    with rejection(
        "PartitionError: prove: the value of q is not in 1:13\n  because  with n = 13, n//t leaves it"
    ):
        oc.compile(program(text), target="vta")


def test_a_let_that_is_no_set_of_the_loops_around_is_refused() -> None:
    body = inside("let h in 1:17 = min(16, n - 16*i*i)", tiles("16*i*i", "h"))
    text = WEIGHTS + "".join(f"  {line}\n" for line in inside("for i in 0:2", body).splitlines())
    with pytest.raises(oc.OffcutError) as refused:
        oc.compile(program(HEAD.format(least=0) + text), target="vta")
    assert str(refused.value) == (
        "compile: cannot issue instructions for a statement\n"
        "  at       let h in 1:17 = min(16, n - 16*i * i)\n"
        "  because  h is not an affine value of the loops around it, and tokens are of such loops alone\n"
        "  help     a let over sizes alone, which the host computes before"
    )
