"""Writes what warpgroups and the unit that loads for them run: copies of boxes by tensor maps, and products by descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offcut.backends.gpu.boxes import accesses, is_box_copy
from offcut.backends.gpu.instructions import BOXES, MAX_BOX, UNITS, WGMMA, WGMMA_DEPTH
from offcut.backends.gpu.text.windows import SharedWindow, Windows, name_of, no_text
from offcut.core import index as ix
from offcut.core.expr import Expr, Load, all_loads, substitute, variables
from offcut.core.program import For, Program, Stmt, Store, Tile, blocks, walk
from offcut.core.text.printer import format_head
from offcut.core.traversal import expressions

if TYPE_CHECKING:
    from offcut.backends.gpu.text.leaves import LeafWriter

KERNELS = {kernel.name: kernel for kernel in (*WGMMA, *UNITS)}


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map, which a launch makes of the address and the extents of an array.

    name    of the parameter
    array   that it describes, of elements of 16 bits, stored by rows: at a multiple of 16 bytes
    box     elements of a box along each axis of the array
    """

    name: str
    array: str
    box: tuple[int, ...]

    def __str__(self) -> str:
        return f"// tensor map {self.name}: {self.array} in boxes of {' x '.join(map(str, self.box))}, 128 bytes swizzled"


def tensor_maps(program: Program, launch: Stmt, windows: Windows) -> tuple[TensorMap, ...]:
    """Return the tensor maps of a launch, one for each window that boxes are copied to."""
    by_name = {window.name: window for window in windows.shared.values()}
    maps: dict[str, TensorMap] = {}
    for tile in walk((launch,)):
        kernel = KERNELS.get(tile.microkernel or "") if isinstance(tile, Tile) else None
        if kernel is None or not isinstance(tile, Tile) or not is_box_copy(kernel):
            continue
        store = next(one for one in walk(tile.body) if isinstance(one, Store))
        window = by_name.get(name_of(store.buffer))
        if window is None or not isinstance(store.value, Load):
            raise no_text(format_head(tile), "boxes are copied to windows in shared memory")
        name = map_name(window)
        array = store.value.buffer
        ones = (1,) * (len(program.buffer(array).shape) - 2)
        maps[name] = TensorMap(name, array, (*ones, window.rows, BOXES.multiple[-1]))
    return tuple(maps.values())


def arrays_but_in_boxes(body: Sequence[Stmt]) -> set[str]:
    """Return the arrays that statements touch otherwise than by copies in boxes."""
    names: set[str] = set()
    for stmt in body:
        kernel = KERNELS.get(stmt.microkernel or "") if isinstance(stmt, Tile) else None
        if kernel is not None and is_box_copy(kernel):
            continue
        inner = tuple(blocks(stmt))
        names |= {load.buffer for e in expressions(stmt) for load in all_loads(e)}
        names |= set().union(*map(arrays_but_in_boxes, inner))
        if isinstance(stmt, Store):
            names.add(stmt.buffer)
    return names


def map_name(window: SharedWindow) -> str:
    """Return the name of the tensor map of a window."""
    return f"{window.name}_map"


@dataclass(frozen=True)
class GroupWriter:
    """Writes the tiles of warpgroups, with what a writer of leaves knows of this place of the text."""

    leaves: LeafWriter

    def load_boxes(self, tile: Tile, store: Store) -> list[str]:
        """Return the copy of a rectangle by a tensor map: whole boxes, as many as its window has."""
        window, source = self.leaves.shared_window(store.buffer), store.value
        if window is None or not window.boxes or window.rows > MAX_BOX:
            because = f"boxes are copied to windows in boxes, of {MAX_BOX} rows at most"
            raise no_text(format_head(tile), because)
        if not isinstance(source, Load) or source.index != store.index or tile.where is not None:
            raise no_text(format_head(tile), "a copy that is not a rectangle of rows has no text")
        begin: dict[str, Expr] = {axis.iter: axis.start for axis in tile.axes}
        first = tuple(substitute(part, begin) for part in source.index)
        for part, start in zip(first, window.starts, strict=True):
            if ix.literal_value(ix.sub(part, start)) != 0:
                raise no_text(format_head(tile), "boxes are copied to whole windows")
        coordinates = ", ".join(self.leaves.text(part) for part in reversed(first))
        slot = self.leaves.text(ix.mul(window.slot, window.rows * window.columns))
        target = window.name if slot == "0" else f"{window.name} + {slot}"
        kind = f"{window.rows}, {window.columns}"
        where = f"&{map_name(window)}, {self.leaves.barrier}, {coordinates}"
        return [f"if (lane == 0) bytes += load_boxes<{kind}>({target}, {where});"]

    def multiply(self, tile: Tile) -> list[str]:
        """Return the product of the rows of a warpgroup, added to its accumulators in the background."""
        assert tile.cover is not None
        axes, operands = dict(tile.cover.axes), dict(tile.cover.operands)
        loops = {one.iter: one for one in walk(tile.body) if isinstance(one, For)}
        terms, accumulators = loops.get(axes["p"]), self.leaves.fragments(operands["C"])
        most = None if terms is None else ix.literal_bound(ix.sub(terms.hi, terms.lo))
        if terms is None or accumulators is None or most is None or len(loops) != 1:
            raise no_text(format_head(tile), "this product has no text so far")
        begin: dict[str, Expr] = {axis.iter: axis.start for axis in tile.axes}
        begin[terms.iter] = terms.lo
        texts, kinds = [], []
        for operand in ("A", "B"):
            buffer = operands[operand]
            index, window = next(accesses(tile, buffer)), self.leaves.shared_window(buffer)
            if window is None or not window.boxes:
                raise no_text(format_head(tile), f"{buffer} is in no window of boxes")
            turned = terms.iter in variables(index[-2])
            kinds += [str(window.rows), "true" if turned else "false"]
            texts.append(self.address(window, [substitute(part, begin) for part in index], turned))
        kind = ", ".join([*kinds, str(-(-most // WGMMA_DEPTH) * WGMMA_DEPTH)])
        columns = accumulators.shape[1]
        return [f"multiply_boxes<{columns}, {kind}>({accumulators.name}, {texts[0]}, {texts[1]});"]

    def address(self, window: SharedWindow, first: Sequence[Expr], turned: bool) -> str:
        """Return where the operand of a product begins in a window.

        first   the index of its first element
        turned  whether terms lie one below the other: then it begins at a whole box, else at a whole row
        """
        row, column = (
            ix.sub(part, start) for part, start in zip(first[-2:], window.starts[-2:], strict=True)
        )
        terms, other = (row, column) if turned else (column, row)
        if ix.literal_value(terms) != 0:
            raise no_text(window.name, "a product begins with the first terms of a window")
        steps = ix.mul(other, window.rows if turned else BOXES.multiple[-1])
        offset = ix.add(ix.mul(window.slot, window.rows * window.columns), steps)
        text = self.leaves.text(ix.simplify(offset))
        return window.name if text == "0" else f"{window.name} + {text}"
