"""A partition in words: every condition that stays, every loop that is left, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import offcut as oc


def explained(text: str, tile: dict[str, Any], tail: str) -> str:
    """What a partition says, without the size of its object code."""
    made = oc.partition(oc.parse(text), tile=tile, tail=tail)
    return replace(made, measure=None).explain()


def test_what_stays_is_named_with_its_reason() -> None:
    text = """\
size n in 0:1000
size m in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  if n*i < m
    C[i] = X[i]
  else
    C[i] = where(X[i] > 0.0, 1.0, 2.0)
"""
    assert (
        explained(text, {"i": 4}, "cut")
        == """\
program: i cut into 1 body, 1 tail. 2 conditions are left. 4 statements in 10 lines, 2 copies of each. 8 theorems hold for all sizes.
- loop i: keeps n * i < m: it is not quasi-affine
- loop i: keeps X[i] > 0.0: it depends on what is in memory"""
    )


def test_a_masked_tile_says_which_lanes_are_off() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = X[i] * 2.0
"""
    assert (
        explained(text, {"i": 4}, "mask")
        == """\
program: i cut into 1 body, 1 tail. One condition is left. 2 statements in 6 lines, 2 copies of each. 8 theorems hold for all sizes.
- i < n stays: it holds on a part of a tile"""
    )


def test_a_loop_in_steps_says_what_is_left_of_its_tiles() -> None:
    text = """\
program third
size n in 0:1000
input x: float32[n]
output y: float32[n]
for i in 0:n
  if i % 3 == 1
    y[i] = x[i] * 2.0
  else
    y[i] = x[i]
"""
    said = (
        "loop i: only what its steps of 3 leave over is in tiles of 8; copies=1, or `separate 1` in a "
        "schedule, keeps the condition, and cuts the loop"
    )
    program = oc.parse(text)
    cut = oc.partition(program, tile={"i": 8}, tail="cut")
    assert f"- {said}" in cut.explain().splitlines()
    kernel = oc.compile(program, schedule=cut.schedule)
    assert said in kernel.plan(n=20).notes
    whole = oc.partition(program, tile={"i": 8}, tail="cut", copies=1)
    assert "steps" not in whole.explain()
    assert [(piece.role, piece.tile["i"]) for piece in whole.pieces] == [("body", 8), ("tail", 1)]
