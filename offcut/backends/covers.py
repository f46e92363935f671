"""Covers of a program: find the microkernel that a tile names, and check that it runs the tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from offcut.core.accesses import last_stored
from offcut.core.analysis import analysis
from offcut.core.program import Program, Tile, walk
from offcut.describe.intrinsic import declarations, find_instruction
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import Question, Refusal, cover, with_covers

_UNIT = (Question.UNIT,)
_BUT_MEMORY = frozenset(Question) - {Question.TERM, Question.MEMORY}


def complete_covers(
    program: Program,
    own: Sequence[Microkernel],
    op: str,
    whole: bool | None = True,
) -> Program:
    """Return `program` with the covers of its tiles completed: axes and operands.

    own    the microkernels of a target: a name is one of these first, then an instruction that was declared
    whole  whether memories, layouts and units are decided in this text; False: where it states them; None: nothing is asked
           of `own`

    A declared instruction is asked what the text states: who does not have it runs its tiles as loops. Tiles that name neither stay as they are.

    Raises PartitionError, in the name of `op`, for a tile that its microkernel does not run.
    """
    if not any(tile.cover for tile in analysis(program).of(Tile)):
        return program
    by_name = _by_name(own)
    help = ("without @cover(…) it runs as loops",)
    if whole is not None:
        program = with_covers(program, by_name.get, () if whole else _UNIT, op, help, not whole)

    def elsewhere(name: str) -> Sequence[Microkernel]:
        return () if name in by_name else declarations(name)

    return with_covers(program, elsewhere, _UNIT, op, help, open=True)


def unstaged_covers(
    program: Program, kernels_of: Callable[[Tile], Sequence[Microkernel]]
) -> Mapping[int, str]:
    """Return why tiles run without the microkernel that they name, by position: an operand lies in no memory that it accepts, and
    nothing in the text stages it.

    kernels_of  the microkernels of the name of a tile
    """
    reasons: dict[int, str] = {}
    for position, stmt in enumerate(walk(program.body)):
        if not isinstance(stmt, Tile) or stmt.microkernel is None:
            continue
        with_memories = [
            kernel
            for kernel in kernels_of(stmt)
            if any(place.memories for place in kernel.operands.values())
        ]
        verdicts = [
            cover(stmt, program, kernel, stmt.cover, undecided=_BUT_MEMORY)
            for kernel in with_memories
        ]
        refusals = [one for one in verdicts if isinstance(one, Refusal)]
        memory = next((one for one in refusals if one.question is Question.MEMORY), None)
        if memory is not None and len(refusals) == len(verdicts):
            reasons[position] = f"{memory}, and no decision stages it"
    return reasons


def unknown_covers(program: Program, own: Sequence[Microkernel]) -> Mapping[str, Tile]:
    """Return the names of covers that are neither of `own` nor declared, each with the first tile that says it."""
    by_name = _by_name(own)
    unknown: dict[str, Tile] = {}
    for tile in analysis(program).of(Tile):
        name = tile.microkernel
        if name is not None and name not in by_name and find_instruction(name) is None:
            unknown.setdefault(name, tile)
    return unknown


def unknown_microkernel_error(
    name: str, tile: Tile, own: Sequence[Microkernel], op: str
) -> PartitionError:
    """Return the error for a tile that names an unknown microkernel."""
    names = ", ".join(kernel.name for kernel in own)
    refused = PartitionError(
        op,
        f"cannot cover a tile by {name}",
        at=f"tile {', '.join(axis.iter for axis in tile.axes)}",
        because="no microkernel of this machine, and no declared instruction, has that name",
        help=(*((names,) if names else ()), f"without @cover({name}) it runs as loops"),
    )
    refused.stage = last_stored(tile)
    return refused


def _by_name(own: Sequence[Microkernel]) -> dict[str, list[Microkernel]]:
    """Return microkernels by all names that covers may use, those of reset and update included."""
    by_name: dict[str, list[Microkernel]] = {}
    for kernel in own:
        for name in {kernel.name, kernel.reset, kernel.update} - {None}:
            by_name.setdefault(str(name), []).append(kernel)
    return by_name
