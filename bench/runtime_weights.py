"""Dense float32 layers whose weights are given with each call: nothing is packed beforehand, and one row reads all of them.

    python bench/runtime_weights.py            # a minute
    python bench/runtime_weights.py --quick    # one layer

One thread. All candidates of a cell take turns in one process.
"""

from __future__ import annotations

from functools import partial

from layers import DENSE

from offcut.experiment.bench import PEERS, Group, read_options, run
from offcut.experiment.contraction import Problem, make_problem
from offcut.experiment.ours import strategies
from offcut.experiment.table import Asked

LAYERS = ((64, 3072), (256, 256), (768, 768), (768, 3072), (300, 1000), (4096, 1024))
ROWS = (1, 2, 3, 5, 8, 14, 29)
ASKED = Asked(mean=1.0, worst=0.95)


def task(m: int, k: int, n: int) -> Problem:
    """A layer called with so many rows, and with its weights."""
    return make_problem(DENSE, {"m": m, "k": k, "n": n}, {}, seed=m)


def group(k: int, n: int) -> Group:
    """A layer, at all numbers of rows."""
    tasks = {f"M={m}": partial(task, m, k, n) for m in ROWS}
    return Group(f"float32 {k}×{n}, weights at run time", tasks, {"m": (1, max(ROWS))})


def main() -> None:
    """Measure, print, write."""
    options = read_options(__doc__ or "", without=("slow",))
    groups = tuple(group(k, n) for k, n in (LAYERS[:1] if options.quick else LAYERS))
    status, _ = run(
        "runtime_weights",
        groups,
        ASKED,
        options,
        own=lambda one: strategies(("auto",), one.swept),
        peers=("torch.mm", *PEERS),
    )
    raise SystemExit(status)


if __name__ == "__main__":
    main()
