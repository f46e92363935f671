"""Numbers that torch calculates from sizes or holds in modules, traced without asking whether a size is 1.

``int(n ** 0.5)``, the side of a square of so many elements, traced as one of the sizes that multiply to them.

A root is no extent, so that what has it as a size stayed with torch. Vision models ask for it where they made ``h * w`` rows of an image.
Where both sizes are equal in the traced call, the side is the one, and it is guarded that the other is equal.

Numbers between two ends, as many as a size says: torch takes such a size for a number, and compiles once for each.

``torch.linspace(-1, 1, h)`` gives an image the places of its rows. It is traced as what it counts, which is the same but for rounding.

Floats that a module holds, traced as the numbers that they are, as its weights are constants.

With ``dynamic=True`` torch takes each for a value that may change, and traces the whole frame once more where one of them turns out to
be needed as a number. One that has changed since is a value from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.pgo import FrameStateSizeEntry, auto_dynamic, process_automatic_dynamic
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.sym_node import SymNode
from torch.overrides import TorchFunctionMode
from torch.utils._sympy import functions as sf

from offcut.plugins.torch.sizes import is_size_symbol

_CALLERS = 16
"""More than lie between a call of ``int`` and the truncation."""

_truncated = SymNode.trunc


def trunc(node: Any) -> Any:
    """A symbolic float without what is behind its point; of the root of a square, its side.

    Not where Python wants a number, as in the frames of ``torch.export``: the side would be that number in all calls.
    """
    side = None if get_proxy_mode() or _is_number_wanted() else _side(node)
    return side.node if isinstance(side, torch.SymInt) else _truncated(node)


def _is_number_wanted() -> bool:
    """Whether a float is asked for its integer as a number of Python, by way of torch's proxies or not."""
    frame: Any = sys._getframe(2)
    for _ in range(_CALLERS):
        if frame is None or frame.f_code is torch.SymFloat.__int__.__code__:
            return frame is not None
        frame = frame.f_back
    return False


def _side(node: Any) -> Any:
    """The size of which a float is the root of the square; None of others."""
    square = _under_root(node.expr)
    if square is None or not all(map(is_size_symbol, square.free_symbols)):
        return None
    shapes = node.shape_env
    factors = [
        base
        for factor in sympy.Mul.make_args(square)
        for base, times in [factor.as_base_exp()]
        for _ in range(int(times) if times.is_Integer else 0)
    ]
    if len(factors) != 2 or sympy.prod(factors) != square:
        return None
    hints = [int(shapes.optimization_hint(factor)) for factor in factors]
    if hints[0] != hints[1]:
        return None
    one, other = (shapes.create_symintnode(factor, hint=hints[0]) for factor in factors)
    torch._check(one == other)
    return one


def _under_root(expr: Any) -> Any:
    """What an expression is the root of; None where it is none."""
    is_power = isinstance(expr, sf.FloatPow) and expr.args[1] == 0.5
    if not (is_power or isinstance(expr, sf.OpaqueUnaryFn_sqrt)):
        return None
    inner = expr.args[0]
    return inner.args[0] if isinstance(inner, sf.ToFloat) else inner


def linspace(
    variable: TorchInGraphFunctionVariable, tx: Any, *args: VariableTracker, **kwargs: Any
) -> VariableTracker | None:
    """What stands for a call of `torch.linspace` in a trace; None where it is traced as torch does."""
    arguments = {**_arguments_by_name(args), **kwargs}
    dtype = arguments.get("dtype")
    plain = dtype is None or dtype.as_python_constant() in _FLOATS
    if not (
        isinstance(arguments.get("steps"), SymNodeVariable) and plain and arguments.keys() <= _TAKEN
    ):
        return None
    function = VariableTracker.build(tx, _exact_linspace)
    result: VariableTracker = tx.inline_user_function_return(function, [], arguments)
    return result


class Counting(TorchFunctionMode):  # type: ignore[misc]
    """The same where torch runs a module to trace it: a mode is asked before the size becomes a number, a decomposition after that."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """What a call gives."""
        more = kwargs or {}
        if function is torch.linspace:
            arguments = {**_arguments_by_name(args), **more}
            plain = arguments.get("dtype") in _FLOATS and arguments.keys() <= _TAKEN
            if isinstance(arguments.get("steps"), torch.SymInt) and plain:
                return _exact_linspace(**arguments)
        return function(*args, **more)


_TAKEN = {"start", "end", "steps", "dtype", "device"}
_FLOATS = (None, torch.float32, torch.float64)


def _arguments_by_name(args: Iterable[Any]) -> dict[str, Any]:
    """Arguments by position, by name."""
    return dict(zip(("start", "end", "steps"), args, strict=False))


def _exact_linspace(
    start: Any,
    end: Any,
    steps: Any,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> torch.Tensor:
    """From each end on, so that both are exact: ``start + span*i/(steps - 1)`` up to the middle."""
    places = torch.arange(steps, dtype=dtype or torch.get_default_dtype(), device=device)
    span, gaps = end - start, torch.sym_max(steps - 1, 1)
    ahead, back = start + places * span / gaps, end - (gaps - places) * span / gaps
    return torch.where(2 * places < steps, ahead, back)


_wrapped = VariableBuilder.wrap_symfloat


def wrap_symfloat(builder: Any, value: float) -> Any:
    """What stands for a float in a trace."""
    source = builder.source
    if not source.guard_source.is_unspecialized_nn_module():
        return _wrapped(builder, value)
    entry = process_automatic_dynamic(
        builder.tx,
        source.name,
        FrameStateSizeEntry.make_scalar(value),
        is_unspecialized_nn_module=True,
    )
    if entry.scalar is auto_dynamic:
        return _wrapped(builder, value)
    builder.install_guards(GuardBuilder.CONSTANT_MATCH)
    return ConstantVariable.create(value=value, source=source)
