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
    MemorySpace,
    MicroOp,
    Store,
    Stream,
    Tokens,
    Unit,
)
from offcut.backends.accelerator.simulator import Stall, simulate, simulate_timing
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.errors import StreamError
from tests.agree import nearly
from tests.backends.accelerator.clocked import ends
from tests.backends.accelerator.machines import shipped, small
from tests.backends.accelerator.streams import stream

VTA = AcceleratorSpec.of(shipped("vta"))


def hurried(seed: int) -> AcceleratorSpec:
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
            simulate_timing(given, spec)
        return
    run = simulate_timing(given, spec)
    assert {event.position: event.end for event in run.events} == counted


TILE = Stream(
    (
        Load(MemorySpace.MICRO_OPS, 0, 0, 1, 1, 1),
        Load(MemorySpace.INPUTS, 0, 0, 2, 8, 8, tokens=Tokens(push_next=True)),
        Gemm(0, 1, Loop(16, 1, 1), reset=True),
        Gemm(0, 1, Loop(16, 1, 1), tokens=Tokens(pop_prev=True)),
        Alu(AluOp.MAX, 0, 1, Loop(16, 1), immediate=0),
        Alu(AluOp.ADD, 0, 1, Loop(16, 1), tokens=Tokens(push_next=True)),
        Store(0, 0, 1, 16, 16, Tokens(pop_prev=True, push_prev=True)),
        Finish(Tokens(pop_next=True)),
    ),
    (MicroOp(0, 0, 0),),
)


def test_cycles_of_a_tile_are_those_counted_by_hand() -> None:
    run = simulate_timing(TILE, VTA)
    assert [(event.start, event.end) for event in sorted(run.events, key=lambda e: e.position)] == [
        (2, 2 + 5 + 32 + 1),  # fetched by 2; a micro-op of 4 bytes takes a beat of 8
        (35, 35 + 5 + 2 * (32 + 128 / 8)),  # could begin at 4, waits for the bus until 40
        (40, 40 + 5 + 16),
        (136, 136 + 5 + 16),
        (157, 157 + 5 + 16),
        (178, 178 + 5 + 2 * 16),
        (215, 215 + 5 + 32 + 256 / 8),
        (284, 284 + 5),
    ]
    assert run.cycles == 289
    assert run.seconds == 289 / 100e6
    assert run.utilisation == 16 / 289
    assert run.busy == {Unit.LOAD: 101, Unit.COMPUTE: 38 + 3 * 21 + 37 + 5, Unit.STORE: 69}


def test_who_waits_for_whom_is_told_by_unit() -> None:
    run = simulate_timing(TILE, VTA)
    assert run.stalls == {
        Unit.LOAD: {Stall.FETCH: 4, Stall.BUS: 31},
        Unit.COMPUTE: {Stall.FETCH: 2, Stall.LOAD: 75, Stall.STORE: 69},
        Unit.STORE: {Stall.COMPUTE: 215},
    }


def test_bytes_and_energy_are_those_of_the_words() -> None:
    run = simulate_timing(TILE, VTA)
    assert run.bytes == {
        MemorySpace.MICRO_OPS: 8,
        MemorySpace.INPUTS: 256,
        MemorySpace.OUTPUTS: 256,
    }
    assert run.work.multiply_adds == 16 * 256
    assert run.work.vector_operations == 2 * 16 * 16
    assert run.work.chip_bytes == {
        MemorySpace.MICRO_OPS: 4 + 4 * 16 * 4,
        MemorySpace.INPUTS: 16 * 16 * 2,
        MemorySpace.WEIGHTS: 16 * 256,
        MemorySpace.ACCUMULATORS: 64 * 16 * (1 + 2 + 2 + 3 + 1),
    }
    assert run.energy["multiply-adds"] == nearly(16 * 256 * 0.3e-12)
    assert run.energy["vector operations"] == nearly(512 * 0.1e-12)
    assert run.energy["main memory"] == nearly(520 * 160e-12)
    assert run.energy["inputs"] == nearly(512 * 2.5e-12)
    assert run.energy["weights"] == nearly(4096 * 12.5e-12)


@pytest.mark.parametrize(
    ("changed", "cycles"),
    [
        (replace(VTA, bus_bytes=16.0), 289 - 0.5 - 16 - 16),
        (replace(VTA, row_cycles=0.0), 4 + 5 + 32 + 2 * 21 + 37 + 37 + 5),
        (replace(VTA, gemm_cycles=3.0), 289 + 2 * 16),
        (replace(VTA, operand_cycles=1.0), 289 - 16),
    ],
)
def test_numbers_of_the_machine_change_the_cycles(changed: AcceleratorSpec, cycles: float) -> None:
    assert simulate_timing(TILE, changed).cycles == cycles


def test_zeros_take_a_cycle_a_word_and_no_bus() -> None:
    (event,) = simulate_timing(
        Stream((Load(MemorySpace.INPUTS, 0, 0, 0, 0, 1, (2, 1, 3, 4)),)), VTA
    ).events
    assert event.end - event.start == 5 + 3 * 7


def test_a_token_too_many_waits_for_room() -> None:
    spec = replace(VTA, token_depth=1)
    many = (
        Load(MemorySpace.INPUTS, 0, 0, 1, 1, 1, tokens=Tokens(push_next=True)),
        Load(MemorySpace.INPUTS, 1, 0, 1, 1, 1, tokens=Tokens(push_next=True)),
        Load(MemorySpace.INPUTS, 2, 0, 1, 1, 1),
        Gemm(0, 1, Loop(200), reset=True),
        Finish(Tokens(pop_prev=True)),
        Finish(Tokens(pop_prev=True)),
    )
    first = 8 + 5 + 200  # when a token is taken: the product is fetched by 8
    assert simulate_timing(Stream(many), spec).stalls[Unit.LOAD][Stall.ROOM] == first - (
        2 + 2 * (5 + 34)
    )
    assert Stall.ROOM not in simulate_timing(Stream(many), VTA).stalls[Unit.LOAD]


def test_a_stream_of_nothing_takes_no_time() -> None:
    run = simulate_timing(Stream(()), VTA)
    assert (run.cycles, run.utilisation, run.bytes) == (0, 0, {})


def test_a_trace_has_an_event_for_each_instruction() -> None:
    run = simulate_timing(TILE, VTA)
    events = json.loads(run.chrome_trace())["traceEvents"]
    shown = [event for event in events if event["ph"] == "X"]
    assert max(event["ts"] + event["dur"] for event in shown) == nearly(1e6 * run.seconds)
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == [
        *("load", "compute", "store")
    ]
    assert len(shown) == len(TILE.instructions)
    gemm = next(event for event in shown if event["args"]["position"] == 3)
    assert gemm == {
        "name": "gemm of micro-ops[0:1], 16 times by 1 1 0",
        "cat": "gemm",
        "ph": "X",
        "pid": 0,
        "tid": 1,
        "ts": nearly(136e6 / VTA.hertz),
        "dur": nearly(21e6 / VTA.hertz),
        "args": {"position": 3, "cycles": 21, "cycles waited for load": 75},
    }


def test_a_run_is_drawn_and_told(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    run = simulate(TILE, None, VTA)
    figure = run.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 1000
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        *("load", "compute", "store")
    ]
    assert (
        str(run)
        == """\
289 cycles, 2.9 µs at 100 MHz
matrix unit used to 5.5%
load     busy 101; waited for instructions 4, bus 31
compute  busy 143; waited for instructions 2, load 75, store 69
store    busy 69; waited for compute 215
bytes    micro-ops 8, inputs 256, outputs 256"""
    )
