"""Statements for a vector of instances: what lives in registers meanwhile, branches, loops inside.

A buffer that the statements access at one element of each instance lives in a register meanwhile,
one that a loop accesses at one element while the loop runs; every other access goes to memory. A
condition that is the same for all lanes is a branch, any other one turns lanes off. A reduction of
one instance may take the lanes for its terms (`reductions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from offcut.backends.cpu.lowering.addressing import Lanes
from offcut.backends.cpu.lowering.expressions import is_one_element, loaded_buffers
from offcut.backends.cpu.lowering.lane_reductions import Reductions, reduction_lanes
from offcut.core import index as ix
from offcut.core.analysis import indices
from offcut.core.conditions import conjunction
from offcut.core.expr import Expr, Logic, loads
from offcut.core.plain_loops import tile_to_loops
from offcut.core.program import (
    STATUS,
    Alloc,
    Choose,
    For,
    If,
    Kind,
    Let,
    Stmt,
    Store,
    Sync,
    Tile,
)
from offcut.core.program import walk as statements
from offcut.core.traversal import substitute_coordinates
from offcut.errors import InternalError
from offcut.polyhedral.units import begins_with_store


class VectorStatements(Reductions):
    """Runs the statements of a tile one after the other for one vector of its instances."""

    def instances(self, body: Sequence[Stmt], lanes: Lanes) -> None:
        """Run `body` for one vector of instances."""
        slots = self.load_registers(body, lanes)
        self.vector_block(body, lanes, slots)
        self.store_registers(body, lanes, slots)

    def load_registers(self, body: Sequence[Stmt], lanes: Lanes) -> dict[str, str]:
        """The registers that stand for buffers while `body` runs, by name."""
        e = self.elements(lanes.width)
        slots: dict[str, str] = {}
        for store in (s for s in statements(tuple(body)) if isinstance(s, Store)):
            buffer = store.buffer
            if buffer not in slots and self.fits_register(buffer, body, set()):
                dtype = self.program.buffer(buffer).dtype
                slots[buffer] = self.f.slot(e.kind(dtype))
                if buffer in self.memory and not begins_with_store(buffer, body):
                    old = self.load(buffer, store.index, dtype, lanes)
                    self.f.do(f"store {e.kind(dtype)} {old}, ptr {slots[buffer]}")
        return slots

    def store_registers(self, body: Sequence[Stmt], lanes: Lanes, slots: Mapping[str, str]) -> None:
        """Write what registers stood for to memory, where it lies there."""
        e = self.elements(lanes.width)
        last = {s.buffer: s for s in statements(tuple(body)) if isinstance(s, Store)}
        for buffer, slot in slots.items():
            if buffer in self.memory:
                dtype = self.program.buffer(buffer).dtype
                value = self.f.let(f"load {e.kind(dtype)}, ptr {slot}")
                self.save(buffer, last[buffer].index, value, lanes)

    def fits_register(self, buffer: str, body: Sequence[Stmt], inner: set[str]) -> bool:
        """Whether a register can stand for what `body` accesses of `buffer`.

        It does so at one element, the same wherever `body` is, which exists: its index and the extents are literals, or at least one
        access of it, a direct statement of `body`, always runs.

        inner   names that `body` binds around itself
        """
        if not is_one_element(buffer, body, inner):
            return False
        direct = (stmt for stmt in body if isinstance(stmt, Store))
        always = any(
            stmt.buffer == buffer or buffer in loaded_buffers(stmt.value, always=True)
            for stmt in direct
        )
        return always or buffer not in self.memory or self.is_literal_element(buffer, body)

    def is_literal_element(self, buffer: str, body: Sequence[Stmt]) -> bool:
        """Return whether the element that `body` accesses exists at all sizes, in a whole local array that is no status."""
        declared = self.program.buffer(buffer)
        if declared.kind is not Kind.LOCAL or declared.scope == STATUS:
            return False
        return set(self.memory[buffer].origins) <= {"0"} and all(
            (at := ix.literal_value(part)) is not None and 0 <= at < (ix.literal_value(extent) or 0)
            for index in indices(tuple(body), buffer)
            for part, extent in zip(index, declared.shape, strict=True)
        )

    def vector_block(self, body: Sequence[Stmt], lanes: Lanes, slots: Mapping[str, str]) -> None:
        """Statements for one vector of instances.

        slots   the registers that stand for buffers, by name
        """
        for stmt in body:
            match stmt:
                case For():
                    width = reduction_lanes(stmt, self.program, self.isa)
                    if width is not None and lanes.width == 1:
                        self.lane_reduction(stmt, width, lanes, slots)
                    else:
                        self.vector_loop(stmt, lanes, slots)
                case If(condition, then, other):
                    self.vector_if(condition, then, other, lanes, slots)
                case Let(name, _, _, value, inner):
                    if self.differs(value, lanes, slots):
                        self.vector_block(
                            substitute_coordinates(inner, {name: value}), lanes, slots
                        )
                    else:
                        with self.bound(name, self.scalar(value)):
                            self.vector_block(inner, lanes, slots)
                case Tile():
                    self.vector_block(tile_to_loops(stmt), lanes, slots)
                case Alloc(_, _, inner):
                    self.vector_block(inner, lanes, slots)
                case Store():
                    self.vector_store(stmt, lanes, slots)
                case Choose():
                    raise InternalError("choose inside a tile")
                case Sync():
                    pass
                case _:
                    assert_never(stmt)

    def vector_store(self, stmt: Store, lanes: Lanes, slots: Mapping[str, str]) -> None:
        """One assignment or update: of a register where one stands for its buffer, else of memory."""
        e, dtype = self.elements(lanes.width), self.program.buffer(stmt.buffer).dtype
        kind, slot = e.kind(dtype), slots.get(stmt.buffer)
        old = ""
        if slot is not None and (stmt.reduce is not None or lanes.path is not None):
            old = self.f.let(f"load {kind}, ptr {slot}")
        elif slot is None and stmt.reduce is not None:
            old = self.load(stmt.buffer, stmt.index, dtype, lanes)
        self.current_store, self.store_lanes = stmt, lanes
        if stmt.reduce is None:
            result = self.value(stmt.value, lanes, slots)
        else:
            result = self.reduce(stmt.reduce, old, stmt.value, dtype, lanes, slots)
        self.current_store = None
        if slot is None:
            self.save(stmt.buffer, stmt.index, result, lanes)
            return
        if lanes.path is not None:
            result = e.select(lanes.path, result, old, dtype)
        self.f.do(f"store {kind} {result}, ptr {slot}")

    def lane_reduction(self, loop: For, width: int, lanes: Lanes, slots: Mapping[str, str]) -> None:
        """A loop of one instance whose iterations are the lanes of reductions."""
        f, e = self.f, self.elements(1)
        first, last = self.scalar(loop.lo), self.scalar(loop.hi)
        with f.when(f.let(f"icmp slt i64 {first}, {last}")):
            totals = self.reduction(loop, width, slots)
            for store in loop.body:
                assert isinstance(store, Store)
                dtype, slot = self.program.buffer(store.buffer).dtype, slots.get(store.buffer)
                if slot is not None:
                    old = f.let(f"load {e.kind(dtype)}, ptr {slot}")
                    new = self.combine(store, old, totals[store.buffer])
                    f.do(f"store {e.kind(dtype)} {new}, ptr {slot}")
                    continue
                old = self.load(store.buffer, store.index, dtype, lanes)
                new = self.combine(store, old, totals[store.buffer])
                self.save(store.buffer, store.index, new, lanes)

    def vector_if(
        self,
        condition: Expr,
        then: Sequence[Stmt],
        other: Sequence[Stmt],
        lanes: Lanes,
        slots: Mapping[str, str],
    ) -> None:
        """A branch where the condition is that of all lanes, else each side for its own lanes."""
        match condition:
            case Logic("and", (first, *rest)) if not other:
                # One after the other: those that are the same for all lanes are branches.
                inner = If(conjunction(rest), tuple(then))
                self.vector_if(first, (inner,), (), lanes, slots)
                return
        if not self.differs(condition, lanes, slots):
            holds = self.truth(condition, slots)
            some = replace(lanes, in_turn={})  # of the iterations around, each may be asked
            with self.f.when(holds):
                self.vector_block(then, some, slots)
            if other:
                with self.f.when(self.f.let(f"xor i1 {holds}, true")):
                    self.vector_block(other, some, slots)
            return
        holds = self.value(condition, lanes, slots)
        self.vector_block(then, self.on(lanes, holds), slots)
        if other:
            fails = self.f.let(f"xor <{lanes.width} x i1> {holds}, splat (i1 true)")
            self.vector_block(other, self.on(lanes, fails), slots)

    def vector_loop(self, loop: For, lanes: Lanes, slots: Mapping[str, str]) -> None:
        """A loop inside: what it accesses at one element only is kept in a register meanwhile."""
        f, inside = self.f, lanes
        apart = any(self.differs(bound, lanes, slots) for bound in (loop.lo, loop.hi))
        if apart:
            e = self.elements(lanes.width)
            lo, hi = (self.lane_index(bound, lanes) for bound in (loop.lo, loop.hi))
            inside = self.on(lanes, e.compare("<", "index", lo, hi))
            # Lanes that are off are not to make the loop longer.
            far = e.constant(2**62, "index"), e.constant(-(2**62), "index")
            active = self.mask_of(inside) or ""
            low, high = (
                e.select(active, x, y, "index") for x, y in zip((lo, hi), far, strict=True)
            )
            kind = f"<{lanes.width} x i64>"
            first, last = (
                f.call("i64", f"llvm.vector.reduce.{op}.v{lanes.width}i64", f"{kind} {x}", kind)
                for op, x in (("smin", low), ("smax", high))
            )
        else:
            first, last = self.scalar(loop.lo), self.scalar(loop.hi)
        written = {s.buffer: s for s in statements(loop.body) if isinstance(s, Store)}
        stores_in_registers = [
            store
            for buffer, store in written.items()
            if buffer in self.memory
            and buffer not in slots
            and self.fits_register(buffer, loop.body, {loop.iter})
        ]
        if not stores_in_registers:
            self.iterations(loop, (first, last), apart, lanes, slots)
            return
        e = self.elements(lanes.width)
        with f.when(f.let(f"icmp slt i64 {first}, {last}")):
            own = dict(slots)
            for store in stores_in_registers:
                dtype = self.program.buffer(store.buffer).dtype
                own[store.buffer] = f.slot(e.kind(dtype))
                old = self.load(store.buffer, store.index, dtype, inside)
                f.do(f"store {e.kind(dtype)} {old}, ptr {own[store.buffer]}")
            self.iterations(loop, (first, last), apart, lanes, own)
            for store in stores_in_registers:
                dtype = self.program.buffer(store.buffer).dtype
                new = f.let(f"load {e.kind(dtype)}, ptr {own[store.buffer]}")
                self.save(store.buffer, store.index, new, inside)

    def iterations(
        self,
        loop: For,
        ends: tuple[str, str],
        apart: bool,
        lanes: Lanes,
        slots: Mapping[str, str],
    ) -> None:
        """The body of `loop` from the first end to the last; where lanes have bounds `apart`, masked."""
        if not apart:
            self.each(loop, ends, lanes, lambda own: self.vector_block(loop.body, own, slots))
            return
        with self.f.loop(*ends) as now, self.bound(loop.iter, now):
            inside, e = lanes, self.elements(lanes.width)
            at = e.splat(now, "index")
            for op, bound in (("<=", loop.lo), (">", loop.hi)):
                holds = e.compare(op, "index", self.lane_index(bound, lanes), at)
                inside = self.on(inside, holds)
            self.vector_block(loop.body, inside, slots)

    def each(
        self, loop: For, ends: tuple[str, str], lanes: Lanes, emit: Callable[[Lanes], None]
    ) -> None:
        """Write the iterations of a loop: a loop, or one after the other where each reads another member of groups of lanes.

        emit  writes the body, for lanes
        """
        count = self.iterations_in_turn(loop, lanes)
        if count is None:
            with self.f.loop(*ends) as now, self.bound(loop.iter, now):
                emit(lanes)
            return
        in_turn = {**lanes.in_turn, loop.iter: count}
        for number in range(count):
            with self.bound(loop.iter, str(number)):
                emit(replace(lanes, in_turn=in_turn))

    def iterations_in_turn(self, loop: For, lanes: Lanes) -> int | None:
        """The number of iterations of a loop each of which reads another member of groups of lanes; None for any other one."""
        count = ix.literal_value(loop.hi) if ix.literal_value(loop.lo) == 0 else None
        stores = (stmt for stmt in loop.body if isinstance(stmt, Store))
        read = (load for store in stores for load, _ in loads(store.value))
        has_condition = count is not None and any(
            self.says_member(loop.iter, count, self.memory[load.buffer], load.index, lanes)
            for load in read
            if load.buffer in self.memory
        )
        return count if has_condition else None
