"""A few options that stand for many: those that are worth their proofs or their code, and what a call loses by the others' absence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from offcut.core.expr import Expr
from offcut.core.interpret.values import evaluate_all
from offcut.core.program import Size
from offcut.costmodel.arrays import Array, Calls
from offcut.costmodel.machine import Call


@dataclass(frozen=True, slots=True)
class OptionSelection:
    """Some of several options, of which each call takes the fastest.

    options  their positions, in ascending order
    regret   by which part a call takes longer than with all options, at most; mean: in the mean
    calls    that were looked at
    """

    options: tuple[int, ...]
    regret: float
    mean: float
    calls: int

    def __str__(self) -> str:
        return (
            f"at most {self.regret:.1%} longer than the best of all, {self.mean:.1%} in the mean of {self.calls} "
            f"call{'s' if self.calls > 1 else ''}"
        )


def select_options(
    seconds: Array, most: int, gain: float, keeps_first: bool = False
) -> OptionSelection:
    """Return the options to keep, of which each call takes the fastest.

    No call takes longer than by the first option, the one that would be taken alone: it is kept, unless others are as fast at every
    call. Of the sets of which this is so, the one is kept whose calls take least, beside the best of all options, in the mean; one that is
    larger by an option has to lower this mean by at least `gain`.

    seconds  of each option at each call, `(options, calls)`, both at least one, all positive
    most     options to keep, at least 1: every set of so many is compared
    gain     a share of the best of all
    keeps_first  whether the first one is kept whatever the others take: where few of the calls that there may be are looked at
    """
    ratios = (seconds / seconds.min(axis=0)).round(_DIGITS)
    selection: tuple[int, ...] | None = None
    for size in range(1, min(most, len(ratios)) + 1):
        sets = _as_fast_as_first(ratios, size, keeps_first)
        best = min(sets, key=lambda one: _mean(ratios, one))
        if selection is not None and _mean(ratios, selection) - _mean(ratios, best) < gain:
            break
        selection = best
    assert selection is not None
    regret = float(ratios[list(selection)].min(axis=0).max()) - 1
    return OptionSelection(selection, regret, _mean(ratios, selection) - 1, ratios.shape[1])


def _as_fast_as_first(ratios: Array, size: int, with_first: bool) -> Iterator[tuple[int, ...]]:
    """Yield the sets of so many options by which no call takes longer than by the first; those alone that hold it, if they are to."""
    for options in combinations(range(len(ratios)), size):
        slower = (ratios[list(options)].min(axis=0) > ratios[0]).any()
        if 0 in options or not (with_first or slower):
            yield options


def _mean(ratios: Array, options: tuple[int, ...]) -> float:
    return round(float(ratios[list(options)].min(axis=0).mean()), _DIGITS)


_DIGITS = 9  # of ratios: what differs in the last bit, as sums do from processor to processor, is equal, and the first option stays
_POINTS = 512  # calls that are looked at
_SMALL = 64  # sizes up to it are half of them: there the tails of a processor's tiles decide


def prune_dominated(
    costs: Sequence[Expr],
    sizes: Sequence[Size],
    assumptions: Sequence[Expr],
    gain: float,
    call: Call | None = None,
) -> tuple[int, ...]:
    """Return the positions of the variants to keep: at each sampled call, the best kept variant takes at most ``1 + gain`` times
    as long as the best of all.

    Variants are dropped one by one, the least missed first; of equal ones the last.

    costs        seconds of each variant, as expressions over the sizes
    assumptions  conditions over the sizes that every call meets
    gain         allowed loss, as a fraction of the seconds of a call
    call         overhead of a call; None: none
    """
    stay = tuple(range(len(costs)))
    if len(stay) == 1:
        return stay
    calls = sample_calls(sizes, assumptions)
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


def sample_calls(
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
