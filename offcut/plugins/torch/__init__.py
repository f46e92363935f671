"""offcut inside of torch: a backend of ``torch.compile``, and exported programs as models. Torch is loaded when first used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from offcut.plugins.torch.report import programs, report

if TYPE_CHECKING:
    from offcut.plugins.torch.exported import TorchModel

__all__ = ["backend", "from_torch", "programs", "report"]


def backend(module: Any, examples: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """What ``torch.compile(model, backend="offcut", dynamic=True)`` calls with a graph that it traced.

    options  as ``torch.compile`` passes them on: ``options={"threads": 2}``, the most that a call may use

    Raises TargetError for any other.
    """
    from offcut.plugins.torch import dynamo

    return dynamo.backend(module, examples, **options)


def from_torch(
    model: Any, args: tuple[Any, ...] | None = None, dynamic_shapes: Any = None
) -> TorchModel:
    """A module of torch, or a program that ``torch.export`` gave, as a model for all its sizes.

    args            example arguments of a module: tensors of any sizes, 2 or more where they may vary
    dynamic_shapes  as ``torch.export`` takes them; None: every size that may vary does

    The model is called with tensors of torch and gives what the module gives; its weights are copies of those that the module has now.

    Raises DescribeError for what is neither, or cannot be exported.
    """
    from offcut.plugins.torch import exported

    return exported.taken(model, args, dynamic_shapes)
