"""Every refusal of a strategy of one's own, word for word, beside one that is accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import EQUAL, proved, rejection

import offcut as oc
from offcut import TiledAxis, TileRun
from offcut.partition import parse_strategy, segments
from offcut.partition.strategies.tiled_axis import EXTENT

n = oc.dim("n", max=4096)
A = oc.placeholder((n, 5), "float64", name="A")
k = oc.reduce_axis(5, name="k")
C = oc.compute((n,), lambda i: oc.sum(A[i, k], axis=k), name="C")


def refusal(call: Callable[[], Any], kind: type[oc.OffcutError] = oc.PartitionError) -> str:
    with pytest.raises(kind) as refused:
        call()
    return str(refused.value)


def cut_by(function: Callable[..., Iterator[TileRun]], tail: Any = "mine", **tile: int) -> Any:
    oc.strategy("mine")(function)
    return oc.partition(C, tile=tile or {"i": 8}, tail=tail)


def leaves_out(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.full()
    yield axis.fixed(2)


def twice(axis: TiledAxis) -> Iterator[TileRun]:
    take = axis.full()
    yield take
    yield take
    yield axis.tail()


def runs_past(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.fixed(8, (axis.extent + 7) // 8)


def moves_less(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.where(axis.extent >= 100).full()
    yield axis.where(axis.extent < 100).full()
    yield axis.masked(4)


REFUSED: dict[Callable[..., Iterator[TileRun]], str] = {
    leaves_out: """\
partition: cannot cut by mine
  at       a tile of 8: fixed(8), fixed(2)
  because  with an extent of 1, no tile runs iteration 0
  help     tail="cut" runs every iteration once""",
    twice: """\
partition: cannot cut by mine
  at       a tile of 8: fixed(8), fixed(8), tail()
  because  with an extent of 8, two tiles run iteration 0
  help     tail="cut" runs every iteration once""",
    runs_past: """\
partition: cannot cut by mine
  at       a tile of 8: fixed(8, (extent + 7)//8)
  because  with an extent of 1, a tile runs iteration 1, which does not exist
  help     tail="cut" runs every iteration once""",
    moves_less: """\
partition: cannot cut by mine
  at       a tile of 8: where(extent >= 100).fixed(8), where(extent < 100).fixed(8), masked(4)
  because  with an extent of 5, no tile runs iteration 4
  help     tail="cut" runs every iteration once""",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda one: one.__name__)
def test_what_does_not_run_each_iteration_once_is_refused_with_the_smallest_extent(
    function: Callable[..., Iterator[TileRun]],
) -> None:
    text = REFUSED[function]
    assert refusal(lambda: cut_by(function)) == text
    kernel = refusal(lambda: oc.compile(C, strategy={"i": "mine"}))
    assert kernel.splitlines()[0] == text.splitlines()[0]
    s = oc.create_schedule(C)
    assert refusal(lambda: s[C].split("i", 8, tail="mine")) == text


def too_high(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.tail()


def the_same_for_ever(axis: TiledAxis) -> Iterator[TileRun]:
    take = axis.full()
    while True:
        yield take


def nothing_of_it(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.full()
    yield 3  # type: ignore[misc]


def another_axis(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.full()
    yield TiledAxis(axis.tile).full()


def raises(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.full()
    raise ValueError("not today")


def no_height(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.fixed(axis.tile + 1)


def not_affine(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.single(axis.extent * axis.extent)


def asks_an_extent(axis: TiledAxis) -> Iterator[TileRun]:
    if axis.extent > 3:
        yield axis.full()


def asks_no_condition(axis: TiledAxis) -> Iterator[TileRun]:
    yield axis.where(axis.extent).full()


IMPOSSIBLE: dict[Callable[..., Iterator[TileRun]], str] = {
    too_high: "with an extent of 9, a tile has 9 instances",
    the_same_for_ever: "it gives more than 64 segments, each of them code of its own",
    nothing_of_it: "it gives 3, which is not a segment of the axis that it was given",
    another_axis: "it gives fixed(8), which is not a segment of the axis that it was given",
    raises: "its function raises ValueError: not today",
    no_height: "a tile of 9 instances is asked for, which is not an int from 1 to 8",
    not_affine: "extent * extent is not quasi-affine: a factor is an int",
    asks_no_condition: "extent is not a condition on axis.extent and axis.remaining",
}


@pytest.mark.parametrize("function", IMPOSSIBLE, ids=lambda one: one.__name__)
def test_what_is_no_segment_is_refused_with_what_it_is(
    function: Callable[..., Iterator[TileRun]],
) -> None:
    assert refusal(lambda: cut_by(function)) == (
        "partition: cannot cut by mine\n"
        "  at       loop i, in tiles of 8\n"
        f"  because  {IMPOSSIBLE[function]}\n"
        '  help     tail="cut" and tail="ladder" are for tiles of any size'
    )


def test_a_bug_that_a_strategy_meets_is_not_called_its_fault() -> None:
    def meets_a_bug(axis: TiledAxis) -> Iterator[TileRun]:
        yield axis.full()
        raise oc.InternalError("met")

    with pytest.raises(oc.InternalError, match="met"):
        cut_by(meets_a_bug)


def test_a_condition_on_the_extent_is_no_python_if() -> None:
    said = refusal(lambda: cut_by(asks_an_extent))
    assert "DescribeError: compute: cannot decide extent > 3 while" in said
    assert "; axis.where(condition) is the axis where that holds" in said


def test_an_order_that_a_sum_does_not_have_is_refused() -> None:
    def backwards(axis: TiledAxis) -> Iterator[TileRun]:
        after = axis.where(axis.extent >= 0)
        after.full()
        yield after.tail()
        yield axis.full()

    assert proved(cut_by(backwards)) >= EQUAL
    assert refusal(lambda: cut_by(backwards, k=2)) == (
        "partition: cannot cut by mine\n"
        "  at       a tile of 2: where(extent >= 0).tail(), fixed(2)\n"
        "  because  with an extent of 5, iteration 0 runs after a later one\n"
        '  help     tail="cut" runs every iteration once'
    )


def test_what_repeats_terms_or_pads_is_refused_as_ours_is() -> None:
    def back(axis: TiledAxis) -> Iterator[TileRun]:
        short = axis.where(axis.extent < axis.tile)
        yield axis.full()
        yield axis.shifted()
        yield short.tail()

    def padding(axis: TiledAxis) -> Iterator[TileRun]:
        yield axis.full()
        yield axis.padded()

    assert refusal(lambda: cut_by(back, k=2)) == (
        'partition: cannot take tail="mine" on a reduction\n'
        "  at       loop k\n"
        "  because  the last tile would add terms again: sum is not idempotent\n"
        "  help     any tail but shift meets each term once, in its order"
    )
    assert proved(cut_by(back)) >= EQUAL
    assert proved(cut_by(padding, k=2)) >= EQUAL
    chain = oc.parse("size n in 2:64\ninout B: float32[n]\nfor i in 1:n\n  B[i] += B[i - 1]\n")
    oc.strategy("mine")(padding)
    assert refusal(lambda: oc.partition(chain, tile={"i": 4}, tail="mine")) == (
        'partition: cannot take tail="mine"\n'
        "  at       loop i\n"
        "  because  a padded tile runs its instances together, and this loop carries dependences "
        "between them\n"
        "  help     any tail but pad and shift keeps their order"
    )


def gives_a_list(axis: TiledAxis) -> list[TileRun]:
    return [axis.full()]


@pytest.mark.parametrize(
    ("name", "function", "text"),
    [
        ("ladder", leaves_out, "strategy: cannot name it 'ladder'\n"
         "  because  offcut has a strategy of that name\n"
         '  help     @oc.strategy("halve")'),
        ("my own", leaves_out, "strategy: cannot name it 'my own'\n"
         "  because  a strategy is known by an ASCII identifier\n"
         '  help     @oc.strategy("halve")'),
        ("mine", gives_a_list, "strategy: cannot take gives_a_list as the strategy mine\n"
         "  because  it is not a generator function\n"
         "  help     def halve(axis): yield axis.full()"),
    ],
)  # fmt: skip
def test_what_cannot_be_registered_is_refused(name: str, function: Any, text: str) -> None:
    assert refusal(lambda: oc.strategy(name)(function), oc.DescribeError) == text
    oc.strategy("mine")(leaves_out)


@pytest.mark.parametrize(
    ("tail", "because", "help"),
    [
        (("ladder", (4, 0)), "heights are ints, at least 1", '("ladder", (4, 2, 1))'),
        (("cut", (4,)), "1 height is given, and cut takes no heights", '"cut"'),
        (("ladder", 4), "it is not a name with a tuple of heights", '("ladder", (4, 2, 1))'),
        ("ladder(a)", "there is no such strategy", "did you mean ladder?\n"
         "  help     guard, exact, cut, mask, pad, shift, ladder, balance, even, residue, version, mix, mine"),
    ],
)  # fmt: skip
def test_heights_that_are_none_are_refused(tail: Any, because: str, help: str) -> None:
    text = f"partition: cannot take tail={tail!r}\n  at       axis i\n  because  {because}" + (
        f"\n  help     {help}" if help else ""
    )
    assert refusal(lambda: cut_by(leaves_out, tail={"i": tail})) == text
    assert proved(oc.partition(C, tile={"i": 8}, tail={"i": ("ladder", (4, 9, 1))})) >= EQUAL


def of_two_heights(axis: TiledAxis, first: int, second: int) -> Iterator[TileRun]:
    yield axis.full()
    yield axis.fixed(first, second)


@pytest.mark.parametrize(
    ("heights", "count"),
    [((), "0 heights are"), ((4,), "1 height is")],
)
def test_another_number_of_heights_than_a_strategy_takes_is_refused(
    heights: tuple[int, ...], count: str
) -> None:
    oc.strategy("mine")(of_two_heights)
    tail = ("mine", heights) if heights else "mine"
    with rejection(f"""\
PartitionError: partition: cannot take tail={tail!r}
  at       axis i
  because  {count} given, and mine takes 2
  help     ("mine", (2, 1))"""):
        cut_by(of_two_heights, tail={"i": tail})


def test_a_kernel_that_asks_for_a_larger_tile_than_it_took_along_is_refused() -> None:
    oc.strategy("mine")(leaves_out)
    one = parse_strategy("mine", at="here")
    assert refusal(lambda: segments(one, EXTENT, 257)) == (
        "partition: cannot cut by mine\n"
        "  at       a tile of 257\n"
        "  because  it is known for tiles of 1…256 here\n"
        '  help     tail="cut" and tail="ladder" are for tiles of any size'
    )
    assert refusal(lambda: segments(one.for_tile(257), EXTENT, 257)).splitlines()[2] == (
        "  because  it is known for tiles of 1…256 here"
    )
    assert segments(one, EXTENT, 256) == segments(one.for_tile(256), EXTENT, 256)


def test_a_product_of_rows_that_are_looked_up_takes_no_tiles_of_a_microkernel() -> None:
    n, v, k = oc.dim("n", max=128), oc.dim("v", min=1, max=50), oc.reduce_axis(20, name="k")
    table, weights = oc.placeholder((v, 20), name="T"), oc.placeholder((20, 33), name="W")
    rows = oc.placeholder((n,), "int32", "I")
    result = oc.compute(
        (n, 33), lambda i, j: oc.sum(table[oc.index(rows[i]), k] * weights[k, j], axis=k), name="S"
    )
    with rejection("""\
PartitionError: compile: cannot cover S by a microkernel
  because  whether it reads inside of its arrays is asked at run time, of each element, and no microkernel asks
  help     strategy="auto", by which it runs in its own loops"""):
        oc.compile(result, inputs=[table, rows, weights], strategy="mask")
