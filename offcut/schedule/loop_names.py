"""What a schedule calls the loops of the program that it makes, and which of them it binds to a unit.

Bodies and tails that one decision makes share its name::

    split C.i ladder 14 as i_tile i_in         for i_tile in 0:n//14                          C.i_tile
                                                 tile i in 14*i_tile +: 14 …                  C.i_in
    bind C.i_tile thread                       tile i in 14*(n//14) +: n % 14 …               C.i_in

A loop that no decision makes has the name of its axis. It is one of each stage that it computes, and is shown as one of the
last of these. A loop that counts tiles is recognized by where the tiles start, which is all that it decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from offcut.core import index as ix
from offcut.core.expr import Expr, Var, loads, variables
from offcut.core.memo import lazy_property
from offcut.core.program import LANE, For, Program, Stmt, Store, Tile, walk
from offcut.schedule.decisions import (
    ANY,
    Bind,
    Choose,
    Cover,
    Order,
    Schedule,
    Split,
    each_decision,
)


@dataclass(frozen=True)
class LoopNames:
    """What `schedule` calls loops; its splits, and the stages that it names, are all that is read of it."""

    schedule: Schedule

    @lazy_property
    def _splits(self) -> dict[str, list[Split]]:
        """Return the splits of an axis, of whichever stage."""
        found: dict[str, list[Split]] = {}
        for step in each_decision(self.schedule.steps):
            if isinstance(step, Split):
                found.setdefault(step.axis, []).append(step)
        return found

    @lazy_property
    def _stages(self) -> frozenset[str]:
        """Return the stages whose loops decisions name."""
        steps = each_decision(self.schedule.steps)
        return frozenset(step.stage for step in steps if isinstance(step, Split | Order | Cover))

    @lazy_property
    def _alternatives(self) -> dict[str, list[frozenset[str]]]:
        """Return the axes that each alternative for a stage splits, by the stage."""
        found: dict[str, list[frozenset[str]]] = {}
        chosen = (step for step in self.schedule.steps if isinstance(step, Choose))
        for option in (option for step in chosen for option in step.options):
            for stage in {step.stage for step in option.steps if isinstance(step, Cover)}:
                splits = (step for step in option.steps if isinstance(step, Split))
                axes = frozenset(step.axis for step in splits if step.stage == stage)
                found.setdefault(stage, []).append(axes)
        return found

    def stage_of(self, stmt: Stmt) -> str:
        """Return the stage by which a loop is shown: the last one in it of which something is decided, else the last."""
        stored = stages_of(stmt)
        named = (buffer for buffer in reversed(stored) if buffer in self._stages)
        return next(named, stored[-1] if stored else "")

    def names_of(self, stmt: For | Tile, stage: str) -> tuple[str, ...]:
        """Return what a loop is called as one of `stage`, or the loops of a tile; several where alternatives call it otherwise."""
        if isinstance(stmt, Tile):
            each = (self._inside(axis.iter, axis.start, stage) for axis in stmt.axes)
            return tuple(name for names in each for name in names)
        started = _tiles_of(stmt) if self._splits else None
        if started is None:
            return self._inside(stmt.iter, stmt.lo, stage)
        axis, start = started
        splits = self._splits_of(axis, stage)
        step = dict(ix.to_linear(start).terms).get(Var(stmt.iter))
        return tuple(dict.fromkeys(_level(split, step) for split in splits)) or (axis,)

    def _inside(self, axis: str, start: Expr, stage: str) -> tuple[str, ...]:
        """Return what the loop over the coordinates of an axis is called, which begins at `start`."""
        first = ix.literal_value(start) is not None
        names = []
        for split in self._splits_of(axis, stage):
            alone = first and split.levels[-1].room is not None
            names.append(split.names[0 if alone else -1])
        if first and any(axis not in split for split in self._alternatives.get(stage, ())):
            names.append(axis)
        return tuple(dict.fromkeys(names)) or (axis,)

    def _splits_of(self, axis: str, stage: str) -> list[Split]:
        return [one for one in self._splits.get(axis, ()) if one.stage in (ANY, stage)]

    def known(self, program: Program, stage: str) -> tuple[str, ...]:
        """Return what the loops of a stage are called, in the order of the text, those of tiles too."""
        found: dict[str, None] = {}
        for stmt in walk(program.body):
            if isinstance(stmt, For | Tile) and stage in stages_of(stmt):
                found |= dict.fromkeys(self.names_of(stmt, stage))
        return tuple(found)

    def says(self, bind: Bind) -> bool:
        """Return whether some decision makes, or lists, the loop of a bind: it may be that of one iteration."""
        return any(
            step.stage in (ANY, bind.stage)
            and bind.axis in (step.names if isinstance(step, Split) else step.loops)
            for step in each_decision(self.schedule.steps)
            if isinstance(step, Split | Order)
        )


def stages_of(stmt: Stmt) -> tuple[str, ...]:
    """Return the arrays that a statement computes, in the order of their last stores; scalars where it computes nothing else."""
    stored: dict[str, bool] = {}
    for one in walk((stmt,)):
        if isinstance(one, Store):
            stored.pop(one.buffer, None)
            stored[one.buffer] = bool(one.index)
    arrays = tuple(buffer for buffer, indexed in stored.items() if indexed)
    return arrays or tuple(stored)


def _tiles_of(loop: For) -> tuple[str, Expr] | None:
    """Return the axis of the tiles that a loop counts, and where these start; None: it runs through coordinates."""
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
    """Return which loop of a split counts tiles that are `step` apart."""
    outer = (
        name
        for name, level in zip(split.names, split.levels[:-1], strict=False)
        if level.tile == step
    )
    return next(outer, split.names[-2])


@dataclass(frozen=True)
class Binds:
    """Which loops the decisions of a schedule bind to a unit.

    lines   that do; of ``*``: whichever the target chooses
    forced  those of them that it follows where it would choose otherwise
    """

    schedule: Schedule
    lines: tuple[Bind, ...]
    forced: tuple[Bind, ...] = ()
    names: LoopNames = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", LoopNames(self.schedule))

    @staticmethod
    def of(schedule: Schedule, unit: str | None, tree: bool = False) -> Binds:
        """Return what a schedule binds to a unit; of lanes, to those that add up, or to the others."""
        lines = (
            step
            for step in schedule.steps
            if isinstance(step, Bind) and (step.unit, step.tree and unit == LANE) == (unit, tree)
        )
        return Binds(schedule, tuple(lines))

    def take(self, stmt: For | Tile) -> bool:
        """Return whether a loop may run so: it is named, or it is the target's choice."""
        return any(line.stage == ANY for line in self.lines) or self._name(self.lines, stmt)

    def force(self, stmt: For | Tile) -> bool:
        """Return whether a loop runs so where the target would choose otherwise."""
        return self._name(self.forced, stmt)

    def name(self, line: Bind, stmt: For | Tile) -> bool:
        """Return whether a line is about a loop."""
        return line.stage in stages_of(stmt) and line.axis in self.names.names_of(stmt, line.stage)

    def _name(self, lines: tuple[Bind, ...], stmt: For | Tile) -> bool:
        own = [line for line in lines if line.stage != ANY]
        return bool(own) and any(self.name(line, stmt) for line in own)

    def bind_some(self, stage: str) -> bool:
        """Return whether some loop of a stage may run so."""
        return any(line.stage in (ANY, stage) for line in self.lines)

    def lines_of(self, stmt: For | Tile) -> Iterator[Bind]:
        """Yield the lines that bind a loop alone, one for each name that it has."""
        stage = self.names.stage_of(stmt)
        like = self.lines[0]
        for name in self.names.names_of(stmt, stage):
            yield Bind(stage, name, like.unit, like.tree)


EVERY = Binds(Schedule("", ()), (Bind(ANY, ANY, None),))
"""Whichever loops the target chooses."""
NO_LOOP = Binds(Schedule("", ()), ())
"""None but those that are marked."""
