"""Tiles of a nest: loops and statements go in; what an intrinsic or a copy runs at once comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.dtypes import identity
from offcut.core.expr import (
    Const,
    Expr,
    Select,
    Var,
    dtype_of,
    reads_memory,
    variables,
)
from offcut.core.program import (
    COUNTED_UNITS,
    MAX_SIZE,
    UNITS,
    Cover,
    For,
    Form,
    Role,
    Stmt,
    Store,
    Tile,
    TileAxis,
)
from offcut.describe.microkernel import LOOP_UNITS
from offcut.errors import PartitionError
from offcut.partition import MASK, PAD, EmittedTile
from offcut.partition.strategies.segment_placement import leading_form
from offcut.polyhedral import Facts
from offcut.schedule.apply.nest_loops import NestLoops
from offcut.schedule.apply.offsets import At, Open
from offcut.schedule.apply.reading import loads_of
from offcut.schedule.apply.staged_form import Part, depends_on
from offcut.schedule.decisions import SplitPair


class Tiles(NestLoops):
    """The loops of `nest` that form tiles: what an intrinsic runs, and copies between memories."""

    @property
    def in_counted_units(self) -> bool:
        """Return whether warps of a block run the nest, of which the last ones may have less to do, or nothing."""
        return any(mark.unit in COUNTED_UNITS for mark in self.nest.marks)

    def block(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return `parts` in order; as one tile where all loops that are left run as vectors, or none is left."""
        vectors = self.nest.vectors
        if vectors is not None and all({*loops} <= vectors.loops for loops, _ in parts):
            return self.emit_tiles(parts, at)
        return super().block(parts, at)

    def is_tile(self, first: str, parts: Sequence[Open]) -> bool:
        """Return whether the loops from `first` inwards are one tile."""
        covered, vectors = self.nest.covered, self.nest.vectors
        if covered is not None:
            return covered.axis == first
        if vectors is not None:
            return first in vectors.loops
        if not self.nest.copies or self.nest.mark(first).unit is not None:
            return False
        touched = {*self.nest.stored_buffers, *(load.buffer for load in loads_of(self.nest.plain))}
        if not any(b.scope is not None for b in self.nests.buffers if b.name in touched):
            return False  # from main memory to main memory
        return all(
            self.nest.root_below(leaf) is not None
            and not any(self.nests.attached_nests(self.nest.name, leaf))
            for loops, _ in parts
            for leaf in loops
        ) and all(self.is_box(loops) for loops, _ in parts)

    def is_box(self, loops: Sequence[str]) -> bool:
        """Return whether each of `loops` is of a root of its own, whose bounds depend on no other of them."""
        names = {self.nest.root_below(leaf) for leaf in loops}
        roots = [root for root in self.nest.roots if root.name in names]
        return len(names) == len(loops) and not any(depends_on(root) & names for root in roots)

    def has_plain_loop(self, root: str) -> bool:
        """Return whether a root has a loop of its own outside of tiles, which no unit runs."""
        plain = super().has_plain_loop(root) and self.nest.mark(root).unit is None
        return plain and not self.nest.copies and root not in self.nest.covered_loops

    def tiles(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """Return each part as one tile; a start and its updates together where an intrinsic does both."""
        covered = self.nest.covered
        if self.nest.vectors is not None:
            tiles: tuple[Stmt, ...] = ()
            for _, together in groupby(parts, lambda part: self.stored_roots(*part)):
                same = list(together)
                everything = max((loops for loops, _ in same), key=len)
                tiles += (self.tile(everything, [part for _, part in same], None, at),)
            return tiles
        if covered is None:
            return tuple(self.tile(loops, [part], None, at) for loops, part in parts)
        kernel, body = covered.intrinsic, []
        everything = max((loops for loops, _ in parts), key=len)
        sums = bool(kernel.reduce_axes) and kernel.accumulate != "adds"
        apart = covered.wanted is not None and not sums
        if len(parts) > 1 and not apart:
            return (self.tile(everything, [part for _, part in parts], kernel.name, at),)
        reduces = any(part.stores[0].reduce is not None for part in self.nest.parts)
        for loops, part in parts:
            updates = part.stores[0].reduce is not None
            name = kernel.update if updates else kernel.reset
            if updates or not reduces:  # a start alone is run by what the target finds
                name = name or kernel.name
            body.append(self.tile(loops, [part], name, at))
        return tuple(body)

    def stored_roots(self, loops: Sequence[str], part: Part) -> frozenset[str | None]:
        """Return the roots of `loops` that name the elements that a part stores; its other loops run over terms of a sum."""
        index_names = {name for s in part.stores for one in s.index for name in variables(one)}
        return frozenset(root for root in map(self.nest.root_below, loops) if root in index_names)

    def fits(self, parts: Sequence[Open], at: At) -> bool:
        """Return whether every tile has the extents that its intrinsic declares, or is padded to them."""
        covered = self.nest.covered
        if covered is None or covered.wanted is not None:
            return True
        extents = dict(covered.extents)
        for loops, _ in parts:
            for leaf in loops:
                root = self.nest.root_below(leaf)
                assert root is not None
                have = ix.sub(self.end(leaf, at), self.base(leaf, at))
                if self.always(ix.compare("==", have, extents[root]), at):
                    continue
                origin = self.nest.made_by(leaf)
                tail = origin.tail if isinstance(origin, SplitPair) else None
                if tail not in (None, PAD, MASK):
                    return False
        return True

    def is_fixed(self, leaf: str, start: Expr, extent: Expr) -> bool:
        """Return whether a loop of a tile has the one value that a loop around gives it, and no instruction is asked for there."""
        covered = self.nest.covered
        if covered is None or covered.wanted is None:
            return self.nest.copies and extent == ix.const(1) and isinstance(start, Var)
        is_covered = any(loop == leaf for _, loop in covered.wanted.axes)
        return extent == ix.const(1) and bool(variables(start)) and not is_covered

    def tile(
        self, loops: Sequence[str], parts: Sequence[Part], microkernel: str | None, at: At
    ) -> Tile:
        """Return one tile over the roots below `loops`, those that only a reduction has inside it."""
        covered = self.nest.covered
        extents = dict(covered.extents) if covered is not None else {}
        stored = {
            name for part in parts for s in part.stores for i in s.index for name in variables(i)
        }
        axes: list[TileAxis] = []
        names: list[str] = []
        called: dict[str, str] = {}
        where: list[Expr] = []
        terms: list[Expr] = []
        reductions: list[tuple[str, Expr, Expr]] = []
        offsets = dict(at.offsets)
        form = Form.FULL
        forms = set[Form]()
        if (
            self.nest.vectors is not None
        ):  # bounds of sums may depend on the instance that they are of
            loops = sorted(loops, key=lambda leaf: self.nest.root_below(leaf) not in stored)
        for leaf in loops:
            root = self.nest.root_below(leaf)
            assert root is not None
            if self.nest.vectors is not None and root not in stored:
                at = at.replace(offsets={**at.offsets, **offsets})
            at = self.with_root_bounds(leaf, at)
            start, end = self.base(leaf, at), self.end(leaf, at)
            extent = ix.distance(start, end)
            if self.is_fixed(leaf, start, extent):
                offsets[root] = ix.sub(start, self.root_bound(root, 0, at))
                continue
            called[leaf] = name = root if self.keeps_names else self.names.fresh(root)
            names += [] if self.keeps_names else [name]
            offsets[root] = ix.sub(Var(name), self.root_bound(root, 0, at))
            if self.nest.vectors is not None or (self.nest.is_of_host and root in stored):
                extent, limits, own_form = self.segment_extent(leaf, root, extent, at)
                forms.add(own_form)
                where += [ix.compare("<", Var(name), limit) for limit in limits]
            elif root in extents:
                inside = ix.compare("==", extent, extents[root])
                if not self.always(inside, at):
                    origin = self.nest.made_by(leaf)
                    tail = origin.tail if isinstance(origin, SplitPair) else None
                    form = Form.MASK if tail == MASK and form is not Form.PAD else Form.PAD
                    (where if root in stored else terms).append(ix.compare("<", Var(name), end))
                extent = ix.const(extents[root])
            elif self.in_counted_units:
                extent = _without_implied_bounds(extent, at.facts)
            if root in stored:
                axes.append(TileAxis(name, start, extent))
            else:
                reductions.append((name, start, ix.add(start, extent)))
        inner, at_points = at.replace(offsets=offsets), self.nests.at_points(self.nest)
        for leaf in (name for one in at_points for part in one.parts for name in part.loops):
            called.setdefault(leaf, self.names.fresh(leaf))
            self.names.release(called[leaf])
        body: tuple[Stmt, ...] = ()
        for part in parts:
            stmts = self.leaf(part, inner)
            if at_points:
                stmts = self.computed_inside(part.loops[-1], stmts, inner).statements
            if part.stores[0].reduce is not None:
                if terms:
                    inside = conjunction(terms)
                    stmts = tuple(neutral_outside(stmt, inside) for stmt in stmts)
                for name, lo, hi in reversed(reductions):
                    stmts = (For(name, lo, hi, stmts),)
            body += stmts
        for name in names:
            self.names.release(name)
        only = conjunction(where) if where else None
        cover = None if microkernel is None else Cover(microkernel)
        if covered is not None and covered.wanted is not None and cover is not None:
            along = [(a, called[loop]) for a, loop in covered.wanted.axes if loop in called]
            if microkernel != covered.wanted.microkernel:  # a start has no axis that is reduced
                stored_names = {axis.iter for axis in axes}
                along = [(a, name) for a, name in along if name in stored_names]
            cover = Cover(cover.microkernel, tuple(along), covered.wanted.operands)
        if only is None and terms:
            form = Form.FULL
        if self.nest.vectors is not None:
            return Tile(tuple(axes), body, only, leading_form(forms), self.role(at))
        made_tile = Tile(tuple(axes), body, only, leading_form((form, *forms)), cover=cover)
        kernel = covered.intrinsic if covered is not None and cover is not None else None
        if kernel is None or covered is None or kernel.unit not in UNITS:
            return replace(made_tile, role=self.role(at)) if self.nest.is_of_host else made_tile
        late = kernel.issue == "async"
        if kernel.unit in LOOP_UNITS:
            return replace(made_tile, asynchronous=late and microkernel != kernel.reset)
        return replace(made_tile, unit=kernel.unit, asynchronous=late)

    def segment_extent(
        self, leaf: str, root: str, extent: Expr, at: At
    ) -> tuple[Expr, tuple[Expr, ...], Form]:
        """Return how far a tile of a processor reaches along a loop, before what its instances end if that is nearer, and its form."""
        if leaf not in at.extents or not isinstance(self.nest.made_by(leaf), SplitPair):
            return extent, (), Form.FULL
        form = at.segments[root].form if root in at.segments else Form.FULL
        if form is Form.GUARD and self.nest.is_of_host:
            return extent, (), Form.FULL  # no microkernel asks which instances there are
        limited = [axis for axis in self.ancestors(leaf) if axis in at.limits]
        limits = tuple(ix.add(self.base(axis, at), at.limits[axis]) for axis in limited)
        masked = limits and form is Form.FULL  # a tile around this one ends early
        return at.extents[leaf], limits, Form.MASK if masked else form

    def ancestors(self, leaf: str) -> Iterator[str]:
        """Yield the axes that are split into a loop, from the innermost on."""
        origin = self.nest.made_by(leaf)
        while isinstance(origin, SplitPair):
            yield origin.axis
            origin = self.nest.made_by(origin.axis)

    def piece(self, tile: Stmt, at: At) -> EmittedTile:
        """Return what a tile is by the loops that are split around it."""
        assert isinstance(tile, Tile)
        roots = (root.name for root in self.nest.roots if root.name in at.segments)
        return EmittedTile(
            tile, tuple((root, at.segments[root]) for root in roots), tile.microkernel
        )

    def role(self, at: At) -> Role:
        """Return which part of its loops a tile is."""
        roles = {at.segments[r.name].role for r in self.nest.roots if r.name in at.segments}
        return Role.TAIL if Role.TAIL in roles else Role.BODY if roles else Role.WHOLE


def _without_implied_bounds(extent: Expr, facts: Facts) -> Expr:
    """Return an extent without the operands of its minimum that another operand is known to be at most."""
    parts = list(dict.fromkeys(ix.parts_of_minimum(extent)))
    for part in tuple(parts):
        others = [other for other in parts if other is not part]
        if any(facts.holds(ix.compare("<=", other, part)) for other in others):
            parts.remove(part)
    return reduce(ix.minimum, parts)


def heights_of(extent: Expr) -> tuple[int, int]:
    """Return the least and the greatest number of instances of a tile along an axis, by its extent."""
    number = ix.literal_value(extent)
    return (number, number) if number is not None else (0, MAX_SIZE)


def neutral_outside(stmt: Stmt, inside: Expr) -> Stmt:
    """Return `stmt` with the terms of its updates masked: -0.0 leaves every float sum as it is, also -0.0."""
    match stmt:
        case Store(_, index, value, reduce) if reduce is not None and not any(
            map(reads_memory, index)
        ):
            dtype = dtype_of(value)
            nothing = Const(identity(reduce, dtype), dtype)
            return replace(stmt, value=Select(inside, value, nothing))
        case For():
            return replace(stmt, body=tuple(neutral_outside(s, inside) for s in stmt.body))
        case _:
            raise PartitionError(
                "partition",
                'cannot take tail="pad"',
                because="only the terms of a reduction can be masked to its neutral element",
                help=('tail="mask" runs no instance outside',),
            )
