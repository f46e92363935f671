"""The encoder's kernels as tensor expressions: seven, each compiled once for all sizes.

The rows of a batch of sentences lie one after the other, without padding, so that everything but
attention and pooling is computed on rows, whatever sentence they are of. Those two take the
sentences of one length together, (b, n, …), as a view of the same rows.

    rows     (m, 384), m = all tokens of the batch
    project  rows @ W + bias: query, key and value side by side, (m, 1152) = (b, n, 3, 12, 32)
    attend   softmax(q kᵀ / sqrt(32)) v of each head, read where `project` left it
    settle   norm(x @ W + bias + rows): the end of attention, and of the feed forward part
    widen    gelu(rows @ W + bias), (m, 1536)
    pool     the mean of a sentence's rows, scaled to length 1

One program for a whole layer is compiled too, but it takes one sentence a call, so that weights are
read again for each; and seven kernels are compiled sooner than that and the rest of the encoder.
"""

import math
from typing import Any

import offcut as oc
from examples.sentences.tokens import LONGEST
from examples.sentences.weights import HEADS, HIDDEN, POSITIONS
from offcut import ops
from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.studies.contraction import Computation

EPSILON = 1e-12  # added to the variance in a layer norm, as the model was trained

MOST = 1024
"""Rows of a batch, and sentences of one length, at most."""

DEPTH = HIDDEN // HEADS

EMBED = """
program embed
size m in 1:{most}
input tokens: int32[m]
input places: int32[m]
constant words: {kind}[{vocabulary}, {hidden}]
constant positions: {kind}[{positions}, {hidden}]
constant segment: {kind}[{hidden}]
constant gain: float32[{hidden}]
constant shift: float32[{hidden}]
local x: float32[m, {hidden}]
local mean: float32[m]
local squares: float32[m]
local scale: float32[m]
output rows: {kind}[m, {hidden}]
for i in 0:m
  alloc x[i +: 1, 0 +: {hidden}]
    alloc mean[i +: 1]
      alloc squares[i +: 1]
        alloc scale[i +: 1]
          for j in 0:{hidden}
            x[i, j] = {words} + ({positions_} + {segment})
          mean[i] = 0.0
          for j in 0:{hidden}
            mean[i] += x[i, j]
          mean[i] = mean[i] / {hidden}.0
          squares[i] = 0.0
          for j in 0:{hidden}
            squares[i] += (x[i, j] - mean[i]) * (x[i, j] - mean[i])
          scale[i] = 1.0 / sqrt(squares[i] / {hidden}.0 + {epsilon})
          for j in 0:{hidden}
            rows[i, j] = {result}
"""


def embed(kind: str, vocabulary: int) -> Program:
    """``norm(words[tokens] + positions[places] + segment)``; a number outside a table is refused.

    tokens, places      (m,) int32
    words, positions    (vocabulary, 384), (512, 384), of `kind`; `segment` is (384,)
    gain, shift         of the norm, float32
    """

    def wide(value: str) -> str:
        return value if kind == "float32" else f"float32({value})"

    result = "(x[i, j] - mean[i]) * scale[i] * gain[j] + shift[j]"
    return oc.parse(
        EMBED.format(
            kind=kind,
            most=MOST + 1,
            vocabulary=vocabulary,
            positions=POSITIONS,
            hidden=HIDDEN,
            epsilon=EPSILON,
            words=wide("words[index(tokens[i]), j]"),
            positions_=wide("positions[index(places[i]), j]"),
            segment=wide("segment[j]"),
            result=result if kind == "float32" else f"{kind}({result})",
        )
    )


def dense(k: int, n: int, kind: str, gelu: bool) -> Computation:
    """``x @ W + bias``, gelu of it if asked for: x (m, k), W (k, n), both of `kind`."""
    x = oc.placeholder((_rows(), k), kind, name="x")
    weight = oc.placeholder((k, n), kind, name="W")
    bias = oc.placeholder((n,), "float32", name="bias")
    result = ops.dense(
        x, weight, bias, "gelu" if gelu else None, name="widen" if gelu else "project"
    )
    return Computation((x, weight, bias), result)


def settle(k: int, kind: str) -> Computation:
    """``norm(x @ W + bias + rows)``: x (m, k), W (k, 384), rows (m, 384), all of `kind`."""
    m = _rows()
    x = oc.placeholder((m, k), kind, name="x")
    rows = oc.placeholder((m, HIDDEN), kind, name="rows")
    weight = oc.placeholder((k, HIDDEN), kind, name="W")
    bias, gain, shift = (
        oc.placeholder((HIDDEN,), "float32", name=name) for name in ("bias", "gain", "shift")
    )
    summed = ops.dense(x, weight, bias, None, rows, "float32", name="summed")
    normal = ops.layernorm(summed, gain, shift, EPSILON, name="normal")
    result = normal if kind == "float32" else _cast(normal, kind)
    return Computation((x, rows, weight, bias, gain, shift), result)


def attend(kind: str) -> Computation:
    """``softmax(q kᵀ / sqrt(32)) v`` of each of 12 heads, side by side: (b, n, 12, 32).

    The only input is (b, n, 3, 12, 32): query, key and value of each head. The product with v is
    divided by the sums of the weights, which are rounded to `kind` before either.
    """
    b, n = oc.dim("b", min=1, max=MOST), oc.dim("n", min=1, max=LONGEST)
    x = oc.placeholder((b, n, 3, HEADS, DEPTH), kind, name="qkv")
    e, t = oc.reduce_axis(DEPTH, name="e"), oc.reduce_axis(n, name="t")

    def wide(value: Any) -> Any:
        return oc.cast(value, "float32")

    scores = oc.compute(
        (b, HEADS, n, n),
        lambda s, h, i, j: oc.sum(wide(x[s, i, 0, h, e]) * wide(x[s, j, 1, h, e]), axis=e),
        name="scores",
    )
    greatest = oc.compute(
        (b, HEADS, n), lambda s, h, i: oc.max(scores[s, h, i, t], axis=t), name="greatest"
    )
    weights = oc.compute(
        (b, HEADS, n, n),
        lambda s, h, i, j: oc.cast(
            oc.exp((scores[s, h, i, j] - greatest[s, h, i]) * (1 / math.sqrt(DEPTH))), kind
        ),
        name="weights",
    )
    total = oc.compute(
        (b, HEADS, n), lambda s, h, i: oc.sum(wide(weights[s, h, i, t]), axis=t), name="total"
    )
    mixed = oc.compute(
        (b, HEADS, n, DEPTH),
        lambda s, h, i, j: oc.sum(wide(weights[s, h, i, t]) * wide(x[s, t, 2, h, j]), axis=t),
        name="mixed",
    )
    result = oc.compute(
        (b, n, HEADS, DEPTH),
        lambda s, i, h, j: oc.cast(mixed[s, h, i, j] / total[s, h, i], kind),
        name="attend",
    )
    return Computation((x,), result)


def pool(kind: str) -> Computation:
    """The mean of the rows of each sentence, scaled to length 1: (b, n, 384) to float32 (b, 384).

    Scaling makes the division by n superfluous.
    """
    b, n = oc.dim("b", min=1, max=MOST), oc.dim("n", min=1, max=LONGEST)
    x = oc.placeholder((b, n, HIDDEN), kind, name="rows")
    t, k = oc.reduce_axis(n, name="t"), oc.reduce_axis(HIDDEN, name="k")
    total = oc.compute(
        (b, HIDDEN), lambda s, j: oc.sum(oc.cast(x[s, t, j], "float32"), axis=t), name="total"
    )
    squares = oc.compute((b,), lambda s: oc.sum(total[s, k] * total[s, k], axis=k), name="squares")
    result = oc.compute((b, HIDDEN), lambda s, j: total[s, j] / oc.sqrt(squares[s]), name="pool")
    return Computation((x,), result)


def _rows() -> Any:
    return oc.dim("m", min=1, max=MOST)


def _cast(x: Tensor, kind: str) -> Tensor:
    return oc.compute(x.shape, lambda i, j: oc.cast(x[i, j], kind), name="rounded")
