"""Checks that the windows of a block fit in its shared memory, for all sizes."""

from __future__ import annotations

from offcut.backends.gpu.units import SHARED
from offcut.core.program import COUNTED_UNITS, Program
from offcut.core.text.printer import format_head
from offcut.errors import PartitionError
from offcut.polyhedral.window_room import window_rooms


def check_room(program: Program, bytes: int) -> None:
    """Check that the windows of each launch take at most `bytes` of shared memory in a block.

    Raises PartitionError with a window whose extents nothing bounds, or with the largest window of the first launch that takes
    more.
    """
    for launch in program.body:
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
        total = sum(room.bytes or 0 for room in rooms)
        if total > bytes:
            largest = max(rooms, key=lambda room: room.bytes or 0)
            raise PartitionError(
                "compile",
                f"cannot place the windows of {program.name}",
                at=format_head(largest.alloc),
                because=f"a block has {bytes} bytes of shared memory, and its windows take {total}",
                help=("fewer in turn: a smaller depth", "smaller tiles"),
            )
