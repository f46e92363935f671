"""The loop nest of a cut group: segments of the cut axes around tiles, and the pieces they make.

From the outside in: loops over the axes that are not cut, cache groups of columns, segments of each
cut axis in turn, then a `Tile` whose body initialises, reduces, and runs the stages that follow at
the same point. The axes of a stage are parallel, so their order is free; a reduction stays inside
its tile and runs in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from offcut.core import index as ix
from offcut.core.computation import Names, Stage, StageAxis
from offcut.core.conditions import all_of
from offcut.core.dtypes import identity
from offcut.core.expr import Const, Expr, Select, Var, dtype_of
from offcut.core.program import For, Form, If, Role, Stmt, Store, Tile, TileAxis
from offcut.errors import InternalError
from offcut.partition.legality import check_few
from offcut.partition.placing import Segment, both
from offcut.partition.segments import loops
from offcut.partition.strategies import LADDER, Strategy, segments


@dataclass(frozen=True, slots=True)
class AxisCut:
    """How one axis is cut.

    tile       the largest tile, in iterations
    heights    the tile sizes there are, for `ladder`; None: those that the strategy says
    by_height  instead, for columns: tile and heights by the height of the row tile around
    group      tiles are visited in groups of this many iterations, outermost; a multiple of every
               tile; None: no groups
    """

    axis: str
    strategy: Strategy
    tile: int
    heights: tuple[int, ...] | None = None
    by_height: tuple[tuple[tuple[int, int], int, tuple[int, ...]], ...] = ()
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """One combination of segments: what becomes a `Piece`.

    segments    (axis, segment) of the cut spatial axes, in nest order
    microkernel the name of the one that covers its tiles
    """

    segments: tuple[tuple[str, Segment], ...]
    microkernel: str | None


UNBOUNDED = (0, 2**31)  # the heights of an axis that lies inside the tile with its whole extent

# heights (inclusive) of a tile by axis, axes with lanes that are off -> the name of the microkernel that covers it, or None
Cover = Callable[[Mapping[str, tuple[int, int]], frozenset[str]], str | None]


@dataclass(frozen=True, slots=True)
class Nest:
    """A cut group: its statements, its regions, and the tiles that run each region."""

    body: tuple[Stmt, ...]
    regions: tuple[Region, ...]
    tiles: Mapping[Region, Sequence[Tile]]


def nest(
    group: Sequence[Stage],
    cuts: Sequence[AxisCut],
    reduce_cuts: Sequence[AxisCut],
    outer: Sequence[str],
    cover: Cover,
    names: Names,
    around: Sequence[str] = (),
    inner: Sequence[str] = (),
) -> Nest:
    """The nest of `group` with `cuts` in loop order.

    outer   axes that get a plain loop each, outermost first; the other axes that are not cut
            lie inside the tile with their whole extent
    around  axes that loops around the nest run through
    inner   axes that get a plain loop inside the cache groups, so that a group stays near meanwhile
    """
    loops = frozenset((*outer, *inner, *around))
    return _Builder(group, cuts, reduce_cuts, cover, names, loops, inner).build(outer)


@dataclass(frozen=True)
class _At:
    """Where in the nest the builder is: the tile so far."""

    axes: tuple[TileAxis, ...] = ()
    parts: tuple[tuple[str, Segment], ...] = ()
    where: tuple[Expr, ...] = ()
    heights: tuple[tuple[str, tuple[int, int]], ...] = ()


@dataclass(frozen=True, slots=True)
class _Window:
    """A cache group of an axis: where it starts, how long it is, and which segment of groups it is."""

    start: Expr
    extent: Expr
    groups: Segment

    def whole(self, segment: Segment) -> Segment:
        """`segment` of one group, as what it owns of the axis over all groups."""
        lo, hi = segment.owned
        start, count = segment.start, segment.count
        if self.groups.count is None:
            owned = (ix.add(self.groups.start, lo), ix.add(self.groups.start, hi))
            start = ix.add(self.groups.start, start)
        elif (ix.literal(lo), hi) == (0, self.extent):
            owned = self.groups.owned
            count = ix.floordiv(owned[1], segment.height)
        else:
            raise InternalError("a cache group that is no multiple of its tiles")
        when = segment.when
        if self.groups.when is not None:
            when = both(when, self.groups.when)
        return replace(segment, start=start, count=count, owned=owned, when=when)


class _Builder:
    def __init__(
        self,
        group: Sequence[Stage],
        cuts: Sequence[AxisCut],
        reduce_cuts: Sequence[AxisCut],
        cover: Cover,
        names: Names,
        outer: frozenset[str],
        inner: Sequence[str],
    ) -> None:
        self.group, self.cuts, self.cover, self.names = group, cuts, cover, names
        self.outer, self.inner = outer, inner
        self.reduce_cuts = {cut.axis: cut for cut in reduce_cuts}
        self.extents = {a.name: a.extent for a in (*group[0].axes, *group[0].reduce_axes)}
        self.regions: dict[Region, list[Tile]] = {}
        labels = {axis.name: axis.label for axis in (*group[0].axes, *group[0].reduce_axes)}
        self.labels = [labels[cut.axis] for cut in (*cuts, *reduce_cuts)]
        self.tiles = 0
        self.parts = prod(
            len(segments(cut.strategy.stepped(cut.heights), self.extents[cut.axis], cut.tile))
            for cut in reduce_cuts
        )

    def build(self, outer: Sequence[str]) -> Nest:
        body = self.looped(outer, self.grouped())
        return Nest(body, tuple(self.regions), self.regions)

    def grouped(self) -> tuple[Stmt, ...]:
        """Cache groups around everything, for the one cut that asks for them."""
        for position, cut in enumerate(self.cuts):
            extent = self.extents[cut.axis]
            size = ix.literal(extent)
            if cut.group is None or (size is not None and size <= cut.group):
                continue
            body: tuple[Stmt, ...] = ()
            for segment in segments(LADDER, extent, cut.group):

                def inside(
                    start: Expr, height: Expr, position: int = position, of: Segment = segment
                ) -> tuple[Stmt, ...]:
                    window = {position: _Window(start, height, of)}
                    return self.looped(self.inner, self.level(0, _At(), window))

                body += loops(segment, f"{cut.axis}_group", self.names, inside)
            return body
        return self.looped(self.inner, self.level(0, _At(), {}))

    def looped(self, axes: Sequence[str], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        for axis in reversed(axes):
            body = (For(axis, ix.const(0), self.extents[axis], body),)
        return body

    def level(self, depth: int, at: _At, windows: Mapping[int, _Window]) -> tuple[Stmt, ...]:
        """The cut at `depth` and all inside it; a window limits an axis to a cache group."""
        if depth == len(self.cuts):
            return self.tile(at)
        cut = self.cuts[depth]
        if not cut.by_height:
            return self.segmented(depth, at, windows, cut)
        row, (low, high) = at.heights[-1]
        height = next(axis.extent for axis in at.axes if axis.iter == row)
        body: tuple[Stmt, ...] = ()
        classes = [c for c in cut.by_height if c[0][0] <= high and low <= c[0][1]]
        for (first, last), tile, heights in reversed(classes):
            bounds = (max(first, low), min(last, high))
            own = replace(cut, tile=tile, heights=heights, by_height=())
            limited = replace(
                at,
                heights=(*at.heights[:-1], (row, bounds)),
                parts=(*at.parts[:-1], (row, _of_heights(at.parts[-1][1], *bounds))),
            )
            inner = self.segmented(depth, limited, windows, own)
            condition = ix.compare("<=", height, last)
            if isinstance(condition, Const):
                body = inner if condition.value else body
            else:
                body = (If(condition, inner, body),) if body else inner
        return body

    def segmented(
        self,
        depth: int,
        at: _At,
        windows: Mapping[int, _Window],
        cut: AxisCut,
    ) -> tuple[Stmt, ...]:
        body: tuple[Stmt, ...] = ()
        window = windows.get(depth)
        base = ix.const(0) if window is None else window.start
        extent = self.extents[cut.axis] if window is None else window.extent
        for segment in segments(cut.strategy.stepped(cut.heights), extent, cut.tile):
            part = segment if window is None else window.whole(segment)

            def inside(
                start: Expr, height: Expr, segment: Segment = segment, part: Segment = part
            ) -> tuple[Stmt, ...]:
                start = ix.add(base, start)
                where = at.where
                if segment.predicate and segment.guarded is None:
                    limit = ix.add(base, segment.owned[1])
                    where = (*where, ix.compare("<", Var(cut.axis), limit))
                inner = _At(
                    (*at.axes, TileAxis(cut.axis, start, height)),
                    (*at.parts, (cut.axis, part)),
                    where,
                    (*at.heights, (cut.axis, segment.heights)),
                )
                return self.level(depth + 1, inner, windows)

            body += loops(segment, cut.axis, self.names, inside)
        return body

    def tile(self, at: _At) -> tuple[Stmt, ...]:
        self.tiles += self.parts
        check_few(self.labels, self.tiles)
        covered = {axis.iter for axis in at.axes}
        whole = tuple(
            TileAxis(axis.name, ix.const(0), axis.extent)
            for axis in self.group[0].axes
            if axis.name not in covered and axis.name not in self.outer
        )
        order = {axis.name: k for k, axis in enumerate(self.group[0].axes)}
        axes = tuple(sorted((*at.axes, *whole), key=lambda axis: order[axis.iter]))
        roles = {segment.role for _, segment in at.parts}
        forms = {segment.form for _, segment in at.parts}
        form = next((f for f in (Form.SHIFT, Form.PAD, Form.MASK) if f in forms), Form.FULL)
        heights = dict(at.heights) | {axis.iter: UNBOUNDED for axis in whole}
        masked = frozenset(axis for axis, segment in at.parts if segment.form is Form.MASK)
        microkernel = self.cover(heights, masked)
        where = None
        if at.where:
            where = all_of(at.where)
        role = Role.TAIL if Role.TAIL in roles else Role.BODY if roles else Role.WHOLE
        made = Tile(axes, self.instances(), where, form, role, microkernel)
        self.regions.setdefault(Region(at.parts, microkernel), []).append(made)
        return (made,)

    def instances(self) -> tuple[Stmt, ...]:
        """What each instance of a tile runs: initialise, reduce, and the stages that follow."""
        body: tuple[Stmt, ...] = ()
        for stage in self.group:
            point = tuple(Var(axis.name) for axis in stage.axes)
            if stage.reducer is None:
                body += (Store(stage.buffer, point, stage.value),)
                continue
            update = Store(stage.buffer, point, stage.value, stage.reducer)
            body += (
                Store(stage.buffer, point, stage.start),
                *self.reduction(stage.reduce_axes, update),
            )
        return body

    def reduction(self, axes: Sequence[StageAxis], update: Store) -> tuple[Stmt, ...]:
        if not axes:
            return (update,)
        axis, rest = axes[0], axes[1:]
        cut = self.reduce_cuts.get(axis.name)
        if cut is None:
            return (For(axis.name, ix.const(0), axis.extent, self.reduction(rest, update)),)
        body: tuple[Stmt, ...] = ()
        for segment in segments(cut.strategy.stepped(cut.heights), axis.extent, cut.tile):

            def inside(start: Expr, height: Expr, segment: Segment = segment) -> tuple[Stmt, ...]:
                end, term = ix.add(start, height), update
                if segment.form is Form.MASK:
                    end = ix.minimum(end, axis.extent)
                if segment.form is Form.PAD:
                    term = _neutral_outside(update, ix.compare("<", Var(axis.name), axis.extent))
                return (For(axis.name, start, end, self.reduction(rest, term), segment.role),)

            body += loops(segment, axis.name, self.names, inside)
        return body


def _of_heights(segment: Segment, low: int, high: int) -> Segment:
    """`segment`, where the height of its tiles lies in ``low…high``."""
    if segment.heights == (low, high):
        return segment
    when = segment.when
    for op, limit, all_are in (
        (">=", low, segment.heights[0] >= low),
        ("<=", high, segment.heights[1] <= high),
    ):
        if not all_are:
            when = both(when, ix.compare(op, segment.height, limit))
    return replace(segment, heights=(low, high), when=when)


def _neutral_outside(update: Store, inside: Expr) -> Store:
    """`update` with its term masked: -0.0 leaves every float sum as it is, also -0.0."""
    dtype = dtype_of(update.value)
    assert update.reduce is not None
    nothing = Const(identity(update.reduce, dtype), dtype)
    return replace(update, value=Select(inside, update.value, nothing))
