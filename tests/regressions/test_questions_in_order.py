"""What is asked before an access reads arrays, too: each index is asked before it is used as one."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import before_a_wall

import offcut as oc
from tests.agree import agree, of_program, total

HEAD = """program g
size n in 1:400
input p: int32[1]
input r: int32[n]
input x: float32[n]
inout c: float32[n]
for j in 0:index(p[0])
"""

BODIES = {
    "written": "  c[index(r[j])] = 1.0\n",
    "read": "  c[0] += x[index(r[j])]\n",
    "a condition": "  if x[index(r[j])] > 0.0\n    c[0] += 1.0\n",
    "not a condition": "  if not (x[index(r[j])] > 0.0)\n    c[0] += 1.0\n",
    "the other side of a choice": "  c[0] += where(x[0] > 0.0, 1.0, x[index(r[j])])\n",
    "one side of a choice": "  c[0] += where(j >= 0, x[index(r[j])], 1.0)\n",
    "a choice by an element": "  c[0] += where(x[j] > 0.0, x[index(r[0])], 1.0)\n",
    "two indices": "  c[index(r[j])] max= x[index(r[n - 1 - j])]\n",
    "an index of an index": "  c[index(r[index(r[j])])] += 1.0\n",
    "a condition by an index of an index": "  if x[index(r[index(r[j])])] > 0.0\n    c[0] += 1.0\n",
    "a choice by an index": "  c[0] += where(x[index(r[j])] < 2.0, x[index(r[j])], 0.0)\n",
    "a bound": "  for k in 0:index(r[j])\n    c[k] += x[index(r[j])]\n",
}

CSR = """program csr
size n in 1:400
size z in 1:4000
input p: int32[n + 1]
input col: int32[z]
input v: float32[z]
input x: float32[n]
inout c: float32[n]
for i in 0:n
  for e in index(p[i]):index(p[i + 1])
    c[i] += x[index(col[e])] * v[e]
"""


@pytest.mark.parametrize("body", BODIES)
def test_an_index_is_asked_before_it_is_used(body: str) -> None:
    program = oc.parse(HEAD + BODIES[body])
    kernel, n = oc.compile(program), 30
    draw = np.random.default_rng(0)
    r = draw.integers(0, n, n).astype(np.int32)
    x, c = draw.standard_normal(n, np.float32), np.zeros(n, np.float32)
    for count in (0, 1, 20, n):
        p = np.array([count], np.int32)
        given = [before_a_wall(one) for one in (p, r, x, c)]
        wanted = of_program(program, dict(zip("prxc", (p, r, x, c), strict=True)))
        agree(kernel(*given), wanted)
    for count in (n + 1, 1000, 100_000):
        with pytest.raises(oc.CallError):
            kernel(*map(before_a_wall, (np.array([count], np.int32), r, x, c)))
    for wrong in (-1, n):
        indices = r.copy()
        indices[0] = wrong
        if body == "a bound" and wrong == -1:
            continue  # a loop of no iterations
        with pytest.raises(oc.CallError):
            kernel(*map(before_a_wall, (np.array([n], np.int32), indices, x, c)))


def test_rows_of_a_sparse_matrix_that_end_past_it_are_refused() -> None:
    kernel, n, z = oc.compile(oc.parse(CSR)), 20, 60
    draw = np.random.default_rng(1)
    p = np.arange(0, z + 1, 3, dtype=np.int32)
    col, v = draw.integers(0, n, z).astype(np.int32), draw.standard_normal(z, np.float32)
    x, c = draw.standard_normal(n, np.float32), np.zeros(n, np.float32)
    terms = (x[col].astype("float64") * v).reshape(n, 3)
    agree(kernel(p, col, v, x, c), total(terms, 1))
    for past in (1, 1000):
        wrong = p.copy()
        wrong[n] = z + past
        with pytest.raises(oc.CallError):
            kernel(*map(before_a_wall, (wrong, col, v, x, np.zeros(n, np.float32))))
