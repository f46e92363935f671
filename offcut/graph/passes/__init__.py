"""What is done to a graph before it is compiled: each pass makes another graph that computes the same, or gives back its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from offcut.errors import DescribeError
from offcut.graph.graph import Bound
from offcut.graph.passes.constants import fold_constants
from offcut.graph.passes.joined import join_products
from offcut.graph.passes.masks import masks_as_domains
from offcut.graph.passes.patches import patches_as_rows
from offcut.graph.passes.quantized import integer_products
from offcut.graph.passes.repeats import read_unrepeated
from offcut.graph.passes.reshapes import sink_reshapes
from offcut.graph.passes.shared import drop_dead, share_equal
from offcut.graph.passes.storing import store_for_products

Pass: TypeAlias = Callable[[Bound], Bound]

DEFAULT: tuple[Pass, ...] = (
    drop_dead,
    integer_products,
    patches_as_rows,
    fold_constants,
    read_unrepeated,
    share_equal,
    masks_as_domains,
    join_products,
    sink_reshapes,
    drop_dead,
    share_equal,
    store_for_products,
)
"""In the order in which they run."""


def improved(bound: Bound, passes: Sequence[Pass] = DEFAULT) -> Bound:
    """The graph that the passes make, one after the other.

    Raises DescribeError for one that is no pass, and for a graph without outputs.
    """
    if not isinstance(passes, Sequence):
        raise DescribeError(
            "graph",
            f"cannot take passes={passes!r}",
            because="passes are functions, in the order in which they run",
            help=("passes=(drop_dead, fold_constants)",),
        )
    if not bound.graph.outputs:
        raise DescribeError(
            "graph",
            f"cannot compile {bound.graph.name}",
            because="it gives nothing back",
            help=("Builder().output(value)",),
        )
    for one in passes:
        result = one(bound) if callable(one) else None
        if not isinstance(result, Bound):
            raise DescribeError(
                "graph",
                f"cannot take {getattr(one, '__name__', repr(one))} as a pass",
                because=f"it gives {type(result).__name__}"
                if callable(one)
                else "it is no function",
                help=("a function from a Bound to a Bound, or to the same object",),
            )
        bound = result
    return bound


__all__ = [
    "DEFAULT",
    "Pass",
    "drop_dead",
    "fold_constants",
    "improved",
    "integer_products",
    "join_products",
    "masks_as_domains",
    "patches_as_rows",
    "read_unrepeated",
    "share_equal",
    "sink_reshapes",
    "store_for_products",
]
