"""Whether the windows of a block have room in its shared memory, for all sizes."""

from __future__ import annotations

from math import prod

from offcut.backends.gpu.text.expressions import most_of
from offcut.backends.gpu.units import SHARED
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.program import Alloc, For, Program, Stmt, blocks
from offcut.core.text.printer import format_head
from offcut.errors import PartitionError


def check_room(program: Program, bytes: int) -> None:
    """Check that windows in shared memory take no more than so many bytes of a block, as far as their extents are bounded.

    Raises PartitionError with the window that takes most, in the launch that takes too many.
    """
    for launch in program.body:
        windows = [
            (_bytes(program, alloc, warps), alloc) for alloc, warps in _shared(launch, program, 1)
        ]
        whole = sum(count for count, _ in windows)
        if whole > bytes:
            _, largest = max(windows, key=lambda one: one[0])
            raise PartitionError(
                "compile",
                f"cannot place the windows of {program.name}",
                at=format_head(largest),
                because=f"a block has {bytes} bytes of shared memory, and its windows take {whole}",
                help=("fewer in turn: a smaller depth", "smaller tiles"),
            )


def _shared(stmt: Stmt, program: Program, warps: int) -> list[tuple[Alloc, int]]:
    """Return the windows in shared memory inside, each with the number of warps that have one of their own."""
    found = []
    if isinstance(stmt, Alloc) and stmt.inplace is None:
        memory = stmt.memory or program.buffer(stmt.buffer).scope
        found += [(stmt, warps)] if memory == SHARED else []
    if isinstance(stmt, For) and stmt.unit in ("warp", "warpgroup"):
        warps *= most_of(stmt.hi) or 1
    return found + [
        one for block in blocks(stmt) for inner in block for one in _shared(inner, program, warps)
    ]


def _bytes(program: Program, alloc: Alloc, warps: int) -> int:
    """Return the bytes of all windows of an ``alloc``; none where an extent is not bounded."""
    buffer = program.buffer(alloc.buffer)
    most = [most_of(extent) for _, extent in alloc.axes]
    known = [extent for extent in most if extent is not None]
    if len(known) < len(most):
        return 0
    layout = alloc.layout or buffer.layout
    shape = known if layout is None else layout.padded(known)
    return prod(shape) * ITEM_BYTES[buffer.dtype] * alloc.depth * warps
