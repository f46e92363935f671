"""Cycles of formulas are those of calls, but for the part that the formulas state: over operators, strategies and machines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import accelerators
import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut import CallError, Cost, PartitionError
from offcut.costmodel import Formulas
from offcut.costmodel.arrays import Calls
from offcut.costmodel.closed.prediction import SampledPrediction
from offcut.partition.strategies.catalog import parse_strategy
from tests.facade import proved_plan, requested, stand_ins, strategies

n = oc.dim("n", min=0, max=1024)
TILE = 16
SIZES = (0, 1, TILE - 1, TILE, TILE + 1, 3 * TILE, 3 * TILE + 5)

Described = tuple[Any, list[Any], list[str]]
"""A result, its inputs, and those of them that are constants."""


def inputs(*shapes: tuple[Any, ...]) -> list[Any]:
    return [oc.placeholder(shape, name=f"X{k}") for k, shape in enumerate(shapes)]


def binary(
    op: Callable[..., Any], first: tuple[Any, ...], other: tuple[Any, ...], constant: bool
) -> Callable[[], Described]:
    def describe() -> Described:
        a, w = inputs(first, other)
        return op(a, w), [a, w], ["X1"] if constant else []

    return describe


def unary(op: Callable[..., Any], *shape: Any, **options: Any) -> Callable[[], Described]:
    def describe() -> Described:
        (x,) = inputs(shape)
        return op(x, **options), [x], []

    return describe


def convolution(channels: int, groups: int, layout: str, **options: Any) -> Callable[[], Described]:
    """Return a 3×3 convolution of images of width n."""

    def describe() -> Described:
        image, filters = (1, 6, n, channels), (3, 3, channels // groups, channels)
        if layout == "NCHW":
            image, filters = (1, channels, 6, n), (channels, channels // groups, 3, 3)
        x, w = inputs(image, filters)
        made = oc.ops.conv2d(x, w, groups=groups, layout=layout, padding=1, **options)
        return made, [x, w], ["X1"]

    return describe


def attention(causal: bool = False) -> Described:
    q, k, v = inputs(*[(1, n, 32)] * 3)
    return oc.ops.attention(q, k, v, causal=causal), [q, k, v], []


ops = oc.ops
PROGRAMS: dict[str, Callable[[], Described]] = {
    "rows": binary(ops.matmul, (n, 48), (48, 40), True),
    "unpacked rows": binary(ops.matmul, (n, 48), (48, 40), False),
    "columns": binary(ops.matmul, (16, 48), (48, n), False),
    "terms": binary(ops.matmul, (16, n), (n, 40), False),
    "matrix and vector": binary(ops.matmul, (n, 48), (48, 1), True),
    "batches": binary(ops.matmul, (2, n, 32), (2, 32, n), False),
    "add": binary(ops.add, (n, 33), (n, 33), False),
    "bias": binary(ops.add, (n, 33), (33,), False),
    "softmax": unary(ops.softmax, n, 33),
    "softmax of n": unary(ops.softmax, 8, n),
    "layernorm": unary(ops.layernorm, n, 33),
    "rmsnorm of n": unary(ops.rmsnorm, 8, n),
    "gelu": unary(ops.gelu, 5, n),
    "relu": unary(ops.relu, n),
    "sum of rows": unary(ops.sum, 8, n, axis=1),
    "sum of columns": unary(ops.sum, n, 33, axis=0),
    "mean": unary(ops.mean, n, 33, axis=1),
    "greatest": unary(ops.max, 8, n, axis=1),
    "argmax": unary(ops.argmax, n, 20, axis=1),
    "cumsum": unary(ops.cumsum, 5, n, axis=1),
    "transpose": unary(ops.transpose, n, 33),
    "flip": unary(ops.flip, 5, n, axes=(1,)),
    "pad": unary(ops.pad, 5, n, before=(1, 2), after=(1, 2)),
    "maxpool": unary(ops.max_pool2d, 1, 6, n, 16, window=3, stride=1, padding=1, layout="NHWC"),
    "average pool": unary(ops.global_avg_pool, 2, 16, n, 7),
    "convolution": convolution(16, 1, "NHWC"),
    "of planes": convolution(16, 1, "NCHW"),
    "grouped": convolution(32, 4, "NHWC"),
    "depthwise": convolution(16, 16, "NHWC"),
    "depthwise of planes": convolution(16, 16, "NCHW"),
    "every other row": convolution(16, 16, "NHWC", stride=2),
    "attention": attention,
    "causal": partial(attention, causal=True),
}
EXACT = ("rows", "columns", "batches", "softmax of n", "cumsum", "depthwise", "every other row")
"""Whose formulas on a processor are those of calls, but for bytes: to half a percent."""


QUEUES: dict[str, Callable[[], Described]] = {
    "dense": lambda: (*accelerators.dense(70, 45, most=1024)[::-1], []),
    "residual": lambda: (*accelerators.residual(70, 45, most=1024)[::-1], []),
    "pooling": lambda: (*accelerators.pooling(64)[::-1], []),
    "convolution": lambda: (*accelerators.convolution(64)[::-1], []),
}
"""For machines of queues, whose formulas are to be within 5 % of calls."""


def check(program: str, machine: str, strategy: str) -> float:
    """Return what the formulas state; their cycles at the sizes are those of calls but for that."""
    on_queues = machine in ("vta", "gemmini")
    output, arguments, constants = (QUEUES if on_queues else PROGRAMS)[program]()
    cuda = "cuda" if machine == "h200" else "cpu"
    target = oc.target(machine) if on_queues else oc.target(cuda, machine=machine)
    request = requested(output, arguments, stand_ins(constants, output, arguments, "plan"), "plan")
    of = {} if strategy == "auto" else {"strategy": parse_strategy(strategy, at="")}
    options = target.options("compile", **of)
    try:
        planned = proved_plan(target, request, options)
    except PartitionError:  # a strategy that is not legal there, or not proved
        pytest.skip(f"{strategy} is refused for {program}")
    formulas = target.predict_cost(planned, request, options)
    assert isinstance(formulas, Formulas)
    (name,) = formulas.users
    calls = Calls({name: np.array(SIZES)}, len(SIZES))
    formula = SampledPrediction(formulas.prediction, calls).cycles
    for size, cycles in zip(SIZES, formula, strict=True):
        try:
            call = target.predict_cost(planned, request, options, {"n": size})
        except CallError:  # a window that does not fit
            continue
        assert isinstance(call, Cost)
        assert abs(cycles - call.cycles) <= (formulas.within + 0.02) * call.cycles, size
    if on_queues:
        assert formulas.within <= 0.05
    elif program in EXACT:
        assert formulas.within <= 5e-3
    return formulas.within


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("program", "strategy"),
    [
        *((program, "mask") for program in PROGRAMS if program in EXACT),
        *(slow(program, "auto") for program in PROGRAMS),
        *(slow(*pair) for pair in zip(PROGRAMS, cycle(strategies()), strict=False)),
    ],
)
def test_formulas_state_by_how_much_they_are_off(program: str, strategy: str) -> None:
    check(program, "zen4", strategy)


@pytest.mark.parametrize(
    ("program", "machine"),
    [
        ("unpacked rows", "h200"),
        ("columns", "avx2"),
        slow("causal", "zen4"),
        ("dense", "gemmini"),
        *(slow(one, "vta") for one in QUEUES),
        *(
            slow(*pair)
            for pair in zip(PROGRAMS, cycle(("avx2", "neoverse-n1", "h200")), strict=False)
        ),
    ],
)
def test_formulas_of_other_machines_state_it_too(program: str, machine: str) -> None:
    check(program, machine, "auto")
