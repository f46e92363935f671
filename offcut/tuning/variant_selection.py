"""Which variants of a nest are to compete, by what was measured of schedules that differ in that nest alone.

Of schedules that are alike but for the one variant of one nest, each was measured at each size. Of these variants those
stay that cover the distribution of sizes::

    seconds(variants) = sum of weight(n) * min over the variants of seconds(variant)(n)

A variant joins while it saves more than the noise of what it saves. What a variant costs at run time is then what was
measured: straight lines between the sizes, past the last in proportion to the size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Expr, Select, Var, real
from offcut.schedule import LoopVariant, Schedule, nests_in, parts_of, with_variants
from offcut.tuning.problem import Measured, Problem


@dataclass(frozen=True, slots=True)
class ComposedSchedule:
    """A schedule of several variants that nobody has measured yet.

    seconds  of a call of the distribution, as its variants were measured alone
    """

    schedule: Schedule
    seconds: float


def compose_variants(
    problem: Problem, measured: Sequence[Measured], most: int
) -> ComposedSchedule | None:
    """The schedule whose variants cover the distribution best; None where no several variants do better than the best one.

    measured   those that are ok
    most       variants that may compete
    """
    names = problem.request.program.sizes
    if len(names) != 1 or len(problem.sizes) < 2 or most < 2:
        return None  # only along one size is it known what lies between what was measured
    alike: dict[tuple[Schedule, str], dict[LoopVariant, Measured]] = defaultdict(dict)
    for one in measured:
        for nest in nests_in(parts_of(one.schedule)):
            if len(nest.variants) == 1:
                rest = with_variants(one.schedule, nest.stage, lambda _: ())
                alike[rest, nest.stage].setdefault(nest.variants[0], one)
    best_schedule: ComposedSchedule | None = None
    for (_, stage), by_variant in alike.items():
        candidate = _covering(problem, stage, by_variant, most)
        if candidate is not None and (
            best_schedule is None or candidate.seconds < best_schedule.seconds
        ):
            best_schedule = candidate
    best = min((one.seconds(problem) for one in measured), default=0.0)
    return best_schedule if best_schedule is not None and best_schedule.seconds < best else None


def _covering(
    problem: Problem, stage: str, by_variant: Mapping[LoopVariant, Measured], most: int
) -> ComposedSchedule | None:
    """The variants of one nest that cover the distribution; None where one is as good."""
    weights = [weight for _, weight in problem.sizes]
    seconds = {variant: [time.seconds for time in one.times] for variant, one in by_variant.items()}
    noise = {
        variant: [t.seconds * t.spread / 2 for t in one.times]
        for variant, one in by_variant.items()
    }
    selection = [min(seconds, key=lambda variant: _weighted(weights, seconds[variant]))]
    least = list(zip(seconds[selection[0]], noise[selection[0]], strict=True))
    while len(selection) < most:
        best, saved = None, 0.0
        for variant in (variant for variant in seconds if variant not in selection):
            here = zip(seconds[variant], noise[variant], strict=True)
            won = [
                (weight * (old - new), weight * hypot(before, after))
                for weight, (old, before), (new, after) in zip(weights, least, here, strict=True)
                if new < old
            ]
            gain = sum(part for part, _ in won) - hypot(*(doubt for _, doubt in won))
            if gain > saved:
                best, saved = variant, gain
        if best is None:
            break
        selection.append(best)
        now = zip(seconds[best], noise[best], strict=True)
        least = [min(pair) for pair in zip(least, now, strict=True)]
    if len(selection) == 1:
        return None
    name = problem.request.program.sizes[0].name
    points = [next(iter(sizes.values())) for sizes, _ in problem.sizes]
    variants = tuple(
        replace(
            variant,
            cost=lines(name, dict(zip(points, seconds[variant], strict=True))),
            label=_label(variant, selection[:place]),
        )
        for place, variant in enumerate(selection)
    )
    covered = _weighted(weights, [one for one, _ in least])
    schedule = next(iter(by_variant.values())).schedule
    return ComposedSchedule(with_variants(schedule, stage, lambda _: variants), covered)


def lines(name: str, seconds: Mapping[int, float]) -> Expr:
    """Straight lines between what was measured, over a size; before the first as it is, past the last in
    proportion to the size.
    """
    size = Var(name)
    points = sorted(seconds.items())
    last, at_last = points[-1]
    formula: Expr = Binary("*", real(size), real(at_last / max(last, 1)))
    for (low, at_low), (high, at_high) in reversed(list(pairwise(points))):
        slope = (at_high - at_low) / (high - low)
        rise = Binary("*", real(ix.sub(size, ix.const(low))), real(slope))
        line = Binary("+", real(at_low), rise)
        formula = Select(Compare("<", size, ix.const(high)), line, formula)
    first, at_first = points[0]
    return Select(Compare("<", size, ix.const(first)), real(at_first), formula)


def _label(variant: LoopVariant, others: Sequence[LoopVariant]) -> str:
    alike = sum(one.label == variant.label for one in others)
    return f"{variant.label}/{alike + 1}" if alike else variant.label


def _weighted(weights: Sequence[float], seconds: Sequence[float]) -> float:
    return sum(weight * one for weight, one in zip(weights, seconds, strict=True))
