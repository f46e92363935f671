"""``offcut-partition``: loop nests of a module cut by offcut, proved, and written back in their places."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.universe import Universe
from xdsl.utils.exceptions import PassFailedException

from offcut.errors import OffcutError, PartitionError
from offcut.ir import For, Program, Store, blocks, walk
from offcut.pipeline import partition
from offcut.plugins.mlir.guarding import Made, guarded
from offcut.plugins.mlir.nest import Nest
from offcut.plugins.mlir.options import (
    OP,
    check_copies,
    check_read,
    tails_of,
    tiles_by_depth,
    tiles_by_name,
)
from offcut.plugins.mlir.reading import read


@dataclass(frozen=True)
class OffcutPartition(ModulePass):  # type: ignore[misc]
    """Cut the loops of every outermost ``scf.for``; each is proved to compute the same at all sizes.

    tile    the largest tile by loop, in iterations: ``"i=8,j=32"``, or by depth, ``8,32``; 0
            leaves a loop as it is; without any, conditions alone are taken out of loops
    tail    a strategy for all, ``cut``, or by loop, ``"i=balance,j=mask"``
    copies  stores of the result per store, at most: what conditions may cost in code

    A nest that has none of the loops is left as it is.

    Raises PassFailedException, with offcut's refusal at the loop; the module is unchanged then.
    """

    name = OP

    tile: str | int | tuple[int, ...] = ()
    tail: str = "cut"
    copies: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Cut the nests of a module in place, all or none."""
        wanted = tiles_by_name(self.tile) if isinstance(self.tile, str) else {}
        depths = () if isinstance(self.tile, str) else tiles_by_depth(self.tile)
        tails = tails_of(self.tail)
        check_copies(self.copies)
        made: list[tuple[scf.ForOp, Made]] = []
        tiled: dict[str, None] = {}
        loops: dict[str, None] = {}
        for loop in _outermost(op):
            try:
                nest = read(loop)
            except OffcutError as refused:
                if not wanted or _hints(loop) & {name.rpartition(".")[2] for name in wanted}:
                    loop.emit_error(str(refused), PassFailedException(str(refused)))
                continue
            named = _named(nest.program)
            loops |= dict.fromkeys(named)
            asked = {name: tile for name, tile in wanted.items() if name in named}
            if wanted and not asked:
                continue
            asked = asked if wanted else _by_depth(depths, nest.program)
            tiles = {name: tile for name, tile in asked.items() if tile > 0}
            tiled |= dict.fromkeys(tiles)
            try:
                made.append((loop, self.cut(nest, tiles, tails)))
            except OffcutError as refused:
                loop.emit_error(str(refused), PassFailedException(str(refused)))
        missing = [name for name in wanted if name not in loops]
        if missing:
            raise PassFailedException(str(_no_loop(missing[0], tuple(loops))))
        check_read(self.tail, tails, tiled)
        for loop, one in made:
            Rewriter.insert_op(one.operations, InsertPoint.before(loop))
            for old, new in zip(loop.results, one.results, strict=True):
                old.replace_all_uses_with(new)
            Rewriter.erase_op(loop)

    def cut(self, nest: Nest, tiles: dict[str, int], tails: str | dict[str, str]) -> Made:
        """What takes the place of a nest."""
        mine = (
            tails
            if isinstance(tails, str)
            else {name: tail for name, tail in tails.items() if name in tiles}
        )
        found = partition(nest.program, tiles, mine, target="interpret", copies=self.copies)
        found.prove()
        return guarded(nest, found.loops)


def _by_depth(given: tuple[int, ...], program: Program) -> dict[str, int]:
    """The tiles that were given by depth, by the names of the loops there."""
    found: dict[str, int] = {}

    def seek(body: tuple[object, ...], depth: int) -> None:
        for stmt in body:
            inner = depth
            if isinstance(stmt, For):
                if depth < len(given):
                    found[_name_of(stmt, program)] = given[depth]
                inner += 1
            for block in blocks(stmt):  # type: ignore[arg-type]
                seek(block, inner)

    seek(program.body, 0)
    return found


def _outermost(op: ModuleOp) -> list[scf.ForOp]:
    """The loops that are in no other, in the order of the text."""
    found: list[scf.ForOp] = []
    for one in op.walk():
        inside = one.parent_op()
        while inside is not None and not isinstance(inside, scf.ForOp):
            inside = inside.parent_op()
        if isinstance(one, scf.ForOp) and inside is None:
            found.append(one)
    return found


def _hints(loop: scf.ForOp) -> set[str]:
    found = (one.body.block.args[0].name_hint for one in loop.walk() if isinstance(one, scf.ForOp))
    return {hint or "loop" for hint in found}


def _named(program: Program) -> dict[str, None]:
    """The loops of a program, with and without the arrays that they write."""
    found: dict[str, None] = {}
    for loop in walk(program.body):
        if isinstance(loop, For):
            found[loop.iter] = None
            found |= dict.fromkeys(f"{buffer}.{loop.iter}" for buffer in _stored(loop))
    return found


def _name_of(loop: For, program: Program) -> str:
    alike = [one for one in walk(program.body) if isinstance(one, For) and one.iter == loop.iter]
    return loop.iter if len(alike) == 1 else f"{next(iter(_stored(loop)), '')}.{loop.iter}"


def _stored(loop: For) -> dict[str, None]:
    return dict.fromkeys(stmt.buffer for stmt in walk(loop) if isinstance(stmt, Store))


def _no_loop(name: str, loops: tuple[str, ...]) -> PartitionError:
    return PartitionError(
        OP,
        f"cannot find the loop {name!r}",
        because="no loop that can be read has that name",
        help=(", ".join(loops) or "the module has none",),
    )


UNIVERSE = Universe(all_passes={OP: lambda: OffcutPartition})
