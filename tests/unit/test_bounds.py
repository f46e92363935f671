"""Accesses of programs with bounded values: what is seen inside is inside, and what is not is found."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut.ir import Let, walk
from offcut.polyhedral import accesses_outside, find_unbounded_lets
from offcut.polyhedral.affine import Space

PRODUCT = """\
program p
size n in 0:200
size m in 0:100
input A: float32[n, m]
input B: float32[m, n]
output C: float32[n, n]
for i in 0:n
  for j in 0:n
    C[i, j] = 0.0
    for k in 0:m
      C[i, j] += A[i, k] * B[k, j]
"""
CUTS = [
    ({"i": 5, "j": 8}, "balance"),
    ({"i": 4, "j": 8}, "mix"),
    ({"i": 4, "k": 3}, "balance"),
]


def cut(tile: dict[str, int], tail: str) -> oc.Program:
    loops = oc.partition(oc.parse(PRODUCT), tile=tile, tail=tail).loops
    assert any(isinstance(stmt, Let) for stmt in walk(loops.body))
    return loops


@pytest.mark.every(4)
@pytest.mark.parametrize(("tile", "tail"), CUTS)
def test_what_is_cut_lies_inside(tile: dict[str, int], tail: str) -> None:
    program = cut(tile, tail)
    assert accesses_outside(program) == ()
    assert find_unbounded_lets(Space(program.sizes), program.body) == []


@pytest.mark.every(5)
@pytest.mark.parametrize(("tile", "tail"), CUTS)
@pytest.mark.parametrize(
    ("buffer", "shape"), [("A: float32[n, m", "n - 1, m"), ("C: float32[n, n", "n, n - 1")]
)
def test_a_buffer_that_is_one_short_is_found_with_the_smallest_sizes(
    tile: dict[str, int], tail: str, buffer: str, shape: str
) -> None:
    name, _, whole = buffer.partition("[")
    text = str(cut(tile, tail)).replace("size n in 0:200", "size n in 1:200")
    assert buffer in text
    program = oc.parse(text.replace(f"{name}[{whole}", f"{name}[{shape}"))
    found = accesses_outside(program)
    assert found
    assert {one.buffer for one in found} == {name[0]}
    assert min(one.sizes for one in found if one.sizes) == (1, int(name[0] == "A"))


def test_a_bounded_value_that_leaves_its_range_is_found() -> None:
    program = oc.parse(
        "program p\nsize n in 0:100\noutput B: int32[n]\n"
        "let q in 0:3 = n//30\n  for i in 0:n\n    B[i] = 1\n"
    )
    (broken,) = find_unbounded_lets(Space(program.sizes), program.body)
    assert broken.let.name == "q"
    assert not find_unbounded_lets(
        Space(program.sizes), oc.parse(str(program).replace("0:3", "0:4")).body
    )
