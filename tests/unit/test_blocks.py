"""Shared loops whose nests take turns by blocks of iterations: what runs, its bits, its text, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import Kernel
from offcut.backends.cpu.planning.iteration_blocks import unblock_shared_loops
from offcut.ir import For, If
from offcut.proof import UNDECIDED
from tests.agree import agree, nearly
from tests.compiled import floats, same_bits
from tests.facade import Unproved, format_expr, hooked, instead

ROWS = [0, 1, 3, 4, 5, 12, 17]


def softmax(most: int = 4096, threads: int = 1, schedule: str = "") -> Kernel:
    m = oc.dim("m", max=4096)
    n = oc.dim("n", min=1, max=most)
    X = oc.placeholder((m, n), name="X")
    chosen = oc.Schedule.parse(schedule) if schedule else None
    made = oc.ops.softmax(X, name="result")
    return oc.compile(made, inputs=[X], threads=threads, schedule=chosen, records=False)


def schedule_of(block: str) -> str:
    """The schedule of the policy with other blocks, ``4 if fits 2000``, or with none."""
    if not block:
        return str(unblock_shared_loops(softmax().schedule))
    return re.sub(r"8 if fits \d+", block, str(softmax().schedule))


def test_a_softmax_of_short_rows_runs_in_blocks_at_any_rows_and_threads() -> None:
    one, two = softmax(100), softmax(100, threads=2)
    assert ".i 8 if fits " in str(one.schedule)
    for rows in ROWS:
        for columns in (1, 43, 100):
            x = floats("softmax", rows, columns)
            wide = np.exp(x.astype("float64") - x.max(1, keepdims=True))
            agree(one(x), wide / wide.sum(1, keepdims=True), units=columns + 32)
            assert same_bits(one(x), two(x))


def test_rows_that_have_no_room_run_in_loops_of_their_own() -> None:
    loops = softmax(schedule=schedule_of("4 if fits 2000")).loops
    (asked,) = loops.body
    assert isinstance(asked, If)
    assert format_expr(asked.condition) == "16*n + 32 <= 2000"
    assert asked.other == softmax(schedule=schedule_of("")).loops.body


@pytest.mark.parametrize(("most", "room"), [(100, 2000), (4096, 47)])
def test_nothing_is_asked_where_every_size_fits_or_none(most: int, room: int) -> None:
    text = schedule_of(f"4 if fits {room}")
    (loop,) = softmax(most, schedule=text).loops.body
    assert isinstance(loop, For)
    assert loop.iter.endswith("_block") == (room == 2000)


def test_costs_in_blocks_are_exact_and_agree_with_their_formulas() -> None:
    kernel = softmax(schedule=schedule_of("4 if fits 16711"))
    formula = kernel.cost()
    assert formula.exactness.flop == "exact"
    names = {symbol.name: symbol for symbol in formula.cycles.free_symbols}
    for rows, columns in ((5, 43), (16, 1500)):
        at = kernel.cost(m=rows, n=columns)
        found = formula.cycles.xreplace({names["m"]: rows, names["n"]: columns}).doit()
        assert float(found) == nearly(at.cycles, rel=0.02)


def test_a_block_of_one_iteration_is_refused() -> None:
    with rejection("""\
ParseError: parse: cannot read a schedule
  at       line 8: split result.i 1 if fits 4096 as i_block i_in
  because  a block is of several iterations, in some bytes
  help     split C.i 4 if fits 16384 as i_block i_in"""):
        oc.Schedule.parse(schedule_of("1 if fits 4096"))


@pytest.mark.parametrize(
    ("block", "because"),
    [
        ("2147483648 if fits 4096", "its numbers are at most 2147483647"),
        (f"8 if fits {'9' * 20}", "its numbers are at most 2147483647"),
        ("-1 if fits 5", "is not a level of tiles"),
        ("4 if fits", "is not a level of tiles"),
    ],
)
def test_what_is_no_block_is_refused_as_one(block: str, because: str) -> None:
    with pytest.raises(oc.ParseError, match=because):
        oc.Schedule.parse(schedule_of(block))


def test_what_a_block_takes_is_counted_where_no_word_holds_it() -> None:
    def plan(most: int) -> str:
        m, n, k = oc.dim("m", max=4096), *(oc.dim(name, min=1, max=most) for name in "nk")
        x = oc.placeholder((m, n, k), name="X")
        j, q = oc.reduce_axis(n, name="j"), oc.reduce_axis(k, name="q")
        powers = oc.compute((m, n, k), lambda i, a, b: oc.exp(x[i, a, b]), name="T")
        total = oc.compute((m,), lambda i: oc.sum(powers[i, j, q], axis=(j, q)), name="S")
        y = oc.compute((m, n, k), lambda i, a, b: powers[i, a, b] / total[i], name="Y")
        return str(oc.compile(y, inputs=[x], records=False).schedule)

    assert plan(2**31 - 1) == plan(4096)


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ("max(min(9 - 2*n, 1), 0)", True),
        ("min(max(9 - 2*n, 0), 1)", True),
        ("max(min(9 - 2*n, 2), 0)", False),
        ("max(min(9 - 2*n, 1), -1)", False),
        ("min(9 - 2*n, 1)", False),
    ],
)
def test_a_bounded_value_of_least_and_greatest_is_held_to_its_range(
    value: str, holds: bool
) -> None:
    source = oc.parse("""\
program copy
size n in 1:65
input A: float32[n]
output B: float32[n]
for i in 0:n
  B[i] = A[i]
""")
    emitted = oc.parse(f"""\
program copy
size n in 1:65
input A: float32[n]
output B: float32[n]
let wide in 0:2 = {value}
  for b in 0:n + wide * ((n + 3)//4 - n)
    for i in (3*wide + 1) * b:min((3*wide + 1) * b + 3*wide + 1, n)
      B[i] = A[i]
""")
    if holds:
        assert oc.prove_equal(source, emitted)
        return
    with pytest.raises(oc.PartitionError, match="the value of wide is not in 0:2"):
        oc.prove_equal(source, emitted)


def test_blocks_that_are_not_told_run_row_by_row_and_the_plan_says_so() -> None:
    real = hooked("prove")

    def proved(programs: tuple[oc.Program, ...], reassociate: bool) -> Unproved | None:
        if "i_block" in str(programs[-1]):
            late = oc.PartitionError("prove", UNDECIDED, because="isl takes too long")
            return Unproved(len(programs) - 2, late)
        return real(programs, reassociate)

    m, n = oc.dim("m", max=77), oc.dim("n", min=1, max=90)
    with instead("prove", proved):
        kernel = oc.compile(oc.ops.softmax(oc.placeholder((m, n), name="X")), records=False)
        assert "i_block" not in str(kernel.loops)
    said = f"no blocks of shared loops: {UNDECIDED}: isl takes too long"
    assert said in kernel.plan(m=3, n=4).notes


def attention(schedule: oc.Schedule | None = None) -> Kernel:
    b, s = oc.dim("b", min=1, max=64), oc.dim("s", min=1, max=900)
    q, k, v = inputs = [oc.placeholder((b, s, 16), name=name) for name in "QKV"]
    return oc.compile(oc.ops.attention(q, k, v), inputs=inputs, schedule=schedule, records=False)


def test_blocks_inside_of_other_loops_are_proved_and_have_the_bits_of_single_iterations() -> None:
    blocks = attention()
    assert str(blocks.schedule).count(" 8 if fits ") == 2
    by_row = attention(unblock_shared_loops(blocks.schedule))
    assert "i_block" in str(blocks.loops)
    assert "i_block" not in str(by_row.loops)
    for batch, rows in ((1, 1), (3, 7), (2, 8), (1, 9), (2, 24), (1, 29), (1, 700)):
        given = [floats(name, batch, rows, 16) for name in "qkv"]
        assert same_bits(blocks(*given), by_row(*given))


def test_what_a_block_runs_in_turn_is_a_function_each() -> None:
    """Loops over one block keep their own values in registers: in one function they run out of these."""
    text = softmax().source("llvm")
    entry, *_ = text.split("define i64 @offcut_workspace")
    assert entry.count("call void @offcut_loops") == 4 + 1  # in blocks, and row by row


def stages_of_softmax() -> tuple[list[oc.Tensor], oc.Tensor]:
    """A softmax in four stages: P, E, T, Y."""
    n, m = oc.dim("n", max=64), oc.dim("m", max=64)
    x, k, r = oc.placeholder((n, m), name="X"), oc.reduce_axis(m, "k"), oc.reduce_axis(m, "r")
    peak = oc.compute((n,), lambda i: oc.max(x[i, k], axis=k), name="P")
    e = oc.compute((n, m), lambda i, j: oc.exp(x[i, j] - peak[i]), name="E")
    total = oc.compute((n,), lambda i: oc.sum(e[i, r], axis=r), name="T")
    return [x], oc.compute((n, m), lambda i, j: e[i, j] / total[i], name="Y")


BY_HAND = "schedule Y\nsplit Y.i 4 if fits {room} as i_block i_in\n{places}"
PLACES = "at P Y.i_block\nat E Y.i_block\nat T Y.i_block\n"


@pytest.mark.parametrize(
    ("room", "conditions"), [(500, ["16*m + 32 <= 500"]), (10**6, []), (31, [])]
)
def test_blocks_by_hand_are_proved_and_compute_the_same(room: int, conditions: list[str]) -> None:
    inputs, y = stages_of_softmax()
    s = oc.create_schedule(y, inputs=inputs)
    s.apply(oc.Schedule.parse(BY_HAND.format(room=room, places=PLACES)))
    s.lower()  # proved for all sizes
    found = [format_expr(one.condition) for one in s.loops.body if isinstance(one, If)]
    assert found == conditions
    for rows, columns in ((0, 1), (1, 1), (3, 5), (4, 30), (5, 29), (12, 1), (17, 40)):
        x = floats("by hand", rows, columns)
        wide = np.exp(x - x.astype("float64").max(1, keepdims=True))
        agree(
            s.run({"X": x}, n=rows, m=columns),
            wide / wide.sum(1, keepdims=True),
            units=columns + 32,
        )


REFUSED_BY_HAND = {
    "a loop that is split": (
        "split Y.i cut 8 as io ii\nsplit Y.ii 4 if fits 500 as i_block i_in",
        """\
split: cannot run ii in blocks
  at       line 3: split Y.ii 4 if fits 500 as i_block i_in
  because  blocks are of a whole loop, in one level, and this one is split
  help     split Y.ii 8 if fits 16384 as i_block i_in""",
    ),
    "a reader outside of the block": (
        "split Y.i 4 if fits 500 as i_block i_in\nat P Y.i_block\nat T Y.i_block",
        """\
at: cannot compute P at Y.i_block
  at       line 3: at P Y.i_block
  because  Y does not read it
  help     P is read by E""",
    ),
}


@pytest.mark.parametrize("what", REFUSED_BY_HAND)
def test_blocks_by_hand_that_are_none_are_refused(what: str) -> None:
    lines, text = REFUSED_BY_HAND[what]
    inputs, y = stages_of_softmax()
    with rejection(f"PartitionError: {text}"):
        oc.create_schedule(y, inputs=inputs).apply(oc.Schedule.parse(f"schedule Y\n{lines}"))


def test_a_loop_between_those_of_a_block_is_refused() -> None:
    inputs, y = stages_of_softmax()
    s = oc.create_schedule(y, inputs=inputs).apply(
        oc.Schedule.parse(
            "schedule Y\nsplit Y.i 4 if fits 500 as i_block i_in\norder Y i_block j i_in"
        )
    )
    with rejection("""\
PartitionError: split: cannot run i in blocks of 4
  at       axis Y.i
  because  i_in is not directly inside i_block
  help     an order with i_block i_in side by side"""):
        s.lower()
