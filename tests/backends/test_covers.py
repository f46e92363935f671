"""A piece's microkernel is the one that is called; a sum starts from what the text says."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import rejection, slow

import offcut as oc
from offcut import Kernel, ops
from offcut.backends.cpu import build
from offcut.backends.cpu.machine import isa
from offcut.backends.cpu.microkernels import available
from offcut.backends.cpu.microkernels.family import Family
from offcut.core.dtypes import numpy_dtype
from offcut.core.program import Program, Tile, walk
from tests.agree import agree, exact_matmul
from tests.facade import evaluate, forget_code

Array = npt.NDArray[Any]

STRATEGIES = (
    *("mask", "pad", "shift", "balance"),
    *map(slow, ("guard", "cut", "ladder", "even", "residue", "mix")),
)
SIZES = (0, 1, 7, 8, 9, 29)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], set[str]]]:
    """The names of the microkernels that were called since the last question.

    Each function of a microkernel counts its calls before all else.
    """
    counters: dict[str, Any] = {}

    def counting(made: Family) -> Family:
        counter = counters.setdefault(made.microkernel.name, ctypes.c_int64())
        at = f"ptr inttoptr (i64 {ctypes.addressof(counter)} to ptr)"
        head = f"entry:\n  %calls = load i64, {at}\n  %called = add i64 %calls, 1\n"
        head += f"  store i64 %called, {at}\n"
        steps = (
            "push rax",
            f"mov rax, {ctypes.addressof(counter)}",
            "inc qword ptr [rax]",
            "pop rax",
        )
        first = "".join(f"{step}\\0A" for step in steps)

        def text(*request: Any) -> str:
            counted = re.sub(r"^entry:\n", head, made.text(*request), flags=re.MULTILINE)
            return counted.replace('inteldialect "', f'inteldialect "{first}')

        return replace(made, text=text)

    real = available.families
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    monkeypatch.setattr(build, "families", lambda host: tuple(map(counting, real(host))))
    forget_code()

    def called() -> set[str]:
        found = {name for name, counter in counters.items() if counter.value}
        for counter in counters.values():
            counter.value = 0
        return found

    yield called
    forget_code()


def product(dtype: str, wide: str, m: str = "m", n: str = "n") -> str:
    term = "A[i, k] * B[k, j]"
    if dtype != wide:
        term = f"{wide}(A[i, k]) * {wide}(B[k, j])"
    return f"""
program product
size m in 0:60
size n in 0:60
size K in 0:60
input A: {dtype}[m, K]
input B: {dtype}[K, n]
input bias: {wide}[n]
inout D: {wide}[{m}, {n}]
for i in 0:m
  for j in 0:n
    START
    for k in 0:K
      D[i, j] += {term}
"""


def claimed(program: Program) -> set[str]:
    """The microkernels that the tiles of a program name."""
    tiles = (stmt for stmt in walk(program.body) if isinstance(stmt, Tile))
    return {tile.microkernel for tile in tiles if tile.microkernel is not None}


def arrays(kernel: Kernel, sizes: Mapping[str, int]) -> list[Array]:
    """Small integers for every input, of no order that would hide a mistake."""
    made = []
    for number, given in enumerate(kernel.signature.inputs):
        shape = tuple(int(evaluate(extent, sizes)) for extent in given.shape)
        generator = np.random.default_rng([number, *shape])
        made.append(generator.integers(-3, 4, shape).astype(numpy_dtype(given.dtype)))
    return made


STARTS = {
    "": lambda D, bias: D,
    "D[i, j] = 0": lambda D, bias: np.zeros_like(D),
    "D[i, j] = 5": lambda D, bias: np.full_like(D, 5),
    "D[i, j] = bias[j]": lambda D, bias: np.broadcast_to(bias, D.shape),
    "D[i, j] = max(D[i, j], 0)": lambda D, bias: np.maximum(D, 0),
    "D[i, j] += bias[j]": lambda D, bias: D + bias,
}


@pytest.mark.every(6)
@pytest.mark.parametrize("tail", STRATEGIES)
@pytest.mark.parametrize("start", STARTS)
def test_a_sum_in_a_tile_starts_from_what_the_text_says(start: str, tail: str) -> None:
    text = product("float32", "float32").replace("    START\n", f"    {start}\n" if start else "")
    program = oc.parse(text)
    if tail == "shift" and start not in ("D[i, j] = 0", "D[i, j] = 5", "D[i, j] = bias[j]"):
        with pytest.raises(oc.PartitionError, match="shift"):
            oc.partition(program, tile={"i": 8, "j": 16}, tail=tail)
        return
    cut = oc.partition(program, tile={"i": 8, "j": 16}, tail={"i": tail, "j": "mask"})

    kernel = oc.compile(cut.loops)

    for m in SIZES:
        for K in (0, 1, 9):
            A, B, bias, D = arrays(kernel, {"m": m, "n": 19, "K": K})
            expected = STARTS[start](D, bias) + A @ B
            np.testing.assert_array_equal(kernel(A, B, bias, D), expected)


@pytest.mark.every(4)
@pytest.mark.parametrize("tail", STRATEGIES)
def test_the_microkernels_that_a_cut_program_names_are_called_and_no_others(
    tail: str, calls: Callable[[], set[str]]
) -> None:
    program = oc.parse(product("float32", "float32").replace("START", "D[i, j] = 0"))
    cut = oc.partition(program, tile={"i": 8, "j": 16}, tail={"i": tail, "j": "mask"})
    kernel = oc.compile(cut.loops)
    named = {piece.microkernel for piece in cut.pieces} - {None}

    assert named == claimed(cut.loops) == claimed(kernel.loops)
    called: set[str] = set()
    for m in SIZES:
        kernel(*arrays(kernel, {"m": m, "n": 19, "K": 9}))
        called |= calls()
    assert called == named


TYPES = (("float64", "float64"), ("bfloat16", "float32"), ("int8", "int32"), ("uint8", "int32"))


@pytest.mark.every(10)
@pytest.mark.parametrize(("dtype", "wide"), TYPES)
@pytest.mark.parametrize("form", ["described", "text", "cut"])
def test_what_a_plan_names_is_called_and_what_it_refuses_has_a_reason(
    dtype: str, wide: str, form: str, calls: Callable[[], set[str]]
) -> None:
    text = product(dtype, wide).replace("START", "D[i, j] = 0")
    if form == "cut":
        cut = oc.partition(oc.parse(text), tile={"i": 8, "j": 16}, tail="mask")
        kernel = oc.compile(cut.loops)
        named = {piece.microkernel for piece in cut.pieces} - {None}
        reasons = [note for note in kernel.plan(m=29, n=19, K=9).notes if note.startswith("tile")]
        assert bool(named) != bool(reasons)
    elif form == "text":
        kernel = oc.compile(oc.parse(text))
        plan = kernel.plan(m=29, n=19, K=9)
        named = {piece.microkernel for piece in plan.pieces} - {"vector loops"}
    else:
        kernel = described(dtype, wide)
        plan = kernel.plan(m=29, n=19, K=9)
        named = {piece.microkernel for piece in plan.pieces} - {"vector loops"}

    kernel(*arrays(kernel, {"m": 29, "n": 19, "K": 9}))

    assert calls() == named


def described(dtype: str, wide: str) -> Kernel:
    m, n, K = (oc.dim(name, max=60) for name in ("m", "n", "K"))
    A, B = oc.placeholder((m, K), dtype, name="A"), oc.placeholder((K, n), dtype, name="B")
    k = oc.reduce_axis(K, name="k")

    def term(i: Any, j: Any) -> Any:
        a, b = A[i, k], B[k, j]
        return a * b if dtype == wide else a.astype(wide) * b.astype(wide)

    return oc.compile(
        oc.compute((m, n), lambda i, j: oc.sum(term(i, j), axis=k), name="D"), inputs=[A, B]
    )


SECOND_SUM = """
program two
size n in 0:60
input A: float32[n, 9]
input B: float32[9, n]
output C: float32[n, n]
output D: float32[n, n]
for i in 0:n
  for j in 0:n
    C[i, j] = 0
    D[i, j] = 0
    for k in 0:9
      C[i, j] += A[i, k] * B[k, j]
    for k in 0:LIMIT
      D[i, j] += A[i, k] * B[k, j]
"""


@pytest.mark.parametrize(
    ("limit", "tail"), [("9", "ladder"), ("min(9, i + 1)", "pad"), slow("min(9, j)", "mask")]
)
def test_two_sums_of_one_tile_keep_their_own_bounds(limit: str, tail: str) -> None:
    program = oc.parse(SECOND_SUM.replace("LIMIT", limit))
    cut = oc.partition(program, tile={"i": 4, "j": 16}, tail=tail)
    kernel = oc.compile(cut.loops)
    for n in SIZES:
        A, B = arrays(kernel, {"n": n})
        for mine, theirs in zip(kernel(A, B), program.run({"A": A, "B": B}), strict=True):
            np.testing.assert_array_equal(mine, theirs)


OTHERS = {
    "the result moves with the depth": ("D: float32[n, n, 9]", "D[i, j, k] += A[i, k] * B[k, j]"),
    "rows of the result two apart": ("D: float32[2*n, n]", "D[2*i, j] += A[i, k] * B[k, j]"),
    "columns two apart": ("D: float32[n, 2*n]", "D[i, 2*j] += A[i, k] * B[k, j]"),
    "columns shifted": ("D: float32[n, n + 3]", "D[i, j + 3] += A[i, k] * B[k, j]"),
    "the result turned": ("D: float32[n, n]", "D[j, i] += A[i, k] * B[k, j]"),
    "the result backwards": ("D: float32[n, n]", "D[n - 1 - i, j] += A[i, k] * B[k, j]"),
    "halved rows of A": ("D: float32[n, n]", "D[i, j] += A[i//2, k] * B[k, j]"),
    "B backwards": ("D: float32[n, n]", "D[i, j] += A[i, k] * B[8 - k, j]"),
    "B turned": ("D: float32[n, n]", "D[i, j] += A[i, k] * A[j, k]"),
}


@pytest.mark.every(3)
@pytest.mark.parametrize(("what", "tail"), [*zip(OTHERS, 3 * ["mask", "pad", "cut"], strict=True)])
def test_a_sum_whose_operands_lie_otherwise_is_right(what: str, tail: str) -> None:
    result, statement = OTHERS[what]
    program = oc.parse(
        "program other\nsize n in 0:60\ninput A: float32[n, 9]\ninput B: float32[9, n]\n"
        f"inout {result}\nfor i in 0:n\n  for j in 0:n\n    for k in 0:9\n      {statement}\n"
    )
    kernel = oc.compile(oc.partition(program, tile={"i": 4, "j": 16}, tail=tail).loops)
    for n in SIZES:
        A, B, D = arrays(kernel, {"n": n})
        expected = program.run({"A": A, "B": B, "D": D})
        np.testing.assert_array_equal(kernel(A, B, D), expected)


def test_rows_that_sets_do_not_bound_are_multiplied_by_a_microkernel_where_they_lie_inside() -> (
    None
):
    n = oc.dim("n", max=60)
    T, W = oc.placeholder((100, 9), name="T"), oc.placeholder((9, 20), name="W")
    k = oc.reduce_axis(9, name="k")
    row = oc.compute((n, 9), lambda i, j: T[i * j % 100, j], name="row")
    dense = oc.compute((n, 20), lambda i, j: oc.sum(row[i, k] * W[k, j], axis=k))
    kernel = oc.compile(dense, inputs=[T, W])
    assert any(piece.microkernel is not None for piece in kernel.partition.pieces)
    rng = np.random.default_rng(0)
    t, w = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((100, 9), (9, 20)))
    at = np.arange(9)
    for size in (0, 1, 13, 14, 15, 47):
        rows = t[np.arange(size)[:, None] * at % 100, at]
        np.testing.assert_array_equal(kernel(t, w, n=size), rows @ w)


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_that_are_looked_up_are_multiplied_by_a_microkernel(threads: int) -> None:
    n = oc.dim("n", max=60)
    ids = oc.placeholder((n,), "int32", name="ids")
    T, W = oc.placeholder((100, 9), name="T"), oc.placeholder((9, 20), name="W")
    dense = ops.dense(ops.embedding(T, ids), W)
    kernel = oc.compile(dense, inputs=[ids, T, W], threads=threads)
    assert any(piece.microkernel is not None for piece in kernel.partition.pieces)
    rng = np.random.default_rng(0)
    t, w = rng.standard_normal((100, 9), dtype="f"), rng.standard_normal((9, 20), dtype="f")
    for size in SIZES:
        rows = rng.integers(0, 100, size).astype("int32")
        result = np.full((size, 20), np.nan, "f")
        kernel(rows, t, w, out=result)
        agree(result, exact_matmul(t[rows], w))
    for outside in (-1, 100):
        with pytest.raises(oc.CallError, match="leads outside of an array"):
            kernel(np.array([3, outside], "int32"), t, w)


def test_a_tile_that_names_a_microkernel_which_is_none_is_refused() -> None:
    text = product("float32", "float32").replace("    START\n", "")
    cut = oc.partition(oc.parse(text), tile={"i": 8, "j": 16}, tail="mask")
    (name,) = claimed(cut.loops)
    wrong = oc.parse(str(cut).replace(name, "nonsense"))
    known = ", ".join(one.microkernel.name for one in available.families(isa.host()))
    for op, call in (("compile", oc.compile), ("partition", oc.partition)):
        with rejection(
            f"PartitionError: {op}: cannot cover a tile by nonsense\n"
            "  at       tile i, j\n"
            "  because  no microkernel of this machine, and no declared instruction, has that name\n"
            f"  help     {known}\n"
            "  help     without @cover(nonsense) it runs as loops"
        ):
            call(wrong)


def test_sums_that_turn_rows_and_columns_share_the_scratch_of_a_padded_tile() -> None:
    program = oc.parse("""
program turned
size m in 0:60
size n in 0:60
input A: float32[m, 9]
input B: float32[9, n]
input D: float32[n, 9]
input E: float32[9, m]
output C: float32[m, n]
for i in 0:m
  for j in 0:n
    C[i, j] = 0
    for k in 0:9
      C[i, j] += A[i, k] * B[k, j]
    for l in 0:9
      C[i, j] += D[j, l] * E[l, i]
""")
    kernel = oc.compile(oc.partition(program, tile={"i": 8, "j": 8}, tail="pad").loops)
    A, B, D, E = arrays(kernel, {"m": 13, "n": 37})
    np.testing.assert_array_equal(kernel(A, B, D, E), A @ B + (D @ E).T)


def test_a_tile_whose_instances_need_each_other_is_refused() -> None:
    program = oc.parse("""
program entwined
size n in 0:60
input A: float32[n, 9]
input B: float32[9, n]
inout C: float32[2*n]
tile i in 0 +: n, j in 0 +: n
  for k in 0:9
    C[i + j] += A[i, k] * B[k, j]
""")
    with rejection(
        "PartitionError: compile: cannot run a tile whose instances need each other\n"
        "  at       tile i, j\n"
        "  because  with n = 2, C[i + j] += A[i, k] * B[k, j] at i = 0, j = 1, k = 0 writes what the "
        "instance i = 1, j = 0, k = 0 overwrites\n"
        "  help     loops instead of the tile keep the order"
    ):
        oc.compile(program)
