"""Where the elements of a vector of instances lie, and how they are read and written.

How lanes lie is told once, by a `Spacing` of elements side by side: at one element, a load fills all
lanes; next to each other or back to back, a vector is loaded or stored; a few apart or several at one,
vectors are loaded, and lanes picked out; anywhere, a gather or a scatter. A lane that is off touches no
memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd

from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.llvm import ir
from offcut.backends.llvm.elements import STORED, Elements, item_bytes
from offcut.backends.llvm.scalars import Scalars
from offcut.core.dtypes import UNSIGNED
from offcut.core.expr import Expr, Var, variables
from offcut.core.layout import Layout
from offcut.core.panels import as_panels
from offcut.core.program import Program
from offcut.costmodel.statement_costs import FEW_APART
from offcut.polyhedral import BACK, NEXT, SAME, Spacing, coefficient, row_spacing, spacing


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a buffer lies.

    strides  bytes per step of each axis; of a layout, of its digit of most weight in the innermost coordinate
             that has one: in panels, from one row, or one set of rows side by side, to the next
    origins  the coordinate at `base`, per axis
    digits   of a layout: for each axis (step, extent, bytes) of its digits, the most significant first
    is_constant  whether nothing writes there while a call runs: a load may leave the loops around it
    """

    base: str
    dtype: str
    strides: tuple[str, ...]
    origins: tuple[str, ...]
    layout: Layout | None = None
    digits: tuple[tuple[tuple[int, int | None, str], ...], ...] = ()
    is_constant: bool = False

    @property
    def load_metadata(self) -> str:
        """Return what a load of it says to LLVM beside its address."""
        return ", !invariant.load !{}" if self.is_constant else ""

    @property
    def panels(self) -> str:
        """Bytes from one panel to the next; "0" where it has none."""
        shape = as_panels(self.layout)
        return "0" if shape is None else self.digits[shape.columns][0][2]


@dataclass(frozen=True)
class Lanes:
    """The vector being computed: `width` instances along `axis` from its coordinate on.

    multiple   what the first lane's coordinate is known to be a multiple of
    in_turn    loops that are written out and run whole: by iterator, the number of iterations, each of which reads another member of
               groups of so many lanes
    mask   lanes that are in the tile, at least the first; None: all
    path   of these, the ones whose `where` branch is taken; None: all
    """

    width: int
    axis: str | None
    mask: str | None = None
    path: str | None = None
    multiple: int = 1
    in_turn: Mapping[str, int] = field(default_factory=dict)


class Addressing(Scalars, ABC):
    """Loads and stores of vectors of instances.

    memory     where every buffer lies
    functions  definitions of exp, sin and others that the module needs
    """

    def __init__(self, program: Program, isa: Isa) -> None:
        super().__init__()
        self.program, self.isa = program, isa
        self.memory: dict[str, Memory] = {}
        self.functions: dict[str, str] = {}

    @abstractmethod
    def lane_index(self, expr: Expr, lanes: Lanes) -> str:
        """An index expression for every lane, as <lanes x i64>."""

    def elements(self, width: int) -> Elements:
        """Operations on vectors of that many lanes."""
        scalef = "avx512vl" in self.isa.features
        return Elements(self.f, width, self.isa.fma, self.functions, scalef)

    @contextmanager
    def placing(self, memory: Mapping[str, Memory]) -> Iterator[None]:
        """Inside, these buffers lie elsewhere, or exist at all."""
        outer_memory = self.memory
        self.memory = {**outer_memory, **memory}
        yield
        self.memory = outer_memory

    def address(self, memory: Memory, index: Sequence[Expr]) -> str:
        """The address of one element, the lane axis at its first lane."""
        base = memory.base
        total = "0"
        for axis, part in enumerate(index):
            at = ir.sub(self.f, self.scalar(part), memory.origins[axis])
            if memory.layout is None:
                offset = ir.mul(self.f, at, memory.strides[axis])
            else:
                offset = self.offset(memory, axis, at)
            total = ir.add(self.f, total, offset)
        if memory.layout is not None and memory.layout.swizzle is not None:
            total = ir.swizzle_offset(self.f, total, memory.layout.swizzle)
        return base if total == "0" else self.f.let(f"getelementptr i8, ptr {base}, i64 {total}")

    def offset(self, memory: Memory, axis: int, at: str) -> str:
        """Return the bytes that a coordinate along an axis of what has a layout counts, before a swizzle."""
        total = "0"
        for step, extent, unit in memory.digits[axis]:
            digit = ir.floordiv(self.f, at, str(step)) if step > 1 else at
            digit = digit if extent is None else ir.mod(self.f, digit, str(extent))
            total = ir.add(self.f, total, ir.mul(self.f, digit, unit))
        return total

    def lane_addresses(self, memory: Memory, index: Sequence[Expr], lanes: Lanes) -> str:
        """The addresses of every lane's element, as <lanes x ptr>."""
        e = self.elements(lanes.width)
        steps = [coefficient(part, lanes.axis or "") for part in index]
        if memory.layout is None and None not in steps:
            step = "0"
            for factor, stride in zip(steps, memory.strides, strict=True):
                step = ir.add(self.f, step, ir.mul(self.f, str(factor), stride))
            offsets = e.binary("*", "index", e.ramp(), e.splat(step, "index"))
            first = self.address(memory, index)
            return self.f.let(f"getelementptr i8, ptr {first}, <{lanes.width} x i64> {offsets}")
        total = e.constant(0, "index")
        for axis, part in enumerate(index):
            at = self.lane_index(part, lanes)
            if memory.origins[axis] != "0":
                at = e.binary("-", "index", at, e.splat(memory.origins[axis], "index"))
            digits = memory.digits[axis] if memory.digits else ((1, None, memory.strides[axis]),)
            for divisor, extent, unit in digits:
                digit = at
                if divisor > 1:
                    digit = e.binary("//", "index", digit, e.constant(divisor, "index"))
                if extent is not None:
                    digit = e.binary("%", "index", digit, e.constant(extent, "index"))
                digit = e.binary("*", "index", digit, e.splat(unit, "index"))
                total = e.binary("+", "index", total, digit)
        if memory.layout is not None and (swizzle := memory.layout.swizzle) is not None:
            kind = f"<{lanes.width} x i64>"
            total = ir.swizzle_offset(self.f, total, swizzle, kind)
        vector = f"<{lanes.width} x i64>"
        return self.f.let(f"getelementptr i8, ptr {memory.base}, {vector} {total}")

    def along(self, memory: Memory, index: Sequence[Expr], lanes: Lanes) -> Spacing | None:
        """How lanes lie among elements that are side by side; None where these are not, or lanes lie anywhere."""
        if lanes.axis is None or lanes.width == 1:
            return SAME if lanes.axis is None else NEXT
        layout = memory.layout
        if layout is None:
            row = row_spacing(index, lanes.axis, lanes.width, lanes.multiple)
            item = str(item_bytes(memory.dtype))
            return row if row == SAME or memory.strides[-1] == item else None
        spaced = (spacing(part, lanes.axis, lanes.width, lanes.multiple) for part in index)
        moving = [axis for axis, one in enumerate(spaced) if one != SAME]
        if not moving:
            return SAME
        shape = as_panels(layout)
        if shape is None or moving != [shape.columns] or shape.beside != 1:
            return None
        whole = gcd(shape.width, lanes.multiple) % lanes.width == 0
        return NEXT if whole and index[shape.columns] == Var(lanes.axis) else None

    def mask_of(self, lanes: Lanes) -> str | None:
        """The lanes that are on; None where all are."""
        if lanes.mask is None or lanes.path is None:
            return lanes.mask or lanes.path
        return self.f.let(f"and <{lanes.width} x i1> {lanes.mask}, {lanes.path}")

    def load(self, buffer: str, index: Sequence[Expr], dtype: str, lanes: Lanes) -> str:
        """The elements at `index`; lanes that are off read nothing."""
        memory, e = self.memory[buffer], self.elements(lanes.width)
        stored, align = e.memory_type(dtype), item_bytes(dtype)
        mask = self.mask_of(lanes)
        if memory.layout is not None and memory.layout.bits is not None:
            return e.widen_loaded(self.of_shared_bytes(buffer, memory.layout, index, lanes), dtype)
        match self.along(memory, index, lanes):
            case Spacing(1, 0):
                address = self.address(memory, index)
                if lanes.path is None:
                    element = self.f.let(
                        f"load {STORED[dtype]}, ptr {address}, align {align}{memory.load_metadata}"
                    )
                else:
                    element = self.load_if_any(address, dtype, mask or "", lanes)
                raw = self.splat(element, dtype, lanes)
            case Spacing(1, 1):
                address = self.address(memory, index)
                raw = self.beside(address, dtype, mask, lanes.width, memory.load_metadata)
            case Spacing(1, -1):
                address = self.address(memory, index)
                address, mask = self.turned_back(address, mask, align, lanes)
                raw = self.reverse(stored, self.beside(address, dtype, mask, lanes.width), lanes)
            case Spacing(1, step) if 1 < step <= min(FEW_APART, lanes.width):
                raw = self.every(step, self.address(memory, index), dtype, mask, lanes)
            case Spacing(share, 1):
                raw = self.spread(share, self.address(memory, index), dtype, mask, lanes)
            case Spacing(share, step) if step == share:
                raw = self.member_of_each(share, memory, index, mask, lanes)
            case _:
                raw = self.gather(buffer, index, mask, lanes)
        return e.widen_loaded(raw, dtype)

    def of_shared_bytes(
        self, buffer: str, layout: Layout, index: Sequence[Expr], lanes: Lanes
    ) -> str:
        """Return elements several of which share a byte: the bytes, shifted by where each lies in its own."""
        axis, bits = layout.shared_axis, layout.bits
        assert axis is not None
        assert bits is not None
        f, last, free = self.f, layout.per_byte - 1, 8 - bits
        of_places, of_bytes = f"<{lanes.width} x i64>", f"<{lanes.width} x i8>"
        bytes_of_lanes = self.gather(buffer, index, self.mask_of(lanes), lanes)
        place = f.let(f"and {of_places} {self.lane_index(index[axis], lanes)}, splat (i64 {last})")
        after = f.let(f"sub {of_places} splat (i64 {last}), {place}")
        after = f.let(f"mul {of_places} {after}, splat (i64 {bits})")
        up = f.let(
            f"shl {of_bytes} {bytes_of_lanes}, {f.let(f'trunc {of_places} {after} to {of_bytes}')}"
        )
        down = "lshr" if self.memory[buffer].dtype in UNSIGNED else "ashr"
        return f.let(f"{down} {of_bytes} {up}, splat (i8 {free})")

    def gather(self, buffer: str, index: Sequence[Expr], mask: str | None, lanes: Lanes) -> str:
        """Elements that lie anywhere, one by one."""
        memory = self.memory[buffer]
        addresses = self.lane_addresses(memory, index, lanes)
        return self.at_addresses(memory.dtype, addresses, mask, lanes.width)

    def at_addresses(self, dtype: str, addresses: str, mask: str | None, width: int) -> str:
        """What lies at the address of each lane, as it is stored; nothing is read for lanes that are off."""
        stored, pointers, bits = STORED[dtype], f"<{width} x ptr>", f"<{width} x i1>"
        vector = f"<{width} x {stored}>"
        return self.f.call(
            vector,
            f"llvm.masked.gather.v{width}{_SUFFIX[stored]}.v{width}p0",
            f"{pointers} {addresses}, i32 {item_bytes(dtype)}, {bits} {mask or 'splat (i1 true)'}, {vector} zeroinitializer",
            f"{pointers}, i32, {bits}, {vector}",
        )

    def every(self, step: int, first: str, dtype: str, mask: str | None, lanes: Lanes) -> str:
        """Every `step`-th element from `first` on: whole vectors are loaded, and what is wanted picked out.

        What lies between these elements is read too, but nothing past the last, and nothing where lanes are off.
        """
        f, width, item = self.f, lanes.width, item_bytes(dtype)
        stored, bits = self.elements(width).memory_type(dtype), f"<{width} x i1>"
        permuted = "poison"
        for part in range(step):
            address = f.let(f"getelementptr i8, ptr {first}, i64 {part * width * item}")
            places = [part * width + lane for lane in range(width)]
            there: str | None = None
            if mask is not None:
                wanted = _vector_constant("i1", (str(at % step == 0).lower() for at in places))
                spread = self.shuffle("i1", mask, width, (at // step for at in places))
                there = f.let(f"and {bits} {spread}, {wanted}")
            elif part == step - 1:
                there = _vector_constant(
                    "i1", (str(at <= step * (width - 1)).lower() for at in places)
                )
            vector = self.beside(address, dtype, there, width)
            # Lanes that earlier parts filled stay as they are; of those behind, this part fills the first.
            lanes_of_half = (
                lane
                if lane * step < part * width
                else min(width + lane * step - part * width, 2 * width - 1)
                for lane in range(width)
            )
            both = f"{stored} {permuted}, {stored} {vector}"
            permuted = f.let(
                f"shufflevector {both}, <{width} x i32> {_vector_constant('i32', lanes_of_half)}"
            )
        return permuted

    def spread(self, share: int, first: str, dtype: str, mask: str | None, lanes: Lanes) -> str:
        """Elements from `first` on, each in `share` lanes side by side; nothing is read for lanes that are off."""
        width, count = lanes.width, lanes.width // share
        some = None if mask is None else self.some_of_each(share, mask, width)
        if some is not None:
            some = self.shuffle("i1", some, width, range(0, width, share))
        raw = self.beside(first, dtype, some, count)
        owners = (lane // share for lane in range(width))
        return self.shuffle(STORED[dtype], raw, count, owners)

    def member_of_each(
        self, group: int, memory: Memory, index: Sequence[Expr], mask: str | None, lanes: Lanes
    ) -> str:
        """One element of each `group` that lie side by side, in as many lanes; nothing is read for groups of which no lane is on.

        Where all members are read in turn, the same vector is loaded for each of them. Else what is between these elements is not
        touched.
        """
        width, dtype = lanes.width, memory.dtype
        some = None if mask is None else self.some_of_each(group, mask, width)
        in_turn = lanes.in_turn if lanes.path is None else {}
        members = (
            n for n, count in in_turn.items() if self.says_member(n, count, memory, index, lanes)
        )
        name = next(members, None)
        if name is not None:
            with self.bound(name, "0"):
                first = self.address(memory, index)
            member = int(self.values[name])
        else:
            first, member, bits = self.address(memory, index), 0, f"<{width} x i1>"
            wanted = _vector_constant(
                "i1", (str(lane % group == 0).lower() for lane in range(width))
            )
            some = wanted if some is None else self.f.let(f"and {bits} {some}, {wanted}")
        raw = self.beside(first, dtype, some, width)
        owners = (lane // group * group + member for lane in range(width))
        return self.shuffle(STORED[dtype], raw, width, owners)

    def says_member(
        self, name: str, count: int, memory: Memory, index: Sequence[Expr], lanes: Lanes
    ) -> bool:
        """Whether the iterator of that name says which of so many elements side by side as many lanes read, and nothing else."""
        if self.along(memory, index, lanes) != Spacing(count, count):
            return False
        *outer, last = index
        return coefficient(last, name) == 1 and not any(name in variables(p) for p in outer)

    def some_of_each(self, group: int, mask: str, width: int) -> str:
        """Lanes of whose group, so many side by side, one is on at least."""
        bits, some = f"<{width} x i1>", ""
        for member in range(group):
            places = (lane // group * group + member for lane in range(width))
            one = self.shuffle("i1", mask, width, places)
            some = self.f.let(f"or {bits} {some}, {one}") if some else one
        return some

    def shuffle(
        self, kind: str, vector: str, width: int, lanes: Iterable[int], second: str = "poison"
    ) -> str:
        """Lanes of a vector of so many elements, and of a second one behind it, in an order."""
        places, source = [*lanes], f"<{width} x {kind}>"
        mask = f"<{len(places)} x i32> {_vector_constant('i32', places)}"
        return self.f.let(f"shufflevector {source} {vector}, {source} {second}, {mask}")

    def beside(
        self, first: str, dtype: str, mask: str | None, width: int, metadata: str = ""
    ) -> str:
        """A vector of elements side by side from `first` on, as they lie in memory; of lanes that are off nothing is read.

        metadata  of a load of all lanes
        """
        stored, align = self.elements(width).memory_type(dtype), item_bytes(dtype)
        if mask is None:
            return self.f.let(f"load {stored}, ptr {first}, align {align}{metadata}")
        bits = f"<{width} x i1>"
        return self.f.call(
            stored,
            f"llvm.masked.load.v{width}{_SUFFIX[STORED[dtype]]}.p0",
            f"ptr {first}, i32 {align}, {bits} {mask}, {stored} zeroinitializer",
            f"ptr, i32, {bits}, {stored}",
        )

    def turned_back(
        self, first: str, mask: str | None, item: int, lanes: Lanes
    ) -> tuple[str, str | None]:
        """Where the last lane lies, of lanes that lie back to back from `first` on, and the mask from there on."""
        last = self.f.let(f"getelementptr i8, ptr {first}, i64 {-item * (lanes.width - 1)}")
        return last, mask and self.reverse(f"<{lanes.width} x i1>", mask, lanes)

    def reverse(self, kind: str, vector: str, lanes: Lanes) -> str:
        """A vector from its last lane to its first."""
        turned = f"<{lanes.width} x i32> {_vector_constant('i32', reversed(range(lanes.width)))}"
        return self.f.let(f"shufflevector {kind} {vector}, {kind} poison, {turned}")

    def load_if_any(self, address: str, dtype: str, mask: str, lanes: Lanes) -> str:
        """One element, read only where some lane wants it; 0 otherwise."""
        bits = f"<{lanes.width} x i1>"
        some = self.f.call("i1", f"llvm.vector.reduce.or.v{lanes.width}i1", f"{bits} {mask}", bits)
        slot = self.f.slot(STORED[dtype])
        zero = "0.0" if STORED[dtype] in ("float", "double") else "0"
        self.f.do(f"store {STORED[dtype]} {zero}, ptr {slot}")
        with self.f.when(some):
            element = self.f.let(f"load {STORED[dtype]}, ptr {address}, align {item_bytes(dtype)}")
            self.f.do(f"store {STORED[dtype]} {element}, ptr {slot}")
        return self.f.let(f"load {STORED[dtype]}, ptr {slot}")

    def splat(self, element: str, dtype: str, lanes: Lanes) -> str:
        """An element as it lies in memory, in every lane."""
        kind = f"<{lanes.width} x {STORED[dtype]}>"
        one = self.f.let(f"insertelement {kind} poison, {STORED[dtype]} {element}, i32 0")
        zeros = f"<{lanes.width} x i32> zeroinitializer"
        return self.f.let(f"shufflevector {kind} {one}, {kind} poison, {zeros}")

    def save(self, buffer: str, index: Sequence[Expr], value: str, lanes: Lanes) -> None:
        """Write the elements at `index`; lanes that are off write nothing."""
        memory, e = self.memory[buffer], self.elements(lanes.width)
        dtype = memory.dtype
        stored, align = e.memory_type(dtype), item_bytes(dtype)
        raw, bits = e.storable(value, dtype), f"<{lanes.width} x i1>"
        suffix = f"v{lanes.width}{_SUFFIX[STORED[dtype]]}"
        mask = self.mask_of(lanes)
        lying = self.along(memory, index, lanes)
        if lying not in (NEXT, BACK) and lanes.width > 1:
            addresses = self.lane_addresses(memory, index, lanes)
            pointers = f"<{lanes.width} x ptr>"
            chosen = mask if mask is not None else "splat (i1 true)"
            name = f"llvm.masked.scatter.{suffix}.v{lanes.width}p0"
            self.f.declares.add(f"declare void @{name}({stored}, {pointers}, i32, {bits})")
            arguments = f"{stored} {raw}, {pointers} {addresses}, i32 {align}, {bits} {chosen}"
            self.f.do(f"call void @{name}({arguments})")
            return
        address = self.address(memory, index)
        if lying == BACK:
            address, mask = self.turned_back(address, mask, align, lanes)
            raw = self.reverse(stored, raw, lanes)
        if mask is not None and memory.layout is not None:
            # A panel holds whole vectors: its columns past the extent are zero.
            zero = "zeroinitializer"
            raw = self.f.let(f"select {bits} {mask}, {stored} {raw}, {stored} {zero}")
            mask = None
        if mask is None:
            self.f.do(f"store {stored} {raw}, ptr {address}, align {align}")
            return
        if item_bytes(dtype) < 8 and STORED[dtype].startswith("i"):
            mask = self.opaque_mask(mask, lanes.width)
        name = f"llvm.masked.store.{suffix}.p0"
        self.f.declares.add(f"declare void @{name}({stored}, ptr, i32, {bits})")
        self.f.do(f"call void @{name}({stored} {raw}, ptr {address}, i32 {align}, {bits} {mask})")

    def opaque_mask(self, mask: str, width: int) -> str:
        """Return a mask of which LLVM does not learn that one lane alone is on.

        Such a store of what was truncated in one register becomes one of an element before that (LLVM 22, AVX-512), which
        writes what lies behind.
        """
        if "avx512f" not in self.isa.features or not 1 < width <= 32:
            return mask
        whole = max(width, 8)  # lanes of the least mask that a register class has
        if whole > width:
            lanes = _vector_constant("i32", (min(lane, width) for lane in range(whole)))
            mask = self.f.let(
                f"shufflevector <{width} x i1> {mask}, <{width} x i1> zeroinitializer, <{whole} x i32> {lanes}"
            )
        mask = self.f.let(f'call <{whole} x i1> asm "", "=k,0"(<{whole} x i1> {mask})')
        if whole > width:
            lanes = _vector_constant("i32", range(width))
            mask = self.f.let(
                f"shufflevector <{whole} x i1> {mask}, <{whole} x i1> poison, <{width} x i32> {lanes}"
            )
        return mask


def _vector_constant(kind: str, values: Iterable[object]) -> str:
    """A vector of constants."""
    return f"<{', '.join(f'{kind} {value}' for value in values)}>"


_SUFFIX = {"double": "f64", "float": "f32", "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8"}
