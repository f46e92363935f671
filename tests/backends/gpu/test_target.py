"""The target of GPUs on the emulated device: values, plans, schedules, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import rejection, slow

import offcut as oc
from offcut.backends import generic
from offcut.backends.gpu.block_limits import check_room
from offcut.backends.gpu.units import AGENTS
from offcut.backends.options import TargetPlan
from offcut.polyhedral.index_maximum import window_rooms
from offcut.proof import UNDECIDED
from tests.agree import nearly
from tests.facade import own_strategies

SIZES = (0, 1, 63, 64, 65, 130)


def uneven(axis: oc.TiledAxis) -> Iterator[oc.TileRun]:
    """Heights of any number of rows."""
    yield axis.balanced()


@pytest.fixture
def own() -> Iterator[None]:
    """Strategies of one's own, for a test."""
    with own_strategies():
        oc.strategy("peel")(peel)
        oc.strategy("uneven")(uneven)
        yield


def peel(axis: oc.TiledAxis) -> Iterator[oc.TileRun]:
    """What fills no tile comes first, one by one."""
    yield axis.fixed(1, axis.extent % axis.tile)
    yield axis.full()


def there(machine: str = "h200") -> oc.Target:
    return oc.target("cuda", machine=machine, device="emulated")


def product(k_size: int, n_size: int, most: int = 4096) -> tuple[oc.Tensor, oc.Tensor, oc.Tensor]:
    """Sums of products of bfloat16, in float32."""
    n, k = oc.dim("n", min=0, max=most), oc.reduce_axis(k_size, name="k")
    a, w = (
        oc.placeholder(shape, "bfloat16", name)
        for name, shape in (("A", (n, k_size)), ("W", (k_size, n_size)))
    )
    term = lambda i, j: a[i, k].astype("float32") * w[k, j].astype("float32")  # noqa: E731
    return a, w, oc.compute((n, n_size), lambda i, j: oc.sum(term(i, j), axis=k), name="S")


def arrays(k_size: int, n_size: int) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(5)
    shapes = (SIZES[-1], k_size), (k_size, n_size)
    return tuple(draw.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in shapes)


def check(kernel: oc.Kernel, x: np.ndarray, w: np.ndarray, expected: np.ndarray) -> None:
    for n in SIZES:
        np.testing.assert_array_equal(np.asarray(kernel(x[:n], w)), expected[:n])


@pytest.mark.parametrize(
    "strategy",
    [
        *("guard", "balance"),
        *map(slow, ("shift", "mask", "pad", "cut", "ladder", "even", "version", "residue", "peel")),
    ],
)
@pytest.mark.usefixtures("own")
def test_a_strategy_is_right_at_sizes_around_its_tiles(strategy: str) -> None:
    a, w, s = product(16, 20, most=300)
    kernel = oc.compile(s, inputs=[a, w], target=there(), strategy={"i": strategy})
    x, weights = arrays(16, 20)
    check(kernel, x, weights, x.astype(np.float32) @ weights.astype(np.float32))
    by = "(16)" if strategy in ("balance", "even", "residue") else ""
    assert f"i {strategy}{by} 64 as" in str(kernel.schedule)


@pytest.mark.slow
@pytest.mark.usefixtures("own")
def test_strategies_that_are_mixed_compete_at_each_call() -> None:
    a, w, s = product(16, 20, most=300)
    kernel = oc.compile(s, inputs=[a, w], target=there(), strategy={"i": "mix"})
    x, weights = arrays(16, 20)
    check(kernel, x, weights, x.astype(np.float32) @ weights.astype(np.float32))
    assert "\nchoose\n  option " in str(kernel.loops)


@pytest.mark.slow  # seconds of isl
@pytest.mark.parametrize("strategy", ["even", {"i": "balance", "j": "ladder"}], ids=str)
def test_a_strategy_along_two_open_axes_is_proved_piece_by_piece(strategy: Any) -> None:
    n, m, k = oc.dim("n", max=300), oc.dim("m", max=300), oc.reduce_axis(16, name="k")
    a = oc.placeholder((n, 16), "float16", name="A")
    w = oc.placeholder((16, m), "float16", name="W")
    s = oc.compute((n, m), lambda i, j: oc.sum(a[i, k].astype("float32") * w[k, j].astype("float32"), axis=k), name="S")  # fmt: skip
    kernel = oc.compile(s, inputs=[a, w], target=there(), strategy=strategy)
    for rows, columns in ((1, 1), (63, 129), (65, 127), (130, 8), (129, 257)):
        x, y = (np.ones(shape, np.float16) for shape in ((rows, 16), (16, columns)))
        x[:, 0], y[0] = np.arange(rows) % 7, np.arange(columns) % 5
        assert np.array_equal(kernel(x, y), x.astype(np.float32) @ y.astype(np.float32))


@pytest.mark.parametrize("strategy", ["even", {"i": "even"}], ids=str)
def test_a_strategy_that_is_not_decided_is_refused_by_its_loops_and_with_one_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, strategy: Any
) -> None:
    because = "that question takes isl more than 4,000,000 operations"
    unproved_step = generic._unproved_step

    def undecided(
        program: oc.Program, plan: TargetPlan, reassociate: bool
    ) -> generic.Unproved | None:
        if " even(16) " in str(plan.schedule):
            error = oc.PartitionError("prove", UNDECIDED, because=because)
            return generic.Unproved(1, error)
        return unproved_step(program, plan, reassociate)

    monkeypatch.setattr(generic, "_unproved_step", undecided)
    a, w, s = product(24, 28, most=300)
    with rejection(f"""\
PartitionError: prove: cannot tell whether the emitted program computes what the source does
  at       S.i by strategy={strategy}
  because  {because}
  help     strategy="guard"
  help     strategy="auto\""""):
        oc.compile(s, inputs=[a, w], target=there(), strategy=strategy)
    for accepted in ("guard", "auto"):
        oc.compile(s, inputs=[a, w], target=there(), strategy=accepted)


SYMBOLIC_HEIGHTS = [
    "  because  when it runs is told by more than sums of iterators and sizes",
    '  help     tiles of literal heights: "balance(16)" for "balance", axis.balanced(16) for axis.balanced()',
]


@pytest.mark.usefixtures("own")
def test_blocks_of_tiles_of_symbolic_heights_are_not_synchronized() -> None:
    a, w, s = product(16, 20, most=300)
    text = str(oc.compile(s, inputs=[a, w], target=there(), strategy={"i": "guard"}).schedule)
    assert "i guard 64 as" in text
    schedule = oc.Schedule.parse(text.replace("i guard 64 as", "i uneven 64 as"))
    program = oc.compile(s, inputs=[a, w], target="interpret").loops
    by_hand = oc.create_schedule(program).with_microkernels(there().microkernels())
    emitted = by_hand.apply(schedule).emitted
    with pytest.raises(oc.PartitionError) as refused:
        oc.sync.synchronized(emitted, AGENTS)
    assert str(refused.value).splitlines()[2:] == SYMBOLIC_HEIGHTS


def test_a_product_of_few_rows_and_a_sum_of_an_open_size_is_tiled() -> None:
    # no more warps than rows: all loops over the rows of a block have as many
    n = oc.dim("n", min=0, max=200)
    a, b = oc.placeholder((24, n), "bfloat16", "A"), oc.placeholder((n, 20), "bfloat16", "B")
    k = oc.reduce_axis(n, name="k")
    s = oc.compute(
        (24, 20),
        lambda i, j: oc.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k),
        name="S",
    )
    kernel = oc.compile(s, inputs=[a, b], target=there())
    assert "mma_m16n8k16_shared_bfloat16" in str(kernel.loops)
    assert "split S.i guard 32 as" in str(kernel.schedule)
    draw = np.random.default_rng(7)
    for size in (0, 1, 31, 32, 33, 101):
        x = draw.integers(-4, 5, (24, size)).astype(ml_dtypes.bfloat16)
        y = draw.integers(-4, 5, (size, 20)).astype(ml_dtypes.bfloat16)
        exact = x.astype(np.float64) @ y.astype(np.float64)
        np.testing.assert_array_equal(np.asarray(kernel(x, y)), exact)


@cache
def small() -> oc.Kernel:
    a, w, s = product(96, 16, most=200)
    return oc.compile(s, inputs=[a, w], target=there("a100"))


def test_a_text_without_one_of_its_waits_is_refused_and_the_whole_is_taken() -> None:
    lines = str(small().loops).splitlines()
    words = ("wait", "arrive")
    places = [at for at, line in enumerate(lines) if line.strip().startswith(words)]
    assert len(places) >= 2
    again = oc.compile(oc.parse("\n".join(lines)), target=there())
    assert again.loops == small().loops
    for at in places:
        text = "\n".join([*lines[:at], *lines[at + 1 :]])
        with pytest.raises(oc.PartitionError, match="cannot keep the order of S"):
            oc.compile(oc.parse(text), target=there())


def test_a_ring_that_a_block_has_no_room_for_is_refused_where_the_machine_has_less() -> None:
    a, w, s = product(96, 16, most=200)
    text = oc.Schedule.parse(str(small().schedule).replace("depth 4", "depth 40"))
    oc.compile(s, inputs=[a, w], target=there("h200"), schedule=text)
    with rejection("""\
PartitionError: compile: cannot place the windows of S
  at       line 13: at A_in S_sum.k_stage in shared depth 40
  because  a block has 166912 bytes of shared memory, and its windows take 204800
  help     fewer in turn: a smaller depth
  help     smaller tiles"""):
        oc.compile(s, inputs=[a, w], target=there("a100"), schedule=text)


WHOLE = """\
program whole
size n in 0:101
input A: float32[n]
local S: float32[n]
output C: float32[n]
for b in 0:1  @block
  alloc S[0 +: EXTENT] in shared depth 2
    for w in 0:2  @warp
      C[w] = A[w]
"""


@pytest.mark.parametrize(
    ("extent", "expected"),
    [("n", 800), ("min(n, 8)", 64), ("8*((n + 7)//8) - n", 56), ("n*n", 80000)],
)
def test_the_room_of_a_window_is_that_of_its_largest_size(
    extent: str, expected: int | None
) -> None:
    program = oc.parse(WHOLE.replace("EXTENT", extent))
    assert [room.bytes for room in window_rooms(program, program.body[0], "shared")] == [expected]


def test_a_window_whose_extent_has_no_known_bound_is_refused() -> None:
    text = WHOLE.replace("EXTENT", "n*index(T[0])").replace("local", "input T: int32[1]\nlocal")
    with rejection("""\
PartitionError: compile: cannot place the windows of whole
  at       alloc S[0 +: n * index(T[0])] in shared depth 2
  because  no upper bound of its extents is known
  help     extents of sizes and loops, which have ranges"""):
        check_room(oc.parse(text), 1 << 20)


def test_a_text_with_units_and_windows_is_its_own_schedule() -> None:
    text = oc.parse(WHOLE.replace("EXTENT", "2").replace("in 0:101", "in 2:101"))
    because = """\
  because  whole runs as it is written: its tiles, units and windows are its schedule
  help     kernel.loops, whose text is edited and compiled again
  help     what it computes as tensors, or as loops without tiles, units and windows"""
    with rejection(f"TargetError: schedule: cannot show the schedule of whole\n{because}"):
        _ = oc.compile(text, target=there()).schedule
    with rejection(f"TargetError: tune: cannot tune whole for target='cuda'\n{because}"):
        oc.tune(text, sizes={"n": [2]}, target=there())


REFUSED = {
    "machine": (
        lambda: oc.target("cuda", machine="zen4"),
        """\
target: cannot plan for machine='zen4'
  because  AMD EPYC, Zen 4 (2022): 512-bit registers on 256-bit units, bfloat16, no tile registers is not a GPU: its description has no [grid]
  help     oc.target("cuda", machine="h200")""",
    ),
    "device": (
        lambda: oc.target("cuda", device="gpu:0"),
        """\
target: cannot take device='gpu:0'
  because  a device is the GPU that is there, or emulated
  help     device=None
  help     device="emulated\"""",
    ),
    "device of another": (
        lambda: oc.target("cpu", device="emulated"),
        """\
target: cannot take device='emulated' for target='cpu'
  because  it runs on the hardware that is there
  help     oc.target("cpu")""",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_there_is_not_is_refused_in_full(what: str) -> None:
    call, expected = REFUSED[what]
    with rejection(f"TargetError: {expected}"):
        call()


def test_what_is_not_tiled_says_why_and_runs_in_rows() -> None:
    # sums of all pairs of rows: columns that are open, whose tile in registers is as wide as is left
    n = oc.dim("n", max=48)
    q, v = (oc.placeholder((n, 16), "bfloat16", name=name) for name in "QV")
    d = oc.reduce_axis(16, name="d")
    pairs = oc.compute(
        (n, n),
        lambda i, j: oc.sum(q[i, d].astype("float32") * v[j, d].astype("float32"), axis=d),
        name="S",
    )
    halves = oc.compute((n, n), lambda i, j: pairs[i, j] * oc.exp(pairs[j, i]), name="H")
    kernel = oc.compile(halves, inputs=[q, v], target=there())
    plan = kernel.plan(n=9)
    tiled = any(piece.microkernel != "lanes" for piece in plan.pieces)
    assert tiled or plan.notes[0].startswith("no tile is a microkernel's: ")
    assert "@block" in str(kernel.loops)
    draw = np.random.default_rng(3)
    a, b = (draw.integers(-1, 2, (17, 16)).astype(ml_dtypes.bfloat16) for _ in range(2))
    sums = a.astype("float64") @ b.astype("float64").T
    given = np.asarray(kernel(a, b)).ravel().tolist()
    assert given == nearly((sums * np.exp(sums.T)).ravel().tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("target", "because", "units"),
    [
        (
            there(),
            "a GPU has no unit zork",
            ("load", "warpgroup", "warp", "store", "block", "lane", "unroll"),
        ),
        (
            oc.target("cpu", machine="zen4"),
            "zen4 has no unit zork, and schedules know none",
            ("thread", "lane", "unroll"),
        ),
    ],
)
def test_a_loop_on_a_unit_that_there_is_not_is_refused_by_its_line(
    target: oc.Target, because: str, units: tuple[str, ...]
) -> None:
    a, w, s = product(16, 16)
    text = "schedule S\nsplit S.i guard 4 as rows row\nbind S.rows zork"
    with rejection(
        "TargetError: "
        + "\n".join(
            [
                "compile: cannot run loop rows on zork",
                "  at       line 3: bind S.rows zork",
                f"  because  {because}",
                *(f"  help     @{unit}" for unit in units),
                "  help     without it, one iteration after the other",
            ]
        )
    ):
        oc.compile(s, inputs=[a, w], target=target, schedule=oc.Schedule.parse(text))


@pytest.mark.parametrize("line", ["at S_sum S.rows in zork", "at S_sum S.rows"])
def test_a_window_in_a_memory_that_there_is_not_is_refused_by_its_line(line: str) -> None:
    a, w, s = product(16, 16)
    text = f"schedule S\nstage write S as S_sum in zork\nsplit S.i guard 4 as rows row\n{line}"
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(s, inputs=[a, w], target=there(), schedule=oc.Schedule.parse(text))
    at = (
        "line 4: at S_sum S.rows in zork"
        if "in" in line
        else "line 2: stage write S as S_sum in zork"
    )
    assert str(refused.value) == "\n".join(
        [
            "compile: cannot keep S_sum in zork",
            f"  at       {at}",
            "  because  a block of a GPU has no memory zork",
            "  help     in shared",
            "  help     in registers",
            "  help     without in zork, in main memory",
        ]
    )


@pytest.mark.parametrize(
    ("line", "refused_words"),
    [
        ("bind S.rows zork", "cannot run loop rows on zork"),
        ("stage read A for S as A_in in zork", "cannot keep A_in in zork"),
    ],
)
def test_a_word_that_leaves_no_loop_and_no_window_is_refused_by_its_line(
    line: str, refused_words: str
) -> None:
    a, w, s = product(16, 16)
    text = f"schedule S\nsplit S.j guard 64 as rows row\n{line}\n"
    if "A_in" in line:
        text += "at A_in S.rows in shared\n"
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(s, inputs=[a, w], target=there(), schedule=oc.Schedule.parse(text))
    assert (refused.value.refused, refused.value.at) == (refused_words, f"line 3: {line}")


def test_a_result_without_axes_is_computed() -> None:
    n = oc.dim("n", max=64)
    x, r = oc.placeholder((n,), name="X"), oc.reduce_axis(n, name="r")
    total = oc.compute((), lambda: oc.sum(x[r], axis=r), name="Y")
    double = oc.compute((), lambda: total[()] * 2.0, name="Z")
    for result, factor in ((total, 1), (double, 2)):
        kernel = oc.compile(result, inputs=[x], target=there())
        for size in (0, 1, 7):
            assert float(np.asarray(kernel(np.ones(size, "float32")))) == size * factor
        assert kernel.plan(n=7).seconds == nearly(kernel.cost(n=7).seconds)
