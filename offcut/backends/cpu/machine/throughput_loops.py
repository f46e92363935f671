"""Loops of one instruction on registers, as LLVM IR: how often a processor issues it, and nothing else.

Every loop is a function ``void loop(ptr data, i64 count, ptr kept)``: `count` iterations, at least one, on
memory that starts with a vector; what it accumulates ends in the `64 * CHAINS` bytes at `store_accumulators`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from offcut.backends.cpu.machine.isa import Isa

NUM_CHAINS = 12
"""Independent accumulators: more than latency times instructions per cycle on any known core."""

PARAMETERS = "ptr, i64, ptr"
"""Of a loop."""


def multiply_add(dtype: str, isa: Isa) -> str:
    """A loop of `NUM_CHAINS` multiply–adds of vectors of `dtype`, float32 or float64."""
    element = "float" if dtype == "float32" else "double"
    vector = f"<{isa.lanes(dtype)} x {element}>"
    if not isa.fma:
        step = f"%p{{k}} = fmul {vector} %old{{k}}, %b\n%new{{k}} = fadd {vector} %p{{k}}, %b"
        return instruction_loop(vector, "", step)
    function = f"@llvm.fma.v{isa.lanes(dtype)}f{32 if dtype == 'float32' else 64}"
    step = f"%new{{k}} = call {vector} {function}({vector} %b, {vector} %b, {vector} %old{{k}})"
    return instruction_loop(
        vector, f"declare {vector} {function}({vector}, {vector}, {vector})", step
    )


def instruction_loop(vector: str, declared: str, step: str, operands: Sequence[str] = ()) -> str:
    """A loop of `NUM_CHAINS` independent instructions, each on what it gave the time before.

    step       computes ``%new{k}`` from ``%old{k}``, both of type `vector`, and ``%b`` from memory
    operands   what is made of ``%b`` before the loop
    """
    phis = [
        f"%old{k} = phi {vector} [ zeroinitializer, %entry ], [ %new{k}, %again ]"
        for k in range(NUM_CHAINS)
    ]
    lines = [step.format(k=k) for k in range(NUM_CHAINS)]
    before = [f"%b = load {vector}, ptr %data, align 64", *operands]
    return (
        f"{declared}\n{counted_loop(phis, lines, store_accumulators(vector, NUM_CHAINS), before)}"
    )


def store_accumulators(vector: str, count: int) -> Iterator[str]:
    """Store every accumulator, so that nothing is dead."""
    for k in range(count):
        yield f"%place{k} = getelementptr i8, ptr %kept, i64 {64 * k}"
        yield f"store {vector} %new{k}, ptr %place{k}, align 16"


def counted_loop(
    phis: Sequence[str], body: Sequence[str], after: Iterable[str], before: Sequence[str] = ()
) -> str:
    """The function `loop`: `body` `count` times, then `after`."""
    lines = [
        "define void @loop(ptr %data, i64 %count, ptr %kept) {",
        "entry:",
        *before,
        "br label %again",
        "again:",
        "%left = phi i64 [ %count, %entry ], [ %less, %again ]",
        *phis,
        *body,
        "%less = sub i64 %left, 1",
        "%more = icmp ne i64 %less, 0",
        "br i1 %more, label %again, label %end",
        "end:",
        *after,
        "ret void",
        "}",
    ]
    return "\n".join(lines)
