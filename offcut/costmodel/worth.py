"""Costs of ways that compete in, those that are worth their code out: what others match is left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from offcut.core.expr import Expr
from offcut.core.interpret.values import evaluate_all
from offcut.core.program import Size
from offcut.costmodel.arrays import Calls
from offcut.costmodel.machine import Call

_POINTS = 512  # calls that are looked at
_SMALL = 64  # sizes up to it are half of them: there the tails of a processor's tiles decide


def worth(
    costs: Sequence[Expr],
    sizes: Sequence[Size],
    assumptions: Sequence[Expr],
    gain: float,
    call: Call | None = None,
) -> tuple[int, ...]:
    """The positions of the ways that stay: each of some hundred calls that are allowed, and that chooses among them, takes at
    most ``1 + gain`` times as long as one that chooses among all.

    They leave one by one, first the one that is missed least, of equal ones the last.

    costs        seconds of each way, over the sizes
    assumptions  conditions over the sizes that every call meets
    gain         a share of the seconds of a call
    call         what a call takes beside; None: nothing
    """
    stay = tuple(range(len(costs)))
    if len(stay) == 1:
        return stay
    calls = sampled(sizes, assumptions)
    seconds = np.stack([calls.of(cost) for cost in costs])
    seconds = seconds[:, (seconds > 0).all(axis=0) & np.isfinite(seconds).all(axis=0)]
    if not seconds.size:
        return stay

    def seconds_of(ways: Sequence[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        call_seconds = 0.0 if call is None else call.of([len(ways)])
        least_seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = seconds[list(ways)].min(
            axis=0
        )
        return least_seconds + call_seconds

    every = seconds_of(stay)

    def missed(position: int) -> float:
        return float((seconds_of([other for other in stay if other != position]) / every).max())

    while len(stay) > 1:
        position = min(reversed(stay), key=missed)
        if missed(position) > 1 + gain:
            break
        stay = tuple(other for other in stay if other != position)
    return stay


def sampled(
    sizes: Sequence[Size], assumptions: Sequence[Expr], small: int = _SMALL, largest: int = 1 << 62
) -> Calls:
    """Some hundred calls that are allowed: half of them small, others of any size, drawn by logarithms; always the same.

    small    size up to which calls are small
    largest  size that is drawn, where smaller ones are allowed
    """
    draw = np.random.default_rng(0)
    values: dict[str, npt.NDArray[np.int64]] = {}
    for size in sizes:
        low, step = max(size.min, 1), size.multiple_of
        first, last = -(-low // step), size.max // step
        last = min(last, max(first, largest // step))
        if first > last:
            return Calls({one.name: np.zeros(0, np.int64) for one in sizes}, 0)
        near = draw.integers(first, min(last, first + small) + 1, _POINTS)
        far = np.exp(draw.uniform(np.log(first), np.log(last + 1), _POINTS)).astype(np.int64)
        values[size.name] = step * np.where(draw.random(_POINTS) < 0.5, near, np.minimum(far, last))
    allowed = np.ones(_POINTS, bool)
    for condition in assumptions:
        allowed &= evaluate_all(condition, values, _POINTS)
    return Calls({name: each[allowed] for name, each in values.items()}, int(allowed.sum()))
