"""Products of open rows, columns, terms and batches, in any order of axes: tiles of a microkernel, right at sizes around these."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import slow

import offcut as oc

THERE = oc.target("cuda", machine="a100", device="emulated")
EXTENTS = {"k": 24, "d": 16, "b": 3, "h": 2}
"""The extents of axes that are not open."""
SUMS = {
    "rows": ("ij,jk->ik", "i", 40),
    "rows and columns": ("ij,kj->ik", "ik", 40),
    "terms": ("ij,jk->ik", "j", 24),
    "rows and terms": ("ij,jk->ik", "ij", 0),
    "columns, first turned": ("ji,kj->ik", "i", 40),
    "first turned": ("ji,jk->ik", "i", 40),
    "result turned": ("ij,jk->ki", "i", 40),
    "scores": ("bid,bjd->bij", "ij", 0),
    "scores of open batches": ("bid,bjd->bij", "bij", 0),
    "values": ("bij,bjd->bid", "ij", 0),
    "scores of heads": ("bhid,bhjd->bhij", "ij", 0),
    "scores of heads inside": ("bihd,bjhd->bhij", "ij", 0),
    "values of heads inside": ("bhij,bjhd->bihd", "ij", 0),
    "one first operand": ("ij,bjk->bik", "i", 40),
    "one second operand": ("bij,jk->bik", "i", 40),
}
QUICK = ("rows and columns", "terms", "scores")


def compiled(spec: str, is_open: str, other: int) -> oc.Kernel:
    """The kernel of a sum; `other` is the extent of i or j, if it is not open."""
    operands, result = spec.split("->")
    sizes = {"b": oc.dim("b", max=4)} | {name: oc.dim("n", max=100) for name in "ijk"}
    extents: dict[str, Any] = {
        name: sizes[name] if name in is_open else EXTENTS.get(name, other)
        for name in {*spec} - {*",->"}
    }
    parts = operands.split(",")
    inputs = [
        oc.placeholder(tuple(extents[axis] for axis in part), "bfloat16", name)
        for name, part in zip("XY", parts, strict=True)
    ]
    (term,) = {*operands} - {*result} - {","}
    summed = oc.reduce_axis(extents[term], name=term)

    def sum_of(*point: Any) -> Any:
        at = dict(zip(result, point, strict=True)) | {term: summed}
        x, y = (
            tensor[tuple(at[axis] for axis in part)].astype("float32")
            for tensor, part in zip(inputs, parts, strict=True)
        )
        return oc.sum(x * y, axis=summed)

    shape = tuple(extents[axis] for axis in result)
    output = oc.compute(shape, sum_of, name="C", axes=tuple(result))
    return oc.compile(output, inputs=inputs, target=THERE)


@pytest.mark.parametrize("what", [w if w in QUICK else slow(w) for w in SUMS])
def test_a_product_is_of_tiles_and_right(what: str) -> None:
    spec, is_open, other = SUMS[what]
    kernel = compiled(spec, is_open, other)
    assert "mma_m16n8k16_shared_bfloat16" in str(kernel.loops)
    draw = np.random.default_rng(3)
    for n in (0, 1, 17, 65):
        extents = {name: n if name in is_open else EXTENTS.get(name, other) for name in "ijkdh"}
        extents["b"] = 2 if "b" in is_open else EXTENTS["b"]
        arrays = [
            draw.integers(-4, 5, tuple(extents[axis] for axis in part)).astype(ml_dtypes.bfloat16)
            for part in spec.split("->")[0].split(",")
        ]
        exact = np.einsum(spec, *(array.astype("float64") for array in arrays))
        np.testing.assert_array_equal(np.asarray(kernel(*arrays)), exact)
