"""The registry of targets, by name.

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
    """Return the names of all targets."""
    return tuple(sorted({*_BUILT_IN, *(point.name for point in _entry_points())}))


def get_target(name: object, machine: Device | None, op: str, device: str | None = None) -> Target:
    """Return the target of a name, for a machine, or for its default machine.

    device  what runs it; None: the hardware that is there. A factory is told one where it takes ``device=``

    Raises TargetError where there is none, it is no name, it has no choice of devices, or a plug-in cannot be loaded.
    """
    if not isinstance(name, str):
        raise _target_error(name, "a target is a name, or an offcut.backends.target.Target", op)
    if name in _BUILT_IN:
        return _make(_BUILT_IN[name], machine, name, device)
    for point in (point for point in _entry_points() if point.name == name):
        try:
            target = _make(point.load(), machine, name, device)
        except TargetError:
            raise
        except Exception as error:
            raise TargetError(
                op,
                f"cannot load target={name!r}",
                at=f"{point.value}, an entry point of {GROUP}",
                because=f"{type(error).__name__}: {error}",
            ) from error
        if isinstance(target, Target):
            return target
        raise TargetError(
            op,
            f"cannot load target={name!r}",
            at=f"{point.value}, an entry point of {GROUP}",
            because=f"it gives a {type(target).__name__}, no offcut.backends.target.Target",
        )
    raise _target_error(name, "there is no such target", op)


def _make(factory: Factory, machine: Device | None, name: str, device: str | None) -> Target:
    """Return what a factory makes for a machine, on a device."""
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


def _target_error(name: object, because: str, op: str) -> TargetError:
    problem = f"cannot {op} for target={name!r}" if op != "target" else f"cannot plan for {name!r}"
    help = ", ".join(f'target="{target_name}"' for target_name in targets())
    return TargetError(op, problem, because=because, help=(help,))


def _entry_points() -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points  # takes longer to load than the rest of this file

    yield from entry_points(group=GROUP)
