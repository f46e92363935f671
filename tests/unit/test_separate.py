"""What conditions leave in the loops around them, and what is said of it; whole programs are in `tests/golden`."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut.partition.separate import separate


def separated(text: str) -> str:
    """The statements of the program without the conditions that sets can answer."""
    made = separate(oc.parse(text)).program
    declared = len(made.sizes) + len(made.buffers) + 1
    return "\n".join(str(made).splitlines()[declared:])


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


def notes(text: str) -> list[str]:
    """What is said of the separation of a program."""
    return [f"{note.loop}: {note.text}" for note in separate(oc.parse(text)).notes]


HEAD = "size n in 0:1000\nsize m in 0:1000\ninput X: int32[n]\noutput C: int32[n]\n"


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
