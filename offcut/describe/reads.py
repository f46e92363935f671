"""Tensors -> all that they read, in an order in which they can be computed, and the sizes in them."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.core.sizes import Dim
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError


def tensors_of(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`outputs` and all that they read, each after what it reads."""
    order: dict[Tensor, None] = {}
    pending = [(tensor, False) for tensor in reversed(outputs)]
    while pending:
        tensor, ready = pending.pop()
        if tensor in order:
            continue
        reads = tensor.definition.reads if tensor.definition is not None else ()
        if ready or not reads:
            order[tensor] = None
        else:
            pending.append((tensor, True))
            pending += [(read, False) for read in reversed(reads)]
    return tuple(order)


def sizes_of(tensors: Sequence[Tensor]) -> tuple[Dim, ...]:
    """Every symbolic size in the shapes and bodies of `tensors`, by first appearance.

    Raises DescribeError when two sizes of one name carry different facts.
    """
    sizes: dict[str, Dim] = {}
    for tensor in tensors:
        definition = tensor.definition
        extents = [*tensor.shape]
        if definition is not None:
            extents += [axis.extent for axis in definition.reduce_axes]
            extents += definition.sizes
        for extent in extents:
            for symbol in sorted(extent.free_symbols, key=str):
                other = sizes.setdefault(symbol.name, symbol)
                if other != symbol:
                    raise DescribeError(
                        "compute",
                        f"cannot tell two sizes named {symbol.name} apart",
                        at=f"tensor {tensor.name}",
                        because=f"one is {_facts(other)}, the other {_facts(symbol)}",
                        help=("make the size once, and use it in every shape",),
                    )
    return tuple(sizes.values())


def _facts(size: Dim) -> str:
    multiple = f", a multiple of {size.multiple_of}" if size.multiple_of != 1 else ""
    return f"{size.min}…{size.max}{multiple}"
