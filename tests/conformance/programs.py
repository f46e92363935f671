"""Small random programs, as a user describes them: products, sums of rows, windows, chains of elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

import offcut as oc
from offcut import Tensor
from tests.facade import numpy_dtype

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A result over ``n`` rows, its inputs, and which of these are weights.

    shapes  of the inputs, by the number of rows
    """

    result: Tensor
    inputs: tuple[Tensor, ...]
    weights: tuple[str, ...]
    shapes: Callable[[int], list[tuple[int, ...]]]

    def arrays(self, n: int) -> list[Array]:
        """Inputs at ``n`` rows; the first rows are those of any other number of rows."""
        made: list[Array] = []
        for tensor, shape in zip(self.inputs, self.shapes(n), strict=True):
            generator = np.random.default_rng([*tensor.name.encode(), *shape[1:]])
            integer = np.issubdtype(numpy_dtype(tensor.dtype), np.integer)
            values = generator.integers(-9, 10, shape) if integer else generator.normal(size=shape)
            made.append(values.astype(numpy_dtype(tensor.dtype)))
        return made


def case(seed: int) -> Case:
    """One program, the same for the same `seed`."""
    draw = Random(seed)
    kind = (_product, _rows, _window, _elements)[seed % 4]
    return kind(draw, draw.choice(("float32", "float32", "float64", "int32")))


def case_of_bytes(seed: int) -> Case:
    """One of the same kind on int8, for targets that take no other elements; sums are of int32, and cut."""
    draw = Random(seed)
    kinds = _product_of_bytes, _rows, _window_of_bytes, _elements
    return kinds[seed % 4](draw, "int8")


def _product_of_bytes(draw: Random, dtype: str) -> Case:
    n, depth, columns = oc.dim("n", max=4096), draw.randint(1, 21), draw.randint(1, 37)
    a = oc.placeholder((n, depth), dtype, "A")
    w = oc.placeholder((depth, columns), dtype, "W")
    bias = oc.placeholder((columns,), "int32", "bias")
    k = oc.reduce_axis(depth, name="k")
    total = oc.compute(
        (n, columns),
        lambda i, j: oc.sum(oc.cast(a[i, k], "int32") * oc.cast(w[k, j], "int32"), axis=k),
        name="S",
    )
    after = draw.choice(("nothing", "bias", "relu"))

    def cut(i: Any, j: Any) -> Any:
        value = total[i, j] + bias[j] if after == "bias" else total[i, j]
        value = oc.maximum(value, 0) if after == "relu" else value
        return oc.cast(oc.maximum(oc.minimum(value // 4, 127), -128), "int8")

    made = oc.compute((n, columns), cut, name="C")
    inputs: tuple[Tensor, ...] = (a, w, bias) if after == "bias" else (a, w)
    shapes = [(depth, columns), (columns,)][: len(inputs) - 1]
    return Case(made, inputs, tuple(t.name for t in inputs[1:]), lambda n: [(n, depth), *shapes])


def _product(draw: Random, dtype: str) -> Case:
    n, depth, columns = oc.dim("n", max=4096), draw.randint(1, 21), draw.randint(1, 37)
    a = oc.placeholder((n, depth), dtype, "A")
    w = oc.placeholder((depth, columns), dtype, "W")
    bias = oc.placeholder((columns,), dtype, "bias")
    k = oc.reduce_axis(depth, name="k")
    total = oc.compute((n, columns), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="S")
    after = draw.choice(("nothing", "bias", "relu"))
    inputs: tuple[Tensor, ...] = (a, w)
    if after == "bias":
        made = oc.compute((n, columns), lambda i, j: total[i, j] + bias[j], name="C")
        inputs = (a, w, bias)
    elif after == "relu":
        made = oc.compute((n, columns), lambda i, j: oc.maximum(total[i, j], 0), name="C")
    else:
        made = total
    shapes = [(depth, columns), (columns,)][: len(inputs) - 1]
    return Case(made, inputs, tuple(t.name for t in inputs[1:]), lambda n: [(n, depth), *shapes])


def _rows(draw: Random, dtype: str) -> Case:
    n, columns = oc.dim("n", max=4096), draw.randint(1, 40)
    a = oc.placeholder((n, columns), dtype, "A")
    k = oc.reduce_axis(columns, name="k")
    reduce = draw.choice((oc.sum, oc.max, oc.min))
    rows = oc.compute((n,), lambda i: reduce(a[i, k], axis=k), name="R")
    made = oc.compute((n, columns), lambda i, j: a[i, j] - rows[i], name="C")
    return Case(draw.choice((rows, made)), (a,), (), lambda n: [(n, columns)])


def _window(draw: Random, dtype: str) -> Case:
    n, columns, reach = oc.dim("n", max=4096), draw.randint(1, 20), draw.randint(1, 3)
    a = oc.placeholder((n + reach, columns), dtype, "A")
    made = oc.compute(
        (n, columns),
        lambda i, j: oc.where(i + j > reach, a[i + reach, j], a[i, j] * 2) - a[i, 0],
        name="C",
    )
    return Case(made, (a,), (), lambda n: [(n + reach, columns)])


def _window_of_bytes(draw: Random, dtype: str) -> Case:
    n, columns, reach = oc.dim("n", max=4096), draw.randint(1, 20), draw.randint(1, 3)
    a = oc.placeholder((n + reach, columns), dtype, "A")
    made = oc.compute(
        (n, columns),
        lambda i, j: oc.maximum(a[i + reach, j], a[i, j] * 2) - a[i, 0],
        name="C",
    )
    return Case(made, (a,), (), lambda n: [(n + reach, columns)])


def _elements(draw: Random, dtype: str) -> Case:
    n, columns = oc.dim("n", max=4096), draw.randint(1, 40)
    a = oc.placeholder((n, columns), dtype, "A")
    b = oc.placeholder((columns, n), dtype, "B")
    operations = [
        lambda x, y: x + y,
        lambda x, y: x * y,
        lambda x, y: oc.maximum(x, y),
        lambda x, y: oc.minimum(x, y) - x,
    ]
    first, second = draw.choice(operations), draw.choice(operations)
    half = oc.compute((n, columns), lambda i, j: first(a[i, j], b[j, i]), name="H")
    made = oc.compute((n, columns), lambda i, j: second(half[i, j], a[i, j]), name="C")
    return Case(made, (a, b), (), lambda n: [(n, columns), (columns, n)])
