"""Covers of tiles: those that the cutter writes, and those of a text, whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from offcut.core.program import Cover, Program, Stmt, Tile
from offcut.core.traversal import rewrite
from offcut.core.traversal import walk_with_parents as paths
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition.judge.coverage import Coverage, Covered, Surroundings, interval
from offcut.partition.judge.judge import cover
from offcut.partition.judge.match import Match
from offcut.partition.judge.question import BEFORE_STAGING, Question, Refusal

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
    for number, kernel in enumerate(microkernels):
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
    wanted = Cover(kernel.name, axes)
    coverage = cover(
        tile, program, kernel, wanted, at=_ANYWHERE, heights=heights, undecided=undecided
    )
    return None if isinstance(coverage, Refusal) else coverage.cover


def with_covers(
    program: Program,
    named: Callable[[str], Microkernel | None],
    undecided: Collection[Question] = (),
) -> Program:
    """Return `program` whose tiles say the whole of the covers that they name.

    named      the microkernel of a name; None of one whose tiles stay as they are
    undecided  questions that are not asked

    Raises PartitionError for a tile that its microkernel does not run, with the first question that it fails.
    """

    def rule(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Tile) or stmt.cover is None:
            return None
        name = stmt.cover.microkernel
        kernel = named(name)
        if kernel is None:
            return None
        answer = cover(stmt, program, kernel, stmt.cover, at=around[id(stmt)], undecided=undecided)
        if isinstance(answer, Coverage) and answer.cover.microkernel != name:
            because = (
                f"the tile is of {answer.cover.microkernel}: it starts its sum, or adds to one"
            )
            answer = Refusal(Question.START, because)
        if isinstance(answer, Refusal):
            raise PartitionError(
                "cover",
                f"cannot cover a tile by {name}",
                at=f"tile {', '.join(axis.iter for axis in stmt.axes)}",
                because=f"{answer.question.value}: {answer}",
            )
        return replace(stmt, cover=answer.cover)

    around = {
        id(stmt): Surroundings.in_path(tuple(outer for outer, _ in path), program)
        for stmt, path in paths(program)
        if isinstance(stmt, Tile)
    }
    return rewrite(program, rule)
