"""What a measurement is written to: the screen, files, pictures.

What a measurement is written to: the screen, and files, which are refused before it is taken, not after.

Pictures of measurements, as PNG, drawn without a display.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from offcut.core.extras import check_installed
from offcut.errors import OffcutError
from offcut.partition.show.figures import new_figure, write

WIDTH = 200
"""Columns of printed tables where there is no terminal that has a width of its own."""


def wide_console(stderr: bool = False) -> Console:
    """Return the screen, or a file that is wide enough for tables."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(width=WIDTH, stderr=stderr)


def check_writable(file: Path, op: str) -> None:
    """Make the folder of `file`, and see that the file can be written; what it holds is kept.

    op   the command, for the refusal

    Raises OffcutError when it cannot.
    """
    existed = file.exists()
    try:
        with suppress(FileExistsError):  # a file, of which opening says that it is no folder
            file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab"):
            pass
        if not existed:
            file.unlink()
    except OSError as failed:
        because, help = (
            failed.strerror or str(failed),
            "another path, in a folder that can be written",
        )
        what = f"cannot write {file.name}"
        raise OffcutError(op, what, at=str(file), because=because, help=(help,)) from failed


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
