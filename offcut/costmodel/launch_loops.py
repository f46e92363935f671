"""Count the iterations, blocks and statements of a launch for its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import Compare, Const, Expr, Select, rewrite, substitute, variables
from offcut.core.program import Alloc, Choose, For, If, Let, Stmt, Store, Tile, walk
from offcut.costmodel.closed.counting import with_divisor
from offcut.costmodel.simplification import drop_decided_conditions, part_of_cheapest
from offcut.proof.normal_forms.condition_hoisting import bound

ZERO, ONE = ix.const(0), ix.const(1)
MAX_BORDER_STAGES = 4
"""Maximum number of stages at each end of a loop that are counted one by one."""


def counted_iterations(loop: For, lo: Expr, hi: Expr, trips: Expr) -> list[tuple[Expr, Expr]]:
    """Return sampled iterations of a loop, each with the number of iterations that it represents.

    Stages at the border of a mask are counted one by one; of a loop over units, the first and the last iteration represent half each.
    """
    border = [one for one in walk(loop.body) if isinstance(one, Tile) and _is_border(one)]
    if not border or loop.unit == "block":
        return [(typical_iteration(loop, lo, trips), trips)]
    if loop.unit is not None:
        return [(lo, ix.ceildiv(trips, 2)), (ix.sub(hi, 1), ix.floordiv(trips, 2))]
    sums = (one.body[0] for one in border)
    bounds = [variables(one.lo) | variables(one.hi) for one in sums if isinstance(one, For)]
    if not any(loop.iter in names for names in bounds):
        return [(lo, trips)]
    edge = _border_stages(loop, border[0])
    middle = ix.add(lo, ix.floordiv(trips, 2))
    counts = [(middle, ix.maximum(ix.sub(trips, 2 * edge), 0))]
    for number in range(edge):
        has_last, has_first = (
            Compare(">", trips, ix.const(number)),
            Compare(">", trips, ix.const(number + edge)),
        )
        counts.append((ix.sub(hi, number + 1), Select(has_last, ONE, ZERO)))
        counts.append((ix.add(lo, number), Select(has_first, ONE, ZERO)))
    return counts


def _is_border(tile: Tile) -> bool:
    """Return whether a tile is at the border of a mask: its terms are added under a condition."""
    match tile.body:
        case (For(_, _, _, (If(_, (Store(reduce=str()),), ()),)),):
            return tile.cover is None
    return False


def _border_stages(loop: For, tile: Tile) -> int:
    """Return the maximum number of border stages at an end of a loop: those crossed by the rows of a block, plus one."""
    rows = max((ix.literal_bound(axis.extent) or 1 for axis in tile.axes[:-1]), default=1)
    for one in walk(loop.body):
        if isinstance(one, For) and one.unit is not None:
            rows *= ix.literal_bound(ix.sub(one.hi, one.lo)) or 1
    products = (one.body[0] for one in walk(loop.body) if isinstance(one, Tile) and one.cover)
    terms = (ix.literal_bound(ix.sub(one.hi, one.lo)) for one in products if isinstance(one, For))
    return min(-(-rows // max((one or 1 for one in terms), default=rows)) + 1, MAX_BORDER_STAGES)


def with_bounds(stmt: Stmt) -> Stmt:
    """Return a launch with the bounds of block loops tightened by the conditions inside them."""
    match stmt:
        case For(name, lo, hi, (If(condition, then, ()),), unit="block"):
            limits = [bound(atom, name) for atom in conjuncts(condition)]
            if all(one is not None for one in limits):
                for one in limits:
                    if one is not None and one.op == ">=":
                        lo = ix.maximum(lo, one.b)
                    elif one is not None:
                        hi = ix.minimum(hi, one.b)
                return replace(stmt, lo=lo, hi=hi, body=then)
        case For(unit="block"):
            return replace(stmt, body=tuple(map(with_bounds, stmt.body)))
    return stmt


def typical_iteration(loop: For, lo: Expr, trips: Expr) -> Expr:
    """Return a representative iteration: the middle one if inner bounds depend on the iterator, else the first."""
    ends = (
        stmt
        for stmt in walk(loop.body)
        if isinstance(stmt, For)
        and stmt.unit in (None, "block")
        and loop.iter in variables(stmt.lo) | variables(stmt.hi)
    )
    if loop.unit != "block" or not any(ends):
        return lo
    return ix.add(lo, ix.floordiv(ix.maximum(ix.sub(trips, 1), 0), 2))


def inner_statements(
    stmt: Stmt, values: Mapping[str, Expr]
) -> tuple[Sequence[Stmt], Mapping[str, Expr]]:
    """Return the child statements (both branches of a condition) and the iterator values; a loop is at its first iteration."""
    match stmt:
        case For(name, lo, _, inner):
            return inner, {**values, name: substitute(lo, values)}
        case If(condition, then, other):
            match drop_decided_conditions(condition):
                case Const(holds):
                    return then if holds else other, values
            return (*then, *other), values
        case Let(name, _, _, value, inner):
            return inner, {**values, name: rewrite(substitute(value, values), with_divisor)}
        case Alloc(body=inner):
            return inner, values
        case _:
            return (), values


def trip_count(loop: For, values: Mapping[str, Expr]) -> Expr:
    """Return the trip count of a loop; 0 for an empty range."""
    return ix.maximum(ix.sub(substitute(loop.hi, values), substitute(loop.lo, values)), 0)


def count_statements(body: Sequence[Stmt], values: Mapping[str, Expr]) -> Expr:
    """Return the number of statement instances in plain loops."""
    total: Expr = ZERO
    for stmt in body:
        count: Expr = ONE
        if isinstance(stmt, For | If | Let):
            count = count_statements(*inner_statements(stmt, values))
        if isinstance(stmt, For):
            count = ix.mul(trip_count(stmt, values), count)
        total = ix.add(total, count)
    return total


def count_blocks(body: Sequence[Stmt], values: Mapping[str, Expr]) -> Expr | None:
    """Return the number of blocks that run statements; None if no loop is bound to blocks."""
    total: Expr | None = None
    for stmt in body:
        inner, inner_values = inner_statements(stmt, values)
        if isinstance(stmt, For) and stmt.unit == "block":
            trips = trip_count(stmt, values)
            middle = typical_iteration(stmt, substitute(stmt.lo, values), trips)
            count = count_blocks(inner, {**values, stmt.iter: middle})
            count = ix.mul(trips, ONE if count is None else count)
        else:
            count = count_blocks(inner, inner_values)
        if isinstance(stmt, Choose):
            counts = [count_blocks(option.body, values) for option in stmt.options]
            if any(one is not None for one in counts):
                costs = [substitute(option.cost, values) for option in stmt.options]
                count = part_of_cheapest(costs, [one or ONE for one in counts])
        if count is not None:
            total = count if total is None else ix.add(total, count)
    return total
