"""Two folders of a study, of two commits or two machines: which cells changed by more than noise."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from offcut.experiment.timing import Ratio
from offcut.studies.environment import read_environments
from offcut.studies.errors import refusal
from offcut.studies.resampling import (
    ALLOWED_DRIFT,
    ALLOWED_OF_DRIFT,
    MeanRatio,
    Pair,
    allowed_shift,
    mean_ratio,
    stray_under_load,
)
from offcut.studies.samples import FILE, Sample, read_samples
from offcut.studies.statistics import (
    CHANCE,
    NORMAL_FREEDOM,
    false_discovery_limit,
    first_rounds,
    is_loaded,
    is_of_one_process,
    log_ratios,
    mean_interval,
    processes_needed,
    quantile,
    ratio,
    tail,
)
from offcut.studies.table import plural

CHANGE = 0.05
"""The change that a comparison should find in each cell."""
DRIFT_IN_A_ROW = 0.01
"""What a cell and the peers that took turns with it drift apart by between two runs, as a part of the time."""
MAX_LISTED_CELLS = 6
"""Cells that one line names at most."""


@dataclass(frozen=True, slots=True)
class Change:
    """A cell that both folders have.

    ratio   seconds in the first over those in the second: above 1, the second is faster
    margin  that its interval has to lie beyond
    processes  that both were measured in; 1 of folders of one process
    limit   the chance up to which it counts as changed: 5 %, or less among many cells
    growth  what processes of one round, of two, and so on up to as many as they had differ by, over what these do
    """

    label: str
    ratio: Ratio
    margin: float = ALLOWED_DRIFT
    processes: int = 1
    limit: float = CHANCE
    growth: tuple[float, ...] = (1.0,)

    @property
    def freedom(self) -> int:
        """Return the degrees of freedom of its interval; those of a normal distribution in one process."""
        return self.processes - 1 or NORMAL_FREEDOM

    @property
    def chance(self) -> float:
        """Return how likely a ratio as far from 1 is where the change is that of the margin."""
        value, beyond = self.ratio, abs(math.log(self.ratio.value)) - math.log1p(self.margin)
        half = math.log(value.value / value.low if value.value > 1 else value.high / value.value)
        if beyond <= 0.0 or half <= 0.0:
            return 1.0 if beyond <= 0.0 else 0.0
        return tail(quantile(self.freedom) * beyond / half, self.freedom)

    @property
    def verdict(self) -> str:
        """Return ``faster``, ``slower``, or ``same`` where chance, or what drifts, explains the ratio."""
        if self.chance > self.limit:
            return "same"
        return "faster" if self.ratio.value > 1 else "slower"

    @property
    def more_processes(self) -> int:
        """Return how many processes more would find a change of `CHANGE` in 9 of 10 comparisons; 0 where these do.

        All processes share as many rounds as these have.
        """
        room = math.log1p(CHANGE) - math.log1p(self.margin)
        if self.processes == 1 or room <= 0.0:
            return 0
        half = (math.log(self.ratio.high) - math.log(self.ratio.low)) / 2
        deviation = half / quantile(self.freedom) * math.sqrt(self.processes)
        rounds = self.processes * len(self.growth)

        def deviation_of(count: int) -> float:
            return deviation * self.growth[min(max(rounds // count, 1), len(self.growth)) - 1]

        return max(processes_needed(deviation_of, room) - self.processes, 0)


@dataclass(frozen=True)
class Comparison:
    """What two folders of one study say.

    first, second  a line for each folder: its commits and machines
    by_name        cells whose operator, contender or way of measuring is another in the second, such as a file that was changed
    only_first, only_second  cells that one of them has alone
    failed         cells of the first that failed in the second, each with its reason
    loaded         cells of both that were measured while others used the processor
    margin         the greatest of the changes', what two runs differ by without any change: 1 % of a cell with peers in its row and
                   several processes; of others 2 %, or what 19 of 20 intervals of peers lie within, where that is more; without
                   peers, 2 %, what the loads of the two folders differ by, and what cells stray by under load
    single         cells that one of them has timed in one process
    drift          the geometric mean of the peers' ratios: how the machine changed, which the other ratios are divided by; None where no peer was measured twice
    mean           the geometric mean of all ratios; None where all are peers'
    means          those of each contender, where there are several
    """

    first: str
    second: str
    changes: tuple[Change, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    drift: Ratio | None
    margin: float = ALLOWED_DRIFT
    failed: tuple[str, ...] = ()
    loaded: int = 0
    mean: MeanRatio | None = None
    by_name: tuple[str, ...] = ()
    single: tuple[str, ...] = ()
    means: Mapping[str, MeanRatio] = field(default_factory=dict)

    @property
    def alone(self) -> tuple[int, int]:
        """Return how many cells the first has alone, and how many the second."""
        return len(self.only_first), len(self.only_second)

    @property
    def slower(self) -> tuple[Change, ...]:
        """Return the cells that are slower in the second, the worst first."""
        slower = (one for one in self.changes if one.verdict == "slower")
        return tuple(sorted(slower, key=lambda one: one.ratio.value))

    @property
    def faster(self) -> tuple[Change, ...]:
        """Return the cells that are faster in the second, the best first."""
        faster = (one for one in self.changes if one.verdict == "faster")
        return tuple(sorted(faster, key=lambda one: -one.ratio.value))

    def __str__(self) -> str:
        lines = [f"first   {self.first}", f"second  {self.second}"]
        noise = f"by their loads, and by what cells stray, {self.margin:.0%} is taken for noise"
        if self.drift is not None:
            lines += [f"peers, which did not change: {self.drift}; what follows is divided by it"]
            noise = f"single cells of peers changed by up to {self.margin:.0%} without a cause: so much is taken for noise"
        elif self.margin:  # something was timed
            lines += ["no peers: a change of the machine looks like one of the code"]
        lines += [noise] * (self.margin > ALLOWED_DRIFT)
        if self.loaded:
            loaded = plural(self.loaded, "measurement")
            lines.append(
                f"LOADED: others used the processor in {loaded}, or a contender waited: intervals are wider for it"
            )
        lines += [f"failed in the second  {one}" for one in self.failed]
        changed = (*self.slower, *self.faster)
        lines += [f"{one.verdict}  {one.ratio}  {one.label}" for one in changed]
        same = len(self.changes) - len(changed)
        lines.append(
            f"{len(self.slower)} slower, {len(self.faster)} faster, {same} the same to {self.margin:.0%} and their 95 % intervals"
        )
        lines += self._undecided_lines()
        if self.mean is not None:
            line = f"geometric mean of the first over the second: {self.mean.ratio}"
            if self.mean.allowed > 0.0005:
                part = f"{math.expm1(self.mean.allowed):.1%}"
                line += f", of which {part} either way is for the machine"
            lines.append(f"{line}: {self.mean.verdict}")
        for name, mean in self.means.items():
            lines.append(f"  {name}, {plural(mean.count, 'cell')}: {mean.ratio}: {mean.verdict}")
        for what, labels in (
            ("compared by name, since what they measure differs", self.by_name),
            ("cells of the first alone", self.only_first),
            ("cells of the second alone", self.only_second),
        ):
            if labels:
                lines.append(_listed(what, labels))
        return "\n".join(lines)

    def _undecided_lines(self) -> list[str]:
        """Return which cells may have changed by `CHANGE` and are called the same, and what would tell."""
        same = [one for one in self.changes if one.verdict == "same"]
        undecided = [one for one in same if one.more_processes]
        lines = []
        if undecided:
            most = max(one.more_processes for one in undecided)
            labels = [f"{one.label} ({_more_processes(one.more_processes)})" for one in undecided]
            lines.append(
                _listed(f"in which {CHANGE:.0%} would be missed more than 1 time in 10", labels)
            )
            lines.append(
                f"  processes = {most + max(one.processes for one in undecided)} in both studies finds it in all of them"
            )
        if self.single:
            what = "measured in one process, whose layout of memory may look like a change"
            lines.append(_listed(what, self.single))
        return lines


def _more_processes(count: int) -> str:
    return "1 process more" if count == 1 else f"{count} processes more"


def _listed(what: str, labels: Sequence[str]) -> str:
    more = ", …" if labels[MAX_LISTED_CELLS:] else ""
    return f"{what} ({len(labels)}): {', '.join(labels[:MAX_LISTED_CELLS])}{more}"


def compare(first: str | Path, second: str | Path) -> Comparison:
    """Return how the cells of two folders of a study differ.

    Cells of one content are compared, then those of one name: operator, sizes and contender.
    Peers that both measured tell how the machine drifted between the two: the other ratios are divided by their geometric mean.

    Raises DescribeError where a folder has no samples, or no cell of the other.
    """
    a, b = _samples(Path(first)), _samples(Path(second))
    failures = {
        cell: one.failed
        for cell, one in read_samples(Path(second) / FILE).items()
        if cell in a and not one.seconds
    }
    alike = _cells_of_one_name(a, b)
    b = {alike.get(cell, cell): one for cell, one in b.items()}
    both = [cell for cell in a if cell in b]
    if not both:
        because, help = "they have no cell in common", "two folders that one file measured"
        raise refusal(f"{first}, {second}", because, help, what="cannot compare")
    peers = [(a[cell], b[cell]) for cell in both if a[cell].peer]
    ours = [(a[cell], b[cell]) for cell in both if not a[cell].peer]
    of_peers = mean_ratio(peers)
    if of_peers is None:
        stray = stray_under_load(ours)
        drift, margin = None, math.expm1(allowed_shift(ours) + stray)
        changes = [
            _change(pair, ratio(*pair), math.expm1(allowed_shift([pair]) + stray)) for pair in ours
        ]
        allowed = allowed_shift(ours)
    else:
        drift = of_peers.ratio
        margin = max(ALLOWED_DRIFT, _stray([ratio(*pair) for pair in peers], drift.value))
        of_row: dict[str, list[Pair]] = {}
        for pair in peers:
            of_row.setdefault(_row_label(pair[0]), []).append(pair)
        changes = [
            _over_peers(pair, of_row.get(_row_label(pair[0]), ()))
            or _change(pair, _over(ratio(*pair), drift), margin)
            for pair in ours
        ]
        if ours:
            margin = max(one.margin for one in changes)
        allowed = ALLOWED_OF_DRIFT * abs(math.log(drift.value))
    limit = false_discovery_limit([one.chance for one in changes])
    changes = [replace(one, limit=limit) for one in changes]
    names = dict.fromkeys(one.contender for one, _ in ours)
    parts = {name: [pair for pair in ours if pair[0].contender == name] for name in names}
    means = {name: mean_ratio(some, peers, allowed) for name, some in parts.items()}
    only_first = (_label(a[cell]) for cell in a if cell not in b and cell not in failures)
    only_second = (_label(b[cell]) for cell in b if cell not in a)
    lines = _folder_line(Path(first), a), _folder_line(Path(second), b)
    failed = tuple(f"{_label(a[cell])}: {because}" for cell, because in failures.items())
    loaded = sum(is_loaded(one) for samples in (a, b) for one in samples.values())
    return Comparison(
        *lines,
        tuple(changes),
        tuple(only_first),
        tuple(only_second),
        drift,
        margin,
        failed,
        loaded,
        mean_ratio(ours, peers, allowed),
        tuple(_label(a[cell]) for cell in alike.values()),
        tuple(_label(pair[0]) for pair in ours if any(map(is_of_one_process, pair))),
        {name: one for name, one in means.items() if one is not None and len(means) > 1},
    )


def _change(pair: Pair, ratio: Ratio, margin: float) -> Change:
    count = len(log_ratios(*pair)) or 1
    return Change(_label(pair[0]), ratio, margin, count, growth=_growth(pair))


def _growth(pair: Pair, peers: Sequence[Pair] = ()) -> tuple[float, ...]:
    """Return what the ratio of processes of fewer rounds differs by, from one on, over what it differs by as measured."""
    rounds = 1 + min(max(one.round, default=0) for some in (pair, *peers) for one in some)

    def deviation(count: int) -> float:
        fewer_rounds = [(first_rounds(a, count), first_rounds(b, count)) for a, b in (pair, *peers)]
        return statistics.stdev(_logs_over_peers(fewer_rounds[0], fewer_rounds[1:]))

    if rounds == 1 or len(_logs_over_peers(pair, peers)) < 2 or not deviation(rounds):
        return (1.0,)
    return tuple(max(deviation(k) / deviation(rounds), 1.0) for k in range(1, rounds + 1))


def _logs_over_peers(pair: Pair, peers: Sequence[Pair]) -> list[float]:
    """Return the logarithm of a cell's ratio in each process that all have, less the mean of those of peers."""
    own, each = log_ratios(*pair), [log_ratios(*one) for one in peers]
    common = sorted({*own}.intersection(*each))
    return [own[k] - (statistics.fmean(one[k] for one in each) if each else 0.0) for k in common]


def _cells_of_one_name(a: Mapping[str, Sample], b: Mapping[str, Sample]) -> dict[str, str]:
    """Return the cells of `a` by those of `b` that have the same name and another content; names that several cells have, none."""

    def by_name(samples: Mapping[str, Sample], others: Mapping[str, Sample]) -> dict[str, str]:
        counts = Counter(map(_label, samples.values()))
        cells = {_label(one): cell for cell, one in samples.items() if cell not in others}
        return {name: cell for name, cell in cells.items() if counts[name] == 1}

    first, second = by_name(a, b), by_name(b, a)
    return {second[name]: first[name] for name in first if name in second}


def _label(sample: Sample) -> str:
    """Return what a cell is called: its operator, sizes and contender."""
    return " ".join(filter(None, (_row_label(sample), sample.contender)))


def _row_label(sample: Sample) -> str:
    """Return what a row is called: its operator and sizes."""
    sizes = ", ".join(f"{name}={extent}" for name, extent in sample.sizes.items())
    return " ".join(filter(None, (sample.operator, sizes)))


def _stray(peers: Sequence[Ratio], drift: float) -> float:
    """Return how far beyond `drift` the intervals of peers lie, as a part of it, but for one of twenty."""
    beyond = sorted(max(one.low / drift, drift / one.high, 1.0) - 1 for one in peers)
    return beyond[math.ceil(0.95 * len(beyond)) - 1]


def _samples(folder: Path) -> dict[str, Sample]:
    samples = {cell: one for cell, one in read_samples(folder / FILE).items() if one.seconds}
    if not samples:
        because, help = f"it has no {FILE} with times", "a folder that offcut study wrote"
        raise refusal(str(folder), because, help, what="cannot compare")
    return samples


def _over_peers(pair: Pair, peers: Sequence[Pair]) -> Change | None:
    """Return a cell's change over that of the peers of its row, process by process; None without them, or in one process.

    What else the machine did while a process measured, these peers had to bear, too.
    """
    logs = _logs_over_peers(pair, peers)
    if not peers or len(logs) < 2:
        return None
    growth = _growth(pair, peers)
    return Change(_label(pair[0]), mean_interval(logs), DRIFT_IN_A_ROW, len(logs), growth=growth)


def _over(ratio: Ratio, drift: Ratio) -> Ratio:
    value = ratio.value / drift.value
    below = math.hypot(math.log(ratio.value / ratio.low), math.log(drift.high / drift.value))
    above = math.hypot(math.log(ratio.high / ratio.value), math.log(drift.value / drift.low))
    return Ratio(value, value * math.exp(-below), value * math.exp(above))


def _folder_line(folder: Path, samples: Mapping[str, Sample]) -> str:
    parts = [str(folder)]
    for facts in read_environments(folder, [one.environment for one in samples.values()]):
        dirty = " with changes" if facts["dirty"] else ""
        parts.append(f"{facts['commit'][:12] or 'no commit'}{dirty}, {facts['cpu']}")
    return " · ".join(parts)
