"""Programs that were once answered wrongly, late, or not at all, and what they are answered now.

Each is a file beside this one. What is accepted computes what its source does, at some sizes, by the
interpreter; what is refused says so in words. Neither takes more work than one request may, for each
cut that is tried: where nobody says how many copies a condition may make, one without copies is the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import slow

import offcut as oc
from offcut.polyhedral import REQUEST
from offcut.polyhedral.isl_budget import operations

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
MANY = "more than 256 tiles"

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
