"""Prices of the ways of a nest, for `price.toml`, and of schedules, for `cost_models.toml`."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import offcut as oc


def tiles(loops: oc.Program) -> float:
    """Return a nanosecond for each tile of the text."""
    return 1e-9 * sum(isinstance(one, oc.ir.Tile) for one in oc.ir.walk(loops))


def twice(loops: oc.Program, sizes: Any, built_in: Any) -> Any:
    """Return twice the built-in price, which chooses alike."""
    return 2 * built_in


class LearnedAlone:
    """Seconds of schedules by what was measured of others, without a cost model: a ridge regression on the words of their texts.

    Features are how often each word stands in the text, and the logarithm of each number behind the word that it follows. Before a
    trial all schedules are alike.
    """

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self.mean = 1.0

    def __call__(self, schedule: oc.Schedule, **sizes: int) -> float:
        """Return the predicted seconds of a call, the same at all sizes."""
        values = features(schedule)
        total = sum(self.weights.get(name, 0.0) * value for name, value in values.items())
        return self.mean * math.exp(min(max(total, -20.0), 20.0))

    def refit(self, times: Mapping[oc.Schedule, Mapping[Any, tuple[float, float]]]) -> None:
        """Learn from the seconds of all that was measured."""
        rows = [(features(schedule), by_sizes) for schedule, by_sizes in times.items() if by_sizes]
        if not rows:
            return
        means = [np.mean([seconds for seconds, _ in by_sizes.values()]) for _, by_sizes in rows]
        names = sorted({name for found, _ in rows for name in found})
        x = np.array([[found.get(name, 0.0) for name in names] for found, _ in rows])
        y = np.log(np.array(means) / np.mean(means))
        solution = np.linalg.solve(x.T @ x + np.eye(len(names)), x.T @ y)
        self.weights, self.mean = dict(zip(names, solution, strict=True)), float(np.mean(means))


def features(schedule: oc.Schedule) -> dict[str, float]:
    """Return the words of a schedule with their counts, and its numbers with their logarithms."""
    counts: dict[str, float] = {}
    for line in str(schedule).splitlines():
        before = ""
        for word in line.split():
            number = word.isdigit()
            name = f"number behind {before}" if number else f"{before} {word}"
            counts[name] = counts.get(name, 0.0) + (math.log2(max(int(word), 1)) if number else 1.0)
            before = before if number else word
    return counts
