"""A plan and a cost are one answer: the seconds that `plan` says are those of `cost`, on every target, at every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import slow

import offcut as oc
from offcut import Program, Target, Tensor
from tests.agree import nearly

OF_QUEUES = ("vta", "vta-osdi18", "gemmini")  # they take int8 alone, and arrays that are described

STENCIL = """program stencil
size n in 3:513
input A: float32[n, 64]
output B: float32[n, 64]
for i in 1:n - 1
  for j in 1:63
    B[i, j] = A[i, j] + A[i - 1, j] + A[i + 1, j]
"""
SCAN = """program scan
size n in 1:513
input A: float32[n]
inout B: float32[n]
for i in 1:n
  B[i] = A[i] * 2.0 + B[i - 1]
"""


def dense(dtype: str) -> Any:
    n, k, wide = rows(), oc.reduce_axis(64, name="k"), "int32" if dtype == "int8" else dtype
    a, w = oc.placeholder((n, 64), dtype, "A"), oc.placeholder((64, 70), dtype, "W")
    total = oc.compute(
        (n, 70),
        lambda i, j: oc.sum(oc.cast(a[i, k], wide) * oc.cast(w[k, j], wide), axis=k),
        name="S",
    )
    return oc.ops.requantize(total, 6, name="Y") if dtype == "int8" else total


def rows() -> Any:
    return oc.dim("n", min=1, max=512)


def of(op: str, *shapes: tuple[Any, ...], **options: Any) -> Callable[[str], Any]:
    def make(dtype: str) -> Any:
        named = [
            oc.placeholder(tuple(rows() if one == "n" else one for one in shape), dtype, name)
            for shape, name in zip(shapes, "ABC", strict=False)
        ]
        return getattr(oc.ops, op)(*named, **options)

    return make


PROGRAMS: dict[str, Callable[[str], Tensor | Program]] = {
    "dense": dense,
    "relu": of("relu", ("n", 100)),
    "pool": of("max_pool2d", ("n", 16, 14, 14), window=3, stride=2),
    "softmax": of("softmax", ("n", 512)),
    "layernorm": of("layernorm", ("n", 512)),
    "conv2d": of("conv2d", ("n", 8, 14, 14), (16, 8, 3, 3), padding=1),
    "attention": of("attention", (2, "n", 64), (2, "n", 64), (2, "n", 64)),
    "stencil": lambda _: oc.parse(STENCIL),
    "scan": lambda _: oc.parse(SCAN),
}
SLOW = ("attention", "conv2d")
OF_BYTES = ("dense", "relu", "pool")


@pytest.mark.every(6)
@pytest.mark.parametrize("program", [slow(name) if name in SLOW else name for name in PROGRAMS])
def test_a_plan_says_the_seconds_that_a_cost_says(target: Target, program: str) -> None:
    if target.name in OF_QUEUES and program not in OF_BYTES:
        pytest.skip(f"{target.name} takes int8 alone")
    result = PROGRAMS[program]("int8" if target.name in OF_QUEUES else "float32")
    kernel = oc.compile(result, target=target)
    for n in (3, 16, 37, 300):
        assert kernel.plan(n=n).seconds == nearly(kernel.cost(n=n).seconds, rel=1e-12, abs=0.0)
        assert kernel.cost(n=n).seconds > 0
