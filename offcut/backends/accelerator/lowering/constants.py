"""Constants of operations: immediates, or words of accumulators that are made for them."""

from __future__ import annotations

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.lowering.instruction_selection import Copy, Does, Operation
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.costmodel.word_geometry import instructions


def immediate_bits(spec: AcceleratorSpec) -> int:
    """Bits of an immediate, in two's complement."""
    depths = {place.value: words.depth for place, words in spec.words.items()}
    return dict(one for part in instructions(depths)["alu"] for one in part)["immediate"]


def is_immediate(value: int, spec: AcceleratorSpec) -> bool:
    """Whether an instruction holds a constant."""
    half = 1 << immediate_bits(spec) - 1
    return -half <= value < half


def non_immediate_constant(does: Does, spec: AcceleratorSpec) -> int | None:
    """A constant of what a leaf does that is no immediate; None where there is none."""
    match does:
        case Copy(place=MemorySpace.ACCUMULATORS, fill=fill):
            found = [fill]
        case Operation(recipe):
            found = [other for _, other in recipe.steps if isinstance(other, int)]
        case _:
            found = []
    return next((one for one in found if not is_immediate(one, spec)), None)
