"""What was measured, as a description: it reads back as measured, and says where it may be wrong."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from conftest import rejection, slow

from offcut.backends.cpu.machine import isa, jit
from offcut.experiment import limits
from offcut.experiment.limits import CLOCK_STEPS, Bound, Level, Limits, Meter, Rate, clock_loop
from offcut.experiment.machine_file import (
    check_idle,
    check_path,
    complaints,
    machine_text,
    write_machine,
)
from offcut.experiment.probe import Measured, Reading
from tests.agree import nearly
from tests.facade import load_machine

DAY = date(2026, 2, 3)


def sure(value: float) -> Reading:
    """A number that hardly varied."""
    return Reading(value, 0.01)


def zen4() -> Measured:
    """A Zen 4 that was measured, all but one of its units and its third cache."""
    machine = load_machine("zen4")
    return Measured(
        cpu='AMD EPYC "Genoa" 9V74',
        host=isa.host_for_machine(machine),
        near=machine,
        clock=sure(3.7e9),
        units={unit.name: sure(unit.multiply_adds / 2) for unit in machine.unit[:3]},
        memories={"L1": sure(64.0), "L2": sure(30.5), "DRAM": sure(9.25)},
        tiles={("fma_float32_avx512", 14, 32): sure(15.5)},
        core_share=0.99,
        calls={"call_seconds": sure(1.25e-7), "way_seconds": sure(9e-9)},
    )


def test_a_description_reads_back_as_it_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    write_machine(machine_text(zen4(), "mine", DAY), path)
    found, like = load_machine(path), load_machine("zen4")
    by = "measured by offcut target probe on 2026-02-03"
    assert (found.name, found.title) == ("mine", 'AMD EPYC "Genoa" 9V74')
    assert set(found.features) == set(like.features)
    assert (found.hertz, found.core.multiply_adds) == (3.7e9, 1.0)
    assert [level.bytes_per_cycle for level in found.levels] == [64.0, 30.5, 39.0, 9.25]
    rest = "the rest: the system, or as zen4"
    assert found.dram.source == f"{by}: bytes_per_cycle (spread 1.0 %); {rest}"
    assert found.memory[2] == like.memory[2]
    assert [unit.multiply_adds for unit in found.unit] == [16.0, 8.0, 64.0, 64.0]
    assert found.unit[3] == like.unit[3]
    assert [(one.name, one.rows, one.columns, one.multiply_adds) for one in found.microkernel] == [
        ("fma_float32_avx512", 14, 32, 15.5)
    ]
    assert (found.call.call_seconds, found.call.way_seconds) == (1.25e-7, 9e-9)
    assert found.call.source == f"{by}: call_seconds (spread 1.0 %), way_seconds (spread 1.0 %)"
    same = replace(
        found,
        call=like.call,
        **{name: getattr(like, name) for name in ("name", "title", "features", "memory")},
        **{name: getattr(like, name) for name in ("dram", "core", "unit", "microkernel")},
    )
    assert same == like


def test_a_machine_that_is_too_loaded_is_said_to_be_so() -> None:
    assert complaints(zen4()) == ()
    assert Reading.of([1.0, 2.0, 3.0, 4.0, 50.0]) == Reading(3.0, 2 / 3)
    unsure = replace(
        zen4(), core_share=0.614, memories={"L1": Reading(64.0, 0.11), "L2": Reading(30.0, 0.32)}
    )
    with rejection(
        "BusyError: probe: cannot describe this machine\n"
        "  because  it is too loaded to be measured: this process had its core 61 % of the time\n"
        "  help     offcut target probe, when nothing else runs\n"
        "  help     --loaded takes these numbers, and the description says so"
    ):
        check_idle(unsure)
    assert "under load (this process had its core 61 % of the time)" in machine_text(
        unsure, "m", DAY
    )
    assert complaints(unsure) == (
        "2 of 8 numbers are unsure: the quartiles of their rounds lie more than 10 % apart, those of L2 32 %",
    )


def test_a_file_that_is_not_read_back_is_not_written(tmp_path: Path) -> None:
    with rejection(
        "TargetError: probe: cannot write mine.txt\n"
        "  because  a machine is read from a file whose name ends in .toml\n"
        "  help     --out mine.toml"
    ):
        check_path(Path("mine.txt"))
    path = tmp_path / "no folder" / "mine.toml"
    with rejection(
        f"TargetError: probe: cannot write {path}\n  because  No such file or directory\n"
        "  help     --out of a folder that is there\n  help     without --out it is printed"
    ):
        write_machine("", path)


def test_the_clock_is_told_by_additions_that_wait_for_each_other() -> None:
    text = clock_loop().text
    steps = [line for line in text.splitlines() if " = add " in line or " = xor " in line]
    assert len(steps) == CLOCK_STEPS
    names = [step.split(" = ")[0] for step in steps]
    assert all(name in step for name, step in zip(names, steps[1:], strict=False))


# What the processor can do: loops that are valid code, and limits that follow from their rates.


KINDS = ["float32", "float64", "bfloat16", "int8", "uint8"]
HIDDEN = ["", "avx512f", "avx512vnni", "avx2"]


def fixed(name: str, per_second: float) -> Meter:
    """A meter that always says the same."""

    class Always(Meter):
        def rate(self) -> Rate:
            return Rate(name, per_second)

    return Always(name, (), 0)


def known() -> Limits:
    """A machine of 1 KB caches: 100 flop/s, 50 and 10 bytes/s."""
    made = Limits()
    made._peaks = {"float32": fixed("fma", 100.0)}
    made._levels = (Level(1000, fixed("L1", 50.0)), Level(0, fixed("DRAM", 10.0)))
    return made


@pytest.mark.parametrize(
    ("operations", "moved", "expected"),
    [
        (1000, 100, Bound(10.0, "fma")),
        (10, 1000, Bound(20.0, "L1")),
        (10, 1001, Bound(100.1, "DRAM")),
        (0, 100, Bound(2.0, "L1")),
    ],
)
def test_the_slower_of_arithmetic_and_reading_bounds_a_call(
    operations: int, moved: int, expected: Bound
) -> None:
    limits = known()
    found = limits.now(operations, moved, "float32")
    assert (found.by, found.seconds) == (expected.by, nearly(expected.seconds))
    limits.now(10, 100, "float32")
    assert "L1 0 GB/s" in str(limits)
    assert "fma 0 GFLOP/s" in str(limits)


@pytest.mark.every(3)
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("kind", KINDS)
def test_the_loops_of_every_kind_are_code_of_this_host(
    kind: str, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", hidden)
    host = isa.host()

    for loop in limits.arithmetic_loops(kind, host, tiles=False):
        assert loop.work > 0
        assert jit.object_code(loop.text, host, passes=False)


@pytest.mark.parametrize(
    ("kind", "instruction"), [("int8", "tdpbssd"), ("uint8", "tdpbssd"), ("bfloat16", "tdpbf16ps")]
)
def test_tiles_are_used_where_they_may_be(kind: str, instruction: str) -> None:
    host = isa.host()
    if "64bit" not in host.features:
        pytest.skip("tile instructions are those of x86-64")
    tiles = {"amx-tile", "amx-int8", "amx-bf16"}
    with_tiles = dataclasses.replace(host, features=host.features | tiles)

    chosen = limits.arithmetic_loops(kind, with_tiles, tiles=True)[0]

    assert chosen.name == f"amx {instruction}"
    assembly = jit.assembly(chosen.text, with_tiles, passes=False)
    assert assembly.count(f"\t{instruction}\t") == 32
    assert "tile" not in limits.arithmetic_loops(kind, with_tiles, tiles=False)[0].text


def test_a_reading_loop_reads_its_bytes_and_no_others() -> None:
    host = isa.host()
    block = limits.STREAM_VECTORS * host.isa.register_bytes
    data = np.arange(4 * block, dtype=np.uint8)
    start = -data.ctypes.data % 64
    loop = limits.reading_loop(host, blocks=2)
    seen = data[start : start + 2 * block]
    seen[:] = 0
    seen[-1] = 7

    meter = limits.meter("read", loop, host, [seen], count=2)
    meter.calls[0]()

    kept = meter.calls[0]._held[1]  # type: ignore[attr-defined]
    assert loop.work == block
    assert meter.work == 2 * block
    assert int(np.bitwise_or.reduce(kept)) == 7


@pytest.mark.parametrize("threads", [1, slow(2)])
def test_rates_of_this_machine_are_plausible(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 1e-4)
    made = Limits(threads)

    bound = made.now(10**9, 1000, "float32")

    rates = made._seen
    assert bound.by in rates
    assert bound.seconds == max(
        10**9 / next(rate for name, rate in rates.items() if name != "L1"), 1000 / rates["L1"]
    )
    assert "GFLOP/s" in str(made)
