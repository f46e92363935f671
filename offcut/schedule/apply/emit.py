"""A schedule as a loop program: nests go in; loops in the order asked for, windows and tiles come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Var
from offcut.core.program import (
    Alloc,
    Choose,
    Option,
    Program,
    Stmt,
    Tile,
    walk,
)
from offcut.describe.computation import Names
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import (
    EmittedTile,
    Segment,
    with_covers,
)
from offcut.polyhedral import Facts, Space
from offcut.schedule.apply.bounds import footprint
from offcut.schedule.apply.offsets import At, Open
from offcut.schedule.apply.placing import is_beside
from offcut.schedule.apply.reading import loads_of
from offcut.schedule.apply.staged_form import Alternatives, Covered, Nest, Nests, point_of
from offcut.schedule.apply.tiles import Tiles
from offcut.schedule.decisions import SplitPair


def lower(nests: Nests) -> Program:
    """Return the program that runs `nests` as they are scheduled; nothing is proved here."""
    return lower_with_tiles(nests)[0]


def lower_with_tiles(nests: Nests) -> tuple[Program, list[EmittedTile]]:
    """Return the program that runs `nests` as they are scheduled, and its tiles, in the order of the text."""
    made: dict[int, EmittedTile] = {}
    names = Names([*(s.name for s in nests.sizes), *(b.name for b in nests.buffers)])
    buffers = {buffer.name: buffer for buffer in nests.buffers}
    body: tuple[Stmt, ...] = ()
    chosen = dict[str, Alternatives]()
    for one in nests.alternatives:
        chosen |= dict.fromkeys(one.stages, one)
        for _, _, option in one.options:
            buffers |= {buffer.name: buffer for buffer in option.buffers}
    emitted = list[Alternatives]()
    for nest in nests.nests:
        several = chosen.get(nest.name)
        if several is None and nest.at is None:
            body += _Lowering(nests, names, made).root(nest)
        elif several is not None and several not in emitted:
            emitted.append(several)
            options = []
            for label, cost, option in several.options:
                making, inside = _Lowering(option, names, made), tuple[Stmt, ...]()
                for own in several.own(nests, option):
                    inside += making.root(own)
                options.append(Option(label, cost, inside))
            body += (Choose(tuple(options)),)
    called = {stmt.microkernel for stmt in walk(body) if isinstance(stmt, Tile)}
    for nest in nests.nests:
        if nest.covered is not None and not called & nest.covered.names:
            raise _idle(nest, nest.covered)
    kernels: dict[str, list[Microkernel]] = {}
    for covered in (nest.covered for nest in nests.nests if nest.covered is not None):
        for name in covered.names if covered.wanted is None else ():
            kernels.setdefault(name, []).append(covered.intrinsic)
    program = replace(nests.program(body), buffers=tuple(buffers.values()))
    tiles = [made[id(stmt)] for stmt in walk(body) if id(stmt) in made]
    return with_covers(program, kernels.get) if kernels else program, tiles


def _idle(nest: Nest, covered: Covered) -> PartitionError:
    """Return the error that no tile of `nest` has the extents that its instruction declares."""
    splits = (nest.made_by(leaf) for leaf in covered.loops(nest))
    tails = dict.fromkeys(
        f"tail={one.tail}" for one in splits if isinstance(one, SplitPair) and one.tail is not None
    )
    return PartitionError(
        "tensorize",
        f"cannot run {nest.name} by {covered.intrinsic.name}",
        at=f"axis {nest.name}.{covered.axis}",
        because=f"no tile has exactly the extents that it declares, {', '.join(str(extent) for _, extent in covered.extents)}"
        f" ({', '.join(tails) or 'no loop is split'})",
        help=('tail="pad", "mask" or "cut" of these splits',),
    )


class _Lowering:
    def __init__(self, nests: Nests, names: Names, made: dict[int, EmittedTile]) -> None:
        self.nests, self.names, self.made = nests, names, made
        self.facts = Facts(Space(nests.sizes, nests.assumptions))

    def root(self, nest: Nest) -> tuple[Stmt, ...]:
        """Return the statements of a nest that is computed in no other."""
        return self.nest(nest, At(self.facts, {}))

    def nest(self, nest: Nest, at: At) -> tuple[Stmt, ...]:
        """Return the statements of `nest` at a place around it, its roots in the window there."""
        body = _Nest(self, nest).emit(at)
        return self.computed_inside(nest, None, body, at)

    def computed_inside(
        self, nest: Nest, axis: str | None, body: tuple[Stmt, ...], at: At
    ) -> tuple[Stmt, ...]:
        """Return `body`, the inside of a loop, with what is computed there around and before it."""
        for producer in reversed(self.nests.attached(nest.name, axis)):
            (buffer,) = producer.written
            shape, beside = self.nests.buffer(buffer).shape, is_beside(self.nests, producer)
            window = footprint(body, nest.written[0] if beside else buffer, shape, at.facts, beside)
            point = point_of(producer, buffer)
            assert point is not None
            reach = {
                name: (start, ix.add(start, extent))
                for name, (start, extent) in zip(point, window, strict=True)
            }
            inner = At(at.facts, reach, segments=self.moved(nest, producer, point, at))
            made = self.nest(producer, inner)
            where = producer.placed
            assert where is not None
            inside = (*made, *body)
            if beside:
                body = inside
                continue
            body = (Alloc(buffer, window, inside, where.memory, where.depth, where.inplace),)
        return body

    def moved(
        self, reader: Nest, producer: Nest, point: Sequence[str], at: At
    ) -> dict[str, Segment]:
        """Return the segments of a stage's roots: those of the loops that name its elements in what reads it."""
        (buffer,) = producer.written
        if is_beside(self.nests, producer):
            roots = zip(point, point_of(reader, reader.written[0]) or (), strict=True)
            return {root: at.segments[of] for root, of in roots if of in at.segments}
        inside = (reader, *(n for n in self.nests.nests if n.at and n.at[0] == reader.name))
        found: dict[str, Segment] = {}
        for load in (load for one in inside for load in loads_of(one.plain)):
            if load.buffer == buffer:
                for root, part in zip(point, load.index, strict=True):
                    if isinstance(part, Var) and part.name in at.segments:
                        found.setdefault(root, at.segments[part.name])
        return found


class _Nest(Tiles):
    """One nest on its way to loops."""

    def __init__(self, lowering: _Lowering, nest: Nest) -> None:
        staged = any(
            one.at is not None or (one.covered is not None and one.covered.wanted is not None)
            for one in lowering.nests.nests
        )
        super().__init__(lowering.nests, nest, lowering.names, staged)
        self.lowering = lowering

    def emit_tiles(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the tiles of `parts`; loops where these have not the extents of their instruction."""
        if not self.fits(parts, at):
            return _Nest(self.lowering, replace(self.nest, covered=None)).block(parts, at)
        tiles = self.tiles(parts, at)
        for tile in tiles:
            self.lowering.made[id(tile)] = self.piece(tile, at)
        return tiles

    def computed_inside(self, axis: str, body: tuple[Stmt, ...], at: At) -> tuple[Stmt, ...]:
        """Return `body`, the inside of the loop over `axis`, with the stages that are computed there around and before it."""
        return self.lowering.computed_inside(self.nest, axis, body, at)

    def note_copy(self, body: tuple[Stmt, ...], copy: tuple[Stmt, ...]) -> None:
        """Note that tiles in `copy` are what those of `body` are."""
        tiles = self.lowering.made
        for old, new in zip(walk(body), walk(copy), strict=True):
            if id(old) in tiles:
                tiles[id(new)] = replace(tiles[id(old)], leaf=new)

    def piece(self, tile: Stmt, at: At) -> EmittedTile:
        """Return what a tile is by the loops that are split around it."""
        assert isinstance(tile, Tile)
        roots = (root.name for root in self.nest.roots if root.name in at.segments)
        return EmittedTile(
            tile, tuple((root, at.segments[root]) for root in roots), tile.microkernel
        )
