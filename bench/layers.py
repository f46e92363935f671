"""The dense layers that the benches measure, and the numbers of rows that they are called with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from offcut.experiment.bench import Group
from offcut.experiment.contraction import Array, Problem, draw, make_problem, parse_contraction
from offcut.experiment.operators import Dequantized

DENSE = parse_contraction("mk,kn->mn")
SMALL = (1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 37, 43, 48)
ROWS = (*SMALL, 62, 64, 81, 100, 119, 127, 128, 129, 200, 255, 333, 384, 511, 512)
"""Numbers of rows, powers of two among sizes that are none."""

LAYERS = ((768, 768), (768, 2304), (768, 3072), (3072, 768), (384, 1536), (4096, 4096))
"""Shapes (k, n) of the constant operand."""

ODD_LAYERS = ((771, 770), (133, 165), (1000, 10))
"""Shapes that fit no tile."""

QUICK_ROWS = (1, 8, 17, 43, 129)
QUICK_LAYERS = ((768, 768), (768, 3072))
ZERO, SCALE = 113, 0.017
"""Of the quantised operand of a dequantised product."""


def dense_groups(
    kind: str, layers: Sequence[tuple[int, int]], rows: Sequence[int]
) -> tuple[Group, ...]:
    """A group for each layer, a task for each number of rows; weights are drawn with the first.

    kind  of elements, as `contraction.ELEMENTS` has them
    """
    return tuple(_dense_group(kind, k, n, rows) for k, n in layers)


def _dense_group(kind: str, k: int, n: int, rows: Sequence[int]) -> Group:
    held: dict[str, Array] = {}

    def task(m: int) -> Problem:
        if not held:
            dtype = DENSE.elements(kind)[1]
            held["B"] = draw("kn", {"k": k, "n": n}, np.random.default_rng(0), dtype)
        return make_problem(DENSE, {"m": m, "k": k, "n": n}, held, seed=m, kind=kind)

    tasks = {f"M={m}": partial(task, m) for m in rows}
    return Group(f"{kind} {k}×{n}", tasks, {"m": (1, max(ROWS))})


def dequantized_groups(layers: Sequence[tuple[int, int]], rows: Sequence[int]) -> tuple[Group, ...]:
    """The same for uint8 × int8 with a float32 result."""
    return tuple(_dequantized_group(k, n, rows) for k, n in layers)


def _dequantized_group(k: int, n: int, rows: Sequence[int]) -> Group:
    held: list[Array] = []

    def task(m: int) -> Dequantized:
        rng = np.random.default_rng(m)
        if not held:
            w = draw("kn", {"k": k, "n": n}, rng, "int8")
            scales = (0.01 + 0.1 * rng.random(n)).astype(np.float32)
            held.extend((w, scales))
        w, scales = held
        x = draw("mk", {"m": m, "k": k}, rng, "uint8")
        return Dequantized(x, w, ZERO, SCALE, scales)

    return Group(f"uint8 → float32 {k}×{n}", {f"M={m}": partial(task, m) for m in rows})
