"""The goals of a study: the speed over others, the part of the limit, the regret that its file asks for, beside what was measured."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.experiment.timing import Ratio
from offcut.studies.errors import check_keys, number_of, refusal, text_of, texts_of
from offcut.studies.rows import Row
from offcut.studies.statistics import geometric_mean

KEYS = ("contender", "over", "operators", "beside", "mean", "worst", "share", "regret")
MAX_LISTED_ROWS = 6
"""Rows that a line names."""

Line = tuple[str, str, str, str]
"""What is asked for, how much of it, what was measured, and where."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked of a contender; None: nothing, and what was measured is said all the same.

    contender  names, of which the fastest in each row counts
    over       names of those that it is compared with, of which the fastest in each row counts; none: all peers
    operators  a regular expression that is looked for in the names of operators
    beside     in place of other contenders another row: its sizes, and speed is that per operation or byte; or its operator
    mean       geometric mean of the speed over the others, at least; worst: of every row
    share      geometric mean of the part of the limit that it reaches, at least
    regret     by which part of the time of the fastest of `over` it may be longer, in every row
    """

    contender: tuple[str, ...]
    over: tuple[str, ...] = ()
    operators: str = ""
    beside: Mapping[str, int] | str | None = None
    mean: float | None = None
    worst: float | None = None
    share: float | None = None
    regret: float | None = None

    def ratio(self, row: Row, rows: Sequence[Row]) -> tuple[Ratio, str] | None:
        """Return the speed of the contender over what it is compared with, and that; None where one of the two lacks."""
        own = row.fastest(self.contender)
        if self.beside is not None:
            return self._beside(row, own, rows)
        best = row.fastest(self.over or row.peers)
        ratio = row.over(own, best)
        if ratio is None or best is None:
            return None
        return ratio, row.samples[best].way or best

    def _beside(self, row: Row, own: str | None, rows: Sequence[Row]) -> tuple[Ratio, str] | None:
        """Return the speed over that of another row, per operation or byte where the sizes differ."""
        other = next((one for one in rows if self._is_beside(one, row)), None)
        if other is None or other is row or own is None or own not in other.samples:
            return None
        ratio = Row(row.operator, "", {"": row.samples[own], "other": other.samples[own]}).over(
            "", "other"
        )
        if ratio is None:
            return None
        factor = 1.0
        if not isinstance(self.beside, str):
            this, base = row.samples[own], other.samples[own]
            factor = (this.flop or this.moved) / (base.flop or base.moved)
        return Ratio(*(factor * x for x in (ratio.value, ratio.low, ratio.high))), other.label

    def _is_beside(self, other: Row, row: Row) -> bool:
        if isinstance(self.beside, str):
            return other.operator == self.beside and other.sizes == row.sizes
        return other.operator == row.operator and dict(other.sizes) == {
            **row.sizes,
            **(self.beside or {}),
        }

    def lines(self, rows: Sequence[Row]) -> Iterator[Line]:
        """Yield what is asked and what was measured in the rows of its operators."""
        own = [row for row in rows if re.search(self.operators, row.operator)]
        pairs = [(row, found) for row in own if (found := self.ratio(row, rows)) is not None]
        what = f"{' or '.join(self.contender)} over {self._others}"
        if self.operators:
            what += f", {self.operators}"
        nothing = (self.mean, self.worst, self.share, self.regret) == (None,) * 4
        if pairs and (nothing or self.mean is not None):
            mean = geometric_mean([one for _, (one, _) in pairs], [1.0] * len(pairs))
            measured = "–" if mean is None else str(mean.ratio)
            yield f"{what}: geometric mean", _least(self.mean), measured, f"{len(pairs)} rows"
        if pairs and (nothing or self.worst is not None):
            row, (worst, other) = min(pairs, key=lambda pair: pair[1][0].value)
            yield f"{what}: the least", _least(self.worst), str(worst), f"{row.label}, {other}"
        if pairs and self.regret is not None:
            yield from self._regret_lines(what, pairs)
        if (nothing and not self.over and self.beside is None) or self.share is not None:
            yield from self._share_lines(own)
        without = [row.label for row in own if row.fastest(self.contender) is None]
        if without:
            yield f"{' or '.join(self.contender)}: rows without it", "0", *_counted(without)

    @property
    def _others(self) -> str:
        if self.beside is not None:
            return (
                self.beside
                if isinstance(self.beside, str)
                else ", ".join(f"{name}={extent}" for name, extent in self.beside.items())
            )
        return (
            f"the best of {len(self.over)}"
            if self.over[1:]
            else "".join(self.over) or "the best peer"
        )

    def _regret_lines(
        self, what: str, pairs: Sequence[tuple[Row, tuple[Ratio, str]]]
    ) -> Iterator[Line]:
        """Yield the rows that take longer than is asked by their whole interval, and the one that takes longest."""
        assert self.regret is not None
        times = [(ratio.inverse, row) for row, (ratio, _) in pairs]
        beyond = [f"{row.label}, {time}" for time, row in times if time.low > 1 + self.regret]
        yield f"time of {what}: rows beyond {self.regret:.0%}", "0", *_counted(beyond)
        most, row = max(times, key=lambda pair: pair[0].value)
        yield f"time of {what}: the most", "–", str(most), row.label

    def _share_lines(self, rows: Sequence[Row]) -> Iterator[Line]:
        shares = [(share, row) for row in rows if (share := row.share(row.fastest(self.contender)))]
        if not shares:
            return
        mean = statistics.geometric_mean(share for share, _ in shares)
        least, row = min(shares, key=lambda pair: pair[0])
        by = next(one.limit_by for one in row.measured)
        asked = "–" if self.share is None else f"≥ {self.share:.0%}"
        where = f"least {least:.0%}, {row.label}, by {by}"
        yield f"{' or '.join(self.contender)}: of the limit", asked, f"{mean:.0%}", where


def _least(value: float | None) -> str:
    return "–" if value is None else f"≥ {value:g}"


def _counted(labels: Sequence[str]) -> tuple[str, str]:
    more = "; …" if labels[MAX_LISTED_ROWS:] else ""
    return str(len(labels)), "; ".join(labels[:MAX_LISTED_ROWS]) + more


def read_goals(given: Any, names: Sequence[str], baseline: str, file: Path) -> tuple[Goal, ...]:
    """Return the goals of a study's file, its tables ``[[asked]]``.

    names     of the contenders
    baseline  the contender of whom a table asks that names none

    Raises DescribeError for what is none, with its place in the file.
    """
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise refusal(file.name, "asked is no list of tables", "[[asked]]\nmean = 1.1")
    return tuple(
        _goal(one, names, baseline, f"{file.name}, asked[{number}]")
        for number, one in enumerate(given)
    )


def _goal(table: Mapping[str, Any], names: Sequence[str], baseline: str, at: str) -> Goal:
    check_keys(table, KEYS, at)
    contender = _names(table, "contender", names, at) or (baseline,)
    over = _names(table, "over", names, at)
    beside = table.get("beside")
    if beside is not None and not isinstance(beside, str | Mapping):
        example = 'beside = {m = 1024} or beside = "another operator"'
        raise refusal(f"{at}.beside", f"{beside!r} is neither sizes nor an operator", example)
    operators = text_of(table, "operators", at)
    try:
        re.compile(operators)
    except re.error as error:
        because = f"{operators!r} is no regular expression: {error}"
        raise refusal(f"{at}.operators", because) from error
    mean, worst, share, regret = (
        number_of(table, key, at, 1.0, 0.0) if key in table else None
        for key in ("mean", "worst", "share", "regret")
    )
    return Goal(contender, over, operators, beside, mean, worst, share, regret)


def _names(table: Mapping[str, Any], key: str, names: Sequence[str], at: str) -> tuple[str, ...]:
    """Return the contenders under a key, a name or several; none where there is no such key."""
    if key not in table:
        return ()
    found = texts_of(table[key], f"{at}.{key}", f'{key} = "{names[0]}"')
    for name in found:
        if name not in names:
            raise refusal(f"{at}.{key}", f"there is no contender {name!r}", ", ".join(names))
    return found
