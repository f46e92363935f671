"""What a run repeats: the examples of property tests, and the text of programs under any hash seed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
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
from polybench import text_of

convolution, product = oc.parse(CONVOLUTION), oc.parse(text_of("gemm"))
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


def test_the_text_of_programs_does_not_depend_on_the_hash_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
    own = {"PYTHONHASHSEED": other, "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.Popen(
        [sys.executable, "-c", TEXTS],
        env={**os.environ, **own, "OFFCUT_CACHE": str(tmp_path / "there")},
        stdout=subprocess.PIPE,
        text=True,
    )
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path / "here"))
    here = StringIO()
    with redirect_stdout(here):
        exec(TEXTS, {})
    assert there.communicate()[0] == here.getvalue()
    assert there.returncode == 0
