"""What a run repeats: the examples of property tests, and the text of programs under any hash seed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st


def draws() -> list[int]:
    """What a property test draws."""
    found: list[int] = []

    @given(st.integers())
    def note(drawn: int) -> None:
        found.append(drawn)

    note()
    return found


def test_a_property_test_draws_the_same_whatever_ran_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = draws()
    numbers = ", ".join(str(7919**k) for k in range(2, 60))
    (tmp_path / "offcut_numbers.py").write_text(f"NUMBERS = [{numbers}]\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("offcut_numbers")
    assert draws() == before


TEXTS = """
import offcut as oc
from partition_cases import CONVOLUTION
from polybench import GEMM

convolution, product = oc.parse(CONVOLUTION), oc.parse(GEMM)
for cut in (
    oc.partition(convolution, tile={"y": 4, "x": 4}, tail={"x": "ladder"}),
    oc.partition(product, tile={"i": 4, "j": 4}, tail={"j": "mask"}),
):
    print(cut.loops, cut.explain(), *cut.prove().theorems, sep="\\n")

n, m = oc.dim("n", max=64), oc.dim("m", max=64)
x = oc.placeholder((n, m), name="x")
for kernel in (oc.compile(cut.loops), oc.compile(oc.ops.softmax(x))):
    print(kernel.loops, kernel.source("llvm"))
    print(kernel.plan(**{size.name: 21 for size in kernel.signature.sizes}))
"""


def test_the_text_of_programs_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TEXTS],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "OFFCUT_CACHE": str(tmp_path / seed),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (process.communicate()[0] for process in started)
    assert [process.returncode for process in started] == [0, 0]
    assert first == second
