"""What copies in boxes and products by descriptors ask of windows, beside what the judge of covers asks of a tile.

A box is filled whatever the tile that it copies: past the tile with its neighbours in the array, past the array with zeros. A
product takes all terms of a window at once. So the terms of a tile that is not whole end with their array, in both operands.

Checks that copies of whole cells begin at whole cells, at all sizes: cells of 16 bytes move in the background (``cp.async``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from offcut.backends.covers import complete_covers
from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, analysis, last_stored
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Var, all_loads, substitute, variables
from offcut.core.layout import Layout
from offcut.core.program import Alloc, For, Program, Size, Stmt, Store, Tile, blocks, walk
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr, format_head
from offcut.core.traversal import expressions
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError

CELL = 16
"""Bytes that copies in boxes move at once: what rows of an array, and the first columns of boxes, are multiples of."""


def is_box_copy(kernel: Microkernel) -> bool:
    """Return whether a microkernel copies by the descriptor of an array."""
    places = (kernel.place_of(tensor.name) for tensor in kernel.definition.reads)
    return kernel.reducer is None and any(place.by == "descriptor" for place in places)


def is_descriptor_product(kernel: Microkernel) -> bool:
    """Return whether a microkernel sums products of what descriptors say."""
    places = (kernel.place_of(tensor.name) for tensor in kernel.definition.reads)
    return kernel.reducer is not None and all(place.by == "descriptor" for place in places)


def window_layouts(program: Program) -> Mapping[str, Layout | None]:
    """Return the layout of each buffer that has windows."""
    return {
        stmt.buffer: stmt.layout or program.buffer(stmt.buffer).layout
        for stmt in walk(program)
        if isinstance(stmt, Alloc)
    }


def operand_axes(
    kernel: Microkernel, operand: str, axes: Mapping[str, str], index: Sequence[Expr]
) -> tuple[int, ...]:
    """Return the axis of an array along which each axis of an operand lies; -1 for one that does not move.

    axes   the iterator of each axis of the microkernel
    index  at which the array is accessed
    """
    names = [part.name if isinstance(part, Var) else "" for part in kernel.index_of(operand)]
    return tuple(
        next((at for at, part in enumerate(index) if axes.get(name) in variables(part)), -1)
        for name in names
    )


def accesses(tile: Tile, buffer: str) -> Iterator[tuple[Expr, ...]]:
    """Yield the indices at which a tile touches a buffer."""
    for stmt in walk(tile.body):
        if isinstance(stmt, Store) and stmt.buffer == buffer:
            yield stmt.index
        for load in (load for e in expressions(stmt) for load in all_loads(e)):
            if load.buffer == buffer:
                yield load.index


def check_boxes(program: Program, kernels: Sequence[Microkernel]) -> None:
    """Check the windows of all copies in boxes, and of all products by descriptors.

    Raises PartitionError for the first tile whose operands its instruction would not find.
    """
    described = {k.name for k in kernels if is_box_copy(k) or is_descriptor_product(k)}
    if any(tile.microkernel in described for tile in analysis(program).of(Tile)):
        whole = complete_covers(program, kernels, "compile")
        _Checker(whole, {kernel.name: kernel for kernel in kernels}).block(whole.body, {})


class _Checker:
    def __init__(self, program: Program, kernels: Mapping[str, Microkernel]) -> None:
        self.program, self.kernels = program, kernels
        self.layouts = window_layouts(program)

    def block(self, body: Sequence[Stmt], windows: Mapping[str, Alloc]) -> None:
        """Check the tiles of a block.

        windows  around it, by buffer
        """
        for stmt in body:
            inside = {**windows, stmt.buffer: stmt} if isinstance(stmt, Alloc) else windows
            if isinstance(stmt, Tile):
                kernel = self.kernels.get(stmt.microkernel or "")
                if kernel is not None and stmt.cover is not None:
                    self.tile(stmt, kernel, windows)
                continue
            for block in blocks(stmt):
                self.block(block, inside)

    def tile(self, tile: Tile, kernel: Microkernel, windows: Mapping[str, Alloc]) -> None:
        assert tile.cover is not None
        axes, operands = dict(tile.cover.axes), dict(tile.cover.operands)
        reads = [tensor.name for tensor in kernel.definition.reads]
        if is_box_copy(kernel):
            (source,) = reads
            self.array(tile, operands.get(source, ""))
            for name in (kernel.computes.name, source):
                if operands.get(name, "") in windows:
                    self.layout(tile, kernel, name, operands[name], axes)
            return
        if not is_descriptor_product(kernel):
            return
        for name in reads:
            buffer = operands.get(name, "")
            if buffer not in windows:
                continue
            self.layout(tile, kernel, name, buffer, axes)
            self.terms(tile, kernel, buffer, windows[buffer], axes)

    def layout(
        self, tile: Tile, kernel: Microkernel, name: str, buffer: str, axes: Mapping[str, str]
    ) -> None:
        """Check that a window lies as declared."""
        declared = kernel.layout_of(name)
        index = next(accesses(tile, buffer), None)
        if declared is None or index is None:
            return
        expected = declared.on(*operand_axes(kernel, name, axes, index))
        stated = self.layouts.get(buffer)
        if stated is None or stated.canonical() != expected.canonical():
            lies = "row by row" if stated is None else f"in {format_layout(stated)}"
            because = f"{buffer} lies {lies}, and {kernel.name} has it in {format_layout(expected)}"
            raise self.refusal(tile, because, f"stage read … layout {format_layout(expected)}")

    def array(self, tile: Tile, name: str) -> None:
        """Check that rows of an array that is copied in boxes, and boxes in these, begin at whole cells."""
        buffer = self.program.buffer(name)
        if not has_whole_rows(buffer.shape, buffer.dtype, self.program.sizes):
            because = f"rows of {name} are not a multiple of {CELL} bytes"
            raise self.refusal(tile, because, "a copy of rows: copy_rows, cp_async_rows")
        starts = {axis.iter: axis.start for axis in tile.axes}
        index = next(accesses(tile, name), None)
        if not index:
            return
        first, cell = ix.simplify(substitute(index[-1], starts)), CELL // ITEM_BYTES[buffer.dtype]
        if not is_multiple(first, cell, self.program.sizes):
            because = f"it begins at element {format_expr(first)} of a row of {name}, which is not known to be a multiple of {cell}"
            raise self.refusal(tile, because, f"tiles of multiples of {cell} elements")

    def terms(
        self,
        tile: Tile,
        kernel: Microkernel,
        buffer: str,
        window: Alloc,
        axes: Mapping[str, str],
    ) -> None:
        """Check that the terms of a tile are all that a window may hold, or end with their array."""
        iterator = axes.get(kernel.depth)
        loop = next((s for s in walk(tile.body) if isinstance(s, For) and s.iter == iterator), None)
        index = next(accesses(tile, buffer), None)
        if loop is None or index is None:
            return
        (axis,) = (at for at, part in enumerate(index) if loop.iter in variables(part))
        most = ix.literal_bound(window.axes[axis][1]) or 0
        at_once = kernel.extents_of(kernel.depth).multiple_of
        extent = ix.simplify(ix.sub(loop.hi, loop.lo))
        rest = ix.simplify(ix.sub(self.program.buffer(buffer).shape[axis], loop.lo))
        ends = {rest}
        if most % at_once == 0:
            ends |= {ix.const(most), ix.simplify(ix.minimum(ix.const(most), rest))}
        if index[axis] != Var(loop.iter) or extent not in ends:
            because = f"it takes {at_once} terms at once, and some that follow its own in {buffer} would be added"
            help = f"tiles of a multiple of {at_once} terms, the last of which ends with {buffer}"
            raise self.refusal(tile, because, help)

    def refusal(self, tile: Tile, because: str, *help: str) -> PartitionError:
        refused = PartitionError(
            "compile",
            f"cannot run {tile.microkernel} in {self.program.name}",
            at=format_head(tile),
            because=because,
            help=help,
        )
        refused.stage = last_stored(tile)
        return refused


def has_whole_rows(shape: Sequence[Expr], dtype: str, sizes: Sequence[Size]) -> bool:
    """Return whether rows of an array are multiples of `CELL` bytes, for all sizes."""
    row = shape[-1] if shape else ix.const(0)
    return row != ix.const(0) and is_multiple(row, CELL // ITEM_BYTES[dtype], sizes)


def is_multiple(value: Expr, of: int, sizes: Sequence[Size]) -> bool:
    """Return whether a value is known to be a multiple of a number, by what sizes are multiples of."""
    multiples = {one.name: ix.mul(one.multiple_of, Var(one.name)) for one in sizes}
    return ix.known_divisor(substitute(value, multiples)) % of == 0


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
