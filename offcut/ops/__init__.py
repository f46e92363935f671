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
from offcut.core.names import suggestion
from offcut.ops.data_movement.arrangement import concat as concat
from offcut.ops.data_movement.arrangement import flip as flip
from offcut.ops.data_movement.arrangement import merge_axes as merge_axes
from offcut.ops.data_movement.arrangement import pad as pad
from offcut.ops.data_movement.arrangement import repeat as repeat
from offcut.ops.data_movement.arrangement import sliding_windows as sliding_windows
from offcut.ops.data_movement.arrangement import split_axis as split_axis
from offcut.ops.data_movement.arrangement import transpose as transpose
from offcut.ops.data_movement.indexing import embedding as embedding
from offcut.ops.data_movement.indexing import iota as iota
from offcut.ops.data_movement.indexing import one_hot as one_hot
from offcut.ops.data_movement.indexing import take as take
from offcut.ops.data_movement.indexing import take_along_axis as take_along_axis
from offcut.ops.elementwise import functions as _functions
from offcut.ops.elementwise.activation import elu as elu
from offcut.ops.elementwise.activation import gelu as gelu
from offcut.ops.elementwise.activation import gelu_tanh as gelu_tanh
from offcut.ops.elementwise.activation import hardsigmoid as hardsigmoid
from offcut.ops.elementwise.activation import hardswish as hardswish
from offcut.ops.elementwise.activation import leaky_relu as leaky_relu
from offcut.ops.elementwise.activation import relu as relu
from offcut.ops.elementwise.activation import relu6 as relu6
from offcut.ops.elementwise.activation import sigmoid as sigmoid
from offcut.ops.elementwise.activation import silu as silu
from offcut.ops.elementwise.activation import softplus as softplus
from offcut.ops.elementwise.arithmetic import add as add
from offcut.ops.elementwise.arithmetic import bitwise_and as bitwise_and
from offcut.ops.elementwise.arithmetic import bitwise_not as bitwise_not
from offcut.ops.elementwise.arithmetic import bitwise_or as bitwise_or
from offcut.ops.elementwise.arithmetic import bitwise_xor as bitwise_xor
from offcut.ops.elementwise.arithmetic import divide as divide
from offcut.ops.elementwise.arithmetic import equal as equal
from offcut.ops.elementwise.arithmetic import floor_divide as floor_divide
from offcut.ops.elementwise.arithmetic import greater as greater
from offcut.ops.elementwise.arithmetic import greater_equal as greater_equal
from offcut.ops.elementwise.arithmetic import less as less
from offcut.ops.elementwise.arithmetic import less_equal as less_equal
from offcut.ops.elementwise.arithmetic import logical_and as logical_and
from offcut.ops.elementwise.arithmetic import logical_not as logical_not
from offcut.ops.elementwise.arithmetic import logical_or as logical_or
from offcut.ops.elementwise.arithmetic import logical_xor as logical_xor
from offcut.ops.elementwise.arithmetic import maximum as maximum
from offcut.ops.elementwise.arithmetic import minimum as minimum
from offcut.ops.elementwise.arithmetic import multiply as multiply
from offcut.ops.elementwise.arithmetic import not_equal as not_equal
from offcut.ops.elementwise.arithmetic import power as power
from offcut.ops.elementwise.arithmetic import remainder as remainder
from offcut.ops.elementwise.arithmetic import shift_left as shift_left
from offcut.ops.elementwise.arithmetic import shift_right as shift_right
from offcut.ops.elementwise.arithmetic import subtract as subtract
from offcut.ops.elementwise.arithmetic import where as where
from offcut.ops.elementwise.functions import cast as cast
from offcut.ops.elementwise.functions import clip as clip
from offcut.ops.elementwise.functions import negative as negative
from offcut.ops.elementwise.functions import reciprocal as reciprocal
from offcut.ops.elementwise.functions import rsqrt as rsqrt
from offcut.ops.elementwise.functions import sign as sign
from offcut.ops.elementwise.functions import square as square
from offcut.ops.elementwise.quantization import dequantize as dequantize
from offcut.ops.elementwise.quantization import quantize as quantize
from offcut.ops.elementwise.quantization import requantize as requantize
from offcut.ops.images.convolution import conv1d as conv1d
from offcut.ops.images.convolution import conv2d as conv2d
from offcut.ops.images.convolution import conv3d as conv3d
from offcut.ops.images.pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from offcut.ops.images.pooling import adaptive_max_pool2d as adaptive_max_pool2d
from offcut.ops.images.pooling import avg_pool2d as avg_pool2d
from offcut.ops.images.pooling import global_avg_pool as global_avg_pool
from offcut.ops.images.pooling import max_pool2d as max_pool2d
from offcut.ops.images.pooling import max_pool2d_with_places as max_pool2d_with_places
from offcut.ops.images.resizing import grid_sample as grid_sample
from offcut.ops.images.resizing import interpolate as interpolate
from offcut.ops.images.transposed_convolution import conv_transpose2d as conv_transpose2d
from offcut.ops.images.transposed_convolution import conv_transpose3d as conv_transpose3d
from offcut.ops.images.window import fold as fold
from offcut.ops.images.window import unfold as unfold
from offcut.ops.loop_programs.accumulating import accumulated as accumulated
from offcut.ops.loop_programs.integer_power import integer_power as integer_power
from offcut.ops.loop_programs.scattering import scatter_elements as scatter_elements
from offcut.ops.loop_programs.scattering import scatter_nd as scatter_nd
from offcut.ops.products.attention import attention as attention
from offcut.ops.products.matmul import dense as dense
from offcut.ops.products.matmul import dense_blockwise as dense_blockwise
from offcut.ops.products.matmul import dense_quantized as dense_quantized
from offcut.ops.products.matmul import grouped_matmul as grouped_matmul
from offcut.ops.products.matmul import matmul as matmul
from offcut.ops.recurrent import gru as gru
from offcut.ops.recurrent import lstm as lstm
from offcut.ops.recurrent import rnn as rnn
from offcut.ops.reductions.normalization import batchnorm as batchnorm
from offcut.ops.reductions.normalization import groupnorm as groupnorm
from offcut.ops.reductions.normalization import instancenorm as instancenorm
from offcut.ops.reductions.normalization import layernorm as layernorm
from offcut.ops.reductions.normalization import log_softmax as log_softmax
from offcut.ops.reductions.normalization import rmsnorm as rmsnorm
from offcut.ops.reductions.normalization import softmax as softmax
from offcut.ops.reductions.reduction import max as max
from offcut.ops.reductions.reduction import mean as mean
from offcut.ops.reductions.reduction import min as min
from offcut.ops.reductions.reduction import sum as sum
from offcut.ops.reductions.scan import cummax as cummax
from offcut.ops.reductions.scan import cummin as cummin
from offcut.ops.reductions.scan import cumprod as cumprod
from offcut.ops.reductions.scan import cumsum as cumsum
from offcut.ops.sorting.merging import merged as merged
from offcut.ops.sorting.order_statistics import kth as kth
from offcut.ops.sorting.order_statistics import leading as leading
from offcut.ops.sorting.ranking import argmax as argmax
from offcut.ops.sorting.ranking import argmin as argmin
from offcut.ops.sorting.ranking import sort as sort
from offcut.ops.sorting.ranking import topk as topk

if TYPE_CHECKING:
    from offcut.core.functions import *  # noqa: F403 - a name for each row

globals().update({face: getattr(_functions, face) for face in PUBLIC})
_ABOVE = "offcut.ops."
__all__ = sorted(
    name for name, one in globals().items() if getattr(one, "__module__", "").startswith(_ABOVE)
)


if not TYPE_CHECKING:  # a name that is not there is an error in an editor, too

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(
            f"module 'offcut.ops' has no attribute {name!r}{suggestion(name, __all__)}"
        )
