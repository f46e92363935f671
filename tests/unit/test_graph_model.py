"""Models: few kernels, no copies but where they are needed, memory used again; every call as the interpreter computes it."""

import numpy as np
import pytest

from offcut.graph import compiled, interpreted
from tests.graphs import arrays, drawn
from tests.operators import near

Array = np.ndarray


@pytest.mark.parametrize("seed", range(100, 106))
def test_a_drawn_graph_runs_as_it_is_interpreted(seed: int) -> None:
    bound = drawn(seed, 7)
    model = compiled(bound, threads=1)
    for sizes in ({"b": 1, "n": 1}, {"b": 3, "n": 4}, {"b": 2, "n": 1}):
        given = arrays(bound, seed, **sizes)
        found, expected = model(given), interpreted(bound, given)
        assert list(found) == list(expected)
        for name in found:
            near(found[name], expected[name])
