"""What a call costs: 1×16×16, where the arithmetic takes nanoseconds.

    python bench/call_overhead.py

numpy arrays with ``out=`` against ``numpy.matmul`` with ``out=``, torch tensors against ``torch.mm``.
The statements are timed as a user writes them, in turns, in an order shuffled anew each round, one
thread; medians and quartiles in µs of processor time.
"""

from __future__ import annotations

import importlib.util
import random
import statistics
import time
from timeit import Timer
from typing import Any

import numpy as np

import offcut as oc
from offcut.experiment.contraction import build, parse_contraction
from offcut.experiment.machine import describe
from offcut.experiment.options import bench_parser
from offcut.experiment.timing import restart_single_threaded

K = N = 16
CALLS = 20_000
ROUNDS = 31


def names() -> dict[str, Any]:
    """What the statements mention."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, K), dtype=np.float32)
    w = rng.standard_normal((K, N), dtype=np.float32)
    computation = build(parse_contraction("mk,kn->mn"), {"k": K, "n": N}, {"m": (1, 512)})
    kernel = oc.compile(
        computation.result,
        inputs=list(computation.inputs),
        constants={"B": w},
        target="cpu",
        threads=1,
    )
    given = {"np": np, "kernel": kernel, "x": x, "w": w, "out": np.zeros((1, N), np.float32)}
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        given |= {"torch": torch, "tx": torch.from_numpy(x), "tw": torch.from_numpy(w)}
        given |= {"tout": torch.zeros(1, N)}
    return given


def main() -> None:
    """Measure and print, with what is asked."""
    given = names()
    statements = ["np.matmul(x, w, out=out)", "kernel(x, out=out)", "kernel(x)"]
    if "torch" in given:
        statements += ["torch.mm(tx, tw, out=tout)", "kernel(tx, out=tout)", "kernel(tx)"]
    else:
        print("missing: torch is not installed")
    timers = {text: Timer(text, timer=time.process_time, globals=given) for text in statements}
    order = random.Random(0)
    samples: dict[str, list[float]] = {text: [] for text in statements}
    for timer in timers.values():
        timer.timeit(CALLS)
    for _ in range(ROUNDS):
        for text in order.sample(statements, len(statements)):
            samples[text].append(timers[text].timeit(CALLS) / CALLS * 1e6)
    print(f"{'µs per call':30}{'median':>8}{'quartiles':>16}")
    for text, taken in samples.items():
        low, _, high = statistics.quantiles(taken, n=4)
        print(f"{text:30}{statistics.median(taken):>8.3f}{low:>10.3f}–{high:.3f}")
    ours, numpys = samples["kernel(x, out=out)"], samples["np.matmul(x, w, out=out)"]
    ratio = statistics.median(a / b for a, b in zip(ours, numpys, strict=True))
    print(f"numpy arrays, out=: {ratio:.2f} × numpy's own    asked ≤ 2")
    if "torch" in given:
        print(f"torch tensors: {statistics.median(samples['kernel(tx)']):.2f} µs    asked ≤ 4")
    print(f"machine: {describe()}")


if __name__ == "__main__":
    bench_parser(__doc__ or "").parse_args()
    restart_single_threaded()
    main()
