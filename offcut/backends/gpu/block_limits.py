"""The limits of a block, checked for all sizes: registers of warpgroups, windows in memories, threads.

How warpgroups share the registers of a multiprocessor: the one that loads gives some to those that multiply.

A block of G warpgroups that multiply and one that loads begins with equal shares, ``R / (128 * (G + 1))`` a thread, rounded
down to 8. Then the one that loads keeps `LOAD` a thread, and the others take what is left. What is taken beyond what there
is, is waited for, for ever.

Source: PTX ISA, "setmaxnreg": 24 to 256 a thread, multiples of 8.

Checks that a block has room for its windows, and threads for its units, for all sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from offcut.backends.executor.launch_statements import launch_statements
from offcut.backends.gpu.units import REGISTERS, SHARED
from offcut.core.analysis import last_stored
from offcut.core.program import COUNTED_UNITS, Alloc, Program, Stmt, Tile, walk
from offcut.core.text.printer import format_head
from offcut.errors import PartitionError
from offcut.polyhedral.index_maximum import agent_count, window_rooms

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


THREADS = {"warp": 32, "warpgroup": GROUP_THREADS, "load": 32}
"""Threads of each unit that has threads of its own; beside warpgroups, what loads is one of them."""
MOST_THREADS = 1024
"""Threads of a block, at most."""


@dataclass(frozen=True, slots=True)
class Block:
    """What a block of a launch takes at most.

    largest  the largest window in shared memory; None: there is none
    bytes    of shared memory
    threads  None if nothing bounds them
    """

    largest: Alloc | None
    bytes: int
    threads: int | None


def block_of(program: Program, launch: Stmt) -> Block:
    """Return what a block of a launch takes, at the sizes of a program where it is most.

    Raises PartitionError with a window whose extents nothing bounds.
    """
    rooms = window_rooms(program, launch, SHARED, COUNTED_UNITS)
    for room in rooms:
        if room.bytes is None:
            raise PartitionError(
                "compile",
                f"cannot place the windows of {program.name}",
                at=format_head(room.alloc),
                because="no upper bound of its extents is known",
                help=("extents of sizes and loops, which have ranges",),
            )
    largest = max(rooms, key=lambda room: room.bytes or 0).alloc if rooms else None
    loads = any(isinstance(stmt, Tile) and stmt.unit == "load" for stmt in walk((launch,)))
    counts = {unit: agent_count(program, launch, unit) for unit in THREADS}
    counts["load"] = max(counts["load"] or 0, int(loads))
    known = {unit: count for unit, count in counts.items() if count is not None}
    threads = sum(count * THREADS[unit] for unit, count in known.items())
    if known.get("warpgroup"):
        threads = -(-threads // GROUP_THREADS) * GROUP_THREADS
    total = sum(room.bytes or 0 for room in rooms)
    return Block(largest, total, threads if len(known) == len(counts) else None)


def check_room(program: Program, bytes: int) -> None:
    """Check that each launch takes at most `bytes` of shared memory, and `MOST_THREADS` threads, in a block.

    Raises PartitionError with the largest window, or the launch, of the first that takes more.
    """
    for launch in launch_statements(program):
        block = block_of(program, launch.stmt)
        if block.bytes > bytes:
            assert block.largest is not None
            raise PartitionError(
                "compile",
                f"cannot place the windows of {program.name}",
                at=format_head(block.largest),
                because=f"a block has {bytes} bytes of shared memory, and its windows take {block.bytes}",
                help=("fewer in turn: a smaller depth", "smaller tiles"),
            )
        if block.threads is None or block.threads > MOST_THREADS:
            takes = "any number" if block.threads is None else block.threads
            refused = PartitionError(
                "compile",
                f"cannot launch {program.name}",
                at=format_head(launch.stmt),
                because=f"a block has {MOST_THREADS} threads at most, and its warps and load units take {takes}",
                help=("tiles of fewer warps", "a loop over blocks around"),
            )
            refused.stage = last_stored(launch.stmt)
            raise refused
