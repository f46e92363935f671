"""Checks that copies of whole cells begin at whole cells, at all sizes: cells of 16 bytes move in the background (``cp.async``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offcut.backends.gpu.boxes import CELL, accesses, is_box_copy, is_multiple
from offcut.core import index as ix
from offcut.core.accesses import accessed_arrays, last_stored
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import substitute
from offcut.core.program import Alloc, Program, Stmt, Tile, blocks
from offcut.core.text.printer import format_expr, format_head
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError


def check_cells(program: Program, kernels: Sequence[Microkernel]) -> None:
    """Check that rows which asynchronous tiles copy begin at multiples of `CELL`, in arrays and in windows.

    Raises PartitionError with the first that is not known to.
    """
    copies = (one for one in kernels if one.issue == "async" and not is_box_copy(one))
    by_name = {kernel.name: kernel for kernel in copies}
    _Cells(program, by_name).block(program.body, {})


@dataclass(frozen=True)
class _Cells:
    program: Program
    kernels: Mapping[str, Microkernel]

    def block(self, body: Sequence[Stmt], windows: Mapping[str, Alloc]) -> None:
        for stmt in body:
            inner = {**windows, stmt.buffer: stmt} if isinstance(stmt, Alloc) else windows
            if isinstance(stmt, Tile) and stmt.cover is not None:
                kernel = self.kernels.get(stmt.cover.microkernel)
                if kernel is not None and any(place.beside for place in kernel.operands.values()):
                    for name in sorted(accessed_arrays((stmt,))):
                        self.check(stmt, name, windows.get(name))
            for block in blocks(stmt):
                self.block(block, inner)

    def check(self, tile: Tile, name: str, window: Alloc | None) -> None:
        """Check where rows of a buffer begin that a tile touches."""
        starts = {axis.iter: axis.start for axis in tile.axes}
        (*_, last), *_ = accesses(tile, name)
        index = substitute(last, starts)
        pitch = self.program.buffer(name).shape[-1]
        if window is not None:
            start, pitch = window.axes[-1]
            index = ix.simplify(ix.sub(index, start))
        item = ITEM_BYTES[self.program.buffer(name).dtype]
        for what, elements in (("begin at element", index), ("are as long as", pitch)):
            if not is_multiple(elements, CELL // item, self.program.sizes):
                refused = PartitionError(
                    "compile",
                    f"cannot copy cells of {CELL} bytes of {name}",
                    at=format_head(tile),
                    because=f"its rows {what} {format_expr(elements)}, which is not known to be a multiple of {CELL // item}",
                    help=(
                        f"tiles of multiples of {CELL // item} elements",
                        "copy_rows, which moves element by element",
                    ),
                )
                refused.stage = last_stored(tile)
                raise refused


__all__ = ["check_cells"]
