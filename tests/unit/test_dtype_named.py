"""Element types go by their names, or by numpy's dtypes and types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import offcut as oc
from offcut.core.dtypes import to_dtype
from tests.facade import DTYPES, Builder, numpy_dtype


@pytest.mark.parametrize("name", DTYPES)
def test_a_type_goes_by_its_name_and_by_numpys(name: str) -> None:
    assert to_dtype(name) == to_dtype(numpy_dtype(name)) == name
    assert to_dtype(numpy_dtype(name).type) == name


@pytest.mark.parametrize("other", ["float", "f4", np.dtype(">f4"), np.complex64, object, None, 4])
def test_all_else_is_no_element_type(other: object) -> None:
    assert to_dtype(other) is None


def test_tensors_casts_and_graphs_take_numpys_types() -> None:
    n = oc.dim("n", max=9)
    x = oc.placeholder((n,), np.dtype("int8"), name="x")  # type: ignore[arg-type]
    y = oc.compute((n,), lambda i: oc.cast(x[i], ml_dtypes.bfloat16), name="y")  # type: ignore[arg-type]
    assert (str(x), str(y)) == ("x: int8[n]", "y: bfloat16[n]")
    made = Builder("g")
    made.output(made.node("relu", made.input("x", np.float32, (4,))))  # type: ignore[arg-type]
    assert "input x: float32[4]" in str(made.graph)
    assert oc.compile(y)(np.arange(3, dtype="int8")).tolist() == [0, 1, 2]


def test_a_refusal_shows_an_array_by_its_shape() -> None:
    with pytest.raises(oc.errors.DescribeError) as refused:
        oc.ops.relu(np.ones((40, 40)))
    assert str(refused.value).splitlines()[:2] == [
        "relu: cannot take x = an array of shape (40, 40)",
        "  because  it is not a tensor",
    ]
