"""The pictures of a study, each as PNG and PDF: speed by size, performance profiles, a roofline with the kernels on it, predicted against measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcut.partition.show.figures import new_figure, write
from offcut.studies.results import Results
from offcut.studies.rows import Row
from offcut.studies.statistics import call_interval, call_seconds, profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".pdf")


def write_figures(results: Results, folder: Path) -> list[Path]:
    """Write every picture for which there are samples; their PNG files.

    Raises TargetError where matplotlib is not installed.
    """
    written: list[Path] = []
    for name, figure in _figures(results):
        for suffix in FORMATS:
            write(figure, folder / f"{name}{suffix}", "", None)
        written.append(folder / f"{name}.png")
    return written


def _figures(results: Results) -> Iterator[tuple[str, Figure]]:
    for number, operator in enumerate(results.definition.operators):
        rows = results.of(operator.name)
        axis = swept_axis(rows)
        if axis is not None and len(rows) > 1:
            yield f"speed_{number}", _speed(results, rows, axis)
    times = {name: results.times(name) for name in results.contenders}
    times = {name: one for name, one in times.items() if one}
    if len(times) > 1:
        yield "profile", _profile(results, times)
    if any(one.flop and one.moved and one.seconds for one in results.samples):
        yield "roofline", _roofline(results)
    if any(results.predicted(name) for name in results.contenders):
        yield "predicted", _predicted_figure(results)


def swept_axis(rows: Sequence[Row]) -> str | None:
    """Return the axis that alone, or together with others, takes the most extents; None where all have one."""
    counts = {
        name: len({row.sizes[name] for row in rows}) for row in rows[:1] for name in row.sizes
    }
    most = max(counts, key=lambda name: counts[name], default=None)
    return most if most is not None and counts[most] > 1 else None


def plain_label(name: str) -> str:
    """Return a name as matplotlib shows it as it stands: a dollar begins no formula, and an underscore hides no line.

    >>> plain_label("a $x$"), plain_label("_mine")
    ('a \\\\$x\\\\$', ' _mine')
    """
    return f"{' ' * name.startswith('_')}{name}".replace("$", r"\$")


def _style(results: Results, name: str) -> dict[str, Any]:
    """Return how a contender's line looks: ours whole, a peer's dashed, the baseline thicker."""
    peers = {one.name for one in results.definition.contenders if one.is_peer}
    wide = name == results.definition.baseline
    return {
        "linestyle": "--" if name in peers else "-",
        "linewidth": 2.2 if wide else 1.3,
        "marker": "o",
        "markersize": 3,
        "label": plain_label(name),
    }


def _axes(figure: Figure, title: str, x: str, y: str) -> Any:
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3, which="both")
    return axes


def _short_number(value: float, _: object = None) -> str:
    """Return a number of an axis in few letters.

    >>> _short_number(512), _short_number(2**20), _short_number(2**27), _short_number(0.5)
    ('512', '1.05 M', '134 M', '0.5')
    """
    for power, letter in ((9, "G"), (6, "M")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {letter}"
    return f"{value:g}"


def _speed(results: Results, rows: Sequence[Row], axis: str) -> Figure:
    """Return the speed by the extent of `axis`, with the 95 % interval of each median; time where operations are unknown."""
    figure = new_figure(7, 4.2)
    rates = all(one.flop for row in rows for one in row.samples.values() if one.seconds)
    unit = "GFLOP/s (higher is better)" if rates else "µs a call (lower is better)"
    alone = len({row.sizes[axis] for row in rows}) == len(rows)
    title = plain_label(rows[0].operator)
    axes = _axes(figure, title, axis if alone or not rates else "flop", unit)
    for name in results.contenders:
        points = []
        for row in sorted(rows, key=lambda one: one.sizes[axis]):
            one = row.samples.get(name)
            if one is not None and one.seconds:
                three = call_seconds(one), *call_interval(one)
                x = row.sizes[axis] if alone or not rates else one.flop
                points.append((x, [one.flop / s / 1e9 if rates else s * 1e6 for s in three]))
        if points:
            points.sort()
            xs = [x for x, _ in points]
            axes.plot(xs, [y[0] for _, y in points], **_style(results, name))
            ends = [sorted(y[1:]) for _, y in points]
            axes.fill_between(xs, [e[0] for e in ends], [e[1] for e in ends], alpha=0.15)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_short_number)
    if rates:
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("log")
    if axes.lines:
        axes.legend(fontsize=8)
    return figure


def _profile(results: Results, times: dict[str, dict[str, float]]) -> Figure:
    figure = new_figure(6, 4)
    x, y = "times slower than the fastest, at most", "share of the cells"
    axes = _axes(figure, "performance profile", x, y)
    for name, points in profile(times).items():
        style = {**_style(results, name), "marker": None, "drawstyle": "steps-post"}
        axes.plot(*zip(*points, strict=True), **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_short_number)
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=8)
    return figure


def _roofline(results: Results) -> Figure:
    """Return the kernels in the roofline of one core of this machine as its description has it."""
    from offcut.backends.cpu.machine import isa
    from offcut.costmodel import roofline
    from offcut.experiment.sheet import units_of

    machine = isa.host().machine
    roof = roofline(machine, units_of(machine))
    figure = new_figure(7, 4.6)
    title = f"roofline of one core, described as {machine.name}"
    axes = _axes(figure, title, "flop per byte of operands and results", "GFLOP/s")
    points = {
        name: [
            (one.flop / one.moved, one.flop / call_seconds(one) / 1e9)
            for row in results.rows
            if (one := row.samples.get(name)) is not None and one.seconds and one.flop and one.moved
        ]
        for name in results.contenders
    }
    every = [x for one in points.values() for x, _ in one]
    ends = min(every) / 4, max(every) * 4
    for level, bandwidth in roof.bandwidths:
        xs = [ends[0] * (ends[1] / ends[0]) ** (step / 64) for step in range(65)]
        label = f"{level}, {bandwidth / 1e9:.3g} GB/s"
        axes.plot(xs, [roof.attainable(bandwidth, x) / 1e9 for x in xs], linewidth=0.8, color="0.5")
        axes.annotate(
            label, (xs[0], roof.attainable(bandwidth, xs[0]) / 1e9), fontsize=6, color="0.4"
        )
    for unit, peak in roof.peaks:
        axes.axhline(peak / 1e9, linewidth=0.6, color="0.7")
        axes.annotate(unit.name, (ends[1], peak / 1e9), fontsize=6, color="0.4", ha="right")
    _draw_points(axes, points)
    return figure


def _predicted_figure(results: Results) -> Figure:
    figure = new_figure(5, 4.6)
    axes = _axes(figure, "predicted against measured", "measured, µs", "predicted, µs")
    points = {
        name: [(m * 1e6, p * 1e6) for p, m in results.predicted(name)]
        for name in results.contenders
    }
    every = [x for pairs in points.values() for pair in pairs for x in pair]
    axes.plot([min(every), max(every)], [min(every), max(every)], color="0.6", linewidth=0.8)
    _draw_points(axes, points)
    return figure


def _draw_points(axes: Any, points: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Draw the points of each contender on logarithmic axes."""
    for name, pairs in points.items():
        if pairs:
            axes.plot(*zip(*pairs, strict=True), "o", markersize=4, label=plain_label(name))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(fontsize=8)
