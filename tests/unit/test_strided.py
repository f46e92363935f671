from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offcut.core.interpret.values import as_strided_view, distinct

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


def test_an_index_that_is_no_progression_has_no_view() -> None:
    assert as_strided_view(MEMORY, (np.array([0, 1, 3]), np.asarray(0)), (3,), 0) is None


def test_lanes_that_share_an_element_are_not_distinct() -> None:
    view = as_strided_view(MEMORY, (np.asarray(0), np.arange(2)), (3, 2), 0)
    assert view is not None
    assert not distinct(view, (3, 2))
    assert distinct(view, (1, 2))


def test_memory_of_the_lanes_own_is_read_by_each() -> None:
    memory = np.arange(24).reshape(4, 3, 2)  # 4 elements for each of 3 by 2 lanes
    view = as_strided_view(memory, (np.array([1, 3]).reshape(2, 1, 1),), (2, 3, 2), 2)
    assert view is not None
    np.testing.assert_array_equal(view, memory[[1, 3]])
