"""The names that a schedule gives to the loops of its program, and the loops that it binds to units.

Bodies and tails that one decision makes share its name::

    split C.i ladder 14 as i_tile i_in         for i_tile in 0:n//14                          C.i_tile
                                                 tile i in 14*i_tile +: 14 …                  C.i_in
    bind C.i_tile thread                       tile i in 14*(n//14) +: n % 14 …               C.i_in

A loop that no decision makes has the name of its axis. It belongs to each stage that it computes; errors name the last of these.
A loop that counts tiles is recognized by the starts of its tiles: its iterator is in nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.expr import Expr, Var, loads, variables
from offcut.core.memo import lazy_property
from offcut.core.program import LANE, THREAD, For, Program, Stmt, Store, Tile, walk
from offcut.schedule.decisions import (
    ANY,
    Bind,
    Choose,
    Cover,
    Level,
    Order,
    Schedule,
    Split,
    each_decision,
    split_names,
    unit_splits,
)


@dataclass(frozen=True)
class LoopNames:
    """The names of loops by the splits of `schedule`, and by the stages that its decisions name."""

    schedule: Schedule

    @lazy_property
    def _splits(self) -> dict[str, list[Split]]:
        """Return the splits of all stages, by axis."""
        splits: dict[str, list[Split]] = {}
        for step in each_decision(self.schedule.steps):
            if isinstance(step, Split):
                splits.setdefault(step.axis, []).append(step)
        return splits

    @lazy_property
    def _stages(self) -> frozenset[str]:
        """Return the stages whose loops decisions name."""
        steps = each_decision(self.schedule.steps)
        return frozenset(step.stage for step in steps if isinstance(step, Split | Order | Cover))

    @lazy_property
    def _alternatives(self) -> dict[str, list[frozenset[str]]]:
        """Return the axes that each alternative for a stage splits, by the stage."""
        alternatives: dict[str, list[frozenset[str]]] = {}
        choices = (step for step in self.schedule.steps if isinstance(step, Choose))
        for option in (option for step in choices for option in step.options):
            for stage in {step.stage for step in option.steps if isinstance(step, Cover)}:
                splits = (step for step in option.steps if isinstance(step, Split))
                axes = frozenset(step.axis for step in splits if step.stage == stage)
                alternatives.setdefault(stage, []).append(axes)
        return alternatives

    def stage_of(self, stmt: Stmt) -> str:
        """Return the stage that a loop is shown as a loop of: the last one in it that a decision names, else the last one."""
        stages = stages_of(stmt)
        named_stages = (buffer for buffer in reversed(stages) if buffer in self._stages)
        return next(named_stages, stages[-1] if stages else "")

    def names_of(self, stmt: For | Tile, stage: str) -> tuple[str, ...]:
        """Return the names of a loop of `stage`, or of the loops of a tile; several, if alternatives of the schedule differ in them."""
        if isinstance(stmt, Tile):
            each = (self._names_on_axis(axis.iter, axis.start, stage) for axis in stmt.axes)
            return tuple(name for names in each for name in names)
        tiles = _tiles_of(stmt) if self._splits else None
        if tiles is None:
            return self._names_on_axis(stmt.iter, stmt.lo, stage)
        axis, start = tiles
        splits = self.splits_of(axis, stage)
        step = dict(ix.to_linear(start).terms).get(Var(stmt.iter))
        return tuple(dict.fromkeys(_level(split, step) for split in splits)) or (axis,)

    def _names_on_axis(self, axis: str, start: Expr, stage: str) -> tuple[str, ...]:
        """Return the names of the loop over the coordinates of an axis that begins at `start`."""
        first = ix.literal_value(start) is not None
        names = []
        for split in self.splits_of(axis, stage):
            has_one_loop = first and split.levels[-1].room is not None
            names.append(split.names[0 if has_one_loop else -1])
        if first and any(axis not in split for split in self._alternatives.get(stage, ())):
            names.append(axis)
        return tuple(dict.fromkeys(names)) or (axis,)

    def splits_of(self, axis: str, stage: str) -> list[Split]:
        """Return the splits of an axis in the loops of a stage, those of options among them."""
        return [split for split in self._splits.get(axis, ()) if split.stage in (ANY, stage)]

    def names_of_loops(self, program: Program, stage: str) -> tuple[str, ...]:
        """Return the names of the loops and tiles of a stage, in the order of the text."""
        names: dict[str, None] = {}
        for stmt in walk(program.body):
            if isinstance(stmt, For | Tile) and stage in stages_of(stmt):
                names |= dict.fromkeys(self.names_of(stmt, stage))
        return tuple(names)

    def says(self, bind: Bind) -> bool:
        """Return whether some decision makes, or lists, the loop of a bind. The program may lack it, if it has one iteration."""
        return any(
            step.stage in (ANY, bind.stage)
            and bind.axis in (step.names if isinstance(step, Split) else step.loops)
            for step in each_decision(self.schedule.steps)
            if isinstance(step, Split | Order)
        )


def stages_of(stmt: Stmt) -> tuple[str, ...]:
    """Return the arrays that a statement computes, in the order of their last stores; if there are none, its scalars."""
    indexed_by_buffer: dict[str, bool] = {}
    for inner in walk((stmt,)):
        if isinstance(inner, Store):
            indexed_by_buffer.pop(inner.buffer, None)
            indexed_by_buffer[inner.buffer] = bool(inner.index)
    arrays = tuple(buffer for buffer, indexed in indexed_by_buffer.items() if indexed)
    return arrays or tuple(indexed_by_buffer)


def _tiles_of(loop: For) -> tuple[str, Expr] | None:
    """Return the axis of the tiles that a loop counts, and their start; None for a loop over coordinates."""
    starts: list[tuple[str, Expr]] = []
    for stmt in walk(loop.body):
        match stmt:
            case Tile(axes):
                starts += ((axis.iter, axis.start) for axis in axes)
            case For(iter, lo):
                starts.append((iter, lo))
            case Store():
                exprs = (
                    *stmt.index,
                    *(part for load, _ in loads(stmt.value) for part in load.index),
                )
                if any(loop.iter in variables(part) for part in exprs):
                    return None
            case _:
                pass
    return next((one for one in starts if loop.iter in variables(one[1])), None)


def _level(split: Split, step: object) -> str:
    """Return the name of the loop of a split that counts tiles of size `step`."""
    outer = (
        name
        for name, level in zip(split.names, split.levels[:-1], strict=False)
        if level.tile == step
    )
    return next(outer, split.names[-2])


@dataclass(frozen=True)
class Binds:
    """The loops that a schedule binds to a unit.

    lines   its binds; one of ``*`` leaves the choice of loops to the target
    forced  the lines that the target follows against its own choice
    """

    schedule: Schedule
    lines: tuple[Bind, ...]
    forced: tuple[Bind, ...] = ()
    names: LoopNames = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", LoopNames(self.schedule))

    @staticmethod
    def of(schedule: Schedule, unit: str | None, tree: bool = False) -> Binds:
        """Return the binds of a schedule to a unit.

        tree  of lanes: those of reductions; False: the others
        """
        lines = (
            step
            for step in schedule.steps
            if isinstance(step, Bind) and (step.unit, step.tree and unit == LANE) == (unit, tree)
        )
        return Binds(schedule, tuple(lines))

    def take(self, stmt: For | Tile) -> bool:
        """Return whether the lines allow to bind a loop: one names it, or leaves the choice to the target, and none runs it serially."""
        is_named = any(line.stage == ANY for line in self.lines) or self._name(self.lines, stmt)
        return is_named and not self._name(self._serial_lines, stmt)

    @lazy_property
    def _serial_lines(self) -> tuple[Bind, ...]:
        """Return the lines by which loops run one iteration after the other."""
        return tuple(s for s in self.schedule.steps if isinstance(s, Bind) and s.unit is None)

    def force(self, stmt: For | Tile) -> bool:
        """Return whether a forced line names a loop."""
        return self._name(self.forced, stmt)

    def name(self, line: Bind, stmt: For | Tile) -> bool:
        """Return whether a line names a loop; a line about chunks names the tiles of them, and loops over the same axis beside."""
        if line.stage not in stages_of(stmt):
            return False
        chunk = self.chunk_split(line)
        if chunk is not None:
            iters = [stmt.iter] if isinstance(stmt, For) else [axis.iter for axis in stmt.axes]
            return iters == [chunk.axis]
        return line.axis in self.names.names_of(stmt, line.stage)

    def chunk_split(self, line: Bind) -> Split | None:
        """Return the split whose chunks a line binds to threads; None if it binds other loops."""
        chunks = unit_splits(self.schedule) if line.unit == THREAD else ()
        name = line.stage, line.axis
        return next((one for one in chunks if (one.stage, one.names[0]) == name), None)

    def chunk_of(self, stmt: Stmt) -> Split | None:
        """Return the split of a tile of one axis into chunks that threads share; None if the schedule has none."""
        if not isinstance(stmt, Tile) or len(stmt.axes) != 1:
            return None
        stages, axis = stages_of(stmt), stmt.axes[0].iter
        chunks = unit_splits(self.schedule)
        return next((one for one in chunks if one.axis == axis and one.stage in stages), None)

    @lazy_property
    def _own_names(self) -> LoopNames:
        """Return the names of loops without the splits that units take."""
        of_units = unit_splits(self.schedule)
        steps = tuple(step for step in self.schedule.steps if step not in of_units)
        return LoopNames(replace(self.schedule, steps=steps))

    def split_of(self, line: Bind) -> Split | None:
        """Return the split whose inner loop a line unrolls; None if it has none."""
        splits = unit_splits(self.schedule)
        name = line.stage, line.axis
        return next((one for one in splits if (one.stage, one.names[-1]) == name), None)

    def unrolled_split(self, loop: For) -> Split | None:
        """Return the split of a loop whose inner loop a line unrolls; None if the schedule says nothing of it."""
        stages = stages_of(loop)
        splits = (split for line in self.lines if (split := self.split_of(line)) is not None)
        for split in splits:
            if split.stage in stages and split.axis in self._own_names.names_of(loop, split.stage):
                return split
        return None

    def new_unrolled_splits(self, loop: For, factor: int) -> tuple[Split, ...]:
        """Return the splits that unroll a loop, one for each of its names; none if another unit splits it."""
        stage = self._own_names.stage_of(loop)
        names = self._own_names.names_of(loop, stage)
        if any(
            (one.stage, one.axis) == (stage, n) for one in unit_splits(self.schedule) for n in names
        ):
            return ()
        return tuple(Split(stage, n, (Level(factor),), split_names(n, 1)) for n in names)

    def new_chunk(self, tile: Tile, size: int) -> Split | None:
        """Return the split of a tile of one axis into chunks of `size` iterations; None if a decision splits that axis."""
        stage, axis = self.names.stage_of(tile), tile.axes[0].iter
        if self.names.splits_of(axis, stage):
            return None
        return Split(stage, axis, (Level(size),), (f"{axis}_chunk", f"{axis}_in"))

    def _name(self, lines: tuple[Bind, ...], stmt: For | Tile) -> bool:
        named_lines = [line for line in lines if line.stage != ANY]
        return bool(named_lines) and any(self.name(line, stmt) for line in named_lines)

    def bind_some(self, stage: str) -> bool:
        """Return whether some loop of a stage may run so."""
        return any(line.stage in (ANY, stage) for line in self.lines)

    def lines_of(self, stmt: For | Tile) -> Iterator[Bind]:
        """Yield the lines that would bind this loop by name, one for each of its names."""
        stage = self.names.stage_of(stmt)
        like = self.lines[0]
        for name in self.names.names_of(stmt, stage):
            yield Bind(stage, name, like.unit, like.tree)


EVERY = Binds(Schedule("", ()), (Bind(ANY, ANY, None),))
"""A line that leaves the choice of loops to the target."""
NO_LOOP = Binds(Schedule("", ()), ())
"""No line: only loops that have their unit already."""
