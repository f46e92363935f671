"""Numbers that a correction is learned from: functions of a case, known by name, those of plug-ins too.

They are the resources and counts of the closed form, the same on each target, and nothing else. Counts stand as logarithms and parts as
shares, so that another size, program or machine is near one that was seen. `CLOSED` are what the closed form says of time, which a
model that is learned alone does without.

Features by name: those of this package, those of plug-ins, and those that are handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import log, log1p
from typing import Any, TypeAlias

import numpy as np

from offcut.costmodel.arrays import Array, Values
from offcut.costmodel.learned.case import Case, machine_resources
from offcut.errors import DescribeError, blamed_on_another

Numbers = Mapping[str, Array | float]
_TINY = 1e-15


def resources(case: Case) -> Numbers:
    """Return seconds as a logarithm; of each resource its share of the cycles, and of those where it takes longest; the share for
    which the busiest resource of a stage is waited for; and that of the call itself.
    """
    cycles = np.maximum(case.cycles, _TINY)
    by_name = case.resources
    busy = np.array(list(by_name.values()))  # (resources, stages, count)
    binds = np.argmax(busy, axis=0)[None] == np.arange(len(by_name))[:, None, None]
    sums, bound = busy.sum(axis=1) / cycles, (busy * binds).sum(axis=1) / cycles
    ranked = np.sort(busy, axis=0)
    return {
        "seconds": np.log(np.maximum(case.seconds, _TINY)),
        "call": case.call / cycles,
        "waits": (ranked[-1] - ranked[-2]).sum(axis=0) / cycles if len(by_name) > 1 else 0.0,
        **dict(zip(by_name, sums, strict=True)),
        **dict(zip((f"{name}.binds" for name in by_name), bound, strict=True)),
    }


def memories(case: Case) -> Numbers:
    """Return the bytes from each memory, and those by operation, as logarithms."""
    flop = np.maximum(case.flop, 1)
    return {
        **{name: np.log1p(size) for name, size in case.bytes.items()},
        **{f"{name}.by_flop": np.log1p(size / flop) for name, size in case.bytes.items()},
    }


def counts(case: Case) -> Numbers:
    """Return operations, runs of tiles, instructions and sizes as logarithms; the share of partial tiles; stages and threads."""
    sizes = [np.log1p(np.asarray(value, float)) for value in case.sizes.values()]
    runs = np.maximum(case.runs, 1)
    return {
        "flop": np.log1p(case.flop),
        "runs": np.log1p(case.runs),
        "flop_by_run": np.log1p(case.flop / runs),
        "instructions_by_run": np.log1p(case.instructions / runs),
        "tails": case.tails / np.maximum(case.cycles, _TINY),
        "stages": log1p(len(case.stages)),
        "least_size": np.min(sizes, axis=0) if sizes else 0.0,
        "largest_size": np.max(sizes, axis=0) if sizes else 0.0,
        "threads": log(case.threads),
    }


def machine(case: Case) -> Numbers:
    """Return the machine as logarithms: its clock, what its units multiply, and of each resource its rate, of queues their startup, of caches what they hold."""
    rates = [unit.multiply_adds for unit in case.machine.unit]
    numbers = {"hertz": log(case.machine.hertz), "multiply_adds": log1p(max(rates, default=0.0))}
    own = machine_resources(case.machine)
    for one in () if own is None else own.every.values():
        numbers[f"{one.name}.rate"] = log(one.rate)
        if one.ordered:
            numbers[f"{one.name}.startup"] = log1p(one.startup)
        if one.bytes is not None:
            numbers[f"{one.name}.bytes"] = log(one.bytes)
    return numbers


CLOSED = (resources,)
FEATURES = (*CLOSED, memories, counts, machine)


GROUP = "offcut.features"

Feature: TypeAlias = Callable[[Any], Any]
"""A case -> a number, a number for each vector of sizes, or several of these by name."""


def compute_features(case: Case, features: Sequence[Feature]) -> tuple[tuple[str, ...], Values]:
    """Return the names of what features give, and the numbers: ``(vectors of sizes, names)``.

    A number is called as the function is, or ``function.key``.

    Raises DescribeError for one that gives no number, and for two that give one name.
    """
    names: list[str] = []
    parts: list[Values] = []
    for feature in features:
        name = _name(feature)
        with blamed_on_another(partial(_refusal, name)):
            result = feature(case)
        values_by_name = result if isinstance(result, Mapping) else {"": result}
        rows = np.empty((len(values_by_name), case.count))
        try:
            for place, value in enumerate(values_by_name.values()):
                rows[place] = value
        except (TypeError, ValueError):
            raise _refusal(name, f"gave {value!r}") from None
        if not np.isfinite(rows).all():
            raise _refusal(name, f"gave {rows[~np.isfinite(rows)][0]}")
        names += (f"{name}.{key}".rstrip(".") for key in values_by_name)
        parts.append(rows)
    if len({*names}) < len(names):
        raise _twice(next(name for name in names if names.count(name) > 1))
    return tuple(names), np.concatenate(parts).T if parts else np.zeros((case.count, 0))


def check_names(before: Sequence[str], names: Sequence[str]) -> None:
    """Refuse features that are others for another schedule; none `before`, and any will do."""
    odd = sorted({*before} ^ {*names})
    if before and odd:
        because = f"{odd[0]} is there for some schedules only"
        raise DescribeError(
            "learn",
            f"cannot take the feature {odd[0].split('.')[0]}",
            because=because,
            help=("the same names for every schedule",),
        )


@cache
def load_features() -> tuple[Feature, ...]:
    """Those of this package, and the entry points of the group ``offcut.features`` in order of their names.

    Raises DescribeError for a plug-in that cannot be loaded.
    """
    from importlib.metadata import entry_points  # takes longer to load than the rest of this file

    plugins: list[Feature] = []
    for point in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            plugins.append(point.load())
        except Exception as error:
            raise DescribeError(
                "learn",
                f"cannot load the feature {point.name!r}",
                at=f"{point.value}, an entry point of {GROUP}",
                because=f"{type(error).__name__}: {error}",
            ) from error
    return (*FEATURES, *plugins)


def _name(feature: Feature) -> str:
    return str(getattr(feature, "__name__", type(feature).__name__))


def _twice(name: str) -> DescribeError:
    return DescribeError(
        "learn",
        f"cannot take the feature {name.partition('.')[0]}",
        because=f"{name} is given twice",
        help=("each function once", "def a_name_of_its_own(case): …"),
    )


def _refusal(name: str, did: str) -> DescribeError:
    values = "a number, a number for each vector of sizes, or several of these by name"
    return DescribeError(
        "learn", f"cannot take the feature {name}", because=f"it {did}", help=(values,)
    )
