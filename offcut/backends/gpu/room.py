"""Checks that the windows of a block fit in its shared memory, for all sizes."""

from __future__ import annotations

from math import prod

from offcut.backends.gpu.units import SHARED
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.program import Alloc, For, Program, Stmt, blocks
from offcut.core.text.printer import format_head
from offcut.errors import PartitionError


def check_room(program: Program, bytes: int) -> None:
    """Check that the windows of each launch take at most `bytes` of shared memory in a block.

    A window with an extent that has no literal bound is not counted.

    Raises PartitionError with the largest window of the first launch that takes more.
    """
    for launch in program.body:
        windows = [
            (_bytes(program, alloc, warps), alloc) for alloc, warps in _shared(launch, program, 1)
        ]
        total = sum(count for count, _ in windows)
        if total > bytes:
            _, largest = max(windows, key=lambda window: window[0])
            raise PartitionError(
                "compile",
                f"cannot place the windows of {program.name}",
                at=format_head(largest),
                because=f"a block has {bytes} bytes of shared memory, and its windows take {total}",
                help=("fewer in turn: a smaller depth", "smaller tiles"),
            )


def _shared(stmt: Stmt, program: Program, warps: int) -> list[tuple[Alloc, int]]:
    """Return the windows in shared memory inside `stmt`, each with the number of warps that have a copy of it."""
    windows = []
    if isinstance(stmt, Alloc) and stmt.inplace is None:
        memory = stmt.memory or program.buffer(stmt.buffer).scope
        windows += [(stmt, warps)] if memory == SHARED else []
    if isinstance(stmt, For) and stmt.unit in ("warp", "warpgroup"):
        warps *= ix.literal_bound(stmt.hi) or 1
    return windows + [
        one for block in blocks(stmt) for inner in block for one in _shared(inner, program, warps)
    ]


def _bytes(program: Program, alloc: Alloc, warps: int) -> int:
    """Return the bytes of all copies of a window in a block; 0 if an extent has no literal bound."""
    buffer = program.buffer(alloc.buffer)
    limits = [ix.literal_bound(extent) for _, extent in alloc.axes]
    extents = [extent for extent in limits if extent is not None]
    if len(extents) < len(limits):
        return 0
    layout = alloc.layout or buffer.layout
    shape = extents if layout is None else layout.padded(extents)
    return prod(shape) * ITEM_BYTES[buffer.dtype] * alloc.depth * warps
