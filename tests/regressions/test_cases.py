"""Programs that were once answered wrongly, late, or not at all, and what they are answered now.

Each is a file beside this one. What is accepted computes what its source does, at some sizes, by the
interpreter; what is refused says so in words. Neither takes more work than one request may, for each
cut that is tried: where nobody says how many copies a condition may make, one without copies is the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import slow
from guarded import walled

import offcut as oc
from offcut.polyhedral import REQUEST
from offcut.polyhedral.isl_budget import operations
from tests.agree import agree, of_program, total

GIVEN_UP = "takes isl more than"


@dataclass(frozen=True)
class Case:
    """A program, how it is cut, and a part of the refusal; "" where the cut is accepted."""

    file: str
    refused: str
    tile: dict[str, Any] = field(default_factory=dict)
    tail: Any = "cut"
    copies: int | None = None

    def cut(self) -> Any:
        program = oc.parse(Path(__file__).with_name(f"{self.file}.offcut").read_text())
        return oc.partition(program, tile=self.tile, tail=self.tail, copies=self.copies)


NO_SET = "is not quasi-affine"
MANY = "more than 256, each of them code of its own"

CASES = [
    Case("csr", ""),
    Case("csr", "", {"i": 4}, "shift"),
    Case("csr", "", {"j": 4}),
    Case("chunks", ""),
    Case("chunks", "", {"j": 2}),
    Case("chunks", NO_SET, {"j": 2}, "shift"),
    Case("parametric_tiles", ""),
    Case("parametric_tiles", "", {"it": 2}),
    Case("parametric_tiles", "", {"i": 4}, "mask"),
    Case("contraction_226", "", {"j": (6, 2)}, "mix"),
    Case("contraction_335", GIVEN_UP, {"k": (12, 4), "j": 7, "i": (12, 4)}, "mask"),
    Case(
        "contraction_482",
        GIVEN_UP,
        {"i": 14, "k": 2, "j": 32},
        {"i": "balance", "k": "mask", "j": "mask"},
    ),
    Case(
        "contraction_603",
        MANY,
        {"i": 14, "j": 7, "j0": 32},
        {"i": "mix", "j": "cut", "j0": "residue"},
    ),
    Case("contraction_613", "", {"i": 16, "j": 32}, "mix"),
    Case(
        "wild_6",
        GIVEN_UP,
        {"i0": 7, "k2": 4, "j1": 5},
        {"i0": "mix", "k2": "cut", "j1": "guard"},
        2,
    ),
    Case("wild_59", GIVEN_UP, {"H.i": (12, 4)}, {"H.i": "mix"}),
    Case("wild_66", "with n = 8, m = 8, H[1, 1] has another value", {"j": 6, "i": 4}, "shift"),
    Case("wild_107", GIVEN_UP, {"j": 7}, {"j": "ladder"}),
    Case("wild_151", GIVEN_UP, {"j1": 2, "i0": (12, 4)}, {"j1": "pad", "i0": "balance"}),
    Case("wild_153", GIVEN_UP, {"i0": 7}, {"i0": "residue"}, 8),
    Case("wild_189", GIVEN_UP, {"j1": 4}, {"j1": "mix"}, 3),
    Case("wild_221", GIVEN_UP, {"G.j": 4, "i": (9, 3)}, "even"),
]


@pytest.mark.parametrize(
    "case",
    [slow(case) if case.refused not in ("", NO_SET, MANY) else case for case in CASES],
    ids=lambda case: case.file,
)
def test_a_program_is_answered_in_bounded_work(case: Case) -> None:
    before = operations()
    refusal, pieces = "", None
    try:
        pieces = case.cut().pieces
    except oc.PartitionError as refused:
        refusal = str(refused)
    if refusal:
        assert case.refused
        assert case.refused in refusal
    else:
        # What isl has found is kept, so a question that was given up may be answered the next time.
        assert case.refused in ("", GIVEN_UP)
        assert bool(pieces) == bool(case.tile)
    cuts = 2 if case.copies is None else 1
    assert operations() - before <= cuts * (REQUEST + 1000)  # which counting takes


# What is asked before an access reads arrays, too: each index is asked before it is used as one.


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
        given = [walled(one) for one in (p, r, x, c)]
        wanted = of_program(program, dict(zip("prxc", (p, r, x, c), strict=True)))
        agree(kernel(*given), wanted)
    for count in (n + 1, 1000, 100_000):
        with pytest.raises(oc.CallError):
            kernel(*map(walled, (np.array([count], np.int32), r, x, c)))
    for wrong in (-1, n):
        indices = r.copy()
        indices[0] = wrong
        if body == "a bound" and wrong == -1:
            continue  # a loop of no iterations
        with pytest.raises(oc.CallError):
            kernel(*map(walled, (np.array([n], np.int32), indices, x, c)))


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
            kernel(*map(walled, (wrong, col, v, x, np.zeros(n, np.float32))))
