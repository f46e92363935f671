"""What a result must be: values in float64, and how far each element may be off whatever the order of its sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.describe.request import Array

DoubleArray = NDArray[np.float64]

HALF_ULP = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-7,
    "int32": 0.0,
}
"""Largest relative error of rounding to an element type.

For bfloat16 it is twice that: there are libraries that cut off the digits beyond.
"""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a result must be, in any order of summation.

        |result - value| <= allowed

    For a contraction, allowed = (terms + operands) * 2^-24 * sum of |term|, and the rounding of the
    result where its type is shorter than float32.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1.
    """

    value: DoubleArray
    allowed: DoubleArray

    def mismatch(self, result: NDArray[Any]) -> str:
        """Return what is wrong with `result`, naming its worst element; "" if nothing is."""
        if result.shape != self.value.shape:
            return f"shape {result.shape}, expected {self.value.shape}"
        wide = result.astype(np.float64)
        error = np.abs(wide - self.value)
        wrong = ~(error <= self.allowed)
        if not wrong.any():
            return ""
        worst = np.unravel_index(
            np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1)), error.shape
        )
        at = ", ".join(str(int(i)) for i in worst)
        return (
            f"{int(wrong.sum())} of {wrong.size} elements are off; "
            f"[{at}] is {wide[worst]:.9g}, expected {self.value[worst]:.9g}"
        )


def poison_array(shape: tuple[int, ...], dtype: str) -> Array:
    """Return a new array of values that no result has by chance, every page touched."""
    return np.full(shape, np.nan if dtype in FLOATS else -(2**30) - 1, numpy_dtype(dtype))
