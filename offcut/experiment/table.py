"""What was measured, one record a cell, and its one printer: tables, JSON, CSV, lines of a picture."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from offcut.experiment.limits import Bound
from offcut.experiment.timing import Ratio, Timing, paired_ratio

WIDTH = 200
"""Columns of the printed tables where there is no terminal that has a width of its own."""

OVER_BUDGET = "> budget"
"""The note of a cell that was left out because one call would take too long."""

OVER = "over the best peer"
"""What `Row.over` is called where nothing else is said."""

CSV_COLUMNS = (
    *("contender", "way", "flop", "gflops", "seconds", "seconds_q1", "seconds_q3", "calls"),
    *("rounds", "ratio_to_best_peer", "note"),
)
"""Columns of the CSV after one column per size."""


@dataclass(frozen=True, slots=True)
class Unit:
    """How seconds are shown: what is done in a second, or the seconds that it takes.

    scale  of the number that is shown
    """

    name: str
    scale: float
    rate: bool = False

    def of(self, seconds: float, amount: int) -> float:
        """The number for `amount` done in `seconds`."""
        return (amount / seconds if self.rate else seconds / amount) * self.scale


GFLOPS, GBS = Unit("GFLOP/s", 1e-9, rate=True), Unit("GB/s", 1e-9, rate=True)
MS, US, NS = Unit("ms", 1e3), Unit("µs", 1e6), Unit("ns", 1e9)


@dataclass(frozen=True, slots=True)
class Cell:
    """One contender in one row.

    way      which of the contender's ways was measured
    timing   None when it was not
    note     why it was not measured
    wrong    what is wrong with its values; empty when they are right
    """

    contender: str
    way: str = ""
    timing: Timing | None = None
    note: str = ""
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Over:
    """Time of another over time of a row's first cell: above 1, the first is faster.

    where  the row, and the way of the other one
    """

    where: str
    ratio: Ratio


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one task.

    group    title of its table
    cells    one a contender; the first is what the bench is about
    own      how many cells, from the first on, are not peers
    amount   of what `unit` counts, in one call
    bound    the physical limit, measured in the same run; None where none is known
    sizes    extents by name
    moved    bytes of the operands and the result
    asked    of `over`, in words
    """

    group: str
    label: str
    cells: tuple[Cell, ...]
    unit: Unit
    amount: int = 1
    own: int = 1
    bound: Bound | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    moved: int = 0
    asked: str = ""

    @property
    def where(self) -> str:
        """The row among those of all tables."""
        return f"{self.group}: {self.label}"

    @property
    def timing(self) -> Timing | None:
        """Of the first cell."""
        return self.cells[0].timing

    @property
    def share(self) -> float | None:
        """Of the limit, what the first cell reaches."""
        if self.timing is None or self.bound is None:
            return None
        return self.bound.seconds / self.timing.seconds

    def best(self, *names: str) -> Cell | None:
        """The fastest of the contenders `names`, of all peers where none is named; None: none."""
        among = [c for c in self.cells if c.contender in names] if names else self.cells[self.own :]
        timed = [(cell.timing.seconds, cell) for cell in among if cell.timing is not None]
        return min(timed, key=lambda pair: pair[0])[1] if timed else None

    def over(self, *names: str) -> Over | None:
        """Time of the `best` over that of the first cell; None where either was not measured."""
        best = self.best(*names)
        if best is None or best.timing is None or self.timing is None:
            return None
        where = ", ".join(filter(None, (self.where, best.way)))
        return Over(where, paired_ratio(best.timing, self.timing))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a bench is asked for: speed over the best peer, and share of the limit; None: nothing.

    mean   geometric mean of the speed over the best of all peers, per cell
    worst  its least
    share  geometric mean of the share of the limit
    """

    mean: float | None = None
    worst: float | None = None
    share: float | None = None


def wide_console(stderr: bool = False) -> Console:
    """The screen, or a file that is wide enough for the tables."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(width=WIDTH, stderr=stderr)


def table(rows: Sequence[Row], over: str = OVER, others: Sequence[str] = ()) -> Table:
    """The rows of one group: everybody's median, the ratio, the limit, the spread of the first.

    over    what the column of `Row.over` is called
    others  contenders that it compares the first with; peers where there are none
    """
    bounded, asked = (any(getattr(row, name) for row in rows) for name in ("bound", "asked"))
    names = (cell.contender for cell in rows[0].cells)
    shown = Table(
        *("", *names, over, *(("limit", "by", "of it") if bounded else ()), "spread"),
        *(("asked",) if asked else ()),
        title=f"{rows[0].group}, {rows[0].unit.name}",
    )
    for row in rows:
        best, ratio = row.best(*others), row.over(*others)
        figures = [
            f"[bold]{_figure(row, cell)}[/bold]" if cell is best else _figure(row, cell)
            for cell in row.cells
        ]
        limit: tuple[str, ...] = ()
        if row.bound is not None:
            at_best = _number(row.unit.of(row.bound.seconds, row.amount))
            limit = at_best, row.bound.by, "–" if row.share is None else f"{row.share:.0%}"
        spread = "–" if row.timing is None else f"{row.timing.spread:.0%}"
        told = "–" if ratio is None else str(ratio.ratio)
        shown.add_row(
            escape(row.label), *figures, told, *limit, spread, *([row.asked] if asked else [])
        )
    return shown


def in_a_line(row: Row) -> str:
    """A row in words: everybody's median."""
    figures = ", ".join(f"{cell.contender} {_figure(row, cell)}" for cell in row.cells)
    return f"{row.label}: {figures} {row.unit.name}"


Line = tuple[str, str, str, str]
"""Of a summary: what, asked, measured, where."""


def mean_line(what: str, asked: float | None, found: Sequence[Over], of: int) -> Line:
    """The geometric mean of ratios, of which there could be `of`."""
    value = statistics.geometric_mean(one.ratio.value for one in found) if found else None
    measured = "not measured" if value is None else f"{value:.3f}"
    return what, _asked(asked), measured, f"{len(found)} of {of} cells"


def worst_line(what: str, asked: float | None, found: Sequence[Over]) -> Line:
    """The least of some ratios."""
    worst = min(found, key=lambda one: one.ratio.value, default=None)
    return what, _asked(asked), *(("–", "") if worst is None else (str(worst.ratio), worst.where))


def overs(rows: Sequence[Row], *names: str) -> list[Over]:
    """`Row.over` of all rows that have it."""
    return [over for row in rows if (over := row.over(*names)) is not None]


def summary(rows: Sequence[Row], asked: Asked, over: str = OVER) -> Iterator[Line]:
    """What is asked of the first cells and what was measured, one line each."""
    found = overs(rows)
    if found:
        yield mean_line(f"geometric mean {over}", asked.mean, found, len(rows))
        yield worst_line("worst cell", asked.worst, found)
    shares = [(row.share, row) for row in rows if row.share is not None and row.bound is not None]
    if shares:
        mean = statistics.geometric_mean(share for share, _ in shares)
        least, row = min(shares, key=lambda pair: pair[0])
        by = "" if row.bound is None else f", by {row.bound.by}"
        limit = "–" if asked.share is None else f"≥ {asked.share:.0%}"
        where = f"least {least:.0%}, {row.where}{by}"
        yield "geometric mean of the limit", limit, f"{mean:.0%}", where
    without = [row.label for row in rows if row.timing is None]
    if without:
        yield "cells without it", "0", str(len(without)), ", ".join(without[:6])


def as_json(row: Row) -> dict[str, Any]:
    """Everything that is known of a row."""
    over, best, bound = row.over(), row.best(), row.bound
    return {
        "group": row.group,
        "cell": row.label,
        "sizes": dict(row.sizes),
        "amount": row.amount,
        "unit": row.unit.name,
        "bytes": row.moved,
        "limit_seconds": None if bound is None else bound.seconds,
        "limit_by": None if bound is None else bound.by,
        "share_of_limit": row.share,
        "best_peer": None if best is None else best.way,
        "ratio_to_best_peer": None if over is None else list(astuple(over.ratio)),
        "contenders": {cell.contender: _measured(cell) for cell in row.cells},
    }


def to_csv(rows: Sequence[Row], facts: Sequence[str]) -> str:
    """One line per cell of rows in flop, below comment lines: where and how it was measured."""
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in facts)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*rows[0].sizes, *CSV_COLUMNS))
    for row in rows:
        writer.writerows((*row.sizes.values(), *_fields(row, cell)) for cell in row.cells)
    return text.getvalue()


def lines(rows: Sequence[Row], letter: str) -> dict[str, list[tuple[float, float]]]:
    """Contender -> points of a picture: the extent of `letter` (``flop``: the amount), the figure."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        at = float(row.sizes.get(letter, row.amount))
        for cell in row.cells:
            points = found.setdefault(cell.contender, [])
            if cell.timing is not None:
                points.append((at, row.unit.of(cell.timing.seconds, row.amount)))
    return found


def _measured(cell: Cell) -> dict[str, Any]:
    if cell.timing is None:
        return {"note": cell.note, "wrong": cell.wrong}
    return {
        "way": cell.way,
        "seconds": cell.timing.seconds,
        "quartiles": list(cell.timing.quartiles),
        "calls": cell.timing.calls,
        "rounds": len(cell.timing.samples),
    }


def _fields(row: Row, cell: Cell) -> Iterator[object]:
    yield from (cell.contender, cell.way, row.amount)
    timing, best = cell.timing, row.best()
    if timing is None:
        yield from ("",) * 7
    else:
        yield f"{row.unit.of(timing.seconds, row.amount):.4g}"
        yield from (f"{seconds:.4e}" for seconds in (timing.seconds, *timing.quartiles))
        yield from (timing.calls, len(timing.samples))
        peer = None if best is None else best.timing
        yield "" if peer is None else f"{peer.seconds / timing.seconds:.4f}"
    yield cell.note


def _figure(row: Row, cell: Cell) -> str:
    if cell.timing is None:
        return "WRONG" if cell.wrong else OVER_BUDGET if cell.note == OVER_BUDGET else "–"
    return _number(row.unit.of(cell.timing.seconds, row.amount))


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _asked(value: float | None) -> str:
    return "–" if value is None else f"≥ {value:g}"
