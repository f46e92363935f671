"""Throughput against sequence length for one dense layer: the strategies of offcut, and numpy."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from textwrap import fill
from time import perf_counter, perf_counter_ns

import numpy as np

from offcut.experiment.demo.dense import Dense, NumpyEngine, OffcutEngine, Shape, shape_of
from offcut.experiment.demo.weights import Array, Linear

NAIVE = "guard"  # some 50 times slower than the others: fewer lengths, and no untimed call before
STRATEGIES = ("auto", "cut", NAIVE)
COLOURS = {"auto": "#0b6e4f", "cut": "#d98e04", NAIVE: "#b23a48", "numpy": "#4a5a8a"}


@dataclass(frozen=True, slots=True)
class Curve:
    """One contender's seconds: for each length measured, every call's."""

    name: str
    seconds: dict[int, list[float]] = field(default_factory=dict)

    def medians(self) -> list[tuple[int, float]]:
        """Return (length, median seconds of a call), shortest length first."""
        return sorted((length, median(found)) for length, found in self.seconds.items())


def contenders(linear: Linear) -> dict[str, Dense]:
    """Return the layer ``x @ weight + bias`` by each strategy of offcut, and by numpy."""
    layers = {name: OffcutEngine(name).dense(linear, gelu=False) for name in STRATEGIES}
    return layers | {"numpy": NumpyEngine().dense(linear, gelu=False)}


def spread(lengths: Sequence[int], count: int) -> list[int]:
    """Return at most `count` of the distinct `lengths`, evenly by rank, the ends included."""
    distinct = sorted(set(lengths))
    count = min(count, len(distinct))
    picks = np.linspace(0, len(distinct) - 1, count).round().astype(int)
    return [distinct[pick] for pick in picks]


def measure(
    layers: Mapping[str, Dense],
    linear: Linear,
    lengths: Sequence[int],
    budget: float,
    advance: Callable[[float], None] = lambda spent: None,
) -> tuple[Curve, ...]:
    """Return the times of every layer at every one of `lengths`, interleaved.

    In each round every length has its turn, and at each length every contender, both in an order
    of their own; a turn is one call to warm the caches and one that counts. The naive strategy
    runs at every sixth length. Rounds go on until `budget` is spent, but one is always finished.

    layers    contender's name → layer of the weights `linear`
    lengths   numbers of rows
    budget    seconds
    advance   told the seconds spent, now and then
    """
    k, m = linear.weight.shape
    draw = np.random.default_rng(0)
    x: Array = draw.standard_normal((max(lengths), k), dtype=np.float32)
    out: Array = np.ones((max(lengths), m), np.float32)
    few = set(spread(lengths, max(2, len(set(lengths)) // 6)))
    curves = {name: Curve(name) for name in layers}
    start = perf_counter()
    for complete, length, name in _turns(sorted(set(lengths)), list(layers)):
        spent = perf_counter() - start
        advance(min(spent, budget))
        if complete and spent > budget:
            break
        if name == NAIVE and length not in few:
            continue
        layer, rows, result = layers[name], x[:length], out[:length]
        if name != NAIVE:
            layer(rows, result)
        before = perf_counter_ns()
        layer(rows, result)
        took = (perf_counter_ns() - before) * 1e-9
        curves[name].seconds.setdefault(length, []).append(took)
    return tuple(curves.values())


def _turns(lengths: list[int], names: list[str]) -> Iterator[tuple[bool, int, str]]:
    """Yield (whether a round is complete, length, name) for ever, each round shuffled anew."""
    order = random.Random(0)
    complete = False
    while True:
        for length in order.sample(lengths, len(lengths)):
            for name in order.sample(names, len(names)):
                yield complete, length, name
        complete = True


def draw(curves: Sequence[Curve], shape: Shape, machine: str, file: Path) -> None:
    """Write the picture to `file` (PNG): GFLOP/s, product only, against the sequence length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.add_subplot()
    for curve in curves:
        points = curve.medians()
        axes.plot(
            [length for length, _ in points],
            [shape.flop(length) / seconds / 1e9 for length, seconds in points],
            marker="o",
            markersize=3,
            linewidth=1.4,
            color=COLOURS.get(curve.name),
            label=curve.name if curve.name == "numpy" else f"offcut, {curve.name}",
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sequence length, tokens (rows of the input)")
    axes.set_ylabel("GFLOP/s, one thread")
    axes.set_title(f"One dense layer of the encoder at every length: {shape} with bias, float32")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    note = fill(f"medians of interleaved calls · {machine}", width=150)
    figure.supxlabel(note, fontsize=6, color="0.35")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


def picture(
    linear: Linear,
    lengths: Sequence[int],
    machine: str,
    file: Path,
    budget: float,
    advance: Callable[[float], None] = lambda spent: None,
    layers: Mapping[str, Dense] | None = None,
) -> tuple[Curve, ...]:
    """Measure the layer `linear` at up to 64 of `lengths`, draw the picture, return its curves.

    layers   the contenders; by default offcut's strategies and numpy
    """
    layers = contenders(linear) if layers is None else layers
    curves = measure(layers, linear, spread(lengths, 64), budget, advance)
    draw(curves, shape_of(linear, gelu=False), machine, file)
    return curves
