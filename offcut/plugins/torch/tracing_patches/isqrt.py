"""``int(n ** 0.5)``, the side of a square of so many elements, traced as one of the sizes that multiply to them.

A root is no extent, so that what has it as a size stayed with torch. Vision models ask for it where they made ``h * w`` rows of an image.
Where both sizes are equal in the traced call, the side is the one, and it is guarded that the other is equal.
"""

from __future__ import annotations

import sys
from typing import Any

import sympy
import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.sym_node import SymNode
from torch.utils._sympy import functions as sf

from offcut.plugins.torch.sizes import is_size_symbol

_CALLERS = 16
"""More than lie between a call of ``int`` and the truncation."""

_truncated = SymNode.trunc


def trunc(node: Any) -> Any:
    """A symbolic float without what is behind its point; of the root of a square, its side.

    Not where Python wants a number, as in the frames of ``torch.export``: the side would be that number in all calls.
    """
    side = None if get_proxy_mode() or _is_number_wanted() else _side(node)
    return side.node if isinstance(side, torch.SymInt) else _truncated(node)


def _is_number_wanted() -> bool:
    """Whether a float is asked for its integer as a number of Python, by way of torch's proxies or not."""
    frame: Any = sys._getframe(2)
    for _ in range(_CALLERS):
        if frame is None or frame.f_code is torch.SymFloat.__int__.__code__:
            return frame is not None
        frame = frame.f_back
    return False


def _side(node: Any) -> Any:
    """The size of which a float is the root of the square; None of others."""
    square = _under_root(node.expr)
    if square is None or not all(map(is_size_symbol, square.free_symbols)):
        return None
    shapes = node.shape_env
    factors = [
        base
        for factor in sympy.Mul.make_args(square)
        for base, times in [factor.as_base_exp()]
        for _ in range(int(times) if times.is_Integer else 0)
    ]
    if len(factors) != 2 or sympy.prod(factors) != square:
        return None
    hints = [int(shapes.optimization_hint(factor)) for factor in factors]
    if hints[0] != hints[1]:
        return None
    one, other = (shapes.create_symintnode(factor, hint=hints[0]) for factor in factors)
    torch._check(one == other)
    return one


def _under_root(expr: Any) -> Any:
    """What an expression is the root of; None where it is none."""
    is_power = isinstance(expr, sf.FloatPow) and expr.args[1] == 0.5
    if not (is_power or isinstance(expr, sf.OpaqueUnaryFn_sqrt)):
        return None
    inner = expr.args[0]
    return inner.args[0] if isinstance(inner, sf.ToFloat) else inner
