"""The net: a few programs of each kind in `make test`, batches of fixed seeds and 10⁵ fresh ones in `make test-all`.

Where a case fails, the message is the program, made small, and the call. ``python -m
tests.differential`` checks as many others as one likes.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .__main__ import main
from .cuts import case_of
from .kinds import KINDS
from .pool import Pool
from .reducing import report

BATCH = 20  # cases of a test
# Tests of a kind; those that compile tiles for microkernels take seconds a case.
BATCHES = dict.fromkeys(KINDS, 4) | {
    "products": 2,
    "sums": 2,
    "tiled": 2,
    "layer": 2,
    "contraction": 2,
    "bounds": 3,
    "branches": 3,
    "reduction": 3,
    "described_operator": 3,
    "described_window": 3,
    "described_contraction": 1,
    "convolution": 2,
    "softmax": 4,
    "gather": 3,
    "pipeline": 3,
    "moved": 2,
    "wild": 2,
    "network": 3,
    "order": 1,
    "values": 2,
    "written": 1,
    "parted": 2,
}
# Cases of a batch of kinds that take the longest.
FEWER = {"tiled": 5} | dict.fromkeys(
    ("products", "sums", "layer", "contraction", "softmax", "described_contraction"), 10
)
FRESH = 100_000
# `make test` checks this share of the first batch of each kind.
SHORT = 0.25
# The least share of a batch of each kind that is accepted, in percent; a part of a batch may fall short by one case.
ACCEPTED = {
    "contraction": 70,
    "products": 70,
    "sums": 45,
    "tiled": 80,
    "chain": 90,
    "branches": 75,
    "bounds": 75,
    "facts": 75,
    "gather": 70,
    "pipeline": 80,
    "reduction": 75,
    "softmax": 70,
    "stencil": 85,
    "convolution": 80,
    "in_place": 70,
    "moved": 85,
    "wild": 60,
    "described_contraction": 60,
    "described_chain": 75,
    "described_window": 75,
    "described_operator": 75,
    "layer": 75,
    "network": 45,
    "order": 95,
    "values": 95,
    "written": 95,
    "parted": 75,
}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as one:
        yield one


def test_programs_of_every_kind_are_checked() -> None:
    assert ACCEPTED.keys() == KINDS.keys()
    many = {kind: FEWER.get(kind, BATCH) for kind in KINDS}
    assert sum(n * many[kind] for kind, n in BATCHES.items()) >= 1250
    assert sum(len(short_seeds(kind)) for kind in KINDS) >= 110


def short_seeds(kind: str) -> range:
    """Return the seeds of a kind that `make test` checks."""
    return range(round(SHORT * FEWER.get(kind, BATCH)))


def count_outcomes(kind: str, seeds: range, pool: Pool) -> Counter[str]:
    """Check the programs of these seeds; return how many had each outcome, but for those that were skipped."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        _, outcome, finding = pool.outcome(case_of(seed, kind, quick=True))
        counts[outcome.kind] += 1
        assert finding is None, report(finding)
        assert not outcome.failed, f"{kind} {seed} fails like others before it: {outcome.symptom}"
    del counts["skipped"]
    assert counts.total() >= 0.8 * len(seeds)
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_programs_of_a_kind_compute_what_they_mean_or_are_refused_in_words(
    kind: str, pool: Pool
) -> None:
    counts = count_outcomes(kind, short_seeds(kind), pool)
    assert 100 * (counts["ok"] + 1) >= ACCEPTED[kind] * counts.total(), counts


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "batch"), [(k, n) for k in KINDS for n in range(BATCHES[k])])
def test_a_program_computes_what_it_means_or_is_refused_in_words(
    kind: str, batch: int, pool: Pool
) -> None:
    many = FEWER.get(kind, BATCH)
    counts = count_outcomes(kind, range(batch * many, (batch + 1) * many), pool)
    assert 100 * counts["ok"] >= ACCEPTED[kind] * counts.total(), counts


@pytest.mark.slow
def test_many_fresh_programs_compute_what_they_mean_or_are_refused_in_words() -> None:
    """Stopped and started again, it goes on where it was; ``OFFCUT_NET`` is another folder for that."""
    folder = Path(os.environ.get("OFFCUT_NET", Path(tempfile.gettempdir()) / "offcut-net"))
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "state.jsonl"
    jobs = str(len(os.sched_getaffinity(0)))
    options = ["--jobs", jobs, "--state", str(state), "--found", str(folder / "found")]
    failed = main(["--seeds", f":{FRESH}", *options])
    state.unlink()
    assert not failed, f"what fails is in {folder / 'found'}"
