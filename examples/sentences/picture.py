"""Throughput against sequence length for one dense layer: the strategies of offcut, and numpy."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from examples.sentences import kernels, plain
from examples.sentences.weights import Array, Linear
from offcut.experiment.outputs import plot_lines
from offcut.experiment.timing import measure

BASELINE = "guard"
"""What a compiler makes that does not partition loops: vectors, and conditions inside of every tile."""

STRATEGIES = ("auto", "cut", BASELINE)
LABELS = {
    "auto": "offcut auto: the cheapest cut of each length",
    "cut": "offcut cut: full tiles, then single rows",
    BASELINE: "offcut guard: vector loops, an if in every instance",
}

Layer = Callable[[Array, Array], object]
"""Writes the result for x, (n, k), to out, (n, m)."""

Lines = dict[str, list[tuple[int, float]]]
"""By contender: lengths, each with the seconds of a call."""


def contenders(linear: Linear) -> dict[str, Layer]:
    """Return the layer ``x @ weight + bias`` by each strategy of offcut, and by numpy."""
    k, m = linear.weight.shape
    described = kernels.dense(k, m, "float32", gelu=False)
    constants = {"W": linear.weight, "bias": linear.bias}

    def compiled(strategy: str) -> Layer:
        kernel = described.compile(constants, strategy=strategy)
        return lambda x, out: kernel(x, out=out)

    layers = {name: compiled(name) for name in STRATEGIES}
    return layers | {"numpy": lambda x, out: plain.dense(x, linear, out)}


def spread(lengths: Sequence[int], count: int) -> list[int]:
    """Return at most `count` of the distinct `lengths`, evenly by rank, the ends included."""
    distinct = sorted(set(lengths))
    count = min(count, len(distinct))
    picks = np.linspace(0, len(distinct) - 1, count).round().astype(int)
    return [distinct[pick] for pick in picks]


def measured(
    layers: Mapping[str, Layer],
    linear: Linear,
    lengths: Sequence[int],
    budget: float,
    advance: Callable[[float], None] = lambda spent: None,
) -> Lines:
    """Return the processor times of every layer at every one of `lengths`, in turns.

    layers    contender's name → layer of the weights `linear`
    lengths   numbers of rows
    budget    seconds for all of it; a call that is longer than its part runs once
    advance   told the seconds of the budget that are spent, now and then
    """
    k, m = linear.weight.shape
    x: Array = np.random.default_rng(0).standard_normal((max(lengths), k), dtype=np.float32)
    out: Array = np.ones((max(lengths), m), np.float32)
    lines: Lines = {name: [] for name in layers}
    for done, length in enumerate(lengths, start=1):
        timings = measure(
            {name: partial(layer, x[:length], out[:length]) for name, layer in layers.items()},
            budget=budget / len(lengths) / len(layers),
        )
        for name, timing in timings.items():
            lines[name].append((length, timing.seconds))
        advance(budget * done / len(lengths))
    return lines


def draw(lines: Lines, linear: Linear, machine: str, file: Path) -> None:
    """Write the picture to `file` (PNG): GFLOP/s, product only, against the sequence length."""
    k, m = linear.weight.shape
    rates = {
        name: [(float(n), 2e-9 * n * k * m / seconds) for n, seconds in found]
        for name, found in lines.items()
    }
    labels = {name: LABELS.get(name, name) for name in rates}
    if BASELINE in rates:
        labels[BASELINE] += f", {median(rate for _, rate in rates[BASELINE]):.0f} GFLOP/s"
    plot_lines(
        file,
        {labels[name]: points for name, points in rates.items()},
        title=f"Compiled once, run at every sequence length: a dense layer, {k} → {m} with bias",
        x_label="sequence length: tokens in the sentence, rows of the product",
        footer=machine,
        dashed=("numpy",),
        bold=(LABELS["auto"],),
    )


def picture(
    linear: Linear,
    lengths: Sequence[int],
    machine: str,
    file: Path,
    budget: float,
    advance: Callable[[float], None] = lambda spent: None,
    layers: Mapping[str, Layer] | None = None,
    count: int = 64,
) -> None:
    """Measure the layer `linear` at up to `count` of `lengths`, and draw it.

    layers   the contenders; by default offcut's strategies and numpy
    """
    layers = contenders(linear) if layers is None else layers
    draw(measured(layers, linear, spread(lengths, count), budget, advance), linear, machine, file)
