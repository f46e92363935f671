"""``torch.einsum``, which fails where a size of 1 that is traced as a size is broadcast: that it is 1 is a guard before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._C import DispatchKey


def einsum(equation: str, operands: Sequence[Any], *, path: Sequence[int] | None = None) -> Any:
    """Return the sum of products that an equation says, as torch takes it apart."""
    sizes = dict[str, list[Any]]()
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    for term, x in zip(terms, operands, strict=True):
        before, dots, after = term.partition("...")
        covered = x.dim() - len(before) - len(after) if dots else 0
        labels = (*before, *(f".{place}" for place in reversed(range(covered))), *after)
        for label, size in zip(labels, x.shape, strict=True):
            sizes.setdefault(label, []).append(size)
    for each in sizes.values():
        ones = [_traced(size) == 1 for size in each]
        if not all(ones):
            _ = [bool(size == 1) for size, is_one in zip(each, ones, strict=True) if is_one]
    return torch.ops.aten.einsum.default._op_dk(
        DispatchKey.CompositeImplicitAutograd, equation, operands, path=path
    )


def _traced(size: Any) -> Any:
    """Return what a size is in the traced call; None for one that only data tell."""
    if not isinstance(size, torch.SymInt):
        return size
    return size.node.hint if size.node.has_hint() else None
