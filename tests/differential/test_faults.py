"""The net finds each of the faults that are planted in the lowering."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import offcut

from .faults import FAULTS, Fault
from .planting import noted

ROOT = Path(offcut.__file__).parents[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_of_the_text_that_is_there(fault: Fault) -> None:
    path = ROOT / f"{fault.full.replace('.', '/')}.py"
    assert path.read_text().count(fault.before) == 1
    assert fault.name in noted()


@pytest.mark.parametrize("part", range(4))
def test_each_fault_is_found_by_the_case_that_is_noted_for_it(part: int) -> None:
    names = [fault.name for fault in FAULTS][part::4]
    done = subprocess.run(
        [sys.executable, "-m", "tests.differential.planting", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
