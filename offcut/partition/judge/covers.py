"""Covers of tiles: those that the cutter writes, and those of a text, whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from offcut.core.analysis import analysis, last_stored, stored_arrays
from offcut.core.program import Cover, Program, Stmt, Tile
from offcut.core.traversal import rewrite
from offcut.core.traversal import walk_with_parents as paths
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition.judge.coverage import Coverage, Covered, Surroundings, interval
from offcut.partition.judge.judge import cover
from offcut.partition.judge.match import BEFORE_STAGING, Match, Question, Refusal

_MOST_NOTES = 8  # of one microkernel
_ANYWHERE = Surroundings((), lambda expr: interval(expr, {}))


def first_cover(
    tile: Tile,
    program: Program,
    microkernels: Sequence[Microkernel],
    heights: Mapping[str, tuple[int, int]],
) -> Cover | None:
    """Return the cover of a tile that was cut by one of `microkernels`; None where there is none.

    The statement that comes first is covered, in the preferred way before others, by the microkernel that
    comes first. Memories, layouts and units are not decided yet.
    """
    best: tuple[tuple[int, bool, int], Cover] | None = None
    dtypes = {program.buffer(name).dtype for name in stored_arrays(tile.body)}
    for number, kernel in enumerate(microkernels):
        if kernel.computes.dtype not in dtypes:
            continue
        coverage = cover(
            tile, program, kernel, at=_ANYWHERE, heights=heights, undecided=BEFORE_STAGING
        )
        if isinstance(coverage, Refusal):
            continue
        parts = enumerate(coverage.parts)
        place, one = next((n, part) for n, part in parts if isinstance(part, Covered))
        key = place, one.rank > 0, number
        if best is None or key < best[0]:
            best = key, coverage.cover
    return None if best is None else best[1]


def match_cover(
    tile: Tile, program: Program, match: Match, heights: Mapping[str, tuple[int, int]]
) -> Cover | None:
    """Return the cover of a tile that was cut for `match`; None where the microkernel does not run it so."""
    kernel, undecided = match.microkernel, BEFORE_STAGING
    axes = tuple((name, iterator) for name, iterator in match.axes if iterator is not None)
    request = Cover(kernel.name, axes)
    coverage = cover(
        tile, program, kernel, request, at=_ANYWHERE, heights=heights, undecided=undecided
    )
    return None if isinstance(coverage, Refusal) else coverage.cover


def uncovered_notes(program: Program, microkernels: Sequence[Microkernel]) -> tuple[str, ...]:
    """Return why tiles that were cut are not covered by `microkernels`: a line for each tile and reason, 8 for one microkernel.

    The reason is the first question of the judge that fails, without those that are decided later.
    """
    tiles = analysis(program).of(Tile)
    notes: list[str] = []
    for kernel in microkernels:
        names = {kernel.name, kernel.reset, kernel.update}
        reasons: dict[str, None] = {}
        for tile in tiles:
            if tile.microkernel in names:
                continue
            answer = cover(tile, program, kernel, undecided=BEFORE_STAGING)
            because = f"{tile.microkernel} comes first"
            if isinstance(answer, Refusal):
                because = f"{answer.question.value}: {answer}"
            axes = ", ".join(axis.iter for axis in tile.axes)
            reasons[f"tile {axes}: {kernel.name} does not cover it: {because}"] = None
        if not tiles:
            reasons[f"{kernel.name} covers nothing: no loop is cut into tiles"] = None
        notes += list(reasons)[:_MOST_NOTES]
        if len(reasons) > _MOST_NOTES:
            notes.append(f"{kernel.name} does not cover {len(reasons) - _MOST_NOTES} more")
    return tuple(notes)


def with_covers(
    program: Program,
    find_kernels: Callable[[str], Microkernel | Sequence[Microkernel] | None],
    undecided: Collection[Question] = (),
    op: str = "cover",
    help: tuple[str, ...] = (),
    open: bool = False,
) -> Program:
    """Return `program` whose tiles say the whole of the covers that they name.

    find_kernels  the microkernel of a name, or several, one of which runs a tile that says it; None of one whose tiles stay
                  as they are
    undecided     questions that are not asked
    op, help      of the error
    open          whether memories and layouts that the text does not state are not decided yet

    Raises PartitionError for a tile that its microkernel does not run, with the first question that it fails.
    """

    def rule(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Tile) or stmt.cover is None:
            return None
        name = stmt.cover.microkernel
        kernels = find_kernels(name) or ()
        refusals: list[Refusal] = []
        for kernel in (kernels,) if isinstance(kernels, Microkernel) else kernels:
            at = around[id(stmt)]
            answer = cover(stmt, program, kernel, stmt.cover, at=at, undecided=undecided)
            if isinstance(answer, Coverage) and answer.cover.microkernel == name:
                return replace(stmt, cover=answer.cover)
            if isinstance(answer, Coverage):
                of = answer.cover.microkernel
                because = f"the tile is of {of}: it starts its sum, or adds to one"
                answer = Refusal(Question.START, because)
            refusals.append(answer)
        if not refusals:
            return None
        refused = PartitionError(
            op,
            f"cannot cover a tile by {name}",
            at=f"tile {', '.join(axis.iter for axis in stmt.axes)}",
            because=f"{refusals[0].question.value}: {refusals[0]}",
            help=help,
        )
        refused.stage = last_stored(stmt)
        raise refused

    around = {
        id(stmt): Surroundings.in_path(path, program, open)
        for stmt, path in paths(program)
        if isinstance(stmt, Tile)
    }
    return rewrite(program, rule)
