"""A program on the chip -> what a call costs: at given sizes, or as formulas in them.

A stream is a piece; streams run one after the other. What the host fills beside them costs nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from offcut.backends.accelerator.costs.counts import counted
from offcut.backends.accelerator.costs.cycles import formula, resources
from offcut.backends.accelerator.costs.totals import ZERO, Totals, totals
from offcut.backends.accelerator.host_device_split import HostDeviceProgram
from offcut.backends.accelerator.lowering.instruction_selection import Product
from offcut.backends.accelerator.lowering.nest import LoweredNest
from offcut.backends.accelerator.nest_run import Ran, run_of
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Compare, Expr, Select, real
from offcut.core.interpret.values import evaluate
from offcut.core.program import Program
from offcut.costmodel import Cost, Device, Formulas
from offcut.costmodel.closed.cost import PieceCost, piece_at
from offcut.costmodel.closed.counts import (
    THOUSANDTHS,
    Counts,
    Exactness,
    HowExact,
    Piece,
    Way,
    least_exact,
)
from offcut.costmodel.closed.operations import flop
from offcut.costmodel.closed.prediction import Predicted, Prediction
from offcut.costmodel.shortened import shortened

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
    piece_costs = [_piece(one) for one in streams]
    memories = tuple(dict.fromkeys(name for piece in piece_costs for name in piece.bytes))
    pieces = [
        replace(p, bytes={name: p.bytes.get(name, 0) for name in memories}) for p in piece_costs
    ]
    kept_words = _kept([one.kept for one in streams], machine)
    operations = flop(described, sizes)
    return Cost(
        kernel=described.name,
        machine=machine.name,
        sizes=dict(named),
        flop=int(evaluate(operations.value, {})),
        pieces=tuple(piece for piece in pieces if piece.runs),
        hertz=machine.hertz,
        peak=_peak(pieces, streams),
        memories=memories,
        exactness=HowExact(
            flop=operations.exactness,
            bytes=Exactness.EXACT,
            cycles=Exactness.EXACT,
            energy=Exactness.ESTIMATE,
        ),
        kept=kept_words,
        occupancy={
            memory.name: kept_words[memory.name] / memory.bytes for memory in machine.memory
        },
        code_bytes=INSTRUCTION * int(sum(piece.instructions for piece in pieces)),
        compile_seconds=0.0,
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
    choices: list[tuple[Way, ...]] = []
    filled: list[Mapping[str, int]] = []
    within, issued_ = 0.0, 0
    operations = flop(described, {})
    exactness = HowExact(
        flop=operations.exactness,
        bytes=Exactness.EXACT,
        cycles=Exactness.ESTIMATE,
        energy=Exactness.ESTIMATE,
    )
    for phase in phases.nests:
        # by the program itself, or by the cycles that a call counts where that costs all options the same
        by_cost = len({option.cost for option in phase.options}) > 1
        ways: list[Way] = []
        most = 0
        for number, option in enumerate(phase.options):
            nest = option.nest
            typical_run = _with_tails(run_of(nest, typical), typical)
            counts, overhead = counted(typical_run), typical_run.overhead
            bytes_are = counts.exact_bytes if overhead.bytes == ZERO else Exactness.ESTIMATE
            exactness = replace(
                exactness,
                flop=least_exact(exactness.flop, counts.exact_counts),
                bytes=least_exact(exactness.bytes, bytes_are),
            )
            nest_totals, cycles = totals(nest, counts.leaves, overhead), formula(nest)
            choice = (len(choices), number) if len(phase.options) > 1 else None
            runs = Compare(">", nest_totals.runs, ZERO)
            call = shortened(Select(runs, cycles.formula, real(0.0)))
            pieces.append(_predicted(nest, nest_totals, {"call": call}, choice))
            ways.append(Way(option.label, option.cost if by_cost else cycles.formula))
            filled.append(counts.kept)
            within = max(within, cycles.within)
            most = max(most, int(evaluate(nest_totals.instructions, dict(typical))))
        issued_ += most
        if len(ways) > 1:
            choices.append(tuple(ways))
    sizes: dict[str, Expr] = {name: ix.const(size) for name, size in _kept(filled, machine).items()}
    return Formulas(
        described,
        Prediction(tuple(pieces), tuple(choices), sizes, {}, exactness),
        operations.value,
        machine,
        users,
        INSTRUCTION * issued_,
        0.0,
        within=within,
    )


def _with_tails(ran: Ran, typical: Mapping[str, int]) -> Ran:
    """Return a nest as it runs at typical sizes, with the largest instances of leaves that do not run there: of tails, where whole tiles
    are all there is. These run at sizes that are a bit less.
    """
    largest, nest, less = dict(ran.largest), ran.nest, 1
    least = {size.name: max(size.min, 1) for size in nest.program.sizes}
    while len(largest) < len(nest.work) and less < max(typical.values(), default=0):
        fewer = {name: max(size - less, least.get(name, 1)) for name, size in typical.items()}
        largest = {**run_of(nest, fewer).largest, **largest}
        less *= 2
    return replace(ran, largest=largest)


def _piece(of: Ran) -> PieceCost:
    nest_totals = totals(of.nest, of.leaves, of.overhead)
    cycles = {name: real(count) for name, count in resources(of).items()}
    return piece_at(_predicted(of.nest, nest_totals, cycles, None), {})


def _predicted(
    nest: LoweredNest, nest_totals: Totals, cycles: Mapping[str, Expr], way: tuple[int, int] | None
) -> Predicted:
    piece = Piece(nest.stage, "whole", (), _microkernel(nest) or None, way)
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


def _kept(filled: Sequence[Mapping[str, int]], machine: Device) -> dict[str, int]:
    return {
        memory.name: max((one.get(memory.name, 0) for one in filled), default=0)
        for memory in machine.memory
    }
