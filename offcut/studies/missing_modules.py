"""Modules that operators of a user's own need and that are not installed: these operators are left out, the others are measured."""

from __future__ import annotations

import dis
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from offcut.core.extras import installing

MAX_NAMES = 6
"""Operators that a line names."""


@dataclass(frozen=True, slots=True)
class AbsentOperator:
    """An operator that is left out of a study.

    name    in tables
    module  that it needs and that is not installed
    """

    name: str
    module: str


def missing_module(error: BaseException, own: str) -> str:
    """Return the module that is not installed by an error or one of its causes; "" for another error.

    own  the module that the study's file names: where that is missing, the file is wrong
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            package = cause.name.partition(".")[0]
            is_own = package == own.partition(":")[0].partition(".")[0]
            return "" if is_own or not _is_missing(package) else package
        cause = cause.__cause__
    return ""


def _is_missing(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is None
    except (ImportError, ValueError):
        return True


def needs_missing_module(function: Callable[..., Any]) -> bool:
    """Return whether a function, or one of its file that it may call, has an import of a module that is not installed.

    It need not reach that import: calling the function says so. Nothing is called here.
    """
    pending, known = list[Any]([function]), set[Any]()
    while pending:
        one = pending.pop()
        if not isinstance(one, FunctionType) or one in known:
            continue
        known.add(one)
        for code in _codes(one.__code__):
            if any(_is_missing(package) for package in _imports(code)):
                return True
            names = (one.__globals__.get(name) for name in code.co_names)
            pending += [x for x in names if getattr(x, "__module__", None) == one.__module__]
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code, and those of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _imports(code: CodeType) -> Iterator[str]:
    """Yield the packages that a code imports by their full names."""
    # an import takes its level and its names from the two last constants
    before: list[Any] = [None, None]
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and before[0] == 0:
            yield str(step.argval).partition(".")[0]
        before = [before[1], step.argval]


def absent_lines(operators: Sequence[AbsentOperator]) -> list[str]:
    """Return a line for each module: that it is not installed, how it is, and which operators are left out."""
    lines = []
    for module in dict.fromkeys(one.module for one in operators):
        names = [one.name for one in operators if one.module == module]
        what = "an operator is" if len(names) == 1 else f"{len(names)} operators are"
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        listed = f"{', '.join(names[:MAX_NAMES])}{more}"
        lines.append(f"{module} is not installed ({installing(module)}): {what} left out: {listed}")
    return lines
