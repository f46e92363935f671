"""A program on a grid, of which some reads have conditions -> the same without blocks and rows of lanes that compute what none reads.

    for b in 0:(n + 63)//64  @block           for b in 0:(n + 63)//64  @block
      for c in 0:(n + 127)//128  @block         for c in 0:(n + 127)//128  @block
        …                                  ->     if 64*b - 128*c + 63 >= 0
        S[64*b + …, 128*c + …] = …                  …
                                                    S[64*b + …, 128*c + …] = …

where every read of S[i, j] asks that ``j <= i``. A block with a product computes its whole tile if one element of it is read: its units
run side by side. Of a block of lanes, each element is asked for. By the theorem of `narrowing`: the value of an element at which
a condition fails reaches no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Compare, Expr, substitute, variables
from offcut.core.intervals import greatest_value
from offcut.core.memo import memo
from offcut.core.program import Alloc, For, If, Program, Stmt, Store, Tile, blocks, walk
from offcut.core.traversal import all_bound_names, map_blocks
from offcut.proof.normal_forms.narrowing import axis_name, conditions_of_arrays

BLOCK = "block"
Range = tuple[str, Expr, Expr]
"""An iterator with its first and its last value."""


@memo(16)
def without_unread_blocks(program: Program) -> Program:
    """Return `program` without blocks, and elements of lanes, that no read asks for; itself where there are none."""
    return narrow_blocks(program, conditions_of_arrays(program))


def narrow_blocks(program: Program, needed: Mapping[str, Sequence[Expr]]) -> Program:
    """Return `program` without blocks, and elements of lanes, at which what is asked of an array fails; itself where there are none.

    needed  by the array, as `conditions_of_arrays` has it: of `program`, or of one that differs from it in copies alone
    """
    if not needed:
        return program
    body = _narrow(program.body, needed)
    return program if body == program.body else replace(program, body=body)


def _narrow(body: tuple[Stmt, ...], needed: Mapping[str, Sequence[Expr]]) -> tuple[Stmt, ...]:
    narrowed: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For) and stmt.unit == BLOCK and not _has_blocks(stmt.body):
            narrowed.append(_narrow_block(stmt, needed))
        else:
            narrowed.append(map_blocks(stmt, lambda inner: _narrow(inner, needed)))
    return tuple(narrowed)


def _has_blocks(body: tuple[Stmt, ...]) -> bool:
    return any(isinstance(one, For) and one.unit == BLOCK for one in walk(body))


def _narrow_block(loop: For, needed: Mapping[str, Sequence[Expr]]) -> For:
    """Return the innermost loop over blocks, around a condition that some element is asked for; and around each element of lanes."""
    windows = {one.buffer for one in walk(loop.body) if isinstance(one, Alloc)}
    stores = [pair for pair in _stores(loop.body, ()) if pair[0].buffer not in windows]
    if not stores or any(store.buffer not in needed for store, _ in stores):
        return loop
    inside = all_bound_names(loop.body)
    several = [_in_some(_conditions(store, needed), ranges) for store, ranges in stores]
    common = [one for one in several[0] if all(one in other for other in several[1:])]
    some = [one for one in common if not variables(one) & inside and not _holds(one)]
    body = loop.body
    if not any(isinstance(one, Tile | Alloc) for one in walk(body)):
        body = _mask_stores(body, needed)
    return replace(loop, body=(If(conjunction(some), body),) if some else body)


def _conditions(store: Store, needed: Mapping[str, Sequence[Expr]]) -> list[Expr]:
    """Return what every read asks of the element that is stored."""
    index = {axis_name(number): part for number, part in enumerate(store.index)}
    return [substitute(one, index) for one in needed[store.buffer]]


def _stores(
    body: Sequence[Stmt], ranges: tuple[Range, ...]
) -> Iterator[tuple[Store, tuple[Range, ...]]]:
    """Yield each store with the ranges of the iterators around it, outermost first."""
    for stmt in body:
        inner = ranges
        match stmt:
            case Store():
                yield stmt, ranges
            case For(name, lo, hi, _):
                inner = (*ranges, (name, lo, ix.sub(hi, 1)))
            case Tile(axes, _, _):
                inner = (
                    *ranges,
                    *((a.iter, a.start, ix.sub(ix.add(a.start, a.extent), 1)) for a in axes),
                )
        for block in blocks(stmt):
            yield from _stores(block, inner)


def _in_some(conditions: Sequence[Expr], ranges: Sequence[Range]) -> list[Expr]:
    """Return what holds where conditions hold for some values of iterators; nothing of those that are not known."""
    some: list[Expr] = []
    for condition in conditions:
        assert isinstance(condition, Compare)
        greatest = greatest_value(condition.a, ranges)
        if greatest is not None:
            some.append(Compare(">=", ix.simplify(greatest), condition.b))
    return some


def _holds(condition: Expr) -> bool:
    """Return whether a condition is seen to hold: of iterators that begin at 0 or above."""
    return isinstance(condition, Compare) and ix.is_nonnegative(ix.sub(condition.a, condition.b))


def _mask_stores(body: tuple[Stmt, ...], needed: Mapping[str, Sequence[Expr]]) -> tuple[Stmt, ...]:
    """Return statements of lanes with a condition around each store, that its element is asked for."""
    masked: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Store):
            masked.append(If(conjunction(_conditions(stmt, needed)), (stmt,)))
        else:
            masked.append(map_blocks(stmt, lambda inner: _mask_stores(inner, needed)))
    return tuple(masked)
