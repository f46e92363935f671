"""The limits of a block, and a check of what a launch asks of them at given sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.backends.executor.faults import fault
from offcut.backends.gpu.registers import register_faults
from offcut.backends.gpu.room import MOST_THREADS, block_of
from offcut.core.program import Program, Size, Stmt
from offcut.core.text.printer import format_head


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a block: bytes of shared memory, threads, and registers of 32 bits."""

    shared_bytes: int = 232_448
    threads: int = MOST_THREADS
    registers: int = 65_536


def check_limits(
    program: Program, launch: Sequence[Stmt], sizes: Mapping[str, int], limits: Limits
) -> None:
    """Check that each block of a launch has room for its windows, and threads for its units, at given sizes.

    launch  its statements, one after the other

    Raises ExecutionFault if one has not.
    """
    for sums, because in register_faults(program, limits.registers):
        raise fault(program.name, "limits", at=format_head(sums), because=because)
    fixed = tuple(Size(size.name, sizes[size.name], sizes[size.name]) for size in program.sizes)
    for stmt in launch:
        block = block_of(replace(program, sizes=fixed), stmt)
        if block.bytes > limits.shared_bytes:
            assert block.largest is not None
            because = f"its windows take {block.bytes} bytes of shared memory, and there are {limits.shared_bytes}"
            depth = block.largest.depth
            help = f"a depth below {depth}" if depth > 1 else "smaller tiles"
            at = format_head(block.largest)
            raise fault(program.name, "room", at=at, because=because, help=(help,))
        if block.threads is not None and block.threads > limits.threads:
            because = f"it has {block.threads} threads, and a block {limits.threads} at most"
            raise fault(program.name, "limits", at=format_head(stmt), because=because)
