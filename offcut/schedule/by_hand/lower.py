"""A schedule as a loop program: nests go in; loops in the order asked for, windows and tiles come out.

The outer loop of a split decides what the inner one covers: a segment of full tiles, then the tail
as its strategy wants it (`partition.segments`). Where that cannot be, because the inner loop is
further out, both loops are complete and an instance past the end is left out by a condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Expr, Logic, Var, substitute, variables
from offcut.core.program import Alloc, Choose, For, If, Let, Option, Program, Role, Stmt, Tile, walk
from offcut.describe.computation import Names
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import (
    CUT,
    LADDER,
    PAD,
    Segment,
    Strategy,
    runs,
    segments,
    tiles_alike,
    with_covers,
)
from offcut.partition.strategies.placing import ITER
from offcut.polyhedral import Facts, Space
from offcut.schedule.by_hand.bounds import footprint
from offcut.schedule.by_hand.nests import Covered, Nest, Nests, point_of
from offcut.schedule.by_hand.offsets import At
from offcut.schedule.by_hand.tiles import Open, Tiles
from offcut.schedule.decisions import Fuse, Split


def lower(nests: Nests) -> Program:
    """The program that runs `nests` as they are scheduled; nothing is proved here."""
    making = _Lowering(nests)
    body: tuple[Stmt, ...] = ()
    for nest in nests.nests:
        if nest.at is None:
            body += making.nest(nest, Facts(Space(nests.sizes, nests.assumptions)), {})
    called = {stmt.microkernel for stmt in walk(body) if isinstance(stmt, Tile)}
    for nest in nests.nests:
        if nest.covered is not None and not called & nest.covered.names:
            raise _idle(nest, nest.covered)
    kernels: dict[str, list[Microkernel]] = {}
    for covered in (nest.covered for nest in nests.nests if nest.covered is not None):
        for name in covered.names:
            kernels.setdefault(name, []).append(covered.intrinsic)
    return with_covers(nests.program(body), kernels.get)


def _idle(nest: Nest, covered: Covered) -> PartitionError:
    """Return the error that no tile of `nest` has the extents that its instruction declares."""
    splits = (nest.made_by(leaf) for leaf in covered.loops(nest))
    tails = dict.fromkeys(
        f"tail={one.tail}" for one in splits if isinstance(one, Split) and one.tail is not None
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
    def __init__(self, nests: Nests) -> None:
        self.nests = nests
        self.names = Names([*(s.name for s in nests.sizes), *(b.name for b in nests.buffers)])

    def nest(
        self, nest: Nest, facts: Facts, window: Mapping[str, tuple[Expr, Expr]]
    ) -> tuple[Stmt, ...]:
        """The statements of `nest`, its roots in `window` bounded so."""
        at = At(facts, window)
        return _Nest(self, nest).block([(part.loops, part) for part in nest.parts], at)

    def computed_inside(
        self, nest: Nest, axis: str, body: tuple[Stmt, ...], facts: Facts
    ) -> tuple[Stmt, ...]:
        """`body`, the inside of a loop, with what is computed there around and before it."""
        for producer in reversed(tuple(self.nests.attached(nest.name, axis))):
            (buffer,) = producer.written
            window = footprint(body, buffer, self.nests.buffer(buffer).shape, facts)
            point = point_of(producer, buffer)
            assert point is not None
            reach = {
                name: (start, ix.add(start, extent))
                for name, (start, extent) in zip(point, window, strict=True)
            }
            made = self.nest(producer, facts, reach)
            body = (Alloc(buffer, window, (*made, *body)),)
        return body


class _Nest(Tiles):
    """One nest on its way to loops."""

    def __init__(self, lowering: _Lowering, nest: Nest) -> None:
        super().__init__(lowering.nests, nest, lowering.names)
        self.lowering = lowering

    def block(self, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """`parts` in order, neighbours in one loop where they begin with the same."""
        body: tuple[Stmt, ...] = ()
        for first, group in groupby(parts, key=lambda part: part[0][:1]):
            inside = list(group)
            if not first:
                for _, part in inside:
                    body += self.leaf(part, at)
            elif not self.is_tile(first[0], inside):
                body += self.loop(first[0], [(loops[1:], part) for loops, part in inside], at)
            elif self.fits(inside, at):
                body += self.tiles(inside, at)
            else:
                plain = replace(self.nest, covered=None)
                body += _Nest(self.lowering, plain).block(inside, at)
        return body

    def loop(self, axis: str, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """The loop over `axis` around `parts`; several where its tail is treated apart."""
        made, at = self.nest.made_by(axis), self.fixed(axis, at)
        if isinstance(made, Split) and axis == made.outer and self.covers(made, parts):
            return self.segmented(made, parts, at)
        if self.nest.root(axis) is not None:
            return self.plain(axis, self.bound(axis, 0, at), self.bound(axis, 1, at), parts, at)
        return self.plain(axis, ix.const(0), self.extent(axis, at), parts, at)

    def covers(self, split: Split, parts: Sequence[Open]) -> bool:
        """Whether all loops of the inner axis are still to come, so that a segment bounds them."""
        inner = set(self.nest.leaves(split.inner))
        fused = any(isinstance(self.nest.made_by(leaf), Fuse) for leaf in inner)
        return not fused and all(inner <= set(loops) for loops, _ in parts)

    def plain(
        self, axis: str, lo: Expr, hi: Expr, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """``for axis in lo:hi``; the offset of a root is counted from `lo`."""
        name = self.names.fresh(axis)
        offset = ix.sub(Var(name), lo)
        inner = replace(at, facts=at.facts.loop(name, lo, hi))
        body = self.opened(axis, offset, parts, inner)
        self.names.release(name)
        return self.marked(axis, For(name, lo, hi, body, at.role)) if body else ()

    def marked(self, axis: str, loop: For) -> tuple[Stmt, ...]:
        mark = self.nest.mark(axis)
        return (replace(loop, unit=mark.unit),)

    def opened(self, axis: str, offset: Expr, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """What is inside the loop over `axis`, whose offset is now known."""
        known, guards = self.completed(axis, offset, at)
        facts = known.facts
        for guard in guards:
            facts = facts.where(guard)
        known = replace(known, facts=facts, role=Role.WHOLE)
        body = self.block(parts, known)
        body = self.lowering.computed_inside(self.nest, axis, body, facts)
        return (If(conjunction(guards), body),) if guards and body else body

    def segmented(self, split: Split, parts: Sequence[Open], at: At) -> tuple[Stmt, ...]:
        """The outer loop of a split, once for its full tiles and once for each kind of tail; neither where its end lies before its start."""
        extent = self.extent(split.axis, at)
        if variables(extent) <= {size.name for size in self.nests.sizes}:
            extent = at.facts.extreme("max", extent, ix.const(0))
        if self.divides(split, extent, at):
            inner = replace(at, extents={**at.extents, split.inner: ix.const(split.factor)})
            count = ix.floordiv(extent, split.factor)
            return self.plain_of(split, count, ix.mul(split.factor, ITER), parts, inner)
        strategy = self.strategy(split)
        if not strategy.among:
            return self.tailed(split, strategy, extent, parts, at)
        options = (
            Option(
                one.name,
                tiles_alike(runs(one, extent, split.factor), split.factor),
                self.tailed(split, one, extent, parts, at),
            )
            for one in strategy.among
        )
        return (Choose(tuple(options)),)

    def tailed(
        self, split: Split, strategy: Strategy, extent: Expr, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """The segments that `strategy` gives."""
        body: tuple[Stmt, ...] = ()
        for segment in segments(strategy, extent, split.factor):
            if segment.when is not None and at.facts.holds(Logic("not", (segment.when,))):
                continue
            body += self.segment(split, segment, parts, at)
        return body

    def divides(self, split: Split, extent: Expr, at: At) -> bool:
        rest = ix.mod(extent, split.factor)
        asked = split.tail is not None and split.tail.divides
        return asked or self.always(ix.compare("==", rest, 0), at)

    def strategy(self, split: Split) -> Strategy:
        """How the tail of `split` runs; cutting it off by default, padding it for an intrinsic.

        Loops have every height, so what is left is a ladder of one step.
        """
        if split.tail is None:
            padded = split.inner in self.tile_leaves()
            return PAD if padded else LADDER
        return LADDER if split.tail == CUT else split.tail

    def plain_of(
        self,
        split: Split,
        count: Expr,
        start: Expr,
        parts: Sequence[Open],
        at: At,
    ) -> tuple[Stmt, ...]:
        """``for outer in 0:count`` around tiles that start at `start`, which is in `ITER`."""
        name = self.names.fresh(split.outer)
        facts = at.facts.loop(name, ix.const(0), count)
        inner = replace(
            at, facts=facts, starts={**at.starts, split.inner: _started(start, Var(name))}
        )
        body = self.opened(split.outer, Var(name), parts, inner)
        self.names.release(name)
        loop = For(name, ix.const(0), count, body, at.role)
        return self.marked(split.outer, loop) if body else ()

    def segment(
        self, split: Split, segment: Segment, parts: Sequence[Open], at: At
    ) -> tuple[Stmt, ...]:
        """The tiles of one segment."""
        bound: dict[str, Expr] = {
            let.name: Var(self.names.fresh(let.name.strip("#"))) for let in segment.lets
        }
        facts = at.facts if segment.when is None else at.facts.where(segment.when)
        shown = substitute(segment.start, bound), substitute(segment.height, bound)
        start, height = (ix.simplify(part) for part in shown)
        inner = replace(
            at,
            facts=facts,
            extents={**at.extents, split.inner: height},
            role=segment.role,
            forms={**at.forms, split.inner: segment.form},
        )
        if segment.predicate:
            inner = replace(inner, limits={**at.limits, split.axis: segment.owned[1]})
        if segment.count is None or ix.literal_value(segment.count) == 1:
            begin = _started(start, ix.const(0))
            once = replace(inner, starts={**at.starts, split.inner: begin})
            value = ix.floordiv(begin, split.factor)
            body = self.opened(split.outer, value, parts, once)
        else:
            count = ix.simplify(substitute(segment.count, bound))
            body = self.plain_of(split, count, start, parts, inner)
        for let in reversed(segment.lets):
            name = bound[let.name]
            assert isinstance(name, Var)
            body = (Let(name.name, let.lo, let.hi, let.value, body),)
            self.names.release(name.name)
        if segment.when is not None and body and not self.always(segment.when, at):
            body = (If(segment.when, body),)
        return body


def _started(start: Expr, tile: Expr) -> Expr:
    return ix.simplify(substitute(start, {ITER.name: tile}))
