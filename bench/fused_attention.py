"""Whole attention, softmax(q kᵀ / sqrt(d)) v, at every kind of length: offcut against every peer.

    python bench/fused_attention.py            # all of it: five minutes
    python bench/fused_attention.py --quick    # a few lengths: under a minute

float32 and bfloat16, 12 heads of d = 64. torch by its fused call, onnxruntime and OpenVINO by the
operator and by its parts; onnxruntime has no bfloat16 one. The summary also says what masks leave of the time
of one head of s = 1024, all in turns in one process: causal, and each query beside the 32 keys up to its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import offcut as oc
from offcut.core.dtypes import numpy_dtype
from offcut.experiment.bench import Group, Options, read_options, run
from offcut.experiment.operators import Attention
from offcut.experiment.table import Asked, Line
from offcut.experiment.timing import measure, paired_ratio

ASKED = Asked(mean=1.5)
KINDS = ("float32", "bfloat16")
HEADS, D = 12, 64
BATCHES = (1, 4)
LENGTHS = (1, 2, 5, 16, 17, 24, 43, 62, 64, 81, 100, 119, 128, 200, 257, 384, 512)
QUICK_LENGTHS = (5, 43, 128)
LONG, WINDOW = 1024, 32
MASKS: dict[str, tuple[dict[str, Any], float]] = {
    "causal": ({"causal": True}, 0.6),
    f"window of {WINDOW}": ({"causal": True, "window": WINDOW}, 0.15),
}


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


def masks(kind: str, options: Options) -> Iterator[Line]:
    """The time of attention under masks over that of attention to all keys, of one head, with what the cost model says."""
    s = oc.dim("s", max=4 * LONG)
    q, k, v = inputs = [oc.placeholder((s, D), kind, name=name) for name in "qkv"]

    def kernel(**mask: Any) -> oc.Kernel:
        result = oc.ops.attention(q, k, v, **mask)
        return oc.compile(result, inputs=inputs, threads=options.threads)

    kernels = {"all keys": kernel(), **{name: kernel(**mask) for name, (mask, _) in MASKS.items()}}
    qkv = np.random.default_rng(LONG).standard_normal((3, LONG, D), dtype=np.float32)
    arrays = qkv.astype(numpy_dtype(kind))
    timings = measure(
        {name: partial(one, *arrays) for name, one in kernels.items()}, budget=options.budget * 4
    )
    whole = kernels["all keys"].plan(s=LONG).seconds
    for name, (_, limit) in MASKS.items():
        ratio = paired_ratio(timings[name], timings["all keys"])
        predicted = kernels[name].plan(s=LONG).seconds / whole
        what = f"{kind}, {name}, over attention to all keys"
        yield what, f"≤ {limit}", str(ratio), f"one head, s = {LONG}; predicted {predicted:.3f}"


def main() -> None:
    """Measure, print, write."""
    options = read_options(__doc__ or "")
    status, _ = run(
        Path(__file__).stem,
        groups(options.quick),
        ASKED,
        options,
        more=lambda _: (line for kind in KINDS for line in masks(kind, options)),
    )
    raise SystemExit(status)


if __name__ == "__main__":
    main()
