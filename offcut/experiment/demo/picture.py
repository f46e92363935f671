"""Throughput against sequence length for one dense layer: the strategies of offcut, and numpy."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from textwrap import fill
from time import perf_counter, process_time_ns

import numpy as np

from offcut.experiment.demo.dense import Dense, NumpyEngine, Shape, compile_dense, shape_of
from offcut.experiment.demo.weights import Array, Linear

NAIVE = "guard"  # a hundred times slower than the others: few lengths, each once
NAIVE_LENGTHS = 6
STRATEGIES = ("auto", "cut", NAIVE)
COLOURS = {"auto": "#0b6e4f", "cut": "#d98e04", NAIVE: "#b23a48", "numpy": "#4a5a8a"}
LABELS = {
    "auto": "offcut auto: the cheapest cut of each length",
    "cut": "offcut cut: full tiles, then single rows",
    NAIVE: "offcut guard: an if in every instance",
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One contender's seconds of processor time: for each length measured, every call's."""

    name: str
    seconds: dict[int, list[float]] = field(default_factory=dict)

    def points(self) -> list[tuple[int, float]]:
        """Return (length, seconds of a call), shortest length first.

        Of a length's calls the lower quartile: what else runs on the machine only ever adds.
        """
        return sorted((n, float(np.quantile(found, 0.25))) for n, found in self.seconds.items())


def contenders(linear: Linear) -> dict[str, Dense]:
    """Return the layer ``x @ weight + bias`` by each strategy of offcut, and by numpy."""
    layers: dict[str, Dense] = {name: compile_dense(linear, False, name) for name in STRATEGIES}
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
    """Return the processor times of every layer at every one of `lengths`, interleaved.

    First the naive strategy runs once at a few lengths. Then, in each round, every length has its
    turn, and at each length every other contender, both in an order of their own; a turn is one
    call to warm the caches and one that counts. Rounds go on until `budget` is spent, but one is
    always finished.

    layers    contender's name → layer of the weights `linear`
    lengths   numbers of rows
    budget    seconds for the rounds
    advance   told the seconds spent on them, now and then
    """
    k, m = linear.weight.shape
    x: Array = np.random.default_rng(0).standard_normal((max(lengths), k), dtype=np.float32)
    out: Array = np.ones((max(lengths), m), np.float32)
    curves = {name: Curve(name) for name in layers}

    def call(name: str, length: int) -> float:
        before = process_time_ns()
        layers[name](x[:length], out[:length])
        return (process_time_ns() - before) * 1e-9

    if NAIVE in layers:
        for length in spread(lengths, NAIVE_LENGTHS):
            curves[NAIVE].seconds[length] = [call(NAIVE, length)]
    others = [name for name in layers if name != NAIVE]
    start = perf_counter()
    for complete, length, name in _turns(sorted(set(lengths)), others):
        spent = perf_counter() - start
        advance(min(spent, budget))
        if complete and spent > budget:
            break
        call(name, length)
        curves[name].seconds.setdefault(length, []).append(call(name, length))
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

    figure = Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.add_subplot()
    for curve in curves:
        lengths, rates = zip(
            *((length, shape.flop(length) / taken / 1e9) for length, taken in curve.points()),
            strict=True,
        )
        label = LABELS.get(curve.name, curve.name)
        if curve.name == NAIVE:
            label += f", {median(rates):.1f} GFLOP/s"
        axes.plot(
            lengths,
            rates,
            "--" if curve.name == "numpy" else "-",
            marker="o",
            markersize=3,
            linewidth=2.2 if curve.name == "auto" else 1.3,
            color=COLOURS.get(curve.name),
            label=label,
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0, 1.25 * axes.get_ylim()[1])  # room for the legend
    axes.set_xlabel("sequence length: tokens in the sentence, rows of the product")
    axes.set_ylabel("GFLOP/s, one thread (higher is better)")
    axes.grid(alpha=0.25)
    figure.suptitle("Compiled once, run at every sequence length", fontsize=13, weight="bold")
    axes.set_title(f"a dense layer of the encoder, {shape} with bias, float32", fontsize=10)
    axes.legend(loc="upper left", ncols=2, frameon=False, fontsize=8.5)
    rounds = max((len(found) for curve in curves for found in curve.seconds.values()), default=0)
    note = fill(f"lower quartile of {rounds} interleaved calls · {machine}", width=150)
    figure.supxlabel(note, fontsize=6, color="0.35")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150, metadata={"Description": note})


def picture(
    linear: Linear,
    lengths: Sequence[int],
    machine: str,
    file: Path,
    budget: float,
    advance: Callable[[float], None] = lambda spent: None,
    layers: Mapping[str, Dense] | None = None,
    count: int = 64,
) -> tuple[Curve, ...]:
    """Measure the layer `linear` at up to `count` of `lengths`, draw it, return the curves.

    layers   the contenders; by default offcut's strategies and numpy
    """
    layers = contenders(linear) if layers is None else layers
    curves = measure(layers, linear, spread(lengths, count), budget, advance)
    draw(curves, shape_of(linear, gelu=False), machine, file)
    return curves
