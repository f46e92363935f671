"""Draw a partition at given sizes: the tiles that run, and which of their instances run in vain.

A panel for every nest that is cut shows the plane of its first two cut axes, or of the one that is
cut and the next; a strip where there is no other. Bodies are blue, tails orange and green, corners
purple: the colours are Okabe and Ito's, which the colour-blind tell apart. Hatching lies over what
runs and is not owned (the instances that ``shift`` repeats, the lanes that ``pad`` fills), dots over
the lanes that are switched off, light stripes over the pieces of a second microkernel. Thick lines
are those between the outer tiles of several levels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcut.core.interpret.run_arguments import given_sizes
from offcut.core.interpret.values import evaluate
from offcut.core.program import Form, Role
from offcut.core.text.printer import format_expr
from offcut.errors import CallError, PartitionError
from offcut.partition.pieces import Piece
from offcut.partition.show.figures import Nest, check_drawable, nest_panels, new_figure, write
from offcut.partition.show.tile_shapes import (
    Area,
    Line,
    TileShape,
    TooManyTiles,
    first,
    minus,
    outline,
    points,
    strips_of,
    tiles,
)
from offcut.partition.strategies.segment_placement import Segment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from offcut.partition.pieces import Partition

_COLOURS = {
    "body": ("#0072B2", "#56B4E9", "#3C90C4", "#A6D5F2"),
    "tail": ("#E69F00", "#009E73", "#F0E442", "#D55E00"),
    "corner": ("#CC79A7", "#8C5A8C", "#E6C3D6", "#5E3A5E"),
}
_STRIPES = ("", "\\\\\\", "---", "|||", "+++")  # by microkernel
_LIGHT = (1.0, 1.0, 1.0, 0.45)  # the colour of stripes
_LINES = 100  # tiles side by side, beyond which the lines between them would hide their colour
_MAX_LABEL_CHARS = 6.0  # ratio of the sides of a panel: a longer domain is drawn out of proportion
_SIDE = 5.0  # width of a domain, in inches


@dataclass(frozen=True, slots=True)
class _Part:
    """A part that is drawn in one colour: tiles of similar pieces.

    run   the points whose instances run, `owned` those of them that count
    inactive  the lanes that do not run
    """

    role: str
    label: str
    microkernel: str | None
    tiles: tuple[TileShape, ...]
    run: Area
    owned: Area
    inactive: Area

    @property
    def count(self) -> int:
        """Return the number of tiles."""
        return sum(tile.count for tile in self.tiles)


def plot(
    partition: Partition,
    path: str | Path | None,
    sizes: Mapping[str, int],
    axes: Sequence[str] | None = None,
) -> Figure:
    """Draw the tiles that run at `sizes`, a panel for every nest that is cut.

    path    where to write a picture, whose format its suffix says; None: nothing is written
    sizes   a value for every size of the program, by the user's names
    axes    the axes down and across, of each nest that has both; None: its first two that are cut,
            or the one that is, and the next

    Raises TargetError without matplotlib, CallError for a size that is missing, unknown, against
    its facts or too large to draw, PartitionError where no axis is cut, or no nest has the axes.
    """
    check_drawable("the partition")
    values = _check_sizes(partition, sizes)
    at = ", ".join(f"{user} = {sizes[user]}" for user, _ in partition.users.sizes)
    nest_list = [Nest(partition, pieces, axes) for pieces in nest_panels(partition)]
    if not any(nest.plane for nest in nest_list):
        raise PartitionError(
            "plot",
            f"cannot draw the axes {', '.join(axes or ()) or '()'}",
            because="a plane has one axis or two, each once, of a nest that is cut",
            help=tuple(
                dict.fromkeys(f"{nest.label} has {', '.join(nest.labels)}" for nest in nest_list)
            ),
        )
    try:
        panels = [panel for nest in nest_list if nest.plane for panel in _panels(nest, values)]
    except TooManyTiles:
        raise CallError(
            "plot",
            f"cannot draw at {at}",
            because="more than 200,000 tiles, or rows of them, have a shape of their own",
            help=("a smaller size shows the same pieces",),
        ) from None
    heights = [panel.height for panel in panels]
    figure = new_figure(_SIDE + 3.2, sum(heights) + 0.3)
    grid = figure.subplots(len(panels), squeeze=False, gridspec_kw={"height_ratios": heights})
    names = [panel.nest.label for panel in panels]
    for panel, place in zip(panels, grid[:, 0], strict=True):
        panel.draw(place, names.count(panel.nest.label) > 1)
    figure.suptitle(f"{partition.loops.name}{at and f' at {at}'}", weight="bold")
    write(figure, path, 'plot("cut.png", n=29)')
    return figure


def _check_sizes(partition: Partition, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes by their names in the loop program, checked."""
    program, names = partition.loops, dict(partition.users.sizes)
    users = {name: user for user, name in names.items()}
    declared = [replace(size, name=users[size.name]) for size in program.sizes]
    sizes = given_sizes("plot", program.name, declared, sizes)
    values = {names[user]: value for user, value in sizes.items()}
    for fact in program.assumptions:
        if not evaluate(fact, values):
            at = ", ".join(f"{user} = {sizes[user]}" for user in names)
            because = f"{program.name} assumes {format_expr(fact)}"
            raise CallError("plot", f"cannot draw at {at}", because=because)
    return values


def _part(
    piece: Piece, plane: Sequence[str], shapes: Sequence[TileShape], tiles_run: Sequence[TileShape]
) -> _Part:
    """Return the part of a piece: the instances in the domain, and those that run; what other parts ran before is unknown here."""
    segments = [segment for axis, segment in piece.segments if axis in plane]
    boxes = strips_of(tile.box for tile in shapes if tile.lanes)
    domain = strips_of(strip for tile in shapes for strip in tile.shape)
    run = strips_of(strip for tile in tiles_run for strip in tile.shape)
    return _Part(
        role=_role(segments),
        label=_describe(piece, segments, len(plane), shapes),
        microkernel=piece.microkernel,
        tiles=tuple(shapes),
        run=run,
        owned=domain,
        inactive=minus(boxes, run),
    )


def _role(segments: Sequence[Segment]) -> str:
    tails = sum(segment.role is Role.TAIL for segment in segments)
    return ("body", "tail", "corner")[min(tails, 2)]


def _describe(
    piece: Piece, segments: Sequence[Segment], axes: int, shapes: Sequence[TileShape]
) -> str:
    """Return a label: role, tile extents at these sizes, form and microkernel."""
    side_extents = [{extent for tile in shapes for extent in tile.extents[k]} for k in (0, 1)]
    extents = " × ".join(_extents(one) for one in side_extents[2 - axes :])
    form = "" if piece.form is Form.FULL else f" {piece.form.value}"
    return f"{_role(segments)} {extents}{form}: {piece.microkernel or 'loops'}"


def _extents(extents: Collection[int]) -> str:
    """Return the extents of tiles as text, largest first."""
    different = sorted(extents, reverse=True)
    if len(different) > 3:
        return f"{different[0]}…{different[-1]}"
    return "/".join(map(str, different))


def _panels(nest: Nest, values: Mapping[str, int]) -> list[_Panel]:
    """Return one panel; two if the nest visits a point twice: to clear it, and to add to it."""
    whole = _Panel(nest, values)
    return [_Panel(one, values) for one in nest.by_update()] if whole.again else [whole]


class _Panel:
    """A panel: one nest at given sizes."""

    def __init__(self, nest: Nest, values: Mapping[str, int]) -> None:
        self.nest = nest
        self.at: dict[str, int] = {}
        for piece in nest.pieces:
            for name, value in first(piece, nest.plane, values).items():
                self.at[name] = min(value, self.at.get(name, value))
        self.again = False  # whether a point is met by pieces that update it in different ways
        parts: dict[str, _Part] = {}
        before: Area = ()
        areas: dict[str | None, Area] = {}
        drawn_shapes: set[tuple[str | None, tuple[TileShape, ...]]] = set()
        for piece in nest.pieces:
            shapes = tuple(tiles(piece, nest.plane, values, self.at))
            tiles_run: Sequence[TileShape] = shapes
            if any(segment.form is Form.PAD for _, segment in piece.segments):
                tiles_run = tiles(piece, nest.plane, values, self.at, wanted_only=False)
            operator = piece.store.reduce
            if not shapes or (operator, shapes) in drawn_shapes:
                continue  # nothing runs, or the same tiles at another place of an axis not drawn
            drawn_shapes.add((operator, shapes))
            part = _part(piece, nest.plane, shapes, tiles_run)
            if any(s.form is Form.SHIFT for axis, s in piece.segments if axis in nest.plane):
                part = replace(part, owned=minus(part.owned, before))
            others = [strip for one, area in areas.items() if one != operator for strip in area]
            self.again = self.again or minus(part.run, others) != part.run
            areas[operator] = strips_of((*areas.get(operator, ()), *part.run))
            before = strips_of((*before, *part.run))
            part_so_far = parts.get(part.label)
            parts[part.label] = part if part_so_far is None else _merge_parts(part_so_far, part)
        self.parts = [part for part in parts.values() if part.owned]
        self.domain = strips_of(strip for part in self.parts for strip in part.owned)
        corners = self.domain or ((0, 0, 0, 0),)
        tops, bottoms, lefts, rights = zip(*corners, strict=True)
        self.frame = (min(tops), max(bottoms)), (min(lefts), max(rights))

    @property
    def height(self) -> float:
        """Return the height of the panel with its texts, in inches: in proportion to its domain, within limits."""
        (top, bottom), (left, right) = self.frame
        ratio = (bottom - top) / (right - left) if right > left else 0.0
        tall = (
            _SIDE * min(max(ratio, 1 / _MAX_LABEL_CHARS), 1.2) if len(self.nest.plane) == 2 else 0.6
        )
        return 0.9 + max(tall, 0.22 * (len(self.parts) + 2))

    def draw(self, axes: Axes, ambiguous: bool) -> None:
        """Put the parts, the domain's outline, the legend and the names of the axes on `axes`."""
        from matplotlib.collections import LineCollection
        from matplotlib.patches import Patch

        colour_counts = dict.fromkeys(_COLOURS, 0)
        stripes = self.stripes()
        legend: list[Patch] = []
        wasted = off = False
        reach = [*self.frame[0], *self.frame[1]]
        total = points(self.domain)
        for part in self.parts:
            colours = _COLOURS[part.role]
            colour = colours[colour_counts[part.role] % len(colours)]
            colour_counts[part.role] += 1
            stripe = stripes[part.microkernel]
            fill: dict[str, Any] = {"facecolor": colour, "edgecolor": _LIGHT, "hatch": stripe}
            self.area(axes, part.owned, **fill, zorder=2)
            idle = minus(part.run, part.owned)
            beyond = minus(idle, self.domain)
            hatched: dict[str, Any] = {"facecolor": "none", "hatch": "////"}
            self.area(axes, minus(idle, beyond), **hatched, edgecolor="white", zorder=4)
            self.area(axes, beyond, **hatched, edgecolor=colour, zorder=4)
            outside = minus(part.inactive, minus(part.inactive, self.domain))
            dotted: dict[str, Any] = {"facecolor": "none", "hatch": "..."}
            self.area(axes, outside, **dotted, edgecolor="white", zorder=4)
            self.area(axes, minus(part.inactive, outside), **dotted, edgecolor=colour, zorder=4)
            self.rule(axes, part)
            wasted, off = wasted or bool(idle), off or bool(part.inactive)
            for top, bottom, left, right in (*part.run, *part.inactive):
                reach = [min(reach[0], top), max(reach[1], bottom), *reach[2:]]
                reach[2:] = [min(reach[2], left), max(reach[3], right)]
            share = 100 * points(part.owned) / total
            legend.append(Patch(**fill, linewidth=0, label=f"{part.label}, {share:.3g} %"))
        marks = {"////": "executed, not owned"} if wasted else {}
        marks |= {"...": "lanes switched off"} if off else {}
        for hatch, label in marks.items():
            legend.append(Patch(fill=False, edgecolor="0.4", hatch=hatch, linewidth=0, label=label))
        lines = outline(self.domain)
        axes.add_collection(LineCollection(lines, colors="black", linewidths=1.6, zorder=6))
        self.scale(axes, reach)
        axes.set_title(self.title(ambiguous), fontsize=9, loc="left")
        if legend:
            self.explain(axes, legend)

    def stripes(self) -> dict[str | None, str]:
        """Return the hatch of each microkernel; the one with most points has none."""
        sizes: dict[str | None, int] = {}
        for part in self.parts:
            sizes[part.microkernel] = sizes.get(part.microkernel, 0) + points(part.owned)
        ordered = sorted(sizes, key=lambda name: -sizes[name])
        return {name: _STRIPES[k % len(_STRIPES)] for k, name in enumerate(ordered)}

    def area(self, axes: Axes, area: Area, **style: Any) -> None:
        from matplotlib.collections import PolyCollection

        corners = [[(x0, y0), (x1, y0), (x1, y1), (x0, y1)] for y0, y1, x0, x1 in area]
        if corners:
            collection = PolyCollection(corners, linewidths=0, antialiaseds=False, **style)
            axes.add_collection(collection)

    def rule(self, axes: Axes, part: _Part) -> None:
        """Draw lines around the tiles if there is room for them."""
        from matplotlib.collections import LineCollection

        frames = (hi - lo for lo, hi in self.frame)
        longest = (max(max(tile.extents[k]) for tile in part.tiles) for k in (0, 1))
        down, across = (f <= _LINES * e for f, e in zip(frames, longest, strict=True))
        pads = part.run != part.owned
        lines = {
            line
            for tile in part.tiles
            for line in outline((tile.box,) if pads and tile.lanes else tile.shape)
            if (down if line[0][1] == line[1][1] else across)
        }
        heavy = {line for tile in part.tiles for line in _outer_lines(tile)}
        for segments, width in ((lines, 0.7), (heavy, 2.2)):
            style: dict[str, Any] = {"colors": "white", "linewidths": width, "zorder": 3}
            axes.add_collection(LineCollection(sorted(segments), **style))

    def scale(self, axes: Axes, reach: Sequence[int]) -> None:
        top, bottom, left, right = reach
        (first_row, last_row), (first_column, last_column) = self.frame
        wide, tall = 0.01 * max(right - left, 1), 0.01 * max(bottom - top, 1)
        axes.set_xlim(left - wide, max(right, left + 1) + wide)
        axes.set_ylim(max(bottom, top + 1) + tall, top - tall)
        axes.set_xticks(_ticks(first_column, last_column))
        axes.set_xlabel(self.nest.shown[-1])
        if len(self.nest.shown) == 2:
            axes.set_yticks(_ticks(first_row, last_row))
            axes.set_ylabel(self.nest.shown[0])
        else:
            axes.set_yticks([])
        for side in axes.spines.values():
            side.set_visible(False)

    def explain(self, axes: Axes, legend: Sequence[Any]) -> None:
        """Draw the legend: each colour shows its number of tiles."""
        from matplotlib.legend_handler import HandlerPatch
        from matplotlib.text import Text

        counts = dict(zip(legend, (_short(part.count) for part in self.parts), strict=False))

        class Counted(HandlerPatch):
            def create_artists(
                self, legend: Any, orig_handle: Any, x: Any, y: Any, w: Any, h: Any, *rest: Any
            ) -> Any:
                artists = list(super().create_artists(legend, orig_handle, x, y, w, h, *rest))
                if orig_handle in counts:
                    text = Text(w / 2 - x, h / 2 - y, counts[orig_handle], fontsize=7)
                    text.set(ha="center", va="center_baseline", transform=rest[-1], color="black")
                    text.set_bbox({"facecolor": "white", "linewidth": 0, "pad": 0.8, "alpha": 0.8})
                    artists.append(text)
                return artists

        axes.legend(
            handles=legend,
            handler_map={type(one): Counted() for one in legend},
            handlelength=4.5,
            handleheight=1.1,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            fontsize=8,
            title="tiles · extents: microkernel, share of the points",
            title_fontsize=8,
            alignment="left",
            frameon=False,
        )

    def title(self, ambiguous: bool) -> str:
        """Return the title: the nest, its ranges, and the share of useful instances."""
        ranges = zip(self.nest.shown, self.frame[2 - len(self.nest.shown) :], strict=True)
        text = f"{self.nest.label}{self.nest.operator if ambiguous else ''} over "
        text += ", ".join(f"{name.split()[0]} in {lo}:{hi}" for name, (lo, hi) in ranges)
        if self.at:
            text += f" at {', '.join(f'{name} = {value}' for name, value in self.at.items())}"
        total, run = points(self.domain), sum(points(part.run) for part in self.parts)
        text += f": {total:,} points"
        return f"{text}, {run:,} run ({run / total:.3g} ×)" if total else text


def _outer_lines(tile: TileShape) -> Iterator[Line]:
    """Yield the sides of a tile that are sides of the larger tile around it."""
    top, bottom, left, right = tile.box
    down, across = tile.outer
    yield from (((left, y), (right, y)) for y in (top, bottom) if down is not None and y in down)
    yield from (
        ((x, top), (x, bottom)) for x in (left, right) if across is not None and x in across
    )


def _merge_parts(one: _Part, other: _Part) -> _Part:
    """Merge two parts that look alike."""
    return replace(
        one,
        tiles=(*one.tiles, *other.tiles),
        run=strips_of((*one.run, *other.run)),
        owned=strips_of((*one.owned, *other.owned)),
        inactive=strips_of((*one.inactive, *other.inactive)),
    )


def _short(count: int) -> str:
    return f"{count:,}" if count < 1_000_000 else f"{count / 1e6:.3g} M"


def _ticks(lo: int, hi: int) -> list[int]:
    """Return round coordinates between the two ends, and the ends."""
    from matplotlib.ticker import MaxNLocator

    between = MaxNLocator(nbins=8 if hi < 10_000 else 5, integer=True).tick_values(
        lo, max(hi, lo + 1)
    )
    room = (0.06 if hi < 10_000 else 0.1) * (hi - lo)
    return sorted({lo, hi, *(int(at) for at in between if lo + room < at < hi - room)})
