"""Decisions about whole stages -> the computation with parts of terms, or results, in arrays of their own.

What a decision says may be less than the whole: the array is called `ANY`, or all factors are meant that are computed.
`whole_stagings` says all of it, by the names that are free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offcut.core.expr import Cast, Load, Var, walk
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Stage
from offcut.errors import PartitionError
from offcut.partition import (
    ValueCopy,
    conversion_home,
    conversions,
    converted,
    element_copy,
    factor_copies,
    turned,
    with_value,
)
from offcut.schedule.decisions import ANY, Staging, Step
from offcut.schedule.old_nests import FACTORS, NARROW
from offcut.schedule.refusing import not_applied


def restaged(computation: Computation, step: Step) -> Computation:
    """Return `computation` after a decision about its stages; itself where `step` is none.

    Raises PartitionError where the decision has nothing to work on.
    """
    for one in whole_stagings(computation, step):
        computation = _restaged(computation, one)
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
        case Staging("value", what, name, (stage,)):
            if name != ANY:
                return (step,)
            return tuple(_by_what(computation, position_of(computation, stage), stage, what))
        case _:
            return ()


def _by_what(computation: Computation, position: int, stage: str, what: str) -> Iterator[Staging]:
    """Yield how what is not named is staged."""
    if what in (FACTORS, NARROW):
        copies = factor_copies(computation, position, what == NARROW)
        if not copies:
            raise not_applied(f"cannot lay factors of {stage} in scratch", "none is computed")
        yield from (_staging(stage, copy) for copy in copies)
        return
    load, along, depth = what.rpartition(" along ")
    if along:
        made = element_copy(computation, position, _load(computation, position, load), depth)
        if made is None:
            because = f"it has no terms along {depth} that can lie side by side"
            raise not_applied(f"cannot copy {load} before {stage}", because)
        yield _staging(stage, made)
        return
    node = next(
        (one for one in conversions(_lead(computation, position)) if format_expr(one) == what), None
    )
    if node is None:
        raise _no_value(computation, position, what)
    assert isinstance(node.a, Load)
    name, axes = conversion_home(computation, node, computation.names())
    yield Staging("value", what, name, (stage,), tuple(zip(axes, node.a.index, strict=True)))


def conversion_stagings(
    computation: Computation, stage: str, nodes: Sequence[Cast]
) -> tuple[Staging, ...]:
    """Return decisions by which conversions of operands of a sum are computed before it."""
    names, stagings = computation.names(), list[Staging]()
    for node in nodes:
        assert isinstance(node.a, Load)
        name, axes = conversion_home(computation, node, names)
        points = tuple(zip(axes, node.a.index, strict=True))
        stagings.append(Staging("value", format_expr(node), name, (stage,), points))
        computation = _restaged(computation, stagings[-1])
    return tuple(stagings)


def _staging(stage: str, copy: ValueCopy) -> Staging:
    axes = zip((axis.name for axis in copy.stage.axes), copy.load.index, strict=True)
    return Staging("value", format_expr(copy.what), copy.stage.buffer, (stage,), tuple(axes))


def _restaged(computation: Computation, step: Staging) -> Computation:
    """Return `computation` after a decision that says all."""
    if step.how == "write":
        order = [axis for axis, _ in step.axes]
        return turned(computation, position_of(computation, step.what), order, step.name)
    position = position_of(computation, step.readers[0])
    names, points = [axis for axis, _ in step.axes], tuple(value for _, value in step.axes)
    for node in conversions(_lead(computation, position)):
        assert isinstance(node.a, Load)
        if format_expr(node) == step.what and node.a.index == points:
            return converted(computation, position, node, step.name, names)
    for copy in _copies(computation, position):
        if format_expr(copy.what) == step.what and copy.load.index == points:
            return with_value(computation, position, copy.named(step.name, names))
    raise _no_value(computation, position, step.what)


def _copies(computation: Computation, position: int) -> Iterator[ValueCopy]:
    """Yield what the sum of a group may read from an array of its own."""
    for narrow in (True, False):
        yield from factor_copies(computation, position, narrow)
    lead = _lead(computation, position)
    for node in dict.fromkeys(walk(lead.value)):
        for axis in lead.reduce_axes if isinstance(node, Load) else ():
            assert isinstance(node, Load)
            copy = element_copy(computation, position, node, axis.name)
            if copy is not None:
                yield copy


def _lead(computation: Computation, position: int) -> Stage:
    return computation.groups[position][0]


def _load(computation: Computation, position: int, text: str) -> Load:
    """Return the element that a sum reads, by how it prints."""
    lead = _lead(computation, position)
    loads = {format_expr(node): node for node in walk(lead.value) if isinstance(node, Load)}
    if text not in loads:
        raise not_applied(
            f"cannot copy {text} before {lead.buffer}", f"it reads {', '.join(loads)}"
        )
    return loads[text]


def _no_value(computation: Computation, position: int, what: str) -> PartitionError:
    """Return the refusal of what a sum does not compute so."""
    lead = _lead(computation, position)
    stagings = [_staging(lead.buffer, copy) for copy in _copies(computation, position)]
    known = [one.what for one in stagings]
    known += map(format_expr, conversions(lead))
    names = ", ".join(dict.fromkeys(known))
    because = f"what may lie in an array of its own is {names or 'nothing'}"
    return not_applied(f"cannot stage {what} for {lead.buffer}", because)


def position_of(computation: Computation, stage: str) -> int:
    """Of the group that begins with the statements that compute `stage`."""
    leads = [group[0].buffer for group in computation.groups]
    if stage not in leads:
        raise not_applied(f"cannot find {stage}", f"the nests are {', '.join(leads)}")
    return leads.index(stage)
