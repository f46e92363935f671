"""Blocks of iterations, and the bytes of the buffers that live in a block."""

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
    """Return the window of a block: from the start of its first iteration's window to the end of its last iteration's.

    window      of one iteration
    start       the first iteration of the block
    iterations  of a full block; a partial last block has the window of a full one
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
    """Return the bytes that a block needs: of all its buffers, and of each summed line that may need more.

    windows  (element type, extents) of the buffers that live in a block
    sums     (element type, terms) of the sums of an iteration
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


def evaluate_at(values: Sequence[Expr], sizes: Mapping[str, int]) -> list[int]:
    """Return the values of expressions over sizes at `sizes`."""
    values_by_name = {name: ix.const(size) for name, size in sizes.items()}
    numbers = [ix.literal_value(ix.fold_indices(substitute(one, values_by_name))) for one in values]
    assert None not in numbers
    return [number for number in numbers if number is not None]


def min_bytes(byte_counts: Sequence[Expr], sizes: Sequence[Size]) -> int:
    """Return the maximum of byte counts at the minimum sizes."""
    return max(evaluate_at(byte_counts, {size.name: size.min for size in sizes}))


def min_block_bytes(nests: Nests, place: Place, depth: int, iterations: int) -> int:
    """Return the bytes of a block of a loop that groups of stages share, at the minimum sizes.

    depth  number of leading buffer axes that are indexed by this loop and the loops around it
    """
    local_buffers = window_places(nests).get(place, ())
    windows = (
        (buffer.dtype, (ix.const(iterations), *buffer.shape[depth:]))
        for buffer in nests.buffers
        if buffer.name in local_buffers
    )
    return min_bytes(block_bytes(windows, sum_terms(nests, place), iterations), nests.sizes)


def capacity_condition(
    nests: Nests,
    windows: Sequence[Alloc],
    sums: Sequence[tuple[str, Expr]],
    iterations: int,
    room: int,
) -> Expr | bool:
    """Return the condition under which a block fits in `room` bytes; True at all sizes, False at none.

    Raises PartitionError if the bytes depend on more than symbolic sizes.
    """
    shapes = ((nests.buffer(w.buffer).dtype, [extent for _, extent in w.axes]) for w in windows)
    byte_counts = block_bytes(shapes, sums, iterations)
    names = {size.name for size in nests.sizes}
    for size in byte_counts:
        if not variables(size) <= names:
            raise PartitionError(
                "split",
                f"cannot tell whether blocks of {iterations} iterations fit in {room} bytes",
                because=f"a block takes {format_expr(size)} bytes, which sizes alone do not tell",
                help=("blocks of a loop in which windows are of one size",),
            )
    if min_bytes(byte_counts, nests.sizes) > room:
        return False
    greatest = evaluate_at(byte_counts, {size.name: size.max for size in nests.sizes})
    pairs = zip(byte_counts, greatest, strict=True)
    conditions = [ix.compare("<=", size, room) for size, most in pairs if most > room]
    return conjunction(conditions) if conditions else True
