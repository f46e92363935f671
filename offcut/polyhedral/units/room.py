"""How many tokens lie in a queue at once, while units run in the order of the text."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import islpy as isl

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr
from offcut.polyhedral.units.issued import Issued


def has_room(pairs: isl.Map, room: int) -> bool:
    """Whether never more than `room` tokens lie in a queue. When q pops, beside its own there lie those of

        { q' in dom pairs : q' > q and pairs(q') < q }

    pairs  ``{ pop -> push }``, one-to-one, rising with the order
    """
    pops = pairs.domain()
    later = isl.Map.lex_lt(pops.get_space()).intersect_domain(pops).intersect_range(pops)
    pushed = isl.Map.lex_gt(pops.get_space()).apply_range(pairs.reverse())
    beside = later.intersect(pushed)
    for _ in range(room - 1):
        if beside.is_empty():
            break
        beside = beside.subtract(beside.lexmin())
    return bool(beside.is_empty())


def most(leaves: Sequence[Issued], source: int, target: int) -> float:
    """As many tokens as can lie between two units at once: two for each part of a region that both touch.

    Let p1 < p2 < p3 be pushed before q1 < q2 < q3 pop them, all because of one part. That q1 does not wait for p2 says
    that both read the part; then q2 writes it, since it waits for p2, and has to wait for p3.
    """
    parts: list[dict[str, float]] = [{}, {}]
    for leaf in leaves:
        if leaf.unit in (source, target):
            mine = parts[leaf.unit == target]
            for touch in leaf.touches:
                mine[touch.region] = max(mine.get(touch.region, 1), _parts(leaf, touch.thread))
    of_source, of_target = parts
    both = of_source.keys() & of_target.keys()
    return sum(2 * max(of_source[region], of_target[region]) for region in both)


def _parts(leaf: Issued, thread: str | None) -> float:
    """Iterations of a loop from 0 on, at most."""
    for name, lo, hi in leaf.loops:
        if name == thread:
            return _greatest(hi) if lo == ix.const(0) else inf
    return 1


def _greatest(end: Expr) -> float:
    known = ix.literal(end)
    if known is not None:
        return known
    if isinstance(end, Binary) and end.op == "min":
        return min(_greatest(end.a), _greatest(end.b))
    return inf


__all__ = ["has_room", "most"]
