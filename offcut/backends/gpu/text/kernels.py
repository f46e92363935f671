"""Writes a program of units as CUDA C++: a kernel for each launch, in which every warp finds its part by its number.

Warps of loops come first; behind them one more is the load unit, if anything is loaded: beside warpgroups, the first warp of a
warpgroup of its own, which leaves its registers to the others. Tokens are barriers in shared memory: the
k-th arrival and the k-th wait of a warp are counted, and token k is phase ``k / room`` of barrier ``k % room``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from offcut.backends.executor.launch_statements import launch_statements
from offcut.backends.gpu.block_limits import RegisterSplit, split_registers
from offcut.backends.gpu.boxes import CELL, is_box_copy
from offcut.backends.gpu.launches import (
    INDEX_LIMIT,
    ArrayParameter,
    DeviceArray,
    Launch,
    LaunchPlan,
    SizeParameter,
    TensorMapParameter,
    python_name,
)
from offcut.backends.gpu.text.groups import KERNELS, arrays_but_in_boxes, tensor_maps
from offcut.backends.gpu.text.primitives import head
from offcut.backends.gpu.text.unit_statements import LANES, WARPS_OF_A_GROUP, UnitStatements
from offcut.backends.gpu.text.windows import NUMBER_OF, TYPES, Windows, name_of, no_text, writer
from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Var, reads_memory, substitute
from offcut.core.program import Alloc, Choose, For, If, Kind, Program, Stmt, Sync, Tile, Token, walk
from offcut.core.text.c_expressions import CExpressions, signed_names
from offcut.core.text.printer import format_expr, format_head
from offcut.core.traversal import map_blocks, substitute_coordinates
from offcut.polyhedral.index_maximum import agent_count, index_bounds

REGISTERS = 65536
"""Registers of 32 bits of a multiprocessor, of compute capability 9.0 as of 8.0."""
_ARGUMENTS = (Kind.INPUT, Kind.OUTPUT, Kind.INOUT, Kind.CONSTANT)
_GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


def cuda_text(program: Program) -> str:
    """Return the text of a program: primitives, and a kernel for each launch, those of all options.

    Raises DescribeError for a statement that has no text in CUDA C++ so far.
    """
    return cuda_kernels(program)[0]


def cuda_kernels(program: Program) -> tuple[str, LaunchPlan]:
    """Return the text of a program, as `cuda_text` does, and how its kernels are launched."""
    launches = launch_statements(program)
    kernels = [_Kernel(program, one.stmt, one.kernel, one.taken) for one in launches]
    notes = (f"// option {one.option}\n" if one.option else "" for one in launches)
    body = "\n\n".join(note + one.text() for note, one in zip(notes, kernels, strict=True))
    names = {size.name: Var(python_name(size.name)) for size in program.sizes}
    touched = {name for kernel in kernels for name in kernel.buffers()}
    arrays = [b for b in program.buffers if b.name in touched or b.kind in _ARGUMENTS]
    plan = LaunchPlan(
        program.name,
        tuple(size.name for size in program.sizes),
        tuple(DeviceArray(b.name, b.dtype, b.kind.value, _texts(b.shape, names)) for b in arrays),
        tuple(kernel.launch_record(names) for kernel in kernels),
    )
    return f"{head(body)}\n\n{body}\n", plan


def _texts(exprs: Sequence[Expr], names: Mapping[str, Expr]) -> tuple[str, ...]:
    """Return expressions over the sizes, as Python reads them."""
    return tuple(format_expr(substitute(expr, names)) for expr in exprs)


@dataclass
class _Kernel:
    """The kernel of a launch."""

    program: Program
    launch: Stmt
    name: str
    taken: Expr | None
    grid: list[Expr] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.launch,) = map_single_trips((self.launch,))
        self.signed = signed_names((self.launch,))
        self.windows = Windows.of(self.program, self.launch)
        self.maps = tensor_maps(self.program, self.launch, self.windows)
        self.tokens = self.tokens_here()
        self.loads = any(isinstance(s, Tile) and s.unit == "load" for s in walk((self.launch,)))
        units = {s.unit for s in walk((self.launch,)) if isinstance(s, For)}
        self.unit = "warpgroup" if "warpgroup" in units else "warp"
        if {*NUMBER_OF} <= units:
            raise no_text(self.name, "warps beside warpgroups have no text so far")
        count = agent_count(self.program, self.launch, self.unit) or 1
        self.warps = count * (WARPS_OF_A_GROUP if self.unit == "warpgroup" else 1)
        self.check_units()

    @property
    def indices(self) -> CExpressions:
        """Return the writer of what reads no memory."""
        return writer(lambda load: "", self.signed)

    # -- what there is

    def tokens_here(self) -> list[Token]:
        names = {stmt.name for stmt in walk((self.launch,)) if isinstance(stmt, Sync)}
        return [token for token in self.program.tokens if token.name in names]

    @property
    def threads(self) -> int:
        """Return the threads of a block: what loads for warpgroups is one of them."""
        loading = WARPS_OF_A_GROUP if self.unit == "warpgroup" else 1
        return LANES * (self.warps + self.loads * loading)

    def check_units(self) -> None:
        for stmt in walk((self.launch,)):
            unit = stmt.unit if isinstance(stmt, For | Tile) else None
            units = ("block", self.unit, "lane", "unroll") if isinstance(stmt, For) else ("load",)
            if unit is not None and unit not in units:
                raise no_text(format_head(stmt), f"what a {unit} runs has no text so far")
            if isinstance(stmt, Choose):
                raise no_text(
                    "choose", "the host chooses among whole launches, and this is inside of one"
                )

    def buffers(self) -> list[str]:
        """Return the arrays in main memory that the launch touches, in the order of the program."""
        arrays = accessed_arrays((self.launch,))
        windowed = {stmt.buffer for stmt in walk((self.launch,)) if isinstance(stmt, Alloc)}
        buffers = [b for b in self.program.buffers if b.name in arrays - windowed]
        for buffer in buffers:
            if buffer.kind is Kind.PRIVATE or buffer.layout is not None:
                raise no_text(buffer.name, "an array that is private, or in a layout, has no text")
        return [buffer.name for buffer in buffers]

    def plain_buffers(self) -> list[str]:
        """Return the arrays of `buffers` that are touched by their addresses, and not in boxes."""
        touched = arrays_but_in_boxes((self.launch,))
        return [name for name in self.buffers() if name in touched]

    @property
    def shared_bytes(self) -> int:
        """Return the bytes of shared memory of a block: its windows, and 8 for each barrier."""
        return self.windows.bytes + 8 * sum(token.room for token in self.tokens)

    def launch_record(self, names: Mapping[str, Expr]) -> Launch:
        """Return how the kernel is launched, after `text`.

        names  of the sizes in its texts
        """
        arrays = [ArrayParameter(name, self.alignment(name)) for name in self.plain_buffers()]
        maps = [TensorMapParameter(one.array, one.box) for one in self.maps]
        sizes = (SizeParameter(size.name) for size in self.program.sizes)
        bounds = index_bounds(self.program, self.launch, INDEX_LIMIT)
        return Launch(
            self.name,
            _texts(self.grid, names),
            self.threads,
            self.shared_bytes,
            (*arrays, *maps, *sizes),
            _texts(bounds, names),
            *_texts([] if self.taken is None else [self.taken], names),
        )

    def alignment(self, name: str) -> int:
        """Return the bytes that the address of an array is a multiple of: of a cell, if one is copied in the background."""
        copies = (s for s in walk((self.launch,)) if isinstance(s, Tile) and s.asynchronous)
        item = ITEM_BYTES[self.program.buffer(name).dtype]
        return CELL if any(name in accessed_arrays((copy,)) for copy in copies) else item

    # -- text

    def text(self) -> str:
        """Return the text of the kernel, after a comment that says how to launch it."""
        text = self.indices.text
        heads, body = self.heads()
        blocks = [one for one in heads if isinstance(one, For)]
        places = self.places_in_grid([loop.hi for loop in blocks])
        inner: list[str] = []
        for one in heads:
            if not isinstance(one, For):
                inner.append(f"if (!({text(one)})) return;")
                continue
            iterator, place = name_of(one.iter), places[blocks.index(one)]
            begin = "" if ix.literal_value(one.lo) == 0 else f"{text(one.lo)} + "
            inner.append(f"const int {iterator} = {begin}{place};")
            if begin:
                inner.append(f"if ({iterator} >= {text(one.hi)}) return;")
        if any(isinstance(s, For) and s.unit == "block" for s in walk(body)):
            raise no_text(self.name, "a loop over blocks inside of what a block runs has no text")
        grid = ", ".join(text(extent) for extent in self.grid) or "1"
        out = [str(one) for one in self.maps]
        out.append(
            f"// launch: grid ({grid}), {self.threads} threads, {self.shared_bytes} bytes of shared memory"
        )
        out.append(
            f'extern "C" __global__ void __launch_bounds__({self.launch_bounds}) {self.name}({self.parameters()}) {{'
        )
        if self.shared_bytes:
            alignment = self.windows.alignment
            out.append(f"  extern __shared__ __align__({alignment}) unsigned char shared[];")
        out.append("  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;")
        if self.unit == "warpgroup":
            out.append("  const int group = same(threadIdx.x / 128);")
        out += [f"  {line}" for line in inner]
        out += [f"  {window.declaration}" for window in self.windows.shared.values()]
        out += [f"  {line}" for line in self.barriers()]
        if self.loads:
            split = self.register_split
            if self.unit == "warp":
                out.append(f"  if (warp == {self.warps}) {{  // the load unit")
            else:
                groups = self.warps // WARPS_OF_A_GROUP
                out.append(f"  if (group == {groups}) {{  // the load unit")
                out += [f"    fewer_registers<{split.load}>();"] if split is not None else []
                out.append(f"    if (warp > {self.warps}) return;")
            out += self.role("load", body)
            if "cells" in self.kinds_of_copies():
                out.append("    wait_for_copies();")
            out.append("    return;")
            out.append("  }")
        if self.register_split is not None:
            out.append(f"  more_registers<{self.register_split.group}>();")
        out += [line[2:] for line in self.role(self.unit, body)]
        out.append("}")
        return "\n".join(out)

    def heads(self) -> tuple[list[For | Expr], tuple[Stmt, ...]]:
        """Return the loops over blocks and the conditions around what a block runs, and that."""
        heads: list[For | Expr] = []
        body: tuple[Stmt, ...] = (self.launch,)
        while len(body) == 1:
            match body[0]:
                case If(condition, then, ()) if not reads_memory(condition):
                    heads.append(condition)
                    body = then
                case For(body=inner, unit="block") as loop:
                    heads.append(loop)
                    body = inner
                case _:
                    break
        return heads, body

    def places_in_grid(self, extents: Sequence[Expr]) -> list[str]:
        """Return the number of a block in each of its loops; the first loops share an axis of the grid, if there are more than three.

        extents  of the loops, outermost first
        """
        text = self.indices.text
        merged = max(len(extents) - len(_GRID) + 1, 1)
        shared = [*extents[:merged]]
        self.grid = [reduce(ix.mul, shared), *extents[merged:]] if extents else []
        places = [f"(int){axis}" for axis in _GRID[1 : len(extents) - merged + 1]]
        for number in range(len(shared) - 1, -1, -1):
            inside = shared[number + 1 :]
            quotient = f" / ({text(reduce(ix.mul, inside))})" if inside else ""
            rest = f" % ({text(shared[number])})" if number else ""
            places.insert(0, f"(int){_GRID[0]}{quotient}{rest}")
        return places

    @property
    def launch_bounds(self) -> str:
        """Return the bounds of a launch; of one block on a multiprocessor, where warpgroups share its registers."""
        return f"{self.threads}, 1" if self.register_split is not None else str(self.threads)

    @property
    def register_split(self) -> RegisterSplit | None:
        """Return how warpgroups and the one that loads for them split registers; None if there are none such, or enough for each."""
        if self.unit == "warp" or not self.loads:
            return None
        split = split_registers(self.warps // WARPS_OF_A_GROUP, REGISTERS)
        return split if split.group > split.begin else None

    def parameters(self) -> str:
        kinds = (Kind.INPUT, Kind.CONSTANT)
        parameters = []
        for name in self.plain_buffers():
            buffer = self.program.buffer(name)
            const = "const " if buffer.kind in kinds else ""
            parameters.append(f"{const}{TYPES[buffer.dtype]} *__restrict__ {name_of(name)}")
        parameters += [f"const __grid_constant__ tensor_map {one.name}" for one in self.maps]
        return ", ".join(
            [*parameters, *(f"int {name_of(size.name)}" for size in self.program.sizes)]
        )

    def barriers(self) -> Iterator[str]:
        """Yield the lines that place and begin the barriers of tokens."""
        if not self.tokens:
            return
        offset = self.windows.bytes
        for token in self.tokens:
            note = f"{token.room}: {token.source} to {token.target}"
            yield f"barrier *const {name_of(token.name)} = (barrier *)(shared + {offset});  // {note}"
            offset += 8 * token.room
        yield "if (threadIdx.x == 0) {"
        for token in self.tokens:
            count = token.count * self.arrivals_of(token)
            yield f"  for (int k = 0; k < {token.room}; ++k) init({name_of(token.name)} + k, {count});"
        if "boxes" in self.kinds_of_copies():
            yield "  barriers_ready();"
        yield "}"
        yield "__syncthreads();"

    def kinds_of_copies(self) -> set[str]:
        """Return how the load unit copies: boxes, cells in the background, elements at once."""
        kinds = set()
        for stmt in walk((self.launch,)):
            if isinstance(stmt, Tile) and stmt.unit == "load":
                kernel = KERNELS.get(stmt.microkernel or "")
                late = "cells" if stmt.asynchronous else "elements"
                kinds.add("boxes" if kernel is not None and is_box_copy(kernel) else late)
        return kinds

    def arrivals_of(self, token: Token) -> int:
        """Return the arrivals of one unit at a token: one lane of each warp; of the load unit, one lane for boxes, and every
        lane for each other kind of copy.
        """
        if token.source == "load":
            return sum(1 if kind == "boxes" else LANES for kind in self.kinds_of_copies())
        return WARPS_OF_A_GROUP if token.source == "warpgroup" else 1

    @property
    def load_barrier(self) -> str:
        """Return the barrier at which the next copies of boxes arrive: of the only token of the load unit."""
        tokens = [token for token in self.tokens if token.source == "load"]
        if len(tokens) != 1:
            raise no_text(self.name, "boxes for several units have no text so far")
        (token,) = tokens
        return f"{name_of(token.name)} + {token.name}_arrivals % {token.room}"

    def role(self, unit: str, body: Sequence[Stmt]) -> list[str]:
        """Return the lines of what one unit runs."""
        role = UnitStatements(self, unit)
        role.block(body, 2)
        if unit == "load" and "boxes" in self.kinds_of_copies():
            role.counters["bytes"] = None
        counters = [f"{name} = 0" for name in role.counters]
        begin = [f"    int {', '.join(counters)};"] if counters else []
        return [*begin, *role.lines]


def map_single_trips(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return statements with what plain loops of one trip run in place of them."""
    out: list[Stmt] = []
    for stmt in body:
        inner = map_blocks(stmt, map_single_trips)
        if (
            isinstance(inner, For)
            and inner.unit is None
            and ix.literal_value(ix.sub(inner.hi, inner.lo)) == 1
            and any(isinstance(one, Tile | Alloc | Sync) for one in inner.body)
        ):
            out += substitute_coordinates(inner.body, {inner.iter: inner.lo})
        else:
            out.append(inner)
    return tuple(out)


__all__ = ["cuda_kernels", "cuda_text"]
