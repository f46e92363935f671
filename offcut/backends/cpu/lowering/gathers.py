"""Elements that lie anywhere, or along an axis whose step is known at run time alone: the cheapest instructions that read them.

An array that is contiguous at run time has the lanes of ``X[i, 1]``, shape (n, 2), two elements apart: whole vectors are loaded, and
lanes picked out. Where elements lie at places that another array names, offsets of 32 bits take half of the registers, and of the
gathers, that those of 64 bits take. Both are asked for at run time, by strides and extents; otherwise each lane has an address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from offcut.backends.cpu.lowering.addressing import Lanes
from offcut.backends.cpu.lowering.expressions import Expressions
from offcut.backends.llvm import ir
from offcut.backends.llvm.elements import STORED, item_bytes
from offcut.core import index as ix
from offcut.core.expr import Binary, Cast, Expr, dtype_of
from offcut.costmodel.statement_costs import FEW_APART
from offcut.polyhedral import coefficient

_SHORT = ("int8", "uint8", "int16", "uint16", "int32")
"""Types all of whose values are of 32 bits with a sign."""
LIMIT = 2**31
"""No number of 32 bits is larger than this."""


@dataclass(frozen=True, slots=True)
class ShortOffsets:
    """Places of lanes in bytes from an address.

    fits     whether all offsets are of 32 bits, an i1
    base     the address
    offsets  <lanes x i32>
    """

    fits: str
    base: str
    offsets: str


class Gathers(Expressions):
    """Loads of lanes that do not lie side by side."""

    def gather(self, buffer: str, index: Sequence[Expr], mask: str | None, lanes: Lanes) -> str:
        """Elements one by one, or by what is cheaper and holds at run time."""
        memory, f = self.memory[buffer], self.f
        by_addresses = partial(super().gather, buffer, index, mask, lanes)
        shape = next((array.shape for array in self.program.buffers if array.name == buffer), None)
        if memory.layout is not None or lanes.width == 1 or shape is None:
            return by_addresses()  # `buffer` may be the scratch of a padded tile
        kind = f"<{lanes.width} x {STORED[memory.dtype]}>"
        step = self.contiguous_step(shape, index, lanes)
        if step is not None:
            axis, apart = step
            bytes_apart = apart * item_bytes(memory.dtype)
            is_contiguous = f.let(f"icmp eq i64 {memory.strides[axis]}, {bytes_apart}")
            whole_vectors = partial(self.every, apart, self.address(memory, index), memory.dtype)
            return self.either(
                is_contiguous, partial(whole_vectors, mask, lanes), by_addresses, kind
            )
        short = self.short_offsets(buffer, shape, index, lanes)
        if short is None:
            return by_addresses()
        return self.either(
            short.fits,
            partial(self.at_short_offsets, memory.dtype, short, mask, lanes.width),
            partial(self.by_halves, buffer, index, mask, lanes),
            kind,
        )

    def at_short_offsets(
        self, dtype: str, short: ShortOffsets, mask: str | None, width: int
    ) -> str:
        """Return the elements at offsets of 32 bits."""
        wide = self.f.let(f"sext <{width} x i32> {short.offsets} to <{width} x i64>")
        places = self.f.let(f"getelementptr i8, ptr {short.base}, <{width} x i64> {wide}")
        return self.at_addresses(dtype, places, mask, width)

    def by_halves(self, buffer: str, index: Sequence[Expr], mask: str | None, lanes: Lanes) -> str:
        """Return elements one by one, half of the lanes at a time, as instructions with addresses of 64 bits do it.

        Of one gather for all lanes and one by short offsets in another branch, LLVM would make one, of 64-bit addresses.
        """
        memory, width, half = self.memory[buffer], lanes.width, lanes.width // 2
        addresses, parts = self.lane_addresses(memory, index, lanes), list[str]()
        for places in (range(half), range(half, width)):
            some = None if mask is None else self.shuffle("i1", mask, width, places)
            here = self.shuffle("ptr", addresses, width, places)
            parts.append(self.at_addresses(memory.dtype, here, some, half))
        first, second = parts
        return self.shuffle(STORED[memory.dtype], first, half, range(width), second)

    def either(
        self, condition: str, then: Callable[[], str], other: Callable[[], str], kind: str
    ) -> str:
        """Return the value that one of two pieces of code gives, by an i1."""
        f = self.f
        slot, first, second, end = f.slot(kind), f.name("then"), f.name("else"), f.name("end")
        f.do(f"br i1 {condition}, label {first}, label {second}")
        for label, value in ((first, then), (second, other)):
            with f.within(label):
                f.do(f"store {kind} {value()}, ptr {slot}")
                f.do(f"br label {end}")
        f.start(end)
        return f.let(f"load {kind}, ptr {slot}")

    def contiguous_step(
        self, shape: Sequence[Expr], index: Sequence[Expr], lanes: Lanes
    ) -> tuple[int, int] | None:
        """Return the axis along which lanes lie, and how many elements apart they are if the array is contiguous.

        None if that is far, or if another axis moves along lanes too.
        """
        steps = [coefficient(part, lanes.axis or "") for part in index]
        moving = [axis for axis, step in enumerate(steps) if step != 0]
        if len(moving) != 1 or steps[moving[0]] != 1:
            return None
        apart = 1
        for extent in shape[moving[0] + 1 :]:
            apart *= ix.literal_value(extent) or lanes.width
        return (moving[0], apart) if 1 < apart <= min(FEW_APART, lanes.width) else None

    def short_offsets(
        self, buffer: str, shape: Sequence[Expr], index: Sequence[Expr], lanes: Lanes
    ) -> ShortOffsets | None:
        """Return offsets of the lanes of an access; None for an access whose places are not of 32 bits."""
        memory, f, e = self.memory[buffer], self.f, self.elements(lanes.width)
        if "avx2" not in self.isa.features or lanes.width * 8 <= self.isa.register_bytes:
            return None
        kind, first, span, total = f"<{lanes.width} x i32>", "0", "0", ""
        for part, extent, stride, origin in zip(
            index, shape, memory.strides, memory.origins, strict=True
        ):
            if not self.moves(part, lanes):
                at = ir.sub(f, self.scalar(part), origin)
                first = ir.add(f, first, ir.mul(f, at, stride))
                continue
            short = self.short_index(part, lanes)
            if short is None:
                return None
            place, added = short
            first = ir.add(f, first, ir.mul(f, ir.sub(f, added, origin), stride))
            # `added` is counted in the base: a lane's place alone may be as far as it from the array.
            reach = ir.add(f, self.scalar(extent), self.size_of(added))
            reach, step = (ir.minimum(f, x, str(LIMIT)) for x in (reach, self.size_of(stride)))
            span = ir.add(f, span, ir.minimum(f, ir.mul(f, reach, step), str(LIMIT)))
            unit = e.splat(f.let(f"trunc i64 {stride} to i32"), "int32")
            offset = f.let(f"mul {kind} {place}, {unit}")
            total = f.let(f"add {kind} {total}, {offset}") if total else offset
        if not total:
            return None
        base = f.let(f"getelementptr i8, ptr {memory.base}, i64 {first}")
        return ShortOffsets(f.let(f"icmp slt i64 {span}, {LIMIT}"), base, total)

    def size_of(self, number: str) -> str:
        """Return the absolute value of an i64."""
        return ir.maximum(self.f, number, ir.sub(self.f, "0", number))

    def moves(self, part: Expr, lanes: Lanes) -> bool:
        """Return whether an index may differ between lanes."""
        return self.differs(part, lanes, {})

    def short_index(self, expr: Expr, lanes: Lanes) -> tuple[str, str] | None:
        """Return an index of each lane as <lanes x i32>, and an i64 that is added to all of them; None if it is not of such a form.

        A minimum of ``x + c`` and ``s`` is that of ``x`` and ``s - c``, and `c` added: no sum of 32 bits is compared.
        """
        match expr:
            case Cast(a, "index") if dtype_of(a) in _SHORT:
                vector = self.value(a, lanes, {})
                return self.elements(lanes.width).cast(vector, dtype_of(a), "int32"), "0"
            case Binary("+" | "-" as op, a, b) if not self.moves(b, lanes):
                short = self.short_index(a, lanes)
                if short is None:
                    return None
                add = ir.add if op == "+" else ir.sub
                return short[0], add(self.f, short[1], self.scalar(b))
            case Binary("min" | "max" as op, a, b) if not self.moves(b, lanes):
                short = self.short_index(a, lanes)
                if short is None:
                    return None
                limit = ir.sub(self.f, self.scalar(b), short[1])
                for bound, end in ((ir.minimum, LIMIT - 1), (ir.maximum, -LIMIT)):
                    limit = bound(self.f, limit, str(end))
                e = self.elements(lanes.width)
                ends = e.splat(self.f.let(f"trunc i64 {limit} to i32"), "int32")
                return e.binary(op, "int32", short[0], ends), short[1]
            case _:
                return None
