"""Numbers by which sizes are scaled: floats as integers over powers of 2."""

from __future__ import annotations

from math import inf, nan

import pytest

from offcut.core.integers import MOST_PARTS, binary_fraction


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0.0, (0, 1)),
        (-2.5, (-5, 2)),
        (1 / MOST_PARTS, (1, MOST_PARTS)),
        (0.5 / MOST_PARTS, None),
        (0.1, None),
        (inf, None),
        (nan, None),
    ],
)
def test_a_float_is_a_fraction_of_few_parts_or_none(
    value: float, wanted: tuple[int, int] | None
) -> None:
    assert binary_fraction(value) == wanted
    if wanted is not None:
        assert wanted[0] / wanted[1] == value
