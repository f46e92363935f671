"""The units of a GPU, as far as the order of what they run is concerned, and the memories of a block."""

from __future__ import annotations

from offcut.core.analysis import analysis
from offcut.core.program import LANE, UNROLL, Alloc, For, Program
from offcut.core.text.printer import format_head
from offcut.errors import TargetError
from offcut.polyhedral.sync import Agents, Ends, Unit

MAIN, SHARED, REGISTERS = "main memory", "shared", "registers"
ASYNC_SHARED = "async_shared"
"""The fence behind ordinary stores to shared memory, which bulk copies and products by descriptor read beside the caches."""

AGENTS = Agents(
    (
        Unit("load", ends=Ends.TOKEN, fence=ASYNC_SHARED),
        Unit("warpgroup", ends=Ends.GROUP, lanes=True, in_order=True, fence=ASYNC_SHARED),
        Unit("warp", ends=Ends.GROUP),
        Unit("store", ends=Ends.GROUP, engine=True, fence=ASYNC_SHARED),
        Unit("block"),
    ),
    default="block",
    pitched=True,
    grid="block",
    own=frozenset({REGISTERS}),
)
"""A warp runs in step, and its copies in the background (cp.async) end when it has waited for their group. Four warps of a
warpgroup are lanes that meet. The load unit is a thread of its own, which arrives at a barrier with what it has copied."""


def check_units(program: Program) -> None:
    """Check that loops are run by units, and windows kept in memories, that a GPU has.

    Raises TargetError with the first one that is not.
    """
    units, memories = (*(unit.name for unit in AGENTS.units), LANE, UNROLL), (SHARED, REGISTERS)
    for loop in analysis(program).of(For):
        if loop.unit is not None and loop.unit not in units:
            raise TargetError(
                "compile",
                f"cannot run loop {loop.iter} on {loop.unit}",
                at=format_head(loop),
                because=f"a GPU has no unit {loop.unit}",
                help=(*(f"@{name}" for name in units), "without it, one iteration after the other"),
            )
    for window in analysis(program).of(Alloc):
        memory = window.memory or program.buffer(window.buffer).scope
        if memory not in (None, *memories):
            raise TargetError(
                "compile",
                f"cannot keep {window.buffer} in {memory}",
                at=format_head(window),
                because=f"a block of a GPU has no memory {memory}",
                help=(*(f"in {name}" for name in memories), f"without in {memory}, in {MAIN}"),
            )
