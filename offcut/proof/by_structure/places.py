"""Which coordinates of the source the nodes of an emitted program bind, and whether they run its loops.

Places and the loops of the source in; nothing out where the places run the loops' coordinates.

Each rule is a theorem for all sizes: a loop that carries a dependence runs its coordinates in its
order, others may run theirs in any order, and what is run twice says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.analysis import Analysis
from offcut.core.conditions import conditional_term, conjunction, conjuncts, negate
from offcut.core.expr import (
    Binary,
    Compare,
    Expr,
    Load,
    Logic,
    Var,
    reads_memory,
    substitute,
    variables,
    walk,
)
from offcut.core.program import For, Form, If, Let, Size, Stmt, Store, Tile, TileAxis, blocks
from offcut.core.program import walk as statements
from offcut.core.traversal import all_bound_names, expressions
from offcut.describe.computation import StageAxis
from offcut.polyhedral import INDEX_LIMIT, Facts, Space
from offcut.polyhedral.facts import equal
from offcut.proof.by_axis.coverage import Leaf, fills, product_of, prove_coverage
from offcut.proof.by_axis.strips import Strip
from offcut.proof.by_structure.value_equality import has_no_effect

_MOST_STEPS = 8


class NotStructural(Exception):
    """The emitted program has another shape than its source, or the proof does not reach it."""


@dataclass(frozen=True)
class Place:
    """A node of the emitted program that binds coordinates of the source, and the way to it.

    path   loops over tiles, bounded values, and conditions, outermost first
    axes   (coordinate, first, one past the last)
    checked  whether its body is known to be that of the source
    """

    path: tuple[For | Let | Expr, ...]
    axes: tuple[tuple[str, Expr, Expr], ...]
    where: tuple[Expr, ...]
    body: tuple[Stmt, ...]
    form: Form
    together: bool
    checked: bool = False

    @property
    def leaf(self) -> Leaf:
        """The same as a tile of a product."""
        axes = tuple(TileAxis(name, lo, ix.sub(hi, lo)) for name, lo, hi in self.axes)
        where = conjunction(self.where) if self.where else None
        return Leaf(self.path, Tile(axes, self.body, where, self.form))

    @property
    def bound_names(self) -> frozenset[str]:
        """The names that it binds, and those of the loops on the way."""
        loops = (entry.iter for entry in self.path if isinstance(entry, For))
        return frozenset((*loops, *(name for name, _, _ in self.axes)))

    def is_loop(self, loop: For) -> bool:
        """Whether it is `loop` itself, all that the bounds say."""
        return not (self.path or self.where) and self.axes == ((loop.iter, loop.lo, loop.hi),)

    @property
    def lets(self) -> tuple[Let, ...]:
        """The bounded values around it."""
        return tuple(entry for entry in self.path if isinstance(entry, Let))

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """The conditions around it."""
        return tuple(entry for entry in self.path if not isinstance(entry, For | Let))

    def inside(self, at: Facts, values: Mapping[str, Expr]) -> Facts:
        """What is known in its body, with these bounded values fixed."""

        def fixed(expr: Expr) -> Expr:
            return ix.fold_indices(substitute(expr, values)) if values else expr

        for entry in self.path:
            match entry:
                case For():
                    at = at.loop(entry.iter, fixed(entry.lo), fixed(entry.hi))
                case Let(name, lo, hi, value):
                    if name not in values:
                        at = at.loop(name, ix.const(lo), ix.const(hi))
                        continue
                    for condition in equal(value, values[name]):
                        at = at.where(condition)
                case _:
                    at = at.where(fixed(entry))
        for name, first, end in self.axes:
            at = at.loop(name, fixed(first), fixed(end))
        for condition in self.where:
            at = at.where(fixed(condition))
        return at


def tile_at(tile: Tile, path: tuple[For | Let | Expr, ...]) -> Place:
    """A tile as a place."""
    bounds = tuple((a.iter, a.start, ix.add(a.start, a.extent)) for a in tile.axes)
    where = () if tile.where is None else conjuncts(tile.where)
    return Place(path, bounds, where, tile.body, tile.form, True)


def tiles_of(stmt: Stmt, path: tuple[For | Let | Expr, ...], names: set[str]) -> Iterator[Place]:
    """The innermost nodes that bind any of `names`, with the loops over others of them around."""
    match stmt:
        case For() if stmt.iter in names and names.isdisjoint(all_bound_names(stmt) - {stmt.iter}):
            axes = ((stmt.iter, stmt.lo, stmt.hi),)
            yield Place(path, axes, (), stmt.body, Form.FULL, False)
        case For() | Let():
            for inner in stmt.body:
                yield from tiles_of(inner, (*path, stmt), names)
        case If(condition, then, other) if not reads_memory(condition):
            for holds, block in ((True, then), (False, other)):
                for inner in block:
                    way = (*path, *conjuncts(condition, holds))
                    yield from tiles_of(inner, way, names)
        case Tile():
            yield tile_at(stmt, path)
        case _:
            raise NotStructural("a statement among the tiles of a band")


def without_guard(place: Place, loop: For) -> Place:
    """Return `place` with the condition in which its body stands as a part of it, where `loop`, which it runs, has no such condition."""
    if place.is_loop(loop):  # the condition is one of what it runs
        return place
    names = {name for name, _, _ in place.axes}
    match place.body, loop.body:
        case (If(condition, _, ()),), (If(same),) if condition == same:
            return place
        case (If(condition, then, ()),), _ if not reads_memory(condition) and all(
            isinstance(part, Compare) and variables(part) & names for part in conjuncts(condition)
        ):
            return replace(place, where=(*place.where, *conjuncts(condition)), body=then)
        case _:
            return place


def without_mask(place: Place, at: Facts) -> Place:
    """`place`, where each term is masked to nothing outside a condition: only where that holds."""
    stores = [s for s in statements(place.body) if isinstance(s, Store)]
    if place.together:
        return place
    if any(reads_memory(part) for store in stores for part in store.index):
        return place
    terms = [conditional_term(store.value, store.reduce) for store in stores]
    masks = {term[0] for term in terms if term is not None}
    if len(masks) == 1 and None not in terms:
        (mask,) = masks
        names = {name for name, _, _ in place.axes}
        known = place.inside(at, {}).expresses(mask)
        if known and isinstance(mask, Compare) and variables(mask) & names:
            return replace(place, where=(*place.where, mask))
    return place


@dataclass(frozen=True)
class Steps:
    """How a loop of the source may be run several coordinates at a time, by `emitted`."""

    loop: For
    emitted: Sequence[Stmt]
    at: Facts

    def counts(self) -> tuple[int, ...]:
        """The divisors that the body of the loop mentions."""
        divisors: dict[int, None] = {}
        exprs = (expr for stmt in statements(self.loop.body) for expr in expressions(stmt))
        for node in (node for expr in exprs for node in walk(expr)):
            if isinstance(node, Binary) and node.op in ("//", "%"):
                divisor = ix.literal_value(node.b)
                if divisor is not None and 1 < divisor <= _MOST_STEPS:
                    divisors[divisor] = None
        return tuple(divisors)

    def starts(self, stepped: For, count: int) -> tuple[Expr, ...]:
        """The coordinate where the counter of `stepped` is 0, if it runs from the start of the loop on,
        after another part of it, or before one.
        """
        first_values: dict[Expr, None] = {self.loop.lo: None}
        before, length = ix.mul(count, stepped.lo), ix.mul(count, stepped.hi)
        for first, end in _ranges(self.emitted, self.loop.iter, {}, {}):
            first_values |= dict.fromkeys((end, ix.sub(end, before), ix.sub(first, length)))
        return tuple(first_values)


def _ranges(
    body: Sequence[Stmt], name: str, first: Mapping[str, Expr], last: Mapping[str, Expr]
) -> Iterator[tuple[Expr, Expr]]:
    """Where loops and tiles over `name` start and end, with the loops around at `first` and `last`."""
    for stmt in body:
        match stmt:
            case For(one, lo, hi) if one == name:
                yield ix.fold_indices(substitute(lo, first)), ix.fold_indices(substitute(hi, last))
            case For(one, lo, hi, inner):
                low = ix.fold_indices(substitute(lo, first))
                high = ix.fold_indices(substitute(ix.sub(hi, 1), last))
                yield from _ranges(inner, name, {**first, one: low}, {**last, one: high})
            case Tile(axes):
                for axis in axes:
                    if axis.iter == name:
                        end = ix.add(axis.start, axis.extent)
                        start = ix.fold_indices(substitute(axis.start, first))
                        yield start, ix.fold_indices(substitute(end, last))
            case _:
                for inside in blocks(stmt):
                    yield from _ranges(inside, name, first, last)


def check_in_turn(
    loop: For, places: Sequence[Place], at: Facts, program: Analysis, *, ordered: bool
) -> None:
    """Refuse places that are not one loop: each of its coordinates once, or idle where it is left out.

    program    the source
    ordered    whether the loop carries a dependence, so that its coordinates ascend

    Raises NotStructural, or NotSeparable.
    """
    extent = ix.sub(loop.hi, loop.lo)
    alone = StageAxis(loop.iter, extent, loop.iter)
    space = _space_at(at)
    if any(place.form is Form.SHIFT for place in places):
        _check_repeatable(loop.body)
    if ordered and any(place.together for place in places):
        raise NotStructural("lanes of a loop that carries a dependence")
    if ordered and _share_a_loop(places):
        raise NotStructural("nests of one loop over tiles, which run in turn")
    plain = all(not any(isinstance(e, For | Let) for e in p.path) for p in places)
    if len(places) == 1 and places[0].is_loop(loop):
        pass  # whatever its bounds are
    elif plain and not any(place.form is Form.SHIFT for place in places):
        _check_parts(loop, places, at, program)
    else:
        products = [product_of(place.leaf, (alone,), space) for place in places]
        strips = [
            replace(_from(one[loop.iter], loop.lo), repeats=one[""].repeats) for one in products
        ]
        if prove_coverage(space, extent, strips, ordered=ordered) is not None:
            raise NotStructural(f"the coordinates of {loop.iter} are not the loop's")


def check_in_any_order(chain: Sequence[For], places: Sequence[Place], at: Facts) -> None:
    """Refuse places that are not the points of these loops, which carry no dependence, each in one of them.

    Raises NotStructural, or NotSeparable.
    """
    names = {one.iter for one in chain}
    if any(names & (variables(one.lo) | variables(one.hi)) for one in chain):
        raise NotStructural("a band whose bounds depend on each other")
    if any(place.form is Form.SHIFT for place in places):
        _check_repeatable(chain[-1].body)
    space = _space_at(at)
    axes = tuple(StageAxis(o.iter, ix.sub(o.hi, o.lo), o.iter) for o in chain)
    products = []
    for place in places:
        strips = product_of(place.leaf, axes, space)
        for one in chain:
            strips[one.iter] = _from(strips[one.iter], one.lo)
        products.append(strips)
    if not fills(space, axes, products):
        raise NotStructural("the tiles of a band are not its points")


def _check_parts(loop: For, places: Sequence[Place], at: Facts, program: Analysis) -> None:
    """Loops one after the other: ascending, and what they leave out does nothing."""
    inside = at.loop(loop.iter, loop.lo, loop.hi)
    rest = inside
    for position, place in enumerate(places):
        (_, lo, hi), holds = place.axes[0], (*place.conditions, *place.where)
        mine = at.loop(loop.iter, lo, hi)
        for condition in holds:
            mine = mine.where(condition)
        x = Var(loop.iter)
        outside = Logic("or", (Compare("<", x, loop.lo), Compare(">=", x, loop.hi)))
        if not mine.where(outside).empty:
            raise NotStructural(f"{loop.iter} leaves its bounds")
        away = (Compare("<", x, lo), Compare(">=", x, hi), *map(negate, holds))
        rest = rest.where(Logic("or", away))
        for later in places[position + 1 :]:
            (_, start, end), others = later.axes[0], (*later.conditions, *later.where)
            both = mine.loop("#later", start, end).where(Compare("<=", Var("#later"), x))
            for condition in others:
                both = both.where(substitute(condition, {loop.iter: Var("#later")}))
            if not both.empty:
                raise NotStructural(f"{loop.iter} does not ascend")
    if not rest.empty and not has_no_effect(loop.body, rest, program):
        raise NotStructural(f"coordinates of {loop.iter} are left out")


def _check_repeatable(body: Sequence[Stmt]) -> None:
    """Refuse a body that changes when it runs again: each buffer that it writes is assigned
    first, always, and from other buffers, or only takes a maximum, or a minimum, of values from others.
    """
    stores = [s for s in statements(tuple(body)) if isinstance(s, Store)]
    written = {s.buffer for s in stores}
    absorbing = {
        b for b in written if {s.reduce for s in stores if s.buffer == b} in ({"max"}, {"min"})
    }
    assigned: set[tuple[str, tuple[Expr, ...]]] = set()
    for stmt in body:
        for inner in statements((stmt,)):
            read = {
                (load.buffer, load.index)
                for expr in expressions(inner)
                for load in walk(expr)
                if isinstance(load, Load)
            }
            match inner:
                case Store(buffer, index, _, reduce) if reduce and buffer not in absorbing:
                    read.add((buffer, index))
                case _:
                    pass
            if any(at not in assigned for at in read if at[0] in written):
                raise NotStructural("a body that does not repeat")
        if isinstance(stmt, Store) and stmt.reduce is None:
            assigned.add((stmt.buffer, stmt.index))
    own = (store for store in stores if store.buffer not in absorbing)
    if any((store.buffer, store.index) not in assigned for store in own):
        raise NotStructural("a body that does not repeat")


def _share_a_loop(places: Sequence[Place]) -> bool:
    """Whether two places lie in one loop over tiles: each of its iterations then runs both."""
    loops = [id(entry) for place in places for entry in place.path if isinstance(entry, For)]
    return len(set(loops)) != len(loops)


def _from(strip: Strip, lo: Expr) -> Strip:
    """`strip` with coordinates that count from `lo`."""
    if lo == ix.const(0):
        return strip
    to_x: dict[str, Expr] = {"#x": ix.add(Var("#x"), lo)}
    return replace(
        strip,
        lower=ix.sub(strip.lower, lo),
        upper=ix.sub(strip.upper, lo),
        holds=tuple(ix.fold_indices(substitute(condition, to_x)) for condition in strip.holds),
    )


def _space_at(at: Facts) -> Space:
    """The sizes, and the iterators around as if they were sizes."""
    sizes = list(at.space.sizes)
    for name in at.names:
        natural = at.holds(Compare(">=", Var(name), ix.const(0)))
        sizes.append(Size(name, 0 if natural else -INDEX_LIMIT))
    known = tuple(c for c in at.conditions if at.expresses(c))
    return Space(tuple(sizes), (*at.space.assumptions, *known))
