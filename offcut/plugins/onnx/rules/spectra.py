"""Spectra: Fourier transforms of a known extent as products with a constant matrix, real and imaginary parts as a last axis.

What the transform of numpy makes of each element alone, in float64, is a row of the matrix, so that cropped, padded, one-sided and
inverse ones differ by that alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.describe.request import Array
from offcut.graph.sizes.numbers import product
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    KnownArray,
    Operand,
    Results,
    UnsupportedNode,
)
from offcut.plugins.onnx.rules.elementwise import Operator

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
