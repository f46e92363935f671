"""Which terms of sums that padding makes zero are left out: as a schedule says, or as many as microkernels allow.

    separate Y 1         loops over the terms end where padding begins for all rows of a tile
    separate Y.x_in 1    tiles are of as many rows as a term has, too
    separate Y 0         all terms stay

A schedule that says nothing leaves it to the target, and what comes back says so. Terms are added in one order in each case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from offcut import debug
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.planning.cover_report import report_covers
from offcut.backends.cpu.planning.padding_elimination import (
    leave_out_padding,
    padded_sums,
    reorder_padded_sums,
    row_axes,
)
from offcut.backends.options import Options
from offcut.core.program import Program, Tile
from offcut.errors import PartitionError
from offcut.schedule import Bind, LoopNames, Schedule, Separate, at_line, is_of_loops


class PaddedTerms:
    """The sums of a computation in nests of which padding makes terms zero, and which of these terms are left out.

    lines  the decisions of `schedule` about them
    """

    def __init__(self, loops: Program, host: Host, options: Options, schedule: Schedule) -> None:
        self.loops, self.host, self.options, self.schedule = loops, host, options, schedule
        self.lines = {
            step.stage: step
            for step in schedule.steps
            if isinstance(step, Separate) and not is_of_loops(step)
        }

    def leave_out(self) -> tuple[Program, Schedule]:
        """Return the loops without these terms, if microkernels can compute the others, and the schedule that says so.

        Raises PartitionError, with the line, for a decision that does not apply.
        """
        sums = padded_sums(self.loops) if self.options.reassociate else ()
        for line in self.lines.values():
            if line.stage not in sums:
                self.refuse(line, "padding makes no terms of a sum of that name zero")
        if self.options.keep_padding_terms:
            return self.loops, self.schedule
        if not self.lines:
            return self.default(sums)
        reordered = reorder_padded_sums(self.loops, sums)
        stages = {line.stage for line in self.lines.values() if line.copies}
        by_row = {stage for stage in stages if self.lines[stage].axis}
        for stage in sorted(by_row):
            tiles = row_axes(reordered, stage)
            names = {n for tile, axis in tiles for n in self.names(tile, axis, stage)}
            if self.lines[stage].axis not in names:
                loops = ", ".join(sorted(names)) or "outside of tiles"
                help = (
                    *(f"separate {stage}.{name} 1" for name in sorted(names)),
                    f"separate {stage} 0",
                )
                because = f"conditions on its terms are of the loops {loops}"
                self.refuse(self.lines[stage], because, *help)
        result = leave_out_padding(reordered, True, by_row) if by_row else reordered
        if stages - by_row:
            result = leave_out_padding(result, False, stages - by_row)
        for why in report_covers(result, self.host, self.options.reassociate).refused.values():
            self.refuse(next(iter(self.lines.values())), why)
        return self.log(result), self.schedule

    def default(self, sums: tuple[str, ...]) -> tuple[Program, Schedule]:
        """Return the loops without as many terms as microkernels allow."""
        reordered = reorder_padded_sums(self.loops, sums)
        if reordered is self.loops:
            return self.loops, self.schedule
        for rows in (True, False):
            result = leave_out_padding(reordered, rows, sums)
            if not report_covers(result, self.host, self.options.reassociate).refused:
                lines = (self.line(reordered, stage, rows) for stage in sums)
                named = self.named(lines) if result is not reordered else self.schedule
                return self.log(result), named
        if not report_covers(reordered, self.host, self.options.reassociate).refused:
            return self.log(reordered), self.schedule
        return self.loops, self.schedule

    def line(self, reordered: Program, stage: str, rows: bool) -> Separate:
        """Return the decision that leaves out terms of a sum; of each row of a tile where `rows` says so."""
        tiles = row_axes(reordered, stage) if rows else ()
        names = (name for tile, axis in tiles for name in self.names(tile, axis, stage))
        return Separate(1, stage, next(names, ""))

    def names(self, tile: Tile, axis: str, stage: str) -> tuple[str, ...]:
        """Return the names of the loop of a tile along an axis."""
        (tile_axis,) = (one for one in tile.axes if one.iter == axis)
        return LoopNames(self.schedule).names_of(replace(tile, axes=(tile_axis,)), stage)

    def named(self, lines: Iterable[Separate]) -> Schedule:
        """Return the schedule with these decisions before its binds."""
        steps = self.schedule.steps
        places = (place for place, step in enumerate(steps) if isinstance(step, Bind))
        at = next(places, len(steps))
        return replace(self.schedule, steps=(*steps[:at], *lines, *steps[at:]))

    def log(self, result: Program) -> Program:
        """Return `result`, logged."""
        debug.passed("padding", result, self.loops)
        return result

    def refuse(self, line: Separate, because: str, *help: str) -> NoReturn:
        """Raise the error of a line; `help` says what is accepted in its place."""
        what = f"{line.stage}.{line.axis}" if line.axis else line.stage
        with at_line(self.schedule, line):
            raise PartitionError(
                "schedule",
                f"cannot leave out terms of {what} that padding makes zero",
                because=because,
                help=help or ("the schedule without this line",),
            )
