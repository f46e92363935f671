"""The net finds each of the faults that are planted in the lowering."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import slow

import offcut

from .faults import FAULTS, Fault
from .planting import noted

ROOT = Path(offcut.__file__).parents[1]
PARTS = 36  # a fault takes most of a second


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_of_the_text_that_is_there(fault: Fault) -> None:
    path = ROOT / f"{fault.full.replace('.', '/')}.py"
    assert path.read_text().count(fault.before) == 1


def planting(*arguments: str) -> None:
    """Plants faults in a process that has imported nothing of offcut."""
    command = [sys.executable, "-m", "tests.differential.planting", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


TILES = sorted(fault.name for fault in FAULTS if fault.module == "amx_code")
WIDE = [
    *sorted(fault.name for fault in FAULTS if fault.module in ("avx512_blocks", "vnni")),
    "terms that begin inside a group are taken for those of its start",
]


@pytest.mark.parametrize("part", [part if part < 1 else slow(part) for part in range(PARTS)])
def test_each_fault_is_found_by_the_case_that_is_noted_for_it(part: int) -> None:
    planting(*sorted(noted().keys() - {*TILES, *WIDE})[part::PARTS])


@pytest.mark.isa("avx512f", "avx512vnni")
@pytest.mark.parametrize("fault", [WIDE[-1], *map(slow, WIDE[:-1])])
def test_each_fault_of_wide_code_is_found(fault: str) -> None:
    planting(fault)


@pytest.mark.slow
@pytest.mark.isa("avx512f")  # with which the code of tiles stores: the unit itself is emulated
def test_each_fault_of_the_tile_unit_is_found_where_it_is_emulated() -> None:
    planting(*TILES)


@pytest.mark.slow
def test_a_fault_without_a_note_is_found_by_searching() -> None:
    planting("--missing", "--search", "60", "--keep")
