"""Packing into panels whose rows lie side by side, a register at a time.

Sixteen columns of g rows, g elements of 4 bytes together, are one register of the panel. Where the
source's columns lie next to each other, g vectors are shuffled into it; where its rows do, sixteen
registers are read along them and turned as squares of 4-byte units. A scatter would write single
elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.cpu.lowering.addressing import Addressing, Lanes
from offcut.backends.llvm import ir
from offcut.backends.llvm.elements import STORED, item_bytes
from offcut.backends.llvm.ir import FunctionWriter
from offcut.core import index as ix
from offcut.core.expr import Compare, Const, Expr, Load, Select, Var
from offcut.core.panels import as_panels
from offcut.core.program import Stmt, Store, TileAxis
from offcut.polyhedral import NEXT

UNIT = 4  # bytes of the rows that lie side by side
COLUMNS = 16


def interleaves(low: Addressing, axes: Sequence[TileAxis], body: Sequence[Stmt]) -> bool:
    """Whether a tile over rows and columns copies an operand into such panels."""
    match body:
        case [Store(buffer, index, value, None)] if buffer in low.memory and len(axes) == 2:
            panels, source = as_panels(low.memory[buffer].layout), _source(value, axes[0])
            if panels is None or source is None or panels.beside == 1:
                return False
            place = (index[panels.rows], index[panels.columns])
            unit = panels.beside * item_bytes(source.dtype) == UNIT
            whole = low.isa.register_bytes == UNIT * COLUMNS and panels.width == COLUMNS
            lies = _lies(low, source, axes)
            filled = _fills(axes[0], panels.beside) and _fills(axes[1], COLUMNS)
            same = place == (Var(axes[0].iter), Var(axes[1].iter))
            return same and unit and whole and filled and lies != ""
        case _:
            return False


def _fills(axis: TileAxis, unit: int) -> bool:
    """Whether a tile writes whole registers: what else is in one of them is another tile's."""
    return all(ix.literal_value(ix.mod(part, unit)) == 0 for part in (axis.start, axis.extent))


def _source(value: Expr, rows: TileAxis) -> Load | None:
    """What is copied where `value` is an element, or zero from some row on."""
    match value:
        case Load():
            return value
        case Select(Compare("<", Var(name), _), Load() as load, Const(0)) if name == rows.iter:
            return load
        case _:
            return None


def _lies(low: Addressing, source: Load, axes: Sequence[TileAxis]) -> str:
    """Along which axis the source's elements lie: "columns", "rows", or "" where along neither."""
    memory = low.memory[source.buffer]
    rows, columns = (low.along(memory, source.index, Lanes(COLUMNS, axis.iter)) for axis in axes)
    return "columns" if columns == NEXT else "rows" if rows == NEXT else ""


def emit_interleaved_pack(
    low: Addressing, axes: Sequence[TileAxis], counts: Sequence[str], copy: Store
) -> None:
    """Write the panels' rows and columns of a tile, `counts` of each, from a panel's start on."""
    source = _source(copy.value, axes[0])
    assert source is not None
    f, (rows, columns) = low.f, axes
    first = low.scalar(rows.start), low.scalar(columns.start)
    last = ir.add(f, first[0], counts[0])
    if isinstance(copy.value, Select) and isinstance(copy.value.condition, Compare):
        last = low.scalar(copy.value.condition.b)
    side = UNIT // item_bytes(source.dtype)
    by_columns = _lies(low, source, axes) == "columns"
    step = side if by_columns else side * COLUMNS
    with f.loop("0", counts[1], COLUMNS) as j, f.loop("0", counts[0], step) as k:
        at = ir.add(f, first[0], k), ir.add(f, first[1], j)
        wide = ir.sub(f, counts[1], j)
        with low.bound(rows.iter, at[0]), low.bound(columns.iter, at[1]):
            target = low.address(low.memory[copy.buffer], copy.index)
        if by_columns:
            vectors = [_row(low, source, axes, at, t, wide, last) for t in range(side)]
            value = _interleave_vectors(f, vectors, STORED[source.dtype])
            f.do(f"store <{UNIT * COLUMNS} x i8> {value}, ptr {target}, align 1")
        else:
            units = _transpose_units(low, source, axes, at, wide, last)
            remaining = ir.sub(f, counts[0], k)
            for group, unit in enumerate(units):
                there = f.let(f"icmp slt i64 {group * side}, {remaining}")
                with f.when(there):
                    place = f.let(f"getelementptr i8, ptr {target}, i64 {group * UNIT * COLUMNS}")
                    f.do(f"store <{COLUMNS} x i32> {unit}, ptr {place}, align 1")


def _row(
    low: Addressing,
    source: Load,
    axes: Sequence[TileAxis],
    at: tuple[str, str],
    t: int,
    wide: str,
    last: str,
) -> str:
    """The columns of row ``at + t``; zeros past the last row and the last column."""
    f, (rows, columns), kind = low.f, axes, STORED[source.dtype]
    row = ir.add(f, at[0], str(t))
    inside = f.let(f"icmp slt i64 {row}, {last}")
    count = f.let(f"select i1 {inside}, i64 {wide}, i64 0")
    with low.bound(rows.iter, row), low.bound(columns.iter, at[1]):
        address = low.address(low.memory[source.buffer], source.index)
    return _load(f, address, kind, COLUMNS, count)


def _interleave_vectors(f: FunctionWriter, vectors: Sequence[str], kind: str) -> str:
    """Vectors of 16 elements, element by element in turn, as bytes."""
    lanes = COLUMNS
    while len(vectors) > 1:
        half = len(vectors) // 2
        order = [lane // 2 + (lane % 2) * lanes for lane in range(2 * lanes)]
        mask = ", ".join(f"i32 {lane}" for lane in order)
        vectors = [
            f.let(
                f"shufflevector <{lanes} x {kind}> {vectors[n]}, <{lanes} x {kind}> "
                f"{vectors[n + half]}, <{2 * lanes} x i32> <{mask}>"
            )
            for n in range(half)
        ]
        lanes *= 2
    return f.let(f"bitcast <{lanes} x {kind}> {vectors[0]} to <{UNIT * COLUMNS} x i8>")


def _transpose_units(
    low: Addressing,
    source: Load,
    axes: Sequence[TileAxis],
    at: tuple[str, str],
    wide: str,
    last: str,
) -> list[str]:
    """Sixteen units of rows from ``at`` on, each for 16 columns; zeros past the last of both."""
    f, (rows, columns) = low.f, axes
    item = item_bytes(source.dtype)
    bytes_left = ir.mul(f, ir.sub(f, last, at[0]), str(item))
    interleaved = []
    for column in range(COLUMNS):
        place = ir.add(f, at[1], str(column))
        inside = f.let(f"icmp slt i64 {column}, {wide}")
        count = f.let(f"select i1 {inside}, i64 {bytes_left}, i64 0")
        with low.bound(rows.iter, at[0]), low.bound(columns.iter, place):
            address = low.address(low.memory[source.buffer], source.index)
        vector = _load(f, address, "i8", UNIT * COLUMNS, count)
        interleaved.append(f.let(f"bitcast <{UNIT * COLUMNS} x i8> {vector} to <{COLUMNS} x i32>"))
    step = COLUMNS // 2
    while step:
        interleaved = emit_transpose_step(f, interleaved, step, f"<{COLUMNS} x i32>")
        step //= 2
    return interleaved


def _load(f: FunctionWriter, address: str, kind: str, lanes: int, count: str) -> str:
    """The first `count` of so many elements, zeros for the others; none where it is negative."""
    some = ir.minimum(f, ir.maximum(f, count, "0"), str(lanes))
    short = f.let(f"trunc i64 {some} to i8")
    one = f.let(f"insertelement <{lanes} x i8> poison, i8 {short}, i32 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    limit = f.let(f"shufflevector <{lanes} x i8> {one}, <{lanes} x i8> poison, {zeros}")
    ramp = "<" + ", ".join(f"i8 {lane}" for lane in range(lanes)) + ">"
    mask = f.let(f"icmp ult <{lanes} x i8> {ramp}, {limit}")
    vector = f"<{lanes} x {kind}>"
    return f.call(
        vector,
        f"llvm.masked.load.v{lanes}{kind}.p0",
        f"ptr {address}, i32 1, <{lanes} x i1> {mask}, {vector} zeroinitializer",
        f"ptr, i32, <{lanes} x i1>, {vector}",
    )


def emit_transpose_step(f: FunctionWriter, rows: Sequence[str], step: int, kind: str) -> list[str]:
    """One step of a transposition: off-diagonal blocks of `step` × `step` elements change places."""
    width, turned = len(rows), list(rows)
    for i in range(width):
        if i & step:
            continue
        a, b = rows[i], rows[i + step]
        upper = [t if not t & step else width + t - step for t in range(width)]
        lower = [t + step if not t & step else width + t for t in range(width)]
        for row, order in ((i, upper), (i + step, lower)):
            indices = ", ".join(f"i32 {t}" for t in order)
            shuffle = f"shufflevector {kind} {a}, {kind} {b}, <{width} x i32> <{indices}>"
            turned[row] = f.let(shuffle)
    return turned
