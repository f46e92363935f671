"""What conditions leave in the loops around them, word for word."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut.partition.separate import separate


def separated(text: str) -> str:
    """The statements of the program without the conditions that sets can answer."""
    made = separate(oc.parse(text)).program
    declared = len(made.sizes) + len(made.buffers) + 1
    return "\n".join(str(made).splitlines()[declared:])


def test_a_padded_convolution_has_a_bare_interior() -> None:
    text = """\
size n in 3:1000
size m in 3:1000
input X: float32[n, m]
input W: float32[3, 3]
output C: float32[n, m]
for i in 0:n
  for j in 0:m
    C[i, j] = 0.0
    for r in 0:3
      for s in 0:3
        C[i, j] += where(i + r >= 1 and i + r <= n and j + s >= 1 and j + s <= m, X[i + r - 1, j + s - 1] * W[r, s], 0.0)"""
    assert (
        separated(text)
        == """\
for i in 0:1
  for j in 0:1
    C[i, j] = 0.0
    for r in 1 - i:3
      for s in 1 - j:3
        C[i, j] += X[i + r - 1, j + s - 1] * W[r, s]
  for j in 1:m - 1
    C[i, j] = 0.0
    for r in 1 - i:3
      for s in 0:3
        C[i, j] += X[i + r - 1, j + s - 1] * W[r, s]
  for j in m - 1:m
    C[i, j] = 0.0
    for r in 1 - i:3
      for s in 0:m - j + 1
        C[i, j] += X[i + r - 1, j + s - 1] * W[r, s]
for i in 1:n - 1
  for j in 0:1
    C[i, j] = 0.0
    for r in 0:3
      for s in 1 - j:3
        C[i, j] += X[i + r - 1, j + s - 1] * W[r, s]
  for j in 1:m - 1
    C[i, j] = 0.0
    for r in 0:3
      for s in 0:3
        C[i, j] += X[i + r - 1, j + s - 1] * W[r, s]
  for j in m - 1:m
    C[i, j] = 0.0
    for r in 0:3
      for s in 0:m - j + 1
        C[i, j] += X[i + r - 1, j + s - 1] * W[r, s]
for i in n - 1:n
  for j in 0:1
    C[i, j] = 0.0
    for r in 0:n - i + 1
      for s in 1 - j:3
        C[i, j] += X[i + r - 1, j + s - 1] * W[r, s]
  for j in 1:m - 1
    C[i, j] = 0.0
    for r in 0:n - i + 1
      for s in 0:3
        C[i, j] += X[i + r - 1, j + s - 1] * W[r, s]
  for j in m - 1:m
    C[i, j] = 0.0
    for r in 0:n - i + 1
      for s in 0:m - j + 1
        C[i, j] += X[i + r - 1, j + s - 1] * W[r, s]"""
    )


def test_a_diagonal_is_a_part_of_the_inner_loop() -> None:
    text = """\
size n in 0:1000
input X: float32[n, n]
output C: float32[n, n]
for i in 0:n
  for j in 0:n
    if i == j
      C[i, j] = 1.0
    else
      C[i, j] = X[i, j]"""
    assert (
        separated(text)
        == """\
for i in 0:n
  for j in 0:i
    C[i, j] = X[i, j]
  for j in i:i + 1
    C[i, j] = 1.0
  for j in i + 1:n
    C[i, j] = X[i, j]"""
    )


def test_a_band_is_cut_where_its_ends_are_clipped() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n, n]
for i in 0:n
  for j in max(0, i - 2):min(n, i + 3)
    C[i, j] = X[i] + X[j]"""
    assert (
        separated(text)
        == """\
for i in 0:min(2, n)
  for j in 0:min(n, i + 3)
    C[i, j] = X[i] + X[j]
for i in 2:n - 2
  for j in i - 2:i + 3
    C[i, j] = X[i] + X[j]
for i in max(2, n - 2):n
  for j in i - 2:n
    C[i, j] = X[i] + X[j]"""
    )


@pytest.mark.parametrize(
    ("extent", "window", "cut"),
    [
        ("n", "max(0, 1 - i):min(3, n - i + 1)", ["0:min(1, n)", "1:n - 1", "max(1, n - 1):n"]),
        ("n", "max(0, 3 - i):min(7, n - i + 3)", ["0:min(3, n)", "3:n - 3", "max(3, n - 3):n"]),
        (
            "(n + 1)//2",
            "max(0, 1 - 2*i):min(3, n - 2*i + 1)",
            ["0:min(1, (n + 1)//2)", "1:n//2", "max(1, n//2):(n + 1)//2"],
        ),
    ],
)
def test_borders_of_a_window_are_as_short_as_they_can_be(
    extent: str, window: str, cut: list[str]
) -> None:
    text = f"""\
size n in 0:1000
input X: float32[n, 7]
output C: float32[{extent}]
for i in 0:{extent}
  C[i] = 0.0
  for j in {window}
    C[i] += X[i, j]"""
    loops = [line for line in separated(text).splitlines() if line.startswith("for")]
    assert loops == [f"for i in {bounds}" for bounds in cut]


def test_parity_is_a_loop_in_steps() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  if i % 2 == 0
    C[i] = X[i]
  else
    C[i] = -X[i]"""
    assert (
        separated(text)
        == """\
for i_2 in 0:n//2
  C[2*i_2] = X[2*i_2]
  C[2*i_2 + 1] = -(X[2*i_2 + 1])
for i in 2*(n//2):n
  C[i] = X[i]"""
    )


def test_a_condition_of_sizes_is_asked_once() -> None:
    text = """\
size n in 0:1000
size m in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = where(n < m, X[i], 0.0)"""
    assert (
        separated(text)
        == """\
if n < m
  for i in 0:n
    C[i] = X[i]
else
  for i in 0:n
    C[i] = 0.0"""
    )


def test_parts_in_turn_are_joined_only_where_they_meet() -> None:
    text = """\
size n in 0:1000
size m in 0:1000
inout A: float32[12]
for i in 0:3
  if 4*i < n + 1 or 4*i < m
    A[i] += 1.0"""
    assert (
        separated(text)
        == """\
for i in 0:min(n//4 + 1, 3)
  A[i] += 1.0
for i in n//4 + 1:min((m + 3)//4, 3)
  A[i] += 1.0"""
    )


def test_a_remainder_of_a_sum_with_a_size_is_kept() -> None:
    text = """\
size n in 0:1000
size m in 0:1000
output C: float32[n]
for i in 0:n
  C[i] = where((i + m) % 3 == 1, 1.0, 2.0)"""
    assert (
        separated(text)
        == """\
for i in 0:n
  C[i] = where((i + m) % 3 == 1, 1.0, 2.0)"""
    )


def notes(text: str) -> list[str]:
    """What is said of the separation of a program."""
    return [f"{note.loop}: {note.text}" for note in separate(oc.parse(text)).notes]


HEAD = "size n in 0:1000\nsize m in 0:1000\ninput X: int32[n]\noutput C: int32[n]\n"


def test_the_mask_of_a_tile_is_no_condition_to_be_cut() -> None:
    text = "for t in 0:(n + 7)//8\n  tile i in 8*t +: 8 where i < n  @mask\n    C[i] = X[i]"
    assert notes(HEAD + text) == []


def test_what_is_said_to_be_kept_is_there() -> None:
    text = """\
for i in 0:n
  if i % 2 == 1 or i < 3
    C[i] = X[i]
  if i*i < m
    C[i] = 1
  if i < 0 and i*i < n
    C[i] = 2"""
    made = separate(oc.parse(HEAD + text))
    kept = [note.text for note in made.notes if note.text.startswith("keeps")]
    assert "keeps i * i < m: it is not quasi-affine" in kept
    for text in kept:
        assert text.removeprefix("keeps ").partition(":")[0] in str(made.program)


def test_a_loop_that_is_joined_again_is_not_said_to_be_cut() -> None:
    text = "for t in 0:(n + 7)//8\n  tile i in 8*t +: min(8, n - 8*t)\n    C[i] = X[i]"
    assert str(separate(oc.parse(HEAD + text)).program).count("for t in") == 1
    assert notes(HEAD + text) == []


def test_steps_that_take_too_many_copies_are_not_said_to_be_taken() -> None:
    lines = ["for i in 0:n", *(f"  if i % {k} == 0\n    C[i] += X[i]" for k in (5, 7, 8))]
    made = separate(oc.parse(HEAD + "\n".join(lines)), 4)
    said = [note.text for note in made.notes]
    assert not any(text.startswith("in steps of") for text in said)
    assert "for i in 0:n" in str(made.program)
    assert any("copies of its statements" in text for text in said)
