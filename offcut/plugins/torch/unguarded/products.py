"""Products of matrices, traced without asking whether a size is 1: rows that lie together are one axis, and so are batches."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._C import DispatchKey

from offcut.plugins.torch.unguarded.layout import reshape

aten = torch.ops.aten


def dense(x: Any, w: Any, bias: Any = None) -> Any:
    """``x @ w.T + bias`` of rows that lie together: those that do not are copied."""
    if x.dim() <= 2 or w.dim() != 2 or (bias is not None and bias.dim() != 1):
        return aten.linear.default._op_dk(DispatchKey.CompositeImplicitAutograd, x, w, bias)
    *rows, k = x.shape
    flat = reshape(x, (math.prod(rows), k))
    found = flat.mm(w.t()) if bias is None else torch.addmm(bias, flat, w.t())
    return found.view(*rows, w.shape[0])


def matmul(x: Any, y: Any) -> Any:
    """``x @ y`` over all batches."""
    if max(x.dim(), y.dim()) <= 2 or min(x.dim(), y.dim()) == 0:
        return aten.matmul.default._op_dk(DispatchKey.CompositeImplicitAutograd, x, y)
    if x.dim() == 1:
        return matmul(x[None], y).squeeze(-2)
    if y.dim() == 1:
        return matmul(x, y[:, None]).squeeze(-1)
    (*_, m, k), n = x.shape, y.shape[-1]
    if y.dim() == 2:
        rows = x.shape[:-1]
        return reshape(x, (math.prod(rows), k)).mm(y).view(*rows, n)
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    count = math.prod(batch)
    a = reshape(x.expand(*batch, m, k), (count, m, k))
    b = reshape(y.expand(*batch, *y.shape[-2:]), (count, *y.shape[-2:]))
    return a.bmm(b).view(*batch, m, n)
