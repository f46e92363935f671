"""The loops of a nest on the chip: tiles in main memory's order, copies in windows, operations on words.

::

    for y_tile in …                      a loop for each axis that is cut, in the order of the schedule
      alloc S[tile]                      accumulators
        tile …: S = 0
        for c_tile in …                  terms
          alloc X_in[window]             a copy stands in the innermost loop that moves it
            tile …: X_in = X
            tile …: S += …
        alloc Y_1[tile]
          tile …: Y_1 = S // 64
          tile …: Y = int8(Y_1)

The same nest is written in forms between what was described and this, each a small step from the one
before, so that they are proved equal one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce

from offcut.backends.accelerator.isa import Place
from offcut.backends.accelerator.planning.elementary import Operations
from offcut.backends.accelerator.planning.staging import Staged
from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Var, rewrite, variables
from offcut.core.program import (
    Alloc,
    Buffer,
    Cover,
    For,
    Kind,
    Stmt,
    Store,
    Tile,
    TileAxis,
    map_body,
)
from offcut.describe.computation import Names, StageAxis

Range = tuple[Expr, Expr]
"""Where it starts, and how far it reaches."""
CoverOf = Callable[[Store], Cover | None]
"""The microkernel that runs a statement on words."""


class Level(Enum):
    """How far a nest is on the way to the chip."""

    ARRAYS = "arrays"  # each operation over whole arrays, one after the other
    TILES = "tiles"  # each operation over a tile
    WINDOWS = "windows"  # copies and accumulators in windows


@dataclass(frozen=True, slots=True)
class Tiling:
    """What is decided of the loops of a nest.

    tiles  (axis, iterations) of those that are cut
    order  of the loops over tiles, outermost first
    depth  (axis, windows): so many windows, which iterations take in turn, of all that lies in the loop over the tiles of
           an axis; None: of everything one
    """

    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    depth: tuple[str, int] | None = None

    def windows(self, level: int) -> int:
        """Return how many windows there are of what lies in the first `level` loops."""
        axis, count = self.depth or ("", 1)
        return count if axis in self.order[:level] else 1


class Loops:
    """The statements of one nest, form by form."""

    def __init__(
        self,
        made: Operations,
        tiling: Tiling,
        scopes: Mapping[Place, str],
        cover: CoverOf,
        names: Names,
    ) -> None:
        self.made, self.tiling, self.scopes, self.cover = made, tiling, scopes, cover
        self.extents = {axis.name: axis.extent for axis in (*made.axes, *made.terms)}
        self.tiles = dict(tiling.tiles)
        self.names = names
        terms = {axis.name for axis in made.terms}
        self.outer = sum(axis not in terms for axis in tiling.order)
        self.heads: dict[str, str] = {}
        self.ranges = {name: self.range(name) for name in self.extents}
        self.laid = {c.name: names.fresh(f"{c.name}_laid") for c in made.copies if c.by_host}

    def range(self, axis: str) -> Range:
        """The part of an axis that a tile has."""
        extent = self.extents[axis]
        size = self.tiles.get(axis)
        if size is None:
            return ix.const(0), extent
        if size == 1:
            self.heads[axis] = axis
            return Var(axis), ix.const(1)
        head = self.heads[axis] = self.names.fresh(f"{axis}_tile")
        start = ix.mul(size, Var(head))
        known = ix.literal_value(extent)
        if known is not None and known % size == 0:
            return start, ix.const(size)
        return start, ix.minimum(ix.const(size), ix.sub(extent, start))

    def buffers(self, form: Level) -> tuple[Buffer, ...]:
        """What the nest needs beside the arrays that cross the call."""
        scoped = self.scopes if form is Level.WINDOWS else {}
        place = scoped.get(Place.ACCUMULATORS)
        own = [Buffer(b.name, b.dtype, b.shape, Kind.LOCAL, None, place) for b in self.made.buffers]
        for copy in self.made.copies if form is Level.WINDOWS else ():
            shape = tuple(axis.extent for axis in copy.axes)
            dtype = copy.element.load.dtype
            if copy.by_host:
                own.append(Buffer(self.laid[copy.name], dtype, shape, Kind.LOCAL))
            own.append(Buffer(copy.name, dtype, shape, Kind.LOCAL, None, scoped.get(copy.place)))
        return tuple(own)

    def statements(self, form: Level) -> tuple[Stmt, ...]:
        """The nest in one of its forms."""
        match form:
            case Level.ARRAYS:
                return self.direct(self.arrays())
            case Level.TILES:
                return self.direct(self.around(self.made.axes, self.tiled()))
            case Level.WINDOWS:
                host = (c for c in self.made.copies if c.by_host)
                laid = (s for c in host for s in self.copied_whole(c, self.laid[c.name]))
                return (*laid, *self.windows())

    def direct(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """`body` with what was copied read where it is."""
        copies = {copy.name: copy for copy in self.made.copies}

        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Load) and node.buffer in copies:
                return copies[node.buffer].origin.value
            return None

        return map_body(body, lambda expr: rewrite(expr, rule))

    def copied_whole(self, copy: Staged, name: str) -> tuple[Stmt, ...]:
        """A copy of all that there is."""
        return over(copy.axes, (Store(name, copy.point, copy.element.value),))

    def arrays(self) -> tuple[Stmt, ...]:
        """Operations on whole arrays."""
        made = self.made
        body: tuple[Stmt, ...] = ()
        if made.lead is not None:
            start, update = made.lead
            body = over(made.axes, (start, *over(made.terms, (update,))))
        return body + tuple(s for step in made.steps for s in over(made.axes, (step,)))

    def tiled(self) -> tuple[Stmt, ...]:
        """Each operation over a tile."""
        made = self.made
        body: tuple[Stmt, ...] = ()
        if made.lead is not None:
            start, update = made.lead
            sums = self.around(made.terms, self.operation(update, made.terms))
            body = (*self.operation(start), *sums)
        return body + tuple(s for step in made.steps for s in self.operation(step))

    def operation(self, store: Store, terms: Sequence[StageAxis] = ()) -> tuple[Stmt, ...]:
        """One statement over a tile: the lanes' axes last, sums inside of the tile."""
        roles = self.made.roles
        last = [axis for axis in (roles.rows, roles.columns) if axis is not None]
        names = [a.name for a in self.made.axes if self.heads.get(a.name) != a.name]
        names.sort(key=lambda name: last.index(name) if name in last else -1)
        inner: tuple[Stmt, ...] = (store,)
        order = sorted(terms, key=lambda axis: axis.name == roles.depth)
        for axis in reversed(order):
            start, extent = self.ranges[axis.name]
            if self.heads.get(axis.name) != axis.name:
                inner = (For(axis.name, start, ix.add(start, extent), inner),)
        axes = tuple(TileAxis(name, *self.ranges[name]) for name in names)
        return (Tile(axes, inner, cover=self.cover(store)),)

    def windows(self) -> tuple[Stmt, ...]:
        """The nest as it runs on the chip."""
        terms = {axis.name for axis in self.made.terms}
        outer = [axis for axis in self.tiling.order if axis not in terms]
        depth = {copy.name: self.depth_of(copy) for copy in self.made.copies}
        body = self.inside([c for c in self.made.copies if depth[c.name] > len(outer)])
        for level in range(len(outer), -1, -1):
            body = self.held(body, [c for c in self.made.copies if depth[c.name] == level])
            if level:
                body = self.loop(outer[level - 1], body)
        return body

    def moving(self, copy: Staged) -> list[str]:
        """The loops over tiles that move the window of a copy, in their order."""
        used = {name for part in copy.index for name in variables(part)}
        return [axis for axis in self.tiling.order if axis in used]

    def depth_of(self, copy: Staged) -> int:
        """How many loops over tiles a copy stands in."""
        moving = self.moving(copy)
        return max((self.tiling.order.index(axis) + 1 for axis in moving), default=0)

    def inside(self, copies: Sequence[Staged]) -> tuple[Stmt, ...]:
        """What a tile of results takes: accumulators, terms, operations, the store."""
        made = self.made
        body: tuple[Stmt, ...] = ()
        for step in reversed(made.steps):
            body = (*self.operation(step), *body)
            body = self.allocated(step.buffer, body)
        if made.lead is None:
            return body
        start, update = made.lead
        sums = self.around(made.terms, self.operation(update, made.terms), copies)
        return self.allocated(start.buffer, (*self.operation(start), *sums, *body))

    def allocated(self, buffer: str, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """`body` where accumulators hold a tile; results are in main memory."""
        if buffer not in {one.name for one in self.made.buffers}:
            return body
        window = tuple(self.ranges[axis.name] for axis in self.made.axes)
        return (Alloc(buffer, window, body, depth=self.tiling.windows(self.outer)),)

    def held(self, body: tuple[Stmt, ...], copies: Sequence[Staged]) -> tuple[Stmt, ...]:
        """`body` behind copies of what it reads, each in a window of its own."""
        for copy in reversed(copies):
            window = tuple(self.window(part) for part in copy.index)
            fixed = {
                axis.name: start
                for axis, (start, extent) in zip(copy.axes, window, strict=True)
                if ix.literal_value(extent) == 1 and start == Var(axis.name)
            }
            axes = tuple(
                TileAxis(axis.name, *reach)
                for axis, reach in zip(copy.axes, window, strict=True)
                if axis.name not in fixed
            )
            read = copy.element.value
            if copy.by_host:
                read = Load(self.laid[copy.name], copy.point, copy.element.load.dtype)
            tile = Tile(axes, (Store(copy.name, copy.point, read),))
            depth = self.tiling.windows(self.depth_of(copy))
            body = (Alloc(copy.name, window, (tile, *body), depth=depth),)
        return body

    def window(self, part: Expr) -> Range:
        """What a tile reads along one axis of a copy: a sum of loops."""
        start: Expr = ix.const(ix.to_linear(part).const)
        reach: Expr = ix.const(1)
        for atom, factor in ix.to_linear(part).terms:
            if isinstance(atom, Var) and atom.name in self.ranges:
                first, extent = self.ranges[atom.name]
                last = ix.sub(extent, 1)
                start = ix.add(start, ix.mul(factor, first))
                if factor < 0:
                    start = ix.add(start, ix.mul(factor, last))
                reach = ix.add(reach, ix.mul(abs(factor), last))
            else:
                start = ix.add(start, ix.mul(factor, atom))
        return start, reach

    def around(
        self, axes: Sequence[StageAxis], body: tuple[Stmt, ...], copies: Sequence[Staged] = ()
    ) -> tuple[Stmt, ...]:
        """`body` in the loops over tiles of these axes, `copies` in those that move them."""
        names = {axis.name for axis in axes}
        loops = [axis for axis in self.tiling.order if axis in names]
        depth = {copy.name: self.depth_of(copy) for copy in copies}
        for axis in reversed(loops):
            level = self.tiling.order.index(axis) + 1
            body = self.held(body, [c for c in copies if depth[c.name] == level])
            body = self.loop(axis, body)
        return body

    def loop(self, axis: str, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """`body` in the loop over the tiles of one axis."""
        extent, size = self.extents[axis], self.tiles.get(axis, 1)
        head = self.heads[axis]
        count = ix.ceildiv(extent, size)
        return (For(head, ix.const(0), count, body),)


def over(axes: Sequence[StageAxis], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`body` in loops over all of these axes."""

    def inside(made: tuple[Stmt, ...], axis: StageAxis) -> tuple[Stmt, ...]:
        return (For(axis.name, ix.const(0), axis.extent, made),)

    return reduce(inside, reversed(axes), body)
