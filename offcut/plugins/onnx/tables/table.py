"""What each operator of ONNX and of onnxruntime is; those that ONNX defines as functions need no entry.

Operators of onnxruntime, of the domain com.microsoft: what its quantizer and its optimizer write into files.

Source: onnxruntime, docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from offcut.graph.sizes.extent_values import product
from offcut.plugins.onnx.images.resizing import RESIZING
from offcut.plugins.onnx.images.sampling import SAMPLING
from offcut.plugins.onnx.images.windows import WINDOWS
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    KnownArray,
    Operand,
    Results,
    UnsupportedNode,
)
from offcut.plugins.onnx.rules.elementwise import (
    COMPOSED_FUNCTIONS,
    ELEMENTWISE,
    OF_ROWS,
    Operator,
    scalar,
)
from offcut.plugins.onnx.rules.indexing import INDEXING
from offcut.plugins.onnx.rules.products import (
    ATTENTION,
    PRODUCTS,
    SPECTRA,
    emit_matmul,
    grouped_attention,
)
from offcut.plugins.onnx.rules.recurrent import RECURRENT, layer, row
from offcut.plugins.onnx.rules.reductions import NORMALIZATION, REDUCTIONS, emit_reduction
from offcut.plugins.onnx.rules.sequences import SEQUENCES
from offcut.plugins.onnx.rules.shapes import SHAPES
from offcut.plugins.onnx.tables.quantization import (
    QUANTIZATION,
    emit_dequantize,
    emit_quantize,
    quantize_dynamically,
    scale_of_sums,
)

TABLE: Mapping[str, Operator] = {
    **ATTENTION,
    **ELEMENTWISE,
    **COMPOSED_FUNCTIONS,
    **INDEXING,
    **NORMALIZATION,
    **PRODUCTS,
    **QUANTIZATION,
    **RECURRENT,
    **REDUCTIONS,
    **RESIZING,
    **SAMPLING,
    **SEQUENCES,
    **SHAPES,
    **SPECTRA,
    **WINDOWS,
    **OF_ROWS,
}


def _real(g: Context, call: Call, place: int) -> Operand:
    """An operand that is followed by its scale and its zero point, as floats."""
    return emit_dequantize(g, call[place], call[place + 1], call.input(place + 2), 0)


def _between(inner: Operator, count: int = 1, plain: int = 0) -> Operator:
    """An operator of floats on small integers: quantized operands, each in three inputs, then scale and zero point of the result.

    plain  how many operands before them are none
    """

    def rule(g: Context, call: Call) -> Results:
        call.overlook("channels_last", "opset")
        if call.attributes.get("channels_last", 0):
            raise UnsupportedNode("channels_last=1", "channels_last=0")
        last = plain + 3 * count
        operands = [call[place] for place in range(plain)]
        operands += [_real(g, call, place) for place in range(plain, last, 3)]
        version = call.attributes.get("opset", call.version)
        result = inner(g, replace(call, inputs=tuple(operands), version=version))
        assert not isinstance(result, tuple)
        return emit_quantize(g, result, call[last], call.input(last + 1), g.dtype(call[plain]), 0)

    return rule


def _concat(g: Context, call: Call) -> Results:
    """Any number of operands, after scale and zero point of the result."""
    every = range(2, len(call.inputs), 3)
    parts = tuple(_real(g, call, place) for place in every)
    result = SHAPES["Concat"](g, replace(call, inputs=parts))
    assert not isinstance(result, tuple)
    return emit_quantize(g, result, call[0], call.input(1), g.dtype(call[1]), 0)


def _transpose_last_two(g: Context, x: Operand, is_transposed: Any) -> Operand:
    """Its last two axes the other way round."""
    rank = g.rank(x)
    return g.transpose(x, [*range(rank - 2), rank - 1, rank - 2]) if is_transposed else x


def _gemm(g: Context, call: Call) -> Results:
    """``alpha * a @ b + c`` of small integers, c in units of the product; floats where no scale of the result is given."""
    a, b = (
        _real(g, call, 0),
        emit_dequantize(g, call[3], call[4], call.input(5), 0 if call.get("transB", 0) else 1),
    )
    a, alpha = _transpose_last_two(g, a, call.get("transA", 0)), call.get("alpha", 1.0)
    b = _transpose_last_two(g, b, call.get("transB", 0))
    options = {}
    if call.input(6) is not None:
        options["bias"] = emit_dequantize(
            g, g.reshape(call[6], g.shape(b)[-1:]), scale_of_sums(g, call[1], call[4]), None, 0
        )
    real: Operand = g.op("dense", a, b, **options)
    if alpha != 1:
        real = scalar(g, "multiply", real, alpha)
    if call.input(7) is None:
        return real
    return emit_quantize(g, real, call[7], call.input(8), g.dtype(call[0]), 1)


def _add_bias(g: Context, x: Operand, bias: Operand | None) -> Operand:
    return x if bias is None else g.binary("add", x, bias)


def _to_float(g: Context, call: Call) -> Results:
    """The product of small integers, in floats."""
    a = emit_dequantize(g, call[0], call[2], call.input(4), -2)
    total = emit_matmul(g, a, emit_dequantize(g, call[1], call[3], call.input(5), -1))
    return _add_bias(g, total, call.input(6))


def _dynamic_matmul(g: Context, call: Call) -> Results:
    """The same, of floats that are quantized before."""
    a, scale, zero = quantize_dynamically(g, call[0])
    inputs = (a, call[1], scale, call[2], zero, call.input(3), call.input(4))
    return _to_float(g, replace(call, inputs=inputs, read=set()))


def _matmul(g: Context, call: Call) -> Results:
    """``alpha * a @ b``, each turned or not."""
    if call.get("transBatchA", 0) or call.get("transBatchB", 0):
        raise UnsupportedNode("batches that are transposed", "transBatchA=0, transBatchB=0")
    a = _transpose_last_two(g, call[0], call.get("transA", 0))
    result = emit_matmul(g, a, _transpose_last_two(g, call[1], call.get("transB", 0)))
    alpha = call.get("alpha", 1.0)
    return result if alpha == 1 else scalar(g, "multiply", result, alpha)


def _of_bits(g: Context, call: Call) -> Results:
    """``a @ b`` where b is (columns, blocks, bytes) of 4 or 8 bits, with a scale and a zero point for each block.

    Weights are integers of a byte, which products widen in registers, two of 4 bits from each byte. Zero points are taken from the
    sums of the blocks of a.
    """
    bits, block = call.get("bits", 4), call.get("block_size")
    inner, columns = call.get("K"), call.get("N")
    call.overlook("accuracy_level")
    x, packed, scales, zeros = call[0], call[1], call[2], call.input(3)
    if bits not in (4, 8) or not all(
        isinstance(one, KnownArray) for one in (packed, scales, zeros) if one is not None
    ):
        raise UnsupportedNode(
            f"weights of {bits} bits, or that calls give", "constants of 4 or 8 bits"
        )
    assert isinstance(packed, KnownArray)
    assert isinstance(scales, KnownArray)
    blocks = -(-inner // block)
    scale = scales.array.reshape(columns, blocks).T
    middle = np.float32(2 ** (bits - 1))
    start: Any = middle
    if isinstance(zeros, KnownArray):
        start = zeros.array
        if start.dtype == np.uint8:
            start = _unpack_nibbles(start.reshape(columns, -1), bits)[:, :blocks]
        start = start.reshape(columns, blocks).T.astype(np.float32)
    weights = _unpack_nibbles(packed.array.reshape(columns, blocks, -1), bits).transpose(1, 2, 0)
    signed = KnownArray(
        np.ascontiguousarray((weights.astype(np.int16) - int(middle)).astype(np.int8)), "int8"
    )
    if g.dtype(x) != "float32":
        real = (signed.array + (middle - start)[..., None, :]) * scale[:, None].astype(np.float32)
        flat = np.ascontiguousarray(real.reshape(-1, columns)[:inner])
        return _add_bias(
            g, emit_matmul(g, x, g.cast(KnownArray(flat, "float32"), g.dtype(x))), call.input(5)
        )
    lead = g.shape(x)[:-1]
    rows = g.reshape(x, (product(lead), inner))
    if blocks * block != inner:
        rows = g.op("pad", rows, (0, 0), (0, blocks * block - inner))
    scale = np.ascontiguousarray(scale, np.float32)
    terms = KnownArray(signed.array.reshape(-1, columns), "int8")
    result: Operand = g.op("dense_blockwise", rows, terms, KnownArray(scale, "float32"))
    if np.any(start != middle):
        apart = KnownArray((middle - start).astype(np.float32) * scale, "float32")
        totals = emit_reduction(
            g, "sum", g.reshape(rows, (product(lead), blocks, block)), [2], False
        )
        result = g.binary("add", result, g.op("dense", totals, apart))
    return _add_bias(g, g.reshape(result, (*lead, columns)), call.input(5))


def _unpack_nibbles(array: Any, bits: int) -> Any:
    """Elements of 4 bits, the low half of a byte first."""
    if bits == 8:
        return array
    halves = np.stack((array & 15, array >> 4), axis=-1)
    return halves.reshape(*array.shape[:-1], -1)


def _gelu(name: str) -> Operator:
    """Of an operand, to which the second is added."""
    return lambda g, call: g.op(name, _add_bias(g, call[0], call.input(1)))


def _quick_gelu(g: Context, call: Call) -> Results:
    x = call[0]
    gate = g.op("sigmoid", scalar(g, "multiply", x, call.get("alpha", 1.702)))
    return g.binary("multiply", x, gate)


def _skip_normalization(g: Context, call: Call, *, name: str, epsilon: float) -> Results:
    """The norm of a sum over its last axis; the fourth output is the sum."""
    options: dict[str, Any] = {"gain": call[2], "epsilon": call.get("epsilon", epsilon)}
    place = 3
    if name == "layernorm":
        place = 4
        if call.input(3) is not None:
            options["bias"] = call[3]
    total = _add_bias(g, g.binary("add", call[0], call[1]), call.input(place))
    if any(call.proto.output[1:3]):
        raise UnsupportedNode("mean and deviation as outputs", "the first output and the fourth")
    return g.op(name, total, **options), None, None, total


def _quantized_input(g: Context, x: Operand) -> Operand:
    """Return the floats that the input stands for once it is quantized as a whole, by its least and its greatest element."""
    data, scale, zero = quantize_dynamically(g, x)
    return emit_dequantize(g, data, scale, zero, 0)


def _byte_weights(
    g: Context, call: Call, n: int, place: int, beside: int
) -> tuple[Operand, Operand, Operand | None]:
    """Return the weights of a direction, gates one after the other, (gates * hidden, columns), their scale and their zero point.

    beside  the place of the scale among the inputs, before that of the zero point; each is one number, or one for each row
    """
    zero = call.input(beside + 1)
    weights = g.transpose(row(g, call[place], n), [1, 0])
    return weights, row(g, call[beside], n), None if zero is None else row(g, zero, n)


def _byte_operands(g: Context, call: Call, n: int) -> tuple[Operand, Operand, dict[str, Any]]:
    """Return the floats that weights of the input stand for, the weights of the state in int8, and the options that say what these stand for."""
    w = emit_dequantize(g, *_byte_weights(g, call, n, 1, 8), 0)
    r, scale, zero = _byte_weights(g, call, n, 2, 10)
    rows = g.shape(r)[:1]
    point = None
    if zero is not None and not g.is_zero(zero):
        point = g.broadcast(g.cast(zero, "int32"), rows)
    if g.dtype(r) == "uint8":
        r = g.cast(scalar(g, "subtract", g.cast(r, "int32"), 128), "int8")
        point = g.full(rows, -128, "int32") if point is None else scalar(g, "subtract", point, 128)
    sums = emit_reduction(g, "sum", g.cast(r, "int32"), [1], False)
    if point is not None:
        columns = g.whole(g.shape(r)[1], "the hidden size")
        sums = g.binary("subtract", sums, scalar(g, "multiply", point, columns))
    return w, r, {"scale": g.broadcast(scale, rows), "sums": sums, "zero": point}


dynamic_lstm: Operator = layer(
    "lstm", 4, ("Sigmoid", "Tanh", "Tanh"), _byte_operands, _quantized_input
)
"""The input is quantized as a whole and the state at each step, by their least and their greatest element, as onnxruntime does."""

CONTRIBUTED: Mapping[str, Operator] = {
    "BiasGelu": _gelu("gelu"),
    "DequantizeLinear": QUANTIZATION["DequantizeLinear"],
    "DynamicQuantizeLSTM": dynamic_lstm,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "FastGelu": _gelu("gelu_tanh"),
    "FusedMatMul": _matmul,
    "Gelu": _gelu("gelu"),
    "GroupQueryAttention": grouped_attention,
    "MatMulIntegerToFloat": _to_float,
    "MatMulNBits": _of_bits,
    "QGemm": _gemm,
    "QLinearAdd": _between(ELEMENTWISE["Add"], 2),
    "QLinearAveragePool": _between(WINDOWS["AveragePool"]),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _between(WINDOWS["GlobalAveragePool"]),
    "QLinearLeakyRelu": _between(ELEMENTWISE["LeakyRelu"]),
    "QLinearMul": _between(ELEMENTWISE["Mul"], 2),
    "QLinearReduceMean": _between(REDUCTIONS["ReduceMean"]),
    "QLinearSigmoid": _between(ELEMENTWISE["Sigmoid"]),
    "QLinearSoftmax": _between(REDUCTIONS["Softmax"]),
    "QLinearWhere": _between(ELEMENTWISE["Where"], 2, plain=1),
    "QuantizeLinear": QUANTIZATION["QuantizeLinear"],
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": partial(_skip_normalization, name="layernorm", epsilon=1e-12),
    "SkipSimplifiedLayerNormalization": partial(_skip_normalization, name="rmsnorm", epsilon=1e-6),
}
