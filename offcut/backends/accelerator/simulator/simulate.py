"""Runs a stream: values, order and time in one pass over it, or time alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from offcut.backends.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    MicroOp,
    Store,
    Stream,
)
from offcut.backends.accelerator.isa.validation import check_spec, check_stream
from offcut.backends.accelerator.simulator.checks import check, check_arrays, check_steps
from offcut.backends.accelerator.simulator.footprint import footprint
from offcut.backends.accelerator.simulator.machine_state import MachineState, rows
from offcut.backends.accelerator.simulator.micro_op_steps import Array, Words, steps
from offcut.backends.accelerator.simulator.race_detection import AccessHistory, Predecessor
from offcut.backends.accelerator.simulator.run_result import Race, SimulationResult
from offcut.backends.accelerator.simulator.timing import UNITS, Timing
from offcut.backends.accelerator.spec import AcceleratorSpec


def simulate(
    stream: Stream, dram: Mapping[MemorySpace, Array] | None, spec: AcceleratorSpec
) -> SimulationResult:
    """Run a stream.

    dram  by place, the words of main memory, ``(words, …)`` as `spec.words` has them; a store writes to those of outputs.
          None: no values are computed, and arrays are taken to be large enough

    Values are those of the instructions one after the other. Where no race is found, the units that run side by side
    give the same.

    Raises StreamError for an instruction that means nothing on this machine, and where all units wait.
    """
    check_spec("simulate", spec)
    check_stream("simulate", stream)
    if dram is not None:
        check_arrays(dram, spec)
    extents = {MemorySpace.MICRO_OPS: len(stream.micro_ops)}
    if dram is not None:
        extents = {place: len(dram.get(place, ())) for place in MemorySpace} | extents
    chip = None if dram is None else MachineState(spec, dram)
    buffer = np.zeros((spec.words[MemorySpace.MICRO_OPS].depth, 3), np.int64)
    loaded = _table(stream.micro_ops)
    depths = {place: words.depth for place, words in spec.words.items()}
    order, after = AccessHistory(spec), []
    for position, instruction in enumerate(stream.instructions):
        check(position, instruction, spec, extents)
        word_steps = None
        if isinstance(instruction, Gemm | Alu):
            word_steps = steps(instruction, buffer)
            check_steps(position, instruction, word_steps, spec)
        unit = UNITS.index(spec.unit(instruction))
        if isinstance(instruction, Store):
            order.stores(instruction)
        follows = order.next(position, unit, footprint(instruction, word_steps, depths))
        after.append(order.end() if isinstance(instruction, Finish) else follows)
        if isinstance(instruction, Load) and instruction.place is MemorySpace.MICRO_OPS:
            _fetch(instruction, loaded, buffer)
        elif chip is not None:
            chip.run(instruction, word_steps)
    timing = Timing(stream.instructions, spec, after)
    races = _races(stream.instructions, spec, timing, after) if spec.tokens else ()
    return _run(stream, spec, timing, races, tuple(order.unwritten))


def simulate_timing(stream: Stream, spec: AcceleratorSpec) -> SimulationResult:
    """Run a stream in time alone: no values, no check of its words, no races; cycles are those of `simulate`.

    Raises StreamError where all units wait.
    """
    check_spec("timed", spec)
    check_stream("timed", stream)
    if not spec.tokens:
        return simulate(stream, None, spec)
    return _run(stream, spec, Timing(stream.instructions, spec), (), ())


def _run(
    stream: Stream,
    spec: AcceleratorSpec,
    timing: Timing,
    races: tuple[Race, ...],
    unwritten: tuple[tuple[int, MemorySpace, int], ...],
) -> SimulationResult:
    return SimulationResult(
        spec=spec,
        instructions=stream.instructions,
        cycles=timing.cycles,
        events=tuple(timing.events),
        races=races,
        unwritten=unwritten,
        left=timing.left,
    )


def _table(micro_ops: Sequence[MicroOp]) -> Words:
    rows = np.array([(op.dst, op.src, op.wgt) for op in micro_ops], np.int64)
    return rows.reshape(len(micro_ops), 3)


def _fetch(load: Load, loaded: Words, buffer: Words) -> None:
    """Bring micro-ops; those of padding are all 0."""
    top, bottom, left, right = load.pad
    into = buffer[load.sram : load.sram + load.words]
    into[:] = 0
    into = into.reshape(top + load.y + bottom, left + load.x + right, 3)
    if load.y and load.x:
        inside = into[top : top + load.y, left : left + load.x]
        inside[:] = loaded[rows(load.dram, load.y, load.x, load.stride)]


def _races(
    instructions: Sequence[Instruction],
    spec: AcceleratorSpec,
    timing: Timing,
    after: Sequence[tuple[Predecessor, ...]],
) -> tuple[Race, ...]:
    """The instructions that must follow another one, and that no tokens make follow it."""
    by_unit: list[list[int]] = [[], [], []]
    for position, instruction in enumerate(instructions):
        by_unit[UNITS.index(spec.unit(instruction))].append(position)
    return tuple(
        Race(
            earlier=by_unit[one.unit][one.sequence],
            later=position,
            units=(UNITS[one.unit], spec.unit(instructions[position])),
            conflict=one.conflict,
            place=one.place,
            word=one.word,
        )
        for position, earlier in enumerate(after)
        for one in earlier
        if one.sequence >= timing.clocks[position][one.unit]
    )
