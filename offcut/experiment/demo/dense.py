"""Dense layers, each a function of its own: by offcut for the picture, by numpy for the rival."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from scipy.special import erf

import offcut as oc
from offcut.experiment.demo.tokens import LONGEST
from offcut.experiment.demo.weights import Array, Linear

RSQRT2 = 0.7071067811865476  # 1 / sqrt(2)


@dataclass(frozen=True, slots=True)
class Shape:
    """What distinguishes one dense layer from another, its weights apart: (n, k) to (n, m).

    k, m   columns of the input and of the result
    gelu   whether the exact gelu, ``y * (1 + erf(y / sqrt(2))) / 2``, follows the bias
    """

    k: int
    m: int
    gelu: bool

    def flop(self, rows: int) -> int:
        """Return the multiplications and additions of the matrix product alone."""
        return 2 * rows * self.k * self.m

    def __str__(self) -> str:
        return f"{self.k} → {self.m}" + (", gelu" if self.gelu else "")


def shape_of(linear: Linear, gelu: bool) -> Shape:
    """Return the shape of a dense layer with these weights."""
    k, m = linear.weight.shape
    return Shape(k, m, gelu)


class Dense(Protocol):
    """One dense layer."""

    def __call__(self, x: Array, out: Array) -> Array:
        """Write the result for `x`, (n, k), to `out`, (n, m), and return that."""


@dataclass(frozen=True, slots=True)
class OffcutDense:
    """A dense layer by offcut, for any number of rows from 1 to 512."""

    kernel: oc.Kernel

    def __call__(self, x: Array, out: Array) -> Array:
        """Write the result for `x` to `out` and return that."""
        result: Array = self.kernel(x, out=out)
        return result


def compile_dense(linear: Linear, gelu: bool, strategy: str) -> OffcutDense:
    """Return a float32 dense layer: product, bias and gelu in one kernel, on one thread.

    strategy   how rows are cut
    """
    shape = shape_of(linear, gelu)
    n = oc.dim("n", min=1, max=LONGEST)
    x = oc.placeholder((n, shape.k), "float32", name="A")
    w = oc.placeholder((shape.k, shape.m), "float32", name="W")
    bias = oc.placeholder((shape.m,), "float32", name="bias")
    kernel = oc.compile(
        oc.ops.dense(x, w, bias, "gelu" if gelu else None, name="Y"),
        inputs=[x, w, bias],
        constants={"W": linear.weight, "bias": linear.bias},
        strategy=strategy,
        threads=1,
    )
    return OffcutDense(kernel)


@dataclass(slots=True)
class NumpyEngine:
    """Dense layers by numpy, gelu by scipy's erf; every step in place, nothing allocated per call.

    Works in the element type of its arguments.
    """

    _scratch: dict[tuple[int, np.dtype[Any]], Array] = field(default_factory=dict)

    def dense(self, linear: Linear, gelu: bool) -> Dense:
        """Return the layer."""

        def plain(x: Array, out: Array) -> Array:
            np.matmul(x, linear.weight, out=out)
            return np.add(out, linear.bias, out=out)

        def with_gelu(x: Array, out: Array) -> Array:
            plain(x, out)
            scratch = self._rows(out)
            np.multiply(out, RSQRT2, out=scratch)
            erf(scratch, out=scratch)
            np.add(scratch, 1.0, out=scratch)
            np.multiply(out, scratch, out=out)
            np.multiply(out, 0.5, out=out)
            return out

        return with_gelu if gelu else plain

    def _rows(self, like: Array) -> Array:
        """Return an array of the shape and type of `like`, the same memory every time."""
        rows, columns = like.shape
        key = columns, like.dtype
        if key not in self._scratch or len(self._scratch[key]) < rows:
            self._scratch[key] = np.ones((max(rows, LONGEST), columns), like.dtype)
        return self._scratch[key][:rows]
