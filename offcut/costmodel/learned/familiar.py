"""Whether a row is like those that a model was learned from, in words where it is not.

Two questions. Is a feature beyond the range that was seen, by more than a quarter of the range? And is the nearest of what was seen farther
than the rows were from each other on which the model was judged: those that its members had not seen from those that they had?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.costmodel.arrays import Values
from offcut.costmodel.learned.rows import Rows

_KEPT = 256
"""Rows that others are compared with, at most; what other numbers give is in docs/design/0022, as of the next two."""

_BEYOND = 0.25
"""Of its range, how far a feature may lie outside."""

_LEAST = 0.1
"""The least width of a range: features are logarithms and shares."""


@dataclass(frozen=True)
class Familiar:
    """What was seen.

    names      of the features
    low, high  the range of each
    width      of each, by which distances are measured: twice its standard deviation
    kept       some of the rows, ``(rows, features)``
    limit      the distance past which a row is like none of them
    """

    names: tuple[str, ...]
    low: Values
    high: Values
    width: Values
    kept: Values
    limit: float

    def distance(self, features: Values) -> Values:
        """From the nearest that is kept: the root of the mean square over the features."""
        one, other = features / self.width, self.kept / self.width
        squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2 * one @ other.T
        found: Values = np.sqrt(np.maximum(squares.min(axis=1), 0) / len(self.names))
        return found

    def because(self, features: Values) -> list[str]:
        """Why each row is unlike what was seen; "" where it is not."""
        room = np.maximum(self.high - self.low, _LEAST) * _BEYOND
        beyond = np.maximum(self.low - features, features - self.high) / room
        far = self.distance(features)
        return [
            self._said(row, int(np.argmax(over)), float(over.max()), float(apart))
            for row, over, apart in zip(features, beyond, far, strict=True)
        ]

    def _said(self, row: Values, worst: int, over: float, apart: float) -> str:
        if over > 1:
            seen = f"{self.low[worst]:.3g} … {self.high[worst]:.3g}"
            return f"{self.names[worst]} is {row[worst]:.3g}, and {seen} is what was learned from"
        if apart > self.limit:
            return f"the nearest of what was learned from is {apart:.2g} away, and {self.limit:.2g} is the most"
        return ""

    def plain(self) -> dict[str, Any]:
        """It as JSON has it, in single precision."""
        arrays = {name: getattr(self, name) for name in ("low", "high", "width", "kept")}
        lists = {name: np.asarray(one, np.float32).tolist() for name, one in arrays.items()}
        return {"names": list(self.names), "limit": self.limit, **lists}

    @staticmethod
    def of_plain(found: Mapping[str, Any]) -> Familiar:
        """What `plain` was made of."""
        arrays = {name: np.asarray(found[name], float) for name in ("low", "high", "width", "kept")}
        return Familiar(tuple(found["names"]), limit=float(found["limit"]), **arrays)


def familiar(rows: Rows, part: Values, seed: int) -> Familiar:
    """What rows are like.

    part  of each row, by which it was left out where the model was judged
    """
    features = np.asarray(rows.features, float)
    width = np.maximum(2 * features.std(axis=0), _LEAST)
    kept = np.random.default_rng(seed).permutation(len(rows))[:_KEPT]
    ranges = features.min(axis=0), features.max(axis=0)
    limit = 0.0
    for number in np.unique(part):
        there = kept[part[kept] != number]
        if len(there):
            seen = Familiar(rows.names, *ranges, width, features[there], 0.0)
            limit = max(limit, float(seen.distance(features[part == number]).max()))
    return Familiar(rows.names, *ranges, width, features[kept], limit)
