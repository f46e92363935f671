"""How the operand that moves along a microkernel's columns is copied into panels, and by which loops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from offcut.core.expr import Expr, Load, Var, dtype_of, rewrite, variables
from offcut.core.panels import as_panels
from offcut.core.program import Buffer, Kind
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Stage
from offcut.errors import ParseError
from offcut.partition import MASK, AxisCut, Match, StagedValue
from offcut.polyhedral import coefficient
from offcut.schedule.apply.staging import parse_value, whole_panels
from offcut.schedule.checks import check_layout
from offcut.schedule.decisions import ANY, Staging
from offcut.schedule.diagnostics import decision_error
from offcut.schedule.nests import Pack
from offcut.schedule.stage_transforms import value_staging
from offcut.schedule.text import format_decision


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
    staging = replace(_copy_staging(lead, load, name, axes), layout=layout)
    return Pack(staging, splits, own, loops[-1] if loops else "")


def _copy_staging(lead: Stage, load: Load, name: str, axes: Sequence[str]) -> Staging:
    """Return the decision by which `lead` reads a copy over these of its axes in place of `load`: of a whole array as it is, or of values."""
    point = tuple(map(Var, axes))
    if load.index == point:
        return Staging("read", load.buffer, name, (lead.buffer,))
    return value_staging(lead.buffer, StagedValue(name, tuple(axes), point, load))


def packed_stages(
    computation: Computation, lead: Stage, match: Match, pack: Pack, around: tuple[str, ...]
) -> tuple[Stage, Stage]:
    """Return the stage that computes a packed copy, and `lead` reading it.

    around  axes of loops around the nest

    Raises PartitionError for an operand that is not packed so.
    """
    load, layout = match.by_columns, pack.staging.layout
    assert layout is not None
    used = set().union(*(variables(part) for part in load.index))
    axes = [a for a in (*lead.axes, *lead.reduce_axes) if a.name in used]
    apart = [axis.label for axis in lead.axes if axis.name in set(around) - used]
    if apart:
        raise decision_error(
            f"cannot pack {load.buffer} in the loops around",
            f"it is the same in every iteration of {', '.join(apart)}",
            help=("a nest that shares no such loop", "no pack"),
        )
    inner = [next(a for a in axes if a.name == n) for n in (match.depth, match.columns)]
    axes = [a for a in axes if a not in inner] + inner
    _check_copied(computation, lead, match, pack.staging, [axis.name for axis in axes])
    rank, panel = len(axes), as_panels(layout)
    if panel is None or (panel.rows, panel.columns) != (rank - 2, rank - 1):
        because = f"its rows and columns are its axes {rank - 2} and {rank - 1}"
        fitting = match.microkernel.layout_on(rank - 2, rank - 1)
        line = format_decision(replace(pack.staging, layout=fitting))
        raise decision_error(f"cannot pack {load.buffer} so", because, (line,))
    names, extents = zip(*((axis.name, axis.extent) for axis in axes), strict=True)
    shape, value = whole_panels(pack.staging, names, extents, load)
    axes = [replace(axis, extent=extent) for axis, extent in zip(axes, shape, strict=True)]
    copy = Stage(pack.name, pack.name, tuple(axes), (), value)
    array = replace(panel_array(pack, copy), name=load.buffer)
    check_layout("pack", array, [match.microkernel])
    point = tuple(Var(axis.name) for axis in axes)

    def panels(node: Expr) -> Expr | None:
        return Load(pack.name, point, load.dtype) if node == load else None

    return copy, replace(lead, body=rewrite(lead.body, panels))


def panel_array(pack: Pack, copy: Stage) -> Buffer:
    """Return the array of a packed copy, by the stage that computes it."""
    shape = tuple(axis.extent for axis in copy.axes)
    return Buffer(pack.name, dtype_of(copy.value), shape, Kind.LOCAL, pack.staging.layout)


def _check_copied(
    computation: Computation, lead: Stage, match: Match, staging: Staging, axes: Sequence[str]
) -> None:
    """Refuse a copy of anything but the operand that moves along the columns, over these axes of its reader.

    A decision that names the array alone, as older texts do, leaves the order of the axes to the microkernel.
    """
    load = match.by_columns
    if staging.how == "read":
        if staging.what not in (ANY, load.buffer):
            because = f"{load.buffer} is what moves along the columns of {match.microkernel.name}"
            raise decision_error(f"cannot pack {staging.what} for {lead.label}", because)
        return
    expected = _copy_staging(lead, load, staging.name, axes)
    try:
        staged = parse_value(staging, computation.buffers, computation.sizes)
        is_same = staged.is_equal(load) and staged.axes == tuple(axes)
    except ParseError:
        is_same = False
    if not is_same or staged.point != tuple(map(Var, axes)):
        layout = match.microkernel.layout_on(len(axes) - 2, len(axes) - 1)
        line = format_decision(replace(expected, layout=layout))
        because = f"{match.microkernel.name} reads {format_expr(load)} along its columns, whose copy is over {', '.join(axes)}"
        raise decision_error(f"cannot pack {staging.what} for {lead.label}", because, help=(line,))
