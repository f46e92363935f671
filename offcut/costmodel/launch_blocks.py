"""The blocks of a launch, and iterations of its loops that stand for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import Compare, Expr, Select, substitute, variables
from offcut.core.program import Choose, For, If, Let, Stmt, Store, Tile, blocks, walk
from offcut.costmodel.closed.count_programs import bounded_value
from offcut.costmodel.simplification import part_of_cheapest
from offcut.proof.normal_forms.condition_hoisting import bound

ZERO, ONE = ix.const(0), ix.const(1)
MAX_BORDER_STAGES = 4
"""Maximum number of stages at each end of a loop that are counted one by one."""


def with_bounds(loop: For) -> For:
    """Return a loop over blocks with its bounds, and those of such loops in it, tightened by the conditions around all that is inside."""
    match loop.body:
        case (If(condition, then, ()),):
            limits = [bound(atom, loop.iter) for atom in conjuncts(condition)]
            known = [limit for limit in limits if limit is not None]
            if len(known) == len(limits):
                lo, hi = loop.lo, loop.hi
                for limit in known:
                    if limit.op == ">=":
                        lo = ix.maximum(lo, limit.b)
                    else:
                        hi = ix.minimum(hi, limit.b)
                return replace(loop, lo=lo, hi=hi, body=then)
    inner = (with_bounds(s) if isinstance(s, For) and s.unit == "block" else s for s in loop.body)
    return replace(loop, body=tuple(inner))


def sampled_iterations(loop: For, lo: Expr, hi: Expr) -> list[tuple[Expr, Expr]]:
    """Return iterations of a loop, each with the number of iterations that it stands for; none if the loop is summed.

    A loop over blocks counts as one of them. Around stages at the border of a mask no sum is closed: these stages are counted one by one;
    of a loop over units, the first and the last iteration stand for half each.
    """
    trips = ix.maximum(ix.sub(hi, lo), 0)
    if loop.unit == "block":
        return [(block_iteration(loop, lo, hi), trips)]
    border = [one for one in walk(loop.body) if isinstance(one, Tile) and _is_border(one)]
    if not border:
        return []
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


def block_iteration(loop: For, lo: Expr, hi: Expr) -> Expr:
    """Return the iteration of a loop over blocks that stands for all: the middle one if inner bounds depend on the iterator, else the first."""
    ends = (
        stmt
        for stmt in walk(loop.body)
        if isinstance(stmt, For)
        and stmt.unit in (None, "block")
        and loop.iter in variables(stmt.lo) | variables(stmt.hi)
    )
    if not any(ends):
        return lo
    return ix.add(lo, ix.floordiv(ix.maximum(ix.sub(ix.sub(hi, lo), 1), 0), 2))


def count_blocks(body: Sequence[Stmt], values: Mapping[str, Expr]) -> Expr | None:
    """Return the number of blocks that run statements; None if no loop is bound to blocks.

    values  of the iterators of blocks around, and of bounded values
    """
    counts = [count for stmt in body if (count := _blocks_of(stmt, values)) is not None]
    return ix.add(*counts) if counts else None


def _blocks_of(stmt: Stmt, values: Mapping[str, Expr]) -> Expr | None:
    match stmt:
        case For(name, lo, hi, inner, unit="block"):
            lo, hi = substitute(lo, values), substitute(hi, values)
            each = count_blocks(inner, {**values, name: block_iteration(stmt, lo, hi)})
            count = ix.maximum(ix.sub(hi, lo), 0)
            return count if each is None else ix.mul(count, each)
        case Let(name, _, _, value, inner):
            own = bounded_value(substitute(value, values))
            return count_blocks(inner, {**values, name: own})
        case Choose(options):
            counts = [count_blocks(option.body, values) for option in options]
            if all(one is None for one in counts):
                return None
            costs = [substitute(option.cost, values) for option in options]
            return part_of_cheapest(costs, [ix.const(1) if one is None else one for one in counts])
        case _:
            return count_blocks([one for block in blocks(stmt) for one in block], values)
