"""A few options that stand for many: those that are worth their proofs, and what a call loses by the others' absence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offcut.costmodel.arrays import Array


@dataclass(frozen=True, slots=True)
class Cover:
    """Some of several options, of which each call takes the fastest.

    options  their positions, the one that is best alone first
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


def cover(seconds: Array, most: int, gain: float) -> Cover:
    """Return the options to keep, of which each call takes the fastest.

    The first is the one that takes least, beside the best of all, in the mean of the calls; then one at a time joins that lowers this mean
    most, as long as it does so by at least `gain`.

    seconds  of each option at each call, both at least one, all positive
    most     options to keep, at least 1
    gain     a share of the best of all
    """
    ratios = seconds / seconds.min(axis=0)
    options: list[int] = []
    taken = np.full(ratios.shape[1], np.inf)
    while len(options) < min(most, len(ratios)):
        means = np.minimum(ratios, taken).mean(axis=1)
        best = int(means.argmin())
        if options and float(taken.mean() - means[best]) < gain:
            break
        options.append(best)
        taken = np.minimum(taken, ratios[best])
    regret, mean = float(taken.max()) - 1, float(taken.mean()) - 1
    return Cover(tuple(options), regret, mean, ratios.shape[1])


__all__ = ["Cover", "cover"]
