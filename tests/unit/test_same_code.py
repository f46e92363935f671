"""Code is the same from process to process, and what tells two checkouts apart tells it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import same_code


def test_the_cases_that_are_quick_are_of_all() -> None:
    assert {*same_code.QUICK} <= {*same_code.cases()}


def test_code_is_the_same_in_another_process() -> None:
    names = ["dense by balance, sapphire-rapids", "dense, gemmini"]
    first, second = (same_code.in_checkout(same_code.ROOT, names, seed=seed) for seed in (0, 1))
    assert first == second
    assert [sorted(forms) for forms in first.values()] == [["asm", "llvm"], ["cycles", "stream"]]


@pytest.mark.slow
def test_all_code_is_the_same_in_another_process() -> None:
    assert same_code.main([str(same_code.ROOT)]) == 0


def test_what_differs_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "stencil, zen4"
    kept = tmp_path / "kept.json"
    assert same_code.main(["--only", f"^{name}$", "--write", str(kept)]) == 0
    held = json.loads(kept.read_text())
    held[name]["asm"] = "0"
    kept.write_text(json.dumps(held))
    assert same_code.main([str(kept), "--only", f"^{name}$"]) == 1
    assert capsys.readouterr().out == f"{name}: asm\n1 of 1 programs differ\n"
