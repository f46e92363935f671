"""Which operators torch takes apart before we see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from offcut.plugins.torch.fused import FUSED
from offcut.plugins.torch.table import TABLE

_MORE = (torch.ops.aten.grid_sampler_2d, torch.ops.aten._native_batch_norm_legit.no_stats)
"""Operators that torch leaves whole, and knows how to take apart: no rule of ours says more."""


def taken_apart(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """Torch's own decompositions and some more, but for what we take whole."""
    more = torch._decomp.get_decompositions(_MORE)
    return {op: rule for op, rule in {**table, **more, **FUSED}.items() if op not in TABLE}
