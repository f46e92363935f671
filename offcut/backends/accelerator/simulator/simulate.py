"""Runs a stream: values, order and time in one pass over it, or time alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

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
    Unit,
)
from offcut.backends.accelerator.isa.encoding import check as check_fields
from offcut.backends.accelerator.isa.listing import summary
from offcut.backends.accelerator.isa.validation import check_spec, check_stream
from offcut.backends.accelerator.simulator.machine_state import (
    Array,
    MachineState,
    Steps,
    Words,
    rows,
    steps,
)
from offcut.backends.accelerator.simulator.race_detection import (
    AccessHistory,
    Predecessor,
    footprint,
)
from offcut.backends.accelerator.simulator.run_result import Race, SimulationResult
from offcut.backends.accelerator.simulator.timing import UNITS, Timing
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.errors import StreamError


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
        left=timing.unpopped_tokens,
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


def check(
    position: int,
    instruction: Instruction,
    spec: AcceleratorSpec,
    extents: Mapping[MemorySpace, int],
) -> None:
    """Refuse an instruction that is none of this machine, or that moves words that there are not.

    extents  words of the arrays in main memory, of those of which it is known

    Raises StreamError.
    """
    because = None
    try:
        check_fields(instruction, spec)
    except StreamError as error:
        because = error.because
    because = because or _token_fault(instruction, spec) or _fault(instruction, spec, extents)
    _refuse(position, instruction, because)


def check_steps(
    position: int, instruction: Gemm | Alu, taken: Steps, spec: AcceleratorSpec
) -> None:
    """Refuse an instruction whose micro-ops reach words that there are not.

    Raises StreamError.
    """
    if not taken.dst.size:
        return
    touched = [(MemorySpace.ACCUMULATORS, taken.dst)]
    if isinstance(instruction, Gemm):
        if not instruction.reset:
            touched += [(MemorySpace.INPUTS, taken.src), (MemorySpace.WEIGHTS, taken.wgt)]
    elif instruction.immediate is None:
        touched.append((MemorySpace.ACCUMULATORS, taken.src))
    for place, words in touched:
        because = _outside(place, int(words.min()), int(words.max()) + 1, spec)
        _refuse(position, instruction, because)


def _refuse(position: int, instruction: Instruction, because: str | None) -> None:
    if because:
        raise StreamError(
            "simulate",
            "cannot run an instruction",
            at=f"instruction {position}: {summary(instruction)}",
            because=because,
        )


def check_arrays(dram: Mapping[MemorySpace, Array], spec: AcceleratorSpec) -> None:
    """Refuse arrays that are no words of their place.

    Raises StreamError.
    """
    if not isinstance(dram, Mapping):
        raise StreamError(
            "simulate",
            "cannot take dram",
            because=f"it is of type {type(dram).__name__}, not a dict of arrays by Place",
            help=("dram=None for times without values",),
        )
    for place, array in dram.items():
        if (
            not isinstance(place, MemorySpace)
            or not isinstance(array, np.ndarray)
            or not array.ndim
        ):
            raise StreamError(
                "simulate",
                f"cannot take dram[{place!r}]",
                because=f"it is of type {type(array).__name__}; arrays of words are given by Place",
                help=("{Place.INPUTS: numpy array of words}",),
            )
        words = spec.words[place]
        if array.dtype != words.dtype or array.shape[1:] != words.shape:
            raise StreamError(
                "simulate",
                f"cannot take an array as {place.value}",
                because=f"words of {place.value} are {_form(words.dtype, words.shape)}, got {_form(array.dtype, array.shape[1:])}",
            )


def _form(dtype: Any, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _fault(
    instruction: Instruction, spec: AcceleratorSpec, extents: Mapping[MemorySpace, int]
) -> str | None:
    """What is wrong with an instruction whose fields fit."""
    match instruction:
        case Load(place, sram, dram, y, x, stride):
            return _outside(place, sram, sram + instruction.words, spec) or _beyond(
                place, dram, y, x, stride, extents
            )
        case Store(sram, dram, y, x, stride):
            return _outside(MemorySpace.OUTPUTS, sram, sram + y * x, spec) or _beyond(
                MemorySpace.OUTPUTS, dram, y, x, stride, extents
            )
        case Gemm(begin, end) | Alu(begin=begin, end=end):
            if isinstance(instruction, Alu) and instruction.op.value not in spec.alu:
                return f"{spec.name} has no {instruction.op.value}: it has {', '.join(sorted(spec.alu))}"
            return _outside(MemorySpace.MICRO_OPS, begin, end, spec)
        case Finish():
            return None
        case _:
            assert_never(instruction)


def _token_fault(instruction: Instruction, spec: AcceleratorSpec) -> str | None:
    tokens, unit = instruction.tokens, spec.unit(instruction)
    before, after = tokens.pop_prev or tokens.push_prev, tokens.pop_next or tokens.push_next
    if not spec.tokens and (before or after):
        return f"{spec.name} has no tokens"
    if (unit is Unit.LOAD and before) or (unit is Unit.STORE and after):
        return f"{unit.value} has no unit {'before' if before else 'after'} it"
    return None


def _outside(place: MemorySpace, begin: int, end: int, spec: AcceleratorSpec) -> str | None:
    """What is wrong with words on the chip, `end` exclusive."""
    depth = spec.words[place].depth
    if begin >= end or (begin >= 0 and end <= depth):
        return None
    return f"it touches {place.value}[{begin}:{end}], and there are {depth} words"


def _beyond(
    place: MemorySpace, dram: int, y: int, x: int, stride: int, extents: Mapping[MemorySpace, int]
) -> str | None:
    """What is wrong with rows of words in main memory."""
    if place not in extents or not x or not y:
        return None
    end, extent = dram + (y - 1) * stride + x, extents[place]
    if end <= extent:
        return None
    return f"it touches {place.value}[{dram}:{end}] of main memory, and there are {extent} words"
