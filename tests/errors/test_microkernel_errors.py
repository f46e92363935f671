"""What is no microkernel, in words."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

import offcut as oc
from offcut import Microkernel
from offcut.core.layout import Digit, Layout
from offcut.errors import DescribeError
from tests.facade import Place, TileShape


def product() -> oc.Tensor:
    m, n = oc.dim("m", min=1, max=4), oc.dim("n", min=1, max=4)
    k = oc.dim("k")
    p = oc.reduce_axis(k, name="p")
    a, b = oc.placeholder((m, k), name="A"), oc.placeholder((k, n), name="B")
    return oc.compute((m, n), lambda i, j: oc.sum(a[i, p] * b[p, j], axis=p), name="C")


GIVEN: dict[str, Any] = {
    "name": "unit",
    "computes": product(),
    "tiles": (TileShape((4, 4), 4.0, 4.0),),
}

HAS_AXES = "\n  help     it has i, j, p"

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no tensor": ({"computes": 3}, "it computes 3, and no tensor that compute defines"),
    "a predicate along no axis": (
        {"predicates": {"i", "zz"}},
        "its predicates have zz, which is no axis of it" + HAS_AXES,
    ),
    "bounds of no axis": (
        {"bounds": {"q": 3}},
        "its bounds have q, which is no axis of it" + HAS_AXES,
    ),
    "a repeat of no axis": (
        {"repeats": {"q"}},
        "its repeats have q, which is no axis of it" + HAS_AXES,
    ),
    "an operand that it has not": (
        {"operands": {"W": Place()}},
        "its operands have W, which is no operand of it\n  help     it has A, B, C",
    ),
    "no tiles": ({"tiles": ()}, "it has no tiles"),
    "a tile of no rows": (
        {"tiles": (TileShape((0, 4), 4.0, 4.0),)},
        "TileShape(extents=(0, 4), cycles=4.0, startup=4.0) has no instances, or takes no time that there is",
    ),
    "cycles that are no number": (
        {"tiles": (TileShape((4, 4), nan, 4.0),)},
        "TileShape(extents=(4, 4), cycles=nan, startup=4.0) has no instances, or takes no time that there is",
    ),
    "a tile of another rank": (
        {"tiles": (TileShape((4,), 4.0, 4.0),)},
        "TileShape(extents=(4,), cycles=4.0, startup=4.0) has 1 extents, and its result 2 axes",
    ),
    "no tile": (
        {"tiles": (4,)},
        "4 is no tile\n  help     TileShape((4, 8), cycles=4.0, startup=4.0)",
    ),
    "extents that are none": (
        {"bounds": {"i": (3, 1)}},
        "no extent of i is from 3 to 1",
    ),
    "extents in words": (
        {"bounds": {"i": "4"}},
        "the extents of i are '4'\n  help     bounds={'i': (1, 14)}\n  help     bounds={'i': multiples(16)}",
    ),
    "another way to accumulate": (
        {"accumulate": "maybe"},
        "accumulate is 'maybe'\n  help     accumulate='fresh'\n  help     accumulate='adds'\n"
        "  help     accumulate='both'",
    ),
    "an issue that there is not": (
        {"issue": "later"},
        "issue is 'later'\n  help     issue='sync'\n  help     issue='async'",
    ),
    "a wait that there is not": (
        {"wait": "bell"},
        "wait is 'bell'\n  help     wait=None\n  help     wait='group'\n  help     wait='token'",
    ),
    "no place": (
        {"operands": {"A": "shared"}},
        "A lies in 'shared'\n  help     operands={'A': Place()}",
    ),
    "a memory that is no tuple": (
        {"operands": {"A": Place("shared")}},
        "the memories of A are 'shared'\n  help     memories=('shared',)",
    ),
    "another form of an operand": (
        {"operands": {"A": Place(by="mail")}},
        "A is handed over by 'mail'\n  help     by='plain'\n  help     by='fragment'\n"
        "  help     by='descriptor'\n  help     by='immediate'",
    ),
    "side by side along no axis": (
        {"operands": {"A": Place(beside="q")}},
        "A lies side by side along q, which is no axis of it",
    ),
    "a layout of another rank": (
        {"operands": {"A": Place(layout=Layout((("word", (Digit(0, 1, None, 1),)),), (4,)))}},
        "A has 2 axes, and its layout 1",
    ),
    "a name that no text can say": (
        {"name": "m x;)"},
        "its name is 'm x;)'\n  help     letters, digits, `_`, `.` and `-`",
    ),
    "a layout in words": (
        {"operands": {"A": Place(layout="rows")}},  # type: ignore[arg-type]
        "the layout of A is 'rows'\n  help     layout=panels(16)\n  help     layout=None",
    ),
    "a matrix as a constant": (
        {"operands": {"A": Place(by="immediate")}},
        "A has 2 axes, and is a constant of the instruction",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_microkernel_is_refused(case: str) -> None:
    changed, because = REFUSED[case]
    with pytest.raises(DescribeError) as refused:
        Microkernel(**GIVEN | changed)
    name = (GIVEN | changed)["name"]
    assert str(refused.value) == f"microkernel: cannot declare {name}\n  because  {because}"


def test_a_microkernel_is_declared() -> None:
    assert Microkernel(**GIVEN).depth == "p"
