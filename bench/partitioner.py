"""How long the partitioner takes, proof included, and what it emits.

    python bench/partitioner.py

Each case runs in processes of its own: *cold* is the first cut after imports and one cut of another
program, *warm* the same cut again, with its lemmas kept. Seconds are of the process's CPU. The last
columns are the size of the emitted program and of its object code.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import offcut as oc
from offcut.experiment.machine import describe
from offcut.experiment.options import bench_parser

REPETITIONS = 5
CONVOLUTION = """\
program convolution
size n in 0:4097
size m in 0:4097
input X: float32[n, m]
input W: float32[3, 3]
output Y: float32[n, m]
for i in 0:n
  for j in 0:m
    Y[i, j] = 0.0
    for r in 0:3
      for s in 0:3
        Y[i, j] += where(i + r >= 1 and i + r <= n and j + s >= 1 and j + s <= m, X[i + r - 1, j + s - 1] * W[r, s], 0.0)
"""


def dense(tail: dict[str, str], symbolic: bool = False) -> oc.partition:
    """A dense layer cut in three axes."""
    n = oc.dim("n", min=1, max=4096)
    rows, columns = (oc.dim("k"), oc.dim("m")) if symbolic else (768, 3072)
    A = oc.placeholder((n, rows), "float32", name="A")
    W = oc.placeholder((rows, columns), "float32", name="W")
    k = oc.reduce_axis(rows, name="k")
    C = oc.compute((n, columns), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="C")
    return oc.partition(C, tile={"i": 14, "j": 32, "k": 64}, tail=tail)


def convolution() -> oc.partition:
    """A 3×3 convolution with padding: nine regions, cut on two axes."""
    return oc.partition(oc.parse(CONVOLUTION), tile={"i": 8, "j": 32}, tail={"j": "mask"})


def chain() -> oc.partition:
    """Ten element-wise statements, each reading its neighbours of the one before, all cut."""
    lines = ["program chain", "size n in 2:4097", "input A0: float32[n]"]
    lines += [f"local A{k}: float32[n]" for k in range(1, 10)] + ["output A10: float32[n]"]
    for k in range(1, 11):
        body = f"A{k}[i] = A{k - 1}[max(i - 1, 0)] + A{k - 1}[min(i + 1, n - 1)]"
        lines += ["for i in 0:n", f"  {body}"]
    tile = {f"A{k}.i": 16 for k in range(1, 11)}
    return oc.partition(oc.parse("\n".join(lines)), tile=tile, tail="balance")


CASES: dict[str, Callable[[], oc.partition]] = {
    "dense, cut": lambda: dense({"i": "cut", "j": "cut", "k": "cut"}),
    "dense, balance mask cut": lambda: dense({"i": "balance", "j": "mask", "k": "cut"}),
    "dense, shift ladder pad": lambda: dense({"i": "shift", "j": "ladder", "k": "pad"}),
    "dense, all sizes symbolic, balance": lambda: dense(
        {"i": "balance", "j": "balance", "k": "cut"}, symbolic=True
    ),
    "convolution 3x3, padded": convolution,
    "ten statements": chain,
}


def measure(name: str) -> str:
    """Milliseconds of the first and of the second cut, and what was emitted."""
    import islpy  # noqa: F401  # loaded before the clock starts
    import llvmlite.binding  # noqa: F401
    import sympy  # noqa: F401

    n = oc.dim("z")
    X = oc.placeholder((n,), "float32", name="X")
    oc.partition(oc.compute((n,), lambda i: X[i] + 1.0, name="Y"), tile={"i": 3}).prove()
    times = []
    for _ in range(2):
        start = time.process_time()
        made = CASES[name]()
        made.prove()
        times.append((time.process_time() - start) * 1e3)
    size = made.size
    return f"{times[0]} {times[1]} {size.statements} {size.lines} {size.code_bytes}"


def main() -> None:
    """Print the table."""
    print(describe())
    print(
        f"{'case':<36} {'cold ms':>9} {'(range)':>13} {'warm ms':>8}  statements lines  code bytes"
    )
    for name in CASES:
        runs = []
        for _ in range(REPETITIONS):
            done = subprocess.run(
                [sys.executable, __file__, name], capture_output=True, text=True, check=True
            )
            runs.append([float(word) for word in done.stdout.split()])
        cold, warm = ([run[k] for run in runs] for k in (0, 1))
        statements, lines, code = (int(value) for value in runs[0][2:])
        spread = f"({min(cold):.0f}–{max(cold):.0f})"
        print(
            f"{name:<36} {statistics.median(cold):>9.1f} {spread:>13} "
            f"{statistics.median(warm):>8.1f}  {statements:>10} {lines:>5} {code:>11,}"
        )


if __name__ == "__main__":
    parser = bench_parser(__doc__ or "")
    parser.add_argument("case", nargs="?", metavar="CASE", choices=CASES, help="cut it here, twice")
    case = parser.parse_args().case
    if case is None:
        main()
    else:
        print(measure(case))
