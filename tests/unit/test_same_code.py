"""Code is the same from process to process, and what tells two checkouts apart tells it."""

from __future__ import annotations

import pytest

from tests import same_code


def test_the_cases_that_are_quick_are_of_all() -> None:
    assert {*same_code.QUICK} <= {*same_code.cases()}


@pytest.mark.slow
def test_code_is_the_same_in_another_process() -> None:
    names = ["stencil, cascade-lake", "dense, gemmini"]
    first, second = (same_code.in_checkout(same_code.ROOT, names, seed=seed) for seed in (0, 1))
    assert first == second
    assert [sorted(forms) for forms in first.values()] == [["asm", "llvm"], ["cycles", "stream"]]


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
