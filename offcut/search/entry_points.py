"""What plug-ins add under a name: entry points of a group, loaded when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isclass

from offcut.errors import DescribeError


def load_entry_point(
    group: str, argument: str, name: str, known: str, help: Sequence[str] = ()
) -> object:
    """What the entry point of that name gives; of a class, an instance.

    argument  of `oc.tune`, that the name was given as
    known     the names that need no entry point
    help      what else the argument takes

    Raises DescribeError where there is none, with those that there are, and where it cannot be loaded.
    """
    from importlib.metadata import entry_points  # takes longer to load than the rest of this file

    there = {point.name: point for point in entry_points(group=group)}
    if name not in there:
        also = (f"{', '.join(sorted(there))}, of plug-ins",) if there else ()
        raise DescribeError(
            "tune",
            f"cannot take {argument}={name!r}",
            because=f"there is no such {argument}",
            help=(known, *also, *help),
        )
    try:
        entry: object = there[name].load()
        return entry() if isclass(entry) else entry
    except Exception as error:
        raise DescribeError(
            "tune",
            f"cannot load {argument}={name!r}",
            at=f"{there[name].value}, an entry point of {group}",
            because=f"{type(error).__name__}: {error}",
        ) from error
