"""The words that the two loops around micro-ops reach, in the order in which the machine takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import Alu, Gemm

Array = NDArray[Any]
Words = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """Words of each step of an instruction; shapes are ``(outer, inner, micro-ops)``."""

    dst: Words
    src: Words
    wgt: Words


def steps(instruction: Gemm | Alu, buffer: Words) -> Steps:
    """The steps of an instruction, with what the buffer of micro-ops holds.

    buffer  dst, src and wgt of each word, ``(words, 3)``
    """
    ops = buffer[instruction.begin : instruction.end]
    outer, inner = instruction.outer, instruction.inner
    i = np.arange(outer.extent, dtype=np.int64)[:, None, None]
    j = np.arange(inner.extent, dtype=np.int64)[None, :, None]
    return Steps(
        dst=ops[:, 0] + (i * outer.dst + j * inner.dst),
        src=ops[:, 1] + (i * outer.src + j * inner.src),
        wgt=ops[:, 2] + (i * outer.wgt + j * inner.wgt),
    )
