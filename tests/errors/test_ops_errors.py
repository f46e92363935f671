"""Every refusal of an operator, word for word, beside what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import ops

n, m, b, h = oc.dim("n", max=64), oc.dim("m", max=64), oc.dim("b", max=64), oc.dim("h", max=64)


def given(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return oc.placeholder(shape, dtype, name)


A, W, V = given("A", n, 24), given("W", 24, 40), given("V", 25, 40)
B, Z, M = given("B", m, 24), given("Z", n, 24, dtype="int32"), given("M", n, 24, dtype="bool")
L, J = given("L", n, 24, dtype="int8"), given("J", 24, 40, dtype="int8")
Q, K = given("Q", b, 2, n, 8), given("K", b, 2, m, 8)
H, G4 = given("Q", b, 6, n, 8), given("K", b, 4, m, 8)
X, F, T = given("X", b, 6, h, h), given("F", 4, 6, 3, 3), given("F", 6, 4, 3, 3)
G = given("G", 4, 2, 3, 3)
IDS, ROW = given("I", m, dtype="int32"), given("R", 40)


def rows(sentence: str, page: str) -> dict[str, str]:
    """Return what one sentence refuses, by call.

    page   a call in each line, what of it is refused, the tensor where that is one, and what would be accepted
    """
    table = {}
    for line in page.strip().splitlines():
        call, what, *at, because = line.split(" | ")
        said = {"op": call.partition("(")[0], "what": what, "because": because}
        if at:
            dtype, _, shape = at[0].partition(": ")[2][:-1].partition("[")
            shape = shape if "," in shape else f"{shape},"
            said |= {"at": at[0], "dtype": dtype, "shape": shape}
        table[f"ops.{call}"] = sentence.format(**said)
    return table


SHAPES = rows(
    """\
{op}: cannot take {what} of shape ({shape})
  at       {at}
  because  {what} has the shape {because}""",
    """
dense(A, W, given('B', 41)) | bias | B: float32[41] | (40,)
dense(A, W, residual=given('S', m, 40)) | residual | S: float32[m, 40] | (n, 40)
dense_blockwise(A, J, given('S', 3, 41)) | scale | S: float32[3, 41] | (3, 40)
layernorm(A, ROW) | gain | R: float32[40] | (24,)
batchnorm(X, ROW, ROW) | mean | R: float32[40] | (6,)
dequantize(L, ROW) | scale | R: float32[40] | (24,)
leading(A, given('L', n, 1), given('P', n, 2, dtype='int64'), 3) | place | P: int64[n, 2] | (n, 1)
matmul(A, given('W', 24, 40), bias=given('B', 41)) | bias | B: float32[41] | (40,)
scatter_elements(A, given('J', m, 24, dtype='int32'), given('U', n, 24)) | updates | U: float32[n, 24] | (m, 24)
""",
)
TYPES = rows(
    """\
{op}: cannot take {what} of {dtype}
  at       {at}
  because  {what} is of {because}""",
    """
gelu(L) | x | L: int8[n, 24] | float64, float32, float16, bfloat16
dense(A, given('W', 24, 40, dtype='bfloat16')) | w | W: bfloat16[24, 40] | float32, int8
dense(L, J, given('B', 40)) | bias | B: float32[40] | int32, int16, int8, uint16, uint8
dense_quantized(A, J, 0.1, 0.1) | x | A: float32[n, 24] | int8, uint8
dense_quantized(L, J, 0.1, 0.1, w_zero=ROW) | w_zero | R: float32[40] | int32
attention(Q, given('K', b, 2, m, 8, dtype='float16'), K) | k | K: float16[b, 2, m, 8] | float32
avg_pool2d(given('S', b, 6, h, h, dtype='int8'), 2) | x | S: int8[b, 6, h, h] | float64, float32, float16, bfloat16
concat([A, L]) | tensors[1] | L: int8[n, 24] | float32
embedding(W, given('S', n)) | ids | S: float32[n] | int64, int32
requantize(L, 3) | x | L: int8[n, 24] | int32
sqrt(Z) | x | Z: int32[n, 24] | float64, float32, float16, bfloat16
add(M, True) | x | M: bool[n, 24] | float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8
where(A, A, A) | condition | A: float32[n, 24] | bool
pad(L, 1, 1, given('V', dtype='int32')) | value | V: int32[] | int8
one_hot(A, 3) | indices | A: float32[n, 24] | int64, int32, int16, int8, uint32, uint16, uint8
take(A, ROW) | indices | R: float32[40] | int64, int32, int16, int8, uint32, uint16, uint8
interpolate(given('S', b, 3, n, dtype='int8'), scale=2, mode='linear') | x | S: int8[b, 3, n] | float64, float32, float16, bfloat16
""",
)
VALUES = rows(
    "{op}: cannot take {what}\n  because  {because}",
    """
dense(A, W, activation='swish') | activation='swish' | activations are relu, relu6, gelu, gelu_tanh, silu, tanh, sigmoid, hardsigmoid, hardswish
dense_quantized(L, J, '1', 0.1) | x_scale='1' | x_scale is a finite number or a tensor of float32
conv2d(X, F, layout='CHWN') | layout='CHWN' | layouts are NCHW, NHWC
conv1d(given('S', b, 6, h), given('F', 4, 6, 3), layout='NCHW') | layout='NCHW' | layouts are NCW, NWC
conv2d(X, F, groups=0) | groups=0 | groups is an int of at least 1
conv2d(X, F, stride=0) | stride=0 | stride is an int of at least 1, or one for each of the 2 axes
conv2d(X, F, dilation=(1, 2, 3)) | dilation=(1, 2, 3) | dilation is an int of at least 1, or one for each of the 2 axes
sliding_windows(A, 1, 0) | size=0 | size is an int of at least 1
sliding_windows(A, 1, 2, step=1.5) | step=1.5 | step is an int of at least 1
requantize(given('T', n, dtype='int32'), 31) | shift=31 | shift is an int in 0…30
requantize(given('T', n, dtype='int32'), 3, 'uint8', -1) | low=-1 | low is an int in 0…255
quantize(A, 0.1, 0.5) | zero=0.5 | zero is an int that int32 holds or a tensor of int32
matmul(A, W, None) | transpose_a=None | transpose_a is True or False
matmul(A, W, False, 'float32') | transpose_b='float32' | transpose_b is True or False
attention(Q, K, K, causal=2) | causal=2 | causal is True or False
max(A, 0, np.zeros(2)) | keepdims=array([0., 0.]) | keepdims is True or False
global_avg_pool(X, 'NHWC', None) | keepdims=None | keepdims is True or False
avg_pool2d(X, 2, 2, 0, 'NHWC') | count_include_pad='NHWC' | count_include_pad is True or False
dense(A, W, transpose_w=1) | transpose_w=1 | transpose_w is True or False
dense_quantized(L, J, 0.1, 0.1, transpose_w='no') | transpose_w='no' | transpose_w is True or False
quantize(A, -1.0) | scale=-1.0 | scale is a finite number above 0 or a tensor of float32
quantize(A, 1e-60) | scale=1e-60 | scale is a finite number above 0 or a tensor of float32
quantize(A, float('nan')) | scale=nan | scale is a finite number above 0 or a tensor of float32
dequantize(L, float('inf')) | scale=inf | scale is a finite number or a tensor of float32
dequantize(L, 0.1, 2 ** 31) | zero=2147483648 | zero is an int that int32 holds or a tensor of int32
max_pool2d(X, True) | window=True | window is an int of at least 1, or one for each of the 2 axes
kth(A, 0) | k=0 | k is an int of at least 1 or an expression in sizes, or of the least "median" or "nanmedian"
leaky_relu(A, float('inf')) | slope=inf | slope is a finite number
where(M, 1.5, 2, 'int32') | x=1.5 | it is not a value of int32
pad(A, (1, 2, 3), 0) | before=(1, 2, 3) | before is an int, or one for each of the 2 axes
pad(A, 1, 1, mode='wrap') | mode='wrap' | modes are constant, edge, reflect
pad(L, 1, 1, 0.5) | value=0.5 | value is a number that int8 holds
repeat(A, -1) | counts=-1 | counts is an int of at least 0, or one for each of the 2 axes
adaptive_avg_pool2d(X, 0) | size=0 | size is an int of at least 1, or one for each of the 2 axes
topk(A, -1) | k=-1 | k is an int of at least 0
conv_transpose2d(X, T, groups=0) | groups=0 | groups is an int of at least 1
interpolate(X, (1, 2, 3)) | size=(1, 2, 3) | there are 2 spatial axes
interpolate(X, scale=2, mode='area') | mode='area' | modes are nearest, linear, cubic
accumulated(A, reduction='add', places=True) | reduction='add' | reductions are max, min with places
accumulated(A, reduction='mean') | reduction='mean' | reductions are add, mul, max, min, logaddexp
interpolate(X, 2, layout='NWC') | layout='NWC' | layouts are NCHW, NHWC
attention(H, H, H, window=0) | window=0 | window is an int of at least 1
scatter_elements(A, given('J', m, 24, dtype='int32'), given('U', m, 24), reduction='mean') | reduction='mean' | reductions are add, mul, max, min, or None
""",
)
RESULTS = rows(
    "{op}: cannot give {what}\n  because  {because}",
    """
quantize(A, 0.1, dtype='float16') | 'float16' | it gives int8 or uint8
dequantize(L, 0.1, dtype='int32') | 'int32' | it gives floats
requantize(given('T', n, dtype='int32'), 3, 'int32') | 'int32' | it gives int8 or uint8
quantize(A, 0.1, dtype=np.zeros(2)) | array([0., 0.]) | it gives int8 or uint8
dense_quantized(L, J, 0.1, 0.1, dtype='int32') | 'int32' | it gives floats
""",
)
REFUSED = refusals(
    r"""
>>> ops.dense(A, ROW)
dense: cannot take w with 1 axis
  at       R: float32[40]
  because  w has 2 axes

>>> ops.dense_quantized(L, J, ROW, 0.1)
dense_quantized: cannot take x_scale with 1 axis
  at       R: float32[40]
  because  x_scale has 0 axes

>>> ops.matmul(A, ROW)
matmul: cannot take b with 1 axis
  at       R: float32[40]
  because  b has at least 2 axes

>>> ops.conv2d(given('S', b, 6, h), F)
conv2d: cannot take x with 3 axes
  at       S: float32[b, 6, h]
  because  x has 4 axes

>>> ops.take_along_axis(A, IDS, 0)
take_along_axis: cannot take indices with 1 axis
  at       I: int32[m]
  because  indices has 2 axes

>>> ops.argmax(given('S'))
argmax: cannot take x with 0 axes
  at       S: float32[]
  because  x has at least 1 axes

>>> ops.relu(3)
relu: cannot take x = 3
  because  it is not a tensor
  help     placeholder((n, 768), "float32", name="A")
  help     compute(…)

>>> ops.dense(L, J, activation='gelu')
dense: cannot take activation='gelu' of int32
  because  gelu is a function of floats
  help     activation="relu"
  help     dequantize(…) gives float32

>>> ops.dense(A, V)
dense: cannot pair A with V
  at       A: float32[n, 24] and V: float32[25, 40]
  because  axis 1 of A is 24, axis 0 of V is 25
  help     one size for both: a size is known by its name and facts

>>> ops.dense_blockwise(A, J, given('S', 5, 40))
dense_blockwise: cannot cut 24 terms into 5 blocks
  at       S: float32[5, 40]
  because  blocks have one int of terms each
  help     ops.pad(x, …) and zeros in w, up to a whole block

>>> ops.matmul(given('P', b, n, 24), given('S', h, 24, m))
matmul: cannot pair P with S
  at       P: float32[b, n, 24] and S: float32[h, 24, m]
  because  leading axes of b and h are neither equal nor 1
  help     one size for both: a size is known by its name and facts

>>> ops.attention(Q, K, given('V', b, 2, n, 8))
attention: cannot pair K with V
  at       K: float32[b, 2, m, 8] and V: float32[b, 2, n, 8]
  because  axis 2 of K is m, axis 2 of V is n
  help     one size for both: a size is known by its name and facts

>>> ops.attention(Q, K, K, given('M', b, m))
attention: cannot spread the mask over the scores
  at       M: float32[b, m]
  because  the scores have the shape (b, 2, n, m)
  help     axes of the mask are those of the scores, or the literal 1

>>> ops.attention(given('Q', n, h), given('K', m, h), given('V', m, 8))
attention: cannot choose the scale
  at       Q: float32[n, h]
  because  1/sqrt(d) wants an int above 0, and d is h
  help     scale=0.125

>>> ops.dense(A, W, dtype='half')
dense: cannot give 'half'
  at       argument dtype
  because  element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool

>>> ops.cumsum(A, 2)
cumsum: cannot take axis=2
  at       A: float32[n, 24]
  because  the axes of A are -2…1

>>> ops.attention(H, H, H, past=0.5)
attention: cannot take the size 0.5
  because  a size is an int or an expression in sizes made by dim
  help     n = dim("n"); (n, 768)

>>> ops.log_softmax(A, 2)
log_softmax: cannot take axis=2
  at       A: float32[n, 24]
  because  the axes of A are -2…1

>>> ops.sum(given('S'), 0)
sum: cannot take axis=0
  at       S: float32[]
  because  S has no axis

>>> ops.mean(A, (1, -1))
mean: cannot take axis=(1, -1)
  at       A: float32[n, 24]
  because  an axis is named twice

>>> ops.rmsnorm(A, epsilon=-1.0)
rmsnorm: cannot take epsilon=-1.0
  because  it is added to a variance: a finite number of at least 0
  help     epsilon=1e-5

>>> ops.conv2d(X, G)
conv2d: cannot pair X with G
  at       X: float32[b, 6, h, h] and G: float32[4, 2, 3, 3]
  because  x has 6 channels, and w 2

>>> ops.conv2d(X, G, groups=4)
conv2d: cannot take groups=4
  at       X: float32[b, 6, h, h] and G: float32[4, 2, 3, 3]
  because  4 does not divide the 6 input channels

>>> ops.conv2d(X, G, groups=3)
conv2d: cannot take groups=3
  at       X: float32[b, 6, h, h] and G: float32[4, 2, 3, 3]
  because  3 does not divide the 4 output channels

>>> ops.conv2d(X, G, groups=2)
conv2d: cannot pair X with G
  at       X: float32[b, 6, h, h] and G: float32[4, 2, 3, 3]
  because  6 channels in 2 groups are 3 each, and w has 2

>>> ops.conv2d(X, F, padding='valid')
conv2d: cannot take padding='valid'
  because  padding is "same", an int, one for each spatial axis, or (before, after) for each
  help     padding=1
  help     padding="same"

>>> ops.conv2d(X, given('F', 4, 6, n, 3))
conv2d: cannot take a window of n
  at       F: float32[4, 6, n, 3]
  because  the spatial extents of w are ints, at least 1

>>> ops.conv2d(given('S', b, 6, 1, 1), F)
conv2d: cannot place a window of 3
  at       spatial axis 0 of 1 elements, padding (0, 0)
  because  it is longer than the 1 elements
  help     a larger padding

>>> ops.max_pool2d(X, 3, 4, 'same')
max_pool2d: cannot take padding="same"
  at       a spatial axis of h elements
  because  a stride of 4 beyond a window of 3 wants no affine padding
  help     padding=((before, after), …)

>>> ops.transpose(A, (0, 0))
transpose: cannot take axes=(0, 0)
  at       A: float32[n, 24]
  because  it is not a permutation of the 2 axes

>>> ops.concat([])
concat: cannot join []
  because  tensors is a tuple or a list of at least one
  help     concat([A, B], axis=1)

>>> ops.concat([A, W])
concat: cannot join A and W
  at       A: float32[n, 24] and W: float32[24, 40]
  because  axis 1 is 24 in one and 40 in the other

>>> ops.split_axis(A, 1, 5)
split_axis: cannot split axis 1 by 5
  at       A: float32[n, 24]
  because  it is not an int that divides 24

>>> ops.split_axis(A, 0, 8)
split_axis: cannot split axis 0 by 8
  at       A: float32[n, 24]
  because  it is not an int that divides n
  help     dim("n", multiple_of=8)

>>> ops.merge_axes(A, 1)
merge_axes: cannot merge axis 1 with the next
  at       A: float32[n, 24]
  because  there is none

>>> ops.merge_axes(Q, 1)
merge_axes: cannot merge axis 1 with the next
  at       Q: float32[b, 2, n, 8]
  because  the next has the extent n, which is not an int

>>> ops.attention(Q, K, K, scale=A[0, 0])
attention: cannot take scale=A[0, 0]
  because  scale is a finite number
  help     scale=0.125

>>> ops.transpose(A, np.array([1, 2]))
transpose: cannot take axes=array([1, 2])
  at       A: float32[n, 24]
  because  the axes of A are -2…1

>>> ops.kth(A, m)
kth: cannot take k=m
  at       A: float32[n, 24]
  because  it has no axis that says m

>>> ops.add(1, 2.0)
add: cannot take x = 1 and y = 2.0
  because  none is a tensor
  help     placeholder((n, 768), "float32", name="A")
  help     compute(…)

>>> ops.multiply(A, B)
multiply: cannot join the shapes of A and B
  at       A: float32[n, 24] and B: float32[m, 24]
  because  axis 0 of A is n, axis 0 of B is m
  help     extents that are equal, or the literal 1

>>> ops.maximum(A, Z)
maximum: cannot pair float32 with int32
  at       A: float32[n, 24] and Z: int32[n, 24]
  because  operands are of one element type
  help     cast(Z, "float32")

>>> ops.add(Z, 0.5)
add: cannot take y=0.5
  at       Z: int32[n, 24]
  because  it is not a value of int32, and a number takes the element type of the tensor
  help     cast(Z, "float32")

>>> ops.subtract(2 ** 31, Z)
subtract: cannot take x=2147483648
  at       Z: int32[n, 24]
  because  it is not a value of int32, and a number takes the element type of the tensor

>>> ops.divide(Z, 2)
divide: cannot divide int32
  at       Z: int32[n, 24]
  because  the quotient of integers is a float
  help     floor_divide(x, y)
  help     cast(Z, "float32")

>>> ops.remainder(Z, 0)
remainder: cannot take y=0
  at       Z: int32[n, 24]
  because  there is no remainder by 0

>>> ops.power(Z, -1)
power: cannot take y=-1
  at       Z: int32[n, 24]
  because  the exponent of integers is a whole number from 0 to 64
  help     cast(x, "float32") takes any exponent

>>> oc.compute((n,), lambda i: oc.power(Z[i, 0], 0.5))
compute: cannot take the power of Z[i, 0] and 0.5
  because  the exponent of integers is a whole number from 0 to 64
  help     cast(x, "float32") takes any exponent

>>> oc.compute((n,), lambda i: oc.power(M[i, 0], True))
compute: cannot take the power of bool M[i, 0]
  because  power is of elements that are numbers

>>> oc.power(2.0, 3)
compute: cannot take the power of 2.0 and 3
  because  neither is an expression

>>> oc.compute((n,), lambda i: oc.sin(Z[i, 0]))
compute: cannot take sin of int32 Z[i, 0]
  because  sin is for float elements

>>> ops.clip(A)
clip: cannot do without low and high
  at       A: float32[n, 24]
  because  neither end is given

>>> ops.clip(A, low=float('nan'))
clip: cannot take low=nan
  at       A: float32[n, 24]
  because  NaN is not an end

>>> ops.cast(A, 'float8')
cast: cannot give 'float8'
  at       argument dtype
  because  element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool

>>> ops.where(M, 1, 2.0)
where: cannot tell the element type of 1 and 2.0
  because  neither is a tensor
  help     dtype="float32"

>>> ops.where(M, A, 0, 'float16')
where: cannot give 'float16'
  because  it chooses between elements of float32
  help     cast(…, "float16")

>>> oc.compute((n,), lambda i: M[i, 0] < M[i, 1])
compute: cannot take M[i, 0] < M[i, 1]
  because  conditions are equal or not, and have no order
  help     a & b, a | b, ~a join conditions

>>> oc.compute((n,), lambda i: oc.maximum(M[i, 0], True))
compute: cannot take maximum of M[i, 0] and true
  because  they are conditions
  help     a | b is the larger of two conditions, a & b the smaller

>>> oc.compute((n,), lambda i: M[i, 0] == 1)
compute: cannot take bool == int
  at       M[i, 0]
  because  arithmetic is between equal element types
  help     cast(x, "float32") converts, explicitly

>>> oc.compute((n,), lambda i: -M[i, 0])
compute: cannot take neg of bool M[i, 0]
  because  neg is for float elements

>>> oc.compute((n, 24), lambda i, j: Z[i, j] % Z[i, j])
compute: cannot take Z[i, j] % Z[i, j]
  because  // and % floor integers, by a positive constant
  help     maximum(b, 1) of elements is positive, too

>>> ops.pad(A, 0, (0, -25))
pad: cannot leave out 25 elements
  at       axis 1 of A: float32[n, 24]
  because  it has 24

>>> ops.repeat(given('S', n, m), 20)
repeat: cannot take counts=20
  at       S: float32[n, m]
  because  400 ranges of symbolic extents are more than 256
  help     a tensor of one more axis: compute((c, n), lambda t, i: X[i])

>>> ops.groupnorm(X, 4)
groupnorm: cannot take groups=4
  at       X: float32[b, 6, h, h]
  because  it is not an int above 0 that divides the 6 channels

>>> ops.instancenorm(X, axis=0)
instancenorm: cannot take axis=0
  at       X: float32[b, 6, h, h]
  because  samples are axis 0

>>> ops.take_along_axis(A, given('J', m, 5, dtype='int32'), 1)
take_along_axis: cannot pair A with J
  at       A: float32[n, 24] and J: int32[m, 5]
  because  axis 0 is n in one and m in the other
  help     one size for both: a size is known by its name and facts

>>> ops.topk(oc.placeholder((4,), name='four'), 6)
topk: cannot take k=6
  at       axis 0 of four: float32[4]
  because  it has 4 elements at every size
  help     k=4

>>> ops.conv_transpose2d(X, T, groups=4)
conv_transpose2d: cannot take groups=4
  at       X: float32[b, 6, h, h] and F: float32[6, 4, 3, 3]
  because  4 does not divide the 6 input channels

>>> ops.conv_transpose2d(X, given('F', 5, 4, 3, 3))
conv_transpose2d: cannot pair X with F
  at       X: float32[b, 6, h, h] and F: float32[5, 4, 3, 3]
  because  x has 6 channels, and w 5

>>> ops.interpolate(X)
interpolate: cannot tell the size of the result
  because  either size or scale is given
  help     scale=2
  help     size=(64, 48)

>>> ops.interpolate(X, scale=0.123456789)
interpolate: cannot take scale=0.123456789
  because  a scale is a fraction above 0 with a denominator of at most 4096
  help     size=(…), an expression in sizes

>>> ops.fold(given('S', b, 3, 2, 2, n, n), n)
fold: cannot take size=n
  because  there are one to three spatial axes
  help     size=(h, w)

>>> ops.attention(H, G4, G4)
attention: cannot pair Q with K
  at       Q: float32[b, 6, n, 8] and K: float32[b, 4, m, 8]
  because  the 6 heads of one are not a multiple of the 4 of the other
  help     ints, or one size for both: a size is known by its name and facts

>>> ops.scatter_nd(A, given('J', m, 3, dtype='int32'), given('U', m))
scatter_nd: cannot take indices of 3 columns
  at       J: int32[m, 3]
  because  they are an int from 1 to the 2 axes of A
""",
    globals(),
)
SENTENCES = SHAPES | TYPES | VALUES | RESULTS


@pytest.mark.parametrize("call", SENTENCES)
def test_what_does_not_fit_an_operator_is_refused(call: str) -> None:
    with rejection(f"DescribeError: {SENTENCES[call]}"):
        eval(call, globals())


@pytest.mark.parametrize(("describe", "text"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_says_what_was_refused_where_and_why(
    describe: Callable[[], Any], text: str
) -> None:
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
        lambda: ops.pad(L, (0, -1), 2, 1.0, "reflect"),
        lambda: ops.pad(A, 0, (0, -24)),
        lambda: ops.repeat(given("S", n, m), 16),
        lambda: ops.iota(2 * n + 1, "uint8"),
        lambda: ops.one_hot(IDS, 2 * n + 1),
        lambda: ops.groupnorm(X, 3),
        lambda: ops.instancenorm(given("S", b, h, n), axis=-1),
        lambda: ops.take(ROW, given("J", dtype="uint8")),
        lambda: ops.take_along_axis(A, given("J", 1, m, dtype="int8"), 1),
        lambda: ops.topk(A, 0),
        lambda: ops.conv_transpose2d(X, T, stride=3, groups=2),
        lambda: ops.interpolate(given("S", b, n, 6), 2 * n + 1, layout="NWC"),
        lambda: ops.interpolate(X, scale=1 / 3),
    ],
)
def test_what_is_next_to_a_refusal_is_accepted(describe: Callable[[], Any]) -> None:
    made = describe()
    assert all(one.shape is not None for one in (made if isinstance(made, tuple) else (made,)))


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


def test_names_tell_options_apart() -> None:
    made = [
        *(ops.pad(A, *widths) for widths in [(1, 0), (0, 1), (1, 0, 2.0), (1, 0, 0.0, "edge")]),
        *(ops.one_hot(IDS, depth) for depth in (n, 2 * n, 2 * n + 1)),
        *(
            ops.interpolate(X, **given)
            for given in ({"size": 2}, {"scale": 2}, {"scale": (1.5, 2)})
        ),
        *(ops.argmax(A, *options) for options in [(), (0,), (0, True)]),
        ops.iota(n),
        ops.iota(n, "int8"),
    ]
    assert len({tensor.name for tensor in made}) == len(made)
