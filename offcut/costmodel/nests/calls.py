"""The sizes of several calls: an expression in, its value at each of them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from offcut.core.expr import Expr
from offcut.core.interpret.values import evaluate_all

Array: TypeAlias = npt.NDArray[np.float64]
"""By call; of what is asked of each level of memory, by level and call."""


@dataclass(frozen=True)
class Calls:
    """Of `count` calls.

    values   of each size, by the name in programs
    """

    values: Mapping[str, npt.NDArray[np.int64]]
    count: int
    known: dict[Expr, Array] = field(default_factory=dict)

    def of(self, expr: Expr) -> Array:
        """The value at each call."""
        if expr not in self.known:
            found = evaluate_all(expr, self.values, self.count)
            self.known[expr] = np.broadcast_to(np.asarray(found, np.float64), self.count)
        return self.known[expr]

    def constant(self, value: float) -> Array:
        """The same at each call."""
        return np.full(self.count, float(value))
