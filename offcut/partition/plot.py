"""A partition drawn at given sizes: its tiles, and which of their instances run in vain.

A panel for every stage that is cut shows the first two of its cut axes, a strip where only one is:
an area for every piece, ruled into tiles. Bodies are blue, tails orange and green, corners purple:
the colours are Okabe and Ito's, which the colour-blind tell apart. Hatching lies over what runs
and is not owned (the instances that ``shift`` repeats, the lanes that ``pad`` fills), dots over the
lanes that ``mask`` and ``guard`` switch off.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcut.core.computation import Computation, Stage, StageAxis
from offcut.core.expr import Expr
from offcut.core.interpreter import evaluate
from offcut.core.printer import format_expr
from offcut.core.program import Form, Role
from offcut.errors import CallError, PartitionError, TargetError
from offcut.partition.strategies import ITER, Segment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from offcut.partition.pieces import Partition, Piece

_COLOURS = {
    "body": ("#0072B2", "#56B4E9", "#3C90C4", "#A6D5F2"),
    "tail": ("#E69F00", "#009E73", "#F0E442", "#D55E00"),
    "corner": ("#CC79A7", "#8C5A8C", "#E6C3D6", "#5E3A5E"),
}
_LINES = 100  # tiles along an axis, beyond which the lines between them would hide their colour
_LONGEST = 6.0  # ratio of the sides of a panel: a longer domain is drawn out of proportion
_SIDE = 5.0  # width of a domain, in inches

Interval = tuple[int, int]
Box = tuple[Interval, Interval]


@dataclass(frozen=True, slots=True)
class _Row:
    """The tiles of a segment along its axis, which follow one another; intervals are half open.

    edges     where tiles begin, and where the last one ends
    executed  what runs
    owned     what they answer for
    """

    edges: tuple[int, ...]
    executed: Interval
    owned: Interval

    @property
    def tiles(self) -> Interval:
        """From the first tile to the last, lanes that are off included."""
        return self.edges[0], self.edges[-1]

    @property
    def extents(self) -> str:
        """The extents of the tiles, greatest first."""
        found = {hi - lo for lo, hi in zip(self.edges, self.edges[1:], strict=False)}
        return "/".join(map(str, sorted(found, reverse=True)))


@dataclass(frozen=True, slots=True)
class _Part:
    """What is drawn in one colour: a segment on each axis drawn, of one piece or several.

    rows       one for each axis drawn
    instances  owned, over all axes
    """

    role: str
    form: Form
    guarded: bool
    microkernel: str | None
    rows: tuple[_Row, ...]
    instances: int


def plot(partition: Partition, path: str | Path | None, sizes: Mapping[str, int]) -> Figure:
    """Draw the tiles of the first two cut axes of every cut stage at `sizes`.

    path    where to write a picture, whose format its suffix says; None: nothing is written
    sizes   a value for every size of the computation, by the user's names

    Raises TargetError without matplotlib, CallError for a size that is missing, unknown or against
    its facts, PartitionError where no axis is cut.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise TargetError(
            "plot",
            "cannot draw the partition",
            because="matplotlib is not installed",
            help=('pip install "offcut[plot]"',),
        )
    values = _checked(partition.computation, sizes)
    stages = _cut_stages(partition)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pieces = {stage: [p for p in partition.pieces if p.stage == stage] for stage in stages}
    panels = [_Panel(stage, pieces[stage], values) for stage in stages]
    heights = [panel.height for panel in panels]
    figure = Figure(figsize=(_SIDE + 2.5, sum(heights) + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(panels), squeeze=False, gridspec_kw={"height_ratios": heights})
    for panel, axes in zip(panels, grid[:, 0], strict=True):
        panel.draw(axes)
    at = ", ".join(f"{user} = {sizes[user]}" for user, _ in partition.computation.size_names)
    figure.suptitle(f"{partition.computation.name}{at and f' at {at}'}", weight="bold")
    if path is not None:
        figure.savefig(Path(path), dpi=150)
    return figure


def _checked(computation: Computation, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes by their names in loop programs."""
    names = dict(computation.size_names)
    facts = dict(zip(names, computation.sizes, strict=True))
    for user in sizes:
        if user not in names:
            raise CallError(
                "plot",
                f"cannot take a size {user}",
                because=f"{computation.name} has no such size",
                help=(f"sizes: {', '.join(names) or 'none'}",),
            )
    missing = [user for user in names if user not in sizes]
    if missing:
        example = ", ".join(f"{user}={max(facts[user].min, 1)}" for user in names)
        raise CallError(
            "plot",
            f"cannot draw without {', '.join(missing)}",
            because="a picture is of one value for every size",
            help=(f"plot({example})",),
        )
    for user, size in facts.items():
        if not size.min <= sizes[user] <= size.max or sizes[user] % size.multiple_of:
            multiple = f", a multiple of {size.multiple_of}" if size.multiple_of != 1 else ""
            because = f"{user} is in {size.min}…{size.max}{multiple}"
            raise CallError("plot", f"cannot draw at {user} = {sizes[user]}", because=because)
    values = {names[user]: value for user, value in sizes.items()}
    for fact in computation.assumptions:
        if not evaluate(fact, values):
            at = ", ".join(f"{user} = {sizes[user]}" for user in names)
            because = f"{computation.name} assumes {format_expr(fact)}"
            raise CallError("plot", f"cannot draw at {at}", because=because)
    return values


def _cut_stages(partition: Partition) -> list[Stage]:
    stages = list(dict.fromkeys(piece.stage for piece in partition.pieces if piece.segments))
    if not stages:
        raise PartitionError(
            "plot",
            "cannot draw the partition",
            because="no axis of it is cut",
            help=('tile={"i": 14}',),
        )
    return stages


def _row(segment: Segment, values: Mapping[str, int]) -> _Row | None:
    """The tiles of `segment` of an axis that is not empty; None where it has none."""
    known = dict(values)
    for let in segment.lets:
        known[let.name] = int(evaluate(let.value, known))
    if segment.when is not None and not evaluate(segment.when, known):
        return None

    def at(expr: Expr, tile: int = 0) -> int:
        return int(evaluate(expr, {**known, ITER.name: tile}))

    owned = at(segment.owned[0]), at(segment.owned[1])
    count = 1 if segment.count is None else at(segment.count)
    if owned[0] >= owned[1] or count < 1:
        return None
    starts = [at(segment.start, tile) for tile in range(count)]
    edges = (*starts, starts[-1] + (segment.guarded or at(segment.height)))
    runs_whole = segment.form in (Form.SHIFT, Form.PAD)
    return _Row(edges, (edges[0], edges[-1]) if runs_whole else owned, owned)


def _role(segments: Sequence[Segment]) -> str:
    tails = sum(segment.role is Role.TAIL for segment in segments)
    return ("body", "tail", "corner")[min(tails, 2)]


def _length(interval: Interval) -> int:
    return interval[1] - interval[0]


def _outside(box: Box, inner: Box) -> Iterator[Box]:
    """`box` without `inner`, which lies in it, as disjoint boxes."""
    (y0, y1), (x0, x1) = box
    (b0, b1), (a0, a1) = inner
    sides = ((y0, b0), (x0, x1)), ((b1, y1), (x0, x1)), ((b0, b1), (x0, a0)), ((b0, b1), (a1, x1))
    yield from (side for side in sides if all(lo < hi for lo, hi in side))


class _Panel:
    """One stage at given sizes."""

    def __init__(self, stage: Stage, pieces: Sequence[Piece], values: Mapping[str, int]) -> None:
        own = {axis.name: axis for axis in (*stage.axes, *stage.reduce_axes)}
        extents = {name: int(evaluate(axis.extent, values)) for name, axis in own.items()}
        cut = list(dict.fromkeys(name for piece in pieces for name, _ in piece.segments))[:2]
        self.stage = stage
        self.axes: list[StageAxis] = [own[name] for name in cut]
        self.extents = [extents[name] for name in cut]
        self.total, self.executed = math.prod(extents.values()), 0
        parts: dict[tuple[Segment, ...], _Part] = {}
        for piece in pieces:
            rows = {
                name: _row(segment, values) if extents[name] > 0 else None
                for name, segment in piece.segments
            }
            found = {name: row for name, row in rows.items() if row is not None}
            if len(found) < len(rows):
                continue
            rest = math.prod(extent for name, extent in extents.items() if name not in rows)
            owned = rest * math.prod(_length(row.owned) for row in found.values())
            self.executed += rest * math.prod(_length(row.executed) for row in found.values())
            drawn = tuple(segment for name, segment in piece.segments if name in cut)
            before = parts[drawn].instances if drawn in parts else 0
            parts[drawn] = _Part(
                role=_role(drawn),
                form=piece.form,
                guarded=any(segment.guarded for segment in drawn),
                microkernel=piece.microkernel,
                rows=tuple(found[name] for name in cut),
                instances=before + owned,
            )
        self.parts = [part for part in parts.values() if part.instances]

    def boxes(self, part: _Part) -> tuple[Box, Box, Box]:
        """Tiles, executed and owned, down and across the picture; a strip is one high."""
        rows = part.rows if len(part.rows) == 2 else (_Row((0, 1), (0, 1), (0, 1)), *part.rows)
        down, across = rows
        return (
            (down.tiles, across.tiles),
            (down.executed, across.executed),
            (down.owned, across.owned),
        )

    @property
    def frame(self) -> tuple[int, int]:
        """How far down and across the domain goes."""
        down, across = self.extents if len(self.extents) == 2 else (1, *self.extents)
        return down, across

    @property
    def height(self) -> float:
        """Of the panel with its words, in inches: as its domain is shaped, within reason."""
        words = 0.9 + 0.22 * (len(self.parts) + 1)
        down, across = self.frame
        if len(self.extents) == 1:
            return 0.6 + words
        ratio = down / across if down and across else 0.0
        return _SIDE * min(max(ratio, 1 / _LONGEST), 1.2) + words

    def draw(self, axes: Axes) -> None:
        """Put the parts, the domain's outline, the legend and the names of the axes on `axes`."""
        from matplotlib.patches import Patch, Rectangle

        used = dict.fromkeys(_COLOURS, 0)
        legend: list[Patch] = []
        reach = list(self.frame)
        wasted = off = False
        for part in self.parts:
            colours = _COLOURS[part.role]
            colour = colours[used[part.role] % len(colours)]
            used[part.role] += 1
            tiles, executed, owned = self.boxes(part)
            reach = [max(far, hi) for far, (_, hi) in zip(reach, tiles, strict=True)]
            self.area(axes, owned, facecolor=colour, zorder=2)
            for box in _outside(executed, owned):
                wasted = True
                self.area(axes, box, fill=False, edgecolor=colour, hatch="////", zorder=4)
                self.area(
                    axes, self.inside(box), fill=False, edgecolor="white", hatch="////", zorder=4
                )
            for box in _outside(tiles, executed):
                off = True
                self.area(axes, box, fill=False, edgecolor=colour, hatch="...", zorder=4)
            self.rule(axes, part, executed)
            share = 100 * part.instances / self.total
            legend.append(Patch(facecolor=colour, label=f"{self.describe(part)}, {share:.3g} %"))
        marks = {"////": "executed, not owned"} if wasted else {}
        marks |= {"...": "lanes switched off"} if off else {}
        for hatch, label in marks.items():
            legend.append(Patch(fill=False, edgecolor="0.4", hatch=hatch, linewidth=0, label=label))
        down, across = self.frame
        axes.add_patch(
            Rectangle((0, 0), across, down, fill=False, edgecolor="black", linewidth=1.6, zorder=6)
        )
        self.scale(axes, reach)
        axes.set_title(self.title, fontsize=10, loc="left")
        if legend:
            axes.legend(
                handles=legend,
                loc="upper left",
                bbox_to_anchor=(1.01, 1.0),
                fontsize=8,
                frameon=False,
            )

    def area(self, axes: Axes, box: Box, **style: Any) -> None:
        from matplotlib.patches import Rectangle

        (top, bottom), (left, right) = box
        if top < bottom and left < right:
            axes.add_patch(Rectangle((left, top), right - left, bottom - top, linewidth=0, **style))

    def inside(self, box: Box) -> Box:
        """`box` within the domain; coloured hatching would not show on the colours there."""
        down, across = self.frame
        (top, bottom), (left, right) = box
        return (top, min(bottom, down)), (left, min(right, across))

    def rule(self, axes: Axes, part: _Part, executed: Box) -> None:
        """Lines between the tiles, and around them all."""
        (top, bottom), (left, right) = executed
        style: dict[str, Any] = {"colors": "white", "linewidths": 0.7, "zorder": 3}
        down, across = part.rows if len(part.rows) == 2 else (None, part.rows[0])
        if down is not None and len(down.edges) <= _LINES:
            axes.hlines([y for y in down.edges if top <= y <= bottom], left, right, **style)
        if len(across.edges) <= _LINES:
            axes.vlines([x for x in across.edges if left <= x <= right], top, bottom, **style)

    def scale(self, axes: Axes, reach: Sequence[int]) -> None:
        from matplotlib.ticker import MaxNLocator

        down, across = reach
        for ticked in (axes.xaxis, axes.yaxis):
            ticked.set_major_locator(MaxNLocator(nbins="auto", integer=True))
        axes.set_xlim(-0.01 * across, 1.01 * max(across, 1))
        axes.set_ylim(1.01 * max(down, 1), -0.01 * down)
        names = [self.name(axis) for axis in self.axes]
        axes.set_xlabel(names[-1])
        if len(names) == 2:
            axes.set_ylabel(names[0])
        else:
            axes.set_yticks([])
        for side in axes.spines.values():
            side.set_visible(False)

    def name(self, axis: StageAxis) -> str:
        """The axis as the user calls it."""
        return f"{axis.label} (reduced)" if axis in self.stage.reduce_axes else axis.label

    def describe(self, part: _Part) -> str:
        """Role, tile extents at these sizes, form and microkernel."""
        extents = " × ".join(row.extents for row in part.rows)
        form = "" if part.form is Form.FULL else f" {part.form.value}"
        form += " guard" if part.guarded else ""
        return f"{part.role} {extents}{form}: {part.microkernel or 'loops'}"

    @property
    def title(self) -> str:
        """The stage, and how much of what runs is needed."""
        text = f"{self.stage.label}: {self.total} instances"
        if self.total:
            text += f", {self.executed} executed ({self.executed / self.total:.3g} ×)"
        return text
