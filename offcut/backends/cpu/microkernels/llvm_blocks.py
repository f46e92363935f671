"""The row blocks of `fma` as LLVM IR, for any instruction set: one loop over k, in which accumulators stay in registers.

Row pointers advance in groups of four; each passes through an empty assembly statement, or LLVM's
loop strength reduction would keep one pointer per row and spill most of them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar

from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.cpu.microkernels.family import Variant
from offcut.core.dtypes import ITEM_BYTES

LLVM_TYPE = {"float32": "float", "float64": "double", "int32": "i32"}

ARGUMENTS = (
    "ptr noalias readonly %a, i64 %a_row, i64 %a_step, ptr noalias readonly %b, i64 %b_panel, "
    "i64 %b_step, ptr noalias %c, i64 %c_row, i64 %depth, i64 %last, i64 %accumulate, "
    "ptr readonly %ahead, i64 %ahead_step"
)


def declarations(isa: Isa, dtype: str) -> set[str]:
    """The intrinsics that the functions call."""
    lanes = isa.lanes(dtype)
    t = LLVM_TYPE[dtype]
    v, suffix = f"<{lanes} x {t}>", f"v{lanes}f{ITEM_BYTES[dtype] * 8}"
    return {
        f"declare {v} @llvm.fma.{suffix}({v}, {v}, {v})",
        f"declare {v} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {v})",
        f"declare void @llvm.masked.store.{suffix}.p0({v}, ptr, i32, <{lanes} x i1>)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
    }


def first_lanes(name: str, count: str, lanes: int, kind: str) -> Iterator[str]:
    """The mask ``%name`` of the first `count` of `lanes` lanes; `kind` is as wide as a lane."""
    index = ", ".join(f"{kind} {lane}" for lane in range(lanes))
    v = f"<{lanes} x {kind}>"
    yield f"  %{name}_count = trunc i64 {count} to {kind}"
    yield f"  %{name}_one = insertelement {v} poison, {kind} %{name}_count, i32 0"
    yield (
        f"  %{name}_all = shufflevector {v} %{name}_one, {v} poison, "
        f"<{lanes} x i32> zeroinitializer"
    )
    yield f"  %{name} = icmp ult {v} <{index}>, %{name}_all"


Pointers = tuple[str, str, str]
"""Where a loop over k starts: the stem of the names of A's rows, B, and what is fetched ahead."""


@dataclass
class RowBlock:
    """The text of one function, `rows` × `vectors` accumulators.

    name     of the function
    dtype    of an accumulator's lanes, and of what a step takes of A and of B
    a_align  bytes that A's elements are aligned to; 0: to their own size
    b_bytes  of the terms of B that one step takes from a panel

    How a step multiplies, and what comes before the first and after the last one, are methods that
    another arithmetic replaces; it names its values as this one does.

    operands  the letters of those that loops around k move: A, B, then others
    """

    operands: ClassVar[str] = "ab"

    name: str
    isa: Isa
    dtype: str
    variant: Variant
    rows: int
    vectors: int
    a_align: int = 0

    def __post_init__(self) -> None:
        self.t = LLVM_TYPE[self.dtype]
        self.item = ITEM_BYTES[self.dtype]
        self.lanes = self.isa.lanes(self.dtype)
        self.b_bytes = self.lanes * self.item
        self.v = f"<{self.lanes} x {self.t}>"
        self.suffix = f"v{self.lanes}{'i' if self.t == 'i32' else 'f'}{self.item * 8}"
        self.count = 0
        few = self.rows * self.vectors <= 8
        most = self.isa.machine.tiles.unroll
        self.unroll = most if few else most // 2

    def temp(self) -> str:
        """A new local name."""
        self.count += 1
        return f"%t{self.count}"

    @property
    def cells(self) -> list[tuple[int, int]]:
        """The accumulators, by row and vector."""
        return [(r, p) for r in range(self.rows) for p in range(self.vectors)]

    def lines(self) -> Iterator[str]:
        """The function."""
        groups = range(0, self.rows, 4)
        turns = range(self.variant.turns)
        more = [f"ptr noalias readonly %{x}" for x in self.operands[2:]]
        for n in turns:
            more += [f"i64 %count{n}", *(f"i64 %{x}_turn_step{n}" for x in self.operands)]
        yield f"define void @{self.name}({', '.join((ARGUMENTS, *more))}) nounwind {{"
        yield "entry:"
        yield "  %a_row2 = shl i64 %a_row, 1"
        yield "  %a_row3 = add i64 %a_row2, %a_row"
        for g in groups:
            yield f"  %offset{g} = mul i64 %a_row, {g}"
            yield f"  %a_start{g} = getelementptr i8, ptr %a, i64 %offset{g}"
        yield from first_lanes("mask", "%last", self.lanes, "i32")
        yield "  %fresh = icmp eq i64 %accumulate, 0"
        before, depth = yield from self.opening()
        yield "  br i1 %fresh, label %begin, label %resume"
        yield "resume:"
        yield from self.load_accumulators()
        yield "  br label %begin"
        yield "begin:"
        yield from self.start_accumulators(before)
        yield f"  %many = and i64 {depth}, {-self.unroll}"
        yield "  %any_many = icmp sgt i64 %many, 0"
        came, first, at = "begin", "start", ("%a_start", "%b", "%ahead")
        if turns:
            yield from self.turn()
            came, first, at = "turn", "turn", ("%a_turn", "%b_turn", "%ahead_turn")
        yield "  br i1 %any_many, label %loop, label %between"
        yield from self.loop("loop", came, first, self.unroll, "%many", at)
        yield "between:"
        yield from self.join("mid", first, "loop", came, at)
        end = "mid"
        if not self.variant.even:
            end = "end"
            yield f"  %left = sub i64 {depth}, %many"
            yield "  %any_left = icmp sgt i64 %left, 0"
            yield "  br i1 %any_left, label %rest, label %done"
            middle = ("%mid_a", "%mid_b", "%mid_ahead")
            yield from self.loop("rest", "between", "mid", 1, "%left", middle)
            yield "done:"
            yield "  %end_ahead = phi ptr [ %mid_ahead, %between ], [ %rest_ahead_next, %rest ]"
            for r, p in self.cells:
                yield (
                    f"  %end{r}_{p} = phi {self.v} [ %mid{r}_{p}, %between ], "
                    f"[ %rest_new{r}_{p}, %rest ]"
                )
        end = yield from self.closing(end)
        if turns:
            yield from self.close_depth_loops()
        yield from self.store_accumulators(end)
        yield "  ret void"
        yield "}"

    def opening(self) -> Generator[str, None, tuple[str, str]]:
        """What comes before the accumulators; gives the block that it ends in, and the steps of k."""
        yield from ()
        return "%entry", "%depth"

    def load_accumulators(self) -> Iterator[str]:
        """What C holds, where it is added to."""
        return self.c_accesses("%old", "load")

    def store_accumulators(self, end: str) -> Iterator[str]:
        """The stores of the accumulators behind the last turn."""
        return self.c_accesses(f"%{end}", "store")

    def start_accumulators(self, before: str) -> Iterator[str]:
        """The accumulators ``%start{row}_{vector}``, zeros from `before` or what C holds."""
        for r, p in self.cells:
            yield (
                f"  %start{r}_{p} = phi {self.v} [ zeroinitializer, {before} ], "
                f"[ %old{r}_{p}, %resume ]"
            )

    @property
    def latch(self) -> tuple[str, str, str]:
        """Return the block in which a turn ends, the stem of the accumulators there, and what is fetched ahead."""
        block, stem = ("between", "mid") if self.variant.even else ("done", "end")
        return block, stem, f"%{stem}_ahead"

    def turn(self) -> Iterator[str]:
        """The head of the loops around k, as one loop: where A and B are, and the accumulators so far."""
        latch, end, ahead = self.latch
        last = self.variant.turns - 1
        if last:
            yield f"  %less = sub i64 %count{last}, 1"
            for x in self.operands:
                yield f"  %{x}_back = mul i64 %less, %{x}_turn_step{last}"
                yield f"  %{x}_wrapped = sub i64 %{x}_turn_step0, %{x}_back"
        yield "  br label %turn"
        yield "turn:"
        offsets = (f"{x}_at" for x in self.operands)
        for name in (*offsets, *(f"round{n}" for n in range(last + 1))):
            yield f"  %{name} = phi i64 [ 0, %begin ], [ %{name}_next, %{latch} ]"
        yield f"  %ahead_turn = phi ptr [ %ahead, %begin ], [ {ahead}, %{latch} ]"
        yield from self.turn_accumulators(f"%{end}", latch)
        for g in range(0, self.rows, 4):
            yield f"  %a_turn{g} = getelementptr i8, ptr %a_start{g}, i64 %a_at"
        for x in self.operands[1:]:
            yield f"  %{x}_turn = getelementptr i8, ptr %{x}, i64 %{x}_at"

    def turn_accumulators(self, end: str, latch: str) -> Iterator[str]:
        """The accumulators with which a turn starts: those of the turn before."""
        for r, p in self.cells:
            start, last = f"[ %start{r}_{p}, %begin ]", f"[ {end}{r}_{p}, %{latch} ]"
            yield f"  %turn{r}_{p} = phi {self.v} {start}, {last}"

    def close_depth_loops(self) -> Iterator[str]:
        """The end of the loops around k; the inner one starts again where the outer one goes on."""
        last = self.variant.turns - 1
        if last:
            yield "  %inner = add i64 %round1, 1"
            yield "  %wraps = icmp eq i64 %inner, %count1"
            yield "  %round1_next = select i1 %wraps, i64 0, i64 %inner"
            yield "  %carry = zext i1 %wraps to i64"
            for x in self.operands:
                yield f"  %{x}_by = select i1 %wraps, i64 %{x}_wrapped, i64 %{x}_turn_step1"
        for x in self.operands:
            yield f"  %{x}_at_next = add i64 %{x}_at, %{x}_{'by' if last else 'turn_step0'}"
        yield f"  %round0_next = add i64 %round0, {'%carry' if last else 1}"
        yield "  %again = icmp slt i64 %round0_next, %count0"
        yield "  br i1 %again, label %turn, label %over"
        yield "over:"

    def closing(self, end: str) -> Generator[str, None, str]:
        """What comes after the last step of k, in each turn; gives the stem of the accumulators."""
        yield from ()
        return end

    def join(self, new: str, old: str, loop: str, before: str, at: Pointers) -> Iterator[str]:
        """Pointers and accumulators, `old` ones from `before` or what `loop` left."""
        a, b, ahead = at
        for g in range(0, self.rows, 4):
            yield f"  %{new}_a{g} = phi ptr [ {a}{g}, %{before} ], [ %{loop}_a_next{g}, %{loop} ]"
        for name, first in (("b", b), ("ahead", ahead)):
            yield f"  %{new}_{name} = phi ptr [ {first}, %{before} ], [ %{loop}_{name}_next, %{loop} ]"
        for r, p in self.cells:
            yield (
                f"  %{new}{r}_{p} = phi {self.v} [ %{old}{r}_{p}, %{before} ], "
                f"[ %{loop}_new{r}_{p}, %{loop} ]"
            )

    def loop(
        self, label: str, before: str, start: str, unroll: int, count: str, at: Pointers
    ) -> Iterator[str]:
        """A loop of `count` steps of k, `unroll` at once."""
        a, b, ahead = at
        yield f"{label}:"
        yield f"  %{label}_k = phi i64 [ 0, %{before} ], [ %{label}_k_next, %{label} ]"
        for g in range(0, self.rows, 4):
            yield f"  %{label}_a{g} = phi ptr [ {a}{g}, %{before} ], [ %{label}_a_next{g}, %{label} ]"
        yield f"  %{label}_b_now = phi ptr [ {b}, %{before} ], [ %{label}_b_next, %{label} ]"
        yield f"  %{label}_ahead = phi ptr [ {ahead}, %{before} ], [ %{label}_ahead_next, %{label} ]"
        for r, p in self.cells:
            yield (
                f"  %{label}_acc{r}_{p} = phi {self.v} [ %{start}{r}_{p}, %{before} ], "
                f"[ %{label}_new{r}_{p}, %{label} ]"
            )
        for g in range(0, self.rows, 4):
            yield f'  %{label}_a_now{g} = call ptr asm "", "=r,0"(ptr %{label}_a{g})'
        now = {cell: f"%{label}_acc{cell[0]}_{cell[1]}" for cell in self.cells}
        a_now = {g: f"%{label}_a_now{g}" for g in range(0, self.rows, 4)}
        b_now, ahead_now = f"%{label}_b_now", f"%{label}_ahead"
        for step in range(unroll):
            last = step == unroll - 1
            after = f"%{label}_ahead_next" if last else self.temp()
            yield from self.fetch_ahead(ahead_now, after)
            ahead_now = after
            yield from self.step(label, step, last, now, a_now, b_now)
            if not self.variant.unit_depth and not last:
                for g in a_now:
                    new = self.temp()
                    yield f"  {new} = getelementptr i8, ptr {a_now[g]}, i64 %a_step"
                    a_now[g] = new
            if not self.variant.panels and not last:
                new = self.temp()
                yield f"  {new} = getelementptr i8, ptr {b_now}, i64 %b_step"
                b_now = new
        a_step = str(unroll * self.item) if self.variant.unit_depth else "%a_step"
        for g in range(0, self.rows, 4):
            yield f"  %{label}_a_next{g} = getelementptr i8, ptr {a_now[g]}, i64 {a_step}"
        b_step = str(unroll * self.b_bytes) if self.variant.panels else "%b_step"
        yield f"  %{label}_b_next = getelementptr i8, ptr {b_now}, i64 {b_step}"
        yield f"  %{label}_k_next = add nuw i64 %{label}_k, {unroll}"
        yield f"  %{label}_more = icmp slt i64 %{label}_k_next, {count}"
        after = "between" if label == "loop" else "done"
        yield f"  br i1 %{label}_more, label %{label}, label %{after}"

    def step(
        self,
        label: str,
        step: int,
        last: bool,
        now: dict[tuple[int, int], str],
        a_now: dict[int, str],
        b_now: str,
    ) -> Iterator[str]:
        """One step of k: load B, then a broadcast of A and the multiply–adds for each row."""
        b_values = yield from self.b_values(label, step, b_now)
        a_offset = step * self.item if self.variant.unit_depth else 0
        for r in range(self.rows):
            address, element, one, splat = (self.temp() for _ in range(4))
            base = yield from self.row_address(a_now[r - r % 4], r)
            yield f"  {address} = getelementptr i8, ptr {base}, i64 {a_offset}"
            align = self.a_align or self.item
            yield f"  {element} = load {self.t}, ptr {address}, align {align}"
            yield f"  {one} = insertelement {self.v} poison, {self.t} {element}, i32 0"
            yield (
                f"  {splat} = shufflevector {self.v} {one}, {self.v} poison, "
                f"<{self.lanes} x i32> zeroinitializer"
            )
            a = yield from self.a_operand(splat)
            for p, b in enumerate(b_values):
                new = f"%{label}_new{r}_{p}" if last else self.temp()
                yield from self.multiply_add(new, a, b, now[r, p])
                now[r, p] = new

    def b_values(self, label: str, step: int, b_now: str) -> Generator[str, None, list[str]]:
        """The vectors of B of one step of k, as `multiply_add` takes them."""
        b_offset = step * self.lanes * self.item if self.variant.panels else 0
        operands = []
        for p in range(self.vectors):
            address, value = self.temp(), self.temp()
            if self.variant.panels:
                yield from self.panel_address(address, b_now, p, b_offset)
                yield f"  {value} = load {self.v}, ptr {address}, align {self.item}"
                yield from self.prefetch(address)
            else:
                offset = p * self.lanes * self.item
                yield f"  {address} = getelementptr i8, ptr {b_now}, i64 {offset}"
                if p == self.vectors - 1:
                    yield self.masked_load(value, address)
                else:
                    yield f"  {value} = load {self.v}, ptr {address}, align {self.item}"
            operands.append((yield from self.b_operand(value)))
        return operands

    def fetch_ahead(self, now: str, after: str) -> Iterator[str]:
        """Ask for what panels that are used later hold at `now`; `after` is where the next step does."""
        if self.variant.panels:
            yield f"  call void @llvm.prefetch.p0(ptr {now}, i32 0, i32 2, i32 1)"
        yield f"  {after} = getelementptr i8, ptr {now}, i64 %ahead_step"

    def prefetch(self, address: str) -> Iterator[str]:
        """Ask for what the panel holds further on."""
        ahead = self.temp()
        yield f"  {ahead} = getelementptr i8, ptr {address}, i64 {self.isa.machine.tiles.prefetch_bytes}"
        yield f"  call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)"

    def row_address(self, base: str, r: int) -> Generator[str, None, str]:
        """Row `r` of A, from the pointer of its group of four."""
        if not r % 4:
            return base
        moved = self.temp()
        row = ("%a_row", "%a_row2", "%a_row3")[r % 4 - 1]
        yield f"  {moved} = getelementptr i8, ptr {base}, i64 {row}"
        return moved

    def a_operand(self, splat: str) -> Generator[str, None, str]:
        """An element of A in all lanes, as `multiply_add` takes it."""
        yield from ()
        return splat

    def b_operand(self, value: str) -> Generator[str, None, str]:
        """A vector of B, as `multiply_add` takes it."""
        yield from ()
        return value

    def multiply_add(self, new: str, a: str, b: str, c: str) -> Iterator[str]:
        """``new = a * b + c``."""
        if self.isa.fma:
            v = self.v
            yield f"  {new} = call {v} @llvm.fma.{self.suffix}({v} {a}, {v} {b}, {v} {c})"
        else:
            product = self.temp()
            yield f"  {product} = fmul {self.v} {a}, {b}"
            yield f"  {new} = fadd {self.v} {product}, {c}"

    def panel_address(self, address: str, b_now: str, p: int, offset: int) -> Iterator[str]:
        """The address `offset` bytes on in panel `p`."""
        base = b_now
        if p:
            distance, base = self.temp(), self.temp()
            yield f"  {distance} = mul i64 %b_panel, {p}"
            yield f"  {base} = getelementptr i8, ptr {b_now}, i64 {distance}"
        yield f"  {address} = getelementptr i8, ptr {base}, i64 {offset}"

    def masked_load(self, value: str, address: str) -> str:
        """A load of the columns of the last vector that there are."""
        return (
            f"  {value} = call {self.v} @llvm.masked.load.{self.suffix}.p0(ptr {address}, "
            f"i32 {self.item}, <{self.lanes} x i1> %mask, {self.v} zeroinitializer)"
        )

    def c_accesses(self, stem: str, what: str) -> Iterator[str]:
        """A ``load`` or a ``store`` of each vector of C."""
        for r in range(self.rows):
            row = yield from self.c_row(r)
            for p in range(self.vectors):
                yield from self.c_access(row, p, f"{stem}{r}_{p}", what)

    def c_row(self, r: int) -> Generator[str, None, str]:
        """Return the address of row `r` of C."""
        distance, row = self.temp(), self.temp()
        yield f"  {distance} = mul i64 %c_row, {r}"
        yield f"  {row} = getelementptr i8, ptr %c, i64 {distance}"
        return row

    def c_access(self, row: str, p: int, value: str, what: str) -> Iterator[str]:
        """A ``load`` or a ``store`` of one vector of C."""
        address = self.temp()
        yield f"  {address} = getelementptr i8, ptr {row}, i64 {p * self.lanes * self.item}"
        if p == self.vectors - 1:
            if what == "load":
                yield self.masked_load(value, address)
            else:
                yield (
                    f"  call void @llvm.masked.store.{self.suffix}.p0({self.v} {value}, "
                    f"ptr {address}, i32 {self.item}, <{self.lanes} x i1> %mask)"
                )
        elif what == "load":
            yield f"  {value} = load {self.v}, ptr {address}, align {self.item}"
        else:
            yield f"  store {self.v} {value}, ptr {address}, align {self.item}"
