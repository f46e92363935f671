"""The layout of a call: the buffers of a program go in; where each lies, and bytes of scratch, come out.

Arguments come in the order of the stable entry, then what belongs to the call: on the stack where it
is small, else in the workspace, of which `offcut_workspace` says the bytes for given sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf, prod

from offcut.backends.cpu.lowering.addressing import Memory
from offcut.backends.cpu.lowering.expressions import is_one_element
from offcut.backends.cpu.lowering.vectors import TILE_SCRATCH, Vectors
from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.llvm import ir
from offcut.backends.llvm.elements import STORED, item_bytes
from offcut.backends.llvm.ir import FunctionWriter
from offcut.backends.signature import boundary_buffers
from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, statement_arrays, windowed_arrays
from offcut.core.expr import Binary, Expr, Var, variables
from offcut.core.intervals import interval
from offcut.core.layout import Layout
from offcut.core.program import (
    MAX_SIZE,
    Alloc,
    Buffer,
    Choose,
    For,
    Kind,
    Let,
    Program,
    Stmt,
    Tile,
    blocks,
    walk,
)
from offcut.partition import is_multiple
from offcut.polyhedral.units import is_written_before_read

STACK_BYTES = 32768  # of tile scratch, at most, on the caller's stack
WINDOW_BYTES = 16384  # of the windows that are open at a time, likewise
WINDOW_SCRATCH = "%window_scratch"
MAX_VARYING_ELEMENTS = 4096  # of a window, along axes whose extents differ between windows
PANEL_SLACK = 64  # bytes past the last panel: a narrow tile reads a whole vector

Range = tuple[float, float]
_ANY: Range = (-inf, inf)


class Storage(Vectors):
    """A program on its way to LLVM IR: the sizes of a call, its arrays and its scratch.

    single        the bytes of buffers of one element that belong to the call, by address
    open_bytes    bytes on the stack of the windows around a statement
    window_bytes  their greatest value
    """

    def __init__(self, program: Program, isa: Isa, chains: int) -> None:
        super().__init__(program, isa, chains)
        self.single: dict[str, int] = {}
        self.open_bytes = self.window_bytes = 0

    @property
    def is_shared(self) -> bool:
        """Return whether several threads run the code that is being written, and share its windows."""
        return False

    def sizes(self, f: FunctionWriter) -> None:
        """Read the sizes of the call."""
        for position, size in enumerate(self.program.sizes):
            address = f.let(f"getelementptr i64, ptr %sizes, i64 {position}")
            self.values[size.name] = f.let(f"load i64, ptr {address}", "size")
        self.of_sizes = {Var(size.name): (size.min, size.max) for size in self.program.sizes}
        self.bounds |= self.of_sizes
        f.begin()

    def buffers(self) -> None:
        """Where every buffer lies: arguments in the order of the stable entry, then scratch."""
        inputs, outputs = boundary_buffers(self.program.buffers)
        constants = [b for b in self.program.buffers if b.kind is Kind.CONSTANT]
        updated_arrays: dict[str, Memory] = {}
        stride = 0
        for position, buffer in enumerate([*inputs, *outputs, *constants]):
            address = self.f.let(f"getelementptr ptr, ptr %pointers, i64 {position}")
            base = self.f.let(f"load ptr, ptr {address}", "array")
            if buffer.kind is Kind.CONSTANT:
                self.memory[buffer.name] = replace(self.dense(buffer, base), is_constant=True)
                continue
            strides = []
            for axis in range(len(buffer.shape)):
                if axis == len(buffer.shape) - 1:
                    strides.append(str(item_bytes(buffer.dtype)))
                else:
                    at = self.f.let(f"getelementptr i64, ptr %strides, i64 {stride + axis}")
                    step = self.f.let(f"load i64, ptr {at}", "stride")
                    strides.append(ir.mul(self.f, step, str(item_bytes(buffer.dtype))))
            stride += len(buffer.shape)
            origins = ("0",) * len(strides)
            memory = Memory(base, buffer.dtype, tuple(strides), origins)
            if buffer.kind is Kind.INOUT and position < len(inputs):
                updated_arrays[buffer.name] = memory
            else:
                self.memory[buffer.name] = memory
        self.copy_updates(updated_arrays)
        outside = spilled_buffers(self.program)
        self.windows = windows_of(self.program)
        for buffer in self.program.buffers:
            if buffer.name in self.windows:
                continue
            if buffer.kind is Kind.LOCAL or buffer.name in outside:
                self.memory[buffer.name] = self.dense(buffer, self.home(buffer))

    def copy_updates(self, memories: Mapping[str, Memory]) -> None:
        """Copy what the program updates from the arrays that are given to its results."""
        for name, memory in memories.items():
            self.copy(self.program.buffer(name), memory, self.memory[name])

    def home(self, buffer: Buffer) -> str:
        """Return the address of a buffer that belongs to the call."""
        if not buffer.shape and buffer.layout is None:
            address = self.f.slot(STORED[buffer.dtype])
        else:
            address = self.scratch_of(self.bytes_of(buffer))
        if all(extent == ix.const(1) for extent in buffer.shape) and buffer.layout is None:
            self.single[address] = item_bytes(buffer.dtype)
        return address

    @contextmanager
    def window(self, alloc: Alloc) -> Iterator[None]:
        """Place the buffer of a window inside of this context: a small one on the stack, behind those around it.

        A buffer that does not live in windows stays where it is.
        """
        if alloc.buffer not in self.windows:
            yield
            return
        max_extents, buffer = self.windows[alloc.buffer], self.program.buffer(alloc.buffer)
        extents = tuple(
            extent if is_over_sizes(self.program, extent) else ix.const(int(max_extent))
            for max_extent, (_, extent) in zip(max_extents, alloc.axes, strict=True)
        )
        window = replace(buffer, shape=extents, layout=alloc.layout or buffer.layout)
        before = self.open_bytes
        self.open_bytes += self.max_bytes(window, max_extents)
        if self.is_shared or self.open_bytes > WINDOW_BYTES:
            base, self.open_bytes = self.scratch_of(self.bytes_of(window)), before
        else:
            self.window_bytes = max(self.window_bytes, self.open_bytes)
            base = WINDOW_SCRATCH
            if before:
                base = self.f.let(f"getelementptr i8, ptr {base}, i64 {before}")
        memory = self.dense(window, base)
        origins = tuple(self.scalar(start) for start, _ in alloc.axes)
        with self.placing({window.name: replace(memory, origins=origins)}):
            yield
        self.open_bytes = before

    def max_bytes(self, window: Buffer, max_extents: Sequence[float]) -> int:
        """Return the bytes of a window with these extents, in whole cache lines."""
        shape = tuple(ix.const(int(min(extent, MAX_SIZE))) for extent in max_extents)
        largest = replace(window, shape=shape)
        bytes_ = ix.literal_value(self.bytes_of(largest))
        assert bytes_ is not None
        return max(-(-bytes_ // 64), 1) * 64

    def bytes_of(self, buffer: Buffer) -> Expr:
        """Return the bytes of a buffer that offcut lays out."""
        return buffer_bytes(buffer, self.row_bytes(buffer))

    def copy(self, buffer: Buffer, source: Memory, target: Memory) -> None:
        """Copy an array, row by row, unless both are one."""
        kind = "ptr, ptr, i64, i1"
        self.f.declares.add(f"declare void @llvm.memcpy.p0.p0.i64({kind})")

        def rows(axis: int, here: str, there: str) -> None:
            rank = len(buffer.shape)
            if axis >= rank - 1:
                extent = self.scalar(buffer.shape[-1]) if rank else "1"
                count = ir.mul(self.f, extent, str(item_bytes(buffer.dtype)))
                self.f.do(
                    f"call void @llvm.memcpy.p0.p0.i64(ptr {there}, ptr {here}, i64 {count}, i1 false)"
                )
                return
            with self.f.loop("0", self.scalar(buffer.shape[axis])) as now:
                ends = []
                for base, memory in ((here, source), (there, target)):
                    step = ir.mul(self.f, now, memory.strides[axis])
                    ends.append(self.f.let(f"getelementptr i8, ptr {base}, i64 {step}"))
                rows(axis + 1, *ends)

        with self.f.when(self.f.let(f"icmp ne ptr {source.base}, {target.base}")):
            rows(0, source.base, target.base)

    def row_bytes(self, buffer: Buffer) -> Expr:
        """Bytes from one row of a buffer that offcut lays out to the next.

        Rows as far apart as the ways of the first cache are long all meet in the same of its sets: a line
        is left between those of what belongs to the call.
        """
        row = _row_bytes(buffer)
        if len(buffer.shape) < 2 or buffer.kind not in (Kind.LOCAL, Kind.PRIVATE):
            return row
        first = self.isa.machine.memory[0]
        odd = ix.minimum(ix.mod(row, first.bytes // (first.ways or 1)), 1)
        return ix.add(row, ix.mul(first.line, ix.sub(1, odd)))

    def dense(self, buffer: Buffer, base: str) -> Memory:
        """Return a buffer that offcut lays out: row-major, or as its layout says."""
        extents = [self.scalar(extent) for extent in buffer.shape]
        step, origins = str(item_bytes(buffer.dtype)), ("0",) * len(extents)
        if buffer.layout is not None:
            return self.memory_of(buffer, buffer.layout, base, extents)
        strides = [""] * len(extents)
        for axis in reversed(range(len(extents))):
            strides[axis] = step
            row = axis == len(extents) - 1
            step = (
                self.scalar(self.row_bytes(buffer)) if row else ir.mul(self.f, step, extents[axis])
            )
        return Memory(base, buffer.dtype, tuple(strides), origins)

    def memory_of(
        self, buffer: Buffer, layout: Layout, base: str, extents: Sequence[str]
    ) -> Memory:
        """Return a buffer whose elements lie as a layout says; its coordinates follow one another row by row.

        Where elements share a byte, digits count the bytes.
        """
        if (axis := layout.shared_axis) is not None:
            each, shared = layout.per_byte, [*extents]
            up = ir.add(self.f, extents[axis], str(each - 1))
            shared[axis] = ir.floordiv(self.f, up, str(each))
            byte_address = self.memory_of(buffer, layout.of_bytes(), base, shared)
            of_elements = tuple(
                tuple((step * each if at == axis else step, end, unit) for step, end, unit in of)
                for at, of in enumerate(byte_address.digits)
            )
            return replace(byte_address, layout=layout, digits=of_elements)
        f, first = self.f, str(item_bytes(buffer.dtype))
        strides = [""] * len(extents)
        digits: list[list[tuple[int, int | None, str]]] = [[] for _ in extents]
        for of in reversed(layout.digits(len(extents))):
            step, unplaced = first, [axis for axis, stride in enumerate(strides) if not stride]
            for digit in of:
                unit, axis = ir.mul(f, first, str(digit.weight)), digit.axis
                digits[axis].append((digit.step, digit.extent, unit))
                if axis in unplaced:
                    strides[axis] = unit
                count = str(digit.extent)
                if digit.extent is None:
                    count, multiple = extents[axis], layout.multiple_of(axis)
                    if multiple > 1:
                        up = ir.add(f, count, str(multiple - 1))
                        count = ir.floordiv(f, up, str(multiple))
                        count = ir.mul(f, count, str(multiple // digit.step))
                step = ir.mul(f, unit, count)
            first = step
        parts = tuple(tuple(sorted(of, key=lambda one: -one[0])) for of in digits)
        return Memory(base, buffer.dtype, tuple(strides), ("0",) * len(extents), layout, parts)

    def place_scratch(self) -> None:
        """Small scratch of tiles and windows lies on the stack, a large one in the workspace: a caller's stack may be short."""
        if self.tile_bytes > STACK_BYTES:
            self.scratch.append((TILE_SCRATCH, ix.const(self.tile_bytes)))
        elif self.tile_bytes:
            self.f.slots.append(f"  {TILE_SCRATCH} = alloca [{self.tile_bytes} x i8], align 64")
        if self.window_bytes:
            self.f.slots.append(f"  {WINDOW_SCRATCH} = alloca [{self.window_bytes} x i8], align 64")
        for name in self.copied:
            self.f.slots += [f"  {name} = alloca [2 x i64]", f"  store ptr null, ptr {name}"]

    def workspace(self) -> str:
        """Bytes of scratch of a call; where they pass int64, more than any allocator has."""

        def add_up(f: FunctionWriter) -> None:
            total, magnitude = "0", "0.0"
            for _, size in self.scratch:
                total = ir.add(f, total, self.aligned_bytes(size))
                magnitude = f.let(f"fadd double {magnitude}, {self.magnitude(size)}")
            self.cap_total(total, magnitude)

        text = self.over_sizes(add_up).text()
        return f"define i64 @offcut_workspace(ptr %sizes) nounwind {{\n{text}\n}}"

    def cap_total(self, total: str, magnitude: str) -> None:
        """Return `total`, or 2^61 where its magnitude shows that it may have passed int64."""
        huge = self.f.let(f"fcmp ogt double {magnitude}, 0x43C0000000000000")
        self.f.do(f"ret i64 {self.f.let(f'select i1 {huge}, i64 {1 << 61}, i64 {total}')}")

    def over_sizes(self, write: Callable[[FunctionWriter], None]) -> FunctionWriter:
        """Return a function of the sizes alone, whose names are none of the entry's."""
        f = FunctionWriter(prefix="s")
        old_writer, self.f, values = self.f, f, dict(self.values)
        self.sizes(f)
        write(f)
        self.f, self.values = old_writer, values
        self.f.declares |= f.declares
        return f

    def aligned_bytes(self, size: Expr) -> str:
        """`size` bytes rounded up to cache lines; none where an extent is negative, which no loop runs to."""
        up = ir.add(self.f, ir.maximum(self.f, self.scalar(size), "0"), "63")
        return ir.mul(self.f, ir.floordiv(self.f, up, "64"), "64")


def runs_as_loops(tile: Tile) -> bool:
    """Return whether the instances of a tile run one after the other, since there are tiles or choices in it."""
    return any(isinstance(stmt, Choose | Tile) for stmt in walk(tile.body))


def windows_of(program: Program) -> dict[str, tuple[float, ...]]:
    """Return the buffers that lie in windows outside of all tiles, each with the greatest extents of its windows.

    An extent of a window is known before the call, or a literal bounds it, by intervals.

    A window of an array in panels begins where a panel does: columns are counted from the first one of the array.
    """
    inside = [
        stmt
        for tile in walk(program.body)
        if isinstance(tile, Tile)
        for stmt in walk(tile.body)
        if isinstance(stmt, Alloc)
    ]
    whole_arrays = {alloc.buffer for alloc in inside}
    windows: dict[str, tuple[float, ...]] = {}
    for alloc, ranges in _windows(program.body, {s.name: (s.min, s.max) for s in program.sizes}):
        layout = alloc.layout or program.buffer(alloc.buffer).layout
        aligned = layout is None or all(
            is_multiple(start, layout.multiple_of(axis))
            for axis, (start, _) in enumerate(alloc.axes)
        )
        max_extents = tuple(max(_range(extent, ranges)[1], 0) for _, extent in alloc.axes)
        varying = (
            max_extent
            for max_extent, (_, extent) in zip(max_extents, alloc.axes, strict=True)
            if not is_over_sizes(program, extent)
        )
        is_bounded = prod(varying) <= MAX_VARYING_ELEMENTS  # no number of 0 by infinity is
        if not aligned or not is_bounded:
            whole_arrays.add(alloc.buffer)
        before = windows.get(alloc.buffer, max_extents)
        windows[alloc.buffer] = tuple(map(max, before, max_extents))
    return {name: extents for name, extents in windows.items() if name not in whole_arrays}


def is_over_sizes(program: Program, expr: Expr) -> bool:
    """Return whether an expression is over sizes alone, and known before the call."""
    return variables(expr) <= {size.name for size in program.sizes}


def _windows(
    body: Sequence[Stmt], ranges: Mapping[str, Range]
) -> Iterator[tuple[Alloc, Mapping[str, Range]]]:
    """Yield each window with the ranges of the names around it: sizes, iterators and bounded values."""
    for stmt in body:
        inner = ranges
        match stmt:
            case Alloc():
                yield stmt, ranges
            case For(name, lo, hi):
                inner = {**ranges, name: (_range(lo, ranges)[0], _range(hi, ranges)[1] - 1)}
            case Let(name, lo, hi):
                inner = {**ranges, name: (lo, hi - 1)}
            case Tile():
                continue
        for block in blocks(stmt):
            yield from _windows(block, inner)


def _range(expr: Expr, ranges: Mapping[str, Range]) -> Range:
    """Return the least and the greatest value of an index expression; infinite for what is read from memory."""

    def known(leaf: Expr) -> Range:
        return ranges.get(leaf.name, _ANY) if isinstance(leaf, Var) else _ANY

    match expr:
        case Binary(
            "-", end, start
        ):  # of an end that is the least of several, the least of the distances
            expr = ix.distance(start, end)
    return interval(expr, known)


def buffers_in_memory(program: Program) -> frozenset[str]:
    """Return the buffers that lie in memory wherever they are accessed: all but private ones that registers stand for."""
    private = {buffer.name for buffer in program.buffers if buffer.kind is Kind.PRIVATE}
    registers = private - spilled_buffers(program) - windows_of(program).keys()
    return frozenset(buffer.name for buffer in program.buffers if buffer.name not in registers)


def spilled_buffers(program: Program) -> set[str]:
    """Return the private buffers that need memory.

    Some statement outside of the innermost tiles accesses them, or such a tile at elements that differ, or
    before it stores them: what others have stored there.
    """
    private = {b.name for b in program.buffers if b.kind is Kind.PRIVATE}
    return _beyond(program.body, private) if private else set()


def _beyond(body: Sequence[Stmt], private: set[str]) -> set[str]:
    buffers: set[str] = set()
    for stmt in body:
        if isinstance(stmt, Tile) and not runs_as_loops(stmt):
            here = private & accessed_arrays(stmt.body)
            buffers |= {
                name
                for name in here
                if not (is_one_element(name, stmt.body) and _begins(name, stmt.body))
            }
            continue
        buffers |= statement_arrays(stmt) & private
        for block in blocks(stmt):
            buffers |= _beyond(block, private)
    return buffers


def _begins(name: str, body: tuple[Stmt, ...]) -> bool:
    """Return whether `body` reads nothing of a buffer but what it has stored itself."""
    return is_written_before_read(name, body) or name in windowed_arrays(body)


def buffer_bytes(buffer: Buffer, row: Expr | None = None) -> Expr:
    """Bytes of a buffer that offcut lays out, as an index expression.

    row  bytes from one row to the next, where it is in no panels; None: they lie side by side
    """
    layout = buffer.layout
    if layout is None:
        total = _row_bytes(buffer) if row is None else row
        for extent in buffer.shape[:-1]:
            total = ix.mul(total, extent)
        return total
    total = ix.const(item_bytes(buffer.dtype))
    for axis, extent in enumerate(buffer.shape):
        multiple, room = layout.multiple_of(axis), layout.room(axis)
        whole = ix.mul(ix.ceildiv(extent, multiple), multiple)
        total = ix.mul(total, whole if room is None else ix.const(room))
    return ix.add(total, PANEL_SLACK)


def _row_bytes(buffer: Buffer) -> Expr:
    return ix.mul(item_bytes(buffer.dtype), buffer.shape[-1] if buffer.shape else 1)
