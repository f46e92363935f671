"""offcut inside of torch: a backend of ``torch.compile``, and exported programs as models. Torch is loaded when first used."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from offcut.core.extras import check_installed
from offcut.core.process import freeze_gc
from offcut.errors import trim_traceback
from offcut.plugins.torch.report import programs, report

if TYPE_CHECKING:
    from offcut.graph import Targets
    from offcut.graph.models.batches.microbatches import Parts
    from offcut.plugins.torch.dynamo import backend
    from offcut.plugins.torch.exported_model import TorchModel

__all__ = ["backend", "from_torch", "programs", "report"]


def __getattr__(name: str) -> Any:
    """The backend, which is told of compilations from when it is named: ``torch.compile`` does that before it traces."""
    if name != "backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from offcut.plugins.torch import dynamo, trace_settings

    trace_settings.install_hook(dynamo.backend)
    return dynamo.backend


@freeze_gc()
@trim_traceback
def from_torch(
    model: Any,
    args: tuple[Any, ...] | None = None,
    dynamic_shapes: Any = None,
    *,
    kwargs: dict[str, Any] | None = None,
    threads: int | None = None,
    distributive: bool = True,
    parts: Parts = True,
    target: Targets | None = None,
) -> TorchModel:
    """A module of torch, or a program that ``torch.export`` gave, as a model for all its sizes.

    args            example arguments of a module: tensors of any sizes, 2 or more where they may vary
    dynamic_shapes  as ``torch.export`` takes them; None: every size that may vary does
    kwargs          example arguments that the module is called with by name
    threads         the most that a call may use; None: as `offcut.compile` says
    distributive    whether products may be distributed over sums, as `offcut.graph.compile_graph` says
    parts           which kernels run for a part of the batch at a time, likewise: lines as `TorchModel.plan` shows them, or a rule
                    that gives such lines for sizes by argument and axis, ``{"x_0": 8}``: it is asked once for each region that is ours
    target          a target, or its name; or several: a kernel runs on the first that takes it; None: that of the device of the
                    tensors. What none takes stays with torch, and `TorchModel.report` lists it with the reason

    The model is called with tensors of torch and gives what the module gives; its weights are copies of those that the module has now.

    Raises DescribeError for what is neither, or cannot be exported. Raises TargetError where torch is not installed.
    """
    check_installed("from_torch", "cannot take a model of torch", "torch")
    from offcut.graph.models.batches.microbatches import check_parts
    from offcut.plugins.torch import exported_model
    from offcut.plugins.torch.options import parse_options

    check_parts("from_torch", parts)
    how = parse_options(
        "from_torch", {"threads": threads, "distributive": distributive, "target": target}, {}
    )
    return exported_model.model_from_export(
        model, args, kwargs, dynamic_shapes, replace(how, parts=parts)
    )
