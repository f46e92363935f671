"""When dynamo begins to trace a frame for us: the settings of `offcut.plugins.torch.trace_settings` hold from then on.

Dynamo hands a backend what it has traced. To ask for another trace then costs the first one, most of what torch takes for a model. So
the backend is told of each compilation as it begins, and reads from the frame that compiles whose it is, and which tensors it is called with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import callback as dynamo_callbacks
from torch._dynamo import convert_frame
from torch.utils import _pytree as pytree

from offcut.plugins.torch.trace_settings import DynamicTraceSettings


def install_hook(backend: Callable[..., Any]) -> None:
    """Be told of compilations that begin.

    backend  whose frames are meant
    """
    _Begins.backend = backend
    for known, callback in (
        (dynamo_callbacks.callback_handler.start_callbacks, _begin),
        (dynamo_callbacks.callback_handler.end_callbacks, DynamicTraceSettings.leave),
    ):
        if callback not in known:
            known.append(callback)


class _Begins:
    """The backend whose frames are meant."""

    backend: Callable[..., Any] | None = None


def _begin(_: Any) -> None:
    """Enter the settings where a frame of ours is about to be traced with sizes."""
    frame: Any = sys._getframe()
    while frame is not None and not _compiles(frame.f_code):
        frame = frame.f_back
    if frame is None or torch._dynamo.config.assume_static_by_default:
        return
    compiler = frame.f_locals.get("compiler_fn")
    if getattr(compiler, "compiler_fn", compiler) is _Begins.backend:
        DynamicTraceSettings.enter(tensors_of(frame.f_locals.get("locals")))


def _compiles(code: Any) -> bool:
    return (code.co_name, code.co_filename) == ("_compile", convert_frame.__file__)


def tensors_of(values: Any) -> tuple[Any, ...]:
    """The tensors in what a frame is called with, but for parameters."""
    leaves = pytree.tree_leaves(values)
    return tuple(
        one
        for one in leaves
        if isinstance(one, torch.Tensor) and not isinstance(one, torch.nn.Parameter)
    )
