"""Features by name: those of this package, those of plug-ins, and those that are handed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from offcut.costmodel.arrays import Values
from offcut.costmodel.learned.case import Case
from offcut.costmodel.learned.features import FEATURES
from offcut.errors import DescribeError, blamed_on_another

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
