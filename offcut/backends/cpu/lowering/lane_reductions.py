"""Reductions as lanes: the terms of one element side by side, in accumulators of a fixed number.

A loop marked ``@lane`` that does nothing but reduce runs so, with W the lanes of a register of
the accumulator's type and U = `ACCUMULATORS`:

    term k of the loop   goes to lane k % W of accumulator k // W % U, in ascending order
    accumulators         are added up in halves: a[u] + a[u + U/2], then a[u] + a[u + U/4], …
    lanes                likewise
    the old value        comes last: old + total

Lanes without a term hold the value that changes nothing, so the order depends on the extent of the
reduction and on the instruction set alone, and an accumulator that no term reaches may be left out.

A maximum or minimum of floats keeps apart which lanes have met NaN: the larger of two numbers is one
instruction, the larger of two floats is six. Of zeros of both signs it gives either, by that order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offcut.backends.cpu.lowering.addressing import Lanes
from offcut.backends.cpu.lowering.gathers import Gathers
from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.llvm import ir
from offcut.core.analysis import only_reduces
from offcut.core.dtypes import FLOATS, HALVES, identity
from offcut.core.expr import COMBINED, loads
from offcut.core.program import LANE, For, Program, Stmt, Store, walk

ACCUMULATORS = 4  # of each reduction: as many operations as are under way while one adds

State = tuple[str, ...]  # LLVM's values of one accumulator, by part


def reduction_lanes(loop: For, program: Program, isa: Isa) -> int | None:
    """W of a loop that runs as lanes of its reductions; None where it runs one by one."""
    if loop.unit != LANE or not only_reduces(loop):
        return None
    dtypes = {program.buffer(stmt.buffer).dtype for stmt in loop.body if isinstance(stmt, Store)}
    widths = {isa.lanes("float32" if dtype in HALVES else dtype) for dtype in dtypes}
    return widths.pop() if len(widths) == 1 else None


def has_lane_reductions(body: Sequence[Stmt], program: Program, isa: Isa) -> bool:
    """Return whether an instance of `body` takes the lanes for a reduction of its own."""
    return any(
        isinstance(stmt, For) and reduction_lanes(stmt, program, isa) is not None
        for stmt in walk(tuple(body))
    )


class Reductions(Gathers):
    """Lowers loops that reduce as lanes."""

    def reduction(self, loop: For, width: int, slots: Mapping[str, str]) -> dict[str, str]:
        """What a loop that runs at least once reduces its terms to, by buffer: vectors of one lane.

        slots   registers of one lane that stand for buffers around the loop
        """
        f, stores = self.f, [stmt for stmt in loop.body if isinstance(stmt, Store)]
        wide = self._splat_slots(stores, width, slots)
        start = self.scalar(loop.lo)
        count = ir.sub(f, self.scalar(loop.hi), start)
        terms = _Terms(self, loop, [self._reducer(s, width, wide) for s in stores], width, start)
        totals, literal_count = terms.slots(), ir.literal(count)

        def few() -> None:
            terms.keep(totals, terms.accumulate_vector(terms.identities(), "0", count))

        def many() -> None:
            accumulators = [terms.slots() for _ in range(ACCUMULATORS)]
            for own in accumulators:
                terms.keep(own, terms.identities())
            terms.run(accumulators, count)
            terms.keep(totals, terms.tree([terms.accumulators(own) for own in accumulators]))

        if literal_count is not None:
            (few if literal_count <= width else many)()
        else:
            short = f.let(f"icmp sle i64 {count}, {width}")
            with f.when(short):
                few()
            with f.when(f.let(f"xor i1 {short}, true")):
                many()
        return {
            reducer.store.buffer: reducer.across(total)
            for reducer, total in zip(terms.reducers, terms.accumulators(totals), strict=True)
        }

    def first_lanes(self, width: int, count: str) -> str:
        """Return the mask of the first `count` lanes of a vector, none where that is negative: compared in 32 bits, for a loop inside may
        ask again.
        """
        f, kind = self.f, f"<{width} x i32>"
        most = ir.minimum(f, count, str(width))
        if ir.literal(most) is not None:
            # A literal mask would be taken apart into loads of single elements.
            most = f.let(f'call i64 asm "", "=r,0"(i64 {most}) memory(none)')
        narrow = f.let(f"trunc i64 {most} to i32")
        one = f.let(f"insertelement {kind} poison, i32 {narrow}, i32 0")
        limit = f.let(f"shufflevector {kind} {one}, {kind} poison, {kind} zeroinitializer")
        ramp = "<" + ", ".join(f"i32 {lane}" for lane in range(width)) + ">"
        return f.let(f"icmp slt {kind} {ramp}, {limit}")

    def combine(self, store: Store, old: str, total: str) -> str:
        """``old op total`` of vectors of one lane."""
        assert store.reduce is not None
        dtype = self.program.buffer(store.buffer).dtype
        return self.elements(1).binary(COMBINED[store.reduce], dtype, old, total)

    def _reducer(self, store: Store, width: int, slots: Mapping[str, str]) -> _Reducer:
        dtype = self.program.buffer(store.buffer).dtype
        extreme = store.reduce != "sum" and dtype in FLOATS
        return (_Extreme if extreme else _Reducer)(self, store, dtype, width, slots)

    def _splat_slots(
        self, stores: Sequence[Store], width: int, slots: Mapping[str, str]
    ) -> dict[str, str]:
        """Registers that hold in every lane what `slots` hold in one, where the terms read it."""
        widened: dict[str, str] = {}
        for load in (load for store in stores for load, _ in loads(store.value)):
            if load.buffer not in slots or load.buffer in widened:
                continue
            one, e = self.elements(1).kind(load.dtype), self.elements(width)
            vector = self.f.let(f"load {one}, ptr {slots[load.buffer]}")
            scalar = self.f.let(f"extractelement {one} {vector}, i32 0")
            widened[load.buffer] = self.f.slot(e.kind(load.dtype))
            self.f.do(
                f"store {e.kind(load.dtype)} {e.splat(scalar, load.dtype)}, "
                f"ptr {widened[load.buffer]}"
            )
        return widened


@dataclass(frozen=True)
class _Reducer:
    """One statement of the loop: its accumulators, of one part each.

    slots   registers of `width` lanes that stand for buffers
    """

    low: Reductions
    store: Store
    dtype: str
    width: int
    slots: Mapping[str, str]

    @property
    def operation(self) -> str:
        return COMBINED[self.store.reduce or ""]

    @property
    def kinds(self) -> State:
        """LLVM's type of each part."""
        return (self.low.elements(self.width).kind(self.dtype),)

    def identity(self) -> State:
        """An accumulator that no term has reached."""
        nothing = identity(self.store.reduce or "", self.dtype)
        return (self.low.elements(self.width).constant(nothing, self.dtype),)

    def accumulate(self, old: State, lanes: Lanes) -> State:
        """`old` with the terms of `lanes`."""
        low, store, e = self.low, self.store, self.low.elements(self.width)
        assert store.reduce is not None
        new = low.reduce(store.reduce, old[0], store.value, self.dtype, lanes, self.slots)
        return (new if lanes.mask is None else e.select(lanes.mask, new, old[0], self.dtype),)

    def merge(self, one: State, other: State) -> State:
        """Two accumulators in one."""
        return (self.pair(self.width, one[0], other[0]),)

    def pair(self, width: int, a: str, b: str) -> str:
        """``a op b`` of vectors of `width` lanes."""
        return self.low.elements(width).binary(self.operation, self.dtype, a, b)

    def across(self, state: State) -> str:
        """The lanes of an accumulator reduced in halves, as a vector of one lane."""
        vector, width = state[0], self.width
        while width > 1:
            kind, half = self.low.elements(width).kind(self.dtype), width // 2
            sides = []
            for first in (0, half):
                order = ", ".join(f"i32 {first + lane}" for lane in range(half))
                shuffle = f"shufflevector {kind} {vector}, {kind} poison, <{half} x i32> <{order}>"
                sides.append(self.low.f.let(shuffle))
            vector, width = self.pair(half, *reversed(sides)), half
        return vector


class _Extreme(_Reducer):
    """A maximum or minimum of floats: of the numbers among the terms, and which lanes met NaN."""

    @property
    def kinds(self) -> State:
        return (*super().kinds, f"<{self.width} x i1>")

    def identity(self) -> State:
        return (*super().identity(), "zeroinitializer")

    def accumulate(self, old: State, lanes: Lanes) -> State:
        f, e = self.low.f, self.low.elements(self.width)
        kind, bits = self.kinds
        term = self.low.value(self.store.value, lanes, self.slots)
        if lanes.mask is not None:
            term = e.select(lanes.mask, term, super().identity()[0], self.dtype)
        none = f.let(f"fcmp uno {kind} {term}, {term}")
        met = f.let(f"or {bits} {old[1]}, {none}")
        return self.pair(self.width, term, old[0]), met

    def merge(self, one: State, other: State) -> State:
        met = self.low.f.let(f"or <{self.width} x i1> {one[1]}, {other[1]}")
        return self.pair(self.width, other[0], one[0]), met

    def pair(self, width: int, a: str, b: str) -> str:
        """`a` where it is beyond `b`, else `b`: which is a number where `b` is."""
        e = self.low.elements(width)
        beyond = e.compare(">" if self.store.reduce == "max" else "<", self.dtype, a, b)
        return e.select(beyond, a, b, self.dtype)

    def across(self, state: State) -> str:
        f, e, bits = self.low.f, self.low.elements(1), f"<{self.width} x i1>"
        total = super().across(state)
        name = f"llvm.vector.reduce.or.v{self.width}i1"
        met = f.call("i1", name, f"{bits} {state[1]}", bits)
        nan = e.constant(math.nan, self.dtype)
        return f.let(f"select i1 {met}, {e.kind(self.dtype)} {nan}, {e.kind(self.dtype)} {total}")


class _Terms:
    """The terms of a loop as vectors, written by `low`.

    start   the loop's first iteration
    """

    def __init__(
        self, low: Reductions, loop: For, reducers: Sequence[_Reducer], width: int, start: str
    ) -> None:
        self.low, self.loop, self.reducers = low, loop, reducers
        self.width, self.start = width, start

    def slots(self) -> list[State]:
        """Registers for one accumulator of each statement."""
        return [tuple(self.low.f.slot(kind) for kind in one.kinds) for one in self.reducers]

    def identities(self) -> list[State]:
        """Accumulators that no term has reached."""
        return [reducer.identity() for reducer in self.reducers]

    def keep(self, slots: Sequence[State], values: Sequence[State]) -> None:
        for reducer, own, parts in zip(self.reducers, slots, values, strict=True):
            for slot, kind, part in zip(own, reducer.kinds, parts, strict=True):
                self.low.f.do(f"store {kind} {part}, ptr {slot}")

    def accumulators(self, slots: Sequence[State]) -> list[State]:
        return [
            tuple(
                self.low.f.let(f"load {kind}, ptr {slot}")
                for slot, kind in zip(own, reducer.kinds, strict=True)
            )
            for reducer, own in zip(self.reducers, slots, strict=True)
        ]

    def accumulate_vector(self, old: Sequence[State], done: str, rest: str | None) -> list[State]:
        """`old` with the vector of terms from `done` on.

        rest   terms that there are from there on; None: a whole vector at least
        """
        low, mask = self.low, None
        if rest is not None and not ((ir.literal(rest) or 0) >= self.width):
            mask = low.first_lanes(self.width, rest)
        lanes = Lanes(self.width, self.loop.iter, mask)
        with low.bound(self.loop.iter, ir.add(low.f, self.start, done)):
            return [
                reducer.accumulate(parts, lanes)
                for reducer, parts in zip(self.reducers, old, strict=True)
            ]

    def run(self, accumulators: Sequence[Sequence[State]], count: str) -> None:
        """All terms into the accumulators in turn."""
        f, block = self.low.f, len(accumulators) * self.width
        full = ir.mul(f, ir.floordiv(f, count, str(block)), str(block))
        if full != "0":
            with f.loop("0", full, block) as now:
                for number, slots in enumerate(accumulators):
                    at = ir.add(f, now, str(number * self.width))
                    self.keep(slots, self.accumulate_vector(self.accumulators(slots), at, None))
        self._rest(accumulators, 0, full, ir.sub(f, count, full))

    def _rest(
        self, accumulators: Sequence[Sequence[State]], number: int, done: str, rest: str
    ) -> None:
        """Fewer terms than the accumulators hold, from accumulator `number` on."""
        f, literal_count = self.low.f, ir.literal(rest)
        if number == len(accumulators) or (literal_count is not None and literal_count <= 0):
            return

        def step() -> None:
            slots = accumulators[number]
            self.keep(slots, self.accumulate_vector(self.accumulators(slots), done, rest))
            after = ir.add(f, done, str(self.width)), ir.sub(f, rest, str(self.width))
            self._rest(accumulators, number + 1, *after)

        if literal_count is not None:
            step()
            return
        with f.when(f.let(f"icmp sgt i64 {rest}, 0")):
            step()

    def tree(self, values: Sequence[Sequence[State]]) -> list[State]:
        """Accumulators reduced in halves."""
        while len(values) > 1:
            half = len(values) // 2
            values = [
                [reducer.merge(a, b) for reducer, a, b in zip(self.reducers, *pair, strict=True)]
                for pair in zip(values[:half], values[half:], strict=True)
            ]
        return list(values[0])
