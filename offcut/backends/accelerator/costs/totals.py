"""Counts of a nest -> what its units, the bus and the memories do in a call, each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from offcut.backends.accelerator.costs.counts import Issued
from offcut.backends.accelerator.costs.numbers import NONE, each, plus, scaled, times
from offcut.backends.accelerator.isa import Place, Unit
from offcut.backends.accelerator.lowering.covers import Copy, Operation, Product, Result
from offcut.backends.accelerator.lowering.nest import Lowered, Work
from offcut.backends.accelerator.lowering.tree import Guard, Leaf, Loop, Node
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Expr, real

_PICO = 1e-12
ZERO = ix.const(0)


@dataclass
class Totals:
    """Of a call.

    cycles      of each unit
    bus         cycles for which it is taken
    end         cycles of the operations behind sums
    shared      cycles of loads into windows that all virtual threads read, and how often they are loaded
    tiles       of results, each as much as those of the first virtual thread are: a smaller one is a part of one
    turns       tiles of the first virtual thread
    sums        instances of what is added up, likewise
    runs        tiles, one by one
    bytes       that the bus moves, by place; chip: words that memories give and take
    """

    spec: Spec
    cycles: dict[Unit, Expr] = field(default_factory=lambda: dict.fromkeys(Unit, NONE))
    bus: Expr = NONE
    end: Expr = NONE
    shared: list[tuple[Expr, Expr]] = field(default_factory=list)
    tiles: Expr = NONE
    turns: Expr = NONE
    sums: Expr = NONE
    runs: Expr = ZERO
    products: Expr = ZERO
    vectors: Expr = ZERO
    instructions: Expr = ZERO
    bytes: dict[Place, Expr] = field(default_factory=dict)
    chip: dict[Place, Expr] = field(default_factory=dict)
    dealt: bool = False
    together: bool = True

    @property
    def multiply_adds(self) -> Expr:
        """Of the matrix unit, of whole words."""
        return ix.mul(self.spec.rows * self.spec.columns * self.spec.terms, self.products)

    @property
    def joules(self) -> Expr:
        """By the machine's table, as the simulator adds it up; 0 where it has none."""
        spec, table = self.spec, self.spec.energy
        if table is None:
            return NONE
        operation = spec.rows * spec.columns * table.add.int32
        parts = [
            scaled(self.multiply_adds, table.multiply_add("int8") or 0.0),
            scaled(self.vectors, operation),
        ]
        for place, count in self.chip.items():
            of = spec.words[place]
            parts.append(scaled(count, of.bytes * table.on_chip(spec.memories[of.memory])))
        parts += [scaled(size, table.dram) for size in self.bytes.values()]
        return times(plus(*parts), real(_PICO))

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
                    self.shared.append((own, one.runs))
            case Result():
                self.moved(Place.OUTPUTS, Unit.STORE, one)
            case Product():
                own = scaled(one.instructions, spec.instruction_cycles[Unit.COMPUTE])
                self.compute(plus(own, scaled(one.steps, spec.gemm_cycles)))
                self.products = ix.add(self.products, one.steps)
                for place, visits in (
                    *((Place.INPUTS, 1), (Place.WEIGHTS, 1)),
                    *((Place.ACCUMULATORS, 2), (Place.MICRO_OPS, 1)),
                ):
                    self.touched(place, ix.mul(visits, one.steps))
            case Operation():
                own = plus(
                    scaled(one.instructions, spec.instruction_cycles[Unit.COMPUTE]),
                    scaled(one.steps, spec.immediate_cycles),
                    scaled(one.pairs, spec.operand_cycles),
                    scaled(one.resets, spec.gemm_cycles),
                )
                self.compute(own)
                self.end = plus(self.end, own) if behind else self.end
                self.vectors = ix.add(self.vectors, one.steps, one.pairs)
                self.touched(Place.MICRO_OPS, ix.add(one.steps, one.pairs, one.resets))
                visits_of = ix.add(ix.mul(2, one.steps), ix.mul(3, one.pairs), one.resets)
                self.touched(Place.ACCUMULATORS, visits_of)

    def compute(self, own: Expr) -> None:
        """Note cycles of the compute unit."""
        self.cycles[Unit.COMPUTE] = plus(self.cycles[Unit.COMPUTE], own)

    def moved(self, place: Place, unit: Unit, one: Issued) -> Expr:
        """Note words that are moved; the cycles that they take."""
        spec = self.spec
        of = spec.words[place]
        size = ix.mul(-(-of.bytes // spec.beat) * spec.beat, one.words)
        on_bus = plus(scaled(one.rows, spec.row_cycles), scaled(size, 1.0 / spec.bus_bytes))
        issue = scaled(one.instructions, spec.instruction_cycles[unit])
        own = plus(issue, scaled(one.zeros, of.fill_cycles), on_bus)
        self.bus = plus(self.bus, on_bus)
        self.cycles[unit] = plus(self.cycles[unit], own)
        self.bytes[place] = ix.add(self.bytes.get(place, ZERO), size)
        held = Place.ACCUMULATORS if place is Place.OUTPUTS else place
        self.touched(held, ix.add(one.words, one.zeros))
        return own

    def touched(self, place: Place, words: Expr) -> None:
        """Note words that a memory on the chip gives or takes."""
        self.chip[place] = ix.add(self.chip.get(place, ZERO), words)


def totals(nest: Lowered, counts: Sequence[Issued]) -> Totals:
    """What a nest does.

    counts   by leaf
    """
    made = Totals(nest.spec)
    made.dealt = any(one is not None for work in nest.work for one in work.leaf.threads.values())
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
    made.tiles = times(made.turns, each(real(words), turned))
    inner = [
        one.runs
        for work, one in zip(nest.work, counts, strict=True)
        if isinstance(work.does, Product)
    ]
    inner = inner or [made.runs]
    made.sums = times(scaled(ix.add(*inner), 1 / len(inner)), each(made.tiles, made.runs))
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
