"""Counts of a nest -> what its units, the bus and the memories do in a call, each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from offcut.backends.accelerator.costs.counts import Counted
from offcut.backends.accelerator.costs.numbers import Number, count_of, each, plus, scaled, times
from offcut.backends.accelerator.instances.issued import Fetched, Issued
from offcut.backends.accelerator.instances.running import Timed
from offcut.backends.accelerator.isa import Place, Unit
from offcut.backends.accelerator.lowering.covers import Copy, Operation, Product, Result
from offcut.backends.accelerator.lowering.nest import Lowered, Work
from offcut.backends.accelerator.lowering.tree import Guard, Leaf, Loop, Node
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Expr

_PICO = 1e-12
ZERO = ix.const(0)


@dataclass
class Totals:
    """Of a call.

    cycles      of each unit
    bus         cycles for which it is taken
    multiplied  cycles of products; end: of the operations behind sums
    first       cycles of the loads that stand before the first sum
    start       cycles of the operations before sums, and of bringing the first micro-ops
    shared      cycles of loads into windows that all virtual threads read, and how often they are loaded
    tiles       of results, each as much as those of the first virtual thread are: a smaller one is a part of one
    turns       tiles of the first virtual thread
    sums        instances of what is added up, likewise
    runs        tiles, one by one
    timed       where all sizes are known, how long the line of all instances takes
    bytes       that the bus moves, by place; chip: words that memories give and take
    """

    spec: Spec
    cycles: dict[Unit, Number] = field(default_factory=lambda: dict.fromkeys(Unit, 0.0))
    bus: Number = 0.0
    multiplied: Number = 0.0
    end: Number = 0.0
    first: Number = 0.0
    start: Number = 0.0
    shared: list[tuple[Number, Number]] = field(default_factory=list)
    tiles: Number = 0.0
    turns: Number = 0.0
    sums: Number = 0.0
    runs: Expr = ZERO
    products: Expr = ZERO
    vectors: Expr = ZERO
    instructions: Expr = ZERO
    bytes: dict[Place, Expr] = field(default_factory=dict)
    chip: dict[Place, Expr] = field(default_factory=dict)
    timed: Timed | None = None
    dealt: bool = False
    together: bool = True

    @property
    def multiply_adds(self) -> Expr:
        """Of the matrix unit, of whole words."""
        return ix.mul(self.spec.rows * self.spec.columns * self.spec.terms, self.products)

    @property
    def joules(self) -> Number:
        """By the machine's table, as the simulator adds it up; 0 where it has none."""
        spec, table = self.spec, self.spec.energy
        if table is None:
            return 0.0
        operation = spec.rows * spec.columns * table.add.int32
        parts = [
            scaled(self.multiply_adds, table.multiply_add("int8") or 0.0),
            scaled(self.vectors, operation),
        ]
        for place, count in self.chip.items():
            of = spec.words[place]
            parts.append(scaled(count, of.bytes * table.on_chip(spec.memories[of.memory])))
        parts += [scaled(size, table.dram) for size in self.bytes.values()]
        return times(plus(*parts), _PICO)

    def add(self, work: Work, one: Issued, behind: bool) -> None:
        """Note a leaf.

        behind  whether it stands behind the sum
        """
        spec, does = self.spec, work.does
        self.instructions = ix.add(self.instructions, one.instructions)
        match does:
            case Copy(place=place):
                own = self.moved(place, spec.loads[place], one)
                buffer = work.leaf.store.buffer
                if self.dealt and work.leaf.threads.get(buffer) is None:
                    self.shared.append((own, count_of(one.runs)))
            case Result():
                self.moved(Place.OUTPUTS, Unit.STORE, one)
            case Product():
                self.add_product(one)
            case Operation():
                self.add_operation(one, behind)

    def add_product(self, one: Issued) -> None:
        """Note products of words."""
        spec = self.spec
        issue = scaled(one.instructions, spec.instruction_cycles[Unit.COMPUTE])
        own = plus(issue, scaled(one.steps, spec.gemm_cycles))
        self.compute(own)
        self.multiplied = plus(self.multiplied, own)
        self.products = ix.add(self.products, one.steps)
        for place, visits in (
            *((Place.INPUTS, 1), (Place.WEIGHTS, 1)),
            *((Place.ACCUMULATORS, 2), (Place.MICRO_OPS, 1)),
        ):
            self.touched(place, ix.mul(visits, one.steps))

    def add_operation(self, one: Issued, behind: bool) -> None:
        """Note an operation on words."""
        spec = self.spec
        own = plus(
            scaled(one.instructions, spec.instruction_cycles[Unit.COMPUTE]),
            scaled(one.steps, spec.immediate_cycles),
            scaled(one.pairs, spec.operand_cycles),
            scaled(one.resets, spec.gemm_cycles),
        )
        self.compute(own)
        if behind:
            self.end = plus(self.end, own)
        else:
            self.start = plus(self.start, each(own, count_of(one.runs)))
        self.vectors = ix.add(self.vectors, one.steps, one.pairs)
        self.touched(Place.MICRO_OPS, ix.add(one.steps, one.pairs, one.resets))
        visits = ix.add(ix.mul(2, one.steps), ix.mul(3, one.pairs), one.resets)
        self.touched(Place.ACCUMULATORS, visits)

    def compute(self, own: Number) -> None:
        """Note cycles of the compute unit."""
        self.cycles[Unit.COMPUTE] = plus(self.cycles[Unit.COMPUTE], own)

    def moved(self, place: Place, unit: Unit, one: Issued) -> Number:
        """Note words that are moved; the cycles that they take."""
        spec = self.spec
        of = spec.words[place]
        on_bus = plus(scaled(one.rows, spec.row_cycles), scaled(one.bytes, 1.0 / spec.bus_bytes))
        issue = scaled(one.instructions, spec.instruction_cycles[unit])
        own = plus(issue, scaled(one.zeros, of.fill_cycles), on_bus)
        self.bus = plus(self.bus, on_bus)
        self.cycles[unit] = plus(self.cycles[unit], own)
        if unit is Unit.LOAD:
            self.first = plus(self.first, each(own, count_of(one.runs)))
        self.bytes[place] = ix.add(self.bytes.get(place, ZERO), one.bytes)
        held = Place.ACCUMULATORS if place is Place.OUTPUTS else place
        self.touched(held, ix.add(one.words, one.zeros))
        return own

    def fetched(self, of: Fetched, threads: Number) -> None:
        """Note micro-ops that are brought, as many words for each of so many virtual threads."""
        spec, words = self.spec, self.spec.words[Place.MICRO_OPS]
        beats = -(-words.bytes * of.words // spec.beat) * spec.beat
        on_bus = plus(of.loads * spec.row_cycles, times(threads, beats / spec.bus_bytes))
        own = plus(of.loads * spec.instruction_cycles[spec.loads[Place.MICRO_OPS]], on_bus)
        self.compute(own)
        self.start = plus(self.start, own)
        self.bus = plus(self.bus, on_bus)

    def touched(self, place: Place, words: Expr) -> None:
        """Note words that a memory on the chip gives or takes."""
        self.chip[place] = ix.add(self.chip.get(place, ZERO), words)


def totals(nest: Lowered, found: Counted) -> Totals:
    """What a nest does, of what its leaves issue and move."""
    counts = found.leaves
    made = Totals(nest.spec, timed=found.timed)
    made.dealt = nest.dealt
    sums = [work.leaf.number for work in nest.work if isinstance(work.does, Product)]
    results = [
        one for work, one in zip(nest.work, counts, strict=True) if isinstance(work.does, Result)
    ]
    made.together = not sums or _side_by_side(nest.nodes, nest.work)
    for work, one in zip(nest.work, counts, strict=True):
        made.add(work, one, work.leaf.number > max(sums, default=-1))
    words, turned = (
        ix.add(*(getattr(one, name) for one in results)) for name in ("words", "turned")
    )
    made.runs = ix.floordiv(ix.add(*(one.runs for one in results)), max(len(results), 1))
    made.turns = scaled(ix.add(*(one.turns for one in results)), 1 / max(len(results), 1))
    made.tiles = times(made.turns, each(count_of(words), count_of(turned)))
    inner = [
        one.runs
        for work, one in zip(nest.work, counts, strict=True)
        if isinstance(work.does, Product)
    ]
    inner = inner or [made.runs]
    apart = found.timed is None and made.dealt
    made.fetched(found.fetched, each(made.tiles, made.turns) if apart else 1.0)
    made.sums = times(scaled(ix.add(*inner), 1 / len(inner)), each(made.tiles, count_of(made.runs)))
    return made


def _side_by_side(nodes: Sequence[Node], work: Sequence[Work]) -> bool:
    """Whether a sum and the operations behind it follow one another, for each thread before the next."""
    kinds: Mapping[int, type] = {one.leaf.number: type(one.does) for one in work}
    for node in nodes:
        match node:
            case Loop(body=body) | Guard(body=body):
                own = [kinds[one.number] for one in body if isinstance(one, Leaf)]
                if Product in own and Operation in own[own.index(Product) :]:
                    return True
                if _side_by_side(body, work):
                    return True
            case Leaf():
                pass
    return False
