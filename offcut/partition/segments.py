"""Segments as loops: the statements that run a segment's tiles, around what a tile does."""

from __future__ import annotations

from collections.abc import Callable

from offcut.core import index as ix
from offcut.core.computation import Names
from offcut.core.expr import Expr, Var, substitute
from offcut.core.program import For, If, Let, Stmt
from offcut.partition.placing import ITER, Segment

Inside = Callable[[Expr, Expr], tuple[Stmt, ...]]


def loops(segment: Segment, axis: str, names: Names, inside: Inside) -> tuple[Stmt, ...]:
    """``inside(start, height)`` for every tile of `segment`, in ascending order.

    Tile counters and the names of bounded values are new in `names`.
    """
    values: dict[str, Expr] = {
        let.name: Var(names.fresh(let.name.strip("#"))) for let in segment.lets
    }

    def named(expr: Expr) -> Expr:
        return substitute(expr, values)

    once = segment.count is None or ix.literal(segment.count) == 1
    counter = "" if once else names.fresh(f"{axis}_tile")
    values[ITER.name] = Var(counter) if counter else ix.const(0)
    start = ix.simplify(named(segment.start))
    single = ""
    if segment.guarded is not None:
        single = names.fresh(f"{axis}_one")
        guard = ix.compare("<", Var(single), segment.owned[1])
        body: tuple[Stmt, ...] = (If(guard, inside(Var(single), ix.const(1))),)
        body = (For(single, start, ix.add(start, segment.guarded), body),)
    else:
        body = inside(start, ix.simplify(named(segment.height)))
    if counter and segment.count is not None:
        body = (For(counter, ix.const(0), ix.simplify(named(segment.count)), body, segment.role),)
    for let in reversed(segment.lets):
        name = values[let.name]
        assert isinstance(name, Var)
        body = (Let(name.name, let.lo, let.hi, let.value, body),)
        names.release(name.name)
    for name_used in filter(None, (counter, single)):
        names.release(name_used)
    if segment.when is not None and ix.literal(segment.when) is None:
        body = (If(segment.when, body),)
    return body
