"""Loops whose iterations touch nothing of each other, found in the text alone.

An iteration keeps to itself where every buffer that the loop writes has an axis along which it has
an interval of its own: with ``y in 8*yo +: 8`` inside, ``C[y, x]`` stays in ``8*yo … 8*yo + 7``.
A window that is allocated inside belongs to its iteration. What is not recognised is not
independent: the interpreter runs such a loop one iteration after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from offcut.core.accesses import element_accesses, windowed_arrays
from offcut.core.expr import Expr, Var, variables
from offcut.core.index import add, const, sub, to_linear
from offcut.core.intervals import Ends, ends
from offcut.core.program import Choose, For, Kind, Let, Stmt, Store, Tile, blocks, walk
from offcut.core.tile_limits import at_most

# None: an iterator of which no more is known than that it is one
_Ranges = Mapping[str, Ends | None]


def is_independent(loop: For, kinds: Mapping[str, Kind]) -> bool:
    """Return whether the iterations of `loop` may run in any order, or together.

    kinds  of the buffers, by name
    """
    inside = list(walk(loop.body))
    if any(isinstance(stmt, Choose) for stmt in inside):
        return False
    written = {stmt.buffer for stmt in inside if isinstance(stmt, Store)}
    if any(kinds.get(name) is Kind.PRIVATE for name in written) and _has_tiles(inside):
        return False  # a tile has copies of it
    shared = written - windowed_arrays(loop.body)
    index_ends: dict[str, list[tuple[Ends | None, ...]]] = {name: [] for name in shared}
    for name, index, ranges in _accesses(loop.body, {}):
        if name in index_ends:
            index_ends[name].append(tuple(ends(part, ranges) for part in index))
    return all(_apart(accesses, loop.iter) for accesses in index_ends.values())


def _has_tiles(inside: list[Stmt]) -> bool:
    return any(isinstance(stmt, Tile) for stmt in inside)


def _apart(accesses: list[tuple[Ends | None, ...]], name: str) -> bool:
    return any(_separates(list(axis), name) for axis in zip(*accesses, strict=True))


def _separates(axis: list[Ends | None], name: str) -> bool:
    """Return whether these indices are all in an interval that moves by more than its length."""
    known = [end for both in axis if both is not None for end in both]
    if len(known) < 2 * len(axis):
        return False
    lengths = [to_linear(sub(end, known[0])) for end in known]
    steps = dict(to_linear(known[0]).terms)
    if any(one.terms for one in lengths) or any(
        name in variables(a) for a in steps if a != Var(name)
    ):
        return False
    offsets = [one.const for one in lengths]
    return max(offsets) - min(offsets) < abs(steps.get(Var(name), 0))


def _accesses(
    body: tuple[Stmt, ...], ranges: _Ranges
) -> Iterator[tuple[str, tuple[Expr, ...], _Ranges]]:
    for stmt in body:
        inside = _inside(stmt, ranges)
        yield from ((name, index, inside) for name, index in element_accesses(stmt))
        for block in blocks(stmt):
            yield from _accesses(block, inside)


def _inside(stmt: Stmt, ranges: _Ranges) -> _Ranges:
    match stmt:
        case For(name, lo, hi):
            return {**ranges, name: _range_of_count(lo, at_most(sub(hi, lo)), ranges)}
        case Tile(axes):
            counted = {a.iter: _range_of_count(a.start, at_most(a.extent), ranges) for a in axes}
            return {**ranges, **counted}
        case Let(name, low, high):
            return {**ranges, name: (const(low), const(high - 1))}
        case _:
            return ranges


def _range_of_count(start: Expr, count: int | None, ranges: _Ranges) -> Ends | None:
    """Return the ends of an iterator that takes at most `count` values from `start`."""
    begin = ends(start, ranges)
    if begin is None or count is None:
        return None
    return begin[0], add(begin[1], max(0, count - 1))
