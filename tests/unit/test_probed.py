"""What was measured, as a description: it reads back as measured, and says where it may be wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from offcut.backends.cpu.machine import isa
from offcut.errors import BusyError, TargetError
from offcut.experiment.limits import CLOCK_STEPS, clock_loop
from offcut.experiment.probe import Measured, Reading
from offcut.experiment.probed import check_idle, check_path, complaints, described, written
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
    written(described(zen4(), "mine", DAY), path)
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


def test_a_sure_measurement_has_nothing_to_complain_of() -> None:
    assert complaints(zen4()) == ()


def test_a_machine_that_is_too_loaded_is_said_to_be_so() -> None:
    unsure = replace(
        zen4(), core_share=0.614, memories={"L1": Reading(64.0, 0.11), "L2": Reading(30.0, 0.32)}
    )
    with pytest.raises(BusyError) as busy:
        check_idle(unsure)
    assert str(busy.value) == (
        "probe: cannot describe this machine\n"
        "  because  it is too loaded to be measured: this process had its core 61 % of the time\n"
        "  help     offcut target probe, when nothing else runs\n"
        "  help     --loaded takes these numbers, and the description says so"
    )
    assert "under load (this process had its core 61 % of the time)" in described(unsure, "m", DAY)
    assert complaints(unsure) == (
        "2 of 8 numbers are unsure: the quartiles of their rounds lie more than 10 % apart, those of L2 32 %",
    )


def test_a_reading_is_the_median_and_the_distance_of_the_quartiles() -> None:
    assert Reading.of([1.0, 2.0, 3.0, 4.0, 50.0]) == Reading(3.0, 2 / 3)


def test_a_file_that_is_not_read_back_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TargetError) as refused:
        check_path(Path("mine.txt"))
    assert str(refused.value) == (
        "probe: cannot write mine.txt\n"
        "  because  a machine is read from a file whose name ends in .toml\n"
        "  help     --out mine.toml"
    )
    path = tmp_path / "no folder" / "mine.toml"
    with pytest.raises(TargetError) as refused:
        written("", path)
    assert str(refused.value) == (
        f"probe: cannot write {path}\n  because  No such file or directory\n"
        "  help     --out of a folder that is there\n  help     without --out it is printed"
    )


def test_the_clock_is_told_by_additions_that_wait_for_each_other() -> None:
    text = clock_loop().text
    steps = [line for line in text.splitlines() if " = add " in line or " = xor " in line]
    assert len(steps) == CLOCK_STEPS
    names = [step.split(" = ")[0] for step in steps]
    assert all(name in step for name, step in zip(names, steps[1:], strict=False))
