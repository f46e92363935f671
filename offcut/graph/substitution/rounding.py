"""How far apart two graphs that compute the same may be: what rounding does, and no more.

    |after - before|  <=  part*|before| + part*(the largest |before| of the array) + swing          part = ULPS*(the epsilon of a type)

An element's swing is the most that it moves, in float64, where inputs and all results on the way move by up to `part` of themselves: much
for a difference of large numbers, nothing for a product with a small one. So a sign or a factor is seen however small a result is. What
jumps, as by rounding to integers, does so by no more where these move `FURTHER`: the jump is then no swing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import ml_dtypes
import numpy as np

from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.describe.request import Array
from offcut.errors import OffcutError
from offcut.graph.graph import Graph
from offcut.graph.interpret import run_node
from offcut.graph.views import VIEWS

ULPS = 32
"""Roundings that add up: of sums in another order, and of functions."""
RUNS = 4
"""Of a graph whose results move."""
FURTHER = 16
"""What moves so much further as its inputs do does not jump; as far as `SMOOTH` of these."""
SMOOTH = 1e-3


def rounding_unit(dtypes: Iterable[str]) -> float:
    """What of an element rounding may change: of the widest steps that one of some types has; 0 without floats."""
    every = (ml_dtypes.finfo(numpy_dtype(name)).eps for name in dtypes if name in FLOATS)
    return ULPS * max(map(float, every), default=0.0)


def rounding_tolerance(
    graph: Graph, inputs: Mapping[str, Array], sizes: Mapping[str, int], part: float
) -> dict[str, Array]:
    """Of each element of the outputs how far it moves; infinitely far where it does not stay finite.

    graph  computes in float64
    """
    generator = np.random.default_rng(0)

    def moved(array: Array, by: float) -> Array:
        if array.dtype.kind in "biu":
            return array
        return np.asarray(array * (1 + by * generator.uniform(-1, 1, array.shape)), array.dtype)

    def outputs(by: float) -> dict[str, Array]:
        declared = {value.name: numpy_dtype(value.dtype) for value in graph.inputs}
        arrays = {name: moved(array.astype(declared[name]), by) for name, array in inputs.items()}
        for node in graph.nodes:
            of = 0.0 if node.op in VIEWS else by
            results = (moved(array, of) for array in run_node(node, arrays, sizes))
            arrays.update(zip((value.name for value in node.results), results, strict=True))
        return {name: arrays[name].astype("f8") for name in graph.outputs}

    def most(still: Mapping[str, Array], by: float) -> dict[str, Array]:
        off = {name: np.zeros(array.shape) for name, array in still.items()}
        for _ in range(RUNS):
            try:
                now = outputs(by)
            except OffcutError:  # moved so far that an operator does not take it
                return {name: np.full(array.shape, np.inf) for name, array in still.items()}
            for name, array in now.items():
                change = np.nan_to_num(np.abs(array - still[name]), nan=np.inf)
                off[name] = np.maximum(off[name], change)
        return off

    with np.errstate(all="ignore"):
        still = outputs(0.0)
        near = most(still, part)
        if FURTHER * part > SMOOTH:
            return near
        far = most(still, FURTHER * part)
        return {name: np.minimum(off, far[name] * (2 / FURTHER)) for name, off in near.items()}
