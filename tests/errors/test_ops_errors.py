"""Every refusal of an operator, word for word, beside what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import ops

n, m, b, h = oc.dim("n", max=64), oc.dim("m", max=64), oc.dim("b", max=64), oc.dim("h", max=64)


def given(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return oc.placeholder(shape, dtype, name)


A, W, V = given("A", n, 24), given("W", 24, 40), given("V", 25, 40)
L, J = given("L", n, 24, dtype="int8"), given("J", 24, 40, dtype="int8")
Q, K = given("Q", b, 2, n, 8), given("K", b, 2, m, 8)
X, F = given("X", b, 6, h, h), given("F", 4, 6, 3, 3)
G = given("G", 4, 2, 3, 3)
ROW = given("R", 40)

FLOATS = "float64, float32, float16, bfloat16"
ONE_SIZE = "  help     one size for both: a size is known by its name and facts"

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no tensor": (
        lambda: ops.relu(3),  # type: ignore[arg-type]
        "relu: cannot take x = 3\n"
        "  because  it is not a tensor\n"
        '  help     placeholder((n, 768), "float32", name="A")\n'
        "  help     compute(…)",
    ),
    "an activation of integers": (
        lambda: ops.gelu(L),
        f"gelu: cannot take x of int8\n  at       L: int8[n, 24]\n  because  x is of {FLOATS}",
    ),
    "an unknown activation": (
        lambda: ops.dense(A, W, activation="swish"),
        "dense: cannot take activation='swish'\n"
        "  because  activations are relu, relu6, gelu, gelu_tanh, silu, tanh, sigmoid, hardsigmoid,"
        " hardswish",
    ),
    "an activation after a sum of integers": (
        lambda: ops.dense(L, J, activation="gelu"),
        "dense: cannot take activation='gelu' of int32\n"
        "  because  gelu is a function of floats\n"
        '  help     activation="relu"\n'
        "  help     dequantize(…) gives float32",
    ),
    "weights of the wrong rank": (
        lambda: ops.dense(A, ROW),
        "dense: cannot take w with 1 axis\n  at       R: float32[40]\n  because  w has 2 axes",
    ),
    "a depth that differs": (
        lambda: ops.dense(A, V),
        "dense: cannot pair A with V\n"
        "  at       A: float32[n, 24] and V: float32[25, 40]\n"
        "  because  axis 1 of A is 24, axis 0 of V is 25\n"
        f"{ONE_SIZE}",
    ),
    "weights of another type": (
        lambda: ops.dense(A, given("W", 24, 40, dtype="bfloat16")),
        "dense: cannot take w of bfloat16\n"
        "  at       W: bfloat16[24, 40]\n"
        "  because  w is of float32, int8",
    ),
    "a bias of another length": (
        lambda: ops.dense(A, W, given("B", 41)),
        "dense: cannot take bias of shape (41,)\n"
        "  at       B: float32[41]\n"
        "  because  bias has the shape (40,)",
    ),
    "a bias of another kind": (
        lambda: ops.dense(L, J, given("B", 40)),
        "dense: cannot take bias of float32\n"
        "  at       B: float32[40]\n"
        "  because  bias is of int32, int16, int8, uint16, uint8",
    ),
    "a residual of another shape": (
        lambda: ops.dense(A, W, residual=given("S", m, 40)),
        "dense: cannot take residual of shape (m, 40)\n"
        "  at       S: float32[m, 40]\n"
        "  because  residual has the shape (n, 40)",
    ),
    "no element type": (
        lambda: ops.dense(A, W, dtype="half"),
        "dense: cannot give 'half'\n"
        "  at       argument dtype\n"
        "  because  element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool",
    ),
    "floats where integers are multiplied": (
        lambda: ops.dense_quantized(A, J, 0.1, 0.1),
        "dense_quantized: cannot take x of float32\n"
        "  at       A: float32[n, 24]\n"
        "  because  x is of int8, uint8",
    ),
    "scales of other blocks": (
        lambda: ops.dense_blockwise(A, J, given("S", 3, 41)),
        "dense_blockwise: cannot take scale of shape (3, 41)\n"
        "  at       S: float32[3, 41]\n"
        "  because  scale has the shape (3, 40)",
    ),
    "blocks of other terms": (
        lambda: ops.dense_blockwise(A, J, given("S", 5, 40)),
        "dense_blockwise: cannot cut 24 terms into 5 blocks\n"
        "  at       S: float32[5, 40]\n"
        "  because  blocks have one int of terms each\n"
        "  help     ops.pad(x, …) and zeros in w, up to a whole block",
    ),
    "a scale that is no number": (
        lambda: ops.dense_quantized(L, J, "1", 0.1),  # type: ignore[arg-type]
        "dense_quantized: cannot take x_scale='1'\n"
        "  because  x_scale is a finite number or a tensor of float32",
    ),
    "a zero point of another type": (
        lambda: ops.dense_quantized(L, J, 0.1, 0.1, w_zero=ROW),
        "dense_quantized: cannot take w_zero of float32\n"
        "  at       R: float32[40]\n"
        "  because  w_zero is of int32",
    ),
    "a scale by column for rows": (
        lambda: ops.dense_quantized(L, J, ROW, 0.1),
        "dense_quantized: cannot take x_scale with 1 axis\n"
        "  at       R: float32[40]\n"
        "  because  x_scale has 0 axes",
    ),
    "a vector in a product": (
        lambda: ops.matmul(A, ROW),
        "matmul: cannot take b with 1 axis\n"
        "  at       R: float32[40]\n"
        "  because  b has at least 2 axes",
    ),
    "batches that differ": (
        lambda: ops.matmul(given("P", b, n, 24), given("S", h, 24, m)),
        "matmul: cannot pair P with S\n"
        "  at       P: float32[b, n, 24] and S: float32[h, 24, m]\n"
        "  because  leading axes of b and h are neither equal nor 1\n"
        f"{ONE_SIZE}",
    ),
    "keys of another type": (
        lambda: ops.attention(Q, given("K", b, 2, m, 8, dtype="float16"), K),
        "attention: cannot take k of float16\n"
        "  at       K: float16[b, 2, m, 8]\n"
        "  because  k is of float32",
    ),
    "values of another length": (
        lambda: ops.attention(Q, K, given("V", b, 2, n, 8)),
        "attention: cannot pair K with V\n"
        "  at       K: float32[b, 2, m, 8] and V: float32[b, 2, n, 8]\n"
        "  because  axis 2 of K is m, axis 2 of V is n\n"
        f"{ONE_SIZE}",
    ),
    "a mask that does not spread": (
        lambda: ops.attention(Q, K, K, given("M", b, m)),
        "attention: cannot spread the mask over the scores\n"
        "  at       M: float32[b, m]\n"
        "  because  the scores have the shape (b, 2, n, m)\n"
        "  help     axes of the mask are those of the scores, or the literal 1",
    ),
    "a scale of a symbolic depth": (
        lambda: ops.attention(given("Q", n, h), given("K", m, h), given("V", m, 8)),
        "attention: cannot choose the scale\n"
        "  at       Q: float32[n, h]\n"
        "  because  1/sqrt(d) wants an int above 0, and d is h\n"
        "  help     scale=0.125",
    ),
    "softmax of integers": (
        lambda: ops.softmax(L),
        f"softmax: cannot take x of int8\n  at       L: int8[n, 24]\n  because  x is of {FLOATS}",
    ),
    "an axis that is not there": (
        lambda: ops.log_softmax(A, 2),
        "log_softmax: cannot take axis=2\n"
        "  at       A: float32[n, 24]\n"
        "  because  the axes of A are -2…1",
    ),
    "an axis of a tensor without axes": (
        lambda: ops.sum(given("S"), 0),
        "sum: cannot take axis=0\n  at       S: float32[]\n  because  S has no axis",
    ),
    "an axis twice": (
        lambda: ops.mean(A, (1, -1)),
        "mean: cannot take axis=(1, -1)\n"
        "  at       A: float32[n, 24]\n"
        "  because  an axis is named twice",
    ),
    "a gain of another length": (
        lambda: ops.layernorm(A, ROW),
        "layernorm: cannot take gain of shape (40,)\n"
        "  at       R: float32[40]\n"
        "  because  gain has the shape (24,)",
    ),
    "a negative epsilon": (
        lambda: ops.rmsnorm(A, epsilon=-1.0),
        "rmsnorm: cannot take epsilon=-1.0\n"
        "  because  it is added to a variance: a finite number of at least 0\n"
        "  help     epsilon=1e-5",
    ),
    "statistics of other channels": (
        lambda: ops.batchnorm(X, ROW, ROW),
        "batchnorm: cannot take mean of shape (40,)\n"
        "  at       R: float32[40]\n"
        "  because  mean has the shape (6,)",
    ),
    "an unknown layout": (
        lambda: ops.conv2d(X, F, layout="CHWN"),
        "conv2d: cannot take layout='CHWN'\n  because  layouts are NCHW, NHWC",
    ),
    "a layout of two spatial axes for one": (
        lambda: ops.conv1d(given("S", b, 6, h), given("F", 4, 6, 3), layout="NCHW"),
        "conv1d: cannot take layout='NCHW'\n  because  layouts are NCW, NWC",
    ),
    "an image of the wrong rank": (
        lambda: ops.conv2d(given("S", b, 6, h), F),
        "conv2d: cannot take x with 3 axes\n"
        "  at       S: float32[b, 6, h]\n"
        "  because  x has 4 axes",
    ),
    "channels that differ": (
        lambda: ops.conv2d(X, G),
        "conv2d: cannot pair X with F\n".replace("F", "G")
        + "  at       X: float32[b, 6, h, h] and G: float32[4, 2, 3, 3]\n"
        "  because  x has 6 channels, and w 2",
    ),
    "groups that do not divide the input": (
        lambda: ops.conv2d(X, G, groups=4),
        "conv2d: cannot take groups=4\n"
        "  at       X: float32[b, 6, h, h] and G: float32[4, 2, 3, 3]\n"
        "  because  4 does not divide the 6 input channels",
    ),
    "groups that do not divide the output": (
        lambda: ops.conv2d(X, G, groups=3),
        "conv2d: cannot take groups=3\n"
        "  at       X: float32[b, 6, h, h] and G: float32[4, 2, 3, 3]\n"
        "  because  3 does not divide the 4 output channels",
    ),
    "channels of a group that differ": (
        lambda: ops.conv2d(X, G, groups=2),
        "conv2d: cannot pair X with G\n"
        "  at       X: float32[b, 6, h, h] and G: float32[4, 2, 3, 3]\n"
        "  because  6 channels in 2 groups are 3 each, and w has 2",
    ),
    "groups that are no number": (
        lambda: ops.conv2d(X, F, groups=0),
        "conv2d: cannot take groups=0\n  because  groups is an int of at least 1",
    ),
    "a stride of nothing": (
        lambda: ops.conv2d(X, F, stride=0),
        "conv2d: cannot take stride=0\n  because  stride is an int of at least 1, or one for each of the 2 axes",
    ),
    "three dilations": (
        lambda: ops.conv2d(X, F, dilation=(1, 2, 3)),
        "conv2d: cannot take dilation=(1, 2, 3)\n  because  dilation is an int of at least 1, or one for each of the 2 axes",
    ),
    "a padding in words": (
        lambda: ops.conv2d(X, F, padding="valid"),
        "conv2d: cannot take padding='valid'\n"
        '  because  padding is "same", an int, one for each spatial axis, or (before, after) for each\n'
        "  help     padding=1\n"
        '  help     padding="same"',
    ),
    "a window of symbolic extent": (
        lambda: ops.conv2d(X, given("F", 4, 6, n, 3)),
        "conv2d: cannot take a window of n\n"
        "  at       F: float32[4, 6, n, 3]\n"
        "  because  the spatial extents of w are ints, at least 1",
    ),
    "a window longer than the image": (
        lambda: ops.conv2d(given("S", b, 6, 1, 1), F),
        "conv2d: cannot place a window of 3\n"
        "  at       spatial axis 0 of 1 elements, padding (0, 0)\n"
        "  because  it is longer than the 1 elements\n"
        "  help     a larger padding",
    ),
    "same padding under a stride beyond the window": (
        lambda: ops.max_pool2d(X, 3, 4, "same"),
        'max_pool2d: cannot take padding="same"\n'
        "  at       a spatial axis of h elements\n"
        "  because  a stride of 4 beyond a window of 3 wants no affine padding\n"
        "  help     padding=((before, after), …)",
    ),
    "the mean of integers in windows": (
        lambda: ops.avg_pool2d(given("S", b, 6, h, h, dtype="int8"), 2),
        "avg_pool2d: cannot take x of int8\n"
        "  at       S: int8[b, 6, h, h]\n"
        f"  because  x is of {FLOATS}",
    ),
    "no permutation": (
        lambda: ops.transpose(A, (0, 0)),
        "transpose: cannot take axes=(0, 0)\n"
        "  at       A: float32[n, 24]\n"
        "  because  it is not a permutation of the 2 axes",
    ),
    "nothing to join": (
        lambda: ops.concat([]),
        "concat: cannot join []\n"
        "  because  tensors is a tuple or a list of at least one\n"
        "  help     concat([A, B], axis=1)",
    ),
    "tensors that differ beside the axis": (
        lambda: ops.concat([A, W]),
        "concat: cannot join A and W\n"
        "  at       A: float32[n, 24] and W: float32[24, 40]\n"
        "  because  axis 1 is 24 in one and 40 in the other",
    ),
    "tensors of two types": (
        lambda: ops.concat([A, L]),
        "concat: cannot take tensors[1] of int8\n"
        "  at       L: int8[n, 24]\n"
        "  because  tensors[1] is of float32",
    ),
    "windows of no element": (
        lambda: ops.sliding_windows(A, 1, 0),
        "sliding_windows: cannot take size=0\n  because  size is an int of at least 1",
    ),
    "windows that do not move on": (
        lambda: ops.sliding_windows(A, 1, 2, step=1.5),  # type: ignore[arg-type]
        "sliding_windows: cannot take step=1.5\n  because  step is an int of at least 1",
    ),
    "a split that leaves a rest": (
        lambda: ops.split_axis(A, 1, 5),
        "split_axis: cannot split axis 1 by 5\n"
        "  at       A: float32[n, 24]\n"
        "  because  it is not an int that divides 24",
    ),
    "a symbolic split that may leave a rest": (
        lambda: ops.split_axis(A, 0, 8),
        "split_axis: cannot split axis 0 by 8\n"
        "  at       A: float32[n, 24]\n"
        "  because  it is not an int that divides n\n"
        '  help     dim("n", multiple_of=8)',
    ),
    "an axis without a next": (
        lambda: ops.merge_axes(A, 1),
        "merge_axes: cannot merge axis 1 with the next\n"
        "  at       A: float32[n, 24]\n"
        "  because  there is none",
    ),
    "an axis before a symbolic one": (
        lambda: ops.merge_axes(Q, 1),
        "merge_axes: cannot merge axis 1 with the next\n"
        "  at       Q: float32[b, 2, n, 8]\n"
        "  because  the next has the extent n, which is not an int",
    ),
    "ids that are floats": (
        lambda: ops.embedding(W, given("S", n)),
        "embedding: cannot take ids of float32\n"
        "  at       S: float32[n]\n"
        "  because  ids is of int64, int32",
    ),
    "quantizing to floats": (
        lambda: ops.quantize(A, 0.1, dtype="float16"),
        "quantize: cannot give 'float16'\n  because  it gives int8 or uint8",
    ),
    "dequantizing to integers": (
        lambda: ops.dequantize(L, 0.1, dtype="int32"),
        "dequantize: cannot give 'int32'\n  because  it gives floats",
    ),
    "requantizing to int32": (
        lambda: ops.requantize(given("T", n, dtype="int32"), 3, "int32"),
        "requantize: cannot give 'int32'\n  because  it gives int8 or uint8",
    ),
    "requantizing by more bits than there are": (
        lambda: ops.requantize(given("T", n, dtype="int32"), 31),
        "requantize: cannot take shift=31\n  because  shift is an int in 0…30",
    ),
    "requantizing to what the type has not": (
        lambda: ops.requantize(given("T", n, dtype="int32"), 3, "uint8", -1),
        "requantize: cannot take low=-1\n  because  low is an int in 0…255",
    ),
    "requantizing small integers": (
        lambda: ops.requantize(L, 3),
        "requantize: cannot take x of int8\n  at       L: int8[n, 24]\n  because  x is of int32",
    ),
    "a zero point that is a float": (
        lambda: ops.quantize(A, 0.1, 0.5),  # type: ignore[arg-type]
        "quantize: cannot take zero=0.5\n"
        "  because  zero is an int that int32 holds or a tensor of int32",
    ),
    "scales of another extent": (
        lambda: ops.dequantize(L, ROW),
        "dequantize: cannot take scale of shape (40,)\n"
        "  at       R: float32[40]\n"
        "  because  scale has the shape (24,)",
    ),
    "a boolean that is None": (
        lambda: ops.matmul(A, W, None),  # type: ignore[arg-type]
        "matmul: cannot take transpose_a=None\n  because  transpose_a is True or False",
    ),
    "an element type where a boolean is": (
        lambda: ops.matmul(A, W, False, "float32"),  # type: ignore[arg-type]
        "matmul: cannot take transpose_b='float32'\n  because  transpose_b is True or False",
    ),
    "a boolean that is a number": (
        lambda: ops.attention(Q, K, K, causal=2),  # type: ignore[arg-type]
        "attention: cannot take causal=2\n  because  causal is True or False",
    ),
    "a boolean that is an array": (
        lambda: ops.max(A, 0, np.zeros(2)),  # type: ignore[arg-type]
        "max: cannot take keepdims=array([0., 0.])\n  because  keepdims is True or False",
    ),
    "a pooled image's boolean that is None": (
        lambda: ops.global_avg_pool(X, "NHWC", None),  # type: ignore[arg-type]
        "global_avg_pool: cannot take keepdims=None\n  because  keepdims is True or False",
    ),
    "a layout where a boolean is": (
        lambda: ops.avg_pool2d(X, 2, 2, 0, "NHWC"),  # type: ignore[arg-type]
        "avg_pool2d: cannot take count_include_pad='NHWC'\n"
        "  because  count_include_pad is True or False",
    ),
    "transposed weights that are a number": (
        lambda: ops.dense(A, W, transpose_w=1),  # type: ignore[arg-type]
        "dense: cannot take transpose_w=1\n  because  transpose_w is True or False",
    ),
    "transposed quantized weights that are a word": (
        lambda: ops.dense_quantized(L, J, 0.1, 0.1, transpose_w="no"),  # type: ignore[arg-type]
        "dense_quantized: cannot take transpose_w='no'\n  because  transpose_w is True or False",
    ),
    "a layout that is an array": (
        lambda: ops.max_pool2d(X, 2, layout=np.zeros(2)),  # type: ignore[arg-type]
        "max_pool2d: cannot take layout=array([0., 0.])\n  because  layouts are NCHW, NHWC",
    ),
    "an element type that is an array": (
        lambda: ops.matmul(A, W, dtype=np.zeros(2)),  # type: ignore[arg-type]
        "matmul: cannot give array([0., 0.])\n"
        "  at       argument dtype\n"
        "  because  element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool",
    ),
    "quantizing to an array": (
        lambda: ops.quantize(A, 0.1, dtype=np.zeros(2)),  # type: ignore[arg-type]
        "quantize: cannot give array([0., 0.])\n  because  it gives int8 or uint8",
    ),
    "quantizing by a negative scale": (
        lambda: ops.quantize(A, -1.0),
        "quantize: cannot take scale=-1.0\n"
        "  because  scale is a finite number above 0 or a tensor of float32",
    ),
    "quantizing by nothing": (
        lambda: ops.quantize(A, 0),
        "quantize: cannot take scale=0\n"
        "  because  scale is a finite number above 0 or a tensor of float32",
    ),
    "quantizing by what is nothing in float32": (
        lambda: ops.quantize(A, 1e-60),
        "quantize: cannot take scale=1e-60\n"
        "  because  scale is a finite number above 0 or a tensor of float32",
    ),
    "quantizing by no number": (
        lambda: ops.quantize(A, float("nan")),
        "quantize: cannot take scale=nan\n"
        "  because  scale is a finite number above 0 or a tensor of float32",
    ),
    "dequantizing by infinity": (
        lambda: ops.dequantize(L, float("inf")),
        "dequantize: cannot take scale=inf\n"
        "  because  scale is a finite number or a tensor of float32",
    ),
    "a zero point beyond int32": (
        lambda: ops.dequantize(L, 0.1, 2**31),
        "dequantize: cannot take zero=2147483648\n"
        "  because  zero is an int that int32 holds or a tensor of int32",
    ),
    "a dense layer of integers that gives integers": (
        lambda: ops.dense_quantized(L, J, 0.1, 0.1, dtype="int32"),
        "dense_quantized: cannot give 'int32'\n  because  it gives floats",
    ),
    "a scale of scores that is an element": (
        lambda: ops.attention(Q, K, K, scale=A[0, 0]),  # type: ignore[arg-type]
        "attention: cannot take scale=A[0, 0]\n"
        "  because  scale is a finite number\n"
        "  help     scale=0.125",
    ),
    "an infinite epsilon": (
        lambda: ops.layernorm(A, epsilon=float("inf")),
        "layernorm: cannot take epsilon=inf\n"
        "  because  it is added to a variance: a finite number of at least 0\n"
        "  help     epsilon=1e-5",
    ),
    "axes of which one is not there": (
        lambda: ops.transpose(A, np.array([1, 2])),  # type: ignore[arg-type]
        "transpose: cannot take axes=array([1, 2])\n"
        "  at       A: float32[n, 24]\n"
        "  because  the axes of A are -2…1",
    ),
    "an axis that is a boolean": (
        lambda: ops.sum(A, np.True_),  # type: ignore[arg-type]
        "sum: cannot take axis=np.True_\n"
        "  at       A: float32[n, 24]\n"
        "  because  the axes of A are -2…1",
    ),
    "a window that is a boolean": (
        lambda: ops.max_pool2d(X, True),
        "max_pool2d: cannot take window=True\n  because  window is an int of at least 1, or one for each of the 2 axes",
    ),
    "the element before the first": (
        lambda: ops.kth(A, 0),
        "kth: cannot take k=0\n"
        "  because  k is an int of at least 1 or an expression in sizes, or of the least "
        '"median" or "nanmedian"',
    ),
    "the k-th by a size of another": (
        lambda: ops.kth(A, m),
        "kth: cannot take k=m\n  at       A: float32[n, 24]\n  because  it has no axis that says m",
    ),
    "the last of other lines": (
        lambda: ops.leading(A, given("L", n, 1), given("P", n, 2, dtype="int64"), 3),
        "leading: cannot take place of shape (n, 2)\n"
        "  at       P: int64[n, 2]\n"
        "  because  place has the shape (n, 1)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_says_what_was_refused_where_and_why(case: str) -> None:
    describe, text = REFUSED[case]
    with rejection(f"DescribeError: {text}"):
        describe()


@pytest.mark.parametrize(
    "describe",
    [
        lambda: ops.dense(A, W, given("B", 40, dtype="bfloat16"), "silu", given("S", n, 40)),
        lambda: ops.dense(L, J, given("B", 40, dtype="int32"), "relu"),
        lambda: ops.dense_quantized(L, J, 0.1, ROW),
        lambda: ops.matmul(given("P", 1, n, 24), given("S", h, 24, m)),
        lambda: ops.attention(Q, K, K, given("M", m)),
        lambda: ops.attention(given("Q", n, h), given("K", m, h), given("V", m, 8), scale=1.0),
        lambda: ops.conv2d(X, given("F", 4, 3, 3, 3), padding=[(0, 1), (1, 0)], groups=2),
        lambda: ops.max_pool2d(X, 3, 3, "same"),
        lambda: ops.split_axis(A, 1, 6),
        lambda: ops.merge_axes(Q, 0),
        lambda: ops.sum(given("S"), ()),
        lambda: ops.quantize(A, 1e-40),
        lambda: ops.dequantize(L, -0.5, -(2**31)),
        lambda: ops.quantize(given("S"), 0.5),
    ],
)
def test_what_is_next_to_a_refusal_is_accepted(describe: Callable[[], Any]) -> None:
    assert describe().shape is not None


NUMPYS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "booleans": (
        lambda: ops.matmul(W, W, np.bool_(False), np.bool_(True)),  # type: ignore[arg-type]
        lambda: ops.matmul(W, W, False, True),
    ),
    "a mask": (
        lambda: ops.attention(Q, K, K, scale=np.float32(0.5), causal=np.True_),  # type: ignore[arg-type]
        lambda: ops.attention(Q, K, K, scale=0.5, causal=True),
    ),
    "an axis": (lambda: ops.sum(A, np.int64(0)), lambda: ops.sum(A, 0)),
    "axes": (lambda: ops.sum(A, np.array([1, 0])), lambda: ops.sum(A, (0, 1))),  # type: ignore[arg-type]
    "a permutation": (
        lambda: ops.transpose(A, np.argsort([1, 0])),  # type: ignore[arg-type]
        lambda: ops.transpose(A, (1, 0)),
    ),
    "a window": (
        lambda: ops.max_pool2d(X, np.int64(2), np.array([1, 2]), np.array([[0, 1], [1, 0]])),  # type: ignore[arg-type]
        lambda: ops.max_pool2d(X, 2, (1, 2), ((0, 1), (1, 0))),
    ),
    "groups": (
        lambda: ops.conv2d(X, given("F", 4, 3, 3, 3), groups=np.int64(2)),  # type: ignore[arg-type]
        lambda: ops.conv2d(X, given("F", 4, 3, 3, 3), groups=2),
    ),
    "a split": (
        lambda: ops.split_axis(A, np.int8(1), np.int64(2)),  # type: ignore[arg-type]
        lambda: ops.split_axis(A, 1, 2),
    ),
    "a scale and a zero point": (
        lambda: ops.quantize(A, np.float32(0.5), np.int64(3)),  # type: ignore[arg-type]
        lambda: ops.quantize(A, 0.5, 3),
    ),
    "an epsilon": (
        lambda: ops.rmsnorm(A, epsilon=np.float32(0.5)),  # type: ignore[arg-type]
        lambda: ops.rmsnorm(A, epsilon=0.5),
    ),
}


@pytest.mark.parametrize("case", NUMPYS)
def test_scalars_of_numpy_mean_what_those_of_python_mean(case: str) -> None:
    numpys, pythons = (describe() for describe in NUMPYS[case])
    assert repr(numpys) == repr(pythons)
    assert numpys.definition.body == pythons.definition.body
