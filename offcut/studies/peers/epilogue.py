"""The steps of a contraction's epilogue, and how each carries an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.core.functions import erf
from offcut.experiment.reference import HALF_ULP, DoubleArray

FUNCTION_UNITS = 8
"""Half units in the last place that a library's function of an epilogue may be off: of gelu in float32, 4 of erf, 2 of the sum with 1, both halved,
and 3 roundings of products and of the argument; measured are 5.4 (gelu), 5.2 (tanh), 3 (silu) and 2.8 (sigmoid) at the most."""


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A function of an epilogue, and how it carries an error.

    call       in float64
    lipschitz  the greatest absolute value of its derivative
    units      half units in the last place of float32 (or of float64) that a library's value may be off, at the scale of the result;
               0 for a function that rounds nothing
    is_scaled  whether that scale is the argument's magnitude, as of ``x * g(x)`` with g between 0 and 1; else 1
    """

    call: Callable[[Any], Any]
    lipschitz: float
    units: int = FUNCTION_UNITS
    is_scaled: bool = False

    def apply(
        self, value: DoubleArray, allowed: DoubleArray, stored: str
    ) -> tuple[DoubleArray, DoubleArray]:
        """Return the function of `value`, and the error allowed of it where the argument's is `allowed`.

        stored  the element type of the result: a 16-bit float is calculated in float32 and rounded once
        """
        computed = stored if stored in ("float32", "float64") else "float32"
        scale = np.abs(value) + allowed if self.is_scaled else 1.0
        error = self.lipschitz * allowed + self.units * HALF_ULP[computed] * scale
        result = self.call(value)
        if self.units and stored != computed:
            error = error + HALF_ULP[stored] * (np.abs(result) + error)
        return result, error


def _sigmoid(x: DoubleArray) -> DoubleArray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


STEP_FUNCTIONS: Mapping[str, StepFunction] = {
    "relu": StepFunction(lambda x: np.maximum(x, 0), 1.0, units=0),
    "gelu": StepFunction(lambda x: x / 2 * (1 + erf(x / math.sqrt(2))), 1.13, is_scaled=True),
    "sigmoid": StepFunction(_sigmoid, 0.25),
    "silu": StepFunction(lambda x: x * _sigmoid(x), 1.1, is_scaled=True),
    "tanh": StepFunction(np.tanh, 1.0),
}
"""The steps of an epilogue that are functions of an element. The derivatives are greatest at sqrt(2) (gelu), 0 (sigmoid, tanh), 2.4 (silu)."""

ADDED_STEPS = ("bias", "residual")
"""The steps that add an array: `bias` along the last axis, `residual` of the result's shape."""

EPILOGUES = (*ADDED_STEPS, *STEP_FUNCTIONS)
