"""Numbers between two ends, as many as a size says: torch takes such a size for a number, and compiles once for each.

``torch.linspace(-1, 1, h)`` gives an image the places of its rows. It is traced as what it counts, which is the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable


def linspace(
    variable: TorchInGraphFunctionVariable, tx: Any, *args: VariableTracker, **kwargs: Any
) -> VariableTracker | None:
    """What stands for a call of `torch.linspace` in a trace; None where it is traced as torch does."""
    given = {**dict(zip(("start", "end", "steps"), args, strict=False)), **kwargs}
    dtype = given.get("dtype")
    plain = dtype is None or dtype.as_python_constant() in (None, torch.float32, torch.float64)
    if not isinstance(given.get("steps"), SymNodeVariable) or not plain:
        return None
    if not given.keys() <= {"start", "end", "steps", "dtype", "device"}:
        return None
    function = VariableTracker.build(tx, _counted)
    found: VariableTracker = tx.inline_user_function_return(function, [], given)
    return found


@contextmanager
def counting() -> Iterator[None]:
    """Where torch runs a module to trace it, so of each call that names it ``torch.linspace``."""
    theirs = torch.linspace

    def spaced(start: Any, end: Any, steps: Any = None, **more: Any) -> torch.Tensor:
        plain = more.get("dtype") in (None, torch.float32, torch.float64)
        if isinstance(steps, torch.SymInt) and plain and more.keys() <= {"dtype", "device"}:
            return _counted(start, end, steps, **more)
        return theirs(start, end, steps, **more)

    torch.linspace = spaced
    try:
        yield
    finally:
        torch.linspace = theirs


def _counted(
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
