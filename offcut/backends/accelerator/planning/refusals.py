"""How a statement that a machine of queues does not run is refused."""

from __future__ import annotations

from offcut.backends.accelerator.spec import Spec
from offcut.errors import TargetError


def refuse(spec: Spec, at: str, because: str, *help: str) -> TargetError:
    """The refusal of a statement.

    help   what would be accepted
    """
    units = f"the matrix unit adds products of int8 in int32, the vector unit has {', '.join(sorted(spec.alu))} on int32"
    return TargetError(
        "compile",
        f"cannot run {at} on {spec.name}",
        at=at,
        because=because,
        help=(*help, units, 'target="cpu" runs it'),
    )
