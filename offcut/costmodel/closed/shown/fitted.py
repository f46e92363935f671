"""Numbers at points -> a polynomial of few terms that is near them everywhere.

A formula that is exact has a choice for each tile, each cache and each ragged end, and is longer than anybody reads. Most of it
says by how little one size differs from its neighbour. What is left is a sum of products of sizes, as the work itself is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from offcut.costmodel.closed.shown.sampled import Numbers

Term = tuple[str, ...]
"""Sizes that are multiplied, each as often as it stands there; none: 1."""

_SEEN = 1e-2  # of the unit: a term that adds less wherever one looks is left out


@dataclass(frozen=True, slots=True)
class Near:
    """A sum of terms, and how far it is off, in the unit that was asked for.

    half   at half of the points at most
    worst  at the others
    """

    terms: tuple[tuple[float, Term], ...]
    half: float
    worst: float

    @property
    def off(self) -> str:
        """Both, as shares."""
        return f"{self.half:.0%}, at worst {self.worst:.0%}"

    def __str__(self) -> str:
        parts = ["*".join((rounded(factor), *term)) for factor, term in self.terms]
        return " + ".join(parts) or "0"


def terms_of(highest: Sequence[Term], users: Mapping[str, str]) -> tuple[Term, ...]:
    """All that divide one of the products, the largest first, in the user's names.

    users  the user's names of sizes, by the program's
    """
    found: set[Term] = {()}
    for one in highest:
        names = tuple(dict.fromkeys(one))
        for powers in product(*(range(one.count(name) + 1) for name in names)):
            found.add(
                tuple(n for n, power in zip(names, powers, strict=True) for _ in range(power))
            )
    named = {tuple(sorted(users.get(name, name) for name in term)) for term in found}
    return tuple(sorted(named, key=lambda term: (-len(term), term)))


def near(
    numbers: Numbers, unit: Numbers, terms: Sequence[Term], points: Mapping[str, Numbers]
) -> Near:
    """The sum of these terms that is nearest, with factors above 0 of three digits.

    unit    what the distance at each point is a share of, above 0
    points  the sizes, by name
    """
    left, kept = list(terms), tuple[tuple[float, Term], ...]()
    while left and not kept:
        columns = np.stack([_values(term, points) / unit for term in left], axis=1)
        # Terms are of very unlike size; the solver would take the small ones for none.
        scale = np.abs(columns).max(axis=0)
        factors = np.linalg.lstsq(columns / scale, numbers / unit, rcond=None)[0]
        if factors.min() >= _SEEN:
            found = zip(factors / scale, left, strict=True)
            kept = tuple((float(f"{factor:.3g}"), term) for factor, term in found)
        else:
            del left[int(np.argmin(factors))]
    total = sum((factor * _values(term, points) for factor, term in kept), np.zeros(len(numbers)))
    off = np.abs(total - numbers) / unit
    return Near(kept, float(np.median(off)), float(off.max()))


def _values(term: Term, points: Mapping[str, Numbers]) -> Numbers:
    """Of a term at each point."""
    ones = np.ones(len(next(iter(points.values()))))
    return reduce(np.multiply, (points[name] for name in term), ones)


def rounded(value: float) -> str:
    """Three digits: ``18,200``, ``0.31``."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"
