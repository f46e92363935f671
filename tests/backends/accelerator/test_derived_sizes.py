"""``let`` on machines of queues: of sizes alone, computed by the host; of loops, one iteration; promises are checked at a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from accelerators import bytes_of, clipped
from conftest import rejection, slow

import offcut as oc
from offcut import Tensor
from offcut.backends.accelerator.isa import AluOp
from offcut.backends.accelerator.lowering.arithmetic import exact_range, to_multiply_shift
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


# Quotients and remainders on machines of queues: exact on the range of what is divided, or refused with it.


@pytest.mark.parametrize("divisor", [1, 3, 7, 9, 49, 64, 100, 255, 1000])
def test_a_product_and_a_shift_divide_as_integers_do(divisor: int) -> None:
    most = min(exact_range(divisor), 2**31 - 1)
    for low, high in ((-128, 127), (0, 255), (-1152, 1143), (-most, most), (5, 6)):
        steps = to_multiply_shift(divisor, low, high)
        assert steps is not None
        x = np.unique(np.linspace(low, high, 5001, dtype=np.int64))
        word = x.copy()
        for op, other in steps:
            match op:
                case AluOp.ADD:
                    word = word + other
                case AluOp.MUL:
                    word = word * other
                case _:
                    word = word >> other
            assert np.abs(word).max() < 2**31
        np.testing.assert_array_equal(word, x // divisor)
    if divisor & divisor - 1:
        assert to_multiply_shift(divisor, -most - 1, most + 1) is None


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", ["vta", "gemmini"])
def test_windows_are_averaged(machine: str) -> None:
    h = oc.dim("h", min=3, max=64)
    x = oc.placeholder((18, h, 9), "int8", name="X")
    r, s = oc.reduce_axis(3, name="r"), oc.reduce_axis(3, name="s")
    total = oc.compute(
        (18, h - 2, 7),
        lambda c, i, j: oc.sum(x[c, i + r, j + s].astype("int32"), axis=[r, s]),
        name="S",
    )
    mean = oc.compute(
        (18, h - 2, 7), lambda c, i, j: (total[c, i, j] // 9).astype("int8"), name="Y"
    )
    kernel = oc.compile(mean, inputs=[x], target=machine)
    for size in (3, 4, 17):
        given = bytes_of(np.random.default_rng(size), (18, size, 9))
        wide = np.lib.stride_tricks.sliding_window_view(given.astype(np.int64), (3, 3), (1, 2))
        np.testing.assert_array_equal(kernel(given), (wide.sum((3, 4)) // 9).astype(np.int8))


n = oc.dim("n", min=0, max=64)


def elements(dtype: str) -> Tensor:
    return oc.placeholder((n, 5), dtype, name="A")


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_are_divided_and_wrap_as_their_type_does(dtype: str) -> None:
    a = elements(dtype)
    forms = {
        "quotient": lambda i, j: a[i, j] // 3,
        "remainder": lambda i, j: a[i, j] % 7,
        "sum": lambda i, j: a[i, j] + a[i, j],
        "product": lambda i, j: a[i, j] * 5 - 3,
        "magnitude": lambda i, j: oc.absolute(a[i, j]) // 3,
        "wide magnitude": lambda i, j: (oc.absolute(a[i, j].astype("int32")) % 7).astype(dtype),
    }
    every = np.resize(np.arange(-128, 128).astype(dtype), (52, 5))
    known = {
        "quotient": every // 3,
        "remainder": every % 7,
        "sum": every + every,
        "product": every * np.array(5, dtype) - np.array(3, dtype),
        "magnitude": np.abs(every) // 3,
        "wide magnitude": (np.abs(every.astype(np.int32)) % 7).astype(dtype),
    }
    for name, form in forms.items():
        kernel = oc.compile(oc.compute((n, 5), form, name="Y"), inputs=[a], target="vta")
        np.testing.assert_array_equal(kernel(every), known[name])


@pytest.mark.parametrize(("by", "dtype"), [(3, "uint8"), slow(3, "int8"), slow(40, "int8")])
def test_bytes_are_shifted_by_constants_to_both_sides(by: int, dtype: str) -> None:
    a = elements(dtype)
    made = oc.compute((n, 5), lambda i, j: (a[i, j] >> by) // 3 - (a[i, j] << by), name="Y")
    every = np.resize(np.arange(-128, 128).astype(dtype), (52, 5))
    exact = (every.astype(np.int64) // 2**by // 3 - every.astype(np.int64) * 2**by).astype(dtype)
    kernel = oc.compile(made, inputs=[a], target="vta")
    np.testing.assert_array_equal(kernel(every), exact)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_sums_are_shifted_by_words_that_are_not_below_0(dtype: str) -> None:
    a, b = elements("int32"), oc.placeholder((n, 5), dtype, name="B")
    shifted = oc.compute((n, 5), lambda i, j: a[i, j] >> b[i, j].astype("int32"), name="S")
    y = oc.compute(
        (n, 5), lambda i, j: oc.minimum(oc.maximum(shifted[i, j], -9), 99).astype("int8"), name="Y"
    )
    if dtype == "int8":
        with rejection("""\
TargetError: compile: cannot run a statement on vta
  at       S[i, j] = shr(A_acc[i, j], int32(B_acc[i, j]))
  because  B_acc is from -128 to 127, and by less than 0 its vector unit shifts to the left
  help     maximum of B_acc and 0 before"""):
            oc.compile(y, inputs=[a, b], target="vta")
        return
    rng = np.random.default_rng(0)
    given, by = rng.integers(-(2**31), 2**31, (17, 5)), rng.integers(0, 256, (17, 5))
    by[:12] %= 33
    exact = np.clip(given // 2 ** np.minimum(by, 40), -9, 99)
    kernel = oc.compile(y, inputs=[a, b], target="vta")
    np.testing.assert_array_equal(kernel(given.astype("int32"), by.astype("uint8")), exact)


def test_a_range_that_is_too_wide_is_refused_with_what_would_do() -> None:
    a = elements("int32")
    wide = oc.compute((n, 5), lambda i, j: (a[i, j] // 3).astype("int8"), name="Y")
    with rejection("""\
TargetError: compile: cannot run a statement on vta
  at       Y_1[i, j] = A_acc[i, j]//3
  because  A_acc is from -2147483648 to 2147483647, and a product in int32 and a shift divide by 3 from -24575 to 24575
  help     minimum and maximum of A_acc before
  help     a power of two"""):
        oc.compile(wide, inputs=[a], target="vta")
    narrow = oc.compute(
        (n, 5),
        lambda i, j: (oc.maximum(oc.minimum(a[i, j], 9000), -9000) // 300).astype("int8"),
        name="Y",
    )
    kernel = oc.compile(narrow, inputs=[a], target="vta")
    given = np.random.default_rng(0).integers(-(2**31), 2**31, (17, 5)).astype(np.int32)
    given[:9] //= 2**18
    np.testing.assert_array_equal(
        kernel(given), (np.clip(given, -9000, 9000) // 300).astype("int8")
    )
