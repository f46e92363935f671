from __future__ import annotations

import pytest

from offcut import parse
from offcut.core.loop_independence import is_independent
from offcut.ir import For

HEAD = """\
size n in 0:100
input A: float32[n]
output C: float32[n]
output S: float32[]
local T: float32[n]
private p: float32[n]
"""

APART = {
    "its own element": "for i in 0:n\n  C[i] = A[i]",
    "a tile of its own": "for i in 0:n//8\n  tile x in 8*i +: 8\n    C[x] = A[x]",
    "a clipped tile": "for i in 0:n\n  tile x in 8*i +: min(8, n - 8*i)\n    C[x] = A[x]",
    "every second": "for i in 0:n//2\n  for j in 0:2\n    C[2*i + j] = A[i]",
    "a bounded remainder": "for i in 0:n//8\n  for x in 8*i:8*i + n % 8\n    C[x] = A[x]",
    "the other end": "for i in 0:n\n  C[n - i - 1] = A[i]",
    "a window of its own": "for i in 0:n\n  alloc T[0 +: n]\n    T[0] = A[i]\n    C[i] = T[0]",
    "an update in place": "for i in 0:n\n  C[i] = 0.0\n  C[i] += A[i]",
    "a private element": "for i in 0:n\n  p[i] = A[i]\n  C[i] = p[i]",
}
TOGETHER = {
    "one sum": "for i in 0:n\n  S[] += A[i]",
    "one temporary": "for i in 0:n\n  T[0] = A[i]\n  C[i] = T[0]",
    "the neighbour": "for i in 1:n\n  C[i] = C[i - 1]",
    "tiles that overlap": "for i in 0:n//8\n  tile x in 8*i +: 9\n    C[x] = A[0]",
    "a tile of any extent": "for i in 0:n//8\n  tile x in 8*i +: n\n    C[x] = A[0]",
    "half of it": "for i in 0:n\n  C[i//2] = A[i]",
    "a private buffer": "for i in 0:n\n  tile x in 0 +: 1\n    p[i] = A[i]\n    C[i] = p[i]",
    "one private element": "for i in 0:n\n  p[0] = A[i]\n  C[i] = p[0]",
    "a guard that reads": "for i in 1:n\n  if C[i - 1] < 0.0\n    C[i] = A[i]",
}


def loop(body: str) -> bool:
    program = parse(HEAD + body)
    (stmt,) = program.body
    assert isinstance(stmt, For)
    return is_independent(stmt, {buffer.name: buffer.kind for buffer in program.buffers})


@pytest.mark.parametrize("body", APART.values(), ids=APART)
def test_iterations_that_keep_to_themselves_are_independent(body: str) -> None:
    assert loop(body)


@pytest.mark.parametrize("body", TOGETHER.values(), ids=TOGETHER)
def test_iterations_that_meet_or_may_are_not_independent(body: str) -> None:
    assert not loop(body)
