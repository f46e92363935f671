"""The encoder's dense layers: who computes them, and what each call took.

The encoder knows `Engine` and `Dense` only. Two engines implement them: offcut, which compiles one
kernel per layer shape and binds each layer's weights to it, and numpy with scipy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import process_time, process_time_ns
from typing import Any, Protocol

import numpy as np
from scipy.special import erf

import offcut as oc
import offcut.pipeline  # now, so that no compile is charged for imports
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


class Engine(Protocol):
    """Makes dense layers from weights."""

    def dense(self, linear: Linear, gelu: bool) -> Dense:
        """Return the layer ``x @ weight + bias``, gelu after it if asked for."""


class Kernel(Protocol):
    """What the demo uses of a compiled kernel with constant W and bias."""

    def __call__(self, x: Array, *, out: Array) -> Array:
        """Write the result for `x` to `out` and return that."""

    def with_constants(self, constants: Mapping[str, Array]) -> "Kernel":
        """Return a kernel of the same code with other constants, packed now."""


@dataclass(frozen=True, slots=True)
class Compile:
    """One call of `oc.compile`: for which layer shape, and its seconds of processor time."""

    shape: Shape
    seconds: float


@dataclass(slots=True)
class OffcutEngine:
    """Dense layers by offcut, for any number of rows from 1 to 512, on one thread.

    strategy   how rows are cut
    compiles   every call of `oc.compile` so far; a second layer of a shape adds none
    """

    strategy: str = "auto"
    compiles: list[Compile] = field(default_factory=list)
    _kernels: dict[Shape, Kernel] = field(default_factory=dict)

    def dense(self, linear: Linear, gelu: bool) -> Dense:
        """Return the layer; the first of its shape is compiled, the others exchange constants."""
        shape = shape_of(linear, gelu)
        constants = {"W": linear.weight, "bias": linear.bias}
        if shape in self._kernels:
            return _Bound(self._kernels[shape].with_constants(constants))
        start = process_time()
        kernel = compile_dense(shape, constants, self.strategy)
        self.compiles.append(Compile(shape, process_time() - start))
        self._kernels[shape] = kernel
        return _Bound(kernel)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A kernel as a dense layer."""

    kernel: Kernel

    def __call__(self, x: Array, out: Array) -> Array:
        return self.kernel(x, out=out)


def compile_dense(shape: Shape, constants: Mapping[str, Array], strategy: str) -> Kernel:
    """Return the kernel of a float32 dense layer: product, bias and gelu in one.

    constants   W (k, m) and bias (m,); its code fits any other pair of the same shapes
    """
    n = oc.dim("n", min=1, max=LONGEST)
    x = oc.placeholder((n, shape.k), "float32", name="A")
    w = oc.placeholder((shape.k, shape.m), "float32", name="W")
    bias = oc.placeholder((shape.m,), "float32", name="bias")
    k = oc.reduce_axis(shape.k, name="k")
    h = oc.compute((n, shape.m), lambda i, j: oc.sum(x[i, k] * w[k, j], axis=k), name="H")

    def result(i: Any, j: Any) -> Any:
        y = h[i, j] + bias[j]
        return 0.5 * y * (1.0 + oc.erf(y * RSQRT2)) if shape.gelu else y

    y = oc.compute((n, shape.m), result, name="Y")
    kernel: Kernel = oc.compile(
        y,
        inputs=[x, w, bias],
        constants=dict(constants),
        target="cpu",
        strategy=strategy,
        threads=1,
    )
    return kernel


@dataclass(slots=True)
class NumpyEngine:
    """Dense layers by numpy, gelu by scipy's erf; every step in place, nothing allocated per call.

    Works in the element type of its arguments.

    gelu_ns   nanoseconds of processor time spent in gelu so far, over all layers
    """

    gelu_ns: int = 0
    _scratch: dict[tuple[int, np.dtype[Any]], Array] = field(default_factory=dict)

    def dense(self, linear: Linear, gelu: bool) -> Dense:
        """Return the layer."""

        def plain(x: Array, out: Array) -> Array:
            np.matmul(x, linear.weight, out=out)
            return np.add(out, linear.bias, out=out)

        def with_gelu(x: Array, out: Array) -> Array:
            plain(x, out)
            start = process_time_ns()
            scratch = self._rows(out)
            np.multiply(out, RSQRT2, out=scratch)
            erf(scratch, out=scratch)
            np.add(scratch, 1.0, out=scratch)
            np.multiply(out, scratch, out=out)
            np.multiply(out, 0.5, out=out)
            self.gelu_ns += process_time_ns() - start
            return out

        return with_gelu if gelu else plain

    def _rows(self, like: Array) -> Array:
        """Return an array of the shape and type of `like`, the same memory every time."""
        rows, columns = like.shape
        key = columns, like.dtype
        if key not in self._scratch or len(self._scratch[key]) < rows:
            self._scratch[key] = np.ones((max(rows, LONGEST), columns), like.dtype)
        return self._scratch[key][:rows]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a dense layer: its shape, its rows, and its nanoseconds of processor time."""

    shape: Shape
    rows: int
    ns: int


@dataclass(frozen=True, slots=True)
class Timed:
    """An engine whose layers note every call, in order, in `calls`."""

    engine: Engine
    calls: list[Call] = field(default_factory=list)

    def dense(self, linear: Linear, gelu: bool) -> Dense:
        """Return the engine's layer with a clock around it (under 1 µs a call)."""
        shape, layer, note = shape_of(linear, gelu), self.engine.dense(linear, gelu), self.calls

        def timed(x: Array, out: Array) -> Array:
            start = process_time_ns()
            result = layer(x, out)
            note.append(Call(shape, len(x), process_time_ns() - start))
            return result

        return timed
