"""A few options that stand for many: those that are worth their proofs, and what a call loses by the others' absence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from offcut.costmodel.arrays import Array


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
    ratios = seconds / seconds.min(axis=0)
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
    return float(ratios[list(options)].min(axis=0).mean())


__all__ = ["OptionSelection", "select_options"]
