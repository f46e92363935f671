"""Rewrites splits that choose among strategies as a choice of whole schedules, for targets that choose among whole nests.

split Y.i mix 8 as io ii          choose
at S Y.io                           option ladder
                                      split Y.i ladder 8 as io ii
                           ->         at S Y.io
                                    option balance
                                      …
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from offcut.schedule.decisions import Alternative, Choose, Level, Primitive, Schedule, Split


def with_strategy_options(schedule: Schedule) -> Schedule:
    """Return `schedule` with an option of all its decisions for each strategy that a split chooses among; itself if none does."""
    primitives = [step for step in schedule.steps if isinstance(step, Primitive)]
    variants = [*_variants(primitives)]
    if len(variants) == 1:
        return replace(schedule, steps=variants[0][1])
    options = (Alternative(label, None, steps) for label, steps in variants)
    return replace(schedule, steps=(Choose(tuple(options)),))


def _variants(steps: Sequence[Primitive]) -> Iterator[tuple[str, tuple[Primitive, ...]]]:
    """Yield each combination of strategies: its label, and the decisions with one strategy for each split."""
    for variant in product(*map(_variants_of, steps)):
        label = "_".join(dict.fromkeys(name for name, _ in variant if name))
        yield label, tuple(step for _, step in variant)


def _variants_of(step: Primitive) -> list[tuple[str, Primitive]]:
    """Return a decision with each of its strategies, with a label."""
    match step:
        case Split(levels=levels):
            variants = product(*map(_levels_of, levels))
            return [
                (
                    "_".join(name for name, _ in variant if name),
                    replace(step, levels=tuple(level for _, level in variant)),
                )
                for variant in variants
            ]
        case Choose(options):
            new_options = (
                replace(
                    option,
                    label=f"{option.label}_{label}" if label else option.label,
                    steps=option_steps,
                )
                for option in options
                for label, option_steps in _variants(option.steps)
            )
            return [("", Choose(tuple(new_options)))]
    return [("", step)]


def _levels_of(level: Level) -> list[tuple[str, Level]]:
    """Return a level with each of its strategies, by the name of the strategy; "" for a level that does not choose."""
    among = level.tail.among if level.tail is not None else ()
    return [(strategy.name, replace(level, tail=strategy)) for strategy in among] or [("", level)]
