"""Decisions about whole stages -> the computation with scratch, another order, or converted operands."""

from __future__ import annotations

from offcut.core.expr import Load, walk
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation
from offcut.partition import conversions, converted, turned, with_copy, with_scratch
from offcut.schedule.decisions import Step
from offcut.schedule.refusing import not_applied
from offcut.schedule.ways import Convert, Copy, Scratch, Turn


def restaged(computation: Computation, step: Step) -> Computation:
    """Return `computation` after a decision about its stages; itself where `step` is none.

    Raises PartitionError where the decision has nothing to work on.
    """
    match step:
        case Scratch(stage, narrow):
            made = with_scratch(computation, position_of(computation, stage), narrow)
            if made is computation:
                raise not_applied(f"cannot lay factors of {stage} in scratch", "none is computed")
            return made
        case Copy(stage, operand, depth):
            position = position_of(computation, stage)
            read = computation.groups[position][0].value
            loads = {format_expr(node): node for node in walk(read) if isinstance(node, Load)}
            if operand not in loads:
                because = f"it reads {', '.join(loads)}"
                raise not_applied(f"cannot copy {operand} before {stage}", because)
            made = with_copy(computation, position, loads[operand], depth)
            if made is computation:
                because = f"it has no terms along {depth} that can lie side by side"
                raise not_applied(f"cannot copy {operand} before {stage}", because)
            return made
        case Turn(stage, axes):
            position = position_of(computation, stage)
            known = [axis.name for axis in computation.groups[position][0].axes]
            if sorted(axes) != sorted(known):
                raise not_applied(f"cannot turn {stage}", f"its axes are {', '.join(known)}")
            return turned(computation, position, axes)
        case Convert(stage, operands):
            position = position_of(computation, stage)
            known_casts = {
                format_expr(node): node for node in conversions(computation.groups[position][0])
            }
            for operand in operands:
                if operand not in known_casts:
                    because = f"it reads {', '.join(known_casts) or 'nothing in another type'}"
                    raise not_applied(f"cannot convert {operand} before {stage}", because)
            return converted(computation, position, [known_casts[one] for one in operands])
        case _:
            return computation


def position_of(computation: Computation, stage: str) -> int:
    """Of the group that begins with the statements that compute `stage`."""
    leads = [group[0].buffer for group in computation.groups]
    if stage not in leads:
        raise not_applied(f"cannot find {stage}", f"the nests are {', '.join(leads)}")
    return leads.index(stage)
