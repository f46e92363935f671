"""``offcut-partition``: loop nests of a module cut by offcut, proved, and written back in their places.

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
from offcut.plugins.hosts import Words, is_about, microkernels_of, scheduled
from offcut.plugins.mlir.guarding import guarded
from offcut.plugins.mlir.nest import Nest
from offcut.plugins.mlir.reading import NEST, read
from offcut.plugins.mlir.writing import EmittedNest
from offcut.schedule import Schedule, each_decision, stages_in

OP = "offcut-partition"
ATTRIBUTE = "offcut.schedule"
WORDS = Words(OP, ("thread", "lane", "unroll"), partial=True)

_TILES = ('tile="i=8,j=32"', "tile=8,32 by depth")
_TAILS = ("tail=mask", 'tail="i=balance,j=mask"')


def tiles_by_name(given: str) -> dict[str, int]:
    """``"i=8,j=32"`` as a tile by loop; of an empty text none.

    Raises PassFailedException for a part that is no loop and its tile, and for a loop that is named twice.
    """
    found: dict[str, int] = {}
    for part, name, number in _pairs(given):
        if not name or not (number.isascii() and number.isdecimal()):
            raise _refused("tile", given, f"{part!r} is no loop and its tile", _TILES)
        if name in found:
            raise _refused("tile", given, f"it says two tiles of {name}", _TILES)
        found[name] = int(number)
    return found


def tiles_by_depth(given: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the tiles from the outermost loops inward.

    Raises PassFailedException for one below 0.
    """
    tiles = (given,) if isinstance(given, int) else given
    for tile in tiles:
        if tile < 0:
            because = f"{tile} is no tile: one is from 1 on, and 0 leaves a loop as it is"
            raise _refused("tile", given, because, _TILES)
    return tiles


def tails_of(given: str) -> str | dict[str, str]:
    """Return a strategy for all loops that are cut, or by loop.

    Raises PassFailedException for a part that is no loop and its strategy, and for a loop that is named twice.
    """
    if "=" not in given:
        return given
    found: dict[str, str] = {}
    for part, name, strategy in _pairs(given):
        if not name or not strategy:
            raise _refused("tail", given, f"{part!r} is no loop and its strategy", _TAILS)
        if name in found:
            raise _refused("tail", given, f"it says two strategies of {name}", _TAILS)
        found[name] = strategy
    return found


def check_read(given: str, tails: str | Mapping[str, str], cut: Mapping[str, object]) -> None:
    """Refuse strategies of loops that are not among those that are cut."""
    if isinstance(tails, str):
        return
    for name in tails:
        if name not in cut:
            because = f"no loop that is cut is called {name}: {', '.join(cut) or 'none is cut'}"
            raise _refused("tail", given, because, _TAILS)


def check_copies(given: int | None) -> None:
    """Refuse a number of copies that is none."""
    if given is not None and given < 1:
        because = "it is what one store may become: 1 or more"
        raise _refused("copies", given, because, ("copies=1 leaves every condition where it is",))


def _pairs(given: str) -> Iterator[tuple[str, str, str]]:
    for part in given.replace(",", " ").split():
        name, _, said = part.partition("=")
        yield part, name, said


def _refused(
    option: str, given: object, because: str, help: tuple[str, ...]
) -> PassFailedException:
    refused = DescribeError(OP, f"cannot take {option}={given!r}", because=because, help=help)
    return PassFailedException(str(refused))


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
        wanted = tiles_by_name(self.tile) if isinstance(self.tile, str) else {}
        depths = () if isinstance(self.tile, str) else tiles_by_depth(self.tile)
        tails = tails_of(self.tail)
        check_copies(self.copies)
        if self.schedule and (self.tile or self.tail != "cut" or self.copies is not None):
            because = "a schedule says all of a nest, and tile, tail and copies are beside it"
            raise _refused(
                "schedule", self.schedule.split()[0], because, ("split C.i mask 8 as io ii",)
            )
        texts = _Texts(self.schedule)
        replacements: list[tuple[scf.ForOp, EmittedNest]] = []
        tiled: dict[str, None] = {}
        loops: dict[str, None] = {}
        for loop in _outermost(op):
            own = texts.of(loop)
            try:
                nest = read(loop)
                if own is not None or self.schedule:
                    schedule = texts.own(own) if own is not None else texts.for_nest(nest)
                    if schedule is not None:
                        replacements.append((loop, self.scheduled(nest, schedule)))
                    continue
            except OffcutError as refused:
                if own is not None or (self.schedule and texts.is_about(loop)):
                    loop.emit_error(str(refused), PassFailedException(str(refused)))
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
                replacements.append((loop, self.cut(nest, tiles, tails)))
            except OffcutError as refused:
                loop.emit_error(str(refused), PassFailedException(str(refused)))
        texts.check_used()
        missing = [name for name in wanted if name not in loops]
        if missing:
            raise PassFailedException(str(_no_loop(missing[0], tuple(loops))))
        check_read(self.tail, tails, tiled)
        functions = {f.sym_name.data: f for _, one in replacements for f in one.functions}
        for name, function in functions.items():
            known = SymbolTable.lookup_symbol(op, name)
            if known is None:
                op.body.block.add_op(function)
            elif getattr(known, "function_type", None) != function.function_type:
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

    def scheduled(self, nest: Nest, schedule: Schedule) -> EmittedNest:
        """What takes the place of a nest by a schedule."""
        kernels = microkernels_of(self.target) if self.target else ()
        return guarded(nest, scheduled(nest.program, schedule, WORDS, kernels))

    def cut(self, nest: Nest, tiles: dict[str, int], tails: str | dict[str, str]) -> EmittedNest:
        """What takes the place of a nest."""
        mine = (
            tails
            if isinstance(tails, str)
            else {name: tail for name, tail in tails.items() if name in tiles}
        )
        found = partition(nest.program, tiles, mine, target="interpret", copies=self.copies)
        found.prove()
        return guarded(nest, found.loops)


class _Texts:
    """The schedule of a pass, and those of single loops."""

    def __init__(self, text: str) -> None:
        self.given = self.own(text.replace("\\n", "\n")) if text else None
        self.used = self.given is None
        self.stages: dict[str, None] = {}

    def own(self, text: str) -> Schedule:
        """Return the schedule of a text; raises PassFailedException for what is none."""
        try:
            return Schedule.parse(text)
        except OffcutError as refused:
            raise PassFailedException(str(refused)) from None

    def of(self, loop: scf.ForOp) -> str | None:
        """Return the text that a loop has as its attribute."""
        attribute = loop.attributes.get(ATTRIBUTE)
        if attribute is not None and not isinstance(attribute, StringAttr):
            raise _refused(
                ATTRIBUTE, str(attribute), "it is no text", ('"schedule f\\nbind C.i thread"',)
            )
        return None if attribute is None else str(attribute.data)

    def for_nest(self, nest: Nest) -> Schedule | None:
        """Return the schedule of the pass where it is about a nest: one that writes a stage that it names."""
        assert self.given is not None
        function = nest.op.parent_op()
        symbol = function.sym_name.data if isinstance(function, func.FuncOp) else NEST
        self.stages |= _stored(nest.program)
        if not is_about(self.given, nest.program, symbol):
            return None
        self.used = True
        return self.given

    def is_about(self, loop: scf.ForOp) -> bool:
        """Return whether a loop that cannot be read may be the one that is meant."""
        assert self.given is not None
        names = {v.name_hint for one in loop.walk() for v in (*one.operands, *one.results)}
        stages = [stage for step in each_decision(self.given.steps) for stage in stages_in(step)]
        return bool(names & set(stages))

    def check_used(self) -> None:
        """Refuse a schedule that no nest is meant by."""
        if self.used:
            return
        assert self.given is not None
        raise PassFailedException(
            str(
                PartitionError(
                    OP,
                    f"cannot find the nest of schedule {self.given.name}",
                    because="no nest of a function of that name that can be read writes a stage that it names",
                    help=(", ".join(self.stages) or "the module has none",),
                )
            )
        )


def _by_depth(given: tuple[int, ...], program: Program) -> dict[str, int]:
    """Return the tiles that were given by depth, by the names of the loops there."""
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
    """Return the loops that are in no other, in the order of the text."""
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
    """Return the loops of a program, with and without the arrays that they write."""
    found: dict[str, None] = {}
    for loop in walk(program.body):
        if isinstance(loop, For):
            found[loop.iter] = None
            found |= dict.fromkeys(f"{buffer}.{loop.iter}" for buffer in _stored(loop))
    return found


def _name_of(loop: For, program: Program) -> str:
    alike = [one for one in walk(program.body) if isinstance(one, For) and one.iter == loop.iter]
    return loop.iter if len(alike) == 1 else f"{next(iter(_stored(loop)), '')}.{loop.iter}"


def _stored(loop: For | Program) -> dict[str, None]:
    return dict.fromkeys(stmt.buffer for stmt in walk(loop) if isinstance(stmt, Store))


def _no_loop(name: str, loops: tuple[str, ...]) -> PartitionError:
    return PartitionError(
        OP,
        f"cannot find the loop {name!r}",
        because="no loop that can be read has that name",
        help=(", ".join(loops) or "the module has none",),
    )


UNIVERSE = Universe(all_passes={OP: lambda: OffcutPartition})
