"""Integers of any package are sizes, tiles, factors and heights; bools and floats are none."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut.core.integers import whole
from tests.facade import Builder, compile_graph


@pytest.mark.parametrize("number", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_an_integer_of_any_package_is_one(number: object) -> None:
    assert whole(number) == 3
    assert type(whole(number)) is int


@pytest.mark.parametrize("other", [True, np.bool_(True), 3.0, "3", None, np.array([3])[None]])
def test_a_bool_a_float_and_an_array_are_none(other: object) -> None:
    assert whole(other) is None


def summed(n: oc.Dim) -> oc.Tensor:
    a, k = oc.placeholder((n, 8), name="A"), oc.reduce_axis(np.int64(8), name="k")
    return oc.compute((n,), lambda i: oc.sum(a[i, k], axis=k), name="C")


def test_what_takes_an_int_takes_one_of_numpy() -> None:
    n = oc.dim("n", min=np.int64(1), max=np.int64(64))
    assert n == oc.dim("n", min=1, max=64)
    three, ladder = np.int64(3), ("ladder", (np.int64(2), np.int64(1)))
    cut = oc.partition(summed(n), tile={"i": np.int64(4)}, tail=ladder, copies=np.int64(2))
    assert cut.loops == oc.partition(summed(n), tile={"i": 4}, tail=("ladder", (2, 1))).loops
    kernel = oc.compile(summed(n), threads=np.int64(1))
    assert str(kernel.plan(n=three)) == str(kernel.plan(n=3))
    assert str(kernel.cost(n=three)) == str(kernel.cost(n=3))
    described = summed(n)
    by_hand = oc.create_schedule(described)
    by_hand[described].split("i", np.int64(4))
    assert oc.Schedule.parse(str(by_hand.schedule)) == by_hand.schedule


def test_a_model_takes_sizes_of_numpy() -> None:
    made = Builder("block")
    made.output(made.node("relu", made.input("x", "float32", (made.size("n", 1, 8), np.int64(4)))))
    model = compile_graph(made.bound, threads=1)
    assert str(model.plan(n=np.int64(3))) == str(model.plan(n=3))
    assert str(model.cost(n=np.int64(3))) == str(model.cost(n=3))


def test_a_bool_is_no_size() -> None:
    kernel = oc.compile(summed(oc.dim("n", max=64)))
    with rejection("CallError: cost: cannot take n = True\n  because  a size is an integer"):
        kernel.cost(n=True)
