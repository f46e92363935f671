"""Tokens between units that run side by side, each in its own order: who tells whom, and in which iterations.

An instance of a leaf must wait for the last one of another unit, before it in the order of the text, that
touches what it touches, one of them writing. With ``D = { (a, b) : b must wait for a }`` between two units,

    latest(b)  = lexmax { a : (a, b) in D }
    covered(b) : some b' < b of the same unit has latest(b') >= latest(b)
    pops       = { b in ran D : not covered(b) }            pushes = latest(pops)

On `pops`, `latest` is one-to-one and rises with the order: the k-th push is for the k-th pop, as in a queue. So
there are as many of one as of the other at every size, and no unit waits for what comes later. A dependence that
has no token of its own is covered by an earlier one, since a unit keeps its order. No token is spare: each pop
waits for what nothing before it has waited for.

That is shown again of the conditions that are given, read as sets (`_Tokens.check`).

A queue of tokens has room for so many. Where more never lie in it while all units run in the order of the text,
nothing stands still, however few instructions wait for a unit: of what has not run, the first finds its tokens, and
room for those that it pushes.

What is touched is told by regions, each with a part for every virtual thread: a region is as one word. Bounds of
loops over sizes alone are parameters of their own, whatever the sizes: the answer holds for more programs than
were asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import all_of
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Var,
    children,
    dtype_of,
    rebuild,
    substitute,
    variables,
    walk,
)
from offcut.core.program import Size
from offcut.core.sizes import MAX_SIZE
from offcut.errors import PartitionError
from offcut.polyhedral.affine import Space
from offcut.polyhedral.limit import bounded
from offcut.polyhedral.units.issued import Issued
from offcut.polyhedral.units.room import has_room, most

_DIM, _PARAM, _DIV = isl.dim_type.set, isl.dim_type.param, isl.dim_type.div


@dataclass(frozen=True, slots=True)
class Queue:
    """The tokens from one unit to a neighbour.

    pushes, pops  by the number of a leaf, in which of its instances; a leaf that is not there never does
    fits          whether its tokens are shown to find room, while units run in the order of the text
    """

    source: int
    target: int
    pushes: Mapping[int, Expr]
    pops: Mapping[int, Expr]
    fits: bool = True


def queues(leaves: Sequence[Issued], sizes: Sequence[Size], room: int) -> tuple[Queue, ...]:
    """The tokens that make units keep the order of the text, wherever they touch the same.

    room  tokens that a queue has room for, 1 or more

    Raises PartitionError where they are not shown to, or that takes more than bounded work.
    """
    with bounded("compile", "cannot find the tokens between units"):
        return _Tokens(leaves, sizes, room).made()


@dataclass
class _Tokens:
    leaves: Sequence[Issued]
    sizes: Sequence[Size]
    room: int
    bounds: dict[str, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = {size.name for size in self.sizes}
        exprs = [e for leaf in self.leaves for _, lo, hi in leaf.loops for e in (lo, hi)]
        for expr in sorted(exprs, key=lambda e: variables(e) <= self.names):
            self.bound(expr)  # those that depend on loops first: others are told by their parts
        self.own = [self.abstracted(leaf) for leaf in self.leaves]
        self.space = Space(tuple(Size(name, min=-MAX_SIZE) for name in self.bounds))
        self.depth = max((len(leaf.time) for leaf in self.leaves), default=0)
        self.times = {leaf.number: self.time_of(leaf) for leaf in self.own}

    def abstracted(self, leaf: Issued) -> Issued:
        """The leaf with each bound over sizes alone as a parameter."""
        loops = tuple((name, self.bound(lo), self.bound(hi)) for name, lo, hi in leaf.loops)
        where = tuple(map(self.bound, leaf.where))
        return replace(leaf, loops=loops, where=where)

    def bound(self, expr: Expr) -> Expr:
        """An expression whose parts over sizes alone are parameters, or what is known of them."""

        used = variables(expr)
        if not used & self.names:
            return expr
        if not used <= self.names or dtype_of(expr) != "index":
            return ix.folded(rebuild(expr, tuple(map(self.bound, children(expr)))))
        form = ix.linear(expr)
        parts = (ix.mul(factor, self.parameter(atom)) for atom, factor in form.terms)
        return ix.add(*parts, form.const)

    def parameter(self, atom: Expr) -> Expr:
        """The parameter that stands for an expression; a quotient of one that is known is one of it."""
        for name, known in self.bounds.items():
            if known == atom:
                return Var(name)
        if isinstance(atom, Binary) and any(known in walk(atom) for known in self.bounds.values()):
            made = rebuild(atom, tuple(map(self.bound, children(atom))))
            if not variables(made) & self.names:
                return made
        name = f"bound{len(self.bounds)}"
        self.bounds[name] = atom
        return Var(name)

    def time_of(self, leaf: Issued) -> isl.Set:
        """When its instances run."""
        axes = {name: f"t{at}" for at, name in enumerate(leaf.time) if isinstance(name, str)}
        said = [
            f"t{at} = {value}"
            for at, value in enumerate([*leaf.time, *[0] * (self.depth - len(leaf.time))])
            if isinstance(value, int)
        ]
        for name, lo, hi in leaf.loops:
            for condition in (Compare("<=", lo, Var(name)), Compare("<", Var(name), hi)):
                text = self.space.condition(condition, axes)
                if text is not None:
                    said.append(text)
        said += [t for t in (self.space.condition(c, axes) for c in leaf.where) if t is not None]
        dims = ", ".join(f"t{at}" for at in range(self.depth))
        said.append(self.space.facts)
        return isl.Set(f"{self.space.parameters}{{ [{dims}] : {' and '.join(said)} }}")

    def made(self) -> tuple[Queue, ...]:
        """Every queue, one for each pair of neighbours and direction."""
        units = sorted({leaf.unit for leaf in self.own})
        found = []
        for source in units:
            for target in units:
                if abs(source - target) == 1:
                    found.append(self.queue(source, target))
        return tuple(found)

    def queue(self, source: int, target: int) -> Queue:
        """The tokens from one unit to another."""
        waits = self.waits(source, target)
        if waits.is_empty():
            return Queue(source, target, {}, {})
        latest = waits.reverse().lexmax()
        pops = latest.domain().subtract(self.covered(latest)).coalesce()
        pushes = latest.intersect_domain(pops).range().coalesce()
        told = self.told(pushes, source), self.told(pops, target)
        self.check(latest, self.times_of(told[0]), self.times_of(told[1]))
        few = most(self.own, source, target) <= self.room
        fits = few or has_room(latest.intersect_domain(pops), self.room)
        return Queue(source, target, self.named(told[0]), self.named(told[1]), fits)

    def check(self, latest: isl.Map, pushes: isl.Set, pops: isl.Set) -> None:
        """Theorem: each pop is for one push, in order, and each dependence has a pair of them between its ends:

        for all b in ran D there is q <= b in `pops` with latest(q) >= latest(b) >= a of each (a, b) in D
        """
        pairs = latest.intersect_domain(pops)
        in_turn = isl.Map.lex_lt(pops.get_space())
        risen = pairs.reverse().apply_range(in_turn).apply_range(pairs)
        late = latest.apply_range(isl.Map.lex_le(pops.get_space())).apply_range(pairs.reverse())
        told = late.intersect(isl.Map.lex_ge(pops.get_space())).domain()
        holds = (
            pairs.domain().is_equal(pops)
            and pairs.range().is_equal(pushes)
            and pairs.is_injective()
            and risen.is_subset(in_turn)
        )
        left = latest.intersect_domain(latest.domain().subtract(told))
        if holds and left.is_empty():
            return
        what = "pushes and pops do not go in pairs" if left.is_empty() else self.untold(left)
        raise PartitionError(
            "compile", "cannot give units tokens that keep their order", because=what
        )

    def untold(self, left: isl.Map) -> str:
        """A dependence that no token covers, from who waits to the one that it waits for, in words."""
        ends = left.range(), left.domain()
        numbers = [
            next(n for n, time in self.times.items() if not time.intersect(end).is_empty())
            for end in ends
        ]
        return f"statement {numbers[1]} must wait for statement {numbers[0]}, and no token says so"

    def times_of(self, told: Mapping[int, Expr]) -> isl.Set:
        """The instances of leaves of which conditions hold."""
        found = isl.Set.empty(self.times[self.own[0].number].get_space())
        dims = ", ".join(f"t{at}" for at in range(self.depth))
        for leaf in (leaf for leaf in self.own if leaf.number in told):
            axes = {name: f"t{at}" for at, name in enumerate(leaf.time) if isinstance(name, str)}
            text = self.space.condition(told[leaf.number], axes)
            assert text is not None
            holds = isl.Set(f"{self.space.parameters}{{ [{dims}] : {text} }}")
            found = found.union(self.times[leaf.number].intersect(holds))
        return found

    def named(self, told: Mapping[int, Expr]) -> dict[int, Expr]:
        """Conditions with the bounds that parameters stand for."""
        bounds = dict(self.bounds)
        return {leaf: ix.folded(substitute(said, bounds)) for leaf, said in told.items()}

    def waits(self, source: int, target: int) -> isl.Map:
        """``{ a -> b }``: b, of `target`, must wait for a, of `source`."""
        space = self.times[self.own[0].number].get_space()
        before = isl.Map.lex_lt(space)
        found = isl.Map.empty(before.get_space())
        for one in (leaf for leaf in self.own if leaf.unit == source):
            for other in (leaf for leaf in self.own if leaf.unit == target):
                for ones, others in _conflicts(one, other):
                    pair = before.intersect_domain(self.times[one.number])
                    pair = pair.intersect_range(self.times[other.number])
                    if ones is not None and others is not None:
                        a, b = one.time.index(ones), other.time.index(others)
                        pair = pair.equate(isl.dim_type.in_, a, isl.dim_type.out, b)
                    found = found.union(pair)
        return found.coalesce()

    def covered(self, latest: isl.Map) -> isl.Set:
        """Those before which the unit has waited for as late an instance."""
        space = latest.domain().get_space()
        later = isl.Map.lex_le(latest.range().get_space())
        alike = latest.apply_range(later).apply_range(latest.reverse())
        return alike.intersect(isl.Map.lex_gt(space)).domain()

    def told(self, times: isl.Set, unit: int) -> dict[int, Expr]:
        """By leaf, the condition under which its instances run at these times."""
        found: dict[int, Expr] = {}
        for leaf in (leaf for leaf in self.own if leaf.unit == unit):
            mine = self.times[leaf.number]
            part = times.intersect(mine)
            if part.is_empty():
                continue
            names = [name if isinstance(name, str) else None for name in leaf.time]
            names += [None] * (self.depth - len(names))
            shorter = part.coalesce().gist(mine).coalesce()
            found[leaf.number] = _condition(shorter, names, list(self.bounds))
        return found


def _conflicts(one: Issued, other: Issued) -> set[tuple[str | None, str | None]]:
    """The threads of what two leaves touch in common, one of them writing."""
    return {
        (a.thread, b.thread)
        for a in one.touches
        for b in other.touches
        if a.region == b.region and (a.writes or b.writes)
    }


def _condition(points: isl.Set, names: Sequence[str | None], sizes: Sequence[str]) -> Expr:
    """A set as a condition on its coordinates and parameters."""
    options: list[Expr] = []
    for part in points.compute_divs().get_basic_sets():
        said: list[Expr] = []
        for constraint in part.get_constraints():
            value = _expr(constraint.get_aff(), names, sizes)
            said.append(Compare("==" if constraint.is_equality() else ">=", value, ix.const(0)))
        if not said:
            return Const(1, "bool")
        options.append(all_of(said))
    if not options:
        return Const(0, "bool")
    return options[0] if len(options) == 1 else Logic("or", tuple(options))


def _expr(aff: isl.Aff, names: Sequence[str | None], sizes: Sequence[str]) -> Expr:
    """An affine expression of integers; its divisions are floors."""
    scale = aff.get_denominator_val()
    total: Expr = ix.const(int((aff.get_constant_val() * scale).to_python()))

    def factor(kind: isl.dim_type, at: int) -> int:
        return int((aff.get_coefficient_val(kind, at) * scale).to_python())

    for at, size in enumerate(sizes):
        total = ix.add(total, ix.mul(factor(_PARAM, at), Var(size)))
    for at, name in enumerate(names):
        times = factor(isl.dim_type.in_, at)
        if times and name is not None:
            total = ix.add(total, ix.mul(times, Var(name)))
    for at in range(aff.dim(_DIV)):
        times = factor(_DIV, at)
        if times:
            inner = aff.get_div(at)
            whole = int(inner.get_denominator_val().to_python())
            total = ix.add(total, ix.mul(times, ix.floordiv(_expr(inner, names, sizes), whole)))
    return total


__all__ = ["Queue", "queues"]
