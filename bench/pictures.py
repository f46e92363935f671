"""The pictures of `accelerator.py`: a roofline, and designs by what they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from offcut.costmodel import Device


@dataclass(frozen=True)
class Point:
    """A layer as it ran.

    intensity  operations per byte of the bus
    used       of the matrix unit's peak, 0 to 1
    """

    name: str
    intensity: float
    used: float


def roofline(
    machine: Device,
    rate: float,
    sides: Mapping[str, Sequence[Point]],
    title: str,
    path: Path,
) -> None:
    """Operations per second over operations per byte of the bus.

    rate   multiply-adds of the matrix unit per cycle
    sides  the points of each legend
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    hertz, bus = machine.hertz, machine.dram.bytes_per_cycle
    peak = 2 * rate * hertz / 1e9
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    x = np.geomspace(4, 4096, 64)
    axes.loglog(x, np.minimum(peak, x * bus * hertz / 1e9), color="black")
    for (label, points), marker in zip(sides.items(), "o^", strict=True):
        at, reached = zip(*((one.intensity, one.used * peak) for one in points), strict=True)
        axes.loglog(at, reached, marker, label=label, alpha=0.8)
        for x_, y_, one in zip(at, reached, points, strict=True):
            axes.annotate(one.name, (x_, y_), fontsize=6, xytext=(3, 3), textcoords="offset points")
    axes.set_xlabel("operations per byte of the bus")
    axes.set_ylabel("GOPS")
    axes.set_title(title)
    axes.legend()
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)


def heat(grid: Any, rows: Sequence[str], columns: Sequence[str], path: Path) -> None:
    """The designs as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.5))
    axes.imshow(grid, aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel("rows × columns × terms of the matrix unit")
    for (row, column), used in np.ndenumerate(grid):
        axes.text(column, row, f"{used:.0%}", ha="center", va="center", color="white")
    axes.set_title("share of the matrix unit that ResNet-18's layers use")
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)
