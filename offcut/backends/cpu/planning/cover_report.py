"""What becomes of the tiles of a program: which run by the microkernel that they name, and why not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from offcut.backends.cpu.lowering.call_layout import runs_as_loops
from offcut.backends.cpu.lowering.lower import Lowering, is_scalar_code
from offcut.backends.cpu.machine.isa import Host, Isa
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.microkernels.family import Family
from offcut.backends.cpu.planning.lanes import mark_row_reductions
from offcut.core import index as ix
from offcut.core.analysis import analysis, stored_arrays
from offcut.core.plain_loops import tile_to_loops
from offcut.core.program import Option, Program, Stmt, Store, Tile, walk
from offcut.errors import PartitionError
from offcut.partition import Refusal


@dataclass(frozen=True)
class CoverReport:
    """What became of the tiles of a cut program, each by its position among the statements.

    refused  why the microkernel that a tile names does not compute it
    plain    why a tile that names none has none
    judged   of what is refused, the question of the judge that fails
    """

    refused: Mapping[int, str]
    plain: Mapping[int, str]
    judged: Mapping[int, Refusal] = field(default_factory=dict)


class _CoverChecker(Lowering):
    """A walk of the lowering that writes no tile, and says which have no microkernel.

    refused   why a tile is not computed by the microkernel that it names, or by any where it names
              none, by the tile's identity
    """

    def __init__(self, program: Program, isa: Isa, families: Sequence[Family]) -> None:
        super().__init__(program, isa, families, ix.const(0), 1)
        self.refused: dict[int, Refusal] = {}
        self.sizes(self.f)
        self.buffers()
        self.block(program.body)

    def statement(self, stmt: Stmt) -> None:
        """What holds tiles, with what it says of them."""
        if not is_scalar_code(stmt):
            super().statement(stmt)

    def choose(self, options: Sequence[Option]) -> None:
        """Every option."""
        for option in options:
            self.block(option.body)

    def tile(self, tile: Tile) -> None:
        """Who computes a tile, or those inside it."""
        cover = self.cover(tile)
        if isinstance(cover, Refusal):
            self.refused.setdefault(id(tile), cover)
        if runs_as_loops(tile):
            self.block(tile_to_loops(tile))


def report_covers(program: Program, host: Host, reassociate: bool = True) -> CoverReport:
    """Return which tiles of a cut program run without a microkernel in a kernel of it, and why.

    They are judged on the way that the lowering takes, so it is what a kernel does. Positions are
    parents first.
    """
    statements = analysis(program).statements
    refused, plain, judged = dict[int, str](), dict[int, str](), dict[int, Refusal]()
    if any(isinstance(stmt, Tile) for stmt in statements):
        run = mark_row_reductions(program, reassociate)
        lent = families(host)
        judging = _CoverChecker(run, host.isa, lent)
        mixed = {one.microkernel.name for one in lent if not one.microkernel.ascending}
        for position, (before, after) in enumerate(zip(statements, walk(run.body), strict=True)):
            if not isinstance(before, Tile) or not isinstance(after, Tile):
                continue
            refusal = judging.refused.get(id(after))
            reason = None if refusal is None else str(refusal)
            if before.microkernel is None and reason is not None:
                plain[position] = reason
            elif before.microkernel in mixed and not reassociate:
                refused[position] = "it adds the terms of an element in an order of its own"
            elif before.microkernel != after.microkernel:
                refused[position] = "its sums run as lanes of their own"
            elif refusal is not None:
                refused[position], judged[position] = str(refusal), refusal
    return CoverReport(refused, plain, judged)


def check_covers(program: Program, covers: CoverReport, host: Host, op: str = "compile") -> None:
    """Check that the microkernels of `host` that tiles of a text name run these tiles.

    Raises PartitionError, in the name of `op`, with the question of the judge that the first one fails.
    """
    own = {family.microkernel.name for family in families(host)}
    for position, stmt in enumerate(walk(program.body)):
        if isinstance(stmt, Tile) and stmt.microkernel in own and position in covers.judged:
            refusal = covers.judged[position]
            raise PartitionError(
                op,
                f"cannot cover a tile by {stmt.microkernel}",
                at=f"tile {', '.join(axis.iter for axis in stmt.axes)}",
                because=f"{refusal.question.value}: {refusal}",
                help=("without @cover(…) it runs as vectors",),
            )


def vector_tile_notes(
    program: Program, covers: CoverReport, covered: Collection[str] | None = None
) -> Iterator[str]:
    """Yield a line for every tile that runs as vectors.

    covered  of those alone that add up elements of these buffers; None: of all
    """
    for position, stmt in enumerate(analysis(program).statements):
        if position in covers.plain and isinstance(stmt, Tile):
            sums = {s.buffer for s in walk(stmt.body) if isinstance(s, Store) and s.reduce}
            if covered is not None and not sums & set(covered):
                continue
            axes = ", ".join(axis.iter for axis in stmt.axes)
            yield f"tile {axes} as vectors: {covers.plain[position]}"


def reasons_without_cover(program: Program, covers: CoverReport, buffer: str) -> Iterator[str]:
    """Yield why tiles that store `buffer` run without a microkernel, a line each; first of those that name one."""
    tiles = [
        (position, stmt, ", ".join(axis.iter for axis in stmt.axes))
        for position, stmt in enumerate(analysis(program).statements)
        if isinstance(stmt, Tile) and buffer in stored_arrays(stmt.body)
    ]
    for position, tile, axes in tiles:
        if position in covers.refused:
            yield f"tile {axes}: {tile.microkernel} does not run it: {covers.refused[position]}"
    for position, _, axes in tiles:
        if position in covers.plain:
            yield f"tile {axes} as vectors: {covers.plain[position]}"


def external_kernels(program: Program, host: Host) -> tuple[str, ...]:
    """Return the names of the external microkernels that `program` calls."""
    tiles = analysis(program).of(Tile)
    called = {tile.microkernel for tile in tiles}
    return tuple(kernel.name for kernel in host.external if kernel.name in called)
