"""Decisions in words: by hand (sizes of tiles that are listed or go by another height, nests), and as versions before 0.3 printed them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import Schedule, ops
from offcut.core.program import Choose, Cover, Stmt, Tile, walk
from offcut.core.text.printer import format_expr
from offcut.core.traversal import map_blocks
from offcut.schedule import create_schedule
from tests.agree import agree, computed, exact_matmul

ROWS, COLUMNS = 3, 8
SIZES = (0, 1, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS, 3 * ROWS + 5)
WIDTHS = (0, 1, COLUMNS - 1, COLUMNS, COLUMNS + 1, 3 * COLUMNS, 3 * COLUMNS + 5)
BY = "ladder by ii 1..1: 8 4, 2..2: 4 2 1, 3..3: 8"


def dense() -> tuple[list[oc.Tensor], oc.Tensor]:
    """int32 rows of 5 times 5 rows of symbolic width."""
    n, m, k = oc.dim("n", max=64), oc.dim("m", max=64), oc.reduce_axis(5, name="k")
    a, w = oc.placeholder((n, 5), "int32", "A"), oc.placeholder((5, m), "int32", "W")
    return [a, w], oc.compute((n, m), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")


def scheduled(*lines: str) -> Any:
    """Return the schedule of `dense` after these decisions."""
    inputs, result = dense()
    text = "\n".join(("schedule C", *lines))
    return oc.create_schedule(result, inputs=inputs).apply(oc.Schedule.parse(text))


COLUMNS = (
    ("ladder of 8 4 1", "jo ji", "io jo ii ji k"),
    (BY, "jo ji", "io jo ii ji k"),
    ("ladder 8 then ladder by ii 1..1: 8 4, 2..3: 4", "jg jo ji", "jg io jo ii ji k"),
    (BY, "jo ji", "io ii jo ji k"),
)
FAST = tuple(zip(("ladder", "balance", "shift", "ladder"), COLUMNS, strict=True))


@pytest.mark.parametrize(
    ("rows", "columns", "names", "order"),
    [(rows, *columns) for rows, columns in FAST],
)
def test_values_do_not_depend_on_the_heights_of_tiles(
    rows: str, columns: str, names: str, order: str
) -> None:
    s = scheduled(
        f"split C.i {rows} {ROWS} as io ii", f"split C.j {columns} as {names}", f"order C {order}"
    )
    s.lower()  # proved for all sizes
    random = np.random.default_rng(0)
    for n, m in zip((*SIZES, *SIZES), (*WIDTHS, *reversed(WIDTHS)), strict=True):
        a = random.integers(-9, 9, (n, 5)).astype("int32")
        w = random.integers(-9, 9, (5, m)).astype("int32")
        assert np.array_equal(s.run({"A": a, "W": w}, n=n, m=m), a @ w), (n, m)


def requantized() -> tuple[list[oc.Tensor], oc.Tensor]:
    """int8 rows of 32 times a matrix of 48 rows, in int8."""
    n, k = oc.dim("n", max=64), oc.reduce_axis(32, name="k")
    a, w = oc.placeholder((n, 32), "int8", "A"), oc.placeholder((48, 32), "int8", "W")

    def term(i: Any, j: Any) -> Any:
        return oc.cast(a[i, k], "int32") * oc.cast(w[j, k], "int32")

    s = oc.compute((n, 48), lambda i, j: oc.sum(term(i, j), axis=k), name="S")
    return [a, w], oc.compute(
        (n, 48),
        lambda i, j: oc.cast(oc.maximum(oc.minimum(s[i, j] // 64, 127), -128), "int8"),
        name="C",
    )


ON_QUEUES = {
    "sizes": ("split C.i ladder of 16 4 1 as i_tile i_in", "order C i_tile i_in j"),
    "by height": (
        "split C.i balance 4 as i_tile i_in\n"
        "split C.j ladder by i_in 1..2: 48, 3..4: 32 16 as j_tile j_in",
        "order C i_tile j_tile i_in j_in",
    ),
}


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("target", "what"),
    [("vta", "by height"), ("gemmini", "sizes")],
)
def test_queues_run_tiles_of_listed_heights(target: str, what: str) -> None:
    inputs, result = requantized()
    split, order = ON_QUEUES[what]
    lines = str(oc.compile(result, inputs=inputs, target=target).schedule).splitlines()
    lines = [
        {"split": split, "order": order}.get(line.split()[0], line) if " C" in line else line
        for line in lines
        if not line.startswith("order S")
    ]
    schedule = oc.Schedule.parse("\n".join(lines))
    kernel = oc.compile(result, inputs=inputs, target=target, schedule=schedule)
    assert schedule.steps[0] in kernel.schedule.steps
    random = np.random.default_rng(1)
    for n in (0, 1, 3, 4, 5, 17, 53):
        a, w = (random.integers(-9, 9, (rows, 32)).astype("int8") for rows in (n, 48))
        want = np.clip((a.astype(int) @ w.astype(int).T) // 64, -128, 127)
        assert np.array_equal(kernel(a, w), want), n


REFUSED = {
    "a height in no range": (
        "split C.j ladder by ii 1..2: 8 4 as jo ji",
        """\
split: cannot split j by the height of ii
  at       line 3: split C.j ladder by ii 1..2: 8 4 as jo ji
  because  tiles of i are up to 3 high, and no range holds 3
  help     a loop inside of the tiles of a split before, and a range for each height of these""",
    ),
    "the height of a loop over tiles": (
        "split C.j ladder by io 1..3: 8 4 as jo ji",
        """\
split: cannot split j by the height of io
  at       line 3: split C.j ladder by io 1..3: 8 4 as jo ji
  because  io is not a loop inside of tiles
  help     a loop inside of the tiles of a split before, and a range for each height of these""",
    ),
    "sizes of another strategy": (
        "split C.j mask of 8 4 as jo ji",
        """\
split: cannot split j by mask in tiles of 8 4
  at       line 3: split C.j mask of 8 4 as jo ji
  because  sizes below a tile are for ladder
  help     ladder of 8 4""",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_heights_that_no_tiles_have_are_refused(what: str) -> None:
    line, text = REFUSED[what]
    with rejection(f"PartitionError: {text}"):
        scheduled(f"split C.i ladder {ROWS} as io ii", line)


def test_tiles_by_height_lie_inside_of_the_tiles_that_have_it() -> None:
    s = scheduled(f"split C.i ladder {ROWS} as io ii", f"split C.j {BY} as jo ji")
    s = s.apply(oc.Schedule.parse("schedule C\norder C jo io ii ji k"))
    with rejection("""\
PartitionError: split: cannot split j by the height of ii
  at       axis C.j
  because  jo is not inside of the tiles of ii, or not around ji
  help     an order with jo inside of the loop over these, around ji"""):
        s.lower()


def costs(kernel: oc.Kernel, n: int) -> list[tuple[str, float]]:
    """Return the (label, seconds) of the options of each choice in the loops of a kernel."""
    choices = (stmt for stmt in walk(kernel.loops.body) if isinstance(stmt, Choose))
    options = (one for stmt in choices for one in stmt.options)
    known = {"float64": float, "n": n, "where": lambda c, a, b: a if c else b}
    return [(one.label, eval(format_expr(one.cost), {}, known)) for one in options]


def test_a_choice_among_strategies_costs_the_same_by_hand() -> None:
    n = oc.dim("n", min=1, max=512)
    a = oc.placeholder((n, 64), "float32", "A")
    c = oc.compute((n, 64), lambda i, j: a[i, j] * 2.0, name="C")
    by_hand, behind = (
        oc.compile(c, schedule=oc.Schedule.parse(f"schedule C\n{lines}"))
        for lines in ("split C.i mix 14 as io ii", "separate 1\nsplit C.i mix 14 as io ii")
    )
    for size in (1, 13, 14, 15, 42, 47):
        assert costs(by_hand, size) == costs(behind, size)
        assert [label for label, _ in costs(by_hand, size)] == ["ladder", "balance", "even"]


BY_HEIGHT = (
    "split C.i ladder 4 as io ii\n"
    "split C.j ladder by ii 1..2: 8 4, 3..4: 16 4 as jo ji\norder C io jo ii ji"
)


@pytest.mark.parametrize(
    ("target", "lines", "heights"),
    [
        ("cuda", "split C.i ladder of 16 4 1 as io ii\nbind C.io block", None),
        ("cuda", f"{BY_HEIGHT}\nbind C.io block", None),
        ("cpu", "separate 1\nsplit C.i ladder of 8 4 1 as io ii", {8, 4, 1}),
    ],
)
def test_blocks_of_a_gpu_and_loops_behind_separate_run_tiles_of_listed_heights(
    target: str, lines: str, heights: set[int] | None
) -> None:
    n = oc.dim("n", max=64)
    a = oc.placeholder((n, 20), "int32", "A")
    c = oc.compute((n, 20), lambda i, j: a[i, j] * 3, name="C")
    gpu = {"machine": "h200", "device": "emulated"} if target == "cuda" else {}
    schedule = oc.Schedule.parse(f"schedule C\n{lines}")
    kernel = oc.compile(c, target=oc.target(target, **gpu), schedule=schedule)
    assert kernel.schedule == schedule
    if target == "cpu":
        tiles = [stmt for stmt in walk(kernel.loops.body) if isinstance(stmt, Tile)]
        assert {int(format_expr(tile.axes[0].extent)) for tile in tiles} == heights
    for rows in (0, 1, 3, 4, 5, 17, 53):
        given = np.arange(rows * 20, dtype="int32").reshape(rows, 20)
        assert np.array_equal(kernel(given), 3 * given)


# The loops of a nest are those that its decisions make by hand: the same function applies them.


K, WIDE = 24, 72
FMA = "fma_float32_avx512(i=i_in, j=j_in, p=k)"


def dense_and_relu() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """Return max(A W, 0), whose columns are no multiple of a tile."""
    n = oc.dim("n", min=1, max=64)
    A, W = oc.placeholder((n, K), name="A"), oc.placeholder((K, WIDE), name="W")
    k = oc.reduce_axis(K, "k")
    S = oc.compute((n, WIDE), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="S")
    return oc.compute((n, WIDE), lambda i, j: oc.maximum(S[i, j], 0.0), name="C"), [A, W]


def without_operands(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return statements whose covers name no operands: the judge names them, and a schedule by hand does not say them."""

    def change(stmt: Stmt) -> Stmt:
        inside = map_blocks(stmt, without_operands)
        if isinstance(inside, Tile) and inside.cover is not None:
            return replace(inside, cover=Cover(inside.cover.microkernel, inside.cover.axes))
        return inside

    return tuple(map(change, body))


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize(
    ("rows", "cover"), [("ladder", FMA), ("mask", "vectors"), ("pad", FMA), ("residue", "vectors")]
)
def test_a_nest_and_its_decisions_by_hand_make_the_same_loops(rows: str, cover: str) -> None:
    C, inputs = dense_and_relu()
    schedule = oc.Schedule.parse(f"""\
schedule C
split C.i {rows} 14 as i_tile i_in
split C.j mask 32 as j_tile j_in
order C i_tile j_tile i_in j_in
at S C.j_in
cover C at i_in {cover}""")

    kernel = oc.compile(C, inputs=inputs, schedule=schedule)
    by_hand = create_schedule(C, inputs).with_microkernels(oc.target("cpu").microkernels())
    made = by_hand.apply(schedule).loops

    assert without_operands(made.body) == without_operands(kernel.loops.body)


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize(("loop", "own"), [("b", "k"), ("h", "b k")])
def test_a_copy_in_panels_is_made_in_loops_of_any_order(loop: str, own: str) -> None:
    n, k = oc.dim("n", min=1, max=64), oc.reduce_axis(24, "k")
    A, B = oc.placeholder((3, 5, n, 24), name="A"), oc.placeholder((3, 5, 24, 40), name="B")
    C = oc.compute(
        (3, 5, n, 40),
        lambda b, h, i, j: oc.sum(A[b, h, i, k] * B[b, h, k, j], axis=k),
        name="C",
    )
    schedule = oc.Schedule.parse(f"""\
schedule C
stage read B for C as P layout panels(2, 3, 16)
split P.j mask 16 as j_tile j_in
order P {own} j_tile j_in
at P C.{loop}
split C.i mask 14 as i_tile i_in
split C.j mask 32 as j_tile j_in
order C h b i_tile j_tile i_in j_in
cover C at i_in {FMA}""")
    rng = np.random.default_rng(0)
    a, b = (rng.random(shape, np.float32) for shape in ((3, 5, 9, 24), (3, 5, 24, 40)))

    kernel = oc.compile(C, inputs=[A, B], schedule=schedule)

    exact = a.astype("f8") @ b.astype("f8")
    agree(kernel(a, b), exact, terms=exact, units=24)


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize(
    ("levels", "cover"),
    [
        ("mask 28 then ladder 14", FMA),
        ("mask 24 then mask 14", "vectors"),
        ("pad 28 then balance 14", FMA),
    ],
)
def test_a_tile_inside_of_a_tile_that_ends_early_ends_with_it(levels: str, cover: str) -> None:
    C, inputs = dense_and_relu()
    schedule = oc.Schedule.parse(f"""\
schedule C
split C.i {levels} as i_group i_tile i_in
split C.j mask 32 as j_tile j_in
order C i_group i_tile j_tile i_in j_in
at S C.j_in
cover C at i_in {cover}""")
    kernel = oc.compile(C, inputs=inputs, schedule=schedule)

    rng = np.random.default_rng(0)
    w = rng.standard_normal((K, WIDE)).astype(np.float32)
    for n in (1, 13, 14, 15, 28, 29, 42, 43):
        a = rng.standard_normal((n, K)).astype(np.float32)
        sums, terms = a.astype("f8") @ w, abs(a).astype("f8") @ abs(w)
        agree(kernel(a, w), np.maximum(sums, 0), terms=terms, units=K)


def test_a_stage_in_a_loop_that_has_one_value_is_computed_there() -> None:
    n = oc.dim("n", min=1, max=64)
    X, t = oc.placeholder((n, K), name="X"), oc.reduce_axis(K, "t")
    S = oc.compute((n,), lambda i: oc.sum(X[i, t], axis=t), name="S")
    M = oc.compute((n,), lambda i: 1.0 / oc.maximum(S[i], 1.0), name="M")
    Y = oc.compute((n, K), lambda i, j: X[i, j] * M[i], name="Y")
    schedule = oc.Schedule.parse("""\
schedule Y
split Y.i 4 if fits 4096 as i_block i_in
at M Y.i_block
at S M.i""")
    loops = create_schedule(Y, [X]).apply(schedule).lower()
    x = np.arange(7 * K, dtype="f").reshape(7, K)
    exact = computed(lambda x: x / np.maximum(x.sum(1, keepdims=True), 1), x)
    agree(loops.run({"X": x}, n=7), exact)


# Texts of schedules as versions before 0.3 printed them: each becomes the decisions that say the same.


SOFTMAX = """\
schedule softmax_X
together i by 8 in 17039
  nest softmax_X_max
    way loops
  nest softmax_X
    way loops
      split j mask 64
mark rows
mark threads"""

PRODUCT = """\
schedule C
lay W panels(0, 1, 16)
nest C
  way ladder
    cover fma rows i columns j depth k
    loops b_
    split i ladder 14
    split j ladder by height 1..1: 192 64, 2..14: 32 16 in groups of 1536
  way balance_packed
    costs 1e-09*float64(n)
    cover fma rows i columns j depth k
    pack W_panels panels(1, 2, 16)
      loops b_ k
      split j mask 16
    loops b_
    split i balance 14
    split j ladder 32"""

TODAY = {
    SOFTMAX: """\
schedule softmax_X
cover softmax_X_max vectors
split softmax_X.i 8 if fits 17039 as i_block i_in
order softmax_X i_block
split softmax_X.j mask 64 as j_tile j_in
order softmax_X j_tile j_in
cover softmax_X at j_in vectors
at softmax_X_max softmax_X.i_block
bind * lane tree
bind * thread""",
    PRODUCT: """\
schedule C
stage prepack W layout panels(0, 1, 16)
choose
  option ladder
    split C.i ladder 14 as i_tile i_in
    split C.j ladder 1536 then ladder by i_in 1..1: 192 64, 2..14: 32 16 as j_group j_tile j_in
    order C b_ j_group i_tile j_tile i_in j_in
    cover C at i_in fma(i=i_in, j=j_in, p=k)
  option balance_packed costs 1e-09 * float64(n)
    stage read * for C as W_panels layout panels(1, 2, 16)
    split W_panels.j mask 16 as j_tile j_in
    order W_panels b_ k j_tile j_in
    split C.i balance 14 as i_tile i_in
    split C.j ladder 32 as j_tile j_in
    order C b_ i_tile j_tile i_in j_in
    cover C at i_in fma(i=i_in, j=j_in, p=k)""",
    "schedule C\ncut C.i ladder 64 8\ncut j mask 4\nmark lanes": """\
schedule C
separate 1
split C.i ladder 64 then ladder 8 as i_group i_tile i_in
split *.j mask 4 as j_tile j_in
bind * lane""",
    "schedule C\nseparate 9\nmark products\nmark rows": """\
schedule C
separate 9
cover *
bind * lane tree""",
    "schedule C\nscratch C narrow\ncopy C A[k, i] along k\nconvert C float32(A[i, k]) and float32(B[k])\nturn C j i": """\
schedule C
stage value narrow factors for C as *()
stage value A[k, i] along k for C as *()
stage value float32(A[i, k]) for C as *()
stage value float32(B[k]) for C as *()
stage write C as *(j, i)""",
}


@pytest.mark.parametrize("old", TODAY)
def test_a_text_of_a_version_before_prints_as_one_of_today(old: str) -> None:
    made = Schedule.parse(old)
    assert str(made) == TODAY[old]
    assert Schedule.parse(str(made)) == made


CONVOLUTION = """\
schedule conv
scratch conv narrow
turn conv n_ y x o
nest X_staged
  way loops
    loops n_ z2
    split c mask 32
nest conv_turned
  way loops
    loops n_ y x
    split o mask 16
nest conv
  way loops
    loops n_ y
    split x mask 16
mark rows"""


def test_stages_of_an_older_text_run() -> None:
    n = oc.dim("n", min=1, max=32)
    x, f = oc.placeholder((1, 4, n, n), name="X"), oc.placeholder((5, 4, 3, 3), name="F")
    result = ops.conv2d(x, f, padding="same", name="conv")
    old = oc.compile(result, inputs=[x, f], schedule=Schedule.parse(CONVOLUTION), records=False)
    rng = np.random.default_rng(3)
    a, w = (rng.standard_normal(shape, "float32") for shape in ((1, 4, 5, 5), (5, 4, 3, 3)))
    padded = np.pad(a[0], ((0, 0), (1, 1), (1, 1)))
    columns = np.stack([padded[:, r : r + 5, s : s + 5] for r in range(3) for s in range(3)], 1)
    exact = exact_matmul(w.reshape(5, 36), columns.reshape(36, 25))
    agree(np.asarray(old(a, w)).reshape(5, 25), exact)


OLD_REFUSED = {
    "nest C": "a nest runs in one way at least",
    "together i": "no nest shares them",
    "together i by 1 in 8\n  nest C\n    way w": "a block is of several iterations",
    "nest C\n  way w\n    costs 1.0\n    costs 2.0": "a way has each of costs, cover",
    "together i\n  mark rows": "loops are shared by nests",
    "mark warps": "no unit is called warps",
}


@pytest.mark.parametrize("text", OLD_REFUSED)
def test_an_older_line_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(oc.ParseError, match=OLD_REFUSED[text]):
        Schedule.parse(f"schedule C\n{text}")
