"""A nest of a schedule as a program whose tiles are parameters: what is counted of it once holds for every tiling::

    for g in 0:g.count
      for i.tile in 0:i.count
        for j.tile in 0:j.count
          tile i in i.height*i.tile +: i.height, j in g*j.group + j.height*j.tile +: j.height  @cover(fma_float32_avx512)

Trip counts, heights, and how many instances of a masked tile are in the domain are sizes of this program: no user can name one so.

Reuse between nests that share loops: an array that an earlier nest has just touched may still lie in a cache when a later one asks for it.

Softmax, say, computes exp of a row and then divides it by its sum, row by row: the division finds its row where exp has put it. Between
the two, in one iteration of the shared loops, a cache takes up all that both of them, and the nests between them, touch. Where that fits, what both
touch has not been displaced::

    is fetched(array, level) = 0  where an earlier nest touches it, and the footprints from that nest up to this one fit the level
                               1  otherwise

A footprint is that of a whole nest, in one iteration of the loops in common, or in a block of them; an array that several nests touch counts
once, where it is largest. Tiles have no part in it, so it is the same for all ways of a nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce

import numpy as np

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Compare, Expr, Load, Var, substitute, variables, walk
from offcut.core.memo import lazy_property, memoize_method
from offcut.core.program import (
    LANE,
    Alloc,
    Cover,
    For,
    Form,
    Kind,
    Program,
    Role,
    Size,
    Stmt,
    Store,
    Tile,
    TileAxis,
)
from offcut.core.program import walk as statements
from offcut.costmodel.arrays import Array, Calls
from offcut.costmodel.closed.counting import footprints
from offcut.costmodel.machine import Machine
from offcut.costmodel.nests.tile_runs import Shape
from offcut.costmodel.resources import Hardware
from offcut.costmodel.statement_costs import Inside, StatementPrices
from offcut.describe.computation import Computation, Stage, StageAxis, instance, plain_loop
from offcut.polyhedral import coefficient
from offcut.schedule import ResolvedVariant

Loops = tuple[tuple[str, int], ...]
"""Shared loops, outermost first: the axis, and how many of its iterations each nest in them runs at once."""

MANY = 1 << 40
"""More than any trip count or height is."""


def count_parameter(axis: str) -> str:
    """The parameter that says how many tiles there are along an axis."""
    return f"{axis}.count"


def height_parameter(axis: str) -> str:
    """The parameter that says how many instances a tile has along an axis."""
    return f"{axis}.height"


def active_parameter(axis: str) -> str:
    """The parameter that says how many of them are in the domain."""
    return f"{axis}.active"


def group_parameter(axis: str) -> str:
    """The parameter that says how many instances a group of tiles has."""
    return f"{axis}.group"


GROUPS = ".groups"
"""The parameter that says how many groups there are."""

OWNED = (Kind.INPUT, Kind.OUTPUT, Kind.INOUT, Kind.CONSTANT)
"""Arrays that are there before a call or after it: they have no windows."""


@dataclass(frozen=True)
class Parametric:
    """A nest, its tiles as parameters.

    rows    whether sums over rows of memory may run as lanes of themselves
    shapes  what is known of its tiles, by axis that is cut
    counts  how many there are along an axis, where that is known
    shared  loops around that other nests are in, outermost first, each with the iterations that a nest runs in it at once
    """

    computation: Computation
    cut: ResolvedVariant
    rows: bool
    shapes: Mapping[str, Shape]
    counts: Mapping[str, int] = field(default_factory=dict)
    shared: Loops = ()

    def program(self, machine: Machine, width: int) -> Program:
        """The program.

        width  lanes of a vector of float32
        """
        cut, axes = self.cut, {axis.name: axis.extent for axis in self.cut.group[0].axes}
        grouped = next((one.axis for one in cut.cuts if one.group is not None), None)
        parameters, body = self.tile(axes, grouped, machine, width)
        for one in reversed(cut.cuts):
            count: Expr = Var(count_parameter(one.axis))
            if one.axis in self.counts:
                count = ix.const(self.counts[one.axis])
            else:
                parameters.append(count_parameter(one.axis))
            body = (_loop(f"{one.axis}.tile", count, body),)
        for name in reversed(cut.decisions.inner):
            body = (_loop(name, axes[name], body),)
        if grouped is not None:
            parameters += [GROUPS, group_parameter(grouped)]
            body = (_loop(f"{grouped}.g", Var(GROUPS), body),)
        for name in reversed(cut.outer):
            body = (_loop(name, axes[name], body),)
        body = self.in_shared_loops(axes, body)
        sizes = (*self.computation.sizes, *(Size(name, 1, MANY) for name in parameters))
        sizes += tuple(
            Size(active_parameter(axis), 0, shape.height or MANY)
            for axis, shape in self.shapes.items()
        )
        computation = self.computation
        return Program(computation.name, sizes, computation.assumptions, computation.buffers, body)

    def in_shared_loops(self, axes: Mapping[str, Expr], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return the loops around, with windows of what lives between nests in these; in a block the nest runs a loop of its own."""
        windows, blocks = dict[str, tuple[Expr, Expr]](), dict[str, Expr]()
        for name, block in self.shared:
            start: Expr = Var(name)
            if block > 1 and name in axes:
                start = blocks[name] = ix.mul(block, Var(f"{name}.block"))
                end = ix.minimum(ix.add(start, block), axes[name])
                body = (For(name, start, end, body),)
            windows[name] = start, ix.const(block)
        body = emit_windows(self.computation, self.cut.group, windows, body)
        for name, block in reversed(self.shared):
            if name in blocks:
                body = (_loop(f"{name}.block", ix.ceildiv(axes[name], block), body),)
            elif name in axes:
                body = (_loop(name, axes[name], body),)
        return body

    def tile(
        self, axes: Mapping[str, Expr], grouped: str | None, machine: Machine, width: int
    ) -> tuple[list[str], tuple[Stmt, ...]]:
        """The parameters of a tile, and it; loops whose lanes would cost more than they do one by one stand in it."""
        cut, plain = self.cut, (*self.cut.around, *self.cut.outer, *self.cut.decisions.inner)
        parameters, tile_axes, conditions = list[str](), list[TileAxis](), list[Expr]()
        for name, extent in axes.items():
            if name in plain:
                continue
            shape = self.shapes.get(name)
            if shape is None:
                tile_axes.append(TileAxis(name, ix.const(0), extent))
                continue
            height: Expr = Var(height_parameter(name))
            if shape.height is None:
                parameters.append(height_parameter(name))
            else:
                height = ix.const(shape.height)
            start = ix.mul(Var(f"{name}.tile"), height)
            if name == grouped:
                start = ix.add(ix.mul(Var(f"{name}.g"), Var(group_parameter(name))), start)
            tile_axes.append(TileAxis(name, start, height))
            if shape.form is not Form.FULL:
                end = ix.add(start, Var(active_parameter(name)))
                conditions.append(Compare("<", Var(name), end))
        forms = {shape.form for shape in self.shapes.values()} or {Form.FULL}
        form = next(f for f in (Form.GUARD, Form.PAD, Form.MASK, Form.FULL) if f in forms)
        cover = None
        if cut.match is not None and form is not Form.GUARD:
            along = tuple((axis, name) for axis, name in cut.match.axes if name is not None)
            cover = Cover(cut.match.microkernel.name, along)
        body = instance(cut.group, self.around)
        if not cut.cuts and cover is None and tile_axes:
            body, tile_axes = self.one_by_one(body, tile_axes, machine, width)
        where = conjunction(conditions) if conditions else None
        return parameters, (Tile(tuple(tile_axes), body, where, form, Role.WHOLE, cover),)

    def around(self, axis: StageAxis, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The loop of a sum, along lanes where it is over rows of memory."""
        loop, (inside, *_) = plain_loop(axis, body), body
        lanes = self.rows and isinstance(inside, Store) and over_rows(inside, loop.iter)
        return (replace(loop, unit=LANE) if lanes else loop,)

    def one_by_one(
        self, body: tuple[Stmt, ...], axes: list[TileAxis], machine: Machine, width: int
    ) -> tuple[tuple[Stmt, ...], list[TileAxis]]:
        """A tile whose last axis is a loop in it, where a vector along it takes longer than its instances one by one."""
        last = axes[-1].iter
        loops = [one for one in statements(body) if isinstance(one, For)]
        if any(one.unit == LANE for one in loops):
            return body, axes
        stores = [one for one in statements(body) if isinstance(one, Store)]
        inner = loops[-1].iter if loops else ""
        around = loops[-1] if loops else None
        each = [
            sum(
                StatementPrices(machine, lanes).each(
                    store,
                    Inside(lane, inner or ("" if lane else last), frozenset((store.buffer,))),
                    around,
                )
                for store in stores
            )
            / lanes
            for lane, lanes in ((last, width), (None, 1))
        ]
        if each[0] <= each[1]:
            return body, axes
        inside: tuple[Stmt, ...] = body
        for axis in reversed(axes):
            inside = (For(axis.iter, axis.start, ix.add(axis.start, axis.extent), inside),)
        return inside, []


def emit_windows(
    computation: Computation,
    group: Sequence[Stage],
    windows: Mapping[str, tuple[Expr, Expr]],
    body: tuple[Stmt, ...],
) -> tuple[Stmt, ...]:
    """Return `body` with a window for each array that lives between nests.

    windows  of each loop that the nests share, where its iterations begin and how many a nest runs at once
    """
    for name, index in _indices(group):
        buffer = computation.buffer(name)
        if buffer.kind in OWNED or buffer.kind is Kind.PRIVATE:
            continue
        axes = tuple(
            _window(part, extent, windows) for part, extent in zip(index, buffer.shape, strict=True)
        )
        if any(axis[1] != extent for axis, extent in zip(axes, buffer.shape, strict=True)):
            body = (Alloc(name, axes, body),)
    return body


def _window(
    index: Expr, extent: Expr, windows: Mapping[str, tuple[Expr, Expr]]
) -> tuple[Expr, Expr]:
    """Return where the window of an axis begins and its extent: all of the axis, if the index moves with loops of the nest."""
    names = variables(index)
    if not names or not names <= {*windows}:
        return ix.const(0), extent
    if isinstance(index, Var):
        return windows[index.name]
    starts = {name: windows[name][0] for name in names}
    return substitute(index, starts), ix.product(windows[name][1] for name in names)


def _indices(group: Sequence[Stage]) -> Iterable[tuple[str, tuple[Expr, ...]]]:
    """The arrays that stages touch, and where each is first."""
    indices: dict[str, tuple[Expr, ...]] = {}
    for stage in group:
        indices.setdefault(stage.buffer, tuple(Var(axis.name) for axis in stage.axes))
        for node in walk(stage.value):
            if isinstance(node, Load):
                indices.setdefault(node.buffer, node.index)
    return indices.items()


def _loop(name: str, extent: Expr, body: tuple[Stmt, ...]) -> For:
    return For(name, ix.const(0), extent, body)


@lru_cache(1 << 10)
def over_rows(store: Store, axis: str) -> bool:
    """Whether what a sum reads along an axis lies side by side."""
    read = [node for node in walk(store.value) if isinstance(node, Load)]
    steps = [[coefficient(part, axis) for part in node.index] for node in read if node.index]
    return (
        bool(steps)
        and all(not any(s[:-1]) and s[-1] in (0, 1) for s in steps)
        and any(s[-1] == 1 for s in steps)
    )


Earlier = tuple[tuple[str, Loops], ...]
"""Nests that run before another, in order: the first stage of each, and the loops that both are in."""


@dataclass(frozen=True)
class Reuse:
    """Between the nests of one computation."""

    computation: Computation
    hardware: Hardware
    calls: Calls

    @lazy_property
    def groups(self) -> dict[str, tuple[Stage, ...]]:
        """The stages of each nest, by the first of them."""
        return {one[0].buffer: one for one in self.computation.groups}

    @memoize_method
    def fetch_flags(
        self, group: tuple[Stage, ...], arrays: tuple[str, ...], earlier: Earlier
    ) -> Array:
        """Whether the nest of `group` brings an array into a level, 1 or 0: by array, level and call."""
        sizes = np.array([[level.bytes] for level in self.hardware.levels])
        is_fetched = np.ones((len(arrays), len(sizes), self.calls.count))
        for number in reversed(range(len(earlier))):
            _, loops = earlier[number]
            between = [self.footprints(self.groups[name], loops) for name, _ in earlier[number:]]
            fits = _together([*between, self.footprints(group, loops)]) <= sizes
            fits[0] = False
            if not fits.any():
                break
            for place, array in enumerate(arrays):
                if array.partition("#")[0] in between[0]:
                    is_fetched[place] *= ~fits
        return is_fetched

    @memoize_method
    def footprints(self, group: tuple[Stage, ...], loops: Loops) -> dict[str, Array]:
        """The room that each array takes that a nest touches in an iteration of these loops, by level and call."""
        at_once = dict(loops)
        body: tuple[Stmt, ...] = instance(group)
        for axis in reversed(group[0].axes):
            count = axis.extent
            if axis.name in at_once:
                count = ix.minimum(count, at_once[axis.name])
            body = (For(axis.name, ix.const(0), count, body),)
        windows = {name: (ix.const(0), ix.const(count)) for name, count in loops}
        body = emit_windows(self.computation, group, windows, body)
        computation = self.computation
        program = Program(
            computation.name, computation.sizes, computation.assumptions, computation.buffers, body
        )
        sizes_by_array: dict[str, Array] = {}
        for array, room in footprints(program, self.hardware).items():
            name, each = array.partition("#")[0], np.array([self.calls.of(one) for one in room])
            sizes_by_array[name] = sizes_by_array[name] + each if name in sizes_by_array else each
        return sizes_by_array


def _together(nests: Sequence[Mapping[str, Array]]) -> Array:
    """The room that nests take, by level and call: each array once, where it is largest."""
    largest: dict[str, Array] = {}
    for footprint in nests:
        for name, room in footprint.items():
            largest[name] = np.maximum(largest[name], room) if name in largest else room
    return reduce(np.add, largest.values())
