"""A schedule as a loop program: nests go in; loops in the order asked for, windows and tiles come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from offcut.core import index as ix
from offcut.core.expr import Expr, Var, variables
from offcut.core.program import Alloc, Choose, Kind, Option, Program, Stmt, Tile, walk
from offcut.core.text.printer import format_expr
from offcut.core.traversal import all_bound_names
from offcut.describe.computation import Names
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import EmittedTile, Segment, with_covers
from offcut.polyhedral import Facts, Space
from offcut.schedule.apply.bounds import footprint
from offcut.schedule.apply.nest_loops import LoopBody, NestLoops
from offcut.schedule.apply.offsets import At, Open
from offcut.schedule.apply.placing import is_unread_result, window_places
from offcut.schedule.apply.reading import loads_of
from offcut.schedule.apply.staged_form import Alternatives, Covered, Nest, Nests, point_of
from offcut.schedule.apply.tiles import Tiles
from offcut.schedule.decisions import SplitPair
from offcut.schedule.diagnostics import Advice


def lower(nests: Nests) -> Program:
    """Return the program that runs `nests` as they are scheduled; nothing is proved here."""
    return lower_with_tiles(nests)[0]


def lower_with_tiles(nests: Nests) -> tuple[Program, list[EmittedTile]]:
    """Return the program that runs `nests` as they are scheduled, and its tiles, in the order of the text."""
    emitted_tiles: dict[int, EmittedTile] = {}
    names = Names([*(s.name for s in nests.sizes), *(b.name for b in nests.buffers)])
    buffers = {buffer.name: buffer for form in nests.forms for buffer in form.buffers}
    loops, body = partial(_Nest, emitted_tiles), tuple[Stmt, ...]()
    lowering = Lowering(nests, names, loops)
    emitted = list[Alternatives]()
    for nest in nests.nests:
        several = lowering.alternatives.get(nest.name)
        if several is None and nest.at is None:
            body += lowering.root(nest)
        elif several is not None and several not in emitted:
            emitted.append(several)
            body += lowering.choose(several, lowering.facts)
    called = {stmt.microkernel for stmt in walk(body) if isinstance(stmt, Tile)}
    for nest in nests.nests:
        if nest.covered is not None and not called & nest.covered.names:
            raise _idle(nest, nest.covered)
    kernels: dict[str, list[Microkernel]] = {}
    for covered in (nest.covered for nest in nests.nests if nest.covered is not None):
        for name in covered.names if covered.wanted is None else ():
            kernels.setdefault(name, []).append(covered.intrinsic)
    private = {
        buffer
        for form in nests.forms
        for nest in form.nests
        if form.is_at_points(nest)
        for buffer in nest.stored_buffers
    }
    declared = (
        replace(one, kind=Kind.PRIVATE) if one.name in private and one.kind is Kind.LOCAL else one
        for one in buffers.values()
    )
    program = replace(nests.program(body), buffers=tuple(declared))
    tiles = [emitted_tiles[id(stmt)] for stmt in walk(body) if id(stmt) in emitted_tiles]
    return with_covers(program, kernels.get) if kernels else program, tiles


def element_at_point(reader: Nest, producer: Nest, behind: tuple[Stmt, ...]) -> tuple[Expr, ...]:
    """Return the index of the one element of a stage that is read at a point of the tile in which it is computed.

    behind  what is computed at the point after it

    Raises PartitionError if there are more.
    """
    (buffer,), (of, *_) = producer.stored_buffers, reader.stored_buffers
    elements = dict.fromkeys(load for load in loads_of(behind) if load.buffer == buffer)
    inside = all_bound_names(behind)
    if len(elements) == 1 and not any(variables(load) & inside for load in elements):
        return next(iter(elements)).index
    assert producer.placed is not None
    outer_loops = [
        loop for part in reader.parts for loop in part.loops if loop not in reader.tile_loops
    ]
    place = replace(producer.placed, axis=outer_loops[-1] if outer_loops else None)
    refused = PartitionError(
        "compute_at",
        f"cannot compute {buffer} at each point of a tile of {of}",
        at=f"stage {buffer}",
        because=f"{of} reads {' and '.join(map(format_expr, elements))} at one point",
        help=(Advice.of(place),),
    )
    refused.decision = producer.placed
    raise refused


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


# (a lowering, one of its nests) -> what makes the loops of the nest
LoopsOf = Callable[["Lowering", Nest], NestLoops]


class Lowering:
    """Nests on their way to loops, each in the loop of another one in which it is computed.

    loops  what makes the loops of each
    """

    def __init__(self, nests: Nests, names: Names, loops: LoopsOf) -> None:
        self.nests, self.names, self.loops = nests, names, loops
        self.facts = Facts(Space(nests.sizes, nests.assumptions))
        self.places = window_places(nests)
        self.alternatives = {stage: one for one in nests.alternatives for stage in one.stages}

    def choose(self, several: Alternatives, facts: Facts) -> tuple[Stmt, ...]:
        """Return the statements of nests in each of their alternatives; as they are where there is one."""
        options = []
        for label, cost, option in several.options:
            inside, body = Lowering(option, self.names, self.loops), tuple[Stmt, ...]()
            for own in several.own(self.nests, option):
                body += inside.nest(own, At(facts, {}))
            options.append(Option(label, cost, body))
        return options[0].body if len(options) == 1 else (Choose(tuple(options)),)

    def root(self, nest: Nest) -> tuple[Stmt, ...]:
        """Return the statements of a nest that is computed in no other."""
        return self.nest(nest, At(self.facts, {}))

    def nest(self, nest: Nest, at: At) -> tuple[Stmt, ...]:
        """Return the statements of `nest` at a place around it, its roots in the window there."""
        body = self.loops(self, nest).emit(at)
        return self.computed_inside(nest, None, body, at).statements

    def computed_inside(
        self, nest: Nest, axis: str | None, body: tuple[Stmt, ...], at: At
    ) -> LoopBody:
        """Return what is inside of a loop of `nest`: `body`, before it what is computed there, and the windows around all of it.

        A window in a memory of the machine opens where it is filled, and takes no room before; those in main memory are open for the
        whole of an iteration.
        """
        parts, windows = [body], dict[str, Alloc]()
        arrays = self.places.get((nest.name, axis), ())
        for producer in reversed(self.nests.attached_nests(nest.name, axis)):
            behind = tuple(stmt for part in parts for stmt in part)
            box = self.box(nest, producer, behind, at)
            point = [root for root, _ in box]
            reach = {root: (start, ix.add(start, extent)) for root, (start, extent) in box}
            inner = At(at.facts, reach, segments=self.root_segments(nest, producer, point, at))
            parts.insert(0, self.nest(producer, inner))
            where, (buffer, *_) = producer.placed, producer.stored_buffers
            if where is None or buffer not in arrays:
                continue
            axes = tuple(interval for _, interval in box)
            window = Alloc(buffer, axes, (), where.memory, where.depth, where.inplace)
            windows[buffer] = window
            if where.memory or where.inplace or self.nests.buffer(buffer).scope:
                filled = tuple(stmt for part in parts for stmt in part)
                parts = [(replace(windows.pop(buffer), body=filled),)]
        for name in arrays if nest.group else ():
            own = self.window_of_iteration(name, at)
            if own is not None:
                windows[name] = own
        in_order = (windows[one.name] for one in self.nests.buffers if one.name in windows)
        return LoopBody(tuple(parts), tuple(in_order))

    def box(
        self, reader: Nest, producer: Nest, behind: tuple[Stmt, ...], at: At
    ) -> tuple[tuple[str, tuple[Expr, Expr]], ...]:
        """Return the roots of `producer` that are bounded in a loop of `reader`, each with (start, extent) of what is computed there.

        behind  the statements that are computed there after it
        """
        if producer.group:
            names = (root.name for root in producer.roots if root.name in at.facts.names)
            return tuple((name, (Var(name), ix.const(1))) for name in names)
        (buffer,) = producer.stored_buffers
        point, shape = point_of(producer, buffer), self.nests.buffer(buffer).shape
        assert point is not None
        if self.nests.is_at_points(producer):
            element = element_at_point(reader, producer, behind)
            return tuple(
                (root, (part, ix.const(1))) for root, part in zip(point, element, strict=True)
            )
        beside = is_unread_result(self.nests, producer)
        of = reader.stored_buffers[0] if beside else buffer
        return tuple(zip(point, footprint(behind, of, shape, at.facts, beside), strict=True))

    def window_of_iteration(self, buffer: str, at: At) -> Alloc | None:
        """Return the window of an array of a group: one iteration along the axes whose loops are open, all of the others; None if none is open."""
        stages = (stage for nest in self.nests.nests for stage in nest.group)
        axes = next(stage.axes for stage in stages if stage.buffer == buffer)
        shape = self.nests.buffer(buffer).shape
        window = [
            (Var(axis.name), ix.const(1)) if axis.name in at.facts.names else (ix.const(0), extent)
            for axis, extent in zip(axes, shape, strict=True)
        ]
        is_open = any(axis.name in at.facts.names for axis in axes)
        return Alloc(buffer, tuple(window), ()) if is_open else None

    def root_segments(
        self, reader: Nest, producer: Nest, point: Sequence[str], at: At
    ) -> dict[str, Segment]:
        """Return the segments of a stage's roots: those of the loops that name its elements in what reads it."""
        if producer.group:
            return {}
        (buffer,) = producer.stored_buffers
        if is_unread_result(self.nests, producer):
            roots = zip(point, point_of(reader, reader.stored_buffers[0]) or (), strict=True)
            return {root: at.segments[of] for root, of in roots if of in at.segments}
        inside = (reader, *(n for n in self.nests.nests if n.at and n.at[0] == reader.name))
        segments: dict[str, Segment] = {}
        for load in (load for one in inside for load in loads_of(one.plain)):
            if load.buffer == buffer:
                for root, part in zip(point, load.index, strict=True):
                    if isinstance(part, Var) and part.name in at.segments:
                        segments.setdefault(root, at.segments[part.name])
        return segments


def _is_staged_in(nests: Nests, producer: Nest, nest: Nest) -> bool:
    """Return whether a stage that is computed in a loop asks for tiles of any start and height of `nest`: one in its own loops does, and one
    in a memory of the machine does of all nests.
    """
    assert producer.at is not None
    in_memory = producer.placed is not None and producer.placed.memory is not None
    scopes = any(nests.buffer(name).scope for name in producer.stored_buffers)
    return in_memory or scopes or producer.at[0] == nest.name


class _Nest(Tiles):
    """One nest of a schedule by hand on its way to loops; each tile that it makes is noted in `emitted_tiles`."""

    def __init__(
        self, emitted_tiles: dict[int, EmittedTile], lowering: Lowering, nest: Nest
    ) -> None:
        nests = lowering.nests
        staged = any(
            (one.at is not None and not nests.is_at_points(one) and _is_staged_in(nests, one, nest))
            or (one.covered is not None and one.covered.wanted is not None and not one.is_of_host)
            for one in nests.nests
        )
        super().__init__(lowering.nests, nest, lowering.names, staged, lowering.computed_inside)
        self.made, self.lowering = emitted_tiles, lowering

    def emit_tiles(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return the tiles of `parts`; loops where these have not the extents of their instruction."""
        if not self.fits(parts, at):
            uncovered = replace(self.nest, covered=None)
            return _Nest(self.made, self.lowering, uncovered).block(parts, at)
        tiles = self.tiles(parts, at)
        for tile in tiles:
            self.made[id(tile)] = self.piece(tile, at)
        return tiles

    def note_copy(self, body: tuple[Stmt, ...], copy: tuple[Stmt, ...]) -> None:
        """Note that tiles in `copy` are what those of `body` are."""
        tiles = self.made
        for old, new in zip(walk(body), walk(copy), strict=True):
            if id(old) in tiles:
                tiles[id(new)] = replace(tiles[id(old)], leaf=new)
