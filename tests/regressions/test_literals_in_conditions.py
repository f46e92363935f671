"""Literals of elements in conditions round and wrap as elements do: sets do not take them for integers."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc
from offcut.errors import PartitionError
from tests.facade import check_equal

HOLD = ["float32(0.5) > 0.2", "0.5 > 0.2", "int8(100) + 100 < 0", "float64(0.5) - 1.0 < 0.0"]


def stored(condition: str, index: str) -> oc.Program:
    return oc.parse(
        "program p\nsize n in 0:100\noutput C: float32[n]\nfor i in 0:n\n"
        f"  if {condition}\n    C[{index}] = 1\n"
    )


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("condition", HOLD)
def test_an_access_behind_one_is_asked_at_the_call(condition: str, cut: bool) -> None:
    inside, outside = stored(condition, "i"), stored(condition, "i + 40")
    if cut:
        inside, outside = (oc.partition(p, {"i": 4}, "mask").loops for p in (inside, outside))
    assert np.array_equal(oc.compile(inside)(n=9), np.ones(9))
    with pytest.raises(oc.CallError, match="leads outside of an array"):
        oc.compile(outside)(n=9)


@pytest.mark.parametrize(
    "condition", ["int8(100) + 100 > 0", "float32(-0.5) >= 0.0", "-0.5 >= 0.0"]
)
def test_one_that_fails_does_not_count_as_one_that_holds(condition: str) -> None:
    plain, guarded = stored("n >= 0", "i"), stored(condition, "i")
    with pytest.raises(PartitionError):
        check_equal(plain, guarded)
    assert not oc.compile(guarded)(n=0).size
