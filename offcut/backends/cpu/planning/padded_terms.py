"""Which terms of sums that padding makes zero are left out: as a schedule says, or as many as microkernels allow.

    separate Y 1         loops over the terms end where padding begins for all rows of a tile
    separate Y.x_in 1    tiles are of as many rows as a term has, too
    separate Y 0         all terms stay

A schedule that says nothing leaves it to the target, and what comes back says so. Terms are added in one order in each case.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from offcut import debug
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.planning.cover_report import report_covers
from offcut.backends.options import Options
from offcut.core.analysis import stored_arrays
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import Expr, variables
from offcut.core.program import For, Form, If, Kind, Program, Stmt, Store, Tile, walk
from offcut.core.traversal import map_blocks
from offcut.errors import PartitionError
from offcut.proof.normal_forms.condition_hoisting import bound, hoist_conditions
from offcut.proof.normal_forms.zero_terms import conditions, guard_zero_terms
from offcut.schedule import Bind, LoopNames, Schedule, Separate, is_of_loops, with_source_line


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
            if rows and _count_conditions_in_tiles(result) > _count_conditions_in_tiles(reordered):
                continue  # lanes that are off take as long as a product with zero
            if not report_covers(result, self.host, self.options.reassociate).refused:
                lines = (self.line(reordered, stage, rows) for stage in sums)
                named = self.with_separations(lines) if result is not reordered else self.schedule
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

    def with_separations(self, lines: Iterable[Separate]) -> Schedule:
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
        with with_source_line(self.schedule, line):
            raise PartitionError(
                "schedule",
                f"cannot leave out terms of {what} that padding makes zero",
                because=because,
                help=help or ("the schedule without this line",),
            )


# A cut program -> the same without the products that padding makes zero.
#
#     tile x in 14*t +: 14, o in 32*u +: 32               tile x in 14*t +: 14, o in 32*u +: 32
#       Y[y, x, o] = 0.0                                    Y[y, x, o] = 0.0
#       for r in 0:3                                      for s in 0:3
#         for s in 0:3                             ->       tile … where x >= 1 - s and x < w - s + 1
#           for c in 0:512                                    for r in max(0, 1 - y):min(3, h - y + 1)
#             Y[y, x, o] += S[y + r, x + s, c] * …              for c in 0:512
#                                                                 Y[y, x, o] += S[y + r, x + s, c] * …
#
# A condition on a loop of the sum and on what stands around the tile limits the loop. One on a loop of the
# sum and on the rows of the tile limits these: the loop goes around tiles of as many rows as there are.
# Terms are added in the same order whichever of both it is, and where they are not left out.


def padded_sums(program: Program) -> tuple[str, ...]:
    """Return the sums of which padding makes terms zero, if all numbers are finite, in the order of the text."""
    return tuple(dict.fromkeys(store.buffer for store in conditions(program, finite=True)))


def reorder_padded_sums(program: Program, stages: Container[str]) -> Program:
    """Return `program` with these sums in the order in which terms that padding makes zero can be left out."""
    conditions_by_store = {
        s: one for s, one in conditions(program, finite=True).items() if s.buffer in stages
    }

    def reorder(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(
            one
            for stmt in body
            for one in _hoist_conditions(stmt, conditions_by_store) or (map_blocks(stmt, reorder),)
        )

    return replace(program, body=reorder(program.body)) if conditions_by_store else program


def leave_out_padding(program: Program, rows: bool, stages: Container[str]) -> Program:
    """Return `program`, whose sums are in that order, without terms that padding makes zero; itself if there are none.

    rows    whether tiles are split for their rows; else only what all rows of a tile have in common is left out
    stages  the sums
    """
    private = {buffer.name for buffer in program.buffers if buffer.kind is Kind.PRIVATE}

    def split_tiles(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(
            part
            for stmt in body
            for part in (
                _split_tile(stmt, private)
                if isinstance(stmt, Tile)
                else (map_blocks(stmt, split_tiles),)
            )
        )

    guarded = guard_zero_terms(program, rows, stages)
    if guarded is program:
        return program
    hoisted = hoist_conditions(guarded)
    return replace(hoisted, body=split_tiles(hoisted.body))


def row_axes(program: Program, stage: str) -> tuple[tuple[Tile, str], ...]:
    """Return the tiles of a sum with an axis each on which padding makes terms zero."""
    conditions_by_store = conditions(program)
    return tuple(
        (tile, axis.iter)
        for tile in walk(program.body)
        if isinstance(tile, Tile)
        for store in walk(tile.body)
        if isinstance(store, Store) and store.buffer == stage and store in conditions_by_store
        for axis in tile.axes
        if axis.iter in variables(conditions_by_store[store])
    )


def _count_conditions_in_tiles(program: Program) -> int:
    """Return how many statements inside of tiles run under a condition."""
    tiles = (stmt for stmt in walk(program.body) if isinstance(stmt, Tile))
    return sum(isinstance(stmt, If) for tile in tiles for stmt in walk(tile.body))


def _hoist_conditions(stmt: Stmt, conditions_by_store: Mapping[Store, Expr]) -> tuple[Stmt, ...]:
    """A sum with the loops that its conditions name in front, those that are asked together with later axes of the result first;
    nothing where it is none.
    """
    loops, inner = _chain(stmt)
    if not loops or not isinstance(inner, Store) or inner not in conditions_by_store:
        return ()
    own = [loop for loop in loops if loop.iter not in set().union(*map(variables, inner.index))]
    named = [loop for loop in own[:-1] if loop.iter in variables(conditions_by_store[inner])]
    late = [
        (_last_axis(loop.iter, inner, conditions_by_store[inner]), at)
        for at, loop in enumerate(named)
    ]
    named = [named[at] for _, at in sorted(late, reverse=True)]
    rest = [loop for loop in loops if loop not in named]
    first = len([loop for loop in loops if loop not in own])
    return _nest([*rest[:first], *named, *rest[first:]], (inner,))


def _last_axis(name: str, store: Store, condition: Expr) -> int:
    """The last axis of what is stored that a condition asks together with an iterator; -1 where it asks this alone."""
    other_variables = set().union(
        *(variables(one) for one in conjuncts(condition) if name in variables(one))
    )
    axes = (axis for axis, part in enumerate(store.index) if variables(part) & other_variables)
    return max(axes, default=-1)


def _split_tile(tile: Tile, private: set[str]) -> tuple[Stmt, ...]:
    """A tile whose sum asks its rows, as tiles of the rows at which it holds."""
    axes = {axis.iter for axis in tile.axes}
    for place, stmt in enumerate(tile.body):
        loops, inner = _chain(stmt)
        if not loops or not isinstance(inner, If) or inner.other:
            continue
        plain = tile.where is None and tile.form is Form.FULL
        limits = [_limit(atom, axes) for atom in conjuncts(inner.condition)]
        if not plain or None in limits or private & stored_arrays(tile.body):
            break
        where = conjunction([limit for limit in limits if limit is not None])
        some = replace(tile, body=inner.then, where=where)
        parts: list[Stmt] = []
        if before := tile.body[:place]:
            parts.append(replace(tile, body=before, cover=None))
        parts += _nest(loops, (some,))
        if after := tile.body[place + 1 :]:
            parts.append(replace(tile, body=after, cover=None))
        return tuple(parts)
    return (tile,)


def _limit(atom: Expr, axes: set[str]) -> Expr | None:
    """A condition on one axis of a tile as a limit of it; None where it is on none, or on several."""
    tile_axes = variables(atom) & axes
    return bound(atom, *tile_axes) if len(tile_axes) == 1 else None


def _chain(stmt: Stmt) -> tuple[list[For], Stmt]:
    """The loops that stand around one statement alone, outermost first, and that statement."""
    loops: list[For] = []
    while isinstance(stmt, For) and len(stmt.body) == 1:
        loops.append(stmt)
        stmt = stmt.body[0]
    return loops, stmt


def _nest(loops: Sequence[For], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body
