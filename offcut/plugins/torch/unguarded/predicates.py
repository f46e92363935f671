"""Which of torch's predicates a function is, as ``is_torchdynamo_compiling`` of transformers: without calling it.

A function of a frame may do anything when it is called. Such as this one does nothing but to give what a predicate of torch gives:

    def is_compiling():
        import torch
        return torch.compiler.is_compiling()

Its code is read up to the value that it returns. It may load modules that are imported, their functions and others such as itself, and call
these; all else says that it is no predicate. What it does where that raises is not read: a predicate does not.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch

from offcut.plugins.torch.unguarded.opcodes import Does, does

_PREDICATES = (
    torch.jit.is_scripting,
    torch.jit.is_tracing,
    torch.compiler.is_compiling,
    torch.compiler.is_dynamo_compiling,
    torch.compiler.is_exporting,
)
"""Functions that change nothing: a frame that is followed may call these, and goes on to call them again."""

_DEPTH = 4
"""So many functions that call each other are read."""


class _Other(Exception):
    """The function does something else."""


@dataclass(frozen=True)
class _Answer:
    """What a call of a predicate gave."""

    predicate: Callable[[], bool]


def predicate(function: Any) -> Callable[[], bool] | None:
    """The predicate that a function is, or whose answer it returns; None of all others.

    >>> def compiling() -> bool:
    ...     return torch.compiler.is_compiling()
    >>> predicate(compiling) is torch.compiler.is_compiling
    True
    >>> predicate(print) is None
    True
    """
    try:
        return _answer(function, _DEPTH).predicate
    except (
        _Other,
        IndexError,
    ):  # a stack that holds less than an instruction takes: another CPython
        return None


def _answer(function: Any, depth: int) -> _Answer:
    """What a call of the function gives."""
    if any(function is one for one in _PREDICATES):
        return _Answer(function)
    if depth == 0 or not isinstance(function, FunctionType):
        raise _Other
    stack: list[Any] = []
    local: dict[str, Any] = {}
    for inst in dis.get_instructions(function):
        said = str(inst.argval)
        match does(inst.opname):
            case Does.RETURN:
                break
            case Does.CONSTANT:
                stack.append(inst.argval)
            case Does.GLOBAL:
                stack.append(function.__globals__.get(said))
            case Does.LOCAL:
                stack.append(local.get(said))
            case Does.STORE:
                local[said] = stack.pop()
            case Does.MODULE:
                stack[-2:] = [sys.modules.get(said) if "." not in said else None]
            case Does.ATTRIBUTE:
                stack[-1] = vars(stack[-1]).get(said) if isinstance(stack[-1], ModuleType) else None
            case Does.CALL if inst.arg == 0:
                stack[-1] = _answer(stack[-1], depth - 1)
            case Does.NOTHING:
                pass
            case _:
                raise _Other
    if not stack or not isinstance(stack[-1], _Answer):
        raise _Other
    return stack[-1]
