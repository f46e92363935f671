"""The goals of a study: minimum speedups, shares of the machine's limit and maximum regrets, compared with measured rows."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.experiment.timing import Ratio
from offcut.studies.errors import Place, check_keys, number_of, pattern_of, refusal, texts_of
from offcut.studies.rows import Row
from offcut.studies.sizes import Point
from offcut.studies.statistics import Mean, geometric_mean, geometric_mean_of_pairs, ratio
from offcut.studies.table import plural

KEYS = ("contender", "over", "operators", "reference", "mean", "worst", "share", "regret")
THRESHOLDS = KEYS[4:]
"""The keys of which a goal has one at least."""
MAX_LISTED_ROWS = 6
"""Row labels that one line lists at most."""

Line = tuple[str, str, str, str]
"""A line of the report: the quantity, its goal, the measured value, and the row or the number of rows."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of a contender. Of a study without goals the baseline has one without thresholds: the measured values are reported alone.

    contender  names; the fastest in each row counts
    over       names of the baselines; the fastest in each row counts; empty: all peers
    operators  regular expression that selects operators by name; "": all
    reference  compare with another row in place of `over`: the sizes of another row of the same operator (speed is then per
               operation, or per byte), or the name of another operator at the same sizes
    mean       minimum geometric mean of the speedup, of rows that count once each; worst: minimum speedup in every row
    share      minimum geometric mean of the share of the machine's limit, from 0 to 1
    regret     maximum extra time over the fastest of `over`, as a fraction of its time, in every row
    """

    contender: tuple[str, ...]
    over: tuple[str, ...] = ()
    operators: str = ""
    reference: Mapping[str, int] | str | None = None
    mean: float | None = None
    worst: float | None = None
    share: float | None = None
    regret: float | None = None

    def ratio(self, row: Row, rows: Sequence[Row]) -> tuple[Ratio, str] | None:
        """Return the speedup in a row and the name of the baseline; None if either was not measured."""
        contender = row.fastest(self.contender)
        if self.reference is not None:
            return self._reference_ratio(row, contender, rows)
        best = row.fastest(self.over or row.peers)
        over = row.over(contender, best)
        return None if over is None or best is None else (over, row.samples[best].way or best)

    def _reference_ratio(
        self, row: Row, contender: str | None, rows: Sequence[Row]
    ) -> tuple[Ratio, str] | None:
        """Return the speedup over the reference row, per operation or byte if the sizes differ; None without measurements."""
        other = next((one for one in rows if self._is_reference(one, row)), None)
        if other is None or other is row or contender is None:
            return None
        this, base = row.samples[contender], other.samples.get(contender)
        if base is None or not base.seconds:
            return None
        over, factor = ratio(base, this), 1.0
        if not isinstance(self.reference, str):
            factor = (this.flop or this.moved) / (base.flop or base.moved)
        return Ratio(*(factor * x for x in (over.value, over.low, over.high))), other.label

    def _is_reference(self, other: Row, row: Row) -> bool:
        if isinstance(self.reference, str):
            return other.operator == self.reference and other.sizes == row.sizes
        return other.operator == row.operator and dict(other.sizes) == {
            **row.sizes,
            **(self.reference or {}),
        }

    def lines(self, rows: Sequence[Row]) -> Iterator[Line]:
        """Yield goals and measured values in the rows of the selected operators."""
        selected = [row for row in rows if re.search(self.operators, row.operator)]
        pairs = [(row, ratio) for row in selected if (ratio := self.ratio(row, rows)) is not None]
        what = f"{' or '.join(self.contender)} over {self._baseline_text}"
        if self.operators:
            what += f", {self.operators}"
        no_threshold = (self.mean, self.worst, self.share, self.regret) == (None,) * 4
        if not pairs and any(row.fastest(self.contender) for row in selected):
            for name in ("mean", "worst", "regret"):
                if (value := getattr(self, name)) is not None:
                    yield f"{what}: {name}", f"{value:g}", "–", "no row has the times of both"
        if pairs and (no_threshold or self.mean is not None):
            mean = self._mean(pairs)
            measured = "–" if mean is None else str(mean.ratio)
            yield f"{what}: geometric mean", _least(self.mean), measured, plural(len(pairs), "row")
        if pairs and (no_threshold or self.worst is not None):
            row, (worst, other) = min(pairs, key=lambda pair: pair[1][0].value)
            yield f"{what}: the least", _least(self.worst), str(worst), f"{row.label}, {other}"
        if pairs and self.regret is not None:
            yield from self._regret_lines(what, pairs)
        if (no_threshold and not self.over and self.reference is None) or self.share is not None:
            yield from self._share_lines(selected)
        due = [row for row in selected if row.expects(self.contender)]
        without = [row.label for row in due if row.fastest(self.contender) is None]
        if without:
            what = f"{' or '.join(self.contender)}: rows where it failed or is not measured yet"
            yield what, "0", *_count_and_labels(without)

    def _mean(self, rows: Sequence[tuple[Row, tuple[Ratio, str]]]) -> Mean | None:
        """Return the geometric mean of the speedup in some rows, each of which counts once."""
        weights = [1.0] * len(rows)
        if self.reference is not None:
            return geometric_mean([ratio for _, (ratio, _) in rows], weights)
        pairs = (
            row.pair(row.fastest(self.contender), row.fastest(self.over or row.peers))
            for row, _ in rows
        )
        return geometric_mean_of_pairs([pair for pair in pairs if pair is not None], weights)

    @property
    def _baseline_text(self) -> str:
        if isinstance(self.reference, str):
            return self.reference
        if self.reference is not None:
            return ", ".join(f"{name}={extent}" for name, extent in self.reference.items())
        best = f"the best of {len(self.over)}"
        return best if self.over[1:] else "".join(self.over) or "the best peer"

    def _regret_lines(
        self, what: str, pairs: Sequence[tuple[Row, tuple[Ratio, str]]]
    ) -> Iterator[Line]:
        """Yield the rows whose confidence interval lies above the allowed regret, and the slowest row."""
        assert self.regret is not None
        times = [(ratio.inverse, row) for row, (ratio, _) in pairs]
        beyond = [f"{row.label}, {time}" for time, row in times if time.low > 1 + self.regret]
        yield f"time of {what}: rows beyond {self.regret:.0%}", "0", *_count_and_labels(beyond)
        most, row = max(times, key=lambda pair: pair[0].value)
        yield f"time of {what}: the most", "–", str(most), row.label

    def _share_lines(self, rows: Sequence[Row]) -> Iterator[Line]:
        shares = [(share, row) for row in rows if (share := row.share(row.fastest(self.contender)))]
        if not shares and self.share is not None and rows:
            what = f"{' or '.join(self.contender)}: of the limit"
            yield what, f"≥ {self.share:.0%}", "–", "no row has a limit and a time"
        if not shares:
            return
        mean = statistics.geometric_mean(share for share, _ in shares)
        least, row = min(shares, key=lambda pair: pair[0])
        by = next(one.limit_by for one in row.measured)
        goal = "–" if self.share is None else f"≥ {self.share:.0%}"
        where = f"least {least:.0%}, {row.label}, by {by}"
        yield f"{' or '.join(self.contender)}: of the limit", goal, f"{mean:.0%}", where


def _least(value: float | None) -> str:
    return "–" if value is None else f"≥ {value:g}"


def _count_and_labels(labels: Sequence[str]) -> tuple[str, str]:
    more = "; …" if labels[MAX_LISTED_ROWS:] else ""
    return str(len(labels)), "; ".join(labels[:MAX_LISTED_ROWS]) + more


def read_goals(tables: Any, names: Sequence[str], baseline: str, file: Path) -> tuple[Goal, ...]:
    """Return the goals of a study's file, its tables ``[[goals]]``; without any, a goal of the baseline without thresholds.

    names     of all contenders
    baseline  the contender of a table that does not name one

    Raises DescribeError for an invalid table, with its place in the file.
    """
    if tables is None:
        return (Goal((baseline,)),)
    if not isinstance(tables, list) or not all(isinstance(one, Mapping) for one in tables):
        because = "goals is not a list of tables"
        raise refusal(Place(file.name), because, "[[goals]]\nmean = 1.1")
    return tuple(
        _goal(one, names, baseline, Place(file.name).entry("goal", number, one))
        for number, one in enumerate(tables, 1)
    )


def check_goals(
    goals: Sequence[Goal], operators: Mapping[str, Sequence[Point]], limits: bool, file: Path
) -> None:
    """Check that each goal says something of a row that the study has.

    operators  the rows of each operator; none of one that is left out

    Raises DescribeError for a pattern that no operator has, a reference that is no row, and a share of limits that are not measured.
    """
    for number, goal in enumerate(goals, 1):
        at = Place(file.name).entry("goal", number, {})
        selected = [name for name in operators if re.search(goal.operators, name)]
        if not selected:
            because = f"no operator has {goal.operators!r} in its name"
            raise refusal(at / "operators", because, ", ".join(operators))
        if goal.share is not None and not limits:
            because = "a share of the machine's limit needs the limits"
            raise refusal(at / "share", because, "limits = true, in [study]")
        rows = [(name, dict(one.sizes)) for name in operators for one in operators[name]]
        known = [(name, sizes) for name, sizes in rows if name in selected]
        reference = goal.reference
        if isinstance(reference, str):
            if reference not in operators:
                because = f"there is no operator {reference!r}"
                raise refusal(at / "reference", because, ", ".join(operators))
        elif known and not any(
            (name, {**sizes, **(reference or {})}) in rows for name, sizes in known
        ):
            name, sizes = known[0]
            listed = ", ".join(f"{axis} = {extent}" for axis, extent in sizes.items())
            because = "no operator of the goal is measured at these sizes"
            raise refusal(at / "reference", because, f"{name} is measured at {listed}")


def _goal(table: Mapping[str, Any], names: Sequence[str], baseline: str, at: Place) -> Goal:
    check_keys(table, KEYS, at)
    contender = _names(table, "contender", names, at) or (baseline,)
    over = _names(table, "over", names, at)
    reference = table.get("reference")
    if reference is not None and not isinstance(reference, str | Mapping):
        example = 'reference = {m = 1024} or reference = "another operator"'
        raise refusal(at / "reference", f"{reference!r} is neither sizes nor an operator", example)
    operators = pattern_of(table, "operators", at)
    mean, worst, share, regret = (
        number_of(table, key, at, 1.0, 0.0) if key in table else None for key in THRESHOLDS
    )
    if (mean, worst, share, regret) == (None,) * 4:
        raise refusal(at, "it has no threshold", *(f"{key} = …" for key in THRESHOLDS))
    return Goal(contender, over, operators, reference, mean, worst, share, regret)


def _names(table: Mapping[str, Any], key: str, names: Sequence[str], at: Place) -> tuple[str, ...]:
    """Return the contender names under a key, which holds a name or a list; empty without the key."""
    if key not in table:
        return ()
    listed = texts_of(table[key], at / key, f'{key} = "{names[0]}"')
    for name in listed:
        if name not in names:
            raise refusal(at / key, f"there is no contender {name!r}", ", ".join(names))
    return listed
