"""The price of schedules that search goes by: the target's model, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offcut.core.expr import Binary, Expr
from offcut.core.interpret.values import evaluate_all
from offcut.describe.computation import Computation
from offcut.errors import DescribeError, OffcutError
from offcut.schedule import Nest, Schedule, Together
from offcut.search import Price, Sizes
from offcut.tuning.problem import Problem

Values: TypeAlias = NDArray[Any]
OwnPrice = Callable[..., Any]
"""A schedule, and sizes by name -> seconds of a call; it may raise PartitionError for what is not legal."""


def price_of(problem: Problem, computation: Computation | None, own: OwnPrice | None) -> Price:
    """Predicted seconds of schedules at the sizes of a problem.

    computation   what nests are of; None, and no price of the user's: all schedules are alike
    own           instead of the target's model
    """
    vectors = [dict(sizes) for sizes, _ in problem.sizes]
    keys = [key_of(sizes) for sizes in vectors]
    names = dict(problem.request.users.sizes)
    columns = {names[user]: np.array([at[user] for at in vectors]) for user in vectors[0]}

    def alike(schedule: Schedule) -> dict[Sizes, float]:
        return dict.fromkeys(keys, 0.0)

    def told(schedule: Schedule) -> dict[Sizes, float]:
        return {key: _asked(own, schedule, at) for key, at in zip(keys, vectors, strict=True)}

    evaluated = _Evaluated(columns, len(vectors))

    def modelled(schedule: Schedule) -> dict[Sizes, float]:
        if not any(isinstance(step, Nest | Together) for step in schedule.steps):
            return alike(schedule)
        assert computation is not None
        seconds = problem.target.predicted(computation, schedule, problem.options)
        return {key: float(one) for key, one in zip(keys, evaluated(seconds), strict=True)}

    if own is not None:
        if not callable(own):
            raise _no_price(own, "it is no function")
        return told
    return alike if computation is None else modelled


class _Evaluated:
    """Values of expressions at all sizes at once; of a sum or a least, its parts are remembered: ways come again
    and again.
    """

    def __init__(self, columns: Mapping[str, Values], count: int) -> None:
        self.columns, self.count = columns, count
        self.known: dict[int, tuple[Expr, Values]] = {}

    def __call__(self, expr: Expr) -> Values:
        match expr:
            case Binary("+", a, b):
                return self(a) + self(b)
            case Binary("min", a, b):
                return np.minimum(self(a), self(b))
        if id(expr) not in self.known:
            found = np.broadcast_to(evaluate_all(expr, self.columns, self.count), self.count)
            self.known[id(expr)] = expr, found  # as long as it is held, nothing else has its id
        return self.known[id(expr)][1]


def key_of(sizes: Any) -> Sizes:
    """Sizes by name as a key."""
    return tuple(sorted(sizes.items()))


def _asked(own: Any, schedule: Schedule, sizes: dict[str, int]) -> float:
    try:
        found = own(schedule, **sizes)
    except OffcutError:
        raise
    except Exception as why:
        raise _no_price(own, f"it raised {type(why).__name__}: {why}") from why
    number = isinstance(found, int | float | np.floating) and not isinstance(found, bool)
    if not number or not isfinite(found) or found < 0:
        raise _no_price(own, f"it gave {found!r}, and a price is seconds, at least 0")
    return float(found)


def _no_price(own: object, because: str) -> DescribeError:
    shown = getattr(own, "__name__", repr(own))
    help = ("lambda schedule, n: 2e-9 * n",)
    return DescribeError("tune", f"cannot take price={shown}", because=because, help=help)
