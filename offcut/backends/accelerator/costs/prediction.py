"""A program on the chip -> what a call costs: at given sizes, or as formulas in them.

A stream is a piece; streams run one after the other. What the host fills beside them costs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from math import lcm

from offcut.backends.accelerator.costs.counts import nest_counts
from offcut.backends.accelerator.host_device_split import HostDeviceProgram
from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.lowering.instruction_selection import (
    Copy,
    Operation,
    Product,
    Result,
)
from offcut.backends.accelerator.lowering.issue_tree import bounds_of
from offcut.backends.accelerator.lowering.nest import LoweredLeaf, LoweredNest
from offcut.backends.accelerator.nest_run import Issued, Ran, run_of
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Select, children, real, variables
from offcut.core.interpret.values import evaluate
from offcut.core.program import Program
from offcut.core.scan import ScanContext
from offcut.costmodel import Cost, Device, Formulas
from offcut.costmodel.closed.cost import PieceCost, cost_of_call, piece_at
from offcut.costmodel.closed.counts import (
    THOUSANDTHS,
    Counts,
    Exactness,
    HowExact,
    Piece,
    PricedOption,
    least_exact,
)
from offcut.costmodel.closed.prediction import Predicted, Prediction, scale_cost
from offcut.costmodel.periodic_fit import PeriodicFit, fit_periodic
from offcut.costmodel.simplification import simplify_cost

INSTRUCTION = 16
"""Bytes."""


def run_streams(program: Program, spec: AcceleratorSpec, sizes: Mapping[str, int]) -> list[Ran]:
    """What the streams of a program take at known sizes.

    Raises TargetError where windows do not fit.
    """
    phases = HostDeviceProgram(program, spec, has_tokens=False)
    return [phase.run(sizes) for phase in phases.nests]


def cost_of(
    described: Program,
    streams: Sequence[Ran],
    machine: Device,
    named: Mapping[str, int],
    sizes: Mapping[str, int],
) -> Cost:
    """What a call costs.

    named  the sizes, by the user's names; sizes: the same, by the program's
    """
    exact, resident = (
        Exactness.EXACT,
        _largest_resident_bytes([one.kept for one in streams], machine),
    )
    prediction = Prediction(
        tuple(map(_predicted_run, streams)),
        (),
        resident,
        {},
        HowExact(flop=exact, bytes=exact, cycles=exact, energy=Exactness.ESTIMATE),
    )
    pieces = [piece_at(one, {}) for one in prediction.pieces]
    return cost_of_call(
        *(described, prediction, machine, [piece for piece in pieces if piece.runs], named, sizes),
        peak=_peak(pieces, streams),
        code=INSTRUCTION * int(sum(piece.instructions for piece in pieces)),
    )


def _peak(pieces: Sequence[PieceCost], streams: Sequence[Ran]) -> float:
    """Return the operations per second of the matrix unit where a stream multiplies, else of the vector unit."""
    rates = [0.0]
    for piece, stream in zip(pieces, streams, strict=True):
        spec = stream.nest.spec
        word = spec.rows * spec.columns
        if piece.flop:
            rates.append(2 * word * spec.terms / spec.gemm_cycles * spec.hertz)
        elif piece.runs:
            rates.append(word / spec.immediate_cycles * spec.hertz)
    return max(rates)


def formulas_of(
    described: Program,
    program: Program,
    machine: Device,
    users: Mapping[str, str],
    typical: Mapping[str, int],
) -> Formulas:
    """Return the same at any sizes.

    program  on the chip
    users    what the user calls the sizes, by the program's names
    typical  sizes at which the largest instances are looked at, and micro-ops that are brought: bytes of other sizes
             are estimates by these

    Raises TargetError where windows do not fit.
    """
    phases = HostDeviceProgram(program, AcceleratorSpec.of(machine), has_tokens=False)
    pieces: list[Predicted] = []
    choices: list[tuple[PricedOption, ...]] = []
    filled: list[Mapping[str, int]] = []
    within, issued_ = 0.0, 0
    exactness = HowExact(
        flop=Exactness.EXACT,
        bytes=Exactness.EXACT,
        cycles=Exactness.ESTIMATE,
        energy=Exactness.ESTIMATE,
    )
    for phase in phases.nests:
        # by the program itself, or by the cycles that a call counts where that costs all options the same
        by_cost = len({option.cost for option in phase.options}) > 1
        priced_options: list[PricedOption] = []
        most = 0
        for number, option in enumerate(phase.options):
            nest = option.nest
            typical_run = _with_tails(run_of(nest, typical), typical)
            counts, overhead = nest_counts(typical_run), typical_run.overhead
            bytes_are = counts.exact_bytes if overhead.bytes == ZERO else Exactness.ESTIMATE
            exactness = replace(
                exactness,
                flop=least_exact(exactness.flop, counts.exact_counts),
                bytes=least_exact(exactness.bytes, bytes_are),
            )
            nest_totals, cycles = totals(nest, counts.leaves, overhead), formula(nest)
            choice = (len(choices), number) if len(phase.options) > 1 else None
            runs = Compare(">", nest_totals.runs, ZERO)
            call = simplify_cost(Select(runs, cycles.formula, real(0.0)))
            pieces.append(_predicted_nest(nest, nest_totals, {"call": call}, choice))
            priced_options.append(
                PricedOption(option.label, option.cost if by_cost else cycles.formula)
            )
            filled.append(counts.kept)
            within = max(within, cycles.within)
            most = max(most, int(evaluate(nest_totals.instructions, dict(typical))))
        issued_ += most
        if len(priced_options) > 1:
            choices.append(tuple(priced_options))
    resident = _largest_resident_bytes(filled, machine)
    prediction = Prediction(tuple(pieces), tuple(choices), resident, {}, exactness)
    code = INSTRUCTION * issued_
    return Formulas(described, prediction, machine, users, code, error=lambda: within)


def _with_tails(ran: Ran, typical: Mapping[str, int]) -> Ran:
    """Return a nest as it runs at typical sizes, with the largest instances of leaves that do not run there: of tails, where whole tiles
    are all there is, which run at sizes that are a bit less; and of what runs where there is no whole tile, at sizes of which each is a
    bit less than half of the one before.
    """
    largest, nest = dict(ran.largest), ran.nest
    least = {size.name: max(size.min, 1) for size in nest.program.sizes}
    powers = [1 << k for k in range(max(typical.values(), default=0).bit_length())]
    smaller = chain(
        ({name: size - less for name, size in typical.items()} for less in powers),
        ({name: size // parts - 1 for name, size in typical.items()} for parts in powers[1:]),
    )
    for sizes in smaller:
        if len(largest) == len(nest.work):
            break
        fewer = {name: max(size, least.get(name, 1)) for name, size in sizes.items()}
        largest = {**run_of(nest, fewer).largest, **largest}
    return replace(ran, largest=largest)


def _predicted_run(of: Ran) -> Predicted:
    nest_totals = totals(of.nest, of.leaves, of.overhead)
    cycles = {name: real(count) for name, count in resources(of).items()}
    return _predicted_nest(of.nest, nest_totals, cycles, None)


def _predicted_nest(
    nest: LoweredNest,
    nest_totals: Totals,
    cycles: Mapping[str, Expr],
    option: tuple[int, int] | None,
) -> Predicted:
    piece = Piece(nest.stage, "whole", (), _microkernel(nest) or None, option)
    counts = Counts(
        runs=nest_totals.runs,
        flop=ix.mul(2, nest_totals.multiply_adds),
        instructions=ix.mul(THOUSANDTHS, nest_totals.instructions),
    )
    bytes_ = {
        place.value: nest_totals.bytes[place]
        for place in nest_totals.spec.words
        if place in nest_totals.bytes
    }
    return Predicted(piece, counts, cycles, bytes_, nest_totals.joules)


def _microkernel(nest: LoweredNest) -> str:
    """Return the one that its sums are covered by; "" where it has none."""
    named = (w.leaf.microkernel for w in nest.work if isinstance(w.does, Product))
    return next((name for name in named if name is not None), "")


def _largest_resident_bytes(
    filled: Sequence[Mapping[str, int]], machine: Device
) -> dict[str, Expr]:
    return {
        memory.name: ix.const(max((one.get(memory.name, 0) for one in filled), default=0))
        for memory in machine.memory
    }


# Cycles of a call at known sizes: units, the bus, and what has to wait for what; over open sizes, the formula of these.
#
# At sizes that are known, what waits is a line of all instances, each in the queue of its unit (`costmodel/event_simulation.py`). Over
# sizes that are left open, the formula is made of such lines at a few of them (`periodic_fit.py`).

HARDLY = 0.02
"""Of the whole: a unit that waits for less is what a call takes its time for."""


def resources(of: Ran) -> Mapping[str, float]:
    """Cycles by what takes them, a call takes the most of these: each unit with what comes before and behind it, the bus,
    and all that waits.
    """
    timed = of.timed
    found = {
        unit: timed.cycles if cycles >= (1.0 - HARDLY) * timed.cycles else cycles
        for unit, cycles in timed.alone.items()
    }
    return {**found, "bus": timed.bus, "chain": timed.cycles}


def formula(nest: LoweredNest) -> PeriodicFit:
    """Cycles over the sizes of a nest."""
    derived = nest.derived
    sizes = [size for size in nest.program.sizes if size.name not in derived.lets]
    exprs = [derived.expand(expr) for expr in _symbolic_terms(nest)]
    read = frozenset[str]().union(*map(variables, exprs))
    least = {size.name: size.min for size in sizes}

    def cycles(sizes_of_call: Mapping[str, int]) -> float:
        return run_of(nest, {**least, **sizes_of_call}).timed.cycles

    divisors = {
        size.name: sorted({_divisor(expr, size.name) for expr in exprs} - {1})
        for size in sizes
        if size.name in read
    }
    return fit_periodic(cycles, [size for size in sizes if size.name in read], divisors)


def _symbolic_terms(nest: LoweredNest) -> Iterator[Expr]:
    """Yield how often loops run, whether, how many words leaves have along their axes, and where main memory ends."""
    yield from bounds_of(nest.nodes)
    for work in nest.work:
        yield from (ix.ceildiv(work.asked[at], lanes) for at, lanes in work.counts)
        for low, high in work.bounds:
            yield from (work.asked[at] for at in (*low, *high))


def _divisor(expr: Expr, size: str) -> int:
    """What an expression divides a size by: of so many more, it gives as many more, or its part of a turn again."""
    if size not in variables(expr):
        return 1
    inner = lcm(*(_divisor(child, size) for child in children(expr)))
    match expr:
        case Binary("//" | "%", _, Const(by)):
            return inner * int(by)
        case _:
            return inner


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
            scale_cost(self.multiply_adds, table.multiply_add("int8") or 0.0),
            scale_cost(self.vectors, operation),
        ]
        for place, count in self.chip.items():
            of = spec.words[place]
            parts.append(scale_cost(count, of.bytes * table.on_chip(spec.memories[of.memory])))
        parts += [scale_cost(size, table.dram) for size in self.bytes.values()]
        total = reduce(partial(Binary, "+"), parts)
        return simplify_cost(Binary("*", total, real(_PICO)))

    def add(self, work: LoweredLeaf, one: Issued) -> None:
        """Note a leaf."""
        self.instructions = ix.add(self.instructions, one.instructions)
        match work.does:
            case Copy(place=place):
                self.count_transfer(place, one)
                self.add_operation(one)  # by which it is filled, where that is not by zeros
            case Result():
                self.count_transfer(MemorySpace.OUTPUTS, one)
            case Product():
                self.add_product(one)
            case Operation():
                self.add_operation(one)

    def add_overhead(self, one: Issued) -> None:
        """Note micro-ops that are brought, and the end."""
        self.instructions = ix.add(self.instructions, one.instructions)
        self.count_transfer(MemorySpace.MICRO_OPS, one)

    def add_product(self, one: Issued) -> None:
        """Note products of words."""
        self.products = ix.add(self.products, one.steps)
        for place, visits in (
            *((MemorySpace.INPUTS, 1), (MemorySpace.WEIGHTS, 1)),
            *((MemorySpace.ACCUMULATORS, 2), (MemorySpace.MICRO_OPS, 1)),
        ):
            self.count_accesses(place, ix.mul(visits, one.steps))

    def add_operation(self, one: Issued) -> None:
        """Note an operation on words."""
        self.vectors = ix.add(self.vectors, one.steps, one.pairs)
        self.count_accesses(MemorySpace.MICRO_OPS, ix.add(one.steps, one.pairs, one.resets))
        visits = ix.add(ix.mul(2, one.steps), ix.mul(3, one.pairs), one.resets)
        self.count_accesses(MemorySpace.ACCUMULATORS, visits)

    def count_transfer(self, place: MemorySpace, one: Issued) -> None:
        """Note words that are moved."""
        self.bytes[place] = ix.add(self.bytes.get(place, ZERO), one.bytes)
        memory = MemorySpace.ACCUMULATORS if place is MemorySpace.OUTPUTS else place
        self.count_accesses(memory, ix.add(one.words, one.zeros))

    def count_accesses(self, place: MemorySpace, words: Expr) -> None:
        """Note words that a memory on the chip gives or takes."""
        self.chip[place] = ix.add(self.chip.get(place, ZERO), words)


def totals(nest: LoweredNest, leaves: Sequence[Issued], overhead: Issued) -> Totals:
    """What a nest does in a call: of what its leaves issue and move, and of the overhead; nothing where no result runs."""
    made = Totals(nest.spec)
    results = [
        (work.leaf.store.buffer, one.runs)
        for work, one in zip(nest.work, leaves, strict=True)
        if isinstance(work.does, Result)
    ]
    arrays = len({buffer for buffer, _ in results})
    made.runs = ix.floordiv(ix.add(*(runs for _, runs in results)), max(arrays, 1))
    known = ScanContext.of(nest.program.sizes)
    often = ix.const(1) if known.at_least_zero(ix.sub(made.runs, 1)) else ix.minimum(made.runs, 1)

    def where_any(count: Expr) -> Expr:
        """A count that does not ask for all sizes of the results."""
        return ix.mul(often, count) if variables(made.runs) - variables(count) else count

    for work, one in zip(nest.work, leaves, strict=True):
        made.add(work, one.map(where_any))
    made.add_overhead(overhead.map(where_any))
    return made
