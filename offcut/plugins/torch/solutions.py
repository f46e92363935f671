"""How the sizes of a call are read from its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from offcut.plugins.torch.sizes import symbols_of
from offcut.plugins.torch.steps import Values
from offcut.plugins.torch.unsupported import Unsupported


class SizeSource(NamedTuple):
    """How a size is read from a placeholder.

    called  what a user calls it: ``x_0``, the first extent of x
    """

    node: Any
    read: Callable[[Values], int]
    called: str


def solutions_of(inputs: Sequence[Any]) -> dict[str, SizeSource]:
    """Return how each symbol is read from the arguments.

    Raises Left for one that no argument shows.
    """
    solutions: dict[str, SizeSource] = {}
    symbols: set[str] = set()
    for node in inputs:
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            symbols |= {symbol.name for symbol in value.node.expr.free_symbols}
            if value.node.expr.is_Symbol:
                solutions[value.node.expr.name] = SizeSource(node, _item(node), node.name)
        elif isinstance(value, torch.Tensor):
            symbols |= {symbol.name for symbol in symbols_of(value.shape)}
            for axis, extent in enumerate(value.shape):
                if isinstance(extent, torch.SymInt):
                    _add_solution(node, axis, extent.node.expr, solutions)
    missing = symbols - solutions.keys()
    if missing:
        raise Unsupported(f"no argument shows the size {', '.join(sorted(missing))}")
    return solutions


def _add_solution(node: Any, axis: int, expr: Any, solutions: dict[str, SizeSource]) -> None:
    """Add what an extent says of its symbol: ``a * s + b``."""
    if len(expr.free_symbols) != 1:
        return
    (symbol,) = expr.free_symbols
    if symbol.name in solutions and not expr.is_Symbol:
        return
    factor = expr.coeff(symbol)
    rest = (expr - factor * symbol).simplify()
    if factor.is_Integer and factor > 0 and rest.is_Integer:
        by, less = int(factor), int(rest)
        before = solutions.get(symbol.name)
        if before is not None and before.called != symbol.name:
            called = before.called  # by the first argument that shows it
        else:
            called = f"{node.name}_{axis}" if expr.is_Symbol else symbol.name
        solutions[symbol.name] = SizeSource(
            node,
            lambda values: (values[node].shape[axis] - less) // by,
            called,
        )


def _item(node: Any) -> Callable[[Values], int]:
    return lambda values: int(values[node])


__all__ = ["SizeSource", "solutions_of"]
