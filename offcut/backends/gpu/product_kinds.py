"""How a block computes a product: by warps with ``mma.sync``, or by warpgroups whose operands arrive in boxes (``wgmma``).

A compiled kernel has one kind of product at all of its sizes: what both kinds add up may differ in its last bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offcut.backends.covers import Covered, cover_stage
from offcut.backends.gpu import instructions
from offcut.backends.gpu.boxes import CELL, has_whole_rows, is_descriptor_product
from offcut.backends.gpu.instructions import BOXES
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Load, Var, variables
from offcut.core.layout import Layout
from offcut.describe.computation import Computation
from offcut.describe.microkernel import Microkernel
from offcut.partition import CUT, GUARD, LADDER, MASK, PAD
from offcut.schedule.decisions import Level

AT_TILES = (GUARD, MASK, PAD, CUT, LADDER)
"""Strategies whose tiles all begin at multiples of the tile size."""
MAX_RANK = 3
"""Axes of an array that is copied in boxes, at most."""


@dataclass(frozen=True, slots=True)
class ProductKind:
    """How a block computes a product.

    unit   that loops over its rows are bound to
    rows   of one unit
    terms  of a stage of the ring, at least
    term_bytes  of the terms of a row of a stage, at least
    tiles  rows and columns of a block that compete by size, as many of each kind; the first, if they do not compete
    boxes  whether operands arrive in boxes, and lie so
    """

    unit: str
    rows: int
    terms: int
    term_bytes: int
    tiles: tuple[tuple[int, int], ...]
    boxes: bool = False

    @property
    def tile(self) -> tuple[int, int]:
        """Return the rows and columns of a block, if no others compete."""
        return self.tiles[0]

    def layout(self, rank: int) -> Layout | None:
        """Return the layout of a window of an operand with so many axes; None: row by row."""
        return BOXES.on(rank - 2, rank - 1) if self.boxes else None


_WARP_TILES = (64, 128), (64, 64), (32, 64), (128, 256)
_GROUP_TILES = (128, 256), (128, 128), (128, 64), (192, 128)
WARPS = ProductKind(
    "warp",
    instructions.MMA_ROWS,
    2 * instructions.MMA_DEPTH,
    4 * instructions.MMA_DEPTH,
    _WARP_TILES,
)
GROUPS = ProductKind(
    "warpgroup", instructions.WGMMA_ROWS, BOXES.multiple[-1], 128, _GROUP_TILES, boxes=True
)


def kind_of(kernel: Microkernel) -> ProductKind:
    """Return the kind of the product of a microkernel."""
    return GROUPS if is_descriptor_product(kernel) else WARPS


def with_groups(
    computation: Computation,
    products: Sequence[Covered],
    kernels: Sequence[Microkernel],
) -> tuple[Covered, ...] | None:
    """Return products with the microkernels of warpgroups in place of those of warps; None if one of them has none."""
    described = [kernel for kernel in kernels if is_descriptor_product(kernel)]
    grouped = tuple(_with_group(computation, one, described) for one in products)
    return None if None in grouped else tuple(one for one in grouped if one is not None)


def _with_group(
    computation: Computation, product: Covered, kernels: Sequence[Microkernel]
) -> Covered | None:
    """Return a product of the one microkernel whose operands lie as its own do; None if there is none."""
    for kernel in () if product.terms[0] else kernels:
        grouped = cover_stage(product.stage, (kernel,))
        if grouped is not None and all(
            _lies(computation, grouped, *one) for one in grouped.match.operands
        ):
            return grouped
    return None


def _lies(computation: Computation, product: Covered, name: str, load: Load) -> bool:
    """Return whether boxes of an array are an operand as a microkernel declares it."""
    buffer, kernel = computation.buffer(load.buffer), product.kernel
    layout, names = (
        kernel.layout_of(name),
        [part.name for part in load.index if isinstance(part, Var)],
    )
    if layout is None or buffer.layout is not None or len(load.index) not in range(2, MAX_RANK + 1):
        return False
    axes = [
        product.match.axis(part.name) for part in kernel.index_of(name) if isinstance(part, Var)
    ]
    (_, (element,)) = layout.places[-1]  # side by side in a row of a box
    last = axes[element.axis]
    is_matrix = [*names[-2:]] == [axis for axis in axes if axis != last] + [last]
    outer = {one for part in load.index[:-2] for one in variables(part)}
    if (
        not is_matrix
        or len(names) < 2
        or outer & {*axes}
        or not has_whole_rows(buffer.shape, buffer.dtype, computation.sizes)
    ):
        return False
    ((terms, extent),) = ((axis.name, axis.extent) for axis in product.stage.reduce_axes)
    along = buffer.shape[len(load.index) - 2 + names[-2:].index(terms)]
    return extent == along or ix.known_divisor(extent) % GROUPS.terms == 0


def begins_at_cells(load: Load, levels: Mapping[str, Level]) -> bool:
    """Return whether rows of all tiles of an operand begin at whole cells, by the levels of the axes that cut it."""
    cell = CELL // ITEM_BYTES[load.dtype]
    cuts = [level for axis, level in levels.items() if axis in variables(load.index[-1])]
    return isinstance(load.index[-1], Var) and all(
        one.tail in AT_TILES and one.tile % cell == 0 for one in cuts
    )


__all__ = ["GROUPS", "WARPS", "ProductKind", "begins_at_cells", "kind_of", "with_groups"]
