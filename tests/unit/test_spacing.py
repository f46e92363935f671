"""How lanes lie in an index, against the values that it takes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offcut.core import index as ix
from offcut.core.interpret.values import as_strided_view, distinct
from offcut.ir import Expr, Var
from offcut.polyhedral import BACK, NEXT, SAME, Spacing, row_spacing, spacing
from tests.facade import evaluate

i, r = Var("i"), Var("r")


def blocks(by: int, factor: int = 1, more: Expr | int = 0) -> Expr:
    return ix.mul(factor, ix.floordiv(ix.add(i, more), by))


# An index, and how eight lanes lie in it that begin at a multiple of eight.
PARTS: dict[str, tuple[Expr, Spacing | None]] = {
    "itself": (i, NEXT),
    "of another": (r, SAME),
    "backwards": (ix.sub(r, i), BACK),
    "every third": (ix.add(ix.mul(3, i), r), Spacing(1, 3)),
    "halves": (ix.add(blocks(2), 5), Spacing(2, 1)),
    "fours": (ix.add(blocks(4, 4), r), Spacing(4, 4)),
    "fours, moved": (blocks(4, 4, ix.mul(8, r)), Spacing(4, 4)),
    "fours, moved within": (blocks(4, 4, 1), None),
    "threes": (blocks(3, 3), None),
    "blocks of 64": (ix.add(blocks(64), r), SAME),
    "within 64": (ix.add(ix.mod(i, 64), r), NEXT),
    "within 4": (ix.mod(i, 4), None),
    "both": (ix.add(blocks(4, 4), ix.mod(i, 4)), NEXT),
    "half as far": (ix.sub(i, blocks(2)), None),
    "doubled": (ix.floordiv(ix.mul(2, i), 3), None),
}


@pytest.mark.parametrize("name", PARTS)
def test_lanes_lie_as_is_said_wherever_they_begin(name: str) -> None:
    part, wanted = PARTS[name]
    assert spacing(part, "i", 8, 8) == wanted
    for width, multiple in product((2, 4, 8, 16), (1, 2, 8, 16)):
        said = spacing(part, "i", width, multiple)
        if said is None:
            continue
        for start, other in product(range(0, 24 * multiple, 3 * multiple), (0, 3)):
            values = [int(evaluate(part, {"i": start + n, "r": other})) for n in range(width)]
            assert [value - values[0] for value in values] == [
                lane // said.share * said.step for lane in range(width)
            ]


def test_lanes_lie_in_a_row_where_no_other_index_moves() -> None:
    assert row_spacing([r, i], "i", 8, 8) == NEXT
    assert row_spacing([blocks(8), i], "i", 8, 8) == NEXT
    assert row_spacing([i, r], "i", 8, 8) is None
    assert row_spacing([], "i", 8, 8) == SAME


MEMORY = np.arange(7 * 11).reshape(7, 11)


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 2)), min_size=3, max_size=3),
    st.booleans(),
)
def test_a_view_is_what_the_indices_read(
    shape: list[int], steps: list[tuple[int, int]], transposed: bool
) -> None:
    memory = MEMORY.T if transposed else MEMORY
    lanes = np.ogrid[tuple(slice(extent) for extent in shape)]
    rows: Any = sum((a * lane for (a, _), lane in zip(steps, lanes, strict=False)), np.int64(0))
    columns: Any = sum((b * lane for (_, b), lane in zip(steps, lanes, strict=False)), np.int64(0))
    columns = columns - np.min(columns)
    parts = tuple(map(np.asarray, (np.minimum(rows, 6), np.minimum(columns, 6))))
    view = as_strided_view(memory, parts, tuple(shape), 0)
    expected = np.broadcast_to(memory[parts], shape)

    if view is None:
        assert any(np.any(np.diff(part, 2, axis)) for part in parts for axis in range(part.ndim))
        return
    np.testing.assert_array_equal(np.broadcast_to(view, shape), expected)
    if distinct(view, tuple(shape)):
        assert len(set(expected.ravel())) == expected.size


def test_views_of_lanes_that_share_or_own_memory_or_are_no_progression() -> None:
    assert as_strided_view(MEMORY, (np.array([0, 1, 3]), np.asarray(0)), (3,), 0) is None
    shared = as_strided_view(MEMORY, (np.asarray(0), np.arange(2)), (3, 2), 0)
    assert shared is not None
    assert not distinct(shared, (3, 2))
    assert distinct(shared, (1, 2))
    memory = np.arange(24).reshape(4, 3, 2)  # 4 elements for each of 3 by 2 lanes
    own = as_strided_view(memory, (np.array([1, 3]).reshape(2, 1, 1),), (2, 3, 2), 2)
    assert own is not None
    np.testing.assert_array_equal(own, memory[[1, 3]])
