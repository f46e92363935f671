"""The places of windows, and CUDA C++ as a dialect of C: stages of rows in shared memory, fragments in registers of warps.

CUDA C++ as a dialect of C: types, names, and the numbers of units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from offcut.backends.gpu.instructions import ATOM_BYTES, BOXES
from offcut.backends.gpu.text.primitives import PRIMITIVE_NAMES
from offcut.backends.gpu.units import REGISTERS, SHARED
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Load, Var, substitute, variables
from offcut.core.program import Alloc, Buffer, For, Program, Stmt, Store, Tile, blocks, walk
from offcut.core.text.c_expressions import LIBRARY, CExpressions, Dialect, is_word
from offcut.core.text.printer import format_head
from offcut.errors import DescribeError
from offcut.polyhedral.index_maximum import upper_bound
from offcut.polyhedral.sync import slot_of

TYPES: Mapping[str, str] = {
    "float32": "float",
    "float64": "double",
    "bfloat16": "bf16",
    "float16": "f16",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "bool": "bool",
    "index": "int",
}
"""The types of elements, and of indices."""
WARP = Var("the warp")
"""The number of the warp, which iterators of loops over warps stand for; no program can name it so."""
GROUP = Var("the warpgroup")
"""The number of the warpgroup, which iterators of loops over warpgroups stand for."""
NUMBERS = {WARP.name: "warp", GROUP.name: "group"}
_OWN_NAMES = frozenset(
    [
        *("warp", "group", "lane", "bytes", "shared", "row_tile", "column_tile", "element"),
        *("barrier", "bf16", "f16", "min", "max", "tensor_map", "multiply_async"),
        *("blockIdx", "threadIdx", "gridDim", "blockDim"),
    ]
)
"""Names of the text and of CUDA, which names of a program may not equal, beside those of C++ and of its library."""


def name_of(name: str) -> str:
    """Return a name of a program as the text has it."""
    is_taken = name in _OWN_NAMES | PRIMITIVE_NAMES | LIBRARY or is_word(name)
    return f"{name}_" if is_taken else name


def no_text(at: str, because: str) -> DescribeError:
    """Return the error for a construct that has no text in CUDA C++."""
    return DescribeError(
        "source", 'cannot show "cuda"', at=at, because=because, help=('source("loops")',)
    )


CUDA = Dialect(
    TYPES, lambda name: NUMBERS.get(name) or name_of(name), "to_whole<{type}>({value})", no_text
)


def writer(element: Callable[[Load], str], signed: frozenset[str] = frozenset()) -> CExpressions:
    """Return a writer of expressions.

    element  from a load to the text of its value
    signed   the iterators that may be below 0
    """
    return CExpressions(CUDA, element, signed)


ROUNDED, ROUNDED_BYTES = 16, 32
"""Rows and columns of windows in shared memory are multiples of so many elements, and of as many as have so many bytes: products read
zeros past the end of a tile, up to the terms of an instruction."""
SKEW_BYTES = 16
"""Bytes of padding after each row, so that eight rows begin in eight different banks."""
_ALIGNED = 128
NUMBER_OF = {"warp": WARP, "warpgroup": GROUP}
"""What stands for the iterator of a loop that is bound to a unit."""


@dataclass(frozen=True)
class SharedWindow:
    """A ring of windows of two axes.

    starts   the coordinates of its first element
    axes     the axes of the buffer that rows and columns go along; along the others it has one element
    rows, columns, pitch  of a stage, in elements
    offset   in bytes
    slot     which stage it is
    boxes    whether it lies in boxes of 64 columns, swizzled (`layouts.BOXES`): one after the other, without padding
    """

    name: str
    dtype: str
    starts: tuple[Expr, ...]
    axes: tuple[int, int]
    rows: int
    columns: int
    depth: int
    offset: int
    slot: Expr
    boxes: bool = False

    @property
    def pitch(self) -> int:
        """Return the elements from a row to the next one, times the number of boxes."""
        skew = 0 if self.boxes else SKEW_BYTES // ITEM_BYTES[self.dtype]
        return self.columns + skew

    @property
    def bytes(self) -> int:
        """Return the bytes of all stages."""
        return self.depth * self.rows * self.pitch * ITEM_BYTES[self.dtype]

    @property
    def declaration(self) -> str:
        """Return the line that declares it."""
        stages = f"{self.depth} of {self.rows} rows of {self.columns}{' in boxes' * self.boxes}"
        return f"{TYPES[self.dtype]} *const {self.name} = ({TYPES[self.dtype]} *)(shared + {self.offset});  // {stages}"


@dataclass(frozen=True)
class Fragments:
    """A window in registers, as accumulators of products: 16 rows of a warp by 8 columns each.

    starts   the coordinates of the first element of a warp, or of a warpgroup
    extents  of its rows and columns, at most
    warps    that have 16 rows each, one after the other
    """

    name: str
    dtype: str
    axes: tuple[int, int]
    starts: tuple[Expr, Expr]
    extents: tuple[int, int]
    warps: int = 1

    @property
    def rows(self) -> int:
        """Return the rows that each accumulator of a lane is of."""
        return 16 * self.warps

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of fragments along rows and columns."""
        return -(-self.extents[0] // self.rows), -(-self.extents[1] // 8)


@dataclass
class Windows:
    """The windows of a launch, by the identity of their ``alloc``."""

    program: Program
    shared: dict[int, SharedWindow]
    fragments: dict[int, Fragments]
    bytes: int = 0

    @property
    def alignment(self) -> int:
        """Return the bytes that shared memory begins at a multiple of."""
        return ATOM_BYTES if any(one.boxes for one in self.shared.values()) else _ALIGNED

    @classmethod
    def of(cls, program: Program, launch: Stmt) -> Windows:
        """Return the windows of a launch.

        Raises DescribeError for a window in a memory or a layout without text so far.
        """
        windows = cls(program, {}, {})
        windows._read((launch,), ())
        return windows

    def _read(self, body: tuple[Stmt, ...], loops: tuple[For, ...]) -> None:
        for stmt in body:
            inner = loops
            if isinstance(stmt, For):
                inner = (*loops, stmt)
            if isinstance(stmt, Alloc):
                self._place(stmt, loops)
            for block in blocks(stmt):
                self._read(block, inner)

    def _place(self, alloc: Alloc, loops: tuple[For, ...]) -> None:
        buffer = self.program.buffer(alloc.buffer)
        memory = alloc.memory or buffer.scope
        layout = alloc.layout or buffer.layout
        rank = len(alloc.axes)
        boxes = layout is not None and layout == BOXES.on(rank - 2, rank - 1)
        if alloc.inplace is not None or (layout is not None and not (boxes and memory == SHARED)):
            raise no_text(format_head(alloc), "a window in this layout has no text so far")
        if memory == SHARED:
            window = self._shared_window(alloc, buffer, loops, boxes)
            self.shared[id(alloc)] = window
            self.bytes = -(-(window.offset + window.bytes) // _ALIGNED) * _ALIGNED
        elif memory == REGISTERS:
            self.fragments[id(alloc)] = self._fragments(alloc, loops)
        else:
            raise no_text(format_head(alloc), f"a window in {memory} has no text")

    def _shared_window(
        self, alloc: Alloc, buffer: Buffer, loops: tuple[For, ...], boxes: bool
    ) -> SharedWindow:
        if any(loop.unit in NUMBER_OF for loop in loops):
            raise no_text(format_head(alloc), "a window of a warp alone has no text so far")
        around = tuple((loop.iter, loop.lo, loop.hi) for loop in loops)
        extents = [upper_bound(extent, self.program, around) for _, extent in alloc.axes]
        axes = _axes_of(extents)
        if axes is None:
            raise no_text(format_head(alloc), "the largest window of two axes is not known")
        whole = max(ROUNDED, ROUNDED_BYTES // ITEM_BYTES[buffer.dtype])
        multiples = BOXES.multiple if boxes else (whole, whole)
        rows, columns = (
            -(-(extents[axis] or 0) // of) * of for axis, of in zip(axes, multiples, strict=True)
        )
        serial = [(loop.iter, loop.lo, loop.hi) for loop in loops if loop.unit is None]
        slot: Expr = ix.const(0)
        if alloc.depth > 1 and serial:
            slot = slot_of(serial, alloc.depth)
        starts = tuple(start for start, _ in alloc.axes)
        names = [one.name for one in self.shared.values()]
        name = name_of(alloc.buffer)
        while name in names:
            name += "_"
        offset = -(-self.bytes // ATOM_BYTES) * ATOM_BYTES if boxes else self.bytes
        return SharedWindow(
            name, buffer.dtype, starts, axes, rows, columns, alloc.depth, offset, slot, boxes
        )

    def _fragments(self, alloc: Alloc, loops: tuple[For, ...]) -> Fragments:
        """Return the accumulators of a warp, or of a warpgroup: the part of the window that its product tile computes."""
        for tile, loop in _tiles((alloc,), None):
            cover = tile.cover
            operands = {} if cover is None else dict(cover.operands)
            if operands.get("C") != alloc.buffer or len(operands) < 2 or cover is None:
                continue
            axes = {axis.iter: axis for axis in tile.axes}
            row, column = (axes.get(dict(cover.axes).get(name, "")) for name in ("i", "j"))
            if row is None or column is None:
                break
            warp_index = {} if loop is None else {loop.iter: NUMBER_OF[loop.unit or ""]}
            warps = 4 if loop is not None and loop.unit == "warpgroup" else 1
            name = None if loop is None else loop.iter
            extents = tuple(self._most(axis.extent, name, loops) for axis in (row, column))
            stores = [one for one in walk(tile.body) if isinstance(one, Store)]
            places = [
                k
                for moving in (row.iter, column.iter)
                for k, part in enumerate(stores[0].index)
                if moving in variables(part)
            ]
            if None in extents or len(places) != 2:
                break
            starts = substitute(row.start, warp_index), substitute(column.start, warp_index)
            shape, dtype = (
                (int(extents[0] or 0), int(extents[1] or 0)),
                self.program.buffer(alloc.buffer).dtype,
            )
            return Fragments(
                name_of(alloc.buffer), dtype, (places[0], places[1]), starts, shape, warps
            )
        raise no_text(
            format_head(alloc), "what lies in registers has no text but as sums of products"
        )

    def _most(self, extent: Expr, warp: str | None, loops: tuple[For, ...]) -> int | None:
        """Return the largest value of an extent, that of the first warp if it falls from warp to warp; None if none is known."""
        factors = dict(ix.to_linear(extent).terms)
        if ix.literal_bound(extent) is None and warp is not None and factors.get(Var(warp), 0) < 0:
            extent = ix.simplify(substitute(extent, {warp: ix.const(0)}))
        return upper_bound(extent, self.program, tuple((one.iter, one.lo, one.hi) for one in loops))


def _axes_of(extents: Sequence[int | None]) -> tuple[int, int] | None:
    """Return the two axes along which a window may have several elements, the last ones if there are fewer; None if there are more."""
    several = [k for k, extent in enumerate(extents) if extent != 1]
    others = [k for k in range(len(extents)) if k not in several]
    axes = sorted([*several, *others[len(several) - 2 :]] if len(several) < 2 else several)
    if len(axes) != 2 or any(extents[k] is None for k in axes):
        return None
    return axes[0], axes[1]


def _tiles(body: tuple[Stmt, ...], warp: For | None) -> list[tuple[Tile, For | None]]:
    """Return the tiles inside, each with the loop over warps, or over warpgroups, around it."""
    tiles: list[tuple[Tile, For | None]] = []
    for stmt in body:
        inner = stmt if isinstance(stmt, For) and stmt.unit in NUMBER_OF else warp
        if isinstance(stmt, Tile):
            tiles.append((stmt, inner))
            continue
        for block in blocks(stmt):
            tiles += _tiles(block, inner)
    return tiles


def at_warp(expr: Expr, iterators: Mapping[str, Expr]) -> Expr:
    """Return an index with the number of the warp in the place of the iterators of loops over warps."""
    return ix.simplify(substitute(expr, iterators))
