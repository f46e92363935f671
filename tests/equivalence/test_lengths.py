"""Attention whose keys end where a length by batch says: values, bits, what is never read, and proofs that see where loops end."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import rejection, slow

import offcut as oc
from tests.agree import agree

Array = np.ndarray[Any, Any]
ROWS = 14  # of a tile
SIZES = ((1, 1), (3, 0), (0, 5), (ROWS, 64), (23, 37))


def exact(
    q: Array, k: Array, v: Array, lengths: Array, seen: Array | bool = True
) -> tuple[Array, Array]:
    """Return attention in float64, and the terms of each element; `seen`, of shape (n, t): the keys that a query attends to whatever
    their number.
    """
    shared, keys = q.shape[1] // k.shape[1], np.arange(k.shape[2])
    q, k, v = (
        one.astype(np.float64) for one in (q, np.repeat(k, shared, 1), np.repeat(v, shared, 1))
    )
    visible = seen & (keys < lengths.astype(np.float64)[:, None, None, None])
    scores = np.where(visible, q @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[-1]), -np.inf)
    top = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), -1e300)
    weights = np.exp(scores - top)
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    return weights @ v, weights @ np.abs(v)


def check(result: Any, wanted: tuple[Array, Array], dtype: str) -> None:
    """Check attention in `dtype`, whose weights are rounded to it, too."""
    value, terms = wanted
    units = 64 if dtype == "float32" else 4
    agree(result, value, terms=terms + 1e-6, units=units, sums=dtype)


def described(
    dtype: str = "float32", lengths: str = "int32", heads: tuple[int, int] = (2, 2), **options: Any
) -> tuple[oc.Tensor, list[oc.Tensor]]:
    b, n, t = oc.dim("b", max=64), oc.dim("n", max=512), oc.dim("t", max=512)
    q = oc.placeholder((b, heads[0], n, 32), dtype, name="q")
    k, v = (oc.placeholder((b, heads[1], t, 32), dtype, name=name) for name in ("k", "v"))
    ends = oc.placeholder((b,), lengths, name="lengths")
    return oc.ops.attention(q, k, v, lengths=ends, **options), [q, k, v, ends]


def drawn(dtype: Any, heads: tuple[int, int], n: int, t: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(n + t)
    shapes = (5, heads[0], n, 32), (5, heads[1], t, 32), (5, heads[1], t, 32)
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return q, k, v


@cache
def compiled(**options: Any) -> oc.Kernel:
    output, inputs = described(**options)
    return oc.compile(output, inputs=inputs)


CASES: dict[str, dict[str, Any]] = {
    "alone": {},
    "causal, bytes": {"causal": True, "lengths": "uint8"},
    "window, shared heads": {"window": 5, "heads": (4, 2)},
    "64 bits": {"lengths": "int64"},
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16, causal": {"dtype": "bfloat16", "causal": True},
}
"""Each element type, mask and type of lengths, and the pairs of which one changes how another one is compiled."""


@pytest.mark.parametrize("case", [slow(case) if case == "bfloat16" else case for case in CASES])
def test_keys_from_the_length_of_their_batch_on_are_not_read(case: str) -> None:
    options = CASES[case]
    dtype, heads = options.get("dtype", "float32"), options.get("heads", (2, 2))
    kernel = compiled(**options)
    ends = np.iinfo(options.get("lengths", "int32"))
    for n, t in SIZES:
        q, k, v = drawn(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype, heads, n, t)
        lengths = np.array([5, t, 0, ends.max, ends.min], ends.dtype)
        i, j = np.arange(n)[:, None], np.arange(t)
        seen = (j <= i) if options.get("causal") else np.ones((n, t), bool)
        if "window" in options:
            seen &= abs(i - j) < options["window"]
        wanted = exact(q, k, v, lengths, seen)
        for one in (k, v):
            for batch, length in enumerate(lengths):
                one[batch, :, max(int(length), 0) :] = np.nan
        check(kernel(q, k, v, lengths), wanted, dtype)


@pytest.mark.parametrize("case", ["alone", "bfloat16, causal"])
def test_a_sequence_has_the_bits_that_it_has_alone(case: str) -> None:
    options = CASES[case]
    kernel, dtype = compiled(**options), options.get("dtype", "float32")
    q, k, v = drawn(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype, (2, 2), 23, 70)
    lengths = np.array([1, 17, 33, 64, 70], np.int32)
    together = np.asarray(kernel(q, k, v, lengths))
    for batch, length in enumerate(lengths):
        own = (one[batch : batch + 1, :, :length] for one in (k, v))
        alone = np.asarray(kernel(q[batch : batch + 1], *own, lengths[batch : batch + 1]))
        assert alone.tobytes() == together[batch : batch + 1].tobytes()


@pytest.mark.parametrize(
    ("options", "length"),
    [({}, "lengths[b_]"), ({"lengths": "int64"}, "max(min(lengths[b_], 2147483647), 0)")],
    ids=["int32", "int64"],
)
def test_loops_over_keys_end_at_the_length(options: dict[str, str], length: str) -> None:
    text = str(compiled(**options).loops)
    assert f"in 0:min(t, index({length}))" in text
    assert "where(" not in text


@pytest.mark.parametrize(("strategy", "dtype"), [("guard", "int64"), ("pad", "int32")])
def test_strategies_whose_loops_cannot_end_at_the_length_ask_it_inside(
    strategy: str, dtype: str
) -> None:
    output, inputs = described(lengths=dtype)
    kernel = oc.compile(output, inputs=inputs, strategy=strategy)
    assert any(
        "loops do not end at elements of arrays" in note
        for note in kernel.plan(b=5, n=7, t=9).notes
    )
    again = oc.compile(output, inputs=inputs, schedule=kernel.schedule)
    assert again.loops == kernel.loops
    for n, t in SIZES:
        q, k, v = drawn("float32", (2, 2), n, t)
        lengths = np.array([5, t, 0, np.iinfo(dtype).max, -1], dtype)
        wanted = exact(q, k, v, lengths)
        for one in (k, v):
            for batch, length in enumerate(lengths):
                one[batch, :, max(int(length), 0) :] = np.nan
        check(kernel(q, k, v, lengths), wanted, "float32")
        check(again(q, k, v, lengths), wanted, "float32")


@pytest.mark.parametrize(("dtype", "of_lengths"), [("bfloat16", "int32"), slow("float32", "int64")])
def test_a_gpu_reads_no_key_behind_the_length_either(dtype: str, of_lengths: str) -> None:
    output, inputs = described(dtype, of_lengths)
    target = oc.target("cuda", machine="h200", device="emulated")
    kernel = oc.compile(output, inputs=inputs, target=target)
    products = {"bfloat16": "mma_m16n8k16_shared_bfloat16", "float32": "fma_shared_float32"}
    assert str(kernel.loops).count(f"@cover({products[dtype]}; ") == 2
    q, k, v = drawn(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype, (2, 2), 23, 37)
    lengths = np.array([5, 37, 0, np.iinfo(of_lengths).max, -1], of_lengths)
    wanted = exact(q, k, v, lengths)
    k[0, :, 5:] = v[0, :, 5:] = np.nan
    check(kernel(q, k, v, lengths), wanted, dtype)


def test_lengths_of_other_axes_are_refused() -> None:
    b, n = oc.dim("b"), oc.dim("n")
    q = oc.placeholder((b, 2, n, 32), name="q")
    with rejection(
        "DescribeError: attention: cannot read a length for each sequence of keys\n"
        "  at       lengths: int32[n]\n"
        "  because  the leading axes of k are (b, 2)\n"
        "  help     the first of these axes, in their order"
    ):
        oc.ops.attention(q, q, q, lengths=oc.placeholder((n,), "int32", name="lengths"))
    with pytest.raises(oc.DescribeError, match="float32"):
        oc.ops.attention(q, q, q, lengths=oc.placeholder((b,), name="lengths"))


RAGGED = """program ragged
size b in 0:65
size t in 0:4097
input W: float32[b, 32, t]
input V: float32[b, t, 64]
{kind} L: int32[b]
output Y: float32[b, 32, 64]
{first}for g in 0:b
  for i in 0:32
    for j in 0:64
      Y[g, i, j] = 0.0
      for k in 0:{end}
        Y[g, i, j] += {term}
"""
TERM = "W[g, i, k] * V[g, k, j]"
CONDITIONAL = f"where(k < index(L[g]), {TERM}, -0.0)"


def ragged(end: str, term: str, kind: str = "input", first: str = "") -> oc.Program:
    return oc.parse(RAGGED.format(end=end, term=term, kind=kind, first=first))


def test_a_loop_that_ends_at_the_length_is_proved_and_one_that_does_not_is_refused() -> None:
    source = ragged("t", CONDITIONAL)
    oc.prove_equal(source, ragged("min(t, index(L[g]))", TERM))
    for end in ("min(t, index(L[g]) + 1)", "min(t, index(L[g])) - 1", "t", "min(t, index(L[0]))"):
        with pytest.raises(oc.PartitionError):
            oc.prove_equal(source, ragged(end, TERM))


def test_a_product_with_lengths_is_a_microkernels() -> None:
    kernel = oc.compile(ragged("t", CONDITIONAL), strategy="ladder")
    (stage,) = {piece.stage for piece in kernel.plan(b=3, t=100).pieces}
    assert stage == "Y"
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((3, 32, 100), "f4"), rng.standard_normal((3, 100, 64), "f4")
    lengths = np.array([5, 100, -7], np.int32)
    result = kernel(w, v, lengths)
    for batch, length in enumerate(np.maximum(lengths, 0)):
        terms = w[batch, :, :length].astype("f8"), v[batch, :length].astype("f8")
        agree(result[batch], terms[0] @ terms[1], terms=abs(terms[0]) @ abs(terms[1]), units=64)


def test_a_length_that_the_program_writes_ends_no_loop() -> None:
    first = "for g in 0:b\n  L[g] = 3\n"
    written = ragged("t", CONDITIONAL, "local", first)
    kernel = oc.compile(written)
    assert "where(k < index(L[g])" in str(kernel.loops)
    w, v = np.ones((2, 32, 9), "f4"), np.ones((2, 9, 64), "f4")
    assert (kernel(w, v) == 3).all()


SPARSE = """program sparse
size n in 0:999
size z in 0:9999
input S: int32[n + 1]
input V: float32[z]
output O: float32[n]
for i in 0:n
  O[i] = 0.0
  for j in index(S[i]):index(S[i + 1])
    O[i] += V[j]
"""


@pytest.mark.parametrize("tail", ["cut", "guard", "mask"])
def test_rows_whose_ends_an_array_names_are_cut(tail: str) -> None:
    cut = oc.partition(oc.parse(SPARSE), tile={"j": 4}, tail=tail)
    assert cut.pieces
    kernel = oc.compile(cut.loops)
    lengths = np.array([0, 1, 3, 4, 5, 12, 17])
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = np.random.default_rng(0).standard_normal(int(ends[-1])).astype(np.float32)
    rows = [values[a:b].astype("f8") for a, b in pairwise(ends)]
    terms = np.array([np.abs(row).sum() for row in rows])
    agree(kernel(ends, values), np.array([row.sum() for row in rows]), terms=terms, units=32)
