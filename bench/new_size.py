"""What a size costs the first time: a stream of 300 distinct M through one dense layer, twice.

    python bench/new_size.py            # a minute
    python bench/new_size.py --quick    # one process each

The first pass over the stream divided by the second: 1 means that a new size costs nothing. Every
repetition is a fresh process, since a library may remember sizes for as long as it lives. Outputs
are touched beforehand. One thread, 768×768 float32, constant B, packed where the library can.
Seconds are processor time, so that another process on the core does not look like a cost of a size.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np

from offcut.experiment.bench import cell_of, fresh, publish, read_options
from offcut.experiment.contraction import Array, build, parse_contraction
from offcut.experiment.table import MS, Row, table, wide_console

K = N = 768
LARGEST = 512
STREAM = 300
WARM_UP = 513
"""A size outside the stream, so that warming up teaches no size of it."""

REPETITIONS = 5
PASSES = ("second pass", "first pass", "third pass")

Layer = Callable[[Array, Array], object]
"""Called with x of shape (m, K) and out of shape (m, N); may ignore out."""


def offcut_auto(b: Array) -> Layer:
    """offcut's kernel, every size decided in generated code."""
    fixed, swept = {"k": K, "n": N}, {"m": (1, WARM_UP)}
    kernel = build(parse_contraction("mk,kn->mn"), fixed, swept).compile({"B": b})
    return lambda x, out: kernel(x, out=out)


def numpy_matmul(b: Array) -> Layer:
    """numpy's BLAS."""
    return lambda x, out: np.matmul(x, b, out=out)


def torch_linear(b: Array) -> Layer:
    """torch, eager."""
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    weight = torch.from_numpy(np.ascontiguousarray(b.T))
    return lambda x, out: torch.nn.functional.linear(torch.from_numpy(x), weight)


def torch_onednn(b: Array) -> Layer:
    """oneDNN with a weight packed beforehand, through torch."""
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    weight = torch.from_numpy(np.ascontiguousarray(b.T))
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    call = torch.ops.mkldnn._linear_pointwise
    return lambda x, out: call(torch.from_numpy(x), packed, None, "none", [], "")


SUBJECTS: dict[str, Callable[[Array], Layer]] = {
    "offcut auto": offcut_auto,
    "numpy": numpy_matmul,
    "torch linear": torch_linear,
    "torch oneDNN packed": torch_onednn,
}


def passes(subject: str, seed: int) -> list[float]:
    """Seconds of three passes over one stream, in this process."""
    rng = np.random.default_rng(seed)
    stream = rng.permutation(np.arange(1, LARGEST + 1))[:STREAM].tolist()
    layer = SUBJECTS[subject](rng.standard_normal((K, N), dtype=np.float32))
    x = rng.standard_normal((WARM_UP, K), dtype=np.float32)
    out = np.full((WARM_UP, N), np.nan, np.float32)
    for _ in range(50):
        layer(x, out)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        for m in stream:
            layer(x[:m], out[:m])
        seconds.append(time.process_time() - start)
    return seconds


def main() -> None:
    """Measure every subject in turn, and print the ratios of its passes."""
    options = read_options(
        __doc__ or "", without=("slow", "cells", "threads", "budget"), cases=SUBJECTS
    )
    if options.case:
        print(json.dumps(passes(options.case, options.turn)))
        return
    taken: dict[str, list[list[float]]] = {name: [] for name in SUBJECTS}
    for turn in range(1 if options.quick else REPETITIONS):
        for name, runs in taken.items():
            if turn == len(runs) and (seconds := fresh(__file__, name, turn)) is not None:
                runs.append(seconds)
    rows = [
        Row(
            f"{STREAM} distinct M in 1…{LARGEST}, {K}×{N}, fresh processes",
            name,
            tuple(cell_of(PASSES[k], [run[at] for run in runs]) for k, at in enumerate((1, 0, 2))),
            MS,
            own=3,
            asked="≤ 1.03" if name == "offcut auto" else "",
        )
        for name, runs in taken.items()
        if runs
    ]
    wide_console().print(table(rows, "first over second", ("first pass",)))
    thirds = [
        (f"{row.label}, third over second", "–", str(over.ratio), "")
        for row in rows
        if (over := row.over("third pass")) is not None
    ]
    raise SystemExit(publish("new_size", rows, options, thirds))


if __name__ == "__main__":
    main()
