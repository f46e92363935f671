"""Decisions about whole stages -> the computation with parts of terms, or results, in arrays of their own.

What a decision says may be less than the whole: a result is called `ANY`, or a value has several readers. `whole_stagings` says all of it:
by the names that are free, and for each reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Cast, Expr, Load, Var, dtype_of, walk
from offcut.core.program import Kind
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Names
from offcut.errors import ParseError
from offcut.partition import (
    StagedValue,
    conversion_value,
    conversions,
    element_copy,
    extents_of,
    factor_copies,
    is_read_once,
    reading_value,
    turned,
    with_value,
)
from offcut.schedule.apply.axes import check_new
from offcut.schedule.apply.staging import local_buffer, parse_value
from offcut.schedule.decisions import ANY, Staging, Step
from offcut.schedule.refusing import not_applied
from offcut.schedule.text import format_decision


def restaged(computation: Computation, step: Step) -> Computation:
    """Return `computation` after a decision about its stages; itself where `step` is none.

    Raises PartitionError where the decision has nothing to work on.
    """
    for one in whole_stagings(computation, step):
        if one.how == "write":
            order = [axis for axis, _ in one.axes]
            position = position_of(computation, one.what)
            computation = turned(computation, position, order, one.name)
        else:
            computation = _with_value(computation, one)
    return computation


def whole_stagings(computation: Computation, step: Step) -> tuple[Staging, ...]:
    """Return a decision about stages as decisions each of which names its array and the axes of this; none where it is of no stage.

    Raises PartitionError where it has nothing to work on.
    """
    match step:
        case Staging("write", stage, name, _, axes):
            position = position_of(computation, stage)
            known = [axis.name for axis in computation.groups[position][0].axes]
            order = [axis for axis, _ in axes]
            if sorted(order) != sorted(known):
                raise not_applied(f"cannot turn {stage}", f"its axes are {', '.join(known)}")
            if name == ANY:
                name = turned(computation, position, order).groups[position][0].buffer
            return (Staging("write", stage, name, (), tuple((axis, Var(axis)) for axis in order)),)
        case Staging("value", _, _, readers):
            first_reader_first = sorted(readers, key=lambda one: position_of(computation, one))
            return tuple(replace(step, readers=(reader,)) for reader in first_reader_first)
        case _:
            return ()


def conversion_stagings(
    computation: Computation, stage: str, nodes: Sequence[Cast]
) -> tuple[Staging, ...]:
    """Return decisions by which conversions of operands of a sum are computed before it."""
    names, stagings = computation.names(), list[Staging]()
    for node in nodes:
        stagings.append(value_staging(stage, conversion_value(computation, node, names)))
        computation = _with_value(computation, stagings[-1])
    return tuple(stagings)


def value_staging(stage: str, staged: StagedValue) -> Staging:
    """Return the decision by which `stage` reads an array in place of what it holds."""
    axes = zip(staged.axes, staged.point, strict=True)
    return Staging("value", format_expr(staged.value), staged.name, (stage,), tuple(axes))


def _with_value(computation: Computation, step: Staging) -> Computation:
    """Return `computation` with a value staged in an array for one reader."""
    stage = step.readers[0]
    position = position_of(computation, stage)
    lead = computation.groups[position][0]
    staged = _read_value(computation, position, step)
    extents = extents_of(computation, lead, staged)
    _check_names(computation, position, staged, extents)
    changed = with_value(computation, position, staged)
    if step.memory is None and step.layout is None:
        return changed
    own = local_buffer(step, dtype_of(staged.value), extents)
    buffers = (own if buffer.name == own.name else buffer for buffer in changed.buffers)
    return replace(changed, buffers=tuple(buffers))


def _read_value(computation: Computation, position: int, step: Staging) -> StagedValue:
    """Return what a decision stages: an expression over the axes of its array.

    Raises PartitionError where the reader does not compute it.
    """
    stage, lead = step.readers[0], computation.groups[position][0]
    try:
        staged = parse_value(step, computation.buffers, computation.sizes)
        if reading_value(lead, staged) is not None:
            return staged
        because = f"{stage} computes no {format_expr(ix.fold_indices(staged.expression))}"
    except ParseError as refused:
        because = f"{refused.refused}: {refused.because}"
    lines = (format_decision(value_staging(stage, one)) for one in _values(computation, position))
    what = f"cannot stage {step.what} for {stage}"
    raise not_applied(what, because, tuple(dict.fromkeys(lines)))


def _values(computation: Computation, position: int) -> Iterator[StagedValue]:
    """Yield what the sum of a group may read from an array of its own."""
    for narrow in (True, False):
        yield from factor_copies(computation, position, narrow)
    lead = computation.groups[position][0]
    for node in dict.fromkeys(walk(lead.value)):
        for axis in lead.reduce_axes if isinstance(node, Load) else ():
            assert isinstance(node, Load)
            copy = element_copy(computation, position, node, axis.name)
            if copy is not None:
                yield copy
    for node in conversions(lead):
        yield conversion_value(computation, node, computation.names())


def _check_names(
    computation: Computation, position: int, staged: StagedValue, shape: tuple[Expr, ...]
) -> None:
    """Refuse an array or axes of the name of something else; an array that holds the same already is read."""
    name, known = staged.name, {buffer.name for buffer in computation.buffers}
    sizes = {size.name for size in computation.sizes}
    check_new("schedule", "", Names({*sizes, *known, name}), *staged.axes)
    if name not in known:
        check_new("schedule", "", Names(sizes), name)
        return
    kind = computation.buffer(name).kind
    if name == staged.converted_array and kind is Kind.CONSTANT and is_read_once(computation, name):
        return
    for group in computation.groups[:position]:
        stage, extents = group[0], tuple(axis.extent for axis in group[0].axes)
        if stage.buffer == name and stage.reducer is None and extents == shape:
            staged_here = StagedValue(
                name, tuple(a.name for a in stage.axes), staged.point, stage.body
            )
            if staged_here.normal_form == staged.normal_form:
                return
    raise not_applied(f"cannot call an array {name}", "something has that name")


def position_of(computation: Computation, stage: str) -> int:
    """Return the position of the group that begins with the statements that compute `stage`.

    Raises PartitionError where none does, with the stage to name in its place if it is computed in a group that another one leads.
    """
    leads = [group[0].buffer for group in computation.groups]
    for lead, group in zip(leads, computation.groups, strict=True):
        if stage in [one.buffer for one in group[1:]]:
            because = f"each element of it is computed as soon as that of {lead} is, in one nest"
            raise not_applied(f"cannot find a nest of {stage}", because, help=(f"cover {lead} …",))
    if stage not in leads:
        raise not_applied(f"cannot find {stage}", f"the nests are {', '.join(leads)}")
    return leads.index(stage)
