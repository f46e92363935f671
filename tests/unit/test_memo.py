"""What a memoized method gives is computed once for an argument and an object, and is no part of the object."""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from offcut.core.index import const
from offcut.core.memo import memoize_method
from offcut.core.program import Action, For, Sync
from offcut.errors import DescribeError


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


def test_a_value_is_computed_once_for_an_argument_and_an_object() -> None:
    one, other = Doubling(2), Doubling(3)
    assert [one.of(4), one.of(4), other.of(4), one.of(5)] == [8, 8, 12, 10]
    assert (one.asked, other.asked) == ([4, 5], [4])
    assert Doubling.of.__doc__ == "Its product."


def test_what_is_kept_is_no_part_of_the_object() -> None:
    one = Doubling(2)
    one.of(4)
    assert one == Doubling(2)
    assert replace(one, by=5).of(4) == 20


def test_what_is_refused_is_asked_again() -> None:
    one = Doubling(2)
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            one.of(-1)
    assert one.asked == [-1, -1]


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
