"""Which targets there are, by name.

A plug-in names its targets as entry points of the group ``offcut.targets``; each is called as
``factory(machine)``, with a description or None for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import TYPE_CHECKING

from offcut.backends.target import Target
from offcut.costmodel import Device
from offcut.errors import TargetError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "offcut.targets"
Factory = Callable[..., Target]
_BUILT_IN: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Make a target known in this process, without an entry point."""
    _BUILT_IN[name] = factory


def targets() -> tuple[str, ...]:
    """The names of the targets that there are."""
    return tuple(sorted({*_BUILT_IN, *(point.name for point in _plugged())}))


def named(name: object, machine: Device | None, op: str, device: str | None = None) -> Target:
    """The target of that name, for a machine or its own.

    device  what runs it; None: the hardware that is there. A factory is told one where it takes ``device=``

    Raises TargetError where there is none, it is no name, it has no choice of devices, or a plug-in cannot be loaded.
    """
    if not isinstance(name, str):
        raise _refused(name, "a target is a name, or an offcut.backends.target.Target", op)
    if name in _BUILT_IN:
        return _made(_BUILT_IN[name], machine, name, device)
    for point in (point for point in _plugged() if point.name == name):
        try:
            made = _made(point.load(), machine, name, device)
        except TargetError:
            raise
        except Exception as error:
            raise TargetError(
                op,
                f"cannot load target={name!r}",
                at=f"{point.value}, an entry point of {GROUP}",
                because=f"{type(error).__name__}: {error}",
            ) from error
        if isinstance(made, Target):
            return made
        raise TargetError(
            op,
            f"cannot load target={name!r}",
            at=f"{point.value}, an entry point of {GROUP}",
            because=f"it gives a {type(made).__name__}, no offcut.backends.target.Target",
        )
    raise _refused(name, "there is no such target", op)


def _made(factory: Factory, machine: Device | None, name: str, device: str | None) -> Target:
    if device is None:
        return factory(machine)
    if "device" not in signature(factory).parameters:
        raise TargetError(
            "target",
            f"cannot take device={device!r} for target={name!r}",
            because="it runs on the hardware that is there",
            help=(f'oc.target("{name}")',),
        )
    return factory(machine, device=device)


def _refused(name: object, because: str, op: str) -> TargetError:
    what = f"cannot {op} for target={name!r}" if op != "target" else f"cannot plan for {name!r}"
    help = ", ".join(f'target="{known}"' for known in targets())
    return TargetError(op, what, because=because, help=(help,))


def _plugged() -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points  # takes longer to load than the rest of this file

    yield from entry_points(group=GROUP)
