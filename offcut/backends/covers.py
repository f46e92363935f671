"""Covers of a text: the microkernel that a name means for a target, and the judge's answer for each tile that says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.core.analysis import analysis
from offcut.core.program import Program, Tile
from offcut.describe.intrinsic import all_declared, declared
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import Question, with_covers

_UNIT = (Question.UNIT,)


def complete_covers(
    program: Program,
    own: Sequence[Microkernel],
    op: str,
    whole: bool | None = True,
) -> Program:
    """Return `program` whose tiles say the whole of the covers that they name.

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
        return () if name in by_name else all_declared(name)

    return with_covers(program, elsewhere, _UNIT, op, help, open=True)


def unknown_covers(program: Program, own: Sequence[Microkernel]) -> Mapping[str, Tile]:
    """Return the names of covers that are neither of `own` nor declared, each with the first tile that says it."""
    by_name = _by_name(own)
    unknown: dict[str, Tile] = {}
    for tile in analysis(program).of(Tile):
        name = tile.microkernel
        if name is not None and name not in by_name and declared(name) is None:
            unknown.setdefault(name, tile)
    return unknown


def unknown_microkernel_error(
    name: str, tile: Tile, own: Sequence[Microkernel], op: str
) -> PartitionError:
    """Return the error that no microkernel has the name that a tile says."""
    known = ", ".join(kernel.name for kernel in own)
    return PartitionError(
        op,
        f"cannot cover a tile by {name}",
        at=f"tile {', '.join(axis.iter for axis in tile.axes)}",
        because="no microkernel of this machine, and no declared instruction, has that name",
        help=(*((known,) if known else ()), f"without @cover({name}) it runs as loops"),
    )


def _by_name(own: Sequence[Microkernel]) -> dict[str, list[Microkernel]]:
    """Return microkernels by the names that covers have of them, those of their starts and steps, too."""
    by_name: dict[str, list[Microkernel]] = {}
    for kernel in own:
        for name in {kernel.name, kernel.reset, kernel.update} - {None}:
            by_name.setdefault(str(name), []).append(kernel)
    return by_name
