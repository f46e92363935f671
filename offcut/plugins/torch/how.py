"""What a user asks of how a model runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offcut.errors import TargetError
from offcut.pipeline import target


@dataclass(frozen=True, slots=True)
class How:
    """Of all regions of a model.

    threads       the most that a call may use; None: as `offcut.compile` says
    distributive  as `offcut.graph.compiled` says
    """

    threads: int | None = None
    distributive: bool = True


DEFAULT = How()


def how_of(op: str, options: Mapping[str, Any], others: Mapping[str, Any]) -> How:
    """The options of a call, checked.

    op      the call as the user made it
    others  what ``torch.compile`` was given beside them: a mode

    Raises TargetError for what is none of them.
    """
    left = dict(options)
    how = How(left.pop("threads", None), left.pop("distributive", True))
    unknown = [f"{name}={value!r}" for name, value in others.items()]
    unknown += [f"options={left}"] if left else []
    if not isinstance(how.distributive, bool):
        unknown.append(f"options={{'distributive': {how.distributive!r}}}")
    if unknown:
        raise TargetError(
            op,
            f"cannot take {', '.join(unknown)}",
            because="the options are threads, the most that a call may use, and distributive, whether products may be "
            "distributed over sums: True or False",
            help=('options={"threads": 2}', 'options={"distributive": False}'),
        )
    target("cpu").options(op, threads=how.threads)  # it is checked there
    return how
