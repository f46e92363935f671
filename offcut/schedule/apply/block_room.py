"""Blocks of iterations that nests run in turn, and the room that what lives in a block takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, substitute, variables
from offcut.core.program import Alloc, Size
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError
from offcut.schedule.apply.placing import Place, sum_terms, window_places
from offcut.schedule.apply.staged_form import Nests


def window_of_block(window: Alloc, iterator: str, start: Expr, iterations: int) -> Alloc:
    """Return the window of a block, where `window` is that of one iteration: from that of its first iteration to the end of that of its last.

    A last block of fewer iterations has room for all of them.
    """

    def at(expr: Expr, iteration: Expr) -> Expr:
        return ix.simplify(substitute(expr, {iterator: iteration}))

    last = ix.add(start, iterations - 1)
    axes = []
    for begin, extent in window.axes:
        first = at(begin, start)
        axes.append((first, ix.simplify(ix.sub(at(ix.add(begin, extent), last), first))))
    return replace(window, axes=tuple(axes))


def block_bytes(
    windows: Iterable[tuple[str, Sequence[Expr]]],
    sums: Iterable[tuple[str, Expr]],
    iterations: int,
) -> tuple[Expr, ...]:
    """Return the bytes that have to have room in a block: all that lives in it, and each line that is added up, as far as that is more.

    windows  (element type, extents) of what lives in a block
    sums     (element type, terms) of what an iteration adds up
    """
    total: Expr = ix.const(0)
    for dtype, extents in windows:
        size: Expr = ix.const(ITEM_BYTES[dtype])
        for extent in extents:
            size = ix.mul(size, extent)
        total = ix.add(total, size)
    lines = [ix.mul(terms, iterations * ITEM_BYTES[dtype]) for dtype, terms in sums]
    longest = [size for size in lines if (ix.literal_value(ix.sub(total, size)) or -1) < 0]
    return tuple(dict.fromkeys((total, *longest)))


def at_sizes(values: Sequence[Expr], sizes: Mapping[str, int]) -> list[int]:
    """Return sums of products of sizes, where these have the values `sizes`."""
    known = {name: ix.const(size) for name, size in sizes.items()}
    numbers = [ix.literal_value(ix.fold_indices(substitute(one, known))) for one in values]
    assert None not in numbers
    return [number for number in numbers if number is not None]


def least_bytes(taken: Sequence[Expr], sizes: Sequence[Size]) -> int:
    """Return how much a block takes at the least sizes."""
    return max(at_sizes(taken, {size.name: size.min for size in sizes}))


def least_room(nests: Nests, place: Place, depth: int, iterations: int) -> int:
    """Return the bytes that a block of iterations of a loop takes at the least sizes, where groups of stages share that loop.

    depth  along how many of their first axes iterations are told apart: those of the loop, and of the loops around it
    """
    held = window_places(nests).get(place, ())
    windows = (
        (buffer.dtype, (ix.const(iterations), *buffer.shape[depth:]))
        for buffer in nests.buffers
        if buffer.name in held
    )
    return least_bytes(block_bytes(windows, sum_terms(nests, place), iterations), nests.sizes)


def room_condition(
    nests: Nests,
    windows: Sequence[Alloc],
    sums: Sequence[tuple[str, Expr]],
    iterations: int,
    room: int,
) -> Expr | bool:
    """Return whether a block has room: at all sizes, at none, or where a condition holds.

    Raises PartitionError where sizes alone do not tell.
    """
    shapes = ((nests.buffer(w.buffer).dtype, [extent for _, extent in w.axes]) for w in windows)
    taken = block_bytes(shapes, sums, iterations)
    names = {size.name for size in nests.sizes}
    for size in taken:
        if not variables(size) <= names:
            raise PartitionError(
                "split",
                f"cannot tell whether blocks of {iterations} iterations fit in {room} bytes",
                because=f"a block takes {format_expr(size)} bytes, which sizes alone do not tell",
                help=("blocks of a loop in which windows are of one size",),
            )
    if least_bytes(taken, nests.sizes) > room:
        return False
    greatest = at_sizes(taken, {size.name: size.max for size in nests.sizes})
    pairs = zip(taken, greatest, strict=True)
    conditions = [ix.compare("<=", size, room) for size, most in pairs if most > room]
    return conjunction(conditions) if conditions else True
