"""How the operand that moves along a microkernel's columns is copied into panels, and by which loops."""

from __future__ import annotations

from collections.abc import Collection

from offcut.core.expr import Load, variables
from offcut.describe.computation import Stage
from offcut.partition import MASK, AxisCut, Match
from offcut.polyhedral import coefficient
from offcut.schedule.nests import Pack


def beside(load: Load, axis: str) -> bool:
    """Return whether the elements that `load` reads along `axis` lie next to each other."""
    steps = [coefficient(part, axis) for part in load.index]
    return steps[-1:] == [1] and not any(steps[:-1])


def pack_of(lead: Stage, found: Match, name: str, shared: Collection[str]) -> Pack:
    """Return the copy `name` of the columns' operand in panels of the microkernel, and the loops that make it.

    shared  axes of loops around the nest
    """
    load, kernel = found.by_columns, found.microkernel
    used = set().union(*(variables(part) for part in load.index))
    around = [a.name for a in (*lead.axes, *lead.reduce_axes) if a.name in used]
    assert found.columns is not None
    axes = [n for n in around if n not in (found.depth, found.columns)]
    axes += [found.depth, found.columns]
    layout = kernel.layout_on(len(axes) - 2, len(axes) - 1)
    assert layout is not None
    # A transposing copy passes along the depth inside a panel: the lines it reads stay near.
    along = 1 if beside(load, found.columns) and kernel.interleave == 1 else 2
    loops = tuple(axis for axis in axes[:-along] if axis not in shared)
    return Pack(load.buffer, name, layout, (AxisCut(found.columns, MASK, kernel.panel),), loops)
