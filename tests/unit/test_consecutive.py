"""Loops that follow each other are one loop, where their bounds say so at every size."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut.core.plain_loops import strip_annotations
from offcut.proof import concatenate_loops

HEAD = """program p
size n in 0:100
size m in 0:100
output y: float32[n]
"""
ONE = "for i in 0:n\n  y[i] = float32(i)\n"


def read(loops: str) -> oc.Program:
    return oc.parse(HEAD + loops)


@pytest.mark.parametrize("end", ["n - n % 2", "n // 3", "min(n, m)", "n", "0"])
def test_ranges_that_follow_each_other_are_one(end: str) -> None:
    split = f"for i in 0:{end}\n  y[i] = float32(i)\nfor i in {end}:n\n  y[i] = float32(i)\n"
    assert concatenate_loops(read(split)) == strip_annotations(read(ONE))


@pytest.mark.parametrize(
    "split",
    [
        "for i in 0:m\n  y[i] = float32(i)\nfor i in m:n\n  y[i] = float32(i)\n",  # m > n
        "for i in 0:n // 2\n  y[i] = float32(i)\nfor i in n // 3:n\n  y[i] = float32(i)\n",
        "for i in n // 2:n\n  y[i] = float32(i)\nfor i in 0:n // 2\n  y[i] = float32(i)\n",
        "for i in 0:n // 2\n  y[i] = float32(i)\nfor i in n // 2:n\n  y[i] = float32(i + 1)\n",
        "for i in 0:n // 2\n  y[i] = float32(i)\nfor j in n // 2:n\n  y[j] = float32(j)\n",
    ],
)
def test_other_loops_stay(split: str) -> None:
    assert concatenate_loops(read(split)) == strip_annotations(read(split))
