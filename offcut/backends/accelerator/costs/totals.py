"""Counts of a nest -> what its units, the bus and the memories do in a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.issue_counts import Issued
from offcut.backends.accelerator.lowering.instruction_selection import (
    Copy,
    Operation,
    Product,
    Result,
)
from offcut.backends.accelerator.lowering.nest import LoweredLeaf, LoweredNest
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, real, variables
from offcut.core.scan import ScanContext
from offcut.costmodel.closed.prediction import scaled
from offcut.costmodel.shortened import shortened

_PICO = 1e-12
ZERO = ix.const(0)


@dataclass
class Totals:
    """Of a call.

    runs      tiles of results, one by one
    products  steps of the matrix unit; vectors: of the vector unit
    bytes     that the bus moves, by place; chip: words that memories give and take
    """

    spec: AcceleratorSpec
    runs: Expr = ZERO
    products: Expr = ZERO
    vectors: Expr = ZERO
    instructions: Expr = ZERO
    bytes: dict[MemorySpace, Expr] = field(default_factory=dict)
    chip: dict[MemorySpace, Expr] = field(default_factory=dict)

    @property
    def multiply_adds(self) -> Expr:
        """Of the matrix unit, of whole words."""
        return ix.mul(self.spec.rows * self.spec.columns * self.spec.terms, self.products)

    @property
    def joules(self) -> Expr:
        """By the machine's table, as the simulator adds it up; 0 where it has none."""
        spec, table = self.spec, self.spec.energy
        if table is None:
            return real(0.0)
        operation = spec.rows * spec.columns * table.add.int32
        parts = [
            scaled(self.multiply_adds, table.multiply_add("int8") or 0.0),
            scaled(self.vectors, operation),
        ]
        for place, count in self.chip.items():
            of = spec.words[place]
            parts.append(scaled(count, of.bytes * table.on_chip(spec.memories[of.memory])))
        parts += [scaled(size, table.dram) for size in self.bytes.values()]
        total = reduce(partial(Binary, "+"), parts)
        return shortened(Binary("*", total, real(_PICO)))

    def add(self, work: LoweredLeaf, one: Issued) -> None:
        """Note a leaf."""
        self.instructions = ix.add(self.instructions, one.instructions)
        match work.does:
            case Copy(place=place):
                self.moved(place, one)
                self.add_operation(one)  # by which it is filled, where that is not by zeros
            case Result():
                self.moved(MemorySpace.OUTPUTS, one)
            case Product():
                self.add_product(one)
            case Operation():
                self.add_operation(one)

    def add_overhead(self, one: Issued) -> None:
        """Note micro-ops that are brought, and the end."""
        self.instructions = ix.add(self.instructions, one.instructions)
        self.moved(MemorySpace.MICRO_OPS, one)

    def add_product(self, one: Issued) -> None:
        """Note products of words."""
        self.products = ix.add(self.products, one.steps)
        for place, visits in (
            *((MemorySpace.INPUTS, 1), (MemorySpace.WEIGHTS, 1)),
            *((MemorySpace.ACCUMULATORS, 2), (MemorySpace.MICRO_OPS, 1)),
        ):
            self.touched(place, ix.mul(visits, one.steps))

    def add_operation(self, one: Issued) -> None:
        """Note an operation on words."""
        self.vectors = ix.add(self.vectors, one.steps, one.pairs)
        self.touched(MemorySpace.MICRO_OPS, ix.add(one.steps, one.pairs, one.resets))
        visits = ix.add(ix.mul(2, one.steps), ix.mul(3, one.pairs), one.resets)
        self.touched(MemorySpace.ACCUMULATORS, visits)

    def moved(self, place: MemorySpace, one: Issued) -> None:
        """Note words that are moved."""
        self.bytes[place] = ix.add(self.bytes.get(place, ZERO), one.bytes)
        memory = MemorySpace.ACCUMULATORS if place is MemorySpace.OUTPUTS else place
        self.touched(memory, ix.add(one.words, one.zeros))

    def touched(self, place: MemorySpace, words: Expr) -> None:
        """Note words that a memory on the chip gives or takes."""
        self.chip[place] = ix.add(self.chip.get(place, ZERO), words)


def totals(nest: LoweredNest, leaves: Sequence[Issued], overhead: Issued) -> Totals:
    """What a nest does in a call: of what its leaves issue and move, and of the overhead; nothing where no result runs."""
    nest_totals = Totals(nest.spec)
    results = [
        (work.leaf.store.buffer, one.runs)
        for work, one in zip(nest.work, leaves, strict=True)
        if isinstance(work.does, Result)
    ]
    arrays = len({buffer for buffer, _ in results})
    nest_totals.runs = ix.floordiv(ix.add(*(runs for _, runs in results)), max(arrays, 1))
    known = ScanContext.of(nest.program.sizes)
    often = (
        ix.const(1)
        if known.at_least_zero(ix.sub(nest_totals.runs, 1))
        else ix.minimum(nest_totals.runs, 1)
    )

    def where_any(count: Expr) -> Expr:
        """A count that does not ask for all sizes of the results."""
        return ix.mul(often, count) if variables(nest_totals.runs) - variables(count) else count

    for work, one in zip(nest.work, leaves, strict=True):
        nest_totals.add(work, one.mapped(where_any))
    nest_totals.add_overhead(overhead.mapped(where_any))
    return nest_totals
