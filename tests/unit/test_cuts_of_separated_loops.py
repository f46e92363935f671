"""Loops that conditions were taken out of are compared with their cuts one by one, and as any loop that runs."""

from __future__ import annotations

import numpy as np
import pytest
from partition_cases import pattern

import offcut as oc

BAND = "i - j <= 4 and j - i <= 4 and (i + j) % 2 == 0"
HALF = "j < i // 2"
FOURTHS = "j <= i + 6 and j >= i - 6 and (i - j) % 4 != 1"
BLOCKS = "j // 16 <= i // 16"
CASES = [
    (BAND, 8, "balance"),
    (BAND, 8, "residue"),
    (HALF, 14, "balance"),
    (HALF, 8, "mix"),
    (FOURTHS, 8, "ladder"),
    (BLOCKS, 14, "balance"),
]


@pytest.mark.every(6)
@pytest.mark.parametrize(("condition", "tile", "tail"), CASES)
def test_the_inner_loop_of_a_pattern_is_cut(condition: str, tile: int, tail: str) -> None:
    program = pattern(condition)
    cut = oc.partition(program, tile={"j": tile}, tail=tail)
    rng = np.random.default_rng(0)
    for n in (0, 1, tile + 1):
        shapes = {"x": (n,), "A": (n, n), "y": (n,)}
        given = {name: rng.integers(-4, 5, at).astype("float32") for name, at in shapes.items()}
        np.testing.assert_array_equal(cut.run(given), program.run(given))
