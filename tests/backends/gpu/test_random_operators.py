"""Operators that are drawn, with their types, extents and strides, through both executors, against float64."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from on_cpu import COMPILER, run_text

import offcut as oc
from offcut.core.interpret.values import evaluate
from tests.agree import Array, Exact, of_program, wide

DRAWS = 39
ODD = (1, 3, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40, 63, 64, 65, 72)
HALVES = ("float32", "bfloat16", "float16")
FLOATS = (*HALVES, "float64")
STEPS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
"""The distance from 1 to the next number of a type: each of some steps in it rounds a result, or what it is made of."""
Described = tuple[oc.Tensor, list[oc.Tensor]]


def array(name: str, shape: tuple[object, ...], dtype: str) -> oc.Tensor:
    return oc.placeholder(shape, dtype, name=name)


def rows() -> Any:
    return oc.dim("n", min=0, max=256)


def dense(draw: Random) -> Described:
    dtype, depth, columns, n = draw.choice(FLOATS), draw.choice(ODD), draw.choice(ODD), rows()
    turned = draw.random() < 0.4
    x = array("A", (n, depth), dtype)
    w = array("B", (columns, depth) if turned else (depth, columns), dtype)
    inputs, options = [x, w], dict[str, Any]()
    if draw.random() < 0.5:
        options["bias"] = array("C", (columns,), dtype)
    if draw.random() < 0.3:
        options["residual"] = array("D", (n, columns), dtype)
    inputs += [one for one in options.values() if isinstance(one, oc.Tensor)]
    if draw.random() < 0.5:
        options["activation"] = draw.choice(["relu", "gelu", "silu", "tanh", "sigmoid"])
    if draw.random() < 0.3 and dtype != "float64":
        options["dtype"] = "float32"
    return oc.ops.dense(x, w, transpose_w=turned, **options), inputs


def batched(draw: Random) -> Described:
    dtype, depth, columns, n = draw.choice(HALVES), draw.choice(ODD), draw.choice(ODD), rows()
    turned, lead = (draw.random() < 0.3, draw.random() < 0.4), draw.choice([(2,), (3, 2)])
    a = array("A", (*lead, depth, n) if turned[0] else (*lead, n, depth), dtype)
    b = array("B", (*lead, columns, depth) if turned[1] else (*lead, depth, columns), dtype)
    return oc.ops.matmul(a, b, transpose_a=turned[0], transpose_b=turned[1]), [a, b]


def open_product(draw: Random) -> Described:
    dtype, m, n = draw.choice(HALVES), draw.choice(ODD), oc.dim("n", min=0, max=96)
    shapes: tuple[tuple[object, ...], ...] = draw.choice(
        [((m, n), (n, 17)), ((m, 24), (24, n)), ((n, n), (n, m)), ((n, m), (m, n))]
    )
    a, b = (array(name, shape, dtype) for name, shape in zip("AB", shapes, strict=True))
    return oc.ops.matmul(a, b), [a, b]


def quantized(draw: Random) -> Described:
    depth, columns, n = draw.choice(ODD), draw.choice(ODD), rows()
    a, w = (
        array("A", (n, depth), draw.choice(["int8", "uint8"])),
        array("B", (depth, columns), "int8"),
    )
    p = oc.reduce_axis(depth, name="p")
    total = oc.compute(
        (n, columns),
        lambda i, j: oc.sum(oc.cast(a[i, p], "int32") * oc.cast(w[p, j], "int32"), axis=p),
        name="S",
    )
    is_narrow = draw.random() < 0.6
    return (oc.ops.requantize(total, draw.choice([0, 3, 7])) if is_narrow else total), [a, w]


def attention(draw: Random) -> Described:
    dtype, n = draw.choice(HALVES), oc.dim("n", min=0, max=128)
    keys = draw.choice([n, oc.dim("t", min=0, max=128)])
    own, shared = draw.choice([((), ()), ((2,), (2,)), ((2, 2), (2, 1)), ((4,), (2,))])
    depth, width = draw.choice([8, 16, 17, 24]), draw.choice([8, 13, 16])
    options = dict[str, Any]()
    if draw.random() < 0.6:
        options["causal"] = True
    if draw.random() < 0.4:
        options["window"] = draw.choice([1, 3, 40])
    if options and draw.random() < 0.5:
        options["past"] = draw.choice([1, 5, oc.dim("past", min=0, max=64)])
    q = array("A", (*own, n, depth), dtype)
    k, v = array("B", (*shared, keys, depth), dtype), array("C", (*shared, keys, width), dtype)
    return oc.ops.attention(q, k, v, **options), [q, k, v]


def of_rows(draw: Random) -> Described:
    op = draw.choice(["softmax", "log_softmax", "layernorm", "rmsnorm"])
    dtype, columns, lead = (
        draw.choice(FLOATS),
        draw.choice([*ODD, 257, 300]),
        draw.choice([(), (2,), (3, 2)]),
    )
    a = array("A", (*lead, rows(), columns), dtype)
    if op.endswith("softmax"):
        return getattr(oc.ops, op)(a, axis=draw.choice([-1, len(lead)])), [a]
    if draw.random() < 0.4:
        return getattr(oc.ops, op)(a), [a]
    gain = array("B", (columns,), dtype)
    return getattr(oc.ops, op)(a, gain), [a, gain]


def convolution(draw: Random) -> Described:
    dtype, channels, results = (
        draw.choice(HALVES),
        draw.choice([1, 3, 5, 8, 40]),
        draw.choice([4, 7, 16, 20]),
    )
    x = array("A", (rows(), channels, draw.choice([5, 6, 9]), draw.choice([5, 7, 8])), dtype)
    w = array("B", (results, channels, draw.choice([1, 2, 3]), draw.choice([1, 3])), dtype)
    options: dict[str, Any] = {
        "stride": draw.choice([1, 2, (2, 1)]),
        "padding": draw.choice([0, 1]),
    }
    if draw.random() < 0.3:
        options["activation"] = "relu"
    if draw.random() < 0.4:
        bias = array("C", (results,), dtype)
        return oc.ops.conv2d(x, w, bias, **options), [x, w, bias]
    return oc.ops.conv2d(x, w, **options), [x, w]


def elementwise(draw: Random) -> Described:
    dtype, columns, n = draw.choice(FLOATS), draw.choice([*ODD, 300]), rows()
    a, b = (
        array("A", (n, columns), dtype),
        array("B", draw.choice([(n, columns), (columns,), (n, 1)]), dtype),
    )
    one, two = (
        ("gelu", "silu", "exp", "tanh", "sigmoid"),
        ("add", "multiply", "subtract", "divide", "maximum"),
    )
    op = draw.choice([*one, *two])
    return (getattr(oc.ops, op)(a), [a]) if op in one else (getattr(oc.ops, op)(a, b), [a, b])


def reduction(draw: Random) -> Described:
    dtype, axis = draw.choice([*FLOATS, "int32"]), draw.choice([0, 1, 2, (0, 1), (1, 2), (0, 1, 2)])
    # over no rows there is no greatest
    is_open = 0 in (axis if isinstance(axis, tuple) else (axis,))
    op = "sum" if is_open else draw.choice(["sum", "max", "min"])
    a = array("A", (rows(), draw.choice([*ODD, 300]), 3), dtype)
    return getattr(oc.ops, op)(a, axis=axis), [a]


def embedding(draw: Random) -> Described:
    table = array("A", (9, draw.choice(ODD)), draw.choice(HALVES))
    ids = array("I", (rows(),), draw.choice(["int32", "int64"]))
    return oc.ops.embedding(table, ids), [table, ids]


MAKERS: tuple[Callable[[Random], Described], ...] = (
    *(dense, dense, dense, batched, open_product, quantized, attention, attention),
    *(of_rows, convolution, elementwise, reduction, embedding),
)


def drawn(
    program: oc.Program, sizes: dict[str, int], draw: np.random.Generator
) -> dict[str, Array]:
    """Inputs of a program; indices are below 9."""
    arrays = dict[str, Array]()
    for buffer in program.buffers:
        if buffer.kind.value == "input":
            shape = [int(evaluate(extent, sizes)) for extent in buffer.shape]
            dtype = np.dtype({"bfloat16": ml_dtypes.bfloat16}.get(buffer.dtype, buffer.dtype))
            if dtype.kind in "iu":
                least = 0 if dtype.kind == "u" or buffer.name == "I" else -9
                arrays[buffer.name] = draw.integers(least, 9, shape).astype(dtype)
            else:
                arrays[buffer.name] = draw.normal(size=shape).astype(dtype)
    return arrays


def strided(one: Array, draw: np.random.Generator) -> Array:
    """The same elements, by columns, as a part of a larger array, or as they are."""
    if one.ndim < 2 or draw.random() < 0.3:
        return one
    if draw.random() < 0.5:
        return np.asfortranarray(one)
    larger = np.zeros((*one.shape[:-1], one.shape[-1] + 3), one.dtype)
    larger[..., 1 : 1 + one.shape[-1]] = one
    return larger[..., 1 : 1 + one.shape[-1]]


def check(result: Any, exact: Exact, step: float) -> None:
    """Check that each element is the exact one, but for some steps of rounding of what it is made of."""
    found, value = wide(result), exact.value
    with np.errstate(all="ignore"):
        bound = 16 * step * (exact.terms + np.abs(value)) + 16 * step * 2.0**-8
        close = (found == value) | (np.isnan(found) & np.isnan(value))
        if value.dtype.kind == "f":
            close |= np.abs(found - value) <= bound
    assert close.all(), np.argwhere(~close)[:3]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DRAWS))
def test_a_drawn_operator_is_right_on_both_executors(seed: int) -> None:
    draw = Random(seed)
    machine = draw.choice(["h200", "h200", "a100"])
    result, inputs = MAKERS[seed % len(MAKERS)](draw)
    source = oc.compile(result, inputs=inputs, target="interpret").loops
    target = oc.target("cuda", machine=machine, device="emulated")
    kernel = oc.compile(result, inputs=inputs, target=target)
    step = max(STEPS.get(buffer.dtype, 0.0) for buffer in source.buffers)
    for n in (0, 1, draw.choice([15, 17, 33]), draw.choice([64, 65, 70])):
        sizes = {s.name: n if s.name == "n" else draw.choice([1, 9, 33]) for s in source.sizes}
        values = np.random.default_rng([seed, n])
        arrays = drawn(source, sizes, values)
        exact = of_program(source, arrays, **sizes)
        own = {name: size for name, size in sizes.items() if name == "past"}
        given = {name: strided(one, values) for name, one in arrays.items()}
        check(kernel(**given, **own), exact, step)
        if n in (15, 17, 33) and COMPILER is not None:
            (found,) = run_text(kernel.loops, arrays, sizes).values()
            check(found, exact, step)
