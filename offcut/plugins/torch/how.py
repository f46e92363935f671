"""What a user asks of how a model runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offcut.backends.target import Target
from offcut.errors import TargetError
from offcut.graph import Targets
from offcut.graph.models.batches.parts import Parts
from offcut.graph.models.compiling.split import every, resolved


@dataclass(frozen=True, slots=True)
class How:
    """Of all regions of a model.

    threads       the most that a call may use; None: as `offcut.compile` says
    distributive  as `offcut.graph.compiled` says
    parts         likewise, in sizes by argument and axis: ``x_0``
    target        a target, or several: a kernel runs on the first that takes it, and torch runs what none of them takes
    """

    threads: int | None = None
    distributive: bool = True
    parts: Parts = True
    target: Targets = "cpu"


DEFAULT = How()

_EXAMPLES = '"threads": 2', '"distributive": False', '"parts": False', '"target": "cpu"'


def how_of(op: str, options: Mapping[str, Any], others: Mapping[str, Any]) -> How:
    """The options of a call, checked.

    op      the call as the user made it
    others  what ``torch.compile`` was given beside them: a mode

    Raises TargetError for what is none of them, and for a target that is not there, or refuses them.
    """
    left = dict(options)
    targets = left.pop("target", "cpu")
    how = How(
        left.pop("threads", None),
        left.pop("distributive", True),
        left.pop("parts", True),
        every(targets) if _are_targets(targets) else "cpu",
    )
    unknown = [f"{name}={value!r}" for name, value in others.items()]
    unknown += [f"options={left}"] if left else []
    if not isinstance(how.distributive, bool):
        unknown.append(f"options={{'distributive': {how.distributive!r}}}")
    if not isinstance(how.parts, bool):
        unknown.append(f"options={{'parts': {how.parts!r}}}")
    if not _are_targets(targets):
        unknown.append(f"options={{'target': {targets!r}}}")
    if unknown:
        raise TargetError(
            op,
            f"cannot take {', '.join(unknown)}",
            because="the options are threads, the most that a call may use, distributive, whether products may be "
            "distributed over sums, parts, whether kernels may run for a part of the batch at a time: True or False, and "
            "target, which runs them: one, or several in order",
            help=tuple(f"options={{{one}}}" for one in _EXAMPLES),
        )
    for target in resolved(every(how.target)):
        target.options(op, threads=how.threads)  # they are checked there
    return how


def _are_targets(given: object) -> bool:
    """Return whether `given` is a target, or a sequence of at least one."""
    members = given if isinstance(given, tuple | list) else (given,)
    return bool(members) and all(isinstance(one, str | Target) for one in members)
