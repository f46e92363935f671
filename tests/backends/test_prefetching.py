"""Packed columns that several tiles of rows read: the next group is asked for while one is in use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import offcut as oc
from tests.facade import load_machine, processor

M = oc.dim("m", max=512)


def dense(depth: int, columns: int, target: oc.Target) -> oc.Kernel:
    x = oc.placeholder((M, depth), name="X")
    w = oc.placeholder((depth, columns), name="W")
    weights = np.random.default_rng(depth).standard_normal((depth, columns)).astype("float32")
    return oc.compile(
        oc.ops.matmul(x, w), inputs=[x, w], constants={"W": weights}, target=target, threads=1
    )


def asked(kernel: oc.Kernel) -> list[str]:
    """What the calls of row blocks are given to ask for, and by how much it moves."""
    calls = [line for line in kernel.source("llvm").splitlines() if "call void" in line]
    found = [line.rsplit(", ptr ", 1)[1].rstrip(")") for line in calls if "i64 0, ptr " in line]
    assert found
    return found


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("depth", "columns", "some"), [(768, 3072, True), (768, 32, False), (50_000, 96, False)]
)
def test_a_group_is_asked_for_where_there_is_a_next_one_that_fits(
    depth: int, columns: int, some: bool
) -> None:
    """A described machine: 32 columns are one group, and two of 50,000 terms do not fit its L2."""
    described = replace(
        processor(load_machine("cascade-lake")), policy=processor(load_machine("zen4")).policy
    )
    kernel = dense(depth, columns, oc.target("cpu", machine=described))
    assert any(not one.endswith(", i64 0") for one in asked(kernel)) is some


def test_what_is_asked_for_changes_no_value() -> None:
    kernel = dense(768, 3072, oc.target("cpu"))
    x = np.random.default_rng(0).standard_normal((91, 768)).astype("float32")
    whole = kernel(x)
    for rows in (0, 1, 13, 14, 15, 42, 47):
        np.testing.assert_array_equal(kernel(x[:rows]), whole[:rows])
