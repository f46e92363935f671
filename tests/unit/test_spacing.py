"""How lanes lie in an index, against the values that it takes."""

from __future__ import annotations

from itertools import product

import pytest

from offcut.core import index as ix
from offcut.ir import Expr, Var
from offcut.polyhedral import BACK, NEXT, SAME, Spacing, row_spacing, spacing
from tests.facade import evaluate

i, r = Var("i"), Var("r")


def blocks(by: int, factor: int = 1, more: Expr | int = 0) -> Expr:
    return ix.mul(factor, ix.floordiv(ix.add(i, more), by))


PARTS: dict[str, Expr] = {
    "itself": i,
    "of another": r,
    "backwards": ix.sub(r, i),
    "every third": ix.add(ix.mul(3, i), r),
    "halves": ix.add(blocks(2), 5),
    "fours": ix.add(blocks(4, 4), r),
    "fours, moved": blocks(4, 4, ix.mul(8, r)),
    "fours, moved within": blocks(4, 4, 1),
    "threes": blocks(3, 3),
    "blocks of 64": ix.add(blocks(64), r),
    "within 64": ix.add(ix.mod(i, 64), r),
    "within 4": ix.mod(i, 4),
    "both": ix.add(blocks(4, 4), ix.mod(i, 4)),
    "half as far": ix.sub(i, blocks(2)),
    "doubled": ix.floordiv(ix.mul(2, i), 3),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_lanes_lie_as_is_said_wherever_they_begin(name: str, width: int) -> None:
    part = PARTS[name]
    for multiple in (1, 2, 8, 16):
        said = spacing(part, "i", width, multiple)
        if said is None:
            continue
        for start, other in product(range(0, 80 * multiple, multiple), (0, 3)):
            values = [int(evaluate(part, {"i": start + n, "r": other})) for n in range(width)]
            assert [value - values[0] for value in values] == [
                lane // said.share * said.step for lane in range(width)
            ]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("itself", NEXT),
        ("of another", SAME),
        ("backwards", BACK),
        ("every third", Spacing(1, 3)),
        ("halves", Spacing(2, 1)),
        ("fours", Spacing(4, 4)),
        ("fours, moved", Spacing(4, 4)),
        ("fours, moved within", None),
        ("threes", None),
        ("blocks of 64", SAME),
        ("within 64", NEXT),
        ("within 4", None),
        ("both", NEXT),
        ("doubled", None),
    ],
)
def test_what_lanes_share_is_seen(name: str, wanted: Spacing | None) -> None:
    assert spacing(PARTS[name], "i", 8, 8) == wanted


def test_lanes_lie_in_a_row_where_no_other_index_moves() -> None:
    assert row_spacing([r, i], "i", 8, 8) == NEXT
    assert row_spacing([blocks(8), i], "i", 8, 8) == NEXT
    assert row_spacing([i, r], "i", 8, 8) is None
    assert row_spacing([], "i", 8, 8) == SAME
