"""Each operator of graphs on arrays of two or more axes: for tests that are about all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import offcut as oc
from offcut.graph.operators import get_operator
from offcut.graph.program_operators import ProgramApplication, given_to
from tests.compiled import Array
from tests.facade import Bound, Builder, Ref, numpy_dtype

SIZES = {"n": 17, "m": 5}
"""The sizes that extents of inputs name."""

DOUBLED = """
program doubled
size n in 0:65
size m in 0:65
input x: float32[n, m, 3]
output y: float32[n, m, 3]
output z: int32[m, n]
for i in 0:n
  for j in 0:m
    z[j, i] = int32(0)
    for k in 0:3
      y[i, j, k] = x[i, j, k] + x[i, j, k]
"""


@dataclass(frozen=True)
class Input:
    """An array that an operator reads.

    shape  extents: numbers, or names of `SIZES`
    least, most  of integers, the latter not among them; of floats, they are normal where these are equal
    """

    shape: tuple[int | str, ...]
    dtype: str = "float32"
    least: float = 0
    most: float = 0

    def array(self, seed: str, shape: tuple[int, ...] | None = None) -> Array:
        """Return values of it that depend on the seed alone."""
        extents = tuple(SIZES[e] if isinstance(e, str) else e for e in self.shape)
        shape = extents if shape is None else shape
        generator = np.random.default_rng([*seed.encode()])
        if self.dtype == "bool":
            return generator.integers(0, 2, shape).astype(bool)
        if self.dtype.startswith(("int", "uint")):
            most = self.most or 7
            return generator.integers(int(self.least), int(most), shape).astype(self.dtype)
        if self.most > self.least:
            return generator.uniform(self.least, self.most, shape).astype(numpy_dtype(self.dtype))
        return generator.standard_normal(shape).astype(numpy_dtype(self.dtype))


@dataclass(frozen=True)
class Case:
    """A call of an operator.

    arguments  names of inputs stand for these; options likewise
    """

    op: str
    inputs: Mapping[str, Input]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def arrays(self) -> dict[str, Array]:
        """Return an array for each input."""
        return {name: one.array(f"{self.op}{name}") for name, one in self.inputs.items()}

    def results(self, made: Builder, inputs: Mapping[str, Ref]) -> tuple[Ref, ...]:
        """Add the node to a graph."""
        found = made.node(self.op, *self._with(inputs), **self._options(inputs))
        return found if isinstance(found, tuple) else (found,)

    def bound(self) -> Bound:
        """Return a graph of the one node."""
        made = Builder(self.op)
        sizes = {name: made.size(name, 0, 64) for name in SIZES}
        inputs = {
            name: made.input(name, one.dtype, tuple(sizes.get(e, e) for e in one.shape))  # type: ignore[call-overload,arg-type]
            for name, one in self.inputs.items()
        }
        made.output(*self.results(made, inputs))
        return made.bound

    def described(self) -> tuple[Any, dict[str, oc.Tensor]]:
        """Return what the operator gives of placeholders, and these by name."""
        sizes = {name: oc.dim(name, max=64) for name in SIZES}
        tensors = {
            name: oc.placeholder([sizes.get(e, e) for e in one.shape], one.dtype, name)  # type: ignore[call-overload,arg-type]
            for name, one in self.inputs.items()
        }
        return get_operator(self.op)(*self._with(tensors), **self._options(tensors)), tensors

    def kernel(self) -> oc.Kernel:
        """Return the operator as a kernel."""
        found, tensors = self.described()
        if isinstance(found, ProgramApplication):
            assert len(given_to(found.program)) == len(tensors)
            return oc.compile(found.program)
        if isinstance(found, oc.Program):
            return oc.compile(found)
        return oc.compile(found, inputs=[*tensors.values()])

    def _with(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_replaced(one, values) for one in self.arguments)

    def _options(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _replaced(one, values) for name, one in self.options.items()}


def _replaced(one: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(one, list):
        return [_replaced(each, values) for each in one]
    return values.get(one, one) if isinstance(one, str) else one


X = Input(("n", "m", 3))
POSITIVE = Input(("n", "m", 3), least=0.5, most=2)
INTEGERS = Input(("n", "m", 3), "int32", 1, 9)
BOOLS = Input(("n", "m", 3), "bool")
IMAGES = Input(("n", 4, 7, 6))
ROWS = Input(("n", "m", 8))


def unary(op: str, x: Input = POSITIVE, **options: Any) -> Case:
    return Case(op, {"x": x}, ("x",), options)


def binary(op: str, x: Input = POSITIVE) -> Case:
    return Case(op, {"x": x, "y": x}, ("x", "y"))


def over(op: str, inputs: Mapping[str, Input], **options: Any) -> Case:
    """Return a call with its inputs in order."""
    return Case(op, inputs, tuple(inputs), options)


LETTERS = """absolute ceil cos elu erf exp floor gelu gelu_tanh hardsigmoid hardswish leaky_relu log log1p negative reciprocal relu relu6
round rsqrt sigmoid sign silu sin softplus sqrt square tanh"""
PAIRS = """add atan2 divide maximum minimum multiply power subtract equal greater greater_equal less less_equal not_equal"""
PLACES = Input((4, 2), "int64", 0, 5)
RECURRENT = {"x": Input(("n", "m", 8)), "r": Input((8, 8))}

CASES: tuple[Case, ...] = (
    *map(unary, LETTERS.split()),
    *map(binary, PAIRS.split()),
    *(
        binary(op, INTEGERS)
        for op in (
            "floor_divide",
            "remainder",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "shift_left",
            "shift_right",
        )
    ),
    unary("bitwise_not", INTEGERS),
    *(binary(op, BOOLS) for op in ("logical_and", "logical_or", "logical_xor")),
    unary("logical_not", BOOLS),
    unary("clip", X, low=-0.5, high=0.5),
    unary("cast", X, dtype="int32"),
    over("where", {"c": BOOLS, "x": X, "y": X}),
    over("integer_power", {"x": INTEGERS, "y": Input(("n", "m", 3), "int32", 0, 4)}),
    *(unary(op, X, axis=1) for op in ("sum", "mean", "max", "min", "argmax", "argmin")),
    *(unary(op, X, axis=0, keepdims=True) for op in ("sum", "argmax")),
    *(
        unary(op, X, axis=1)
        for op in ("softmax", "log_softmax", "cummax", "cummin", "cumprod", "cumsum")
    ),
    unary("accumulated", X, axis=0, reduction="max", places=True),
    unary("accumulated", X, axis=1),
    *(unary(op, X, axis=1) for op in ("sort", "merged")),
    *(unary(op, Input(("n", 6, "m")), k=3, axis=1) for op in ("topk", "kth")),
    over(
        "leading",  # of lines of one element, which comes before any such last one
        {
            "x": Input(("n", 1, "m")),
            "last": Input(("n", 1, "m"), "float32", -9, -8),
            "place": Input(("n", 1, "m"), "int64", 0, 1),
        },
        k=1,
        axis=1,
    ),
    *(unary(op, ROWS) for op in ("layernorm", "rmsnorm")),
    unary("groupnorm", IMAGES, groups=2),
    unary("instancenorm", IMAGES),
    over(
        "batchnorm", {"x": IMAGES, "mean": Input((4,)), "variance": Input((4,), least=0.5, most=2)}
    ),
    over("dense", {"x": ROWS, "w": Input((8, 12)), "bias": Input((12,))}),
    over("matmul", {"a": Input(("n", "m", 8)), "b": Input(("n", 8, 12))}),
    over(
        "matmul",
        {"a": Input(("n", 8, "m")), "b": Input(("n", 12, 8))},
        transpose_a=True,
        transpose_b=True,
    ),
    over(
        "grouped_matmul",
        {"x": Input(("n", 8)), "w": Input((3, 8, 12)), "ends": Input((3,), "int32", 17, 18)},
    ),
    over(
        "dense_quantized",
        {"x": Input(("n", "m", 8), "uint8", 0, 9), "w": Input((8, 12), "int8", -9, 9)},
        x_scale=0.5,
        w_scale=0.25,
    ),
    over(
        "dense_blockwise",
        {
            "x": Input(("n", "m", 24)),
            "w": Input((24, 12), "int8", -9, 9),
            "scale": Input((3, 12)),
        },
    ),
    unary("quantize", X, scale=0.25),
    unary("dequantize", Input(("n", "m", 3), "int8", -9, 9), scale=0.25),
    unary("requantize", Input(("n", "m", 3), "int32", -999, 999), shift=3),
    over(
        "attention", {"q": Input(("n", 4, 8)), "k": Input(("n", "m", 8)), "v": Input(("n", "m", 8))}
    ),
    over("conv1d", {"x": Input(("n", 4, "m")), "w": Input((6, 4, 3))}, padding=1),
    over("conv2d", {"x": IMAGES, "w": Input((6, 4, 3, 3))}, padding=1),
    over("conv2d", {"x": IMAGES, "w": Input((4, 2, 3, 3))}, groups=2),
    over("conv3d", {"x": Input((2, 3, "m", 5, 4)), "w": Input((6, 3, 2, 2, 2))}, padding=1),
    over("conv_transpose2d", {"x": IMAGES, "w": Input((4, 6, 3, 3))}, stride=2),
    over("conv_transpose3d", {"x": Input((2, 3, "m", 3, 4)), "w": Input((3, 2, 2, 2, 2))}),
    *(unary(op, IMAGES, window=2) for op in ("avg_pool2d", "max_pool2d", "max_pool2d_with_places")),
    *(unary(op, IMAGES, size=3) for op in ("adaptive_avg_pool2d", "adaptive_max_pool2d")),
    unary("global_avg_pool", IMAGES),
    unary("interpolate", IMAGES, scale=2, mode="linear"),
    unary("fold", Input(("n", 2, 2, 2, 4, 4)), size=(5, 5)),
    over("grid_sample", {"x": IMAGES, "grid": Input(("n", 3, "m", 2))}),
    unary("unfold", IMAGES, window=2, padding=1),
    Case("concat", {"x": X, "y": X}, (["x", "y"],), {"axis": 1}),
    unary("flip", X, axes=1),
    unary("pad", X, before=(1, 0, 2), after=(0, 1, 1)),
    unary("repeat", X, counts=(2, 1, 3)),
    unary("transpose", X, axes=(2, 0, 1)),
    unary("merge_axes", Input(("n", 3, 4)), axis=1),
    unary("sliding_windows", Input(("n", 9, 2)), axis=1, size=3, step=2),
    unary("split_axis", Input(("n", 12, "m")), axis=1, inner=3),
    over("take", {"x": X, "indices": Input((4, 2), "int64", -2, 3)}, axis=2),
    over("take_along_axis", {"x": X, "indices": Input(("n", "m", 3), "int64", -2, 3)}, axis=2),
    over("embedding", {"table": Input((9, 6)), "ids": Input(("n", "m"), "int64", 0, 9)}),
    unary("one_hot", Input(("n", "m"), "int64", 0, 4), depth=4),
    Case("iota", {}, (7,)),
    over(
        "scatter_elements",
        {"x": X, "indices": Input(("n", "m", 3), "int64", 0, 3), "updates": X},
        axis=2,
        reduction="add",
    ),
    over("scatter_nd", {"x": Input((9, 7, "m")), "indices": PLACES, "updates": Input((4, "m"))}),
    over("rnn", RECURRENT),
    over("gru", {"x": Input(("n", "m", 24)), "r": Input((24, 8))}),
    over("lstm", {"x": Input(("n", "m", 32)), "r": Input((32, 8))}),
    Case("program", {"x": X}, (DOUBLED, "x")),
    Case("reshape", {"x": X}, ("x", (-1, 3))),
    Case("broadcast_to", {"x": Input((1, 4, 3))}, ("x", (6, 4, 3))),
    Case("slice", {"x": Input(("n", 9, 3))}, ("x", 1, 1, 8, 2)),
)
