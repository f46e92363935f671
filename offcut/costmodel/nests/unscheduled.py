"""Schedules of a program whose loops run as they stand in, predicted seconds at many sizes out: nothing is cut, proved or counted.

What is priced so is a sequence of loops inside each other around one statement that computes elements: bounds follow from the sizes,
an array that is written is written by one statement, at the iterators themselves, each moved by a constant at most, and read by
none in its nest; no sum, no condition. Then each nest is a stage over axes that start at 0, and its tiles are those of a nest.
Everything else has no such price, and is cut to be counted: that takes a tenth of a second where this takes a half of a thousandth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Select, Var, reads_memory, substitute, variables, walk
from offcut.core.program import For, Program, Stmt, Store
from offcut.costmodel.arrays import Array, Calls
from offcut.costmodel.nests.nest import Nests
from offcut.costmodel.nests.parametric import Loops
from offcut.costmodel.nests.schedules import parallel_speedup
from offcut.costmodel.resources import Hardware
from offcut.describe.computation import Computation, Stage, StageAxis
from offcut.partition import LADDER, AxisCut
from offcut.schedule import LoopVariant, ResolvedVariant, Schedule, Split, loop_cuts

_WHOLE = 1 << 62
"""A tile that holds all iterations of a loop that is not cut."""


@dataclass
class LoopPrices:
    """Predicted seconds of schedules without nests of one program.

    computation  a stage for each of its nests
    threads      that share loops where a schedule marks them
    known        cycles by nest, by call
    """

    computation: Computation
    hardware: Hardware
    calls: Calls
    threads: int = 1
    known: dict[ResolvedVariant, Array] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._nests = Nests(self.hardware, self.calls)

    def __call__(self, schedule: Schedule) -> Array | None:
        """Seconds, by call; None where a nest is not cut, or has tiles of several levels, or a name is not that of one loop."""
        cuts = loop_cuts(schedule)
        stages = [stage for (stage,) in self.computation.groups]
        axes = [name for stage in stages for names in _names(stage) for name in names]
        total, before = self.calls.constant(0), list[tuple[str, Loops]]()
        if any(axes.count(name) != 1 for name in cuts):
            return None
        for stage in stages:
            cut = _cut_nest(stage, cuts)
            if cut is None:
                return None
            if cut not in self.known:
                arguments = self.computation, cut, False, tuple(before)
                self.known[cut] = self._nests.cost(*arguments).cycles
            total = total + self.known[cut]
            before.append((stage.buffer, ()))
        return total / self.hardware.machine.hertz / parallel_speedup(schedule, self.threads)


def standing(program: Program) -> Computation | None:
    """The nests of a program as stages, in its own names; None where it has another form."""
    stages = [_stage(stmt, frozenset(size.name for size in program.sizes)) for stmt in program.body]
    whole_stages = [stage for stage in stages if stage is not None]
    if len(whole_stages) < len(stages) or len({stage.buffer for stage in whole_stages}) < len(
        whole_stages
    ):
        return None
    return Computation(
        name=program.name,
        sizes=program.sizes,
        size_names=tuple((size.name, size.name) for size in program.sizes),
        assumptions=program.assumptions,
        buffers=program.buffers,
        labels=tuple((buffer.name, buffer.name) for buffer in program.buffers),
        groups=tuple((stage,) for stage in whole_stages),
    )


def _stage(stmt: Stmt, sizes: frozenset[str]) -> Stage | None:
    """A nest as a stage whose axes start at 0; None where it has another form."""
    loops: list[For] = []
    while isinstance(stmt, For):
        plain = stmt.unit is None and len(stmt.body) == 1
        bounds = (stmt.lo, stmt.hi)
        if not plain or any(reads_memory(b) or not variables(b) <= sizes for b in bounds):
            return None
        loops.append(stmt)
        (stmt,) = stmt.body
    if not isinstance(stmt, Store) or stmt.reduce is not None or not loops:
        return None
    nodes = tuple(walk(stmt.value))
    if any(
        isinstance(n, Select) or (isinstance(n, Load) and n.buffer == stmt.buffer) for n in nodes
    ):
        return None
    if [_iterator(part, sizes) for part in stmt.index] != [loop.iter for loop in loops]:
        return None
    starts: dict[str, Expr] = {one.iter: ix.add(Var(one.iter), one.lo) for one in loops}
    axes = tuple(StageAxis(one.iter, ix.sub(one.hi, one.lo), one.iter) for one in loops)
    return Stage(stmt.buffer, stmt.buffer, axes, (), substitute(stmt.value, starts))


def _iterator(index: Expr, sizes: frozenset[str]) -> str | None:
    """The iterator that an index moves with, one by one; None where it moves otherwise."""
    form, names = ix.to_linear(index), variables(index) - sizes
    moving = [(a.name, by) for a, by in form.terms if isinstance(a, Var) and a.name in names]
    return moving[0][0] if moving == [(name, 1) for name in names] and moving else None


def _names(stage: Stage) -> list[tuple[str, str]]:
    """What a schedule may call each of its loops."""
    return [(axis.name, f"{stage.buffer}.{axis.name}") for axis in stage.axes]


def _cut_nest(stage: Stage, cuts: Mapping[str, Split]) -> ResolvedVariant | None:
    """A nest with its loops cut, by the names that a schedule has for these: loops before the first that is cut stay around
    the tiles, others that are not lie inside of them.
    """
    loops = [axis.name for axis in stage.axes]
    own = [cuts.get(whole, cuts.get(loop)) for loop, whole in _names(stage)]
    first = next((place for place, one in enumerate(own) if one is not None), None)
    if first is None or any(one is not None and len(one.levels) > 1 for one in own):
        return None
    tiles: tuple[AxisCut, ...] = ()
    for loop, one in zip(loops[first:], own[first:], strict=True):
        tail = LADDER if one is None else one.levels[0].tail
        if tail is None:
            return None
        tiles += (AxisCut(loop, tail, _WHOLE if one is None else one.levels[0].tile),)
    return ResolvedVariant((stage,), LoopVariant(splits=tiles, loops=tuple(loops[:first])))
