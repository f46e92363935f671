"""Whole attention, softmax(q kᵀ / sqrt(d)) v, at every kind of length: offcut against every peer.

    python bench/fused_attention.py            # all of it: five minutes
    python bench/fused_attention.py --quick    # a few lengths: under a minute

float32 and bfloat16, 12 heads of d = 64. torch by its fused call, onnxruntime and OpenVINO by the
operator and by its parts; onnxruntime has no bfloat16 one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.experiment.bench import Group, main
from offcut.experiment.operators import Attention
from offcut.experiment.table import Asked

ASKED = Asked(mean=1.5)
KINDS = ("float32", "bfloat16")
HEADS, D = 12, 64
BATCHES = (1, 4)
LENGTHS = (1, 2, 5, 16, 17, 24, 43, 62, 64, 81, 100, 119, 128, 200, 257, 384, 512)
QUICK_LENGTHS = (5, 43, 128)


def task(kind: str, batch: int, length: int) -> Attention:
    """Standard normal operands of one size."""
    rng = np.random.default_rng(length)
    drawn = rng.standard_normal((3, batch, HEADS, length, D), dtype=np.float32)
    q, k, v = drawn.astype(numpy_dtype(kind))
    return Attention(q, k, v, kind)


def groups(quick: bool) -> Iterator[Group]:
    """A group for each kind of elements."""
    batches, lengths = (BATCHES[:1], QUICK_LENGTHS) if quick else (BATCHES, LENGTHS)
    for kind in KINDS:
        tasks = {f"{b} × S={s}": partial(task, kind, b, s) for b in batches for s in lengths}
        yield Group(f"attention {kind}, {HEADS} heads, d = {D}", tasks)


if __name__ == "__main__":
    main(__doc__ or "", groups, ASKED)
