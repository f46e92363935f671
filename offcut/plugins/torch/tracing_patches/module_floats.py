"""Floats that a module holds, traced as the numbers that they are, as its weights are constants.

With ``dynamic=True`` torch takes each for a value that may change, and traces the whole frame once more where one of them turns out to
be needed as a number. One that has changed since is a value from then on.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.guards import GuardBuilder
from torch._dynamo.pgo import FrameStateSizeEntry, auto_dynamic, process_automatic_dynamic
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.constant import ConstantVariable

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
