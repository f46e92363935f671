"""Whole operators on given arrays, each with its float64 reference: what a bench gives to everybody.

Every class has the `kind` of its elements, `flop` (0 where only bytes count), `reference()`, and `result()`, a new array for the
result.

The steps of a contraction's epilogue, and how each carries an error.

Whole models on given inputs: what a library is given of an ONNX file, and of a module of torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np

from offcut.core.functions import erf
from offcut.describe.request import Array
from offcut.experiment.reference import HALF_ULP, DoubleArray, Reference, poison_array
from offcut.studies.contraction import ELEMENTS, Contraction

FUNCTION_UNITS = 8
"""Half units in the last place that a library's function of an epilogue may be off: of gelu in float32, 4 of erf, 2 of the sum with 1, both halved,
and 3 roundings of products and of the argument; measured are 5.4 (gelu), 5.2 (tanh), 3 (silu) and 2.8 (sigmoid) at the most."""


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A function of an epilogue, and how it carries an error.

    call       in float64
    lipschitz  the greatest absolute value of its derivative
    units      half units in the last place of float32 (or of float64) that a library's value may be off, at the scale of the result;
               0 for a function that rounds nothing
    is_scaled  whether that scale is the argument's magnitude, as of ``x * g(x)`` with g between 0 and 1; else 1
    """

    call: Callable[[Any], Any]
    lipschitz: float
    units: int = FUNCTION_UNITS
    is_scaled: bool = False

    def apply(
        self, value: DoubleArray, allowed: DoubleArray, stored: str
    ) -> tuple[DoubleArray, DoubleArray]:
        """Return the function of `value`, and the error allowed of it where the argument's is `allowed`.

        stored  the element type of the result: a 16-bit float is calculated in float32 and rounded once
        """
        computed = stored if stored in ("float32", "float64") else "float32"
        scale = np.abs(value) + allowed if self.is_scaled else 1.0
        error = self.lipschitz * allowed + self.units * HALF_ULP[computed] * scale
        result = self.call(value)
        if self.units and stored != computed:
            error = error + HALF_ULP[stored] * (np.abs(result) + error)
        return result, error


def _sigmoid(x: DoubleArray) -> DoubleArray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


STEP_FUNCTIONS: Mapping[str, StepFunction] = {
    "relu": StepFunction(lambda x: np.maximum(x, 0), 1.0, units=0),
    "gelu": StepFunction(lambda x: x / 2 * (1 + erf(x / math.sqrt(2))), 1.13, is_scaled=True),
    "sigmoid": StepFunction(_sigmoid, 0.25),
    "silu": StepFunction(lambda x: x * _sigmoid(x), 1.1, is_scaled=True),
    "tanh": StepFunction(np.tanh, 1.0),
}
"""The steps of an epilogue that are functions of an element. The derivatives are greatest at sqrt(2) (gelu), 0 (sigmoid, tanh), 2.4 (silu)."""

ADDED_STEPS = ("bias", "residual")
"""The steps that add an array: `bias` along the last axis, `residual` of the result's shape."""

EPILOGUES = (*ADDED_STEPS, *STEP_FUNCTIONS)


EPSILON = 1e-5
"""Added to the variance by a layer norm."""

UNIT = HALF_ULP["float32"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A contraction at one point: its sizes and its operands.

    sizes      letter -> extent, for every letter
    arrays     operand name -> values, C-contiguous; those that an epilogue reads are called as its steps are
    constant   names of the operands whose values never change, which may be packed beforehand
    kind       element types, as `ELEMENTS` has them
    epilogue   what is done to each element of the sum, in order: names of `EPILOGUES`
    """

    contraction: Contraction
    sizes: Mapping[str, int]
    arrays: Mapping[str, Array]
    constant: tuple[str, ...] = ()
    kind: str = "float32"
    epilogue: tuple[str, ...] = ()

    @property
    def flop(self) -> int:
        """Return the additions and multiplications of one call."""
        return self.contraction.flop(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the result."""
        return tuple(self.sizes[letter] for letter in self.contraction.result)

    def result(self) -> Array:
        """Return a new array for the result, every page touched."""
        return poison_array(self.shape, ELEMENTS[self.kind][-1])

    def reference(self) -> Reference:
        """Return the result in float64, with the error that float32 is allowed.

        A step `f` of the epilogue takes an error `e` of its argument to `l * e`, where `l` is its Lipschitz constant, and adds its own
        (`STEP_FUNCTIONS`).
        """
        operands = [self.arrays[name].astype(np.float64) for name in self.contraction.names]
        text = str(self.contraction)
        value = np.einsum(text, *operands, optimize=True)
        magnitude = np.einsum(text, *map(np.abs, operands), optimize=True)
        terms = math.prod(self.sizes[letter] for letter in self.contraction.summed_letters)
        _, _, summed, stored = ELEMENTS[self.kind]
        steps = terms + len(operands)
        allowed = steps * HALF_ULP[summed] * magnitude
        if stored != summed:
            allowed += HALF_ULP[stored] * np.abs(value)
        for step in self.epilogue:
            if step in ADDED_STEPS:
                value = value + self.arrays[step].astype(np.float64)
                allowed = allowed + HALF_ULP[stored] * (np.abs(value) + allowed)
            else:
                value, allowed = STEP_FUNCTIONS[step].apply(value, allowed, stored)
        return Reference(np.asarray(value), np.asarray(allowed))


@dataclass(frozen=True, slots=True)
class Attention:
    """``softmax(q kᵀ / sqrt(d)) v`` of each head; q, k and v of shape (batch, heads, s, d).

    kind  ``float32`` or ``bfloat16``, of all operands and of the result
    """

    q: Array
    k: Array
    v: Array
    kind: str = "float32"

    @property
    def flop(self) -> int:
        """Return the operations of both products."""
        return 4 * math.prod(self.q.shape) * int(self.q.shape[2])

    def result(self) -> Array:
        """Return a new array for the result."""
        return poison_array(self.q.shape, self.kind)

    def reference(self) -> Reference:
        """Return the result in float64; a rounding of a score is one of the exponent."""
        q, k, v = (array.astype(np.float64) for array in (self.q, self.k, self.v))
        s, d = q.shape[-2:]
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(d)
        terms = np.abs(q) @ np.abs(k).swapaxes(-1, -2) / math.sqrt(d)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        spread = weights @ np.abs(v)
        allowed = (2 * (d + 2) * terms.max(-1, keepdims=True) + s + 64) * UNIT * spread
        if self.kind != "float32":
            largest = np.abs(scores).max(-1, keepdims=True)
            allowed += HALF_ULP[self.kind] * (4 + largest) * spread
        return Reference(weights @ v, allowed)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A two-dimensional convolution with padding, float32.

    image    (batch, channels, height, width); copied to another order of axes where one is wanted
    weights  (outputs, channels, rows, columns), constant
    stride   elements between neighbouring windows
    padding  zeros on each side
    """

    image: Array
    weights: Array
    stride: int
    padding: int
    kind: str = "float32"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return the shape of the result, (batch, outputs, height, width)."""
        outputs, _, rows, columns = self.weights.shape
        batch, _, height, width = self.image.shape
        return (
            batch,
            outputs,
            (height + 2 * self.padding - rows) // self.stride + 1,
            (width + 2 * self.padding - columns) // self.stride + 1,
        )

    @property
    def flop(self) -> int:
        """Return the operations of all windows, padding included."""
        return 2 * math.prod((*self.shape, *self.weights.shape[1:]))

    def result(self) -> Array:
        """Return a new array for the result."""
        return poison_array(self.shape, "float32")

    def reference(self) -> Reference:
        """Return the result in float64, as one product of matrices for each element of a window."""
        terms = math.prod(self.weights.shape[1:])
        value = self._sum_of_products(
            self.image.astype(np.float64), self.weights.astype(np.float64)
        )
        magnitude = self._sum_of_products(
            np.abs(self.image).astype(np.float64), np.abs(self.weights).astype(np.float64)
        )
        return Reference(value, (terms + 2) * UNIT * magnitude)

    def _sum_of_products(self, image: DoubleArray, weights: DoubleArray) -> DoubleArray:
        p, step = self.padding, self.stride
        batch, outputs, height, width = self.shape
        padded = np.pad(image, ((0, 0), (0, 0), (p, p), (p, p)))
        total = np.zeros((batch, outputs, height * width))
        for r, s in product(range(weights.shape[2]), range(weights.shape[3])):
            window = padded[:, :, r : r + step * height : step, s : s + step * width : step]
            flat = np.ascontiguousarray(window[:, :, :height, :width])
            total += weights[:, :, r, s] @ flat.reshape(batch, -1, height * width)
        return total.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class _Rows:
    """An operator on each row of x, (rows, columns), float32, with a result of that shape."""

    kind: ClassVar[str] = "float32"
    flop: ClassVar[int] = 0

    x: Array

    def result(self) -> Array:
        """Return a new array for the result."""
        return poison_array(self.x.shape, "float32")


@dataclass(frozen=True, slots=True)
class Softmax(_Rows):
    """``exp(x - max x) / sum exp(x - max x)`` of each row."""

    def reference(self) -> Reference:
        """Return the result in float64."""
        x = self.x.astype(np.float64)
        value = np.exp(x - x.max(-1, keepdims=True))
        value /= value.sum(-1, keepdims=True)
        return Reference(value, (x.shape[-1] + 64) * UNIT * value)


@dataclass(frozen=True, slots=True)
class LayerNorm(_Rows):
    """Rows with mean 0 and variance 1, then ``gain`` and ``bias``, both of shape (columns,)."""

    gain: Array
    bias: Array

    def reference(self) -> Reference:
        """Return the result in float64."""
        x, gain, bias = (array.astype(np.float64) for array in (self.x, self.gain, self.bias))
        mean, sigma = x.mean(-1, keepdims=True), np.sqrt(x.var(-1, keepdims=True) + EPSILON)
        size = (np.abs(x) + np.abs(x).mean(-1, keepdims=True)) / sigma
        allowed = (x.shape[-1] + 64) * UNIT * (np.abs(gain) * size + np.abs(bias))
        return Reference((x - mean) / sigma * gain + bias, allowed)


@dataclass(frozen=True, slots=True)
class Dequantized:
    """``(x - zero) w * scale * scales[j]`` in float32, from uint8 x (m, k) and int8 w (k, n).

    zero, scale  of the whole of x
    scales       of each column of w, constant as w is
    """

    x: Array
    w: Array
    zero: int
    scale: float
    scales: Array
    kind: str = "uint8"

    @property
    def flop(self) -> int:
        """Return the operations of the product."""
        return 2 * len(self.x) * math.prod(self.w.shape)

    def result(self) -> Array:
        """Return a new array for the result."""
        return poison_array((self.x.shape[0], self.w.shape[1]), "float32")

    def reference(self) -> Reference:
        """Return the result in float64; integers are exact, what follows is rounded a few times."""
        x = self.x.astype(np.float64)
        w, scales = self.w.astype(np.float64), self.scales.astype(np.float64)
        value = (x - self.zero) @ w * float(np.float32(self.scale)) * scales
        magnitude = (x + self.zero) @ np.abs(w) * self.scale * scales
        return Reference(value, 8 * UNIT * magnitude)


@dataclass(frozen=True)
class ModelTask:
    """A file of ONNX, as bytes, and an array for each input."""

    file: bytes
    feed: Mapping[str, Array]


@dataclass(frozen=True)
class TorchTask:
    """A module that is ready to be called, the tensors of a call, and what exports it to ONNX."""

    module: Any
    inputs: Sequence[Any]
    to_onnx: Callable[[], ModelTask]


def as_onnx(task: ModelTask | TorchTask) -> ModelTask:
    """Return a model as a file of ONNX, which torch exports of a module."""
    return task.to_onnx() if isinstance(task, TorchTask) else task


def results_of(outputs: Any) -> tuple[Array, ...]:
    """Return the arrays of what a model, or a way of a peer, gave."""
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    return tuple(
        one.detach().numpy() if hasattr(one, "detach") else np.asarray(one) for one in outputs
    )
