"""Sums are compared in the order of the emitted program, where their terms may be added in any."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut.errors import PartitionError
from offcut.proof.normal_forms.reduction_init import reorder_terms_like

SUM = """program p
size n in 0:40
input A: {dtype}[n, 5, 7]
output C: {dtype}[n]
for i in 0:n
  C[i] = {zero}
  for {first}
    for {second}
      C[i] {update} {term}
"""
J, K = "j in 0:5", "k in 0:7"


def summed(first: str, second: str, dtype: str = "float32", **text: str) -> oc.Program:
    zero = "0.0" if "float" in dtype else "0"
    said = {"zero": zero, "update": "+=", "term": "A[i, j, k]"} | text
    return oc.parse(SUM.format(first=first, second=second, dtype=dtype, **said))


def test_a_sum_of_floats_keeps_its_order_unless_it_may_be_another() -> None:
    source, emitted = summed(J, K), summed(K, J)
    assert reorder_terms_like(emitted, source, reassociate=False) == source
    assert reorder_terms_like(emitted, source, reassociate=True) == emitted
    oc.prove_equal(source, emitted, reassociate=True)
    with pytest.raises(PartitionError):
        oc.prove_equal(source, emitted)


@pytest.mark.parametrize(
    ("dtype", "update"), [("int32", "+="), ("float32", "max="), ("float32", "min=")]
)
def test_what_has_one_result_in_any_order_is_put_in_order(dtype: str, update: str) -> None:
    source, emitted = (summed(*at, dtype=dtype, update=update) for at in ((J, K), (K, J)))
    assert reorder_terms_like(emitted, source, reassociate=False) == emitted
    oc.prove_equal(source, emitted)


def test_terms_that_depend_on_the_sum_stay_in_order() -> None:
    source, emitted = (
        summed(*at, dtype="int32", term="A[i, j, k] * C[i]") for at in ((J, K), (K, J))
    )
    assert reorder_terms_like(emitted, source, reassociate=True) == source
    with pytest.raises(PartitionError):
        oc.prove_equal(source, emitted, reassociate=True)


def test_loops_whose_bounds_depend_on_each_other_stay_in_order() -> None:
    source, emitted = summed(J, "k in 0:j + 1"), summed("k in 0:5", "j in k:5")
    assert reorder_terms_like(emitted, source, reassociate=True) == source
