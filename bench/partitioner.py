"""How long the partitioner takes, proof included, and what it emits.

    python bench/partitioner.py            # a minute
    python bench/partitioner.py --quick    # one process each

Each case runs in processes of its own: *cold* is the first cut after imports and one cut of another
program, *warm* the same cut again, with its lemmas kept. Seconds are of the process's CPU. A row
says the size of the emitted program and of its object code.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from harness import publish, read_options, row_of, run_case, table

import offcut as oc
from offcut.experiment.outputs import wide_console
from offcut.partition import Partition

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


def dense(tail: dict[str, str], symbolic: bool = False) -> Partition:
    """A dense layer cut in three axes."""
    n = oc.dim("n", min=1, max=4096)
    rows, columns = (oc.dim("k"), oc.dim("m")) if symbolic else (768, 3072)
    A = oc.placeholder((n, rows), "float32", name="A")
    W = oc.placeholder((rows, columns), "float32", name="W")
    k = oc.reduce_axis(rows, name="k")
    C = oc.compute((n, columns), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="C")
    return oc.partition(C, tile={"i": 14, "j": 32, "k": 64}, tail=tail)


def convolution() -> Partition:
    """A 3×3 convolution with padding: nine regions, cut on two axes."""
    return oc.partition(oc.parse(CONVOLUTION), tile={"i": 8, "j": 32}, tail={"j": "mask"})


def chain() -> Partition:
    """Ten element-wise statements, each reading its neighbours of the one before, all cut."""
    lines = ["program chain", "size n in 2:4097", "input A0: float32[n]"]
    lines += [f"local A{k}: float32[n]" for k in range(1, 10)] + ["output A10: float32[n]"]
    for k in range(1, 11):
        body = f"A{k}[i] = A{k - 1}[max(i - 1, 0)] + A{k - 1}[min(i + 1, n - 1)]"
        lines += ["for i in 0:n", f"  {body}"]
    tile = {f"A{k}.i": 16 for k in range(1, 11)}
    return oc.partition(oc.parse("\n".join(lines)), tile=tile, tail="balance")


CASES: dict[str, Callable[[], Partition]] = {
    "dense, cut": lambda: dense({"i": "cut", "j": "cut", "k": "cut"}),
    "dense, balance mask cut": lambda: dense({"i": "balance", "j": "mask", "k": "cut"}),
    "dense, shift ladder pad": lambda: dense({"i": "shift", "j": "ladder", "k": "pad"}),
    "dense, all sizes symbolic, balance": lambda: dense(
        {"i": "balance", "j": "balance", "k": "cut"}, symbolic=True
    ),
    "convolution 3x3, padded": convolution,
    "ten statements": chain,
}


def measure(name: str) -> list[float | None]:
    """Seconds of the first and of the second cut, then statements, lines and bytes of code."""
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
        times.append(time.process_time() - start)
    return [*times, made.size.statements, made.size.lines, made.size.code_bytes]


def main() -> None:
    """Measure each case in processes of its own, and print the table."""
    options = read_options(__doc__ or "", ("out",), CASES)
    if options.case:
        print(json.dumps(measure(options.case)))
        return
    rows = []
    for name in CASES:
        turns = range(1 if options.quick else REPETITIONS)
        runs = [run for turn in turns if (run := run_case(__file__, name, turn)) is not None]
        if runs:
            size = "{:.0f} statements, {:.0f} lines, {:,.0f} bytes".format(*runs[0][2:])
            times = {w: [run[k] for run in runs] for k, w in enumerate(("cold", "warm"))}
            rows.append(row_of("cut and proved", f"{name}: {size}", times))
    wide_console().print(table(rows, "ms", "warm over cold"))
    raise SystemExit(publish("partitioner", rows, options))


if __name__ == "__main__":
    main()
