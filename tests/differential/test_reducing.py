"""The reducer on planted failures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from . import meaning
from .case import Case, Outcome, load
from .cuts import case_of
from .kinds import KINDS
from .memory import guarded, same
from .reading import read
from .reducing import Check, Finding, reduced, written


def fails_where_it_says(pattern: str, symptom: str = "planted") -> Check:
    """A check that fails wherever the program matches, and has a meaning."""

    def check(case: Case) -> Outcome:
        read(case.text)
        found = re.search(pattern, case.text)
        return Outcome("wrong", "cut", symptom) if found else Outcome("ok")

    return check


def test_a_failure_shrinks_to_the_line_that_fails() -> None:
    text = """\
program drawn
size n in 0:60
size m in 0:60
input A: float32[n, m]
input X: float32[n]
inout D: float32[n, m]
inout E: float32[n]
for i in 1:min(n, m):2
  if i > 2
    E[i] = X[i] * 2 + max(X[i], 3)
  else
    E[i] = 1
  for j in 0:m
    D[i, j] = A[i, j] + X[i] * 3
    E[i] max= D[i, j] * D[i, 0] + 1
"""
    case = Case(
        "planted",
        0,
        text,
        tile={"i": (8, 4), "j": 16},
        tail="mask",
        copies=3,
        threads=2,
        sizes=({"n": 9, "m": 30}, {"n": 2, "m": 3}),
    )
    check = fails_where_it_says(r"max= .*D\[.*\*")
    outcome = check(case)
    small = reduced(case, outcome, check)
    assert check(small).alike(outcome)
    assert str(small.text).count("\n") <= 6
    assert "if" not in small.text
    assert "E[" in small.text
    assert not small.tile
    assert (small.threads, small.copies, len(small.sizes)) == (1, None, 1)


def test_only_what_fails_alike_is_taken() -> None:
    case = case_of(3, "contraction")

    def check(candidate: Case) -> Outcome:
        return Outcome("wrong", "cut", f"{candidate.text.count('for ')} loops")

    small = reduced(case, check(case), check)
    assert small.text.count("for ") == case.text.count("for ")


def test_a_finding_is_written_once(tmp_path: Path) -> None:
    case = case_of(1, "stencil")
    finding = Finding(case, case, Outcome("wrong", "cut", "wrong values", "found 1\nwanted 2"))
    path = written(finding, tmp_path)
    assert path is not None
    assert written(finding, tmp_path) is None
    said = path.read_text().splitlines()
    assert load(said[-1].removeprefix("# case ")) == case
    assert len((tmp_path / "INDEX.md").read_text().splitlines()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_cases_survive_their_text(kind: str) -> None:
    case = case_of(7, kind)
    assert load(case.dump()) == case


def test_sizes_are_allowed_and_programs_have_a_meaning() -> None:
    for seed in range(30):
        case = case_of(seed)
        source = read(case.text)
        for sizes in case.sizes:
            assert all(size.allows(sizes[size.name]) for size in source.sizes)
            assert all(meaning.value_of(e, sizes) >= -60 for b in source.buffers for e in b.shape)


def test_differences_that_count_are_seen() -> None:
    known = np.ones(2, bool)
    exact, close = {"tolerance": 0, "zeros": True}, {"tolerance": 1e-4, "zeros": False}
    a = np.array([np.nan, 0.0], np.float32)
    assert same(a, a.copy(), known, exact)
    assert not same(a, np.array([np.nan, -0.0], np.float32), known, exact)
    assert same(a, np.array([np.nan, -0.0], np.float32), known, close)
    assert not same(a, np.array([1.0, 0.0], np.float32), known, close)
    assert same(a, np.array([1.0, 0.0], np.float32), np.array([False, True]), exact)
    assert not same(np.array([np.inf, 1], np.float32), np.array([1, 1], np.float32), known, close)
    assert not same(a, a.astype("float64"), known, exact)


def test_guarded_arrays_end_at_a_page_and_begin_at_one() -> None:
    for shape in ((), (0,), (3, 5), (1025,)):
        end, start = guarded(shape, "float32", True), guarded(shape, "float32", False)
        assert (end.ctypes.data + end.nbytes) % 4096 == 0
        assert start.ctypes.data % 4096 == 0
        end[...] = start[...] = 1
