"""A schedule whose splits choose among strategies -> one whose options have a strategy each, for a target that chooses among whole nests.

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
    """Yield decisions with one strategy for each split, and what these are called."""
    for chosen in product(*map(_variants_of, steps)):
        label = "_".join(dict.fromkeys(name for name, _ in chosen if name))
        yield label, tuple(step for _, step in chosen)


def _variants_of(step: Primitive) -> list[tuple[str, Primitive]]:
    match step:
        case Split(levels=levels):
            several = product(*map(_levels_of, levels))
            return [
                (
                    "_".join(name for name, _ in one if name),
                    replace(step, levels=tuple(level for _, level in one)),
                )
                for one in several
            ]
        case Choose(options):
            made = (
                replace(
                    option, label=f"{option.label}_{label}" if label else option.label, steps=inside
                )
                for option in options
                for label, inside in _variants(option.steps)
            )
            return [("", Choose(tuple(made)))]
    return [("", step)]


def _levels_of(level: Level) -> list[tuple[str, Level]]:
    among = level.tail.among if level.tail is not None else ()
    return [(one.name, replace(level, tail=one)) for one in among] or [("", level)]
