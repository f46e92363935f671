"""The units of a GPU, as far as the order of what they run is concerned, and the memories of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offcut.backends.executor.steps import MAIN
from offcut.core.analysis import analysis, last_stored
from offcut.core.expr import all_loads
from offcut.core.program import LANE, UNROLL, Alloc, For, Program, Stmt, Store, blocks
from offcut.core.text.printer import format_head
from offcut.core.traversal import expressions
from offcut.errors import TargetError
from offcut.polyhedral.sync import Agents, Ends, Unit
from offcut.schedule import Schedule, Staging, each_decision, with_source_line
from offcut.schedule.decisions import At, Bind

SHARED, REGISTERS = "shared", "registers"
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
    """Check that loops are run by units, and windows kept in memories, that a GPU has; and that memories of a block hold windows.

    Raises TargetError with the first one that is not.
    """
    scopes = {buffer.name: buffer.scope for buffer in program.buffers if buffer.scope is not None}
    for stmt, name in _outside_windows(program.body, frozenset()):
        if scopes.get(name) in (SHARED, REGISTERS):
            raise TargetError(
                "compile",
                f"cannot keep {name} in {scopes[name]}",
                at=format_head(stmt),
                because=f"it is not a window there: what {scopes[name]} holds is of one block, and gone when that ends",
                help=(f"at {name} … in {scopes[name]}: a window inside of a loop of its reader",),
            )
    for loop in analysis(program).of(For):
        _check_unit(loop.iter, loop.unit, format_head(loop))
    _check_nesting(program.body, None)
    for window in analysis(program).of(Alloc):
        memory = window.memory or program.buffer(window.buffer).scope
        _check_memory(window.buffer, memory, format_head(window))


def check_words(schedule: Schedule) -> None:
    """Check that what a schedule says of units and memories is of a GPU, also where it leaves no loop and no window.

    Raises TargetError, with the line.
    """
    steps = each_decision(schedule.steps)  # where a window lies is decided by `at`, if it says so
    for step in sorted(steps, key=lambda one: isinstance(one, Staging)):
        with with_source_line(schedule, step):
            match step:
                case Bind():
                    _check_unit(step.axis, step.unit, "")
                case At():
                    _check_memory(step.stage, step.memory, "")
                case Staging():
                    _check_memory(step.name, step.memory, "")


def _check_unit(loop: str, unit: str | None, at: str) -> None:
    if unit not in (None, *_UNITS):
        raise TargetError(
            "compile",
            f"cannot run loop {loop} on {unit}",
            at=at,
            because=f"a GPU has no unit {unit}",
            help=(*(f"@{name}" for name in _UNITS), "without it, one iteration after the other"),
        )


def _check_memory(name: str, memory: str | None, at: str) -> None:
    memories = (SHARED, REGISTERS)
    if memory not in (None, *memories):
        raise TargetError(
            "compile",
            f"cannot keep {name} in {memory}",
            at=at,
            because=f"a block of a GPU has no memory {memory}",
            help=(*(f"in {one}" for one in memories), f"without in {memory}, in {MAIN}"),
        )


_UNITS = (*(unit.name for unit in AGENTS.units), LANE, UNROLL)
_NESTED = ("block", "warpgroup", "warp", LANE)
"""Units of which each stands inside of those before it."""


def _check_nesting(body: Sequence[Stmt], around: For | None) -> None:
    """Check that loops on units stand inside of larger ones, blocks inside of blocks as the axes of a grid.

    around   the innermost loop around that is on a unit
    """
    for stmt in body:
        inner = around
        if isinstance(stmt, For) and stmt.unit in _NESTED:
            if around is not None and around.unit is not None:
                here, outer = _NESTED.index(stmt.unit), _NESTED.index(around.unit)
                if here < outer or (here == outer and stmt.unit != AGENTS.grid):
                    nested = TargetError(
                        "compile",
                        f"cannot run loop {stmt.iter} on {stmt.unit}",
                        at=format_head(stmt),
                        because=f"the loop {around.iter} around it is on {around.unit}, which has no {stmt.unit} of its own",
                        help=(f"{around.iter} on a unit before {stmt.unit}: {', '.join(_NESTED)}",),
                    )
                    nested.stage = last_stored(stmt)
                    raise nested
            inner = stmt
        for block in blocks(stmt):
            _check_nesting(block, inner)


def _outside_windows(body: Sequence[Stmt], windows: frozenset[str]) -> Iterator[tuple[Stmt, str]]:
    """Yield the statements that touch a buffer of which they are in no window, each with its name."""
    for stmt in body:
        names = {load.buffer for expr in expressions(stmt) for load in all_loads(expr)}
        names |= {stmt.buffer} if isinstance(stmt, Store) else set()
        yield from ((stmt, name) for name in sorted(names - windows))
        inner = windows | {stmt.buffer} if isinstance(stmt, Alloc) else windows
        for block in blocks(stmt):
            yield from _outside_windows(block, inner)
