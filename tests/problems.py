"""Contractions on random operands, as peers are given them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from offcut.describe.request import Array
from offcut.studies.contraction import Contraction
from offcut.studies.peers.operators import Problem
from offcut.studies.tasks import drawn


def make_problem(
    contraction: Contraction,
    sizes: Mapping[str, int],
    constants: Mapping[str, Array],
    *,
    seed: int = 0,
    kind: str = "float32",
) -> Problem:
    """Return a contraction at `sizes`; operands that are no constants are drawn."""
    rng = np.random.default_rng(seed)
    arrays = {
        name: constants[name] if name in constants else draw(letters, sizes, rng, dtype)
        for name, letters, dtype in zip(
            contraction.names, contraction.operands, contraction.elements(kind), strict=True
        )
    }
    return Problem(contraction, sizes, arrays, tuple(constants), kind)


def draw(
    letters: str, sizes: Mapping[str, int], rng: np.random.Generator, dtype: str = "float32"
) -> Array:
    """Return random values in the shape that `letters` have at `sizes`."""
    from tests.facade import numpy_dtype

    return drawn([sizes[letter] for letter in letters], numpy_dtype(dtype), rng)
