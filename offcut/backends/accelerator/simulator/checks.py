"""Whether instructions mean something: fields that fit, words that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import numpy as np

from offcut.backends.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    Store,
    Unit,
)
from offcut.backends.accelerator.isa.encoding import check as check_fields
from offcut.backends.accelerator.isa.listing import summary
from offcut.backends.accelerator.simulator.micro_op_steps import Array, Steps
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.errors import StreamError


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
    position: int, instruction: Gemm | Alu, word_steps: Steps, spec: AcceleratorSpec
) -> None:
    """Refuse an instruction whose micro-ops reach words that there are not.

    Raises StreamError.
    """
    if not word_steps.dst.size:
        return
    touched = [(MemorySpace.ACCUMULATORS, word_steps.dst)]
    if isinstance(instruction, Gemm):
        if not instruction.reset:
            touched += [(MemorySpace.INPUTS, word_steps.src), (MemorySpace.WEIGHTS, word_steps.wgt)]
    elif instruction.immediate is None:
        touched.append((MemorySpace.ACCUMULATORS, word_steps.src))
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
