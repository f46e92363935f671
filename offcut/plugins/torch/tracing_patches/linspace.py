"""Numbers between two ends, as many as a size says: torch takes such a size for a number, and compiles once for each.

``torch.linspace(-1, 1, h)`` gives an image the places of its rows. It is traced as what it counts, which is the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.overrides import TorchFunctionMode


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
