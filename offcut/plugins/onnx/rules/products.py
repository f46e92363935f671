"""Sums of products: matrices, Einstein's notation, attention, Fourier transforms.

Attention, as one operator where it is one.

Spectra: Fourier transforms of a known extent as products with a constant matrix, real and imaginary parts as a last axis.

What the transform of numpy makes of each element alone, in float64, is a row of the matrix, so that cropped, padded, one-sided and
inverse ones differ by that alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from string import ascii_letters
from typing import Any

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.describe.request import Array
from offcut.graph.sizes.extent_values import arithmetic, product
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    Element,
    KnownArray,
    Operand,
    Results,
    UnsupportedNode,
    known_array,
)
from offcut.plugins.onnx.rules.elementwise import Operator, scalar
from offcut.plugins.onnx.rules.reductions import emit_reduction
from offcut.plugins.onnx.rules.shapes import emit_unsqueeze
from offcut.plugins.operators.functions import MAX_DETERMINANT_ROWS, determinants

BYTES = ("int8", "uint8")


def emit_matmul(g: Context, a: Operand, b: Operand) -> Operand:
    """``a @ b`` as numpy has it: a vector is a row before, a column after."""
    row, column = g.rank(a) == 1, g.rank(b) == 1
    dtype = g.dtype(a)
    if not g.rank(a) or not g.rank(b):
        raise UnsupportedNode("an operand has no axis")
    left = emit_unsqueeze(g, a, [0]) if row else a
    right = emit_unsqueeze(g, b, [1]) if column else b
    if g.rank(right) == 2 and g.rank(left) > 2:
        result: Operand = g.op("dense", left, right)
    else:
        result = g.op("matmul", left, right)
    result = g.cast(result, dtype)
    shape = list(g.shape(result))
    if row:
        del shape[-1 if column else -2]
    if column:
        del shape[-1]
    return g.reshape(result, shape)


def _gemm(g: Context, call: Call) -> Results:
    """``alpha * a @ b + beta * c``."""
    a, b, c = call[0], call[1], call.input(2)
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if call.get("transA", 0):
        a = g.transpose(a, [1, 0])
    right = bool(call.get("transB", 0))
    columns = g.shape(b)[0 if right else 1]
    bias = c is not None and g.shape(c) == (columns,) and alpha == beta == 1
    result: Operand = g.op("dense", a, b, **({"bias": c} if bias else {}), transpose_w=right)
    if alpha != 1:
        result = scalar(g, "multiply", result, alpha)
    if c is None or bias or beta == 0:
        return result
    return g.binary("add", result, c if beta == 1 else scalar(g, "multiply", c, beta))


def _einsum(g: Context, call: Call) -> Results:
    """Two operands at a time: letters that only these have are summed."""
    text = call.get("equation").replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if not arrow:
        letters = inputs.replace("...", "").replace(",", "")
        once = (one for one in set(letters) if letters.count(one) == 1)
        output = ("..." if "." in inputs else "") + "".join(sorted(once))
    terms, output = _spell_terms(terms, output, [g.rank(one) for one in call.present])
    parts = [_diagonals(g, term, one) for term, one in zip(terms, call.present, strict=True)]
    while len(parts) > 1:
        (one, x), (other, y), *parts = parts
        later = set(output).union(*(term for term, _ in parts))
        parts.insert(0, _pair(g, (one, x), (other, y), later))
    term, x = parts[0]
    gone = [place for place, letter in enumerate(term) if letter not in output]
    x = emit_reduction(g, "sum", x, gone, False)
    term = "".join(letter for letter in term if letter in output)
    return g.transpose(x, [term.index(letter) for letter in output])


def _spell_terms(terms: list[str], output: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Terms with a letter for each axis: an ellipsis stands for what the others leave of the rank, from the last on."""
    free = [one for one in ascii_letters if one not in "".join([*terms, output])]
    covered = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]

    def spelled(term: str, count: int) -> str:
        return term.replace("...", "".join(reversed(free[:count])))

    every = [spelled(term, count) for term, count in zip(terms, covered, strict=True)]
    return every, spelled(output, max(covered))


def _diagonals(g: Context, term: str, x: Operand) -> tuple[str, Operand]:
    """Return an operand whose letters are named once: of a letter that is named twice, its diagonal."""
    for letter in term:
        if term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            rest = [place for place in range(len(term)) if place not in (first, second)]
            places = g.op("iota", g.shape(x)[first], "int64")
            transposed = g.transpose(x, [*rest, first, second])
            line = g.op("take", transposed, (places, places), axis=len(rest))
            return _diagonals(g, "".join(term[place] for place in rest) + letter, line)
    return term, x


def _pair(
    g: Context, first: tuple[str, Operand], second: tuple[str, Operand], later: set[str]
) -> tuple[str, Operand]:
    """Return the product of two terms, as one of matrices with what both have in front."""
    (one, x), (other, y) = first, second
    x, one = _alone(g, x, one, set(other) | later)
    y, other = _alone(g, y, other, set(one) | later)
    both = [letter for letter in one if letter in other and letter in later]
    inner = [letter for letter in one if letter in other and letter not in later]
    rows = [letter for letter in one if letter not in other]
    columns = [letter for letter in other if letter not in one]
    size = dict(zip(other, g.shape(y), strict=True)) | dict(zip(one, g.shape(x), strict=True))
    x = g.transpose(x, [one.index(letter) for letter in (*both, *rows, *inner)])
    y = g.transpose(y, [other.index(letter) for letter in (*both, *inner, *columns)])

    def extents(letters: Sequence[str]) -> list[Element]:
        return [size[letter] for letter in letters]

    m, k, n = (product(extents(letters)) for letters in (rows, inner, columns))
    x = g.reshape(x, [*extents(both), m, k])
    y = g.reshape(y, [*extents(both), k, n])
    result = emit_matmul(g, x, y)
    letters = [*both, *rows, *columns]
    return "".join(letters), g.reshape(result, extents(letters))


def _alone(g: Context, x: Operand, term: str, letters: set[str]) -> tuple[Operand, str]:
    """Return a term without the letters that nothing else has."""
    gone = [place for place, letter in enumerate(term) if letter not in letters]
    total = emit_reduction(g, "sum", x, gone, False)
    return total, "".join(letter for letter in term if letter in letters)


def without_zero(g: Context, x: Operand, zero: Operand | None, axis: int = -1) -> Operand:
    """``x - zero`` in int32, a zero point for all or for each place of an axis. Bytes that are known stay bytes, for products of them."""
    wide = g.op("cast", x, "int32") if g.dtype(x) in BYTES else g.cast(x, "int32")
    if zero is None or (isinstance(zero, KnownArray) and not zero.array.any()):
        return wide
    points = g.cast(zero, "int32")
    if g.rank(points) == 1 and g.shape(points) not in ((1,), g.shape(x)):
        rank, place = g.rank(x), g.axis(x, axis)
        points = g.reshape(points, [g.shape(points)[0] if n == place else 1 for n in range(rank)])
    elif g.shape(points) == (1,):
        points = g.reshape(points, [])
    return g.binary("subtract", wide, points)


def integer_matmul(
    g: Context, a: Operand, a_zero: Operand | None, b: Operand, b_zero: Operand | None
) -> Operand:
    """Return ``(a - a_zero) @ (b - b_zero)`` in int32."""
    return emit_matmul(g, without_zero(g, a, a_zero, -2), without_zero(g, b, b_zero, -1))


def _determinant(g: Context, call: Call) -> Results:
    order = g.whole(g.shape(call[0])[-1], "the rows of a matrix")
    result: Operand | None = determinants(g, call[0])
    if result is None:
        raise UnsupportedNode(f"the determinant of {order} rows", f"1 to {MAX_DETERMINANT_ROWS}")
    return result


PRODUCTS: Mapping[str, Operator] = {
    "Det": _determinant,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": lambda g, call: emit_matmul(g, call[0], call[1]),
    "MatMulInteger": lambda g, call: integer_matmul(
        g, call[0], call.input(2), call[1], call.input(3)
    ),
}


def _attention(g: Context, call: Call) -> Results:
    q, k, v, mask = call[0], call[1], call[2], call.input(3)
    for name, default in (("softcap", 0.0), ("qk_matmul_output_mode", 0)):
        if call.get(name, default) != default:
            raise UnsupportedNode(f"{name}={call.get(name)}", f"{name}={default}")
    call.overlook("softmax_precision")
    operands = [k, v, *(one for one in map(call.input, (4, 5, 6)) if one is not None)]
    g.require_equal("batches differ", *((g.shape(q)[0], g.shape(one)[0]) for one in operands))
    g.require_equal("keys and values differ in their rows", (g.shape(k)[-2], g.shape(v)[-2]))
    if call.outputs > 3:
        raise UnsupportedNode("the products of queries and keys as an output", "three outputs")
    flat = g.rank(q) == 3
    if flat:
        q = _heads(g, q, call.get("q_num_heads"))
        k, v = (_heads(g, one, call.get("kv_num_heads")) for one in (k, v))
    past: Element = 0
    if call.input(4) is not None:
        past = g.shape(call[4])[2]
        k = g.op("concat", (call[4], k), axis=2)
        v = g.op("concat", (call[5], v), axis=2)
    causal = bool(call.get("is_causal", 0))
    options: dict[str, Any] = {"causal": causal}
    if causal and past != 0:
        options["past"] = past
    if call.get("scale"):
        options["scale"] = call.get("scale")
    if call.input(6) is not None:
        if causal:
            raise UnsupportedNode("is_causal=1 with nonpad_kv_seqlen", "a mask")
        lengths = g.binary("minimum", call[6], known_array(g.shape(k)[2]))
        options["lengths"] = g.cast(g.binary("maximum", lengths, known_array(0)), "int32")
    if mask is not None:
        if not g.same(g.shape(mask)[-1], g.shape(k)[2]):
            raise UnsupportedNode("a mask of other keys than there are")
        options["mask"] = mask if not g.is_float(mask) else g.cast(mask, g.dtype(q))
    result: Operand = g.op("attention", q, k, v, **options)
    return (_join_heads(g, result) if flat else result, k, v)[: max(call.outputs, 1)]


def grouped_attention(g: Context, call: Call) -> Results:
    """Translate ``GroupQueryAttention`` of onnxruntime: causal attention over the keys and values of its cache and its own.

    Every sentence of the batch must be as long as the longest; a call with a shorter one is an error.
    """
    for name, default in (("softcap", 0.0), ("smooth_softmax", 0), ("qk_output", 0)):
        if call.get(name, default) not in (default, -1):
            raise UnsupportedNode(f"{name}={call.get(name)}", f"{name}={default}")
    heads, groups = call.get("num_heads"), call.get("kv_num_heads")
    if call.input(1) is None:
        depth = arithmetic("//", g.shape(call[0])[2], heads + 2 * groups)
        ends = [arithmetic("*", depth, n) for n in (0, heads, heads + groups, heads + 2 * groups)]
        parts = [g.slice(call[0], 2, low, high) for low, high in pairwise(ends)]
    else:
        parts = [call[place] for place in range(3)]
    q, k, v = (_heads(g, x, n) for x, n in zip(parts, (heads, groups, groups), strict=True))
    rows, past = g.shape(q)[2], 0 if call.input(3) is None else g.shape(call[3])[2]
    whole = arithmetic("+", past, rows)
    if call.get("do_rotary", 0):
        if call.get("rotary_interleaved", 0):
            raise UnsupportedNode("rotary_interleaved=1", "rotary_interleaved=0")
        turns = [g.slice(call[place], 0, past, whole) for place in (7, 8)]
        q, k = (_rotate(g, x, *turns) for x in (q, k))
    if call.input(3) is not None:
        k = g.op("concat", (call[3], k), axis=2)
        v = g.op("concat", (call[4], v), axis=2)
    call.overlook("k_quant_type", "v_quant_type", "kv_cache_bit_width")
    batch, last = g.shape(q)[0], g.cast(call[5], "int64")
    is_whole = g.binary("equal", last, known_array(arithmetic("-", whole, 1)))
    if call.input(3) is None:  # what follows the end of a sentence no query of it sees
        is_whole = g.binary("less", last, known_array(whole))
    q = g.require(q, g.broadcast(g.reshape(is_whole, (batch, 1, 1, 1)), g.shape(q)))
    call.input(6)  # as long as the longest
    options: dict[str, Any] = {"causal": True}
    if past != 0:
        options["past"] = past
    if call.get("local_window_size", -1) > 0:
        options["window"] = call.get("local_window_size")
    if call.get("scale", 0.0):
        options["scale"] = call.get("scale")
    result = _join_heads(g, g.op("attention", q, k, v, **options))
    return (result, k, v)[: max(call.outputs, 1)]


def _rotate(g: Context, x: Operand, cosines: Operand, sines: Operand) -> Operand:
    """Return `x` (batch, heads, n, 2 * e) with element pairs (k, k + e) rotated by the angles of their rows, whose cosines and sines are (n, e).

    Raises Refused unless the angles are as many as half of the elements of a head.
    """
    half = g.shape(cosines)[1]
    if not g.same(arithmetic("*", half, 2), g.shape(x)[3]):
        raise UnsupportedNode(
            "angles of a part of the elements", "as many angles as half of a head"
        )
    one, other = g.slice(x, 3, 0, half), g.slice(x, 3, half, g.shape(x)[3])
    first = g.binary(
        "subtract", g.binary("multiply", one, cosines), g.binary("multiply", other, sines)
    )
    second = g.binary("add", g.binary("multiply", other, cosines), g.binary("multiply", one, sines))
    return g.op("concat", (first, second), axis=3)


def _join_heads(g: Context, x: Operand) -> Operand:
    """Return `x` (batch, heads, n, e) as (batch, n, heads * e)."""
    batch, heads, rows, width = g.shape(x)
    return g.reshape(g.transpose(x, [0, 2, 1, 3]), (batch, rows, arithmetic("*", heads, width)))


def _heads(g: Context, x: Operand, count: int) -> Operand:
    """(batch, n, heads * e) as (batch, heads, n, e)."""
    batch, rows, width = g.shape(x)
    apart = g.reshape(x, (batch, rows, count, arithmetic("//", width, count)))
    return g.transpose(apart, [0, 2, 1, 3])


ATTENTION: Mapping[str, Operator] = {"Attention": _attention}


LARGEST = 1 << 24
"""Elements of a matrix, at most: 64 MiB of float32."""


def _matrix(extent: int, parts: int, length: int, inverse: bool, onesided: bool) -> Array:
    """What each element adds to each of the result: (extent, parts, elements of the result, parts of the result).

    parts   1: real elements; 2: real and imaginary parts
    length  of the transform: more elements are left out, fewer are followed by zeros
    """
    columns = length // 2 + 1 if onesided else length
    if extent * parts * columns * 2 > LARGEST:
        raise UnsupportedNode(
            f"a transform of {extent} elements by a length of {length}", "shorter frames"
        )
    basis = np.eye(extent * parts).reshape(-1, extent, parts)
    vectors = basis[..., 0] if parts == 1 else basis[..., 0] + 1j * basis[..., 1]
    if inverse and onesided:
        matrix = np.fft.irfft(vectors, length)[..., None]
    else:
        spectrum = (np.fft.ifft if inverse else np.fft.fft)(vectors, length)
        spectrum = spectrum[:, :columns]
        matrix = np.stack([spectrum.real, spectrum.imag], -1)
    return matrix.reshape(extent, parts, *matrix.shape[1:])


def _transform(g: Context, call: Call) -> Results:
    """Along an axis of a known extent."""
    x = call[0]
    if call.version < 20:
        axis = g.axis(x, call.get("axis", 1))
    else:
        axis = g.axis(x, int(g.number(call.input(2), "axis", -2)))
    inverse, onesided = bool(call.get("inverse", 0)), bool(call.get("onesided", 0))
    last = g.rank(x) - 1
    if axis == last:
        raise UnsupportedNode("a transform along real and imaginary parts", "another axis")
    extent, parts = (g.whole(g.shape(x)[n], "an extent of a transform") for n in (axis, last))
    default = 2 * (extent - 1) if inverse and onesided else extent
    length = int(g.number(call.input(1), "dft_length", default))
    if extent < 1 or length < 1:
        raise UnsupportedNode(
            f"a transform of {extent} elements by a length of {length}", "one at least"
        )
    matrix = _matrix(extent, parts, length, inverse, onesided)
    order = [n for n in range(last) if n != axis]
    transposed = g.transpose(x, [*order, axis, last])
    rows = [g.shape(x)[n] for n in order]
    flat = g.reshape(transposed, [product(rows), extent * parts])
    result: Operand = g.op("dense", flat, _constant(g, x, matrix.reshape(extent * parts, -1)))
    spread = g.reshape(result, [*rows, *matrix.shape[2:]])
    back = [*range(axis), len(order), *range(axis, len(order)), last]
    return g.transpose(spread, back)


def _frames(g: Context, call: Call) -> Results:
    """Return the transforms of frames, each times the window: a convolution with the matrix as its weights."""
    signal, window = call[0], call.input(2)
    step = int(g.number(call[1], "frame_step"))
    window_length = (
        None if window is None else g.whole(g.shape(window)[0], "the extent of a window")
    )
    length = int(g.number(call.input(3), "frame_length", window_length))
    parts = g.whole(g.shape(signal)[2], "the count of real and imaginary parts")
    if window_length not in (None, length):
        raise UnsupportedNode(
            f"a window of {window_length} elements for frames of {length}", "as many"
        )
    matrix = _matrix(length, parts, length, False, bool(call.get("onesided", 1)))
    weights: Operand = _constant(g, signal, np.moveaxis(matrix.reshape(length, parts, -1), -1, 0))
    weights = g.transpose(weights, [0, 2, 1])
    if window is not None:
        weights = g.binary("multiply", weights, g.cast(window, g.dtype(signal)))
    channels = g.transpose(signal, [0, 2, 1])
    result = g.op("conv1d", channels, weights, stride=step)
    batch, _, count = g.shape(result)
    return g.reshape(g.transpose(result, [0, 2, 1]), [batch, count, *matrix.shape[2:]])


def _constant(g: Context, like: Operand, values: Array) -> KnownArray:
    """Numbers of the element type of an operand."""
    dtype = g.dtype(like)
    if not g.is_float(like):
        raise UnsupportedNode(f"a transform of {dtype}", "floats")
    return KnownArray(np.ascontiguousarray(values).astype(numpy_dtype(dtype)), dtype)


def _mel_weights(g: Context, call: Call) -> Results:
    """It is evaluated at import, or not at all."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    for operand, name in zip(call.present, names, strict=True):
        g.numbers(operand, name)
    raise UnsupportedNode("mel weights of sizes", "numbers")


SPECTRA: Mapping[str, Operator] = {
    "DFT": _transform,
    "MelWeightMatrix": _mel_weights,
    "STFT": _frames,
}
