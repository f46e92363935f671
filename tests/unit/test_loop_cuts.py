"""How loops that carry dependences may be cut: what the space of a program in place offers."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import offcut as oc
from offcut import Schedule
from offcut.costmodel import Machine
from offcut.errors import PartitionError
from offcut.schedule import Separate, Split
from tests.facade import LoopCuts, OpenDecisions, processor

SWEEP = oc.parse("""\
program sweep
size t in 1:65
size n in 3:1025
inout A: float32[n, n]
for s in 0:t
  for i in 1:n - 1
    for j in 1:n - 1
      A[i, j] = (A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]) * 0.2
""")
MEAN = oc.parse("""\
program mean
size n in 3:1025
input A: float32[n, n]
output B: float32[n, n]
for i in 0:n
  for j in 0:n
    B[i, j] = A[i, j] * 0.5
""")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return processor(oc.target("cpu", machine="cascade-lake").machine)


def test_a_loop_that_carries_dependences_has_no_tiles_that_run_together_or_twice(
    machine: Machine,
) -> None:
    ordered = {str(cut.levels[-1].tail) for cut in LoopCuts(SWEEP, machine).of("j")}
    free = {str(cut.levels[-1].tail) for cut in LoopCuts(MEAN, machine).of("j")}
    assert {"pad", "shift"} <= free
    assert free - ordered == {"pad", "shift"}


def test_loops_are_cut_together_where_single_tiles_of_them_are_legal(machine: Machine) -> None:
    cuts = LoopCuts(SWEEP, machine)
    legal = [{"i", "j"}, {"s"}, {"i"}]
    refused = [{"s", "i"}, {"s", "j"}, {"s", "i", "j"}]
    assert [cuts.are_legal(frozenset(loops)) for loops in legal] == [True] * 3
    assert [cuts.are_legal(frozenset(loops)) for loops in refused] == [False] * 3


def test_what_is_drawn_of_a_program_in_place_is_legal(machine: Machine) -> None:
    space = OpenDecisions(Schedule("sweep", (Separate(16),)), SWEEP, (), machine).space
    rng = Random(0)
    drawn = [space.sample(rng) for _ in range(40)]
    drawn += space.neighbours(drawn[0])[:20]
    drawn.append(space.crossed(drawn[0], drawn[1], rng))
    seen = {frozenset(s.axis for s in one.steps if isinstance(s, Split)) for one in drawn}
    assert frozenset({"i", "j"}) in seen
    assert not any("s" in loops and len(loops) > 1 for loops in seen)
    with pytest.raises(PartitionError, match="runs before"):
        oc.compile(SWEEP, schedule=Schedule.parse("schedule sweep\ncut s cut 2\ncut i cut 2"))
    for one in drawn[:3]:
        oc.compile(SWEEP, schedule=one)


EVEN = """\
program even
size n in 0:60
input X: int32[n + 12]
inout A: int32[n + 12]
for i in 0:n
  for j in 0:n
    if i % 2 == 0
      A[max(0, i - 1)] = X[j + 3]"""


@pytest.mark.parametrize("tile", [{}, {"j": 4}])
def test_conditions_stay_where_the_proof_does_not_see_through_loops_without_them(
    tile: dict[str, int],
) -> None:
    program = oc.parse(EVEN)
    cut = oc.partition(program, tile=tile)
    assert cut.loops == oc.partition(program, tile=tile, copies=1).loops
    assert "if i % 2 == 0" in str(cut)
    assert "conditions stay where they are" in cut.explain()
    cut.prove()
    for n in (0, 1, 5, 8):
        given = {"X": np.arange(n + 12, dtype=np.int32), "A": np.zeros(n + 12, np.int32)}
        np.testing.assert_array_equal(cut.run(given), program.run(given))
    with pytest.raises(oc.PartitionError) as refused:
        oc.partition(program, tile=tile, copies=8)
    assert "copies=1 leaves every condition where it is: less to compare" in refused.value.help
