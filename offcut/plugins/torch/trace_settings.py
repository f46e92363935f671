"""How torch traces for us, so that one graph serves every size.

With ``backed_size_oblivious`` sizes start at 0, and what truly depends on a size of 1 becomes a guard; sizes that are equal by
chance stay apart; and libraries that torch takes for some batches only (NNPACK below 16, oneDNN above 1) are not considered.

Dynamo goes on behind an operator that finds an extent, `nonzero`, and through a recurrent layer where no gradient is asked for: where
one is, torch would walk its steps.

A size of 1 may be one that happens to be 1, as a batch, or one that is broadcast, as of a mask ``(b, 1, n, n)``. So only the first axis
is traced as a size where it is 1; elsewhere a 1 is a number, and what comes with another is compiled once more. A first axis that
is broadcast becomes a guard by torch's references of operators; its fast paths for fake tensors take it for unequal instead and
fail, so they are not taken. A size of 0 is a number, too: of such, torch cannot tell whether it is to be broadcast.

When dynamo begins to trace a frame for us: the settings of `offcut.plugins.torch.trace_settings` hold from then on.

Dynamo hands a backend what it has traced. To ask for another trace then costs the first one, most of what torch takes for a model. So
the backend is told of each compilation as it begins, and reads from the frame that compiles whose it is, and which tensors it is called with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._dynamo import callback as dynamo_callbacks
from torch._dynamo import config as dynamo
from torch._dynamo import convert_frame
from torch._subclasses.fake_impls import get_fast_op_impls
from torch.fx.experimental import _config as symbolic
from torch.utils import _pytree as pytree

from offcut.plugins.torch.opaque_recurrences import trace_recurrences_whole
from offcut.plugins.torch.tracing_patches import trace_without_guards
from offcut.plugins.torch.tracing_patches.numbers import Counting

_STATIC = "_dynamo_static_indices"
"""Where dynamo looks for the axes of a tensor whose sizes are numbers."""


class DynamicTraceSettings:
    """Settings of torch while it traces a frame for us; put back when the compilation ends."""

    stack: ExitStack | None = None
    marked: tuple[Any, ...] = ()
    asked = False

    @classmethod
    def again(cls, tensors: Sequence[Any]) -> bool:
        """Whether a frame is to be traced once more with these settings: at most once in a compilation.

        tensors  that it was traced with
        """
        is_marked = cls.now() and not any(map(_has_unmarked_axes, tensors))
        if cls.asked or is_marked:
            return False
        cls.enter(tensors)
        cls.asked = True
        return True

    @classmethod
    def enter(cls, tensors: Iterable[Any] = ()) -> None:
        """Trace sizes of 1 as sizes, and equal ones apart; choose no library for a convolution by its batch.

        tensors  that the frame is traced with: those of their sizes that stay numbers are marked so
        """
        if cls.stack is None:
            cls.stack = ExitStack()
            _enter_settings(cls.stack)
        cls.marked += tuple(one for one in tensors if _mark(one))

    @classmethod
    def leave(cls, *_: Any) -> None:
        """As it was."""
        if cls.stack is not None:
            cls.stack.close()
            for one in cls.marked:
                delattr(one, _STATIC)
            cls.stack, cls.marked, cls.asked = None, (), False

    @staticmethod
    def now() -> bool:
        """Whether sizes of 1 are traced as sizes."""
        return bool(symbolic.backed_size_oblivious)


def _enter_settings(stack: ExitStack) -> None:
    """Enter the settings of torch for tracing; `stack` restores them."""
    stack.enter_context(symbolic.patch(backed_size_oblivious=True, use_duck_shape=False))
    layers = not torch.is_grad_enabled()
    stack.enter_context(dynamo.patch(capture_dynamic_output_shape_ops=True, allow_rnn=layers))
    for name in ("nnpack", "mkldnn"):
        set_enabled = getattr(torch._C, f"_set_{name}_enabled")
        stack.callback(set_enabled, getattr(torch._C, f"_get_{name}_enabled")())
        set_enabled(False)
    stack.enter_context(trace_recurrences_whole())
    fast = get_fast_op_impls()
    stack.callback(fast.update, dict(fast))
    fast.clear()
    stack.enter_context(trace_without_guards())


def is_number(axis: int, size: int) -> bool:
    """Whether a size is traced as a number."""
    return size == 0 or (size == 1 and axis > 0)


def _mark(tensor: Any) -> bool:
    """Mark the axes whose sizes are numbers; whether that was done."""
    if not _has_unmarked_axes(tensor):
        return False
    setattr(tensor, _STATIC, _numbers(tensor))
    return True


def _has_unmarked_axes(tensor: Any) -> bool:
    """Whether axes are to be marked, and are not."""
    return bool(_numbers(tensor)) and not hasattr(tensor, _STATIC)


def _numbers(tensor: Any) -> set[int]:
    return {axis for axis, size in enumerate(tensor.shape) if is_number(axis, size)}


@contextmanager
def dynamic_trace() -> Iterator[None]:
    """These settings, inside."""
    DynamicTraceSettings.enter()
    try:
        with Counting():
            yield
    finally:
        DynamicTraceSettings.leave()


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
