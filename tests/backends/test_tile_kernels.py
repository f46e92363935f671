"""Whole kernels whose tiles the tensor unit computes, on any machine: `tile_unit` stands for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from compiled import Array
from conftest import edge_sizes, slow
from tile_unit import UNIT, emulated, skip_unless_tiles_are_stored

import offcut as oc
from offcut.backends.cpu.machine import isa
from offcut.backends.cpu.microkernels import amx
from tests.agree import agree, exact_matmul
from tests.facade import numpy_dtype

TYPES = {"bfloat16": "float32", "int8": "int32", "uint8": "int32"}


@pytest.fixture(autouse=True)
def tile_unit() -> Iterator[None]:
    """A host that says it has the tensor unit."""
    skip_unless_tiles_are_stored()
    UNIT.faults.clear()
    with emulated():
        yield
    assert not UNIT.faults


def product(
    dtype: str, depth: int, columns: int, turned: bool = False
) -> tuple[list[oc.Tensor], oc.Tensor]:
    n, wide = oc.dim("n", max=200), TYPES[dtype]
    a = oc.placeholder((n, depth), dtype, name="A")
    shape = (columns, depth) if turned else (depth, columns)
    b = oc.placeholder(shape, "int8" if dtype == "uint8" else dtype, name="B")
    k = oc.reduce_axis(depth, name="k")
    c = oc.compute(
        (n, columns),
        lambda i, j: oc.sum(
            oc.cast(a[i, k], wide) * oc.cast(b[j, k] if turned else b[k, j], wide), axis=k
        ),
        name="C",
    )
    return [a, b], c


def values(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    low, high = (0, 255) if dtype == "uint8" else (-100, 100)
    whole = rng.integers(low, high, shape)
    return (whole / 64 if dtype == "bfloat16" else whole).astype(numpy_dtype(dtype))


@pytest.mark.every(10)
@pytest.mark.parametrize("how", ["constant", "at the call", "at the call, turned"])
@pytest.mark.parametrize("depth", [slow(1), 31, slow(64), 70])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_product_runs_on_tiles_at_every_size(dtype: str, depth: int, how: str) -> None:
    rng, columns, packed = np.random.default_rng(depth), 70, how == "constant"
    inputs, c = product(dtype, depth, columns, turned=how.endswith("turned"))
    b = values(rng, inputs[1].dtype, depth, columns)
    laid = np.ascontiguousarray(b.T) if how.endswith("turned") else b
    kernel = oc.compile(c, inputs=inputs, constants={"B": b} if packed else None)
    assert {piece.microkernel for piece in kernel.plan(n=33).pieces} >= {
        amx.microkernel(dtype, isa.host().machine.tile_unit).name
    }
    whole = values(rng, dtype, 101, depth)
    for rows in edge_sizes(32):
        a, out = whole[:rows], np.full((rows, columns), 77, TYPES[dtype])
        kernel(*([a] if packed else [a, laid]), out=out)
        agree(out, exact_matmul(a, b))
    assert UNIT.multiplied
