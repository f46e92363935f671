"""A schedule as a loop program: loops in the order that was asked for, windows, tiles.

Every axis that a primitive made is a number from 0; a root is its lower bound plus such an offset.
Going inwards, an offset is known as soon as the loops that it is made of are open::

    y = lo + factor*yo + yi         split           fused // extent(b), fused % extent(b)    fuse

The outer loop of a split decides what the inner one covers: a segment of full tiles, then the tail
as its strategy wants it (`partition.segments`). Where that cannot be, because the inner loop is
further out, both loops are complete and an instance past the end is left out by a condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from offcut.core import index as ix
from offcut.core.conditions import all_of
from offcut.core.dtypes import identity
from offcut.core.expr import (
    Const,
    Expr,
    Logic,
    Select,
    Var,
    dtype_of,
    substitute,
    variables,
)
from offcut.core.program import (
    Alloc,
    Choose,
    Execution,
    For,
    Form,
    If,
    Let,
    Option,
    Program,
    Role,
    Stmt,
    Store,
    Tile,
    TileAxis,
    substituted,
)
from offcut.describe.computation import Names
from offcut.partition import CUT, LADDER, MASK, PAD, Segment, Strategy, runs, segments, tiles_alike
from offcut.partition.strategies.placing import ITER
from offcut.polyhedral import Facts, Space
from offcut.schedule.by_hand.bounds import footprint, interval
from offcut.schedule.by_hand.nests import Nest, Nests, Part, depends_on, point_of
from offcut.schedule.decisions import Fuse, Split

# (loops of a part that are not open yet, the part)
Open = tuple[tuple[str, ...], Part]


@dataclass(frozen=True)
class _At:
    """A place inside the loops of a nest.

    facts    what is known there
    window   (lo, hi) of the roots that a window bounds or a loop has opened, in the names of the
             loops around
    early    the roots opened outside of a loop that their bounds depend on
    offsets  the axes whose value is known
    starts   of an axis that a segment covers: where it starts in its parent
    extents  likewise, and of the roots: how far it reaches
    limits   of an axis that a predicated segment covers: only offsets below are instances
    """

    facts: Facts
    window: Mapping[str, tuple[Expr, Expr]]
    early: frozenset[str] = frozenset()
    offsets: Mapping[str, Expr] = field(default_factory=dict)
    starts: Mapping[str, Expr] = field(default_factory=dict)
    extents: Mapping[str, Expr] = field(default_factory=dict)
    limits: Mapping[str, Expr] = field(default_factory=dict)
    forms: Mapping[str, Form] = field(default_factory=dict)
    role: Role = Role.WHOLE


def lower(nests: Nests) -> Program:
    """The program that runs `nests` as they are scheduled; nothing is proved here."""
    making = _Lowering(nests)
    body: tuple[Stmt, ...] = ()
    for nest in nests.nests:
        if nest.at is None:
            body += making.nest(nest, Facts(Space(nests.sizes, nests.assumptions)), {})
    return nests.program(body)


class _Lowering:
    def __init__(self, nests: Nests) -> None:
        self.nests = nests
        self.names = Names([*(s.name for s in nests.sizes), *(b.name for b in nests.buffers)])

    def nest(
        self, nest: Nest, facts: Facts, window: Mapping[str, tuple[Expr, Expr]]
    ) -> tuple[Stmt, ...]:
        """The statements of `nest`, its roots in `window` bounded so."""
        at = _At(facts, window)
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


class _Nest:
    """One nest on its way to loops."""

    def __init__(self, lowering: _Lowering, nest: Nest) -> None:
        self.lowering, self.nest, self.names = lowering, nest, lowering.names

    def block(self, parts: Sequence[Open], at: _At) -> tuple[Stmt, ...]:
        """`parts` in order, neighbours in one loop where they begin with the same."""
        body: tuple[Stmt, ...] = ()
        for first, group in groupby(parts, key=lambda part: part[0][:1]):
            inside = list(group)
            if not first:
                for _, part in inside:
                    body += self.leaf(part, at)
            elif self.is_tile(first[0], inside):
                body += self.tiles(inside, at)
            else:
                body += self.loop(first[0], [(loops[1:], part) for loops, part in inside], at)
        return body

    def leaf(self, part: Part, at: _At) -> tuple[Stmt, ...]:
        roots = (root.name for root in self.nest.roots)
        values = {name: self.coordinate(name, at) for name in roots if name in at.offsets}
        return substituted(part.body, values)

    def coordinate(self, root: str, at: _At) -> Expr:
        """The value of a root whose offset is known."""
        return ix.simplify(ix.add(self.bound(root, 0, at), at.offsets[root]))

    def bound(self, root: str, end: int, at: _At) -> Expr:
        """The lower (0) or upper (1) bound of a root here, in the names of the loops around."""
        return at.window[root][end] if root in at.window else self.own_bound(root, end, at)

    def own_bound(self, root: str, end: int, at: _At) -> Expr:
        """The bound that the source gives it; the widest, where it depends on a loop further in."""
        loop = self.nest.root(root)
        assert loop is not None
        wanted = loop.hi if end else loop.lo
        needed = sorted(self.needed(root))
        values = {name: self.coordinate(name, at) for name in needed if name in at.offsets}
        ranges = {
            name: (self.bound(name, 0, at), ix.sub(self.bound(name, 1, at), 1))
            for name in needed
            if name not in values
        }
        if ranges:
            found = interval(wanted, ranges)
            assert found is not None
            wanted = found[end]
        return ix.simplify(substitute(wanted, values)) if values else wanted

    def needed(self, root: str) -> set[str]:
        """The roots in the bounds of a root."""
        loop = self.nest.root(root)
        assert loop is not None
        return {name for name in depends_on(loop) if self.nest.root(name) is not None}

    def fixed(self, axis: str, at: _At) -> _At:
        """`at`, with the bounds of the roots of `axis` what they are when their first loop opens."""
        window, early = dict(at.window), set(at.early)
        for root in self.nest.origins(axis):
            if root not in window:
                window[root] = self.own_bound(root, 0, at), self.own_bound(root, 1, at)
                if self.needed(root) - set(at.offsets):
                    early.add(root)
        return replace(at, window=window, early=frozenset(early))

    def late_bounds(self, name: str, at: _At) -> list[Expr]:
        """What roots that were opened too early must satisfy, now that `name` is known too."""
        conditions: list[Expr] = []
        for root in sorted(at.early):
            needed = {root, *self.needed(root)}
            if name in needed and needed <= set(at.offsets):
                value = self.coordinate(root, at)
                conditions.append(ix.compare(">=", value, self.own_bound(root, 0, at)))
                conditions.append(ix.compare("<", value, self.own_bound(root, 1, at)))
        return conditions

    def extent(self, axis: str, at: _At) -> Expr:
        """How many values an axis has here."""
        if axis in at.extents:
            return at.extents[axis]
        made = self.nest.made_by(axis)
        match made:
            case None:
                return ix.sub(self.bound(axis, 1, at), self.bound(axis, 0, at))
            case Split(_, parent, outer, _, factor):
                if axis != outer:
                    return ix.const(factor)
                return ix.ceildiv(self.extent(parent, at), factor)
            case Fuse(_, outer, inner):
                return ix.mul(self.extent(outer, at), self.extent(inner, at))

    def loop(self, axis: str, parts: Sequence[Open], at: _At) -> tuple[Stmt, ...]:
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
        self, axis: str, lo: Expr, hi: Expr, parts: Sequence[Open], at: _At
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
        return (replace(loop, execution=mark.execution, bound=mark.bound),)

    def opened(self, axis: str, offset: Expr, parts: Sequence[Open], at: _At) -> tuple[Stmt, ...]:
        """What is inside the loop over `axis`, whose offset is now known."""
        known, guards = self.completed(axis, offset, at)
        facts = known.facts
        for guard in guards:
            facts = facts.where(guard)
        known = replace(known, facts=facts, role=Role.WHOLE)
        body = self.block(parts, known)
        body = self.lowering.computed_inside(self.nest, axis, body, facts)
        return (If(all_of(guards), body),) if guards and body else body

    def completed(self, axis: str, offset: Expr, at: _At) -> tuple[_At, tuple[Expr, ...]]:
        """`at` with this offset, and all that follow from it; conditions under which they exist."""
        offsets, guards = dict(at.offsets), []
        pending = [(axis, offset)]
        while pending:
            name, value = pending.pop()
            offsets[name] = value
            here = replace(at, offsets=offsets)
            if name in at.limits:
                limit = ix.compare("<", value, at.limits[name])
                guards += [] if self.always(limit, at) else [limit]
            if self.nest.root(name) is not None:
                guards += [c for c in self.late_bounds(name, here) if not self.always(c, at)]
            for relation in self.nest.relations:
                match relation:
                    case Fuse(_, outer, inner, fused) if fused == name:
                        count = self.extent(inner, here)
                        pending.append((inner, ix.mod(value, count)))
                        pending.append((outer, ix.floordiv(value, count)))
                    case Split(_, parent, outer, inner, factor):
                        if name not in (outer, inner) or parent in offsets:
                            continue
                        if inner not in offsets or (
                            inner not in at.starts and outer not in offsets
                        ):
                            continue
                        start = at.starts.get(inner)
                        if start is None:
                            whole = ix.add(ix.mul(factor, offsets[outer]), offsets[inner])
                            ends = ix.compare("<", whole, self.extent(parent, here))
                            guards += [] if self.always(ends, at) else [ends]
                        else:
                            whole = ix.add(start, offsets[inner])
                        pending.append((parent, whole))
                    case _:
                        pass
        return replace(at, offsets=offsets), tuple(guards)

    def always(self, condition: Expr, at: _At) -> bool:
        if isinstance(condition, Const):
            return bool(condition.value)
        return at.facts.holds(condition)

    def segmented(self, split: Split, parts: Sequence[Open], at: _At) -> tuple[Stmt, ...]:
        """The outer loop of a split, once for its full tiles and once for each kind of tail."""
        extent = self.extent(split.axis, at)
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
        self, split: Split, strategy: Strategy, extent: Expr, parts: Sequence[Open], at: _At
    ) -> tuple[Stmt, ...]:
        """The segments that `strategy` gives."""
        body: tuple[Stmt, ...] = ()
        for segment in segments(strategy, extent, split.factor):
            if segment.when is not None and at.facts.holds(Logic("not", (segment.when,))):
                continue
            body += self.segment(split, segment, parts, at)
        return body

    def divides(self, split: Split, extent: Expr, at: _At) -> bool:
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

    def tile_leaves(self) -> frozenset[str]:
        """The loops that an intrinsic runs."""
        covered = self.nest.covered
        if covered is None:
            return frozenset()
        return frozenset(
            leaf
            for part in self.nest.parts
            if covered.axis in part.loops
            for leaf in part.loops[part.loops.index(covered.axis) :]
        )

    def plain_of(
        self,
        split: Split,
        count: Expr,
        start: Expr,
        parts: Sequence[Open],
        at: _At,
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
        self, split: Split, segment: Segment, parts: Sequence[Open], at: _At
    ) -> tuple[Stmt, ...]:
        """The tiles of one segment."""
        bound: dict[str, Expr] = {
            let.name: Var(self.names.fresh(let.name.strip("#"))) for let in segment.lets
        }
        facts = at.facts if segment.when is None else at.facts.where(segment.when)
        tall = segment.height if segment.guarded is None else ix.const(segment.guarded)
        shown = substitute(segment.start, bound), substitute(tall, bound)
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
        if segment.count is None or ix.literal(segment.count) == 1:
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

    # Tiles: what an intrinsic runs, and copies between memories.

    def is_tile(self, first: str, parts: Sequence[Open]) -> bool:
        """Whether the loops from `first` inwards are one tile."""
        covered = self.nest.covered
        if covered is not None:
            return covered.axis == first
        if not self.nest.copies or self.nest.mark(first).execution is not Execution.SERIAL:
            return False
        return all(
            self.root_below(leaf) is not None
            and self.nest.mark(leaf).bound is None
            and not any(self.lowering.nests.attached(self.nest.name, leaf))
            for loops, _ in parts
            for leaf in loops
        ) and all(self.distinct(loops) for loops, _ in parts)

    def distinct(self, loops: Sequence[str]) -> bool:
        roots = [self.root_below(leaf) for leaf in loops]
        return len(set(roots)) == len(roots)

    def root_below(self, leaf: str) -> str | None:
        """The root of which `leaf` is the innermost part: consecutive values of it."""
        match self.nest.made_by(leaf):
            case None:
                return leaf
            case Split(_, parent, _, inner) if inner == leaf:
                return self.root_below(parent)
            case _:
                return None

    def base(self, leaf: str, at: _At) -> Expr:
        """The value of the root of `leaf` where the offset of `leaf` is 0."""
        made = self.nest.made_by(leaf)
        if made is None:
            return self.bound(leaf, 0, at)
        assert isinstance(made, Split)
        start = at.starts.get(leaf)
        if start is None:
            start = ix.mul(made.factor, at.offsets[made.outer])
        return ix.add(self.base(made.axis, at), start)

    def end(self, leaf: str, at: _At) -> Expr:
        """The least upper bound of the root of `leaf` that holds for all of its ancestors."""
        made = self.nest.made_by(leaf)
        if made is None:
            return self.bound(leaf, 1, at)
        assert isinstance(made, Split)
        mine = ix.add(self.base(leaf, at), self.extent(leaf, at))
        above = self.end(made.axis, at)
        return (
            above
            if self.always(ix.compare("<=", above, mine), at)
            else at.facts.extreme("min", mine, above)
        )

    def tiles(self, parts: Sequence[Open], at: _At) -> tuple[Stmt, ...]:
        """Each part as one tile; a start and its updates together where an intrinsic does both."""
        covered = self.nest.covered
        if covered is None:
            return tuple(self.tile(loops, [part], None, at) for loops, part in parts)
        kernel, body = covered.intrinsic, []
        if not self.fits(parts, at):
            plain = replace(self.nest, covered=None)
            return _Nest(self.lowering, plain).block(parts, at)
        everything = max((loops for loops, _ in parts), key=len)
        if len(parts) > 1:
            return (self.tile(everything, [part for _, part in parts], kernel.name, at),)
        for loops, part in parts:
            updates = part.stores[0].reduce is not None
            name = kernel.update if updates else kernel.reset
            body.append(self.tile(loops, [part], name or kernel.name, at))
        return tuple(body)

    def fits(self, parts: Sequence[Open], at: _At) -> bool:
        """Whether every tile has its declared extents, or is padded to them."""
        covered = self.nest.covered
        assert covered is not None
        extents = dict(covered.extents)
        for loops, _ in parts:
            for leaf in loops:
                root = self.root_below(leaf)
                assert root is not None
                have = ix.sub(self.end(leaf, at), self.base(leaf, at))
                if self.always(ix.compare("==", have, extents[root]), at):
                    continue
                made = self.nest.made_by(leaf)
                tail = made.tail if isinstance(made, Split) else None
                if tail not in (None, PAD, MASK):
                    return False
        return True

    def tile(
        self, loops: Sequence[str], parts: Sequence[Part], microkernel: str | None, at: _At
    ) -> Tile:
        """One tile over the roots below `loops`, those that only a reduction has inside it."""
        covered = self.nest.covered
        extents = dict(covered.extents) if covered is not None else {}
        stored = {
            name for part in parts for s in part.stores for i in s.index for name in variables(i)
        }
        axes: list[TileAxis] = []
        names: list[str] = []
        where: list[Expr] = []
        terms: list[Expr] = []
        reductions: list[tuple[str, Expr, Expr]] = []
        offsets = dict(at.offsets)
        form = Form.FULL
        for leaf in loops:
            root = self.root_below(leaf)
            assert root is not None
            at = self.fixed(leaf, at)
            start, end = self.base(leaf, at), self.end(leaf, at)
            extent: Expr = ix.sub(end, start)
            name = self.names.fresh(root)
            names.append(name)
            offsets[root] = ix.sub(Var(name), self.bound(root, 0, at))
            if root in extents:
                inside = ix.compare("==", extent, extents[root])
                if not self.always(inside, at):
                    made = self.nest.made_by(leaf)
                    asked = made.tail if isinstance(made, Split) else None
                    form = Form.MASK if asked == MASK and form is not Form.PAD else Form.PAD
                    (where if root in stored else terms).append(ix.compare("<", Var(name), end))
                extent = ix.const(extents[root])
            if root in stored:
                axes.append(TileAxis(name, start, extent))
            else:
                reductions.append((name, start, ix.add(start, extent)))
        inner = replace(at, offsets=offsets)
        body: tuple[Stmt, ...] = ()
        for part in parts:
            stmts = self.leaf(part, inner)
            if part.stores[0].reduce is not None:
                if terms:
                    stmts = _masked(stmts, all_of(terms))
                for name, lo, hi in reversed(reductions):
                    stmts = (For(name, lo, hi, stmts),)
            body += stmts
        for name in names:
            self.names.release(name)
        only = all_of(where) if where else None
        if only is None and terms:
            form = Form.FULL
        return Tile(tuple(axes), body, only, form, at.role, microkernel)


def _started(start: Expr, tile: Expr) -> Expr:
    return ix.simplify(substitute(start, {ITER.name: tile}))


def _masked(body: tuple[Stmt, ...], inside: Expr) -> tuple[Stmt, ...]:
    """Updates whose term is neutral where `inside` does not hold: -0.0 leaves every float sum."""
    made: list[Stmt] = []
    for stmt in body:
        assert isinstance(stmt, Store)
        assert stmt.reduce is not None
        dtype = dtype_of(stmt.value)
        nothing = Const(identity(stmt.reduce, dtype), dtype)
        made.append(replace(stmt, value=Select(inside, stmt.value, nothing)))
    return tuple(made)
