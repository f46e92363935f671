"""Both products of attention at every kind of length: offcut against every peer, and the limit.

    python bench/attention.py            # all of it: five minutes
    python bench/attention.py --quick    # a few lengths: under a minute

float32, d = 64, nothing constant: scores = q kᵀ and result = weights v, batch · heads at a time.
One kernel of offcut's for each, for every batch and every length.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from offcut.experiment.bench import Group, main
from offcut.experiment.contraction import Problem, make_problem, parse_contraction
from offcut.experiment.table import Asked

ASKED = Asked(mean=1.4, share=0.75)
PRODUCTS = {"q kᵀ": "bid,bjd->bij", "weights v": "bij,bjd->bid"}
HEADS = (12, 48, 192)
"""Batch times heads."""

LENGTHS = (5, 24, 43, 62, 81, 100, 119, 128)
QUICK_LENGTHS = (5, 43, 128)
D = 64
ENDS = (1, 4096)


def task(text: str, heads: int, length: int) -> Problem:
    """One product at one size."""
    sizes = {"b": heads, "i": length, "j": length, "d": D}
    return make_problem(parse_contraction(text), sizes, {}, seed=length)


def groups(quick: bool) -> Iterator[Group]:
    """A group for each product."""
    heads, lengths = (HEADS[:1], QUICK_LENGTHS) if quick else (HEADS, LENGTHS)
    for name, text in PRODUCTS.items():
        tasks = {f"{h} × S={s}": partial(task, text, h, s) for h in heads for s in lengths}
        yield Group(f"{name}, d = {D}", tasks, dict.fromkeys("bij", ENDS))


if __name__ == "__main__":
    main(__doc__ or "", groups, ASKED)
