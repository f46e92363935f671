"""What is read before a statement wrote it is anything: it is refused, with the smallest witness."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from conftest import rejection

import offcut as oc

HEAD = """program t
size n in 0:100
input A: float32[n]
local L: float32[n + 1]
local S: float32[]
output B: float32[n]
"""
HELP = (
    "  help     a statement before it that writes {}\n"
    "  help     an if around the statement, or where(condition, …) around the access"
)
COPY = "for i in 0:n\n  L[i] = A[i]\n"

REFUSED = {
    "the element behind": (
        COPY + "for i in 0:n\n  B[i] = L[i + 1]\n",
        "L[i + 1]|B[i] = L[i + 1]|with n = 1, i = 0, nothing has written L[1] before",
    ),
    "a sum from nothing": (
        "for i in 0:n\n  L[i] += A[i]\nfor i in 0:n\n  B[i] = L[i]\n",
        "L[i]|L[i] += A[i]|with n = 1, i = 0, nothing has written L[0] before",
    ),
    "a result added to": (
        "for i in 0:n\n  B[i] += A[i]\n",
        "B[i]|B[i] += A[i]|with n = 1, i = 0, nothing has written B[0] before",
    ),
    "a scalar that some iterations write": (
        "for i in 0:n\n  if i > 2\n    S[] = A[i]\n  B[i] = S[]\n",
        "S[]|B[i] = S[]|with n = 1, i = 0, nothing has written S[] before",
    ),
    "statements in the wrong order": (
        "for i in 0:n\n  B[i] = L[i]\n  L[i] = A[i]\n",
        "L[i]|B[i] = L[i]|with n = 1, i = 0, nothing has written L[0] before",
    ),
    "a window of another iteration": (
        "for t in 0:2\n  alloc L[0 +: n]\n    if t == 0\n      for i in 0:n\n        L[i] = A[i]\n"
        "    for i in 0:n\n      B[i] = L[i]\n",
        "L[i]|B[i] = L[i]|with n = 1, t = 1, i = 0, nothing has written L[0] before",
    ),
    "a condition": (
        "for i in 0:n\n  if L[i] > 0.0\n    B[i] = 2.0\n  else\n    B[i] = 1.0\n",
        "L[i]|if L[i] > 0.0|with n = 1, i = 0, nothing has written L[0] before",
    ),
    "tiles without their rest": (
        "for i in 0:n//4\n  for j in 0:4\n    L[4*i + j] = A[4*i + j]\nfor i in 0:n\n  B[i] = L[i]\n",
        "L[i]|B[i] = L[i]|with n = 1, i = 0, nothing has written L[0] before",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_read_of_what_nothing_wrote_is_refused(case: str) -> None:
    body, said = REFUSED[case]
    access, at, because = said.split("|")
    with rejection(
        f"PartitionError: compile: cannot read {access} before it is written\n  at       {at}\n"
        f"  because  {because}\n{HELP.format(access[0])}"
    ):
        oc.compile(oc.parse(HEAD + body))


TAKEN = {
    "a scalar of the iteration before": "S[] = 0.0\nfor i in 0:n\n  B[i] = S[]\n  S[] = A[i]\n",
    "where it was written": COPY + "for i in 0:n\n  B[i] = where(i + 1 < n, L[i + 1], 0.0)\n",
    "tiles and their rest": "for i in 0:n//4\n  for j in 0:4\n    L[4*i + j] = A[4*i + j]\nfor i in 0:n % 4\n"
    "  L[4*(n//4) + i] = A[4*(n//4) + i]\nfor i in 0:n\n  B[i] = L[i]\n",
    "a window of its own": "for i in 0:n\n  alloc L[i +: 1]\n    L[i] = A[i]\n    B[i] = L[i]\n",
    # open: sets do not say whether it is written, or read
    "a write that memory decides": "for i in 0:n\n  if A[i] > 0.0\n    L[i] = A[i]\n  B[i] = where(A[i] > 0.0, L[i], 0.0)\n",
    "a read that memory decides": COPY
    + "for i in 0:n\n  if A[i] > 1e30\n    B[i] = L[i + 1]\n  else\n    B[i] = A[i]\n",
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_written_before_or_what_sets_do_not_say_is_compiled(case: str) -> None:
    program = oc.parse(HEAD + TAKEN[case])
    kernel = oc.compile(program)
    for n in (0, 1, 4, 7):
        a = np.arange(1.0, n + 1.0, dtype="f4")
        np.testing.assert_array_equal(kernel(a), program.run({"A": a}, n=n))


def reads(n: int, writes: tuple[int, int], step: int, shift: int, late: int) -> Iterator[int]:
    """The iterations that read what none wrote, by running the program."""
    written: set[int] = set()
    if not late:
        written |= {step * i for i in range(writes[0], n - writes[1]) if step * i < n}
    for i in range(n):
        if late and writes[0] <= i < n - writes[1]:
            written.add(i)
        if 0 <= i + shift < n and i + shift not in written:
            yield i


@pytest.mark.parametrize("late", [0, 1], ids=["before", "in turn"])
def test_refusals_and_their_witnesses_are_those_of_an_enumeration(late: int) -> None:
    for first, last, step, shift in product((0, 1), (0, 1), (1, 2), (-1, 0, 1)):
        if late and step == 2:
            continue
        head = f"for i in {first}:n - {last}\n"
        write = f"  if {step}*i < n\n    L[{step}*i] = A[i]\n"
        read = f"  if i + {shift} >= 0 and i + {shift} < n\n    B[i] = L[i + {shift}]\n"
        body = head + write + "for i in 0:n\n" + read
        if late:
            held = f"  if i >= {first} and i < n - {last}\n    L[i] = A[i]\n"
            body = "for i in 0:n\n" + held + read
        found = ((n, i) for n in range(8) for i in reads(n, (first, last), step, shift, late))
        wanted = next(found, None)
        assert witness(oc.parse(HEAD + body)) == wanted, body


def witness(program: oc.Program) -> tuple[int, int] | None:
    """The size and the iteration of a refusal; None where there is none."""
    try:
        oc.compile(program, target="interpret")
    except oc.PartitionError as refused:
        n, i = re.findall(r" = (\d+)", refused.because or "")
        return int(n), int(i)
    return None
