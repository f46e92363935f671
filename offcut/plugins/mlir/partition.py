"""The pass ``offcut-partition``: tile loop nests of a module, prove the result, and write it back in place.

Its options are read strictly: what says nothing, or says it twice, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func, scf
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolTable
from xdsl.universe import Universe
from xdsl.utils.exceptions import PassFailedException

from offcut.errors import DescribeError, OffcutError, PartitionError
from offcut.ir import For, Program, Store, blocks, walk
from offcut.pipeline import partition
from offcut.plugins.hosts import HostFeatures, apply_schedule, is_about, microkernels_of
from offcut.plugins.mlir.export_scf import EmittedNest
from offcut.plugins.mlir.import_scf import NEST, import_nest
from offcut.plugins.mlir.nest import Nest
from offcut.plugins.mlir.sign_guards import guard_nest
from offcut.schedule import Schedule, each_decision, stages_in

OP = "offcut-partition"
ATTRIBUTE = "offcut.schedule"
WORDS = HostFeatures(OP, ("thread", "lane", "unroll"), partial=True)

_TILES = ('tile="i=8,j=32"', "tile=8,32 by depth")
_TAILS = ("tail=mask", 'tail="i=balance,j=mask"')


def tiles_by_name(text: str) -> dict[str, int]:
    """Parse ``"i=8,j=32"`` into tile sizes by loop; an empty text has none.

    Raises PassFailedException for a part that is no loop and its tile, and for a loop that is named twice.
    """
    tiles: dict[str, int] = {}
    for part, name, number in _pairs(text):
        if not name or not (number.isascii() and number.isdecimal()):
            raise _option_error("tile", text, f"{part!r} is not a loop and its tile", _TILES)
        if name in tiles:
            raise _option_error("tile", text, f"it says two tiles of {name}", _TILES)
        tiles[name] = int(number)
    return tiles


def tiles_by_depth(option: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the tiles from the outermost loops inward.

    Raises PassFailedException for one below 0.
    """
    tiles = (option,) if isinstance(option, int) else option
    for tile in tiles:
        if tile < 0:
            because = f"{tile} is not a tile: one is from 1 on, and 0 leaves a loop as it is"
            raise _option_error("tile", option, because, _TILES)
    return tiles


def tails_of(text: str) -> str | dict[str, str]:
    """Return a strategy for all loops that are cut, or by loop.

    Raises PassFailedException for a part that is no loop and its strategy, and for a loop that is named twice.
    """
    if "=" not in text:
        return text
    tails: dict[str, str] = {}
    for part, name, strategy in _pairs(text):
        if not name or not strategy:
            raise _option_error("tail", text, f"{part!r} is not a loop and its strategy", _TAILS)
        if name in tails:
            raise _option_error("tail", text, f"it says two strategies of {name}", _TAILS)
        tails[name] = strategy
    return tails


def check_tails_used(text: str, tails: str | Mapping[str, str], cut: Mapping[str, object]) -> None:
    """Reject strategies of loops that are not tiled."""
    if isinstance(tails, str):
        return
    for name in tails:
        if name not in cut:
            because = f"no loop that is cut is called {name}: {', '.join(cut) or 'none is cut'}"
            raise _option_error("tail", text, because, _TAILS)


def check_copies(copies: int | None) -> None:
    """Reject a number of copies below 1."""
    if copies is not None and copies < 1:
        because = "it is what one store may become: 1 or more"
        raise _option_error(
            "copies", copies, because, ("copies=1 leaves every condition where it is",)
        )


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    for part in text.replace(",", " ").split():
        name, _, value = part.partition("=")
        yield part, name, value


def _option_error(
    option: str, value: object, because: str, help: tuple[str, ...]
) -> PassFailedException:
    error = DescribeError(OP, f"cannot take {option}={value!r}", because=because, help=help)
    return PassFailedException(str(error))


@dataclass(frozen=True)
class OffcutPartition(ModulePass):  # type: ignore[misc]
    """Cut the loops of every outermost ``scf.for``; each is proved to compute the same at all sizes.

    tile    the largest tile by loop, in iterations: ``"i=8,j=32"``, or by depth, ``8,32``; 0
            leaves a loop as it is; without any, conditions alone are taken out of loops
    tail    a strategy for all, ``cut``, or by loop, ``"i=balance,j=mask"``
    copies  stores of the result per store, at most: what conditions may cost in code

    or, in place of these,

    schedule  decisions, as the text of `offcut.Schedule`, for the nest that writes the stages that it names; the attribute
              ``offcut.schedule`` of an outermost loop says it for that loop
    target    whose microkernels `cover` may name, beside declared instructions

    A nest that has none of the loops is left as it is.

    Raises PassFailedException, with offcut's refusal at the loop; the module is unchanged then.
    """

    name = OP

    tile: str | int | tuple[int, ...] = ()
    tail: str = "cut"
    copies: int | None = None
    schedule: str = ""
    target: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Cut the nests of a module in place, all or none."""
        tiles_of_names = tiles_by_name(self.tile) if isinstance(self.tile, str) else {}
        depths = () if isinstance(self.tile, str) else tiles_by_depth(self.tile)
        tails = tails_of(self.tail)
        check_copies(self.copies)
        if self.schedule and (self.tile or self.tail != "cut" or self.copies is not None):
            because = "a schedule says all of a nest, and tile, tail and copies are beside it"
            raise _option_error(
                "schedule", self.schedule.split()[0], because, ("split C.i mask 8 as io ii",)
            )
        texts = _Texts(self.schedule)
        replacements: list[tuple[scf.ForOp, EmittedNest]] = []
        tiled_loops: dict[str, None] = {}
        loops: dict[str, None] = {}
        for loop in _outermost(op):
            attribute = texts.of(loop)
            try:
                nest = import_nest(loop)
                if attribute is not None or self.schedule:
                    schedule = (
                        texts.parse(attribute) if attribute is not None else texts.for_nest(nest)
                    )
                    if schedule is not None:
                        replacements.append((loop, self.apply_schedule(nest, schedule)))
                    continue
            except OffcutError as error:
                if attribute is not None or (self.schedule and texts.is_about(loop)):
                    loop.emit_error(str(error), PassFailedException(str(error)))
                if not tiles_of_names or _hints(loop) & {
                    name.rpartition(".")[2] for name in tiles_of_names
                }:
                    loop.emit_error(str(error), PassFailedException(str(error)))
                continue
            loop_names = _loop_names(nest.program)
            loops |= dict.fromkeys(loop_names)
            nest_tiles = {name: tile for name, tile in tiles_of_names.items() if name in loop_names}
            if tiles_of_names and not nest_tiles:
                continue
            nest_tiles = nest_tiles if tiles_of_names else _tiles_of_depths(depths, nest.program)
            tiles = {name: tile for name, tile in nest_tiles.items() if tile > 0}
            tiled_loops |= dict.fromkeys(tiles)
            try:
                replacements.append((loop, self.cut(nest, tiles, tails)))
            except OffcutError as error:
                loop.emit_error(str(error), PassFailedException(str(error)))
        texts.check_used()
        missing = [name for name in tiles_of_names if name not in loops]
        if missing:
            raise PassFailedException(str(_no_loop(missing[0], tuple(loops))))
        check_tails_used(self.tail, tails, tiled_loops)
        functions = {f.sym_name.data: f for _, one in replacements for f in one.functions}
        for name, function in functions.items():
            declared = SymbolTable.lookup_symbol(op, name)
            if declared is None:
                op.body.block.add_op(function)
            elif getattr(declared, "function_type", None) != function.function_type:
                because = (
                    f"the module has another {name}, and the call needs {function.function_type}"
                )
                raise PassFailedException(
                    str(PartitionError(OP, f"cannot declare {name}", because=because))
                )
        for loop, one in replacements:
            Rewriter.insert_op(one.operations, InsertPoint.before(loop))
            for old, new in zip(loop.results, one.results, strict=True):
                old.replace_all_uses_with(new)
            Rewriter.erase_op(loop)

    def apply_schedule(self, nest: Nest, schedule: Schedule) -> EmittedNest:
        """Return the operations that replace a nest, by a schedule."""
        kernels = microkernels_of(self.target) if self.target else ()
        return guard_nest(nest, apply_schedule(nest.program, schedule, WORDS, kernels))

    def cut(self, nest: Nest, tiles: dict[str, int], tails: str | dict[str, str]) -> EmittedNest:
        """Return the operations that replace a nest, by tiles and tails."""
        mine = (
            tails
            if isinstance(tails, str)
            else {name: tail for name, tail in tails.items() if name in tiles}
        )
        result = partition(nest.program, tiles, mine, target="interpret", copies=self.copies)
        result.prove()
        return guard_nest(nest, result.loops)


class _Texts:
    """The schedule of a pass, and those of single loops."""

    def __init__(self, text: str) -> None:
        self.schedule = self.parse(text.replace("\\n", "\n")) if text else None
        self.used = self.schedule is None
        self.stages: dict[str, None] = {}

    def parse(self, text: str) -> Schedule:
        """Return the schedule of a text; raises PassFailedException for what is none."""
        try:
            return Schedule.parse(text)
        except OffcutError as error:
            raise PassFailedException(str(error)) from None

    def of(self, loop: scf.ForOp) -> str | None:
        """Return the text that a loop has as its attribute."""
        attribute = loop.attributes.get(ATTRIBUTE)
        if attribute is not None and not isinstance(attribute, StringAttr):
            raise _option_error(
                ATTRIBUTE, str(attribute), "it is not text", ('"schedule f\\nbind C.i thread"',)
            )
        return None if attribute is None else str(attribute.data)

    def for_nest(self, nest: Nest) -> Schedule | None:
        """Return the schedule of the pass where it is about a nest: one that writes a stage that it names."""
        assert self.schedule is not None
        function = nest.op.parent_op()
        symbol = function.sym_name.data if isinstance(function, func.FuncOp) else NEST
        self.stages |= _written_buffers(nest.program)
        if not is_about(self.schedule, nest.program, symbol):
            return None
        self.used = True
        return self.schedule

    def is_about(self, loop: scf.ForOp) -> bool:
        """Return whether the schedule may mean a loop that cannot be imported."""
        assert self.schedule is not None
        names = {v.name_hint for one in loop.walk() for v in (*one.operands, *one.results)}
        stages = [stage for step in each_decision(self.schedule.steps) for stage in stages_in(step)]
        return bool(names & set(stages))

    def check_used(self) -> None:
        """Reject a schedule that applies to no nest."""
        if self.used:
            return
        assert self.schedule is not None
        raise PassFailedException(
            str(
                PartitionError(
                    OP,
                    f"cannot find the nest of schedule {self.schedule.name}",
                    because="no nest of a function of that name that can be read writes a stage that it names",
                    help=(", ".join(self.stages) or "the module has none",),
                )
            )
        )


def _tiles_of_depths(tiles: tuple[int, ...], program: Program) -> dict[str, int]:
    """Return the tiles that were given by depth, by the names of the loops there."""
    tiles_by_loop: dict[str, int] = {}

    def seek(body: tuple[object, ...], depth: int) -> None:
        for stmt in body:
            inner = depth
            if isinstance(stmt, For):
                if depth < len(tiles):
                    tiles_by_loop[_name_of(stmt, program)] = tiles[depth]
                inner += 1
            for block in blocks(stmt):  # type: ignore[arg-type]
                seek(block, inner)

    seek(program.body, 0)
    return tiles_by_loop


def _outermost(op: ModuleOp) -> list[scf.ForOp]:
    """Return the loops that are in no other, in the order of the text."""
    loops: list[scf.ForOp] = []
    for one in op.walk():
        parent = one.parent_op()
        while parent is not None and not isinstance(parent, scf.ForOp):
            parent = parent.parent_op()
        if isinstance(one, scf.ForOp) and parent is None:
            loops.append(one)
    return loops


def _hints(loop: scf.ForOp) -> set[str]:
    hints = (one.body.block.args[0].name_hint for one in loop.walk() if isinstance(one, scf.ForOp))
    return {hint or "loop" for hint in hints}


def _loop_names(program: Program) -> dict[str, None]:
    """Return the loops of a program, with and without the arrays that they write."""
    names: dict[str, None] = {}
    for loop in walk(program.body):
        if isinstance(loop, For):
            names[loop.iter] = None
            names |= dict.fromkeys(f"{buffer}.{loop.iter}" for buffer in _written_buffers(loop))
    return names


def _name_of(loop: For, program: Program) -> str:
    alike = [one for one in walk(program.body) if isinstance(one, For) and one.iter == loop.iter]
    return loop.iter if len(alike) == 1 else f"{next(iter(_written_buffers(loop)), '')}.{loop.iter}"


def _written_buffers(loop: For | Program) -> dict[str, None]:
    return dict.fromkeys(stmt.buffer for stmt in walk(loop) if isinstance(stmt, Store))


def _no_loop(name: str, loops: tuple[str, ...]) -> PartitionError:
    return PartitionError(
        OP,
        f"cannot find the loop {name!r}",
        because="no loop that can be read has that name",
        help=(", ".join(loops) or "the module has none",),
    )


UNIVERSE = Universe(all_passes={OP: lambda: OffcutPartition})
