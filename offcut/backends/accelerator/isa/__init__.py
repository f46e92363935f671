"""The instruction set of a machine of queues: records, their binary form, a listing."""

from offcut.backends.accelerator.isa.instructions import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    MemorySpace,
    MicroOp,
    Store,
    Stream,
    Tokens,
    Unit,
)

__all__ = [
    "Alu",
    "AluOp",
    "Finish",
    "Gemm",
    "Instruction",
    "Load",
    "Loop",
    "MemorySpace",
    "MicroOp",
    "Store",
    "Stream",
    "Tokens",
    "Unit",
]
