"""Sizes and extents of a middle layer, where ways to run a nest are compared before any size is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.core import index as ix
from offcut.core.expr import Expr, substitute
from offcut.core.program import Program, Size
from offcut.describe.computation import StageAxis

TYPICAL = 64
"""What is not known is taken to be: about the rows, and the channels, of the first residual layers of ResNet-18."""

AROUND = (0.125, 0.6, 4.0)
"""Times a typical size: sizes that are compared beside it."""
BETWEEN = (0.03, 0.25)
"""The same, of sizes at which another way may be the better one."""


def typical_sizes(program: Program) -> dict[str, int]:
    """Sizes of a middle layer, as far as they are allowed."""
    return midpoint_sizes(program.sizes)


def least_sizes(program: Program) -> dict[str, int]:
    """Return the least allowed value of each size, from 1 on."""
    return {size.name: size.at_or_above(1) for size in program.sizes}


def sizes_around(program: Program, parts: Sequence[float] = AROUND) -> list[dict[str, int]]:
    """Return typical sizes, then smaller and larger ones, as far as they are allowed, at which a way should be good, too.

    parts  of typical sizes, that the others are
    """
    typical = typical_sizes(program)
    vectors = [typical]
    for part in parts:
        sizes = {
            size.name: max(min(round(typical[size.name] * part), size.max), size.min, 1)
            for size in program.sizes
        }
        if sizes not in vectors:
            vectors.append(sizes)
    return vectors


def midpoint_sizes(sizes: Sequence[Size]) -> dict[str, int]:
    """The same of sizes."""
    return {size.name: max(min(size.max, TYPICAL), size.min) for size in sizes}


def typical_extents(sizes: Mapping[str, int], axes: Sequence[StageAxis]) -> dict[str, int]:
    """Extents of axes at these sizes, at least 1."""
    known: dict[str, Expr] = {name: ix.const(size) for name, size in sizes.items()}
    extents = {
        axis.name: ix.literal_value(ix.simplify(substitute(axis.extent, known))) for axis in axes
    }
    return {name: max(TYPICAL if n is None else n, 1) for name, n in extents.items()}
