"""Two threads over one, dense float32 layers of M ≥ 64.

    python bench/threads.py                # ten minutes
    python bench/threads.py --quick        # a few M: under a minute
    python bench/threads.py --threads 4    # four threads over one

Needs as many idle cores as threads. Seconds on the wall; one kernel for each number of threads, in
turns. A ratio is the median of the ratios within one round with its 95 % interval; the limit is that
of all threads.
"""

from __future__ import annotations

from layers import LAYERS, QUICK_LAYERS, ROWS, dense_groups

from offcut.experiment.bench import Group, read_options, run
from offcut.experiment.ours import Ours
from offcut.experiment.table import Asked

LEAST = 64
QUICK_ROWS = (64, 129, 512)
ASKED = Asked(mean=1.85)


def main() -> None:
    """Measure, print, write."""
    options = read_options(__doc__ or "", threads=2, without=("slow",))
    several, one = f"{options.threads} threads", "one thread"

    def own(group: Group) -> tuple[Ours, Ours]:
        return Ours(group.swept, options.threads, several), Ours(group.swept, 1, one)

    layers = QUICK_LAYERS if options.quick else LAYERS
    sizes = QUICK_ROWS if options.quick else tuple(m for m in ROWS if m >= LEAST)
    groups = dense_groups("float32", layers, sizes)
    over = f"{several} over one"
    status, _ = run("threads", groups, ASKED, options, own=own, rivals=1, peers=(), over=over)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
