"""Sizes of tiles that a decision lists, and tiles by the height of another tile, in schedules that are applied by hand, on each target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import rejection, slow

import offcut as oc
from offcut.core.expr import Expr
from offcut.core.program import Choose, Tile, walk
from offcut.core.text.printer import format_expr

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
    [
        (rows, *columns) if (rows, columns) in FAST else slow(rows, *columns)
        for rows in ("ladder", "balance", "shift")
        for columns in COLUMNS
    ],
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


def value(expr: Expr, values: dict[str, int]) -> int:
    return int(eval(format_expr(expr), {}, values))


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
    [
        *(("vta", "by height"), ("gemmini", "sizes")),
        *(slow("vta", "sizes"), slow("gemmini", "by height")),
    ],
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


def test_sizes_are_listed_behind_separate_too() -> None:
    n = oc.dim("n", max=64)
    a = oc.placeholder((n, 5), "int32", "A")
    c = oc.compute((n, 5), lambda i, j: a[i, j] * 2, name="C")
    text = "schedule C\nseparate 1\nsplit C.i ladder of 8 4 1 as io ii"
    kernel = oc.compile(c, schedule=oc.Schedule.parse(text))
    tiles = [stmt for stmt in walk(kernel.loops.body) if isinstance(stmt, Tile)]
    assert {value(tile.axes[0].extent, {}) for tile in tiles} == {8, 4, 1}
    for n_rows in (0, 1, 7, 8, 9, 24, 29):
        rows = np.arange(n_rows * 5, dtype="int32").reshape(n_rows, 5)
        assert np.array_equal(kernel(rows), 2 * rows)


@pytest.mark.parametrize(
    "lines",
    [
        "split C.i ladder of 16 4 1 as io ii",
        "split C.i ladder 4 as io ii\n"
        "split C.j ladder by ii 1..2: 8 4, 3..4: 16 4 as jo ji\norder C io jo ii ji",
    ],
)
def test_blocks_of_a_gpu_run_tiles_of_listed_heights(lines: str) -> None:
    n = oc.dim("n", max=64)
    a = oc.placeholder((n, 20), "int32", "A")
    c = oc.compute((n, 20), lambda i, j: a[i, j] * 3, name="C")
    target = oc.target("cuda", machine="h200", device="emulated")
    schedule = oc.Schedule.parse(f"schedule C\n{lines}\nbind C.io block")
    kernel = oc.compile(c, target=target, schedule=schedule)
    assert kernel.schedule == schedule
    for rows in (0, 1, 3, 4, 5, 17, 53):
        given = np.arange(rows * 20, dtype="int32").reshape(rows, 20)
        assert np.array_equal(kernel(given), 3 * given)
