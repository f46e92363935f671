"""Places and the loops of the source in; nothing out where the places run the loops' coordinates.

Each rule is a theorem for all sizes: a loop that carries a dependence runs its coordinates in its
order, others may run theirs in any order, and what is run twice says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.analysis import Analysis
from offcut.core.conditions import negate
from offcut.core.expr import Compare, Expr, Load, Logic, Var, substitute, variables, walk
from offcut.core.program import For, Form, Let, Size, Stmt, Store
from offcut.core.program import walk as statements
from offcut.core.traversal import expressions
from offcut.describe.computation import StageAxis
from offcut.polyhedral import INDEX_LIMIT, Facts, Space
from offcut.proof.by_axis.coverage import prove_coverage
from offcut.proof.by_axis.product import fills, product_of
from offcut.proof.by_axis.strips import Strip
from offcut.proof.by_structure.places import NotStructural, Place
from offcut.proof.by_structure.value_equality import has_no_effect


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
