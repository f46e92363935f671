"""Offsets of axes: a place inside the loops of a nest goes in; what an axis is there comes out.

Every axis that a primitive made is a number from 0; a root is its lower bound plus such an offset.
Going inwards, an offset is known as soon as the loops that it is made of are open::

    y = lo + factor*yo + yi         split           fused // extent(b), fused % extent(b)    fuse
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Const, Expr, substitute, variables
from offcut.core.intervals import Ends, ends
from offcut.core.program import Stmt
from offcut.core.text.printer import format_expr
from offcut.core.traversal import substitute_coordinates
from offcut.errors import PartitionError
from offcut.partition import Segment
from offcut.polyhedral import Facts
from offcut.schedule.apply.staged_form import Nest, Part
from offcut.schedule.decisions import Fuse, SplitPair


@dataclass(frozen=True)
class At:
    """A place inside the loops of a nest.

    facts    what is known there
    window   (lo, hi) of the roots that a window bounds or a loop has opened, in the names of the
             loops around
    early    the roots opened outside of a loop that their bounds depend on
    offsets  the axes whose value is known
    starts   of an axis that a segment covers: where it starts in its parent
    extents  likewise, and of the roots: how far it reaches
    segments  of a root that is split: the innermost one around
    limits   of an axis that a predicated segment covers: only offsets below are instances
    """

    facts: Facts
    window: Mapping[str, tuple[Expr, Expr]]
    early: frozenset[str] = frozenset()
    offsets: Mapping[str, Expr] = field(default_factory=dict)
    starts: Mapping[str, Expr] = field(default_factory=dict)
    extents: Mapping[str, Expr] = field(default_factory=dict)
    limits: Mapping[str, Expr] = field(default_factory=dict)
    segments: Mapping[str, Segment] = field(default_factory=dict)

    def replace(self, **changes: Any) -> At:
        """Return the place with fields changed, as `dataclasses.replace` does, which takes twice as many calls."""
        return At(**{**vars(self), **changes})


# (loops of a part that are not open yet, the part)
Open = tuple[tuple[str, ...], Part]


class Offsets:
    """The bounds, extents and values of the axes of `nest`, as far as they are known at a place."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest

    def leaf(self, part: Part, at: At) -> tuple[Stmt, ...]:
        """Return the statements of `part`, with the values of the roots that are known."""
        roots = (root.name for root in self.nest.roots)
        values = {name: self.coordinate(name, at) for name in roots if name in at.offsets}
        return substitute_coordinates(part.body, values)

    def coordinate(self, root: str, at: At) -> Expr:
        """Return the value of a root whose offset is known."""
        return ix.simplify(ix.add(self.root_bound(root, 0, at), at.offsets[root]))

    def root_bound(self, root: str, end: int, at: At) -> Expr:
        """Return the lower (0) or upper (1) bound of a root here, in the names of the loops around."""
        return at.window[root][end] if root in at.window else self.own_bound(root, end, at)

    def own_bound(self, root: str, end: int, at: At) -> Expr:
        """Return the bound that the source gives it; the widest, where it depends on a loop further in."""
        return self.ends_of_bound(root, end, at, self.whole_loop)[end]

    def ends_of_bound(self, root: str, end: int, at: At, reach: Callable[[str, At], Ends]) -> Ends:
        """Return the least and the greatest value of the lower (0) or upper (1) bound of a root.

        reach  the least and the greatest value of a root whose value is not known here
        """
        loop = self.nest.root(root)
        assert loop is not None
        return self.ends_of(loop.hi if end else loop.lo, at, reach)

    def ends_of(self, bound: Expr, at: At, reach: Callable[[str, At], Ends]) -> Ends:
        """Return the least and the greatest value of an expression in the names of roots; `reach` as above, in the names of roots further out.

        Raises PartitionError for an expression that is not quasi-affine in one of them.
        """
        least = greatest = bound
        names = [root.name for root in self.nest.roots if root.name not in at.offsets]
        for name in reversed(names):
            if name in variables(least) | variables(greatest):
                between = reach(name, at)
                least, greatest = _over(least, name, between)[0], _over(greatest, name, between)[1]
        open_roots = sorted(self.roots_of(bound) & set(at.offsets))
        values = {name: self.coordinate(name, at) for name in open_roots}
        if values:
            least, greatest = (ix.simplify(substitute(one, values)) for one in (least, greatest))
        return least, greatest

    def whole_loop(self, root: str, at: At) -> Ends:
        """Return the least and the greatest value of a root."""
        return self.root_bound(root, 0, at), ix.sub(self.root_bound(root, 1, at), 1)

    def open_tile(self, root: str, at: At) -> Ends:
        """Return the least and the greatest value of a root in the innermost tile of it that is open; in all of its loop if none is."""
        axis: str | None = None
        origin = self.nest.taken_apart(root)
        while isinstance(origin, SplitPair) and origin.inner in at.starts:
            axis = origin.inner
            origin = self.nest.taken_apart(axis)
        if axis is None:
            return self.whole_loop(root, at)
        return self.base(axis, at), ix.sub(self.end(axis, at), 1)

    def roots_in_bounds(self, root: str) -> set[str]:
        """Return the roots in the bounds of a root."""
        loop = self.nest.root(root)
        assert loop is not None
        return self.roots_of(loop.lo) | self.roots_of(loop.hi)

    def roots_of(self, expr: Expr) -> set[str]:
        """Return the roots in an expression."""
        return {name for name in variables(expr) if self.nest.root(name) is not None}

    def with_root_bounds(self, axis: str, at: At) -> At:
        """Return `at`, with the bounds of the roots of `axis` what they are when their first loop opens."""
        unknown = [root for root in self.nest.origins(axis) if root not in at.window]
        if not unknown:
            return at
        window, early = dict(at.window), set(at.early)
        for root in unknown:
            window[root] = self.own_bound(root, 0, at), self.own_bound(root, 1, at)
            if self.roots_in_bounds(root) - set(at.offsets):
                early.add(root)
        return at.replace(window=window, early=frozenset(early))

    def late_bounds(self, name: str, at: At) -> list[Expr]:
        """What roots that were opened too early must satisfy, now that `name` is known too."""
        conditions: list[Expr] = []
        for root in sorted(at.early):
            needed = {root, *self.roots_in_bounds(root)}
            if name in needed and needed <= set(at.offsets):
                value = self.coordinate(root, at)
                conditions.append(ix.compare(">=", value, self.own_bound(root, 0, at)))
                conditions.append(ix.compare("<", value, self.own_bound(root, 1, at)))
        return conditions

    def extent(self, axis: str, at: At) -> Expr:
        """Return how many values an axis has here."""
        if axis in at.extents:
            return at.extents[axis]
        origin = self.nest.made_by(axis)
        match origin:
            case None:
                return ix.sub(self.root_bound(axis, 1, at), self.root_bound(axis, 0, at))
            case SplitPair(parent, outer):
                if axis != outer:
                    return ix.const(origin.factor)
                return ix.ceildiv(self.extent(parent, at), origin.factor)
            case Fuse(_, outer, inner):
                return ix.mul(self.extent(outer, at), self.extent(inner, at))

    def with_offset(self, axis: str, offset: Expr, at: At) -> tuple[At, tuple[Expr, ...]]:
        """Return `at` with this offset, and all that follow from it; conditions under which they exist."""
        offsets, guards = dict(at.offsets), []
        here = at.replace(offsets=offsets)
        pending = [(axis, offset)]
        while pending:
            name, value = pending.pop()
            offsets[name] = value
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
                    case SplitPair(parent, outer, inner):
                        if name not in (outer, inner) or parent in offsets:
                            continue
                        if inner not in offsets or (
                            inner not in at.starts and outer not in offsets
                        ):
                            continue
                        start = at.starts.get(inner)
                        if start is None:
                            whole = ix.add(ix.mul(relation.factor, offsets[outer]), offsets[inner])
                            ends = ix.compare("<", whole, self.extent(parent, here))
                            guards += [] if self.always(ends, at) else [ends]
                        else:
                            whole = ix.add(start, offsets[inner])
                        pending.append((parent, whole))
                    case _:
                        pass
        return here, tuple(guards)

    def always(self, condition: Expr, at: At) -> bool:
        """Return whether a condition is known to hold."""
        if isinstance(condition, Const):
            return bool(condition.value)
        return at.facts.holds(condition)

    def base(self, leaf: str, at: At) -> Expr:
        """Return the value of the root of `leaf` where the offset of `leaf` is 0."""
        origin = self.nest.made_by(leaf)
        if origin is None:
            return self.root_bound(leaf, 0, at)
        assert isinstance(origin, SplitPair)
        start = at.starts.get(leaf)
        if start is None:
            start = ix.mul(origin.factor, at.offsets[origin.outer])
        return ix.add(self.base(origin.axis, at), start)

    def end(self, leaf: str, at: At) -> Expr:
        """Return the least upper bound of the root of `leaf` that holds for all of its ancestors."""
        origin = self.nest.made_by(leaf)
        if origin is None:
            return self.root_bound(leaf, 1, at)
        assert isinstance(origin, SplitPair)
        mine = ix.add(self.base(leaf, at), self.extent(leaf, at))
        above = self.end(origin.axis, at)
        return (
            above
            if self.always(ix.compare("<=", above, mine), at)
            else at.facts.extreme("min", mine, above)
        )


def _over(bound: Expr, name: str, between: Ends) -> Ends:
    """Return the least and the greatest value of a bound while a loop around it runs."""
    extremes = ends(bound, {name: between})
    if extremes is None:
        atoms = (atom for atom, _ in ix.to_linear(bound).terms)
        open_ = next(atom for atom in atoms if ends(atom, {name: between}) is None)
        raise PartitionError(
            "partition",
            f"cannot tile over {name}",
            because=f"the bound {format_expr(open_)} is not quasi-affine in it",
            help=(f"cut {name} alone",),
        )
    return extremes
