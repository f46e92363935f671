"""What a user asks of how a model runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from offcut.backends.target import Target
from offcut.errors import TargetError
from offcut.graph import Targets
from offcut.graph.models.batches.microbatches import Parts
from offcut.graph.models.compiling.split import as_targets, memory_of, resolve_targets
from offcut.pipeline import targets


@dataclass(frozen=True, slots=True)
class Options:
    """Of all regions of a model.

    threads       the most that a call may use; None: as `offcut.compile` says
    distributive  as `offcut.graph.compile_graph` says
    parts         likewise, in sizes by argument and axis: ``x_0``
    target        a target, or several: a kernel runs on the first that takes it, and torch runs what none of them takes; None: that
                  of the device of the tensors
    views         whether regions calculate views at their borders, too, where torch is not there to make them
    """

    threads: int | None = None
    distributive: bool = True
    parts: Parts = True
    target: Targets | None = None
    views: bool = False

    def on(self, kinds: Collection[str]) -> Options:
        """Return the same with a target: where none was asked for, the first of a device of these kinds, else the CPU.

        kinds  of devices of tensors, as torch calls them
        """
        if self.target is not None:
            return self
        own = (
            kind
            for kind in targets()
            if kind in kinds and resolve_targets((kind,))[0].memory.kind == kind
        )
        return replace(self, target=(next(own, "cpu"),))

    @property
    def devices(self) -> frozenset[str]:
        """Return the kinds of devices whose tensors its targets take, as torch calls them."""
        kind = memory_of(resolve_targets(as_targets(self.target or "cpu"))).kind
        return frozenset(("cpu", kind)) if kind else frozenset(("cpu",))


DEFAULT = Options()

_EXAMPLES = '"threads": 2', '"distributive": False', '"parts": False', '"target": "cpu"'


def parse_options(op: str, options: Mapping[str, Any], others: Mapping[str, Any]) -> Options:
    """The options of a call, checked.

    op      the call as the user made it
    others  what ``torch.compile`` was given beside them: a mode

    Raises TargetError for what is none of them, and for a target that is not there, or refuses them.
    """
    rest = dict(options)
    target = rest.pop("target", None)
    how = Options(
        rest.pop("threads", None),
        rest.pop("distributive", True),
        rest.pop("parts", True),
        as_targets(target) if target is not None and _are_targets(target) else None,
    )
    unknown = [f"{name}={value!r}" for name, value in others.items()]
    unknown += [f"options={rest}"] if rest else []
    if not isinstance(how.distributive, bool):
        unknown.append(f"options={{'distributive': {how.distributive!r}}}")
    if not isinstance(how.parts, bool):
        unknown.append(f"options={{'parts': {how.parts!r}}}")
    if not (target is None or _are_targets(target)):
        unknown.append(f"options={{'target': {target!r}}}")
    if unknown:
        raise TargetError(
            op,
            f"cannot take {', '.join(unknown)}",
            because="the options are threads, the most that a call may use, distributive, whether products may be "
            "distributed over sums, parts, whether kernels may run for a part of the batch at a time: True or False, and "
            "target, which runs them: one, or several in order",
            help=tuple(f"options={{{one}}}" for one in _EXAMPLES),
        )
    for one in resolve_targets(as_targets(how.target or "cpu")):
        one.options(op, threads=how.threads)  # they are checked there
    return how


def _are_targets(value: object) -> bool:
    """Return whether `value` is a target, or a sequence of at least one."""
    members = value if isinstance(value, tuple | list) else (value,)
    return bool(members) and all(isinstance(one, str | Target) for one in members)
