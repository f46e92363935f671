"""What ptxas says of the kernels that it made: their registers, and what makes code slow.

A spill, a ``setmaxnreg`` that is ignored and products of a warpgroup that run one after the other are no faults of values, and
ptxas only notes them. Here they are errors: nobody reads a log, and the code would be several times slower.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SLOW = {
    "C7508": "setmaxnreg is ignored",
    "C7510": "products of a warpgroup run one after the other, because of a function call",
    "C7511": "products of a warpgroup run one after the other, for want of registers",
    "C7512": "products of a warpgroup run one after the other, as the function is not as they need it",
}
"""Notes of ptxas that mean slow code, by their number."""
REGISTERS = 65536
"""Registers of a multiprocessor, which is what a block can have."""
_GRANULE = 8
"""Registers of a thread are a multiple of this."""

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_NOTE = re.compile(r"\((C\d+)\)")


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """What a kernel takes: registers of a thread, and bytes of its stack that are written and read as spills."""

    name: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def kernel_usages(log: str) -> tuple[KernelUsage, ...]:
    """Return what each kernel takes, in the order of the log."""
    usages: list[KernelUsage] = []
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name, stack = entry[1], (0, 0, 0)
        elif spills := _SPILLS.search(line):
            stack = int(spills[1]), int(spills[2]), int(spills[3])
        elif (used := _USED.search(line)) and name:
            usages.append(KernelUsage(name, int(used[1]), *stack))
            name = ""
    return tuple(usages)


def slow_line(log: str, threads: dict[str, int]) -> tuple[str, str] | None:
    """Return the first line of a log that means slow code or none that starts, and what it means; None if there is none.

    threads  of a block, by kernel
    """
    for line in log.splitlines():
        note = _NOTE.search(line)
        if note is not None and note[1] in SLOW:
            return line.strip(), SLOW[note[1]]
    for usage in kernel_usages(log):
        if usage.spill_store_bytes or usage.spill_load_bytes:
            line = f"{usage.name}: {usage.spill_store_bytes} bytes spill stores, {usage.spill_load_bytes} bytes spill loads"
            return line, f"values do not fit in its {usage.registers} registers a thread"
        own = -(-usage.registers // _GRANULE) * _GRANULE
        count = threads.get(usage.name, 0)
        if own * count > REGISTERS:
            line = f"{usage.name}: {usage.registers} registers a thread"
            return line, f"{own} for each of {count} threads are more than the {REGISTERS} of a multiprocessor"  # fmt: skip
    return None
