"""What copies in boxes and products by descriptors do not find, asked of numbers as a tile runs.

`boxes` asks the same of the text, for all sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from offcut.backends.executor.steps import Place, Step
from offcut.backends.gpu.boxes import (
    accesses,
    is_box_copy,
    is_descriptor_product,
    operand_axes,
    window_layouts,
)
from offcut.backends.gpu.units import SHARED
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, variables
from offcut.core.interpret.values import evaluate
from offcut.core.program import Alloc, For, Program, Tile, walk
from offcut.core.text.layouts import format_layout
from offcut.describe.microkernel import Microkernel


class BoxChecker:
    """Checks tiles of a program whose operands descriptors describe."""

    def __init__(self, program: Program) -> None:
        self.program, self.layouts = program, window_layouts(program)
        self.extents = {
            stmt.buffer: [ix.literal_bound(extent) for _, extent in stmt.axes]
            for stmt in walk(program)
            if isinstance(stmt, Alloc)
        }

    def box_bytes(self, kernel: Microkernel | None, place: Place | None) -> int:
        """Return the bytes that arrive with a copy in boxes: those of whole boxes; 0 of any other tile.

        place  the window that it fills
        """
        if kernel is None or place is None or not is_box_copy(kernel):
            return 0
        name = place.region.name
        bounds = self.extents.get(name, [])
        shape = [
            e if bound is None else bound for e, bound in zip(place.extents, bounds, strict=True)
        ]
        layout = self.layouts.get(name)
        whole = shape if layout is None else layout.padded_extents(shape)
        return prod(whole) * ITEM_BYTES[place.dtype]

    def faults(
        self, step: Step, tile: Tile, kernel: Microkernel, places: Mapping[str, Place]
    ) -> Iterator[tuple[str, str]]:
        """Yield the finder and the reason of each operand that an instruction would not find."""
        assert tile.cover is not None
        if not (is_box_copy(kernel) or is_descriptor_product(kernel)):
            return
        axes = dict(tile.cover.axes)
        values = {**step.values}
        values |= {axis.iter: int(evaluate(axis.start, step.values)) for axis in tile.axes}
        loops = {stmt.iter: stmt for stmt in walk(tile.body) if isinstance(stmt, For)}
        values |= {name: int(evaluate(loop.lo, values)) for name, loop in loops.items()}
        for operand, name in tile.cover.operands:
            place, declared = places.get(name), kernel.layout_of(operand)
            index = next(accesses(tile, name), None)
            is_shared = place is not None and place.region.memory == SHARED
            if declared is None or index is None or place is None or not is_shared:
                continue
            expected, lies = (
                declared.on(*operand_axes(kernel, operand, axes, index)),
                self.layouts.get(name),
            )
            if lies is None or lies.canonical() != expected.canonical():
                shown = "row by row" if lies is None else f"in {format_layout(lies)}"
                yield (
                    "layout",
                    f"{name} lies {shown}, and {kernel.name} has it in {format_layout(expected)}",
                )
                continue
            for at, (part, start) in enumerate(zip(index, place.starts, strict=True)):
                along_terms = axes.get(kernel.depth) in variables(part)
                terms = kernel.extents_of(kernel.depth).multiple_of if along_terms else 1
                step_size = (
                    min(terms, expected.multiple_of(at))
                    if along_terms
                    else expected.multiple_of(at)
                )
                offset = int(evaluate(part, values)) - start
                if offset % step_size:
                    because = f"it begins at {offset} along axis {at} of a window of {name}, which is inside of {step_size}"
                    yield "alignment", because
            if is_descriptor_product(kernel):
                yield from self.term_faults(
                    kernel, loops.get(axes.get(kernel.depth, "")), name, index, values
                )

    def term_faults(
        self,
        kernel: Microkernel,
        loop: For | None,
        name: str,
        index: tuple[Expr, ...],
        values: Mapping[str, int],
    ) -> Iterator[tuple[str, str]]:
        """Yield why the terms of a product are neither all of a window nor end with their array."""
        if loop is None:
            return
        at = next(k for k, part in enumerate(index) if loop.iter in variables(part))
        lo, hi = (int(evaluate(end, values)) for end in (loop.lo, loop.hi))
        most, end = (
            self.extents[name][at],
            int(evaluate(self.program.buffer(name).shape[at], values)),
        )
        last = int(evaluate(index[at], {**values, loop.iter: hi}))
        at_once = kernel.extents_of(kernel.depth).multiple_of
        if last != end and (most is None or hi - lo != most or most % at_once):
            because = f"its terms end at {last} of {name}, whose window holds {most} and whose array ends at {end}"
            yield "cover", because
