"""The operators of the benches as offcut's tensor expressions, one function for each.

What is symbolic is the batch, the rows and the image; channels, features and constants are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import offcut as oc
from offcut.experiment.contraction import Array, Computation, Problem, build, poisoned
from offcut.experiment.operators import (
    EPSILON,
    Attention,
    Convolution,
    Dequantized,
    LayerNorm,
    Softmax,
)

LARGEST = 2**16
"""The most that a symbolic size may be."""

Task = Problem | Attention | Convolution | Softmax | LayerNorm | Dequantized
"""What a bench gives to everybody."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to describe a task to offcut, with the arrays of this task.

    key        what the kernel is compiled for; tasks with equal keys and the same constants share one
    describe   makes the tensor expressions
    constants  arrays by placeholder name
    operands   the other arrays, in call order
    out        where the result goes
    read       the result with the axes that the task has, from `out`
    """

    name: str
    key: tuple[object, ...]
    describe: Callable[[], Computation]
    constants: Mapping[str, Array]
    operands: tuple[Array, ...]
    out: Array
    read: Callable[[Array], Array] = np.asarray


def forms(task: Task, swept: Mapping[str, tuple[int, int]]) -> tuple[Form, ...]:
    """The descriptions of `task`; `swept` are the symbolic letters of a contraction."""
    key: tuple[object, ...]
    match task:
        case Problem():
            return (_contraction(task, swept),)
        case Attention():
            key = ("attention", task.kind, task.q.shape[-1])
            operands = (task.q, task.k, task.v)
            describe = partial(attention, task.kind, task.q.shape[-1])
            return (Form("stages", key, describe, {}, operands, task.result()),)
        case Convolution():
            return (_convolution(task, last=False), _convolution(task, last=True))
        case Softmax():
            return (Form("stages", ("softmax",), softmax, {}, (task.x,), task.result()),)
        case LayerNorm():
            constants = {"gain": task.gain, "bias": task.bias}
            columns = task.x.shape[-1]
            key = ("layer norm", columns)
            return (
                Form(
                    *("stages", key, partial(layer_norm, columns), constants),
                    *((task.x,), task.result()),
                ),
            )
        case Dequantized():
            constants = {"W": task.w, "offsets": task.offsets, "scales": task.scales}
            key = ("dequantized", *task.w.shape, task.scale)
            return (
                Form(
                    *("fused", key, partial(dequantized, task.w.shape, task.scale), constants),
                    *((task.x,), task.result()),
                ),
            )


def _contraction(task: Problem, swept: Mapping[str, tuple[int, int]]) -> Form:
    fixed = {letter: size for letter, size in task.sizes.items() if letter not in swept}
    swept = {letter: ends for letter, ends in swept.items() if letter in task.sizes}
    contraction, kind = task.contraction, task.kind
    key = (str(contraction), kind, *fixed.items(), *swept.items())
    return Form(
        "auto",
        key,
        partial(build, contraction, fixed, swept, kind),
        {name: task.arrays[name] for name in task.constant},
        tuple(array for name, array in task.arrays.items() if name not in task.constant),
        task.result(),
    )


def _convolution(task: Convolution, last: bool) -> Form:
    """With the channels last in memory, or as the task has them."""
    image, weights, out = task.image, task.weights, task.result()
    key = ("convolution", last, *weights.shape, task.stride, task.padding)
    describe = partial(convolution, weights.shape, task.stride, task.padding, last)
    if not last:
        return Form("nchw", key, describe, {"W": weights}, (image,), out)
    batch, outputs, height, width = task.shape
    return Form(
        "nhwc",
        key,
        describe,
        {"W": weights},
        (np.ascontiguousarray(image.transpose(0, 2, 3, 1)),),
        poisoned((batch, height, width, outputs), "float32"),
        lambda value: value.transpose(0, 3, 1, 2),
    )


def attention(kind: str, d: int) -> Computation:
    """Scores, their row maxima, exponentials, their row sums, the product with v, the division."""
    b, h, s = (oc.dim(name, min=1, max=LARGEST) for name in "bhs")
    q, k, v = inputs = tuple(oc.placeholder((b, h, s, d), kind, name=name) for name in "QKV")
    e, t = oc.reduce_axis(d, name="e"), oc.reduce_axis(s, name="t")

    def term(x: Any, y: Any) -> Any:
        return oc.cast(x, "float32") * oc.cast(y, "float32")

    scores = oc.compute(
        (b, h, s, s),
        lambda b_, h_, i, j: oc.sum(term(q[b_, h_, i, e], k[b_, h_, j, e]), axis=e),
        name="scores",
    )
    most = oc.compute(
        (b, h, s), lambda b_, h_, i: oc.max(scores[b_, h_, i, t], axis=t), name="most"
    )
    weights = oc.compute(
        (b, h, s, s),
        lambda b_, h_, i, j: oc.exp((scores[b_, h_, i, j] - most[b_, h_, i]) / math.sqrt(d)),
        name="weights",
    )
    total = oc.compute(
        (b, h, s), lambda b_, h_, i: oc.sum(weights[b_, h_, i, t], axis=t), name="total"
    )
    share = oc.compute((b, h, s), lambda b_, h_, i: 1.0 / total[b_, h_, i], name="share")
    given = weights
    if kind != "float32":
        given = oc.compute(
            (b, h, s, s), lambda b_, h_, i, j: oc.cast(weights[b_, h_, i, j], kind), name="given"
        )
    mixed = oc.compute(
        (b, h, s, d),
        lambda b_, h_, i, j: oc.sum(term(given[b_, h_, i, t], v[b_, h_, t, j]), axis=t),
        name="mixed",
    )
    result = oc.compute(
        (b, h, s, d),
        lambda b_, h_, i, j: oc.cast(mixed[b_, h_, i, j] * share[b_, h_, i], kind),
        name="result",
    )
    return Computation(inputs, result)


def convolution(
    shape: tuple[int, ...], stride: int, padding: int, channels_last: bool
) -> Computation:
    """A convolution with weights of `shape`, (outputs, channels, rows, columns)."""
    outputs, channels, rows, columns = shape
    b = oc.dim("b", min=1, max=LARGEST)
    least = max(1, rows - 2 * padding), max(1, columns - 2 * padding)
    height, width = (
        oc.dim(name, min=size, max=LARGEST) for name, size in zip("hw", least, strict=True)
    )
    dims = (b, height, width, channels) if channels_last else (b, channels, height, width)
    image = oc.placeholder(dims, "float32", name="X")
    weights = oc.placeholder(shape, "float32", name="W")
    c, r, s = (
        oc.reduce_axis(extent, name=name)
        for name, extent in zip("crs", (channels, rows, columns), strict=True)
    )

    def element(i: Any, o: Any, y: Any, x: Any) -> Any:
        line, column = y * stride + r - padding, x * stride + s - padding
        at = (i, line, column, c) if channels_last else (i, c, line, column)
        pixel = image[at]
        if padding:
            inside = (line >= 0) & (line < height) & (column >= 0) & (column < width)
            pixel = oc.where(inside, pixel, 0.0)
        return oc.sum(pixel * weights[o, c, r, s], axis=(c, r, s))

    lines = (height + 2 * padding - rows) // stride + 1
    across = (width + 2 * padding - columns) // stride + 1
    if channels_last:
        result = oc.compute(
            (b, lines, across, outputs), lambda i, y, x, o: element(i, o, y, x), name="Y"
        )
    else:
        result = oc.compute((b, outputs, lines, across), element, name="Y")
    return Computation((image, weights), result)


def softmax() -> Computation:
    """Row maxima, exponentials, row sums, the division."""
    m, n = (oc.dim(name, min=1, max=LARGEST) for name in "mn")
    x, t = oc.placeholder((m, n), "float32", name="X"), oc.reduce_axis(n, name="t")
    most = oc.compute((m,), lambda i: oc.max(x[i, t], axis=t), name="most")
    weights = oc.compute((m, n), lambda i, j: oc.exp(x[i, j] - most[i]), name="weights")
    total = oc.compute((m,), lambda i: oc.sum(weights[i, t], axis=t), name="total")
    share = oc.compute((m,), lambda i: 1.0 / total[i], name="share")
    result = oc.compute((m, n), lambda i, j: weights[i, j] * share[i], name="result")
    return Computation((x,), result)


def layer_norm(columns: int) -> Computation:
    """Means, differences, variances, then the scaled differences."""
    m, t = oc.dim("m", min=1, max=LARGEST), oc.reduce_axis(columns, name="t")
    x = oc.placeholder((m, columns), "float32", name="X")
    gain, bias = (oc.placeholder((columns,), "float32", name=name) for name in ("gain", "bias"))
    mean = oc.compute((m,), lambda i: oc.sum(x[i, t], axis=t) / float(columns), name="mean")
    apart = oc.compute((m, columns), lambda i, j: x[i, j] - mean[i], name="apart")
    variance = oc.compute(
        (m,), lambda i: oc.sum(apart[i, t] * apart[i, t], axis=t) / float(columns), name="variance"
    )
    scale = oc.compute((m,), lambda i: 1.0 / oc.sqrt(variance[i] + EPSILON), name="scale")
    result = oc.compute(
        (m, columns), lambda i, j: apart[i, j] * scale[i] * gain[j] + bias[j], name="result"
    )
    return Computation((x, gain, bias), result)


def dequantized(shape: tuple[int, ...], scale: float) -> Computation:
    """A product of integers, less what the zero point adds, times the scales; w of `shape`."""
    inner, columns = shape
    m, k = oc.dim("m", min=1, max=LARGEST), oc.reduce_axis(inner, name="k")
    x = oc.placeholder((m, inner), "uint8", name="X")
    w = oc.placeholder((inner, columns), "int8", name="W")
    offsets = oc.placeholder((columns,), "int32", name="offsets")
    scales = oc.placeholder((columns,), "float32", name="scales")
    product = oc.compute(
        (m, columns),
        lambda i, j: oc.sum(oc.cast(x[i, k], "int32") * oc.cast(w[k, j], "int32"), axis=k),
        name="product",
    )
    result = oc.compute(
        (m, columns),
        lambda i, j: oc.cast(product[i, j] - offsets[j], "float32") * (scale * scales[j]),
        name="result",
    )
    return Computation((x, w, offsets, scales), result)
