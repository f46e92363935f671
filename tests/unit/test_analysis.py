"""Facts of a program are what its text says, found once for each program."""

from __future__ import annotations

from dataclasses import replace

from offcut import parse
from offcut.core.analysis import analysis
from offcut.core.expr import Const
from offcut.core.memo import forget
from offcut.core.program import Choose, For, Kind, Let, Store, Tile, walk

PROGRAM = parse("""\
program two
size n in 0:100
input A: float32[n]
local T: float32[n]
output C: float32[n]

for i in 0:n
  alloc T[i +: 1]
    T[i] = A[i]
    C[i] = 0.0
    C[i] += T[i]
tile x in 0 +: n
  C[x] += 1.0
""")


def test_the_facts_are_those_of_the_text() -> None:
    facts = analysis(PROGRAM)
    assert facts.statements == tuple(walk(PROGRAM.body))
    assert facts.of(Store) == tuple(s for s in walk(PROGRAM.body) if isinstance(s, Store))
    assert [loop.iter for loop in facts.of(For)] == ["i"]
    assert facts.has(Let, Tile)
    assert not facts.has(Let, Choose)
    assert facts.iterators == {"i"}
    assert facts.windows == {"T"}
    assert facts.stored_buffers == {"T", "C"}


def test_starts_are_what_is_assigned_to_what_the_program_alone_fills() -> None:
    starts = analysis(PROGRAM).starts
    assert starts["C"] == {Const(0.0, "float32")}
    assert starts.keys() == {"T", "C"}
    updated = (replace(b, kind=Kind.INOUT) if b.name == "C" else b for b in PROGRAM.buffers)
    assert analysis(replace(PROGRAM, buffers=tuple(updated))).starts.keys() == {"T"}


def test_facts_are_of_one_object_and_found_once() -> None:
    facts = analysis(PROGRAM)
    assert analysis(PROGRAM) is facts
    assert facts.statements is analysis(PROGRAM).statements
    assert analysis(replace(PROGRAM)) is not facts
    forget()
    assert analysis(PROGRAM) is not facts
