"""Tables about what is predicted, simulated or compiled: which contender wins on each target, energy, use of the matrix unit, size of programs, order.

The order of contenders by predictions: the share of pairs, of one operator at one vector of sizes, that predictions order as times do.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from offcut.core.analysis import analysis
from offcut.core.program import For, Store
from offcut.costmodel.learned import metrics
from offcut.studies.offcut_operators import Described
from offcut.studies.results import Results
from offcut.studies.rows import Row
from offcut.studies.samples import CACHED_COMPILE, COMPILE, PROOF, Sample
from offcut.studies.statistics import call_seconds
from offcut.studies.table import NONE, Table, shown

MIN_DIFFERENCE = 0.15
"""The part of the shorter time by which the longer one of a pair exceeds it, at least."""


def order_table(results: Results, targets: Mapping[str, str]) -> Table:
    """Return the share of pairs that predictions put in order, by target and operator, and for all operators of a target.

    targets  of each of our contenders: only contenders of one target make pairs
    """
    lines: list[tuple[str, ...]] = []
    for target in dict.fromkeys(targets.values()):
        names = [name for name in results.ours if targets[name] == target]
        total, total_count = 0.0, 0
        for operator in results.definition.operators:
            in_order, count, most = 0.0, 0, 0
            for row in results.of(operator.name):
                samples = [row.samples[name] for name in names if name in row.samples]
                samples = [one for one in samples if one.predicted and one.seconds]
                predicted = [one.predicted or 0.0 for one in samples]
                more, compared = metrics.pairs(
                    list(map(call_seconds, samples)), predicted, apart_by=MIN_DIFFERENCE
                )
                in_order, count, most = in_order + more, count + compared, max(most, len(samples))
            if most > 1:
                lines.append((target, operator.name, str(most), *_share(in_order, count)))
            total, total_count = total + in_order, total_count + count
        if total_count:
            lines.append((target, "all", NONE, *_share(total, total_count)))
    caption = f"Pairs of contenders on one target whose times differ by more than {MIN_DIFFERENCE:.0%}, and the share of them that the predictions put in order."
    return Table(
        "order", caption, ("target", "operator", "contenders", "pairs", "in order"), tuple(lines), 2
    )


def _share(in_order: float, count: int) -> tuple[str, str]:
    return str(count), f"{in_order / count:.3f}" if count else NONE


COMPILE_CLOCKS = (COMPILE, CACHED_COMPILE, PROOF)
"""Of samples whose operator's size is shown beside them."""


def target_tables(results: Results) -> Iterator[Table]:
    """Yield the tables for which there are samples."""
    targets = _targets(results)
    if len(set(targets.values())) > 1:
        yield _winners(results, targets)
        yield _energies(results)
    if any(one.clock == "simulated" for one in results.samples):
        yield _use(results)
    if any(one.clock in COMPILE_CLOCKS for one in results.samples):
        yield _program_sizes(results)
    if any(one.predicted and one.seconds for one in results.samples):
        yield order_table(results, targets)


def _targets(results: Results) -> dict[str, str]:
    """Return the target of each contender of ours, by machine where one is named."""
    targets = {}
    for one in results.definition.contenders:
        if not one.is_peer:
            target = one.identity.get("target", "cpu")
            machine = one.identity.get("machine")
            targets[one.name] = f"{target}, {machine}" if machine else str(target)
    return targets


def _winners(results: Results, targets: Mapping[str, str]) -> Table:
    """Return, for each operator, vector of sizes and target, the contender that takes least."""
    rows = []
    for row in results.rows:
        for target in dict.fromkeys(targets.values()):
            on_target = {
                name: one for name, one in _timed(row).items() if targets.get(name) == target
            }
            if not on_target:
                continue
            best = min(on_target, key=lambda name: call_seconds(on_target[name]))
            sample = on_target[best]
            slowest = max(call_seconds(one) for one in on_target.values()) / call_seconds(sample)
            figures = (str(len(on_target)), shown(call_seconds(sample), 1e6), f"{slowest:.2f}")
            labels = (row.operator, row.name, target, best, sample.way)
            rows.append((*labels, *figures, shown(sample.energy, 1e6)))
    columns = ("operator", "sizes", "target", "fastest", "by", "of", "µs", "worst over it", "µJ")
    caption = "The contender that takes least on each target, of how many, and what the slowest of them takes over it."
    return Table("winners", caption, columns, tuple(rows), 5)


def _timed(row: Row) -> dict[str, Sample]:
    return {name: one for name, one in row.samples.items() if one.seconds}


def _energies(results: Results) -> Table:
    """Return the predicted energy of an operation, by operator and contender: the geometric mean over the sizes."""
    rows = []
    for operator in results.definition.operators:
        cells = results.of(operator.name)
        for name in results.contenders:
            samples = [row.samples[name] for row in cells if name in row.samples]
            each = [1e12 * one.energy / one.flop for one in samples if one.energy and one.flop]
            if each:
                totals = [one.energy * 1e6 for one in samples if one.energy and one.flop]
                three = (statistics.geometric_mean(each), min(totals), max(totals))
                rows.append((operator.name, name, str(len(each)), *map(shown, three)))
    columns = ("operator", "contender", "sizes", "pJ per operation", "least µJ", "greatest µJ")
    caption = "Predicted energy: picojoules per operation, the geometric mean over the sizes, and microjoules of a call."
    return Table("energy", caption, columns, tuple(rows), 2)


def _use(results: Results) -> Table:
    """Return how far the matrix unit is used in simulated calls, and what each contender saves against the baseline."""
    baseline, rows = results.definition.baseline, []
    for name in results.contenders:
        pairs = [(row, row.samples[name]) for row in results.rows if name in row.samples]
        pairs = [(row, one) for row, one in pairs if one.clock == "simulated" and one.peak]
        if not pairs:
            continue
        used = {row.label: one.flop / (call_seconds(one) * one.peak) for row, one in pairs}
        best = max(used, key=lambda label: used[label])
        total = sum(one.flop for _, one in pairs)
        total_used = total / sum(call_seconds(one) * one.peak for _, one in pairs)
        times = [(row.seconds(baseline), call_seconds(one)) for row, one in pairs]
        saved = [1 - own / base for base, own in times if base]
        ends = (f"{min(saved):.1%}", f"{max(saved):.1%}") if saved else (NONE, NONE)
        off = [one.predicted / call_seconds(one) - 1 for _, one in pairs if one.predicted]
        worst = f"{max(map(abs, off)):.2%}" if off else NONE
        figures = (str(len(pairs)), f"{used[best]:.1%}", f"{total_used:.1%}", *ends, worst)
        rows.append((name, best, *figures))
    columns = (
        *("contender", "best cell", "cells", "used there", "used over all"),
        *("least saved", "most saved", "closed form off"),
    )
    caption = (
        f"Operations of simulated calls over what the matrix unit can do meanwhile; the time that is saved against {baseline}; "
        "how far the closed form is off at most."
    )
    return Table("use", caption, columns, tuple(rows), 2)


def _program_sizes(results: Results) -> Table:
    """Return what compiling and proving take, beside the size of the program."""
    rows = []
    for operator in results.definition.operators:
        size = program_size(operator.workload)
        for row in results.of(operator.name)[:1]:
            for name, one in _timed(row).items():
                if one.clock in COMPILE_CLOCKS:
                    figures = (f"{call_seconds(one) * 1e3:.4g}", str(len(one.seconds)))
                    rows.append((operator.name, name, one.clock, *size, *figures))
    columns = ("operator", "contender", "what", "loops", "stores", "sizes", "ms", "processes")
    caption = "Milliseconds of a compile, or of its proof, beside what the program as it is described has of loops, stores and symbolic sizes."
    return Table("compile", caption, columns, tuple(rows), 3)


def program_size(workload: object) -> tuple[str, str, str]:
    """Return how many loops, stores and symbolic sizes a described program has; nothing of a model."""
    if not isinstance(workload, Described):
        return NONE, NONE, NONE
    program = workload.program
    facts = analysis(program)
    return str(len(facts.of(For))), str(len(facts.of(Store))), str(len(program.sizes))
