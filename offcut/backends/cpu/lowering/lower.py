"""Loop programs to LLVM IR: the entry that every call reaches, for all sizes at once.

Loops, conditions and bounded values become control flow. What a program updates in place is copied
into its result first, unless the two are one array. A `Tile` is lowered in one of two ways:

by a microkernel   each sum of the tile that the microkernel computes becomes calls of row-block
                   functions on the tile's memory (`row_blocks`); what follows runs as vectors
by vectors         lanes along the last axis (`vectors`)

Either way an element of a sum is one chain of operations in the order of its reduction, or where
the loop is marked ``@vectorize`` a tree that its extent fixes (`reductions`): so the result does not
depend on the tile it falls into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from offcut.backends.cpu.lowering.accesses import is_one_element, own_expressions
from offcut.backends.cpu.lowering.addressing import Lanes, Memory
from offcut.backends.cpu.lowering.covers import Parts, Refusal, cover, nearest
from offcut.backends.cpu.lowering.extents import as_loops
from offcut.backends.cpu.lowering.row_blocks import lower_by_blocks
from offcut.backends.cpu.lowering.vectors import TILE_SCRATCH, Vectors
from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.cpu.microkernels.family import TILES, Family, Variant
from offcut.backends.inside import STATUS
from offcut.backends.llvm import ir
from offcut.backends.llvm.elements import STORED, item_bytes
from offcut.backends.llvm.ir import Function
from offcut.backends.llvm.outline import Outline
from offcut.backends.signature import crossing
from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, loads, variables
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    For,
    If,
    Kind,
    Let,
    Option,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
    walk,
)
from offcut.describe.intrinsic import declared

STACK_BYTES = 32768  # of tile scratch, at most, on the caller's stack
PANEL_SLACK = 64  # bytes past the last panel: a narrow tile reads a whole vector


@dataclass(frozen=True, slots=True)
class Lowered:
    """LLVM IR of `offcut_entry`, `offcut_workspace`, `offcut_work`, and the tiles that they call.

    tiles   (microkernel, variant, (rows, panels)…) of its functions
    """

    text: str
    tiles: tuple[tuple[str, Variant, tuple[tuple[int, int], ...]], ...]


def lower(
    program: Program,
    isa: Isa,
    families: Sequence[Family],
    work: Expr,
    chains: int = 1,
) -> Lowered:
    """`program` for an instruction set.

    work     of a call, in instances, by which it is judged worth letting other threads run
    chains   registers of lanes that a tile with a loop inside takes at once
    """
    return Lowering(program, isa, families, work, chains).lowered()


class Lowering(Vectors):
    """A program on its way to LLVM IR: its entry, and what the entry needs."""

    def __init__(
        self,
        program: Program,
        isa: Isa,
        families: Sequence[Family],
        work: Expr,
        chains: int,
    ) -> None:
        super().__init__(program, isa, chains)
        self.instances_of_call = work
        self.families = {family.microkernel.name: family for family in families}
        self.outline = Outline()

    def entry(self) -> str:
        """The function that runs a call."""
        self.sizes(self.f)
        self.buffers()
        self.block(self.program.body)
        self.f.do(f"ret i32 {self.status()}")
        self.place_tile_scratch()
        head = "i32 @offcut_entry(ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace)"
        return f"define {head} nounwind {{\n{self.with_scratch()}\n}}"

    def lowered(self) -> Lowered:
        """All that the module defines."""
        sections = [self.entry(), self.workspace(), self.work(), *self.functions.values()]
        sections += self.tables.values()
        sections += self.outline.functions.values()
        tiles = tuple(
            (kernel, variant, tuple(sorted(shapes)))
            for (kernel, variant), shapes in self.tiles.items()
        )
        for kernel, variant, shapes in tiles:
            symbol = self.families[kernel].symbol
            self.f.declares |= {
                f"declare void @{symbol(variant, *shape)}({TILES})" for shape in shapes
            }
        return Lowered("\n\n".join([*sections, "\n".join(sorted(self.f.declares))]) + "\n", tiles)

    def status(self) -> str:
        """0, or what the buffer of that scope says."""
        for buffer in self.program.buffers:
            if buffer.scope == STATUS:
                return self.f.let(f"load i32, ptr {self.memory[buffer.name].base}")
        return "0"

    def sizes(self, f: Function) -> None:
        """Read the sizes of the call."""
        for position, size in enumerate(self.program.sizes):
            address = f.let(f"getelementptr i64, ptr %sizes, i64 {position}")
            self.values[size.name] = f.let(f"load i64, ptr {address}", "size")
        self.of_sizes = {Var(size.name): (size.min, size.max) for size in self.program.sizes}
        self.bounds |= self.of_sizes
        f.begin()

    def buffers(self) -> None:
        """Where every buffer lies: arguments in the order of the stable entry, then scratch."""
        inputs, outputs = crossing(self.program.buffers)
        constants = [b for b in self.program.buffers if b.kind is Kind.CONSTANT]
        given: dict[str, Memory] = {}
        stride = 0
        for position, buffer in enumerate([*inputs, *outputs, *constants]):
            address = self.f.let(f"getelementptr ptr, ptr %pointers, i64 {position}")
            base = self.f.let(f"load ptr, ptr {address}", "array")
            if buffer.kind is Kind.CONSTANT:
                self.memory[buffer.name] = self.dense(buffer, base)
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
                given[buffer.name] = memory
            else:
                self.memory[buffer.name] = memory
        self.updated(given)
        outside = beyond_registers(self.program)
        self.windows = windows_of(self.program)
        for buffer in self.program.buffers:
            if buffer.name in self.windows:
                continue
            if buffer.kind is Kind.LOCAL or buffer.name in outside:
                self.memory[buffer.name] = self.dense(buffer, self.home(buffer))

    def updated(self, given: Mapping[str, Memory]) -> None:
        """Copy what the program updates from the arrays that are given to its results."""
        for name, memory in given.items():
            self.copy(self.program.buffer(name), memory, self.memory[name])

    def home(self, buffer: Buffer) -> str:
        """The address of a buffer that belongs to the call."""
        if not buffer.shape and buffer.layout is None:
            return self.f.slot(STORED[buffer.dtype])
        return self.scratch_of(bytes_of(buffer))

    def window(self, alloc: Alloc) -> dict[str, Memory]:
        """Where a buffer lies that lives in a window; nothing where it lies in memory as a whole."""
        if alloc.buffer not in self.windows:
            return {}
        extents = tuple(extent for _, extent in alloc.axes)
        held = replace(self.program.buffer(alloc.buffer), shape=extents)
        memory = self.dense(held, self.scratch_of(bytes_of(held)))
        return {held.name: replace(memory, origins=tuple(self.scalar(at) for at, _ in alloc.axes))}

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

    def dense(self, buffer: Buffer, base: str) -> Memory:
        """A buffer that offcut lays out: row-major, or in panels."""
        item = str(item_bytes(buffer.dtype))
        extents = [self.scalar(extent) for extent in buffer.shape]
        strides = [""] * len(extents)
        layout, step, panels = buffer.layout, item, "0"
        if layout is not None:
            depth, multiple = extents[layout.rows], str(layout.multiple)
            if layout.multiple > 1:
                up = ir.floordiv(self.f, ir.add(self.f, depth, str(layout.multiple - 1)), multiple)
                depth = ir.mul(self.f, up, multiple)
            panels = ir.mul(self.f, depth, str(layout.width * int(item)))
            columns = ir.add(self.f, extents[layout.columns], str(layout.width - 1))
            count = ir.floordiv(self.f, columns, str(layout.width))
            step = ir.mul(self.f, panels, count)
            beside = layout.interleave * int(item)
            strides[layout.rows], strides[layout.columns] = str(layout.width * beside), str(beside)
        for axis in reversed(range(len(extents))):
            if not strides[axis]:
                strides[axis] = step
                step = ir.mul(self.f, step, extents[axis])
        origins = ("0",) * len(strides)
        return Memory(base, buffer.dtype, tuple(strides), origins, layout, panels)

    def place_tile_scratch(self) -> None:
        """Small scratch lies on the stack, a large one in the workspace: a caller's stack may be short."""
        if self.tile_bytes > STACK_BYTES:
            self.scratch.append((TILE_SCRATCH, ix.const(self.tile_bytes)))
        elif self.tile_bytes:
            self.f.slots.append(f"  {TILE_SCRATCH} = alloca [{self.tile_bytes} x i8], align 64")

    def with_scratch(self) -> str:
        """The entry's text, with the parts of the workspace laid out before all else."""

        def lay_out(f: Function) -> None:
            offset = "0"
            for name, size in self.scratch:
                f.do(f"{name} = getelementptr i8, ptr %workspace, i64 {offset}")
                offset = ir.add(f, offset, self.aligned(size))

        head, body = self.over_sizes(lay_out), self.f
        self.outline.place(body)
        return "\n".join(
            ["entry:", *body.slots, *head.slots, *head.instructions(), *body.instructions()]
        )

    def workspace(self) -> str:
        """Bytes of scratch of a call; where they pass int64, more than any allocator has."""

        def add_up(f: Function) -> None:
            total, magnitude = "0", "0.0"
            for _, size in self.scratch:
                total = ir.add(f, total, self.aligned(size))
                magnitude = f.let(f"fadd double {magnitude}, {self.magnitude(size)}")
            self.capped(total, magnitude)

        text = self.over_sizes(add_up).text()
        return f"define i64 @offcut_workspace(ptr %sizes) nounwind {{\n{text}\n}}"

    def work(self) -> str:
        """Instances of a call."""

        def instances(f: Function) -> None:
            total = self.scalar(self.instances_of_call)
            self.capped(total, self.magnitude(self.instances_of_call))

        text = self.over_sizes(instances).text()
        return f"define i64 @offcut_work(ptr %sizes) nounwind {{\n{text}\n}}"

    def capped(self, total: str, magnitude: str) -> None:
        """Return `total`, or 2^61 where its magnitude shows that it may have passed int64."""
        huge = self.f.let(f"fcmp ogt double {magnitude}, 0x43C0000000000000")
        self.f.do(f"ret i64 {self.f.let(f'select i1 {huge}, i64 {1 << 61}, i64 {total}')}")

    def magnitude(self, expr: Expr) -> str:
        """A bound on an index expression that is not negative, in float64."""
        match expr:
            case Binary("+" | "*" as op, a, b):
                x, y = self.magnitude(a), self.magnitude(b)
                return self.f.let(f"{'fadd' if op == '+' else 'fmul'} double {x}, {y}")
            case Binary("//", a, Const()) | Binary("-", a, _):
                return self.magnitude(a)
            case _:
                return self.f.let(f"sitofp i64 {self.scalar(expr)} to double")

    def over_sizes(self, write: Callable[[Function], None]) -> Function:
        """A function of the sizes alone, whose names are none of the entry's."""
        f = Function(prefix="s")
        kept, self.f, values = self.f, f, dict(self.values)
        self.sizes(f)
        write(f)
        self.f, self.values = kept, values
        self.f.declares |= f.declares
        return f

    def aligned(self, size: Expr) -> str:
        """`size` bytes rounded up to cache lines."""
        up = ir.add(self.f, self.scalar(size), "63")
        return ir.mul(self.f, ir.floordiv(self.f, up, "64"), "64")

    def block(self, body: Sequence[Stmt]) -> None:
        """Statements one after the other."""
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        """One statement."""
        match stmt:
            case For() | If() if is_plain(stmt):
                self.vector_block((stmt,), Lanes(1, None), {})
            case For(name, lo, hi, body, _):
                first, last = self.range_of(lo)[0], self.range_of(hi)[1]
                with (
                    self.f.loop(self.scalar(lo), self.scalar(hi)) as now,
                    self.bound(name, now),
                    self.known(Var(name), first, last - 1),
                ):
                    self.block(body)
            case If(condition, then, other):
                self.branch(condition, then, other)
            case Let(name, lo, hi, value, body):
                with self.bound(name, self.scalar(value)), self.known(Var(name), lo, hi - 1):
                    self.block(body)
            case Tile():
                self.tile(stmt)
            case Store():
                self.vector_store(stmt, Lanes(1, None), {})
            case Alloc():
                with self.placed(self.window(stmt)):
                    self.block(stmt.body)
            case Choose(options):
                self.choose(options)
            case _:
                assert_never(stmt)

    def branch(self, condition: Expr, then: Sequence[Stmt], other: Sequence[Stmt]) -> None:
        """`then` where the condition holds, else `other`."""
        holds = self.truth(condition, {})
        yes, no, end = self.f.name("then"), self.f.name("else"), self.f.name("end")
        self.f.do(f"br i1 {holds}, label {yes}, label {no}")
        self.f.start(yes)
        with self.assumed(condition, True):
            self.block(then)
        self.f.do(f"br label {end}")
        self.f.start(no)
        with self.assumed(condition, False):
            self.block(other)
        self.f.block(end)

    def choose(self, options: Sequence[Option]) -> None:
        """Run the first of the cheapest; where costs are of sizes alone, they are compared once a call."""
        if all(self.can_go_ahead(option.cost) for option in options):
            with self.ahead():
                best = self.cheapest(options)
        else:
            best = self.cheapest(options)
        end = self.f.name("end")
        labels = [self.f.name("option") for _ in options]
        cases = " ".join(f"i64 {k}, label {label}" for k, label in enumerate(labels[1:], 1))
        self.f.do(f"switch i64 {best}, label {labels[0]} [ {cases} ]")
        for label, option in zip(labels, options, strict=True):
            self.f.start(label)
            self.block(option.body)
            self.f.do(f"br label {end}")
        self.f.start(end)

    def cheapest(self, options: Sequence[Option]) -> str:
        """The position of the first of the cheapest."""
        best, cheapest = "0", ""
        for position, option in enumerate(options):
            cost = self.cost(option.cost)
            if not cheapest:
                cheapest = cost
                continue
            less = self.f.let(f"fcmp olt double {cost}, {cheapest}")
            best = self.f.let(f"select i1 {less}, i64 {position}, i64 {best}")
            cheapest = self.f.let(f"select i1 {less}, double {cost}, double {cheapest}")
        return best

    def cost(self, expr: Expr) -> str:
        """A float64 expression over sizes and coordinates, as a scalar."""
        lanes = Lanes(1, None)
        vector = self.value(expr, lanes, {})
        return self.f.let(f"extractelement <1 x double> {vector}, i32 0")

    def tile(self, tile: Tile) -> None:
        """A tile by its microkernel, or as vectors."""
        if runs_as_loops(tile):
            self.block(as_loops(tile))
            return
        found = self.cover(tile)
        with self.outline.piece(self.f):
            if isinstance(found, Refusal):
                self.vectors(tile, tile.body, {})
            else:
                lower_by_blocks(self, tile, self.families[tile.microkernel or ""], found)

    def cover(self, tile: Tile) -> Parts | Refusal:
        """How the microkernel that `tile` names computes it."""
        if tile.microkernel is None:
            return Refusal(nearest(self, tile, self.families.values()))
        family = self.families.get(tile.microkernel)
        if family is None:
            return Refusal(_elsewhere(tile.microkernel))
        return cover(self, tile, family)


def _elsewhere(name: str) -> str:
    """Why an instruction that a tile names is none of the CPU's."""
    kernel = declared(name)
    if kernel is None or kernel.unit == "core":
        return "a declared instruction runs as the loops that say what it does"
    return f"it runs on a {kernel.unit}, and the CPU has none"


def runs_as_loops(tile: Tile) -> bool:
    """Whether the instances of a tile run one after the other, since there are tiles or choices in it."""
    return any(isinstance(stmt, Choose | Tile) for stmt in walk(tile.body))


class Judging(Lowering):
    """A walk of the lowering that writes no tile, and says which have no microkernel.

    refused   why a tile is not computed by the microkernel that it names, or by any where it names
              none, by the tile's identity
    """

    def __init__(self, program: Program, isa: Isa, families: Sequence[Family]) -> None:
        super().__init__(program, isa, families, ix.const(0), 1)
        self.refused: dict[int, str] = {}
        self.sizes(self.f)
        self.buffers()
        self.block(program.body)

    def statement(self, stmt: Stmt) -> None:
        """What holds tiles, with what it says of them."""
        if not is_plain(stmt):
            super().statement(stmt)

    def choose(self, options: Sequence[Option]) -> None:
        """Every option."""
        for option in options:
            self.block(option.body)

    def tile(self, tile: Tile) -> None:
        """Who computes a tile, or those inside it."""
        found = self.cover(tile)
        if isinstance(found, Refusal):
            self.refused.setdefault(id(tile), found.reason)
        if runs_as_loops(tile):
            self.block(as_loops(tile))


def is_plain(stmt: Stmt) -> bool:
    """Whether a statement is scalar code all through: no tiles, nothing to choose, no windows."""
    return not any(isinstance(inner, Tile | Choose | Alloc) for inner in walk((stmt,)))


def windows_of(program: Program) -> set[str]:
    """The buffers that lie in windows, of sizes known before the call, outside of all tiles."""
    sizes = {size.name for size in program.sizes}
    inside = [
        stmt
        for tile in walk(program.body)
        if isinstance(tile, Tile)
        for stmt in walk(tile.body)
        if isinstance(stmt, Alloc)
    ]
    kept = {alloc.buffer for alloc in inside}
    found: set[str] = set()
    for stmt in walk(program.body):
        if isinstance(stmt, Alloc):
            fixed = all(variables(extent) <= sizes for _, extent in stmt.axes)
            (found if fixed else kept).add(stmt.buffer)
    return found - kept


def beyond_registers(program: Program) -> set[str]:
    """The private buffers that need memory.

    Some statement outside of the innermost tiles accesses them, or such a tile at elements that differ.
    """
    private = {b.name for b in program.buffers if b.kind is Kind.PRIVATE}
    return _beyond(program.body, private) if private else set()


def _beyond(body: Sequence[Stmt], private: set[str]) -> set[str]:
    found: set[str] = set()
    for stmt in body:
        if isinstance(stmt, Tile) and not runs_as_loops(stmt):
            found |= {name for name in private if not is_one_element(name, stmt.body)}
            continue
        here = (node for expr in own_expressions(stmt) for node in loads(expr))
        found |= {load.buffer for load, _ in here} & private
        if isinstance(stmt, Store):
            found |= {stmt.buffer} & private
        for block in blocks(stmt):
            found |= _beyond(block, private)
    return found


def bytes_of(buffer: Buffer) -> Expr:
    """Bytes of a buffer that offcut lays out, as an index expression."""
    total: Expr = ix.const(item_bytes(buffer.dtype))
    for axis, extent in enumerate(buffer.shape):
        if buffer.layout is not None and axis == buffer.layout.columns:
            width = buffer.layout.width
            extent = ix.mul(ix.ceildiv(extent, width), width)
        if buffer.layout is not None and axis == buffer.layout.rows and buffer.layout.multiple > 1:
            multiple = buffer.layout.multiple
            extent = ix.mul(ix.ceildiv(extent, multiple), multiple)
        total = ix.mul(total, extent)
    return ix.add(total, PANEL_SLACK) if buffer.layout is not None else total
