"""What a prepared kernel computes, by numpy in float64, and how far its result may lie from that.

Elements of bfloat16 are their bits, as uint16: numpy has no such type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
STORED = {
    "bfloat16": np.uint16,
    "float16": np.float16,
    "float32": np.float32,
    "int8": np.int8,
    "int32": np.int32,
}
_UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "int32": 0.0}
"""Half the distance of neighbours, over their value."""
_ROUNDING = {"int8": 0.0}
"""The largest error of an operation on sums of a type, over their magnitude, where that is not of float32."""
_TINY = {"bfloat16": 2.0**-134, "float16": 2.0**-25, "float32": 2.0**-150, "int32": 0.0}


def to_stored(values: Array, dtype: str) -> Array:
    """Return values as a type stores them, rounded from float32 to the nearest, ties to even."""
    if dtype.startswith("int"):
        return values.astype(STORED[dtype])
    values = values.astype(np.float32)
    if dtype != "bfloat16":
        return values.astype(STORED[dtype])
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_stored(values: Array, dtype: str) -> Array:
    """Return the values of stored elements, in float64."""
    if dtype == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


def expected(computes: Mapping[str, Any], inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return the result in float64, and the largest error that float32 sums in any order and the result's type may have.

    computes  ``op`` dense (A, W; ``turned``, ``relu``), centered (X), scaled (X); ``dtype``; ``out``

    Raises ValueError for an operator that is none of these.
    """
    dtype, out = computes["dtype"], computes["out"]
    values = {name: from_stored(array, dtype) for name, array in inputs.items()}
    match computes["op"]:
        case "dense":
            a, w = values["A"], values["W"].T if computes.get("turned") else values["W"]
            exact, sums = a @ w, np.abs(a) @ np.abs(w)
            terms = a.shape[1]
            if computes.get("relu"):
                exact = np.maximum(exact, 0.0)
        case "centered":
            x = values["X"]
            exact, sums = x - x.sum(0), np.abs(x) + np.abs(x).sum(0)
            terms = x.shape[0] + 1
        case "scaled":
            exact, sums, terms = 2.0 * values["X"], np.abs(values["X"]), 1
        case other:
            raise ValueError(f"there is no reference of {other}")
    bound = (terms + 2) * _ROUNDING.get(dtype, 2.0**-24) * sums
    return exact, bound + _UNIT[out] * (np.abs(exact) + bound) + _TINY[out]


def drawn(
    computes: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], seed: int, whole: bool
) -> dict[str, Array]:
    """Return inputs.

    whole  small whole numbers, of which sums are exact in float32; else normal ones
    """
    draw = np.random.default_rng(seed)

    def one(shape: tuple[int, ...]) -> Array:
        if computes["dtype"].startswith("int"):
            return to_stored(draw.integers(-128, 128, shape), computes["dtype"])
        values = draw.integers(-4, 5, shape) if whole else draw.standard_normal(shape)
        return to_stored(values, computes["dtype"])

    return {name: one(shape) for name, shape in shapes.items()}


def wrong(
    computes: Mapping[str, Any], inputs: Mapping[str, Array], result: Array, whole: bool
) -> str:
    """Return what is wrong with a result, in one line; empty if nothing is.

    whole  whether the inputs are whole numbers: then the result is exact
    """
    exact, bound = expected(computes, inputs)
    found = from_stored(result, computes["out"])
    if found.shape != exact.shape:
        return f"the shape is {found.shape}, and should be {exact.shape}"
    if whole:
        rounded = from_stored(to_stored(exact, computes["out"]), computes["out"])
        misses = ~((found == rounded) | (np.isnan(found) & np.isnan(rounded)))
    else:
        misses = ~(np.abs(found - exact) <= bound)
    if not misses.any():
        return ""
    places = np.argwhere(misses)
    first = tuple(int(at) for at in places[0])
    rows = sorted({int(place[0]) % 16 for place in places})
    columns = sorted({int(place[-1]) % 8 for place in places})
    return (
        f"{len(places)} of {misses.size} are wrong, the first at {first}: {found[first]:g}, and should be {exact[first]:g}; "
        f"rows mod 16: {_listed(rows, 16)}, columns mod 8: {_listed(columns, 8)}"
    )


def _listed(numbers: list[int], of: int) -> str:
    return "all" if len(numbers) == of else " ".join(map(str, numbers))
