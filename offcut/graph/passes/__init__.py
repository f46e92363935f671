"""What is done to a graph before it is compiled: each pass makes another graph that computes the same, or gives back its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from offcut.core.names import renamed_names
from offcut.errors import DescribeError
from offcut.graph.graph import Bound
from offcut.graph.passes.masks import masks_as_domains
from offcut.graph.passes.products import convolution_to_matmul, insert_layout_copies, merge_products
from offcut.graph.passes.quantization import integer_products
from offcut.graph.passes.reshapes import sink_reshapes
from offcut.graph.passes.simplification import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    read_unrepeated,
)

Pass: TypeAlias = Callable[[Bound], Bound]

DEFAULT: tuple[Pass, ...] = (
    eliminate_dead_code,
    integer_products,
    convolution_to_matmul,
    fold_constants,
    read_unrepeated,
    eliminate_common_subexpressions,
    masks_as_domains,
    merge_products,
    sink_reshapes,
    eliminate_dead_code,
    eliminate_common_subexpressions,
    insert_layout_copies,
)
"""In the order in which they run."""


def run_passes(bound: Bound, passes: Sequence[Pass] = DEFAULT) -> Bound:
    """The graph that the passes make, one after the other.

    Raises DescribeError for one that is no pass, and for a graph without outputs.
    """
    if not isinstance(passes, Sequence):
        raise DescribeError(
            "graph",
            f"cannot take passes={passes!r}",
            because="passes are functions, in the order in which they run",
            help=("passes=(eliminate_dead_code, fold_constants)",),
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
                else "it is not a function",
                help=("a function from a Bound to a Bound, or to the same object",),
            )
        bound = result
    return bound


__all__ = [
    "DEFAULT",
    "Pass",
    "convolution_to_matmul",
    "eliminate_common_subexpressions",
    "eliminate_dead_code",
    "fold_constants",
    "insert_layout_copies",
    "integer_products",
    "masks_as_domains",
    "merge_products",
    "read_unrepeated",
    "run_passes",
    "sink_reshapes",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, {"improved": "run_passes"})
