"""What a user asks of how a model runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offcut.errors import TargetError
from offcut.graph.models.batches.parts import Parts
from offcut.pipeline import target


@dataclass(frozen=True, slots=True)
class How:
    """Of all regions of a model.

    threads       the most that a call may use; None: as `offcut.compile` says
    distributive  as `offcut.graph.compiled` says
    parts         likewise, in sizes by argument and axis: ``x_0``
    """

    threads: int | None = None
    distributive: bool = True
    parts: Parts = True


DEFAULT = How()

_EXAMPLES = '"threads": 2', '"distributive": False', '"parts": False'


def how_of(op: str, options: Mapping[str, Any], others: Mapping[str, Any]) -> How:
    """The options of a call, checked.

    op      the call as the user made it
    others  what ``torch.compile`` was given beside them: a mode

    Raises TargetError for what is none of them.
    """
    left = dict(options)
    how = How(left.pop("threads", None), left.pop("distributive", True), left.pop("parts", True))
    unknown = [f"{name}={value!r}" for name, value in others.items()]
    unknown += [f"options={left}"] if left else []
    if not isinstance(how.distributive, bool):
        unknown.append(f"options={{'distributive': {how.distributive!r}}}")
    if not isinstance(how.parts, bool):
        unknown.append(f"options={{'parts': {how.parts!r}}}")
    if unknown:
        raise TargetError(
            op,
            f"cannot take {', '.join(unknown)}",
            because="the options are threads, the most that a call may use, distributive, whether products may be "
            "distributed over sums, and parts, whether kernels may run for a part of the batch at a time: True or False",
            help=tuple(f"options={{{one}}}" for one in _EXAMPLES),
        )
    target("cpu").options(op, threads=how.threads)  # it is checked there
    return how
