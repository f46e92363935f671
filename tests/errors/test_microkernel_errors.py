"""What is no microkernel, in words."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

import offcut as oc
from offcut import Microkernel
from offcut.errors import DescribeError
from tests.facade import TileShape


def product() -> oc.Tensor:
    m, n = oc.dim("m", min=1, max=4), oc.dim("n", min=1, max=4)
    k = oc.dim("k")
    p = oc.reduce_axis(k, name="p")
    a, b = oc.placeholder((m, k), name="A"), oc.placeholder((k, n), name="B")
    return oc.compute((m, n), lambda i, j: oc.sum(a[i, p] * b[p, j], axis=p), name="C")


GIVEN: dict[str, Any] = {
    "name": "unit",
    "computes": product(),
    "rows": "i",
    "columns": "j",
    "tiles": (TileShape(4, 4, 4.0, 4.0),),
    "predicates": frozenset(),
    "panel": 4,
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no tensor": ({"computes": 3}, "it computes 3, and no tensor that compute defines"),
    "rows that there are not": ({"rows": "q"}, "rows is 'q', and its axes are i, j"),
    "rows that are columns": ({"rows": "j"}, "j is its rows and its columns"),
    "a predicate along no axis": (
        {"predicates": frozenset({"i", "zz"})},
        "its predicates have zz, which is no axis of it",
    ),
    "no tiles": ({"tiles": ()}, "it has no tiles"),
    "a tile of no rows": (
        {"tiles": (TileShape(0, 4, 4.0, 4.0),)},
        "TileShape(rows=0, columns=4, cycles=4.0, startup=4.0) has no instances, or takes no time that there is",
    ),
    "cycles that are no number": (
        {"tiles": (TileShape(4, 4, nan, 4.0),)},
        "TileShape(rows=4, columns=4, cycles=nan, startup=4.0) has no instances, or takes no time that there is",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_microkernel_is_refused(case: str) -> None:
    changed, because = REFUSED[case]
    with pytest.raises(DescribeError) as refused:
        Microkernel(**GIVEN | changed)
    assert str(refused.value) == f"microkernel: cannot declare unit\n  because  {because}"


def test_a_microkernel_is_declared() -> None:
    assert Microkernel(**GIVEN).depth == "p"
