"""Operators as functions of tensors that give tensors, of any symbolic sizes.

Each is a plain expression, written with the words that any user has (`compute`, `sum`, `where`,
`cast`, `index` and others): the compiler knows no operator by name. Placeholders and computed tensors are taken alike,
so that operators chain into one program.

``name=`` names the result. By default the name is made of the operator, its operands and the options
that are not at their defaults, so that two calls in one program have two names unless they are the
same call of the same operands (or names of operands read alike once they are joined: ``A_B, C`` and
``A, B_C``); make such a tensor once, or name one of the two. Tensors inside an operator are called
``{name}_…``. Integers, numbers and booleans may be numpy's.

`lstm`, `gru` and `rnn` give a loop program, which `offcut.compile` takes, and graphs.
"""

from typing import TYPE_CHECKING, NoReturn

from offcut.core.function_table import PUBLIC
from offcut.core.nearest import meant
from offcut.ops.elementwise import functions as _functions
from offcut.ops.elementwise.activation import (
    elu,
    gelu,
    gelu_tanh,
    hardsigmoid,
    hardswish,
    leaky_relu,
    relu,
    relu6,
    sigmoid,
    silu,
    softplus,
)
from offcut.ops.elementwise.arithmetic import (
    add,
    divide,
    floor_divide,
    maximum,
    minimum,
    multiply,
    remainder,
    subtract,
)
from offcut.ops.elementwise.bits import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    shift_left,
    shift_right,
)
from offcut.ops.elementwise.conditions import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    where,
)
from offcut.ops.elementwise.functions import (
    cast,
    clip,
    negative,
    reciprocal,
    rsqrt,
    sign,
    square,
)
from offcut.ops.elementwise.powers import power
from offcut.ops.elementwise.quantization import dequantize, quantize, requantize
from offcut.ops.images.adaptive import adaptive_avg_pool2d, adaptive_max_pool2d
from offcut.ops.images.convolution import conv1d, conv2d, conv3d
from offcut.ops.images.folding import fold
from offcut.ops.images.pooling import (
    avg_pool2d,
    global_avg_pool,
    max_pool2d,
    max_pool2d_with_places,
)
from offcut.ops.images.resizing import interpolate
from offcut.ops.images.transposed import conv_transpose2d, conv_transpose3d
from offcut.ops.order.ranking import argmax, argmin, sort, topk
from offcut.ops.order.wide_axes import leading, merged
from offcut.ops.products.attention import attention
from offcut.ops.products.dense import dense, dense_quantized
from offcut.ops.products.grouped import grouped_matmul
from offcut.ops.products.matmul import matmul
from offcut.ops.programs.accumulating import accumulated
from offcut.ops.programs.integer_power import integer_power
from offcut.ops.programs.scattering import scatter_elements, scatter_nd
from offcut.ops.rearranging.arrangement import concat, merge_axes, split_axis, transpose
from offcut.ops.rearranging.copies import flip, repeat
from offcut.ops.rearranging.counting import iota, one_hot
from offcut.ops.rearranging.lookup import embedding
from offcut.ops.rearranging.padding import pad
from offcut.ops.rearranging.selection import take, take_along_axis
from offcut.ops.recurrent import gru, lstm, rnn
from offcut.ops.reductions.groups import groupnorm, instancenorm
from offcut.ops.reductions.normalization import batchnorm, layernorm, rmsnorm
from offcut.ops.reductions.reduction import max, mean, min, sum
from offcut.ops.reductions.scan import cummax, cummin, cumprod, cumsum
from offcut.ops.reductions.softmax import log_softmax, softmax

if TYPE_CHECKING:
    from offcut.core.functions import *  # noqa: F403 - a name for each row

__all__ = [
    "accumulated",
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "add",
    "argmax",
    "argmin",
    "attention",
    "avg_pool2d",
    "batchnorm",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cast",
    "clip",
    "concat",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "dense",
    "dense_quantized",
    "dequantize",
    "divide",
    "elu",
    "embedding",
    "equal",
    "flip",
    "floor_divide",
    "fold",
    "gelu",
    "gelu_tanh",
    "global_avg_pool",
    "greater",
    "greater_equal",
    "grouped_matmul",
    "groupnorm",
    "gru",
    "hardsigmoid",
    "hardswish",
    "instancenorm",
    "integer_power",
    "interpolate",
    "iota",
    "layernorm",
    "leading",
    "leaky_relu",
    "less",
    "less_equal",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lstm",
    "matmul",
    "max",
    "max_pool2d",
    "max_pool2d_with_places",
    "maximum",
    "mean",
    "merge_axes",
    "merged",
    "min",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "one_hot",
    "pad",
    "power",
    "quantize",
    "reciprocal",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "requantize",
    "rmsnorm",
    "rnn",
    "rsqrt",
    "scatter_elements",
    "scatter_nd",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sign",
    "silu",
    "softmax",
    "softplus",
    "sort",
    "split_axis",
    "square",
    "subtract",
    "sum",
    "take",
    "take_along_axis",
    "topk",
    "transpose",
    "where",
]
__all__ += PUBLIC
__all__.sort()
globals().update({face: getattr(_functions, face) for face in PUBLIC})


if not TYPE_CHECKING:  # a name that is not there is an error in an editor, too

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(f"module 'offcut.ops' has no attribute {name!r}{meant(name, __all__)}")
