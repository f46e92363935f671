"""Decisions about whole stages -> the computation with parts of terms, or results, in arrays of their own.

What a decision says may be less than the whole: the array is called `ANY`, or all factors are meant that are computed. A value may
also be said in terms of its reader's loops, as texts of before say it. `whole_stagings` says all of it: by the names that are free,
and over the axes of the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Cast, Expr, Load, Var, dtype_of, walk
from offcut.core.program import Kind
from offcut.core.text.expressions import parse_expr
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Names, Stage
from offcut.errors import ParseError, PartitionError
from offcut.partition import (
    StagedValue,
    conversion_value,
    conversions,
    element_copy,
    extents_of,
    factor_copies,
    is_read_once,
    normal_form,
    reading_value,
    reorder_storage,
    with_value,
)
from offcut.schedule.apply.axes import check_new
from offcut.schedule.apply.staging import local_buffer, parse_value
from offcut.schedule.decisions import ANY, Staging, Step
from offcut.schedule.diagnostics import decision_error
from offcut.schedule.old_nests import FACTORS, NARROW
from offcut.schedule.text import format_decision


def transform_stages(computation: Computation, step: Step) -> Computation:
    """Return `computation` after a decision about its stages; itself where `step` is none.

    Raises PartitionError where the decision has nothing to work on.
    """
    for one in whole_stagings(computation, step):
        if one.how == "write":
            order = [axis for axis, _ in one.axes]
            position = position_of(computation, one.what)
            computation = reorder_storage(computation, position, order, one.name)
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
                raise decision_error(f"cannot turn {stage}", f"its axes are {', '.join(known)}")
            if name == ANY:
                name = reorder_storage(computation, position, order).groups[position][0].buffer
            return (Staging("write", stage, name, (), tuple((axis, Var(axis)) for axis in order)),)
        case Staging("value", what, name, (stage,)) if name == ANY:
            return tuple(_by_what(computation, position_of(computation, stage), stage, what))
        case Staging("value", _, _, readers):
            first_reader_first = sorted(readers, key=lambda one: position_of(computation, one))
            return tuple(replace(step, readers=(reader,)) for reader in first_reader_first)
        case _:
            return ()


def _by_what(computation: Computation, position: int, stage: str, what: str) -> Iterator[Staging]:
    """Yield how what is not named is staged."""
    if what in (FACTORS, NARROW):
        copies = factor_copies(computation, position, what == NARROW)
        if not copies:
            raise decision_error(f"cannot lay factors of {stage} in scratch", "none is computed")
        yield from (value_staging(stage, copy) for copy in copies)
        return
    load, along, depth = what.rpartition(" along ")
    if along:
        copy = element_copy(computation, position, _load(computation, position, load), depth)
        if copy is None:
            because = f"it has no terms along {depth} that can lie side by side"
            raise decision_error(f"cannot copy {load} before {stage}", because)
        yield value_staging(stage, copy)
        return
    staged = _in_loops(computation, position, what)
    if staged is None:
        raise _no_value(computation, position, stage, what, f"{stage} computes no {what}")
    yield value_staging(stage, staged)


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
    result = with_value(computation, position, staged)
    if step.memory is None and step.layout is None:
        return result
    own = local_buffer(step, dtype_of(staged.value), extents)
    buffers = (own if buffer.name == own.name else buffer for buffer in result.buffers)
    return replace(result, buffers=tuple(buffers))


def _read_value(computation: Computation, position: int, step: Staging) -> StagedValue:
    """Return what a decision stages: an expression over the axes of its array, or, in texts of before, in terms of its reader's loops.

    Raises PartitionError where the reader does not compute it.
    """
    stage, lead = step.readers[0], computation.groups[position][0]
    axes, point = tuple(axis for axis, _ in step.axes), tuple(value for _, value in step.axes)
    try:
        staged = parse_value(step, computation.buffers, computation.sizes)
        if reading_value(lead, staged) is not None:
            return staged
        because = f"{stage} computes no {format_expr(ix.fold_indices(staged.expression))}"
    except ParseError as refused:
        because = f"{refused.refused}: {refused.because}"
    own = _in_loops(computation, position, step.what)
    if (
        own is not None
        and own.point != point
        and len({*point}) == len(own.axes)
        and {*own.point} == {*point}
    ):
        places = map(own.point.index, point)
        own = replace(own, axes=tuple(own.axes[place] for place in places), point=point)
    if own is None or own.point != point:
        raise _no_value(computation, position, stage, step.what, because)
    return own.rename(step.name, axes)


def _in_loops(computation: Computation, position: int, what: str) -> StagedValue | None:
    """Return the array of an expression that a text of before says in the loops of its reader; None if the sum computes no such."""
    names = (*_loops(computation.groups[position][0]), *(size.name for size in computation.sizes))
    try:
        form = normal_form(parse_expr(what, buffers=computation.buffers, names=names))
    except ParseError:
        return None
    return next((one for one in _values(computation, position) if one.normal_form == form), None)


def _no_value(
    computation: Computation, position: int, stage: str, what: str, because: str
) -> PartitionError:
    """Return the refusal of a value that a sum does not compute, with those that it does."""
    lines = (format_decision(value_staging(stage, one)) for one in _values(computation, position))
    return decision_error(f"cannot stage {what} for {stage}", because, tuple(dict.fromkeys(lines)))


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
    raise decision_error(f"cannot call an array {name}", "something has that name")


def _loops(stage: Stage) -> list[str]:
    return [axis.name for axis in (*stage.axes, *stage.reduce_axes)]


def _load(computation: Computation, position: int, text: str) -> Load:
    """Return the element that a sum reads, by how it prints."""
    lead = computation.groups[position][0]
    loads = {format_expr(node): node for node in walk(lead.value) if isinstance(node, Load)}
    if text not in loads:
        raise decision_error(
            f"cannot copy {text} before {lead.buffer}", f"it reads {', '.join(loads)}"
        )
    return loads[text]


def position_of(computation: Computation, stage: str) -> int:
    """Return the position of the group that begins with the statements that compute `stage`.

    Raises PartitionError where none does, with the stage to name in its place if it is computed in a group that another one leads.
    """
    leads = [group[0].buffer for group in computation.groups]
    for lead, group in zip(leads, computation.groups, strict=True):
        if stage in [one.buffer for one in group[1:]]:
            because = f"each element of it is computed as soon as that of {lead} is, in one nest"
            raise decision_error(
                f"cannot find a nest of {stage}", because, help=(f"cover {lead} …",)
            )
    if stage not in leads:
        raise decision_error(f"cannot find {stage}", f"the nests are {', '.join(leads)}")
    return leads.index(stage)
