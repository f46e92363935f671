"""Cycles: counted by hand on small streams, and by a clock on random ones."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from offcut.backends.accelerator.isa import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Load,
    Loop,
    MicroOp,
    Place,
    Store,
    Stream,
    Tokens,
    Unit,
)
from offcut.backends.accelerator.simulator import Stall, simulate, timed
from offcut.backends.accelerator.spec import Spec
from offcut.errors import StreamError
from tests.backends.accelerator.clocked import ends
from tests.backends.accelerator.machines import shipped, small
from tests.backends.accelerator.streams import stream

VTA = Spec.of(shipped("vta"))


def hurried(seed: int) -> Spec:
    """A machine whose queues are short, and whose cycles are small numbers."""
    rng = random.Random(seed)
    return replace(
        small("vta", 2, 3, 4),
        queue_depth={unit: rng.choice([1, 2, 5]) for unit in Unit},
        token_depth=rng.choice([1, 2, 99]),
        instruction_cycles={unit: float(rng.randrange(4)) for unit in Unit},
        gemm_cycles=2.0,
        fetch_cycles=float(rng.randrange(1, 3)),
        row_cycles=float(rng.randrange(4)),
        words={
            place: replace(words, fill_cycles=float(rng.randrange(3)))
            for place, words in small("vta").words.items()
        },
    )


@pytest.mark.parametrize("seed", range(60))
def test_times_are_those_that_a_clock_counts(seed: int) -> None:
    spec = hurried(seed)
    given = stream(spec, random.Random(seed), 14, pairs=(0, 20, 60)[seed % 3])
    counted = ends(given, spec, 4000)
    if counted is None:
        with pytest.raises(StreamError, match="standstill"):
            timed(given, spec)
        return
    run = timed(given, spec)
    assert {event.position: event.end for event in run.events} == counted
