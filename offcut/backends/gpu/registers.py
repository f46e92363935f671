"""How warpgroups share the registers of a multiprocessor: the one that loads gives some to those that multiply.

A block of G warpgroups that multiply and one that loads begins with equal shares, ``R / (128 * (G + 1))`` a thread, rounded
down to 8. Then the one that loads keeps `LOAD` a thread, and the others take what is left. What is taken beyond what there
is, is waited for, for ever.

Source: PTX ISA, "setmaxnreg": 24 to 256 a thread, multiples of 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from offcut.backends.executor.launch_statements import launch_statements
from offcut.backends.gpu.units import REGISTERS
from offcut.core.program import COUNTED_UNITS, Alloc, Program
from offcut.core.text.printer import format_head
from offcut.errors import PartitionError
from offcut.polyhedral.window_room import agent_count, window_rooms

GROUP_THREADS = 128
LOAD, ADDRESSES = 40, 40
"""Registers a thread: of the warpgroup that loads, and of those that multiply beside their sums."""
LEAST, MOST, STEP = 24, 240, 8
"""Registers a thread that a warpgroup may ask for, and what they are multiples of."""


@dataclass(frozen=True, slots=True)
class RegisterSplit:
    """Registers a thread, of `groups` warpgroups that multiply and one that loads.

    begin  of each of them
    load   of the one that loads, from then on
    group  of each of the others
    """

    groups: int
    begin: int
    load: int
    group: int

    def __post_init__(self) -> None:
        for count in (self.load, self.group):
            if not LEAST <= count <= MOST or count % STEP:
                because = f"{count} a thread are not from {LEAST} to {MOST}, multiples of {STEP}"
                raise _split_error(self, because)
        available, total = (self.groups + 1) * self.begin, self.load + self.groups * self.group
        if total > available:
            because = f"{self.load} + {self.groups} * {self.group} = {total} a thread of each, and there are {available}"
            raise _split_error(self, because)


def split_registers(groups: int, registers: int) -> RegisterSplit:
    """Return how a block splits the registers of a multiprocessor.

    groups     warpgroups that multiply
    registers  of a multiprocessor
    """
    begin = min(registers // (GROUP_THREADS * (groups + 1)) // STEP * STEP, MOST)
    group = min(((groups + 1) * begin - LOAD) // groups // STEP * STEP, MOST)
    return RegisterSplit(groups, begin, LOAD, group)


def register_faults(program: Program, registers: int) -> Iterator[tuple[Alloc, str]]:
    """Yield each window of sums that does not fit in the registers of its warpgroups, and why.

    registers  of a multiprocessor
    """
    for launch in launch_statements(program):
        groups = agent_count(program, launch.stmt, "warpgroup") or 0
        rooms = window_rooms(program, launch.stmt, REGISTERS, COUNTED_UNITS) if groups else ()
        for room in rooms:
            room_left = split_registers(groups, registers).group - ADDRESSES
            each = None if room.bytes is None else -(-room.bytes // (4 * groups * GROUP_THREADS))
            if each is None or each > room_left:
                takes = "an unknown number of" if each is None else each
                because = f"it takes {takes} registers of a thread, and {groups} warpgroups have {room_left} each for sums"
                yield room.alloc, because


def check_registers(program: Program, registers: int) -> None:
    """Check that the sums of the warpgroups of each launch fit in their registers.

    registers  of a multiprocessor

    Raises PartitionError for a window of sums that does not.
    """
    for window, because in register_faults(program, registers):
        raise PartitionError(
            "compile",
            f"cannot keep the sums of {program.name} in registers",
            at=format_head(window),
            because=because,
            help=("smaller tiles", "more warpgroups"),
        )


def _split_error(split: RegisterSplit, because: str) -> PartitionError:
    return PartitionError(
        "compile", f"cannot split the registers of {split.groups + 1} warpgroups", because=because
    )


__all__ = [
    "GROUP_THREADS",
    "RegisterSplit",
    "check_registers",
    "register_faults",
    "split_registers",
]
