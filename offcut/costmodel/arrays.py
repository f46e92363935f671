"""Expressions over arrays of values: many calls, or many tiles, at once, and what expressions have in common computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Logic,
    Lookup,
    Select,
    Unary,
    Var,
    children,
)
from offcut.core.interpret.values import NUMPY, evaluate_all

Array: TypeAlias = npt.NDArray[np.float64]
"""By call; of what is asked of each level of memory, by level and call."""

Values: TypeAlias = npt.NDArray[Any]

_LOGIC: Mapping[str, Callable[..., Any]] = {
    "and": lambda *parts: reduce(np.logical_and, parts),
    "or": lambda *parts: reduce(np.logical_or, parts),
    "not": np.logical_not,
}
_FAST: dict[str, Callable[..., Any]] = {**NUMPY, "min": np.minimum, "max": np.maximum}


class Formulas:
    """Expressions without loads, to be evaluated together, in float64."""

    def __init__(self, exprs: Sequence[Expr]) -> None:
        self._places: dict[Expr, int] = {}
        self._start: list[Any] = []
        self._names: list[tuple[int, str]] = []
        self._steps: list[tuple[int, Callable[..., Any], tuple[int, ...]]] = []
        self._found = [self._place(expr) for expr in exprs]

    def __call__(self, values: Mapping[str, npt.NDArray[Any]]) -> list[Array]:
        """The value of each, by the value of each name."""
        at = list(self._start)
        for place, name in self._names:
            at[place] = values[name]
        with np.errstate(all="ignore"):
            for place, of, parts in self._steps:
                at[place] = of(*[at[part] for part in parts])
        return [at[place] for place in self._found]

    def _place(self, expr: Expr) -> int:
        known = self._places.get(expr)
        if known is not None:
            return known
        if isinstance(expr, Cast):
            return self._place(expr.a)
        parts = tuple(self._place(part) for part in children(expr))
        place = self._places[expr] = len(self._start)
        self._start.append(None)
        match expr:
            case Const(value, dtype):
                self._start[place] = bool(value) if dtype == "bool" else float(value)
            case Var(name):
                self._names.append((place, name))
            case Lookup(table, _):
                self._steps.append((place, _lookup(np.array(table)), parts))
            case Select():
                self._steps.append((place, np.where, parts))
            case Logic(op, _):
                self._steps.append((place, _LOGIC[op], parts))
            case Binary(op) | Unary(op) | Compare(op):
                self._steps.append((place, _FAST[op], parts))
            case _:
                raise AssertionError(type(expr))
        return place


def _lookup(table: Array) -> Callable[[Array], Array]:
    return lambda index: table[np.asarray(index).astype(np.int64)]


@dataclass(frozen=True)
class Calls:
    """The sizes of `count` calls.

    values   of each size, by the name in programs
    """

    values: Mapping[str, npt.NDArray[np.int64]]
    count: int
    known: dict[Expr, Array] = field(default_factory=dict)

    @staticmethod
    def of_one(sizes: Mapping[str, int]) -> Calls:
        """Return one call at these sizes."""
        return Calls({name: np.array([size]) for name, size in sizes.items()}, 1)

    @staticmethod
    def of_vectors(vectors: Sequence[Mapping[str, int]], names: Mapping[str, str]) -> Calls:
        """Return a call at each vector of sizes, which are by the user's names.

        names  of the program, by the user's
        """
        columns = {names[user]: np.array([at[user] for at in vectors]) for user in vectors[0]}
        return Calls(columns, len(vectors))

    def of(self, expr: Expr) -> Array:
        """The value of an expression at each call."""
        if expr not in self.known:
            value = evaluate_all(expr, self.values, self.count)
            self.known[expr] = np.broadcast_to(np.asarray(value, np.float64), self.count)
        return self.known[expr]

    def constant(self, value: float) -> Array:
        """The same at each call."""
        return np.full(self.count, float(value))
