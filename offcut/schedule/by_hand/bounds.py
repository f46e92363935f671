"""The box of elements that statements read: where a window starts, and how far it reaches.

Interval arithmetic on index expressions, symbolic in what is bound outside: with ``yi in 0:8``
inside, ``8*yo + yi`` lies in ``8*yo … 8*yo + 7``. A box is never too small; where an index is not
understood it is the whole axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Load, Var, children, variables, walk
from offcut.core.program import Alloc, Choose, For, If, Let, Stmt, Store, Tile
from offcut.polyhedral import Facts

# Lowest and highest value, both reached or passed, never left.
Range = tuple[Expr, Expr]


def footprint(
    body: tuple[Stmt, ...], buffer: str, shape: tuple[Expr, ...], facts: Facts
) -> tuple[tuple[Expr, Expr], ...]:
    """(start, extent) by axis of the smallest box known to hold every read of `buffer` in `body`.

    It lies within the shape: what a masked or padded instance would touch outside is not read.
    """
    box: list[Range | None] = [None] * len(shape)
    for load, ranges in _loads(body, buffer, {}):
        for axis, part in enumerate(load.index):
            found = interval(part, ranges) or (ix.const(0), ix.sub(shape[axis], 1))
            known = box[axis]
            if known is not None:
                low = facts.extreme("min", known[0], found[0])
                found = low, facts.extreme("max", known[1], found[1])
            box[axis] = found
    window = []
    for reach, extent in zip(box, shape, strict=True):
        low, high = reach or (ix.const(0), ix.const(-1))
        start = facts.extreme("max", low, ix.const(0))
        end = facts.extreme("min", extent, ix.add(high, 1))
        window.append((start, ix.sub(end, start)))
    return tuple(window)


def _loads(
    body: tuple[Stmt, ...], buffer: str, ranges: Mapping[str, Range]
) -> Iterator[tuple[Load, Mapping[str, Range]]]:
    """Every read of `buffer`, with the ranges of the iterators that are bound inside `body`."""
    for stmt in body:
        match stmt:
            case For(name, lo, hi, inner):
                yield from _loads(inner, buffer, _bound(ranges, name, lo, ix.sub(hi, 1)))
            case Tile(axes, inner):
                now = ranges
                for axis in axes:
                    last = ix.sub(ix.add(axis.start, axis.extent), 1)
                    now = _bound(now, axis.iter, axis.start, last)
                yield from _loads(inner, buffer, now)
            case Let(name, lo, hi, _, inner):
                now = {**ranges, name: (ix.const(lo), ix.const(hi - 1))}
                yield from _loads(inner, buffer, now)
            case If(_, then, other):
                yield from _loads((*then, *other), buffer, ranges)
            case Alloc(_, _, inner):
                yield from _loads(inner, buffer, ranges)
            case Choose(options):
                for option in options:
                    yield from _loads(option.body, buffer, ranges)
            case Store(_, _, value):
                for node in walk(value):
                    if isinstance(node, Load) and node.buffer == buffer:
                        yield node, ranges


def _bound(ranges: Mapping[str, Range], name: str, first: Expr, last: Expr) -> Mapping[str, Range]:
    low, high = interval(first, ranges), interval(last, ranges)
    if low is None or high is None:
        return {**ranges, name: (Var("?"), Var("?"))}
    return {**ranges, name: (low[0], high[1])}


def interval(expr: Expr, ranges: Mapping[str, Range]) -> Range | None:
    """The range of an index, in the names that `ranges` does not bind; None where it is not known."""
    if not variables(expr) & set(ranges):
        return expr, expr
    match expr:
        case Var(name):
            low, high = ranges[name]
            return None if low == Var("?") else (low, high)
        case Binary("//", a, Const(value, _)) if value > 0:
            found = interval(a, ranges)
            return found and (
                ix.floordiv(found[0], int(value)),
                ix.floordiv(found[1], int(value)),
            )
        case Binary("%", _, Const(value, _)) if value > 0:
            return ix.const(0), ix.const(int(value) - 1)
        case Binary("min" | "max" as op, a, b):
            x, y = interval(a, ranges), interval(b, ranges)
            pick = ix.minimum if op == "min" else ix.maximum
            return x and y and (pick(x[0], y[0]), pick(x[1], y[1]))
        case Binary("+" | "-" | "*"):
            return _sum(expr, ranges)
        case _:
            return None


def _sum(expr: Expr, ranges: Mapping[str, Range]) -> Range | None:
    form = ix.linear(expr)
    low: Expr = ix.const(form.const)
    high = low
    for atom, factor in form.terms:
        if (isinstance(atom, Binary) and atom.op == "*") or (children(atom) and atom == expr):
            if variables(atom) & set(ranges):
                return None
            found: Range | None = (atom, atom)
        else:
            found = interval(atom, ranges)
        if found is None:
            return None
        ends = found if factor > 0 else (found[1], found[0])
        low = ix.add(low, ix.mul(factor, ends[0]))
        high = ix.add(high, ix.mul(factor, ends[1]))
    return low, high
