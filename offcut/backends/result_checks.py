"""Check the results of the methods of targets: a user's target may return anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from offcut.backends.options import Options
from offcut.errors import TargetError

RESULTS: Mapping[str, tuple[Any, str]] = {
    "options": (Options, "Options"),
    "policy": (Iterable, "an iterator over plans"),
    "lower": (bytes, "bytes"),
    "load": (Callable, "a function of the constants"),
    "cache_key_parts": ((tuple, list), "a tuple of texts"),
    "notes": ((tuple, list), "a tuple of lines"),
    "render_form": (str, "a text"),
    "render_form_at": (str, "a text"),
}
"""The type that each of these methods returns, and what an error calls it."""

R = TypeVar("R")


def check_result(target: Any, method: str, result: R) -> R:
    """Return the checked result of a target's method: ``check_result(mine, "lower", mine.lower(…))``.

    Raises TargetError where it is not of the type in `RESULTS`.
    """
    check_type(target, method, result, *RESULTS[method])
    return result


def check_type(target: Any, member: str, value: Any, kind: Any, expected: str) -> Any:
    """Return a value of a target, checked: the result of a method, or an attribute.

    kind  a type, or several: one of which it is

    Raises TargetError where it is of another one.
    """
    if isinstance(value, kind):
        return value
    raise TargetError(
        "target",
        f"cannot use target={target.name!r}",
        at=f"{type(target).__name__}.{member}",
        because=f"it gives {value!r}, not {expected}",
    )
