"""The exported program of a module, for all sizes, and the conditions on these that held."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from offcut.errors import DescribeError, InternalError
from offcut.plugins.torch.opaque_recurrences import trace_recurrences_whole
from offcut.plugins.torch.trace_guards import record_branches
from offcut.plugins.torch.trace_settings import dynamic_trace, is_number


def export_with_conditions(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    again: bool = False,
) -> tuple[Any, list[Any]]:
    """Return the program, and the conditions on sizes that held.

    again  for a call of other sizes: those of 0 and 1 are numbers as dynamo takes them
    """
    args, kwargs = _distinct_tensors(args, kwargs)
    try:
        arguments = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        if dynamic_shapes is None:
            free = partial(_dimensions_of, numbers=again)
            dynamic_shapes = {name: pytree.tree_map(free, one) for name, one in arguments.items()}
        elif again:
            dynamic_shapes = _with_static_numbers(arguments, dynamic_shapes)
        with (
            torch.no_grad(),
            dynamic_trace(),
            trace_recurrences_whole(),
            record_branches() as conditions,
        ):
            exported = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
        return exported, conditions
    except InternalError:
        raise
    except Exception as failed:
        first = str(failed).strip().splitlines()
        raise DescribeError(
            "from_torch",
            f"cannot export {type(model).__name__}",
            because=f"{type(failed).__name__}: {first[0] if first else ''}",
            help=("torch.from_numpy(x) makes a tensor of an array",)
            if any(isinstance(one, np.ndarray) for one in pytree.tree_leaves((args, kwargs)))
            else (),
        ) from failed


def _distinct_tensors(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments of which no tensor is another one: torch takes one that is given twice for one argument, whatever calls give."""
    numbers = set[int]()

    def alone(one: torch.Tensor) -> torch.Tensor:
        if id(one) in numbers:
            return one.detach().clone()
        numbers.add(id(one))
        return one

    distinct: tuple[tuple[Any, ...], dict[str, Any]]
    distinct = pytree.tree_map_only(torch.Tensor, alone, (args, kwargs))
    return distinct


def _dimensions_of(argument: Any, numbers: bool) -> Any:
    """Return a dimension for each size of a tensor, which may vary where the module allows it; but for numbers."""
    if not isinstance(argument, torch.Tensor):
        return None
    return [
        torch.export.Dim.STATIC if numbers and is_number(axis, size) else torch.export.Dim.AUTO
        for axis, size in enumerate(argument.shape)
    ]


def _with_static_numbers(arguments: dict[str, Any], dynamic_shapes: Any) -> Any:
    """Return shapes as a user gave them, where a size that torch may settle is settled if it is a number."""

    def of(one: Any, shape: Any) -> Any:
        if not isinstance(one, torch.Tensor) or not isinstance(shape, dict | list | tuple):
            return shape
        axes = dict(shape) if isinstance(shape, dict) else dict(enumerate(shape))
        return {
            axis: torch.export.Dim.STATIC
            if free is torch.export.Dim.AUTO and is_number(axis, one.shape[axis])
            else free
            for axis, free in axes.items()
        }

    is_by_name = isinstance(dynamic_shapes, dict)
    shapes = dynamic_shapes.values() if is_by_name else dynamic_shapes
    names = dynamic_shapes if is_by_name else arguments
    try:
        return {
            name: pytree.tree_map(of, arguments[name], shape)
            for name, shape in zip(names, shapes, strict=True)
        }
    except (KeyError, TypeError, ValueError):  # not shaped as the arguments are: torch says so
        return dynamic_shapes


__all__ = ["export_with_conditions"]
