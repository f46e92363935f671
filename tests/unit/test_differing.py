"""A witness is true: where one is given, the programs differ at its sizes; where they do not, none is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import slow

import offcut as oc
import offcut.ir as ir
from offcut import Program, ops
from offcut.ir import Kind
from offcut.proof.by_instances.pairing import UNDECIDED
from tests.facade import Options, difference, evaluate, numpy_dtype

n, m = oc.dim("n", max=64), oc.dim("m", max=64)
CASCADE_LAKE = oc.target("cpu", machine="cascade-lake")


def given(name: str, *shape: object, dtype: str = "float32") -> Any:
    return oc.placeholder(shape, dtype, name)


def cut(tail: str) -> oc.Partition:
    X = given("X", n)
    Y = oc.compute((n,), lambda i: oc.where(i > 0, X[i - 1], 0.0), name="Y")
    return oc.partition(Y, tile={"i": 8}, tail=tail)


def product(dtype: str) -> Any:
    return ops.matmul(given("A", n, 24, dtype=dtype), given("B", 24, 40, dtype=dtype))


def convolution(padding: str) -> Any:
    return ops.conv2d(given("X", 1, 2, n, m), given("F", 3, 2, 3, 3), padding=padding)


TILED: dict[str, Callable[[], tuple[Program, Program]]] = {
    "a shifted tile": lambda: (cut("shift").loops, cut("shift").source),
    "its loops": lambda: (ir.plain(cut("shift").loops), cut("shift").source),
    "their source": lambda: (cut("shift").source, ir.plain(cut("shift").loops)),
    "heights of two kinds": lambda: (cut("balance").source, ir.plain(cut("balance").loops)),
    "bytes": lambda: plain_and_planned(product("int8")),
    "bfloat16": lambda: plain_and_planned(product("bfloat16")),
    "convolution": lambda: plain_and_planned(convolution("same")),
    "a dense layer": lambda: plain_and_planned(
        ops.dense(
            given("X", n, 24, dtype="int8"),
            given("W", 24, 40, dtype="int8"),
            given("b", 40, dtype="int32"),
        )
    ),
}


def plain_and_planned(tensor: Any) -> tuple[Program, Program]:
    loops = oc.parse(CASCADE_LAKE.source(tensor, options=Options(keep_pruned=True)))
    return ir.plain(loops), loops


def inputs(program: Program, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    found = {}
    for buffer in program.buffers:
        if buffer.kind in (Kind.INPUT, Kind.CONSTANT, Kind.INOUT):
            shape = [int(evaluate(extent, sizes)) for extent in buffer.shape]
            values = random.integers(1, 9, shape) + random.random(shape)
            found[buffer.name] = values.astype(numpy_dtype(buffer.dtype))
    return found


def agree(one: Program, other: Program, sizes: dict[str, int]) -> bool:
    """Whether two programs give the same bits for some arrays, by the reference interpreter."""

    def results(program: Program) -> Iterator[Any]:
        for seed in range(3):
            found = program.run(inputs(one, sizes, seed), **sizes)
            yield from found if isinstance(found, tuple) else (found,)

    pairs = zip(results(one), results(other), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def refusal(source: Program, emitted: Program) -> oc.PartitionError:
    with pytest.raises(oc.PartitionError) as refused:
        oc.prove_equal(source, emitted)
    return refused.value


def sizes_in(text: str) -> dict[str, int]:
    words = re.match(r".*?with ((?:\w+ = \d+, )*\w+ = \d+), ", text)
    assert words is not None, text
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", words[1])}


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "what", [slow(name) if name in ("bfloat16", "a dense layer") else name for name in TILED]
)
def test_of_equal_programs_that_are_both_tiled_no_witness_is_given(what: str) -> None:
    told = refusal(*TILED[what]())
    assert told.refused == UNDECIDED, told
    assert "'" not in told.because


HEAD = """program mm
size n in 0:200
input A: float32[n, 4]
input B: float32[4, 5]
output C: float32[n, 5]
"""
TILES = """for i_tile in 0:n//8
  for i in 8*i_tile:8*i_tile + 8
    for j in 0:5
      C[i, j] = 0.0
      for k in 0:4
        C[i, j] += A[i, k] * B[k, j]
for i in 8*(n//8):n
  for j in 0:5
    C[i, j] = 0.0
    for k in 0:4
      C[i, j] += A[i, k] * B[k, j]
"""
WHOLE = """for i in 0:n
  for j in 0:5
    C[i, j] = 0.0
    for k in 0:4
      C[i, j] += A[i, k] * B[k, j]
"""
# What is changed in `WHOLE`, by what, and what is said of it where `TILES` is the source.
EDITS: dict[str, tuple[str, str, str]] = {
    "nothing": ("", "", "the proof does not see through C[i, j] = 0.0: with n = 8, runs show no"),
    "the order of terms": (
        "A[i, k] * B[k, j]",
        "A[i, 3 - k] * B[3 - k, j]",
        "with n = 1, C[0, 0] has another value",
    ),
    "the order of iterations": (
        "C[i, j] = 0.0\n    for k in 0:4\n      C[i, j] += A[i, k] * B[k, j]",
        "C[n - 1 - i, j] = 0.0\n    for k in 0:4\n      C[n - 1 - i, j] += A[n - 1 - i, k] * B[k, j]",
        "the proof does not see through C[n - i - 1, j] = 0.0: with n = 8, runs show no",
    ),
    "a term": ("0:4", "0:3", "with n = 1, C[0, 0] has another value"),
    "the first term": ("0:4", "1:4", "with n = 1, C[0, 0] has another value"),
    "a start": (
        "= 0.0",
        "= 1.0",
        "with n = 1, C[0, 0] = 1.0 (i = 0, j = 0) matches no statement of the source",
    ),
    "an element": (
        "A[i, k] *",
        "A[n - 1 - i, k] *",
        "with n = 2, C[0, 0] has another value",
    ),
    "a column": ("0:5\n", "0:4\n", "with n = 1, C[0, 4] has another value"),
    "a row": ("0:n", "0:n - 1", "with n = 1, C[0, 0] has another value"),
    "only a later row": (
        "i in 0:n",
        "i in 0:min(n, 17)",
        "the proof does not see through C[i, j] = 0.0: with n = 8, runs show no",
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_is_refused_with_a_witness_that_runs_confirm(what: str) -> None:
    old, new, because = EDITS[what]
    source, emitted = oc.parse(HEAD + TILES), oc.parse(HEAD + WHOLE.replace(old, new))
    told = refusal(source, emitted)
    sizes = sizes_in(told.because.replace(":", ","))
    assert told.because.startswith(because), told
    assert (told.refused == UNDECIDED) == agree(source, emitted, sizes)


def test_what_is_proved_is_no_matter_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offcut.proof.by_instances.counterexample.difference", None)
    assert oc.prove_equal(oc.parse(HEAD + WHOLE), oc.parse(HEAD + TILES))


SUM = """program total
size n in 0:200
input A: {dtype}[n]
output S: {dtype}[1]
S[0] = {start}
for i in 0:n
  S[0] += A[{at}]
"""


def total(at: str = "i", start: str = "0.0", dtype: str = "float32") -> Program:
    return oc.parse(SUM.format(at=at, start=start, dtype=dtype))


@cache
def long() -> Program:
    text = (
        str(total()).replace("S[0] += A[i]", "S[0] = S[0] * 0.5 + A[i]").replace("0:200", "0:99999")
    )
    return oc.parse(text)


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_two_terms_of_a_float_sum_already_tell_their_order(size: int) -> None:
    turned = "n - 1 - i"
    told = difference(total(), total(turned), {"n": size}, False)
    words = {2: "S[0] has its terms in another order", 3: "S[0] has another value"}
    assert str(told or "") == words.get(size, "")
    assert difference(total(), total(turned), {"n": size}, True) is False
    whole = total(start="0", dtype="int32"), total(turned, "0", "int32")
    assert difference(*whole, {"n": size}, False) is False


def test_elements_that_differ_are_told_from_those_that_do_not() -> None:
    one, other = (
        oc.parse(HEAD + WHOLE.replace("= 0.0", f"= {start}")) for start in ("0.0", "-0.0")
    )
    assert difference(one, other, {"n": 2}, False) is False  # terms follow
    other = oc.parse(HEAD + WHOLE.replace("= 0.0", "= where(i == 1 and j == 3, 1.0, 0.0)"))
    told = difference(one, other, {"n": 2}, True)
    assert told
    assert (told.is_at("C", (1, 3)), told.is_at("C", (1, 2))) == (True, False)
    assert str(told) == "C[1, 3] has another value"


def test_a_sign_of_zero_is_a_difference() -> None:
    told = difference(total(), total(start="-0.0"), {"n": 0}, False)
    assert str(told) == "S[0] has another value"


def test_what_breaks_differs_from_what_does_not() -> None:
    told = difference(total(), total("i + 1"), {"n": 2}, False)
    assert told
    assert told.is_at("S", (0,))
    assert str(told) == "the emitted program leaves an array, or breaks a promise"
    assert difference(total("i + 1"), total(), {"n": 2}, False) is False


def test_what_takes_too_long_is_not_told() -> None:
    assert difference(long(), long(), {"n": 100}, False) is False
    assert difference(long(), long(), {"n": 9000}, False) is None
