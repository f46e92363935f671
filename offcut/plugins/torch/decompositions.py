"""Which operators torch takes apart before we see them.

One is the layer that torch calculates in one operator for inference, `nn.TransformerEncoderLayer`, where there are no gradients: torch
knows no decomposition of it. A mask says what is left out, as one of booleans: what is not 0. A
query that is left nothing gives 0 before the last product, as `scaled_dot_product_attention` gives; torch gives NaN there.

Another one is the grid of an affine map, which torch takes apart otherwise for an axis of one pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from offcut.plugins.torch.rule_table import TABLE

_MORE = (torch.ops.aten._native_batch_norm_legit.no_stats,)
"""Operators that torch leaves whole, and knows how to take apart: no rule of ours says more."""


def taken_apart(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """Torch's own decompositions and some more, but for what we take whole."""
    more = torch._decomp.get_decompositions(_MORE)
    return {op: rule for op, rule in {**table, **more, **FUSED}.items() if op not in TABLE}


aten = torch.ops.aten

EVERY_PAIR, KEYS = 0, 1
"""Masks of shape ``(queries, keys)`` for the whole batch, and ``(batch, keys)``; others have the shape of the scores."""


def encoder_layer(
    x: Any,
    width: int,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    out_weight: Any,
    out_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    weight_1: Any,
    bias_1: Any,
    weight_2: Any,
    bias_2: Any,
    up_weight: Any,
    up_bias: Any,
    down_weight: Any,
    down_bias: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """``x + attention(x)``, then ``x + down(act(up(x)))``, each normalised before or after."""

    def attended(x: Any) -> Any:
        packed = qkv_weight, qkv_bias, out_weight, out_bias
        return _attention(x, heads, *packed, mask, mask_type)

    def feed_forward(x: Any) -> Any:
        up = F.linear(x, up_weight, up_bias)
        return F.linear(F.gelu(up) if use_gelu else F.relu(up), down_weight, down_bias)

    def first(x: Any) -> Any:
        return F.layer_norm(x, (width,), weight_1, bias_1, eps)

    def second(x: Any) -> Any:
        return F.layer_norm(x, (width,), weight_2, bias_2, eps)

    if norm_first:
        x = x + attended(first(x))
        return x + feed_forward(second(x))
    x = first(x + attended(x))
    return second(x + feed_forward(x))


def _attention(
    x: Any,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    out_weight: Any,
    out_bias: Any,
    mask: Any,
    mask_type: int | None,
) -> Any:
    """Of words to words of the same sentence."""
    products = F.linear(x, qkv_weight, qkv_bias).unflatten(-1, (3, heads, -1)).unbind(2)
    q, k, v = (one.transpose(1, 2) for one in products)
    added = None if mask is None else _additive_mask(mask, mask_type, q)
    result, _ = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=added)
    return F.linear(result.transpose(1, 2).flatten(2), out_weight, out_bias)


def _additive_mask(mask: Any, kind: int | None, q: Any) -> Any:
    """Return a mask as what is added to scores, of four axes: 0, or minus infinity for what is left out."""
    scores = (*q.shape[:3], q.shape[2])
    axes: tuple[int, ...]
    if kind == EVERY_PAIR:
        mask, axes = mask[None, None], (2, 3)
    elif kind == KEYS:
        mask, axes = mask[:, None, None], (0, 3)
    else:
        axes = (0, 1, 2, 3)
    for axis in axes:  # sizes that torch traced apart
        torch._check(mask.shape[axis] == scores[axis])
    return torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask.to(torch.bool), -math.inf)


def affine_grid(theta: Any, size: Sequence[Any], align_corners: bool) -> Any:
    """Return the places of the pixels of images under affine maps, in one formula for any number of pixels.

    theta  of shape (batch, axes, axes + 1)
    size   (batch, channels, the extents of the axes); torch asks of each whether it is 1, and has a constant there

    The result has the shape (batch, the extents, axes).
    """
    extents = [*size[2:]]
    columns = [theta[:, :, axis] for axis in range(len(extents) + 1)]
    batch = [theta.shape[0], *[1] * len(extents), len(extents)]
    grid = columns[-1].reshape(batch)
    for axis, extent in enumerate(reversed(extents)):
        steps = torch.arange(extent, dtype=theta.dtype, device=theta.device)
        parts = torch.sym_max(extent - 1, 1) if align_corners else extent
        centres = (steps * 2 - (extent - 1)) / parts
        shape = [1] * len(batch)
        shape[len(extents) - axis] = extent
        grid = grid + columns[axis].reshape(batch) * centres.reshape(shape)
    return grid


FUSED: Mapping[Any, Callable[..., Any]] = {
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten.affine_grid_generator.default: affine_grid,
}
"""By operator of torch, the same in others."""
