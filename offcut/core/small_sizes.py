"""Sizes at which a program is run, or listed, to see what is wrong with it: from the smallest on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from offcut.core.interpret.values import evaluate
from offcut.core.program import Program

_COMBINATIONS = 4096
"""The most combinations of values that are looked at."""
_ALIKE = (5, 7, 8, 9, 15, 16, 17, 33)
"""Further values, of all sizes at once: about the edges of tiles."""


def small_sizes(program: Program, values: int = 4, most: int = 12) -> Iterator[dict[str, int]]:
    """Return some sizes that a program allows, from the smallest on.

    values   of each size, from its least one on, that are combined
    most     combinations of these, before further values of all sizes at once
    """
    sizes = program.sizes
    each = next((k for k in range(values, 1, -1) if k ** len(sizes) <= _COMBINATIONS), 1)
    least = [
        [size.at_or_above(size.min + k * size.multiple_of) for k in range(each)] for size in sizes
    ]
    combined = sorted(product(*least), key=lambda one: (sum(one), one))
    alike = (tuple(size.at_or_above(value) for size in sizes) for value in _ALIKE)
    fine = [one for one in dict.fromkeys(combined) if _allowed(program, one)][:most]
    further = (
        [one for one in alike if sum(one) > sum(fine[-1]) and _allowed(program, one)]
        if fine
        else []
    )
    for point in dict.fromkeys((*fine, *further)):
        yield dict(zip((size.name for size in sizes), point, strict=True))


def _allowed(program: Program, values: tuple[int, ...]) -> bool:
    at = dict(zip((size.name for size in program.sizes), values, strict=True))
    return all(evaluate(one, at) for one in program.assumptions)
