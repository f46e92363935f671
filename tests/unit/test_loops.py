"""What the loops of characteristic programs become, word for word."""

from __future__ import annotations

from typing import Any

import offcut as oc


def cut(text: str, tile: dict[str, Any], tail: str) -> str:
    """The statements of the emitted program."""
    made = oc.partition(oc.parse(text), tile=tile, tail=tail)
    declared = len(made.loops.sizes) + len(made.loops.buffers) + 1
    return "\n".join(str(made).splitlines()[declared:])


def test_a_ragged_split_is_full_tiles_and_single_instances() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = X[i] * 2.0"""
    assert (
        cut(text, {"i": 4}, "cut")
        == """\
for i_tile in 0:n//4  @body
  tile i in 4*i_tile +: 4  @body
    C[i] = X[i] * 2.0
for i_tile in 0:n % 4  @tail
  tile i in 4*(n//4) + i_tile +: 1  @tail
    C[i] = X[i] * 2.0"""
    )


def test_a_pooling_border_is_one_part() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[(n + 1)//2]
for i in 0:(n + 1)//2
  C[i] = -1.0
  for r in 0:2
    if 2*i + r < n
      C[i] max= X[2*i + r]"""
    assert (
        cut(text, {"i": 4}, "cut")
        == """\
for i_tile in 0:n//2//4  @body
  tile i in 4*i_tile +: 4  @body
    C[i] = -1.0
    for r in 0:2
      C[i] max= X[2*i + r]
for i_tile in 0:n//2 % 4  @tail
  tile i in 4*(n//2//4) + i_tile +: 1  @tail
    C[i] = -1.0
    for r in 0:2
      C[i] max= X[2*i + r]
tile i in n//2 +: (n + 1)//2 - n//2  @tail
  C[i] = -1.0
  for r in 0:n - 2*i
    C[i] max= X[2*i + r]"""
    )


def test_a_concatenation_is_cut_where_its_parts_meet() -> None:
    text = """\
size n in 0:1000
size m in 0:1000
input X: float32[n]
input Y: float32[m]
output C: float32[n + m]
for i in 0:n + m
  C[i] = where(i < n, X[i], Y[i - n])"""
    assert (
        cut(text, {"i": 4}, "cut")
        == """\
for i_tile in 0:n//4  @body
  tile i in 4*i_tile +: 4  @body
    C[i] = X[i]
for i_tile in 0:n % 4  @tail
  tile i in 4*(n//4) + i_tile +: 1  @tail
    C[i] = X[i]
for i_tile in 0:m//4  @body
  tile i in n + 4*i_tile +: 4  @body
    C[i] = Y[i - n]
for i_tile in 0:m % 4  @tail
  tile i in n + 4*(m//4) + i_tile +: 1  @tail
    C[i] = Y[i - n]"""
    )


def test_a_triangle_is_full_tiles_and_its_border() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n, n]
for i in 0:n
  for j in 0:i + 1
    C[i, j] = X[i] * X[j]"""
    assert (
        cut(text, {"i": 4, "j": 4}, "cut")
        == """\
for i_tile in 0:n//4  @body
  for j_tile in 0:i_tile  @body
    tile i in 4*i_tile +: 4, j in 4*j_tile +: 4  @body
      C[i, j] = X[i] * X[j]
  for i in 4*i_tile:4*i_tile + 4  @tail
    for j in 4*i_tile:i + 1  @tail
      C[i, j] = X[i] * X[j]
for i_tile in 0:n % 4  @tail
  for j_tile in 0:n//4 + (i_tile + 1)//4  @body
    tile i in 4*(n//4) + i_tile +: 1, j in 4*j_tile +: 4  @tail
      C[i, j] = X[i] * X[j]
  for i in 4*(n//4) + i_tile:4*(n//4) + i_tile + 1  @tail
    for j in 4*(n//4) + 4*((i_tile + 1)//4):i + 1  @tail
      C[i, j] = X[i] * X[j]"""
    )


def test_a_strided_loop_is_cut_in_its_iterations() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
for i in 1:n:3
  C[i] = X[i] + X[i - 1]"""
    assert (
        cut(text, {"i": 4}, "ladder")
        == """\
for i_tile in 0:(n + 1)//3//4  @body
  tile i in 4*i_tile +: 4  @body
    C[3*i + 1] = X[3*i + 1] + X[3*i]
if (n + 1)//3 % 4 > 0
  tile i in 4*((n + 1)//3//4) +: (n + 1)//3 % 4  @tail
    C[3*i + 1] = X[3*i + 1] + X[3*i]"""
    )


def test_two_levels_of_tiles_are_two_loops_over_tiles() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = X[i]"""
    assert (
        cut(text, {"i": (8, 2)}, "cut")
        == """\
for i_tile in 0:n//8  @body
  for i_tile_ in 0:4  @body
    tile i in 8*i_tile + 2*i_tile_ +: 2  @body
      C[i] = X[i]
if n % 8 > 0
  for i_tile in 0:n % 8//2  @body
    tile i in 8*(n//8) + 2*i_tile +: 2  @body
      C[i] = X[i]
  for i_tile in 0:n % 8 % 2  @tail
    tile i in 8*(n//8) + 2*(n % 8//2) + i_tile +: 1  @tail
      C[i] = X[i]"""
    )


def test_a_version_has_code_of_its_own_for_less_than_a_tile() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = X[i]"""
    assert (
        cut(text, {"i": 4}, "version")
        == """\
if n >= 4
  for i_tile in 0:n//4  @body
    tile i in 4*i_tile +: 4  @body
      C[i] = X[i]
if n >= 4 and n % 4 > 0
  tile i in 4*(n//4) +: n % 4  @tail
    C[i] = X[i]
if n < 4 and n > 0
  tile i in 0 +: n  @tail
    C[i] = X[i]"""
    )


def test_loops_in_place_stay_in_their_order() -> None:
    text = """\
size n in 0:1000
inout A: float32[n]
for i in 1:n
  A[i] = A[i - 1] + 1.0"""
    assert (
        cut(text, {"i": 3}, "ladder")
        == """\
if 1 < n
  for i_tile in 0:(n + 2)//3 - 1  @body
    for i in 3*i_tile + 1:3*i_tile + 4  @body
      A[i] = A[i - 1] + 1.0
  if (n + 2) % 3 > 0
    for i in 3*((n + 2)//3) - 2:3*((n + 2)//3) + (n + 2) % 3 - 2  @tail
      A[i] = A[i - 1] + 1.0"""
    )


def test_a_padded_reduction_adds_nothing_outside() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
inout S: float32[1]
for k in 0:n
  S[0] += X[k]"""
    assert (
        cut(text, {"k": 4}, "pad")
        == """\
for k_tile in 0:n//4  @body
  for k in 4*k_tile:4*k_tile + 4  @body
    S[0] += X[k]
if 4*(n//4) < n
  for k in 4*(n//4):4*(n//4) + 4  @tail
    S[0] += where(k < n, X[k], -0.0)"""
    )


def test_tiles_of_one_iteration_are_the_loop() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = X[i]"""
    assert (
        cut(text, {"i": 1}, "balance")
        == """\
for i_tile in 0:n  @body
  tile i in i_tile +: 1  @body
    C[i] = X[i]"""
    )
