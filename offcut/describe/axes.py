"""What a user calls tensors and axes, and the shapes given for them -> the same, checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from offcut.core.sizes import size_expr
from offcut.errors import DescribeError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def checked_name(what: str, name: Any) -> str:
    """`name`, which is an ASCII identifier; `what` is the user's call."""
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise DescribeError(
            what, f"cannot take the name {name!r}", because="names are ASCII identifiers"
        )
    return name


def checked_shape(what: str, name: str, shape: Any) -> tuple[Any, ...]:
    """The extents of the tensor `name`, as sizes; `what` is the user's call.

    Raises DescribeError where it is no sequence of sizes that are at least 0.
    """
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise DescribeError(
            what,
            f"cannot take the shape {shape!r}",
            at=f"tensor {name}",
            because="a shape is a tuple of sizes",
            help=("(n, 768)", "(n,)"),
        )
    sizes = tuple(size_expr(extent, what) for extent in shape)
    for axis, extent in enumerate(sizes):
        if extent.is_Integer and extent < 0:
            raise DescribeError(
                what,
                f"cannot take the extent {extent}",
                at=f"tensor {name}, axis {axis}",
                because="an extent is at least 0",
            )
    return sizes


def axis_names(
    fn: Callable[..., Any], name: str, axes: Sequence[str] | None, rank: int, op: str = "compute"
) -> tuple[str, ...]:
    """The names of the axes of `name`: `axes`, else the parameters of `fn`; `op` is the user's call.

    Raises DescribeError where they are no names, or not `rank` different ones.
    """
    if not callable(fn):
        raise DescribeError(
            op,
            f"cannot {op} with {fn!r}",
            at=f"tensor {name}",
            because="it is not a function of the axes",
            help=(f"{op}({'(n,)' if op == 'compute' else name}, lambda i: A[i] + 1.0)",),
        )
    if axes is not None and not isinstance(axes, Sequence):
        raise DescribeError(
            op,
            f"cannot take axes={axes!r}",
            at=f"tensor {name}",
            because="axes are a tuple of names",
            help=('axes=("i", "j")',),
        )
    parameters = [p for p in inspect.signature(fn).parameters.values() if p.default is p.empty]
    if axes is None and any(p.kind not in _POSITIONAL for p in parameters):
        raise DescribeError(
            op,
            "cannot name the axes",
            at=f"tensor {name}",
            because="the function's parameters are not all plain names",
            help=('axes=("i", "j")',),
        )
    names = tuple(axes) if axes is not None else tuple(p.name for p in parameters)
    if len(names) != rank:
        raise DescribeError(
            op,
            f"cannot give {rank} axes the names {', '.join(names) or '(none)'}",
            at=f"tensor {name}",
            because=f"the shape has {rank} extents and the function {len(names)} parameters",
        )
    for axis in names:
        checked_name(op, axis)
    if len(set(names)) != len(names):
        raise DescribeError(
            op,
            f"cannot name axes {names}",
            at=f"tensor {name}",
            because="a name is repeated",
        )
    return names
