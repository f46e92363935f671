"""How the operand that moves along a microkernel's columns is copied into panels, and by which loops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.dtypes import reduction_start
from offcut.core.expr import Const, Expr, Load, Select, Var, rewrite, variables
from offcut.core.panels import as_panels
from offcut.core.program import Buffer, Kind
from offcut.describe.computation import Stage
from offcut.partition import MASK, AxisCut, Match
from offcut.polyhedral import coefficient
from offcut.schedule.checks import check_layout
from offcut.schedule.decisions import ANY
from offcut.schedule.nests import Pack
from offcut.schedule.refusing import not_applied


def beside(load: Load, axis: str) -> bool:
    """Return whether the elements that `load` reads along `axis` lie next to each other."""
    steps = [coefficient(part, axis) for part in load.index]
    return steps[-1:] == [1] and not any(steps[:-1])


def pack_of(
    lead: Stage, found: Match, name: str, shared: Collection[str], loops: Sequence[str] = ()
) -> Pack:
    """Return the copy `name` of the columns' operand in panels of the microkernel, and the loops that make it.

    shared  axes of loops around the nest
    loops   plain loops of the sum, outermost first, in each iteration of which it is made; none: it is made whole
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
    own = tuple(axis for axis in axes[:-along] if axis not in (*shared, *loops))
    splits = (AxisCut(found.columns, MASK, kernel.panel),)
    return Pack(load.buffer, name, layout, splits, own, loops[-1] if loops else "")


def packed_stages(
    lead: Stage, match: Match, pack: Pack, around: tuple[str, ...]
) -> tuple[Buffer, Stage, Stage]:
    """Return the array of a packed copy, the stage that computes it, and `lead` reading it.

    around  axes of loops around the nest

    Raises PartitionError for an operand that is not packed so.
    """
    load, multiple = match.by_columns, match.microkernel.multiple
    if pack.buffer not in (ANY, load.buffer):
        because = f"{load.buffer} is what moves along the columns of {match.microkernel.name}"
        raise not_applied(f"cannot pack {pack.buffer} for {lead.label}", because)
    used = set().union(*(variables(part) for part in load.index))
    axes = [a for a in (*lead.axes, *lead.reduce_axes) if a.name in used]
    apart = [axis.label for axis in lead.axes if axis.name in set(around) - used]
    if apart:
        raise not_applied(
            f"cannot pack {load.buffer} in the loops around",
            f"it is the same in every iteration of {', '.join(apart)}",
            help=("a nest that shares no such loop", "no pack"),
        )
    inner = [next(a for a in axes if a.name == n) for n in (match.depth, match.columns)]
    axes = [a for a in axes if a not in inner] + inner
    rank, panel = len(axes), as_panels(pack.layout)
    if panel is None or (panel.rows, panel.columns) != (rank - 2, rank - 1):
        because = f"its rows and columns are its axes {rank - 2} and {rank - 1}"
        raise not_applied(f"cannot pack {load.buffer} so", because)
    value: Expr = load
    depth = axes[-2]
    if (ix.literal_value(depth.extent) or 1) % multiple:
        # Terms past the last are multiplied by zeros, so they must be no NaN.
        whole = ix.mul(ix.ceildiv(depth.extent, multiple), multiple)
        inside = ix.compare("<", Var(depth.name), depth.extent)
        value = Select(inside, load, Const(reduction_start("sum", load.dtype), load.dtype))
        axes[-2] = replace(depth, extent=whole)
    shape = tuple(axis.extent for axis in axes)
    buffer = Buffer(pack.name, load.dtype, shape, Kind.LOCAL, pack.layout)
    check_layout("pack", replace(buffer, name=load.buffer), [match.microkernel])
    copy = Stage(pack.name, pack.name, tuple(axes), (), value)
    point = tuple(Var(axis.name) for axis in axes)

    def panels(node: Expr) -> Expr | None:
        return Load(pack.name, point, load.dtype) if node == load else None

    return buffer, copy, replace(lead, body=rewrite(lead.body, panels))
