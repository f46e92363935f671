"""Names: what a misspelt one may have meant, and old ones, which work for two minor releases and warn with the new one.

Names that were renamed: the old one works for two minor releases, and warns with the new one.

What a misspelt name may have meant.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def similar_names(name: str, known: Iterable[str]) -> str:
    """Of the known names the three at most that are spelt most alike, as a question; empty where none is.

    >>> nearest("sofmax", ["softmax", "conv2d"])
    'did you mean softmax?'
    """
    from difflib import get_close_matches  # where something is misspelt

    matches = get_close_matches(name, known)
    return f"did you mean {' or '.join(matches)}?" if matches else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The same question behind a colon, to be put after a sentence."""
    return f": {found}" if (found := similar_names(name, known)) else ""


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that `old` is now called `new`, at the line that uses it."""
    message = f"{old} is now {new}; the old name will be removed in offcut 0.4"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


class RenamedAttribute:
    """A method or a property of a class by its old name, which warns with the new one.

    new  its name now
    """

    def __init__(self, new: str) -> None:
        self._new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self._names = f"{owner.__name__}.{name}", f"{owner.__name__}.{self._new}"

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        warn_renamed(*self._names)
        return getattr(instance, self._new)


def moved_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names moved: each is found where it is now, and warns.

    homes  the modules that have the names now; "" is that of the names that it does not list
    """

    def find(name: str) -> Any:
        home = homes.get(name, homes.get("", ""))
        if not home or name.startswith("__") or not hasattr(import_module(home), name):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", f"{home}.{name}")
        return getattr(import_module(home), name)

    return find


def renamed_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names were renamed: each old one is the new one, and warns.

    names  the new name of each old one
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", f"{module}.{names[name]}")
        return getattr(import_module(module), names[name])

    return find
