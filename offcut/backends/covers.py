"""Covers of a text: the microkernel that a name means for a target, and the judge's answer for each tile that says it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from offcut.core.analysis import analysis
from offcut.core.program import Program, Tile
from offcut.describe.intrinsic import declared
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import Question, with_covers


def judged_covers(
    program: Program,
    own: Sequence[Microkernel],
    op: str,
    undecided: Collection[Question] | None = (),
) -> Program:
    """Return `program` whose tiles say the whole of the covers that they name.

    own        the microkernels of a target: a name is one of these first, then an instruction that was declared
    undecided  questions that are not asked of `own`; None: nothing is. Of a declared instruction, everything is

    Tiles that name neither stay as they are.

    Raises PartitionError, in the name of `op`, for a tile that its microkernel does not run.
    """
    if not any(tile.cover for tile in analysis(program).of(Tile)):
        return program
    by_name = _by_name(own)
    help = ("without @cover(…) it runs as loops",)
    if undecided is not None:
        program = with_covers(program, by_name.get, undecided, op, help)

    def elsewhere(name: str) -> Microkernel | None:
        return None if name in by_name else declared(name)

    return with_covers(program, elsewhere, (), op, help)


def unknown_covers(program: Program, own: Sequence[Microkernel]) -> Mapping[str, Tile]:
    """Return the names of covers that are neither of `own` nor declared, each with the first tile that says it."""
    by_name = _by_name(own)
    unknown: dict[str, Tile] = {}
    for tile in analysis(program).of(Tile):
        name = tile.microkernel
        if name is not None and name not in by_name and declared(name) is None:
            unknown.setdefault(name, tile)
    return unknown


def no_microkernel(name: str, tile: Tile, own: Sequence[Microkernel], op: str) -> PartitionError:
    """Return the error that no microkernel has the name that a tile says."""
    known = ", ".join(kernel.name for kernel in own)
    return PartitionError(
        op,
        f"cannot cover a tile by {name}",
        at=f"tile {', '.join(axis.iter for axis in tile.axes)}",
        because="no microkernel of this machine, and no declared instruction, has that name",
        help=(*((known,) if known else ()), f"without @cover({name}) it runs as loops"),
    )


def _by_name(own: Sequence[Microkernel]) -> dict[str, Microkernel]:
    """Return microkernels by the names that covers have of them, those of their starts and steps, too."""
    return {
        name: kernel
        for kernel in reversed(own)
        for name in (kernel.update, kernel.reset, kernel.name)
        if name is not None
    }
