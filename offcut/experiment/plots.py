"""Pictures of measurements, as PNG, drawn without a display."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from offcut.core.extras import check_installed
from offcut.partition.show.figure_io import new_figure, write


def plot_lines(
    path: Path,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x_label: str,
    footer: str,
    y_label: str = "GFLOP/s, one thread (higher is better)",
    dashed: Sequence[str] = (),
    bold: Sequence[str] = (),
    logarithmic: bool = False,
) -> None:
    """Write a picture with one line per entry, over a logarithmic x axis.

    lines    name -> points (x, y)
    footer   where and how it was measured
    dashed   names whose lines are dashed: those to compare with
    bold     names whose lines are thicker: those that the picture is about
    logarithmic  whether the y axis is so, too

    Raises TargetError when matplotlib is not installed, CallError where it cannot be written.
    """
    check_installed("plot", f"cannot draw {path}", "matplotlib")
    from matplotlib.ticker import FuncFormatter

    figure = new_figure(9, 5.5)
    axes = figure.add_subplot()
    for name, points in lines.items():
        if points:
            style = "--" if name in dashed else "-"
            width = 2.4 if name in bold else 1.3
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, style, marker="o", markersize=3, linewidth=width, label=name)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    if logarithmic:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title)
    axes.grid(alpha=0.3, which="both")
    if axes.get_legend_handles_labels()[1]:
        axes.legend()
    wrapped = "\n".join(textwrap.fill(line, 140) for line in footer.splitlines())
    figure.supxlabel(wrapped, fontsize=7, color="0.35")
    write(figure, path, "picture.png, in a folder that can be written", footer)
