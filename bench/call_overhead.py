"""What a call costs: 1×16×16, where the arithmetic takes nanoseconds; of one kernel, and of models of several.

    python bench/call_overhead.py            # ten seconds
    python bench/call_overhead.py --quick    # two

numpy arrays against ``numpy.matmul``, torch tensors against ``torch.mm``, each with ``out=`` and
without. The statements are timed as a user writes them, in turns, one thread, processor time.
What a model's call takes for each kernel more, arithmetic included, is the difference of two models.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from functools import partial
from math import inf
from timeit import Timer
from typing import Any

import numpy as np
from harness import Line, publish, read_options, row_of, table

from offcut.experiment.contraction import build, parse_contraction
from offcut.experiment.outputs import wide_console
from offcut.experiment.timing import in_rounds
from offcut.graph import Builder, Model, compiled
from offcut.studies.rows import Row

K = N = 16
CALLS = 20_000
ROUNDS, QUICK_ROUNDS = 31, 7
STATEMENTS = {
    "numpy arrays, out=": ("np.matmul(x, w, out=out)", "kernel(x, out=out)", "≤ 2"),
    "numpy arrays": ("np.matmul(x, w)", "kernel(x)", ""),
    "torch tensors, out=": ("torch.mm(tx, tw, out=tout)", "kernel(tx, out=tout)", ""),
    "torch tensors": ("torch.mm(tx, tw)", "kernel(tx)", ""),
    "numpy arrays, 1 product as a model": ("chain(x, 1)", "model1(x)", ""),
    "numpy arrays, 8 products in a row": ("chain(x, 8)", "model8(x)", ""),
    "numpy arrays, 64 products in a row": ("chain(x, 64)", "model64(x)", ""),
}
"""Of the library, and of offcut; asked of the ratio."""
FEW, MANY = "numpy arrays, 8 products in a row", "numpy arrays, 64 products in a row"


def chained(w: Any, count: int) -> Model:
    """A model of so many products in a row, a kernel each."""
    made = Builder("chain")
    y = made.input("x", "float32", (made.size("m", 1, 512), K))
    weights = made.constant("w", w)
    for _ in range(count):
        y = made.node("matmul", y, weights)
    made.output(y)
    return compiled(made.bound)


def names() -> dict[str, Any]:
    """What the statements mention."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, K), dtype=np.float32)
    w = rng.standard_normal((K, N), dtype=np.float32)
    dense = build(parse_contraction("mk,kn->mn"), {"k": K, "n": N}, {"m": (1, 512)})
    kernel = dense.compile({"B": w})
    given = {"np": np, "kernel": kernel, "x": x, "w": w, "out": np.zeros((1, N), np.float32)}
    small = w / 8  # a product of many stays finite
    given |= {f"model{count}": chained(small, count) for count in (1, 8, 64)}

    def chain(y: Any, count: int) -> Any:
        for _ in range(count):
            y = np.matmul(y, small)
        return y

    given["chain"] = chain
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        given |= {"torch": torch, "tx": torch.from_numpy(x), "tw": torch.from_numpy(w)}
        given |= {"tout": torch.zeros(1, N)}
    return given


def each_call(timer: Timer) -> float:
    """Seconds of one of many calls."""
    return timer.timeit(CALLS) / CALLS


def least(rows: Sequence[Row], label: str) -> float:
    """The fewest seconds that offcut takes, of the rows of a label."""
    return min(row.seconds("offcut") or inf for row in rows if row.name == label)


def main() -> None:
    """Measure and print, with what is asked."""
    options = read_options(__doc__ or "", ("out",))
    given = names()
    found = {
        name: row for name, row in STATEMENTS.items() if "torch" in given or "torch" not in name
    }
    timers = {
        text: Timer(text, timer=time.process_time, globals=given)
        for row in found.values()
        for text in row[:2]
    }
    for timer in timers.values():
        timer.timeit(CALLS)
    samples = in_rounds(
        {text: partial(each_call, timer) for text, timer in timers.items()},
        QUICK_ROUNDS if options.quick else ROUNDS,
    )
    rows = [
        row_of("one call", name, {"library": samples[library], "offcut": samples[ours]})
        for name, (library, ours, _) in found.items()
    ]
    goals = {name: goal for name, (_, _, goal) in found.items()}
    wide_console().print(table(rows, "µs", "offcut over the library", goals=goals))
    few, many = (least(rows, label) for label in (FEW, MANY))
    each = f"{(many - few) / 56 * 1e6:.2f} µs"
    lines: list[Line] = [("a kernel of a model, arithmetic included", "≤ 2 µs", each, "")]
    if "torch" in given:
        taken = least(rows, "torch tensors")
        lines += [("a call on torch tensors", "≤ 4 µs", f"{taken * 1e6:.2f} µs", "")]
    else:
        print("missing: torch is not installed")
    raise SystemExit(publish("call_overhead", rows, options, lines))


if __name__ == "__main__":
    main()
