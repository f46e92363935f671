"""Distributions of sizes: what a user writes, and the vectors and weights that it means."""

from __future__ import annotations

from typing import Any

import offcut as oc
from offcut.tuning.problem import POINTS, distribution, read_sizes
from tests.agree import nearly
from tests.facade import requested

n, m = oc.dim("n", min=1, max=4096), oc.dim("m", min=8, max=4096, multiple_of=8)


def of(given: Any, *dims: Any) -> list[tuple[dict[str, int], float]]:
    A = oc.placeholder(dims, name="A")
    C = oc.compute(dims, lambda *at: A[at] + 1.0, name="C", axes=tuple("ij"[: len(dims)]))
    request = requested(C, None, None, "tune")
    found = [
        (dict(at), weight) for at, weight in distribution(request.program, request.users, given)
    ]
    assert sum(weight for _, weight in found) == nearly(1.0)
    return found


def test_a_list_is_of_values_that_are_as_likely() -> None:
    assert of({"n": [1, 7]}, n) == [({"n": 1}, 0.5), ({"n": 7}, 0.5)]
    assert of({"n": [1, 7, 7, 7]}, n) == [({"n": 1}, 0.25), ({"n": 7}, 0.75)]


def test_weights_are_shares() -> None:
    found = of({"n": {1: 3, 64: 1, 9: 0}}, n)
    assert found == [({"n": 1}, 0.75), ({"n": 64}, 0.25)]


def test_of_a_range_some_are_taken_both_ends_among_them() -> None:
    for given in ((1, 512), range(1, 513)):
        values = [at["n"] for at, _ in of({"n": given}, n)]
        assert len(values) == POINTS
        assert (values[0], values[-1]) == (1, 512)
        assert values == sorted(values)
    assert [at["n"] for at, _ in of({"n": range(4, 0, -1)}, n)] == [1, 2, 3, 4]
    assert [at["n"] for at, _ in of({"n": (5, 5)}, n)] == [5]


def test_what_is_taken_of_a_range_is_allowed() -> None:
    values = [at["m"] for at, _ in of({"m": (9, 1000)}, m)]
    assert all(value % 8 == 0 and 9 <= value <= 1000 for value in values)


def test_several_sizes_are_every_combination_of_fewer_values() -> None:
    found = of({"n": {1: 1, 2: 3}, "m": [8, 16]}, n, m)
    assert found == [
        ({"n": 1, "m": 8}, 0.125),
        ({"n": 1, "m": 16}, 0.125),
        ({"n": 2, "m": 8}, 0.375),
        ({"n": 2, "m": 16}, 0.375),
    ]
    assert len(of({"n": (1, 512), "m": (8, 512)}, n, m)) <= 2 * POINTS


def test_a_program_without_sizes_has_one_call() -> None:
    assert of(None, 4, 5) == [({}, 1.0)]


def test_sizes_are_read_from_the_command_line() -> None:
    texts = ["n=1,7,33", "m = 8:64", "rows=1:512:8"]
    assert read_sizes(texts) == {"n": [1, 7, 33], "m": range(8, 65), "rows": range(1, 513, 8)}


def test_a_program_without_sizes_has_one_vector_however_it_is_said() -> None:
    assert of(None) == of({}) == [({}, 1.0)]
