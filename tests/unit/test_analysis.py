"""Facts of a program are what its text says, found once for each program."""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import FrozenInstanceError, dataclass, field, replace

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import parse
from offcut.core.analysis import analysis
from offcut.core.expr import Const
from offcut.core.index import const
from offcut.core.integers import whole
from offcut.core.memo import forget, memoize_method
from offcut.core.program import Action, Choose, For, Kind, Let, Store, Sync, Tile, walk
from offcut.errors import DescribeError
from tests.facade import Builder, compile_graph

PROGRAM = parse("""\
program two
size n in 0:100
input A: float32[n]
local T: float32[n]
output C: float32[n]

for i in 0:n
  alloc T[i +: 1]
    T[i] = A[i]
    C[i] = 0.0
    C[i] += T[i]
tile x in 0 +: n
  C[x] += 1.0
""")


def test_the_facts_are_those_of_the_text() -> None:
    facts = analysis(PROGRAM)
    assert facts.statements == tuple(walk(PROGRAM.body))
    assert facts.of(Store) == tuple(s for s in walk(PROGRAM.body) if isinstance(s, Store))
    assert [loop.iter for loop in facts.of(For)] == ["i"]
    assert facts.has(Let, Tile)
    assert not facts.has(Let, Choose)
    assert facts.iterators == {"i"}
    assert facts.windows == {"T"}
    assert facts.stored_buffers == {"T", "C"}


@pytest.mark.parametrize(
    ("line", "is_sum"),
    [("", True), ("C[i] = -0.0", False), ("C[i] = A[i]", False), ("C[i] min= A[i]", False)],
)
def test_a_sum_begins_as_zero_and_is_only_added_to(line: str, is_sum: bool) -> None:
    text = str(PROGRAM).replace("    C[i] += T[i]\n", f"    C[i] += T[i]\n    {line}\n".rstrip(" "))
    program = parse(text)
    facts = analysis(program)
    assert facts.zero_sums == ({"C"} if is_sum else set())
    *_, last = facts.of(Store)
    assert facts.adds_nothing(last, Const(0.0, "float32")) == is_sum
    assert facts.adds_nothing(last, Const(-0.0, "float32"))
    updated = (replace(b, kind=Kind.INOUT) if b.name == "C" else b for b in program.buffers)
    assert not analysis(replace(program, buffers=tuple(updated))).zero_sums


def test_facts_are_of_one_object_and_found_once() -> None:
    facts = analysis(PROGRAM)
    assert analysis(PROGRAM) is facts
    assert facts.statements is analysis(PROGRAM).statements
    assert analysis(replace(PROGRAM)) is not facts
    forget()
    assert analysis(PROGRAM) is not facts


# What a memoized method gives is computed once for an argument and an object, and is no part of the object.


@dataclass(frozen=True)
class Doubling:
    by: int
    asked: list[int] = field(default_factory=list, compare=False)

    @memoize_method
    def of(self, number: int) -> int:
        """Its product."""
        self.asked.append(number)
        if number < 0:
            raise ValueError(number)
        return number * self.by


def test_a_value_is_computed_once_for_an_argument_and_an_object_and_is_no_part_of_it() -> None:
    one, other = Doubling(2), Doubling(3)
    assert [one.of(4), one.of(4), other.of(4), one.of(5)] == [8, 8, 12, 10]
    assert (one.asked, other.asked) == ([4, 5], [4])
    assert Doubling.of.__doc__ == "Its product."
    assert one == Doubling(2)
    assert replace(one, by=5).of(4) == 20
    for _ in range(2):  # what is refused is asked again
        with pytest.raises(ValueError, match="-1"):
            other.of(-1)
    assert other.asked == [4, -1, -1]


def test_a_node_is_frozen_and_its_hash_is_of_its_fields_however_it_is_made() -> None:
    loop = For("i", const(0), const(4), ())
    hash(loop)
    other = replace(loop, hi=const(5))
    made = (
        pickle.loads(pickle.dumps(loop)),
        copy(loop),
        For(iter="i", lo=const(0), hi=const(4), body=()),
    )
    assert {*made, loop} == {loop}
    assert hash(other) == hash(For("i", const(0), const(5), ())) != hash(loop)
    assert (loop.unit, loop.factor) == (None, None)
    with pytest.raises(FrozenInstanceError):
        loop.iter = "j"  # type: ignore[misc]
    with pytest.raises(DescribeError, match="cannot wait for -1 groups"):
        Sync(Action.WAIT_GROUP, pending=-1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'body'"):
        For("i", const(0), const(4))  # type: ignore[call-arg]


# Integers of any package are sizes, tiles, factors and heights; bools and floats are none.


def test_an_integer_of_any_package_is_one_and_a_bool_a_float_or_an_array_is_none() -> None:
    found = [whole(number) for number in (3, np.int64(3), np.uint8(3), np.array(3))]
    assert found == [3] * 4
    assert {*map(type, found)} == {int}
    others = (True, np.bool_(True), 3.0, "3", None, np.array([3])[None])
    assert [whole(other) for other in others] == [None] * 6


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
    with rejection("CallError: cost: cannot take n = True\n  because  a size is an integer"):
        kernel.cost(n=True)
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
