"""A model as one function of machine code: it lays out memory for the sizes of a call, and calls one kernel after the other.

The function has the interface of a kernel's entry (`offcut.backends.abi`), and takes dense arrays alone: it reads no strides. Its
workspace is the arena, what is measured, and the scratch of the greediest kernel. It runs each kernel for the whole of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from offcut.backends.host.saved_file import FIRST_FAULT
from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter
from offcut.backends.llvm.scalars import Scalars
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr
from offcut.core.text.printer import format_expr
from offcut.graph.graph import Graph
from offcut.graph.layout.placement import ONE, ZERO, Place, steps_of
from offcut.graph.models.batches.microbatches import WholeBatches
from offcut.graph.models.kernel_step import OpenSlice, Operand, Step
from offcut.graph.models.memory.arena import ALIGNMENT, Arena
from offcut.graph.sizes import extents

_UNBOUNDED = 4
"""The status of a body that measured more than a limit: what it computed is left, and the other body runs."""
_FAR = 2**62
_HUGE = 1 << 61  # bytes that no allocator has


@dataclass(frozen=True)
class NativeModel:
    """What the function of a model is made of.

    symbols    of the code of each step's kernel
    bases      of each root that is not in the arena: the number of its pointer; measured values have none
    constants  of each step: the numbers of the pointers of what its kernel reads packed
    outputs    where each output of the graph lies, and the number of its pointer
    slices     that a call is asked about before anything runs
    """

    graph: Graph
    steps: Sequence[Step]
    arena: Arena
    symbols: Sequence[str]
    bases: Mapping[str, int]
    constants: Sequence[Sequence[int]]
    outputs: Sequence[tuple[Place, int]]
    slices: Sequence[OpenSlice] = ()


@dataclass
class _Faults:
    """Why calls cannot run, each by the status that says so."""

    texts: list[str] = field(default_factory=list)

    def status(self, because: str) -> int:
        """Return the status of a reason."""
        if because not in self.texts:
            self.texts.append(because)
        return FIRST_FAULT + self.texts.index(because)


def entry_ir(
    model: NativeModel, plain: NativeModel | None = None, runs: WholeBatches | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return LLVM IR of ``offcut_entry`` and ``offcut_workspace``, and the reasons for which a call cannot run, by their statuses.

    plain  the model whose sums are computed as they are written: it runs where the first measured more than a limit; None: such a call cannot run
    runs   None: all calls
    """
    faults, bodies = _Faults(), [model] if plain is None else [model, plain]
    beyond = _UNBOUNDED
    if plain is None and any(step.limits for step in model.steps):
        beyond = faults.status("data are too large for fewer products")
    writers = [_Body(one, faults, f"body{number}", beyond) for number, one in enumerate(bodies)]
    parameters = "ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace"
    arguments = "ptr %pointers, ptr %sizes, ptr %workspace"
    lines = [f"  %status = call i32 @body0({arguments})"]
    if plain is None:
        lines.append("  ret i32 %status")
    else:
        lines += [
            f"  %more = icmp eq i32 %status, {_UNBOUNDED}",
            "  br i1 %more, label %plain, label %end",
            "plain:",
            f"  %again = call i32 @body1({arguments})",
            "  ret i32 %again",
            "end:",
            "  ret i32 %status",
        ]
    rooms = [f"  %room{n} = call i64 @body{n}_workspace(ptr %sizes)" for n in range(len(bodies))]
    most = "%room0"
    if plain is not None:
        rooms.append("  %most = call i64 @llvm.smax.i64(i64 %room0, i64 %room1)")
        most = "%most"
    if runs is not None:
        is_far = [
            f"  %place = getelementptr i64, ptr %sizes, i64 {runs.size}",
            "  %batch = load i64, ptr %place",
            f"  %several = icmp sgt i64 %batch, {runs.most}",
            f"  %large = icmp sgt i64 {most}, {runs.cache_bytes}",
            "  %far = and i1 %several, %large",
        ]
        status = faults.status("it may run for parts of the batch")
        branch = ["  br i1 %far, label %leave, label %run", "leave:", f"  ret i32 {status}", "run:"]
        lines = [*rooms, *is_far, *branch, *lines]
        rooms += [*is_far, f"  %asked = select i1 %far, i64 0, i64 {most}"]
        most = "%asked"
    entry = "\n".join([f"define i32 @offcut_entry({parameters}) nounwind {{", *lines, "}"])
    head = "define i64 @offcut_workspace(ptr %sizes) nounwind {"
    workspace = "\n".join([head, *rooms, f"  ret i64 {most}", "}"])
    called = dict.fromkeys(symbol for one in bodies for symbol in one.symbols)
    declared = [
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare i64 @llvm.smin.i64(i64, i64)",
        *(f"declare i32 @{symbol}_entry(ptr, ptr, ptr, ptr)" for symbol in called),
        *(f"declare i64 @{symbol}_workspace(ptr)" for symbol in called),
    ]
    functions = [text for one in writers for text in (one.function(), one.workspace())]
    return "\n".join([*declared, *functions, entry, workspace]), tuple(faults.texts)


class _Body(Scalars):
    """One way to run a model, as a function.

    beyond  the status where more than a limit was measured
    """

    def __init__(self, model: NativeModel, faults: _Faults, symbol: str, beyond: int) -> None:
        super().__init__()
        self.model, self.faults, self.symbol, self.beyond = model, faults, symbol, beyond
        self.sizes = {size.name: size for size in model.graph.sizes}

    def function(self) -> str:
        """Return LLVM IR of ``i32 @SYMBOL(pointers, sizes, workspace)``."""
        self._begin()
        model, f = self.model, self.f
        for one in model.slices:
            self._check_slice(one)
        total, starts = self._slots()
        measured: dict[str, tuple[str, float, str]] = {}
        for step in model.steps:
            for operand, limit in zip(step.outputs, step.limits, strict=False):
                measured[operand.root] = (total, limit, operand.dtype)
                total = ir.add(f, total, str(ALIGNMENT))
        addresses = {
            root: f.let(f"getelementptr i8, ptr %workspace, i64 {at}")
            for root, at in starts.items()
        }
        addresses |= {
            root: f.let(f"getelementptr i8, ptr %workspace, i64 {at}")
            for root, (at, _, _) in measured.items()
        }
        addresses |= {
            root: self._word("%pointers", number, "ptr") for root, number in model.bases.items()
        }
        scratch = f.let(f"getelementptr i8, ptr %workspace, i64 {total}")
        slots = self._call_slots()
        for number, step in enumerate(model.steps):
            self._call(number, step, addresses, scratch, slots)
        for root, (_, limit, dtype) in measured.items():
            self._check_measured(addresses[root], limit, dtype)
        for place, pointer in model.outputs:
            target = self._word("%pointers", pointer, "ptr")
            if model.bases.get(place.root) != pointer:
                self._copy(place, addresses[place.root], target)
        f.do("ret i32 0")
        parameters = "ptr %pointers, ptr %sizes, ptr %workspace"
        return (
            f"define internal i32 @{self.symbol}({parameters}) noinline nounwind {{\n{f.text()}\n}}"
        )

    def workspace(self) -> str:
        """Return LLVM IR of ``i64 @SYMBOL_workspace(sizes)``: bytes; more than there can be where int64 does not hold the number."""
        self._begin()
        model, f = self.model, self.f
        total, _ = self._slots()
        measured = sum(len(step.limits) for step in model.steps)
        total = ir.add(f, total, str(measured * ALIGNMENT))
        magnitude = "0.0"
        for one in (need for slot in model.arena.slots for need in slot.bytes):
            magnitude = f.let(f"fadd double {magnitude}, {self.magnitude(one)}")
        slots, most = self._call_slots(), "0"
        for number, step in enumerate(model.steps):
            self._store_sizes(step, slots[1])
            need = f.let(f"call i64 @{model.symbols[number]}_workspace(ptr {slots[1]})")
            most = ir.maximum(f, most, need)
        total = ir.add(f, total, most)
        large = f.let(f"fcmp ogt double {magnitude}, 0x43C0000000000000")
        huge = f.let(f"icmp sge i64 {most}, {_HUGE}")
        either = f.let(f"or i1 {large}, {huge}")
        f.do(f"ret i64 {f.let(f'select i1 {either}, i64 {_HUGE}, i64 {total}')}")
        return (
            f"define internal i64 @{self.symbol}_workspace(ptr %sizes) nounwind {{\n{f.text()}\n}}"
        )

    def _begin(self) -> None:
        self.f = FunctionWriter()
        self.values = {
            name: self._word("%sizes", number, "i64") for number, name in enumerate(self.sizes)
        }

    def _word(self, base: str, number: int, kind: str) -> str:
        at = self.f.let(f"getelementptr i64, ptr {base}, i64 {number}")
        return self.f.let(f"load {kind}, ptr {at}")

    def range_of(self, expr: Expr) -> tuple[int, int]:
        """Return bounds of an extent at all sizes of the graph."""
        low, high = extents.span(expr, self.model.graph.sizes)
        return int(max(low, -_FAR)), int(min(high, _FAR))

    def _slots(self) -> tuple[str, dict[str, str]]:
        """Return the bytes of the arena, and where in it each value begins."""
        f, arena = self.f, self.model.arena
        begins, total = list[str](), "0"
        for slot in arena.slots:
            begins.append(total)
            most = self.scalar(slot.bytes[0])
            for other in slot.bytes[1:]:
                most = ir.maximum(f, most, self.scalar(other))
            up = ir.add(f, ir.maximum(f, most, "0"), str(ALIGNMENT - 1))
            rounded = ir.mul(f, ir.floordiv(f, up, str(ALIGNMENT), natural=True), str(ALIGNMENT))
            total = ir.add(f, total, rounded)
        return total, {name: begins[at] for name, at in arena.of.items()}

    def _call_slots(self) -> tuple[str, str, str]:
        """Return room on the stack for the pointers, the sizes and the strides of any of the calls."""
        steps, constants = self.model.steps, self.model.constants
        counts = [
            [len(step.arrays) + len(own) for step, own in zip(steps, constants, strict=True)],
            [len(step.sizes) for step in steps],
            [sum(len(one.strides) for one in step.arrays) for step in steps],
        ]
        pointers, sizes, strides = (self.f.slot(f"[{max([1, *each])} x i64]") for each in counts)
        return pointers, sizes, strides

    def _store(self, base: str, number: int, value: str, kind: str = "i64") -> None:
        at = self.f.let(f"getelementptr i64, ptr {base}, i64 {number}")
        self.f.do(f"store {kind} {value}, ptr {at}")

    def _store_sizes(self, step: Step, base: str) -> None:
        for number, (_, extent) in enumerate(step.sizes):
            self._store(base, number, self.scalar(extent))

    def _call(
        self,
        number: int,
        step: Step,
        addresses: Mapping[str, str],
        scratch: str,
        slots: tuple[str, str, str],
    ) -> None:
        """Check a step, and call its kernel."""
        f, model = self.f, self.model
        pointers, sizes, strides = slots
        self._check_sizes(step)
        at = 0
        for place, (operand, kernel_shape) in enumerate(
            zip(step.arrays, step.kernel_shapes, strict=True)
        ):
            self._check_operand(step, operand, kernel_shape)
            offset = ir.mul(f, self.scalar(operand.offset), str(ITEM_BYTES[operand.dtype]))
            begin = f.let(f"getelementptr i8, ptr {addresses[operand.root]}, i64 {offset}")
            self._store(pointers, place, begin, "ptr")
            for stride in operand.strides:
                self._store(strides, at, self.scalar(stride))
                at += 1
        for place, constant in enumerate(model.constants[number], len(step.arrays)):
            self._store(pointers, place, self._word("%pointers", constant, "ptr"), "ptr")
        self._store_sizes(step, sizes)
        arguments = f"ptr {pointers}, ptr {sizes}, ptr {strides}, ptr {scratch}"
        status = f.let(f"call i32 @{model.symbols[number]}_entry({arguments})")
        self._stop(f.let(f"icmp ne i32 {status}, 0"), status)

    def _stop(self, condition: str, status: str | int) -> None:
        """Return a status where an i1 holds."""
        stop, go_on = self.f.name("stop"), self.f.name("on")
        self.f.do(f"br i1 {condition}, label {stop}, label {go_on}")
        self.f.start(stop)
        self.f.do(f"ret i32 {status}")
        self.f.start(go_on)

    def _require(self, holds: str, because: str) -> None:
        """Return the status of a reason where an i1 does not hold."""
        if holds == "true":
            return
        broken = self.f.let(f"xor i1 {holds}, true")
        self._stop(broken, self.faults.status(because))

    def _is_at_least(self, expr: Expr, least: int) -> str:
        """Return an i1; "true" where it is at all sizes."""
        if self.range_of(expr)[0] >= least:
            return "true"
        return self.f.let(f"icmp sge i64 {self.scalar(expr)}, {least}")

    def _check_slice(self, one: OpenSlice) -> None:
        because = f"{one.name}: {format_expr(one.start)}:{format_expr(one.stop)} of axis {one.axis} is not within 0:{format_expr(one.extent)}"
        for part in (one.start, ix.sub(one.stop, one.start), ix.sub(one.extent, one.stop)):
            self._require(self._is_at_least(part, 0), because)

    def _check_sizes(self, step: Step) -> None:
        """Check that a kernel runs at its sizes."""
        f, own = self.f, dict(step.sizes)
        for facts in step.kernel.signature.sizes:
            extent = own[facts.name]
            of = f", multiples of {facts.multiple_of}" if facts.multiple_of > 1 else ""
            because = f"{step.name}: an extent is {format_expr(extent)}, and its kernel takes {facts.min}…{facts.max}{of}"
            low, high = self.range_of(extent)
            if low < facts.min:
                self._require(f.let(f"icmp sge i64 {self.scalar(extent)}, {facts.min}"), because)
            if high > facts.max:
                self._require(f.let(f"icmp sle i64 {self.scalar(extent)}, {facts.max}"), because)
            if facts.multiple_of > 1:
                rest = ir.mod(f, self.scalar(extent), str(facts.multiple_of))
                self._require(f.let(f"icmp eq i64 {rest}, 0"), because)
        for relation in step.kernel.signature.relations:
            total = str(relation.const)
            for name, factor in relation.terms:
                total = ir.add(f, total, ir.mul(f, self.scalar(own[name]), str(factor)))
            if relation.kind == "mod":
                total = ir.mod(f, total, str(relation.modulus))
            word = "sge" if relation.kind == ">=" else "eq"
            self._require(
                f.let(f"icmp {word} i64 {total}, 0"), f"{step.name}: it assumes {relation.text}"
            )

    def _check_operand(self, step: Step, one: Operand, kernel_shape: Sequence[Expr]) -> None:
        """Check that an array has the extents that its kernel takes, the last axis side by side, and lies within its memory."""
        f = self.f
        unlike = f"{step.name}: {one.value} is not what its kernel takes"
        for extent, own in zip(one.shape, kernel_shape, strict=True):
            if extent != own:
                alike = f"icmp eq i64 {self.scalar(extent)}, {self.scalar(own)}"
                self._require(f.let(alike), unlike)
        if one.shape and one.shape[-1] != ONE and one.strides[-1] != ONE:
            single = f.let(f"icmp sle i64 {self.scalar(one.shape[-1])}, 1")
            beside = f.let(f"icmp eq i64 {self.scalar(one.strides[-1])}, 1")
            self._require(f.let(f"or i1 {single}, {beside}"), unlike)
        memory = self.model.graph.values.get(one.root)
        if memory is None or self._fills(one, memory.shape):
            return
        low = high = self.scalar(one.offset)
        empty = "false"
        for extent, stride in zip(one.shape, one.strides, strict=True):
            reach = ir.mul(f, self.scalar(ix.sub(extent, 1)), self.scalar(stride))
            low = ir.add(f, low, ir.minimum(f, reach, "0"))
            high = ir.add(f, high, ir.maximum(f, reach, "0"))
            none = f.let(f"icmp sle i64 {self.scalar(extent)}, 0")
            empty = f.let(f"or i1 {empty}, {none}")
        length = self.scalar(extents.product(memory.shape))
        above = f.let(f"icmp sge i64 {low}, 0")
        below = f.let(f"icmp slt i64 {high}, {length}")
        inside = f.let(f"or i1 {empty}, {f.let(f'and i1 {above}, {below}')}")
        self._require(inside, f"{step.name}: {one.value} reaches outside of {one.root}")

    def _fills(self, one: Operand, shape: Sequence[Expr]) -> bool:
        """Return whether an array is its memory, element by element."""
        whole = extents.product(one.shape) == extents.product(shape)
        return one.offset == ZERO and whole and one.strides == steps_of(one.shape)

    def _check_measured(self, address: str, limit: float, dtype: str) -> None:
        """Return `beyond` where what was measured is more than a limit, or is no number."""
        f = self.f
        kind = {"float64": "double", "float32": "float"}[dtype]
        value = f.let(f"load {kind}, ptr {address}")
        wide = value if kind == "double" else f.let(f"fpext {kind} {value} to double")
        within = f.let(f"fcmp ole double {wide}, 0x{np.float64(limit).view(np.uint64):016X}")
        self._stop(f.let(f"xor i1 {within}, true"), self.beyond)

    def _copy(self, place: Place, source: str, target: str) -> None:
        """Copy an output that lies in other memory, or otherwise than it is given."""
        f, item = self.f, ITEM_BYTES[self.model.graph.values[place.root].dtype]
        begin = ir.mul(f, self.scalar(place.offset), str(item))
        base = f.let(f"getelementptr i8, ptr {source}, i64 {begin}")

        def rows(axis: int, here: str, there: str) -> None:
            if axis == len(place.shape):
                value = f.let(f"load i{8 * item}, ptr {here}")
                f.do(f"store i{8 * item} {value}, ptr {there}")
                return
            with f.loop("0", self.scalar(place.shape[axis])) as number:
                ends = []
                for address, step in ((here, place.strides[axis]), (there, own[axis])):
                    elements = ir.mul(f, number, self.scalar(step))
                    offset = ir.mul(f, elements, str(item))
                    ends.append(f.let(f"getelementptr i8, ptr {address}, i64 {offset}"))
                rows(axis + 1, *ends)

        own = steps_of(place.shape)
        rows(0, base, target)
