"""Floats as integers: toward zero, saturating, NaN as 0, in every lane at once."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import offcut as oc
from tests.facade import FLOATS, INTEGERS, numpy_dtype


def around_the_ends() -> list[float]:
    """Values about the ends of every integer type, and what is no number."""
    found = [0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 3.7, -3.7, 1e30, -1e30, np.inf, -np.inf, np.nan]
    for bits, away in product(
        (7, 8, 15, 16, 31, 32, 63, 64), (-1.5, -1, -0.75, -0.5, 0, 0.5, 0.75, 1, 1.5)
    ):
        found += [2.0**bits + away, -(2.0**bits) + away]
    for end in (2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64):
        found += [float(np.nextafter(end, 0)), float(np.nextafter(np.float32(end), np.float32(0)))]
    return found


def truncated(value: float, dtype: str) -> int:
    info = np.iinfo(dtype)
    if value != value:
        return 0
    if value in (np.inf, -np.inf):
        return int(info.max if value > 0 else info.min)
    return max(int(info.min), min(int(info.max), int(value)))


@pytest.mark.every(4)
@pytest.mark.parametrize(("old", "new"), [*product(FLOATS, INTEGERS)])
def test_a_float_is_truncated_and_saturates(old: str, new: str) -> None:
    n = oc.dim("n")
    X = oc.placeholder((n,), old, name="X")
    kernel = oc.compile(oc.ops.cast(X, new), inputs=[X])
    with np.errstate(over="ignore"):
        x = np.array(around_the_ends()).astype(numpy_dtype(old))
    for some in (x, x[:17], x[:1]):
        assert kernel(some).tolist() == [truncated(float(v), new) for v in some]


def test_lanes_are_not_taken_one_by_one() -> None:
    X = oc.placeholder((oc.dim("n"),), name="X")
    kernel = oc.compile(oc.ops.cast(X, "int32"), inputs=[X])
    assert ".sat." not in kernel.source("llvm")
