"""What a size costs the first time: a stream of 300 distinct M through one dense layer, twice.

    python bench/new_size.py

The first pass over the stream divided by the second: 1 means that a new size costs nothing. Every
repetition is a fresh process, since a library may remember sizes for as long as it lives. Outputs
are touched beforehand. One thread, 768×768 float32, constant B, packed where the library can.
Seconds are processor time, so that another process on the core does not look like a cost of a size.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from offcut.experiment.contraction import Array, build, parse_contraction
from offcut.experiment.machine import describe
from offcut.experiment.options import bench_parser
from offcut.experiment.timing import restart_single_threaded

K = N = 768
LARGEST = 512
STREAM = 300
WARM_UP = 513
"""A size outside the stream, so that warming up teaches no size of it."""

REPETITIONS = 5
ASKED = 1.03

Layer = Callable[[Array, Array], object]
"""Called with x of shape (m, K) and out of shape (m, N); may ignore out."""


def offcut_auto(b: Array) -> Layer:
    """offcut's kernel, every size decided in generated code."""
    import offcut as oc

    ends = {"m": (1, WARM_UP)}
    computation = build(parse_contraction("mk,kn->mn"), {"k": K, "n": N}, ends)
    kernel = oc.compile(
        computation.result,
        inputs=list(computation.inputs),
        constants={"B": b},
        target="cpu",
        strategy="auto",
        threads=1,
    )
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


def in_a_fresh_process(subject: str, seed: int) -> list[float] | None:
    """`passes` in a process of its own; None when that fails."""
    command = [sys.executable, __file__, subject, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{subject}: not measured: {(done.stderr.splitlines() or ['no reason'])[-1]}")
        return None
    measured: list[float] = json.loads(done.stdout)
    return measured


def main() -> None:
    """Measure every subject in turn, and print the ratios of its passes."""
    ratios: dict[str, list[list[float]]] = {name: [] for name in SUBJECTS}
    for seed in range(REPETITIONS):
        for name in list(ratios):
            seconds = in_a_fresh_process(name, seed)
            if seconds is None:
                del ratios[name]
            else:
                ratios[name].append(seconds)
    print(f"{STREAM} distinct M in 1…{LARGEST}, {K}×{N}, {REPETITIONS} fresh processes each")
    print(f"{'':22}{'first / second':>15}{'range':>16}{'third / second':>16}{'second, ms':>12}")
    for name, runs in ratios.items():
        first = [run[0] / run[1] for run in runs]
        third = statistics.median(run[2] / run[1] for run in runs)
        second = statistics.median(run[1] for run in runs)
        asked = f"  asked ≤ {ASKED}" if name == "offcut auto" else ""
        print(
            f"{name:22}{statistics.median(first):>15.3f}{min(first):>9.3f}–{max(first):.3f}"
            f"{third:>15.3f}{second * 1e3:>13.1f}{asked}"
        )
    print(f"machine: {describe()}")


if __name__ == "__main__":
    parser = bench_parser(__doc__ or "")
    parser.add_argument(
        "subject", nargs="?", metavar="SUBJECT", choices=SUBJECTS, help="measure it here, once"
    )
    parser.add_argument("seed", nargs="?", type=int, default=0, help="of its stream; 0")
    options = parser.parse_args()
    restart_single_threaded()
    if options.subject is None:
        main()
    else:
        print(json.dumps(passes(options.subject, options.seed)))
