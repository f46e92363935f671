"""Covers of a program: which microkernel computes a stage, which one a tile names, and whether it runs the tile.

Stages that microkernels compute: which does, along which axes, and what has to be staged for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from offcut.core import index as ix
from offcut.core.analysis import analysis, last_stored
from offcut.core.expr import Load, variables
from offcut.core.expr import walk as walk_expr
from offcut.core.program import Program, Tile, walk
from offcut.describe.computation import Computation, Stage
from offcut.describe.intrinsic import declarations, find_instruction
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Compute
from offcut.errors import PartitionError
from offcut.partition import Match, Question, Refusal, cover, factor_copies, with_covers
from offcut.partition import matches as matches_of
from offcut.schedule import Staging, value_staging

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


FULL = 64
"""Instances along an axis that are as good as any number of them."""


@dataclass(frozen=True)
class Covered:
    """A stage that a microkernel computes."""

    stage: Stage
    kernel: Microkernel
    match: Match

    @property
    def axes(self) -> dict[str, str]:
        """Return the axes of the result that its tiles go along, each with the one of the microkernel."""
        results = {axis.name for axis in self.stage.axes}
        return {
            own: theirs for theirs, own in self.match.axes if own is not None and own in results
        }

    @property
    def terms(self) -> tuple[list[str], list[str]]:
        """Return the axes that the stage sums over: those around a tile, and those that the microkernel sums over."""
        names = [axis.name for axis in self.stage.reduce_axes]
        own = {axis for _, axis in self.match.axes}
        return [name for name in names if name not in own], [name for name in names if name in own]

    def largest(self, axis: str) -> int:
        """Return the largest extent of a tile along an axis of the stage."""
        return max(tile.extents[self._place(axis)] for tile in self.kernel.tiles)

    def multiple(self, axis: str) -> int:
        """Return the number that the extents of the microkernel's tiles along an axis of the stage are multiples of."""
        return self.kernel.extents_of(self.axes[axis]).multiple_of

    def _place(self, axis: str) -> int:
        """Return which axis of the microkernel's result a tile goes along there."""
        names = [one.name for one in definition_of(self.kernel).axes]
        return names.index(self.axes[axis])


def covered_stages(computation: Computation, kernels: Sequence[Microkernel]) -> tuple[Covered, ...]:
    """Return the stages that a microkernel computes."""
    stages = (stage for group in computation.groups for stage in group)
    return tuple(one for stage in stages if (one := cover_stage(stage, kernels)) is not None)


def cover_stage(stage: Stage, kernels: Sequence[Microkernel]) -> Covered | None:
    """Return a stage with the first microkernel that computes it, copies aside: whether its tiles fit is asked of each later.

    Of several ways, tiles go along the last axis of the result if they can, and hold as much as they can.
    """
    axes = tuple(axis.name for axis in stage.axes)
    terms = tuple(axis.name for axis in stage.reduce_axes)
    for kernel in kernels:
        if kernel.reducer is None and isinstance(definition_of(kernel).body, Load):
            continue
        matches = matches_of(kernel, stage.value, stage.reducer, axes, terms)
        ways = [Covered(stage, kernel, match) for match in matches]
        ways = [way for way in ways if kernel.accumulate != "fresh" or not way.terms[0]]
        if ways:
            return max(ways, key=_preference)
    return None


def staged_operands(computation: Computation, kernels: Sequence[Microkernel]) -> Iterator[Staging]:
    """Yield the stagings of what products compute of an operand, where a microkernel computes what then is left.

    Of ``where(0 <= i + r - 1 < n, X[i + r - 1, c], 0) * W[r, c]`` it is the first factor, over the elements that are read.
    """
    names = set[str]()
    for position, (lead, *_) in enumerate(computation.groups):
        if cover_stage(lead, kernels) is not None:
            continue
        copies = factor_copies(computation, position, narrow=True)
        body = reduce(lambda body, copy: copy.read_in(body), copies, lead.body)
        if copies and cover_stage(replace(lead, body=body), kernels) is not None:
            for copy in copies:
                name = f"{copy.name}_{lead.buffer}" if copy.name in names else copy.name
                names.add(name)
                yield value_staging(lead.buffer, replace(copy, name=name))


def _preference(way: Covered) -> tuple[bool, int]:
    """Return whether tiles go along the last axis of the result, and how many instances a tile has, at most `FULL` along an axis."""
    extents = {axis.name: ix.literal_value(axis.extent) for axis in way.stage.axes}
    extents |= {axis.name: ix.literal_value(axis.extent) for axis in way.stage.reduce_axes}
    along = [axis for _, axis in way.match.axes if axis is not None]
    instances = (min(extents[axis] or FULL, FULL) for axis in along)
    return any(axis.name in along for axis in way.stage.axes[-1:]), prod(instances)


def definition_of(kernel: Microkernel) -> Compute:
    """Return what a microkernel computes."""
    definition = kernel.computes.definition
    assert definition is not None  # a microkernel without one is refused
    return definition


def index_dependences(stage: Stage, buffer: str) -> frozenset[str]:
    """Return what the elements that a stage reads of an array depend on."""
    loads = (n for n in walk_expr(stage.value) if isinstance(n, Load) and n.buffer == buffer)
    return frozenset(name for load in loads for part in load.index for name in variables(part))


def memory_of(kernel: Microkernel, operand: str) -> str | None:
    """Return the memory that an operand is to lie in; None: any."""
    place = kernel.operands.get(operand)
    return place.memories[0] if place is not None and place.memories else None


def is_staged(one: Covered) -> bool:
    """Return whether an operand, or the result, is to lie in a memory of its own."""
    names = [name for name, _ in one.match.operands]
    return any(memory_of(one.kernel, n) for n in (*names, one.kernel.computes.name))
