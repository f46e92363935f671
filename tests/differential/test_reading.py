"""Programs as trees: what is read prints as it was written."""

from __future__ import annotations

import pytest

from .cuts import case_of, loops_of
from .kinds import KINDS
from .reading import loop_of, read, store_of

TEXT = """\
program drawn
size n in 0:60
size m in 1:9 multiple_of 4
assume n <= m
input I: int32[n]
inout O: float32[n, max(n, m)]
local t: float32[]
for i in 0:n:2
  if O[i, index(I[i])] > 0
    O[i, min(i, 2)] max= where(i > 1, O[i, 0], -1)
  else
    t[] = 2
"""


def test_a_text_is_read_back() -> None:
    source = read(TEXT)
    assert str(source) == TEXT
    assert source.buffers[1].shape == ("n", "max(n, m)")
    assert [size.allows(4) for size in source.sizes] == [True, True]
    assert not source.sizes[1].allows(5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_back(kind: str) -> None:
    for seed in range(5):
        case = case_of(seed, kind)
        assert str(read(case.text)) == case.text
        assert case_of(seed, kind) == case


def test_lines_are_taken_apart() -> None:
    assert str(loop_of("for i in min(a, b):n - (2*m):3  @body")) == "for i in min(a, b):n - (2*m):3"
    store = store_of("O[index(I[i]), min(i, j)] max= A[i] == B[i]")
    assert (store.index, store.op, store.value) == (
        ("index(I[i])", "min(i, j)"),
        "max=",
        "A[i] == B[i]",
    )
    assert store_of("t[] -= 2").index == ()


def test_loops_of_one_name_are_told_by_what_they_write() -> None:
    source = read(TEXT + "for i in 0:n\n  O[i, 0] = 1\nfor j in 0:n\n  O[j, 0] = 1\n")
    assert loops_of(source) == ["O.i", "t.i", "j"]
