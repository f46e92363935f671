"""What a run repeats: the examples of property tests, and the text of programs under any hash seed."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offcut as oc
from tests import same_code
from tests.agree import agree, computed, exact_matmul, nearly, of_peer, of_program, total


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


# Code is the same from process to process, and what tells two checkouts apart tells it.


def test_the_cases_that_are_quick_are_of_all() -> None:
    assert {*same_code.QUICK} <= {*same_code.cases()}


@pytest.mark.slow
def test_all_code_is_the_same_in_another_process() -> None:
    assert same_code.main([str(same_code.ROOT)]) == 0


def test_what_differs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    old = {"a": {"asm": "1", "llvm": "2"}, "b": {"stream": "3"}}
    assert same_code.report(old, old) == 0
    assert same_code.report(old, {**old, "a": {"asm": "4", "llvm": "2"}, "c": {}}) == 1
    said = capsys.readouterr().out
    assert said == (
        "0 of 2 programs differ\na: asm\nc: was not compared before\n2 of 3 programs differ\n"
    )


# The one comparison of floats of the tests: what it allows, what it finds, and that there is no other.


TESTS = Path(__file__).parent.parent
ANOTHER = re.compile(
    r"\b(assert_)?allclose\(|\bassert_close\(|\bnp\.isclose|\bmath\.isclose|\bapprox\(|assert_almost"
)


def drawn(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def added_backwards(a: Any, b: Any) -> Any:
    """A product in float32 whose terms are added from the last to the first."""
    found = np.zeros((len(a), b.shape[1]), np.float32)
    for k in reversed(range(len(b))):
        found += np.outer(a[:, k], b[k])
    return found


def test_sums_that_cancel_may_be_added_in_any_order() -> None:
    a, b = drawn(0, 40, 90), drawn(1, 90, 30)
    a[:, 45:], b[45:] = a[:, :45], -b[:45] * np.float32(1 + 2**-20)
    for found in (a @ b, added_backwards(a, b)):
        agree(found, exact_matmul(a, b))
        agree(found, computed(np.matmul, a, b))
        off = np.abs(found - a.astype("f8") @ b) / np.abs(a.astype("f8") @ b)
        assert off.max() > 1e-4, "a relative tolerance does not do"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16])
def test_a_term_that_is_lost_is_found(dtype: Any) -> None:
    a, b = drawn(0, 40, 90).astype(dtype), drawn(1, 90, 30).astype(dtype)
    wide_a, wide_b = a.astype("f8"), b.astype("f8")
    sums = np.float32 if dtype != "float64" else np.float64
    agree((wide_a @ wide_b).astype(dtype), exact_matmul(a, b))
    wrong = (wide_a[:, 1:] @ wide_b[1:]).astype(sums)
    for exact in (exact_matmul(a, b), computed(np.matmul, a, b), of_peer(wide_a @ wide_b)):
        with pytest.raises(AssertionError, match=r"elements are off; at \(\d+, \d+\)"):
            agree(wrong, exact)


def test_one_element_that_is_off_is_found_in_any_of_them() -> None:
    a = drawn(2, 1000)
    exact = computed(np.tanh, a)
    right = np.tanh(a)
    agree(right, exact)
    for place in (0, 500, 999):
        wrong = right.copy()
        wrong[place] += np.float32(1e-4)
        with pytest.raises(AssertionError, match=rf"1 of 1000 elements are off; at \({place},\)"):
            agree(wrong, exact)


def test_what_is_not_finite_is_equal_and_shapes_and_integers_are() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0])
    agree(special.astype("f4"), special)
    for wrong in ([0, np.inf, -np.inf, 0], [np.nan, -np.inf, -np.inf, 0], [np.nan, 1e38, 0, 0]):
        with pytest.raises(AssertionError):
            agree(np.array(wrong, "f4"), special)
    with pytest.raises(AssertionError, match="is not"):
        agree(np.zeros((2, 1), "f4"), np.zeros(2))
    with pytest.raises(AssertionError):
        agree(np.array([1, 2]), np.array([1, 3]), terms=100)


def test_a_reference_in_float32_is_refused() -> None:
    with pytest.raises(AssertionError, match="the reference is in float64"):
        agree(np.zeros(2, "f4"), np.zeros(2, "f4"))


def test_the_terms_of_a_program_are_those_of_its_sums() -> None:
    program = oc.parse("""\
program dots
size n in 0:99
input A: float32[n]
output s: float32[1]
s[0] = 0.0
for i in 0:n
  s[0] += A[i] * 3.0""")
    a = drawn(3, 90)
    (exact, by_hand) = of_program(program, {"A": a}), total(3.0 * a.astype("f8"))
    assert exact.value[0] == nearly(float(by_hand.value))
    assert 0.1 < exact.terms[0] / by_hand.terms * 9 < 10, "as squares, of ninety terms"
    agree(program.run({"A": a}), exact)


def test_there_is_no_other_comparison_of_floats() -> None:
    own = {TESTS / "agree.py", Path(__file__)}
    others = [
        f"{path.relative_to(TESTS)}:{number}: {line.strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        if path not in own
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ANOTHER.search(line) and ".isclose(x.round()" not in line
    ]
    assert not others, "tests/agree.py bounds errors by the terms:\n" + "\n".join(others)
