"""Powers of integers by integers, against Python's, and the loops of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from operators import Operator, integers, specials

import offcut as oc
from offcut import ops
from tests.facade import INTEGERS

n, m = oc.dim("n"), oc.dim("m")


def exactly(base: int, exponent: int, dtype: str) -> int:
    """In as many bits as the type has; below 0 what is whole of the quotient."""
    info = np.iinfo(dtype)
    if exponent < 0:
        return {1: 1, -1: 1 - 2 * (exponent % 2)}.get(base, 0)
    return (pow(base, exponent, 2**info.bits) - info.min) % 2**info.bits + info.min


@pytest.mark.every(6)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_power_wraps_in_its_type(dtype: str) -> None:
    x, y = (oc.placeholder((n, m), dtype, name) for name in "XY")
    op = Operator(ops.integer_power(x, y), [x, y])
    every = np.meshgrid(specials(dtype), specials(dtype))
    for a, b in (
        every,
        *((integers("x", dtype, k, 3), integers("y", dtype, k, 3)) for k in (0, 1, 17)),
    ):
        pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        exact = np.array([exactly(*pair, dtype) for pair in pairs], dtype).reshape(a.shape)
        op.check([np.ascontiguousarray(a), np.ascontiguousarray(b)], exact, interpreted=len(a) == 1)


def test_a_power_of_other_operands_is_refused() -> None:
    x, y = oc.placeholder((n,), "int32", "X"), oc.placeholder((m,), "int32", "Y")
    with pytest.raises(oc.DescribeError) as refused:
        ops.integer_power(x, y)
    assert str(refused.value) == (
        "integer_power: cannot pair X with Y\n  at       X: int32[n] and Y: int32[m]\n"
        "  because  they are of one shape"
    )
