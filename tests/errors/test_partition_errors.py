"""Every refusal of a cut, word for word, with its smallest witness, beside a cut that is accepted."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EQUAL, proved, refusals, rejection

import offcut as oc
from offcut import Partition, assume, dim
from offcut.describe.computation import computation, source
from offcut.describe.value import Value
from offcut.errors import CallError, OffcutError, PartitionError, TargetError
from offcut.partition import EXACT
from offcut.schedule import cut
from tests.agree import nearly
from tests.facade import CUT, STRATEGIES

n, m, odd = dim("n", max=64), dim("m", max=64), dim("odd", min=3, max=65)
A = oc.placeholder((n, 12), name="A")
F = oc.placeholder((n,), name="F")
k = oc.reduce_axis(12, "k")


def total(reduce: Callable[..., Value] = oc.sum) -> oc.Tensor:
    return oc.compute((n, 8), lambda i, j: reduce(A[i, k], axis=k), name="C")


def row(term: Callable[..., Any], extent: Any = n) -> oc.Tensor:
    return oc.compute((extent,), term, name="C")


def cut_of(
    what: oc.Tensor | None = None,
    tile: Mapping[str, Any] | None = None,
    tail: Mapping[str, Any] | str = "cut",
) -> Partition:
    what = total() if what is None else what
    return cut(computation([what]), {"i": 4} if tile is None else tile, tail, [])


def refused(call: Callable[[], Any], text: str, kind: type[OffcutError] = PartitionError) -> None:
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == text


def test_a_ragged_size_is_refused_with_the_smallest_one_that_breaks_it() -> None:
    refused(
        lambda: cut_of(tile={"i": 8}, tail="exact"),
        """\
partition: cannot take tail="exact"
  at       loop i
  because  with n = 1, 8 does not divide the extent n
  help     tail="cut" separates the last n % 8 iterations
  help     assume(n % 8 == 0) if every caller guarantees it""",
    )
    with assume(n % 8 == 0):
        assert proved(cut_of(tile={"i": 8}, tail="exact")) >= EQUAL


def test_the_witness_of_a_ragged_size_keeps_to_the_facts() -> None:
    B = oc.placeholder((odd,), name="B")
    refused(
        lambda: cut_of(row(lambda i: B[i], odd), {"i": 3}, "exact"),
        """\
partition: cannot take tail="exact"
  at       loop i
  because  with odd = 4, 3 does not divide the extent odd
  help     tail="cut" separates the last odd % 3 iterations
  help     assume(odd % 3 == 0) if every caller guarantees it""",
    )


def test_an_odd_extent_is_never_even() -> None:
    B = oc.placeholder((2 * n + 1,), name="B")
    refused(
        lambda: cut_of(row(lambda i: B[i], 2 * n + 1), {"i": 2}, "exact"),
        """\
partition: cannot take tail="exact"
  at       loop i
  because  with n = 0, 2 does not divide the extent 2*n + 1
  help     tail="cut" separates the last 1 iterations""",
    )
    B = oc.placeholder((2 * n + 4,), name="B")
    assert proved(cut_of(row(lambda i: B[i], 2 * n + 4), {"i": 2}, "exact")) >= EQUAL


def test_a_constant_extent_is_ragged_without_a_size() -> None:
    B = oc.placeholder((8,), name="B")
    with pytest.raises(PartitionError) as error:
        cut_of(row(lambda i: B[i], 8), {"i": 3}, "exact")
    assert error.value.because == "3 does not divide the extent 8"
    assert all("assume" not in text for text in error.value.help)
    assert proved(cut_of(row(lambda i: B[i], 8), {"i": 4}, "exact")) >= EQUAL


def test_a_sum_takes_no_strategy_that_repeats_its_terms() -> None:
    refused(
        lambda: cut_of(tile={"k": 5}, tail="shift"),
        """\
partition: cannot take tail="shift" on a reduction
  at       loop k
  because  the last tile would add terms again: sum is not idempotent
  help     any tail but shift meets each term once, in its order""",
    )
    for tail in ("cut", "guard", "mask", "pad", "ladder", "balance", "even", "residue", "version"):
        theorems = cut_of(tile={"k": 5}, tail=tail).prove().theorems
        assert {"disjoint", "covering", "ascending"} <= {
            one.name for one in theorems if one.of == f"{tail} by 5"
        }
    assert proved(cut_of(total(oc.max), {"k": 5}, "shift")) >= EQUAL


def test_residue_with_many_rests_is_refused() -> None:
    refused(
        lambda: cut_of(
            row(lambda i: oc.cast(1.0, "float32"), dim("q", max=99)), {"i": 65}, "residue"
        ),
        """\
partition: cannot cut by residue
  at       loop i, in tiles of 65
  because  it gives more than 64 segments, each of them code of its own
  help     tail="cut" and tail="ladder" are for tiles of any size""",
    )
    assert len(cut_of(tile={"i": 64}, tail="residue").pieces) == 64


@pytest.mark.parametrize(
    ("tail", "tile", "most"),
    [("balance", 1025, 64), ("balance", 2**31 - 1, None), ("mix", 1025, None)],
)
def test_more_heights_than_can_be_asked_are_refused(tail: str, tile: int, most: int | None) -> None:
    size = dim("q", max=most) if most else dim("q")
    of = row(lambda i: oc.cast(1.0, "float32"), size)
    if most and tail == "balance":  # shorter than a tile: one tile, whatever the strategy
        assert proved(cut_of(of, {"i": tile}, tail)) >= EQUAL
        return
    refused(
        lambda: cut_of(of, {"i": tile}, tail),
        f"""\
partition: cannot cut by balance
  at       loop i, in tiles of {tile}
  because  its tiles may have any of {tile} heights, each asked by itself, and 1024 at most are
  help     tail="cut" and tail="ladder" are for tiles of any size""",
    )
    assert proved(cut_of(of, {"i": 1024}, tail)) >= EQUAL


SQUARE = """program square
size n in 0:40
output A: float32[n, n * n]
for i in 0:n
  for j in 0:i*i
    A[i, j] = 1.0
"""
NOT_AFFINE = """\
partition: cannot tile over i
  because  the bound i * i is not quasi-affine in it
  help     cut i alone"""


def test_bounds_that_are_not_quasi_affine_in_a_loop_of_the_same_tile_are_refused() -> None:
    square = oc.parse(SQUARE)

    refused(lambda: oc.partition(square, tile={"i": 4, "j": 4}), NOT_AFFINE)
    assert oc.partition(square, tile={"i": 4}).pieces


def test_an_order_with_a_loop_around_the_one_that_its_bounds_depend_on_is_refused_likewise() -> (
    None
):
    s = oc.create_schedule(oc.parse(SQUARE))
    s["A"].reorder("j", "i")

    refused(s.lower, NOT_AFFINE)


@pytest.mark.parametrize("tile", [np.int64(4), np.uint8(4), (np.int32(8), 4)])
def test_a_tile_may_be_an_int_of_numpy(tile: Any) -> None:
    assert proved(cut_of(tile={"i": tile})) >= EQUAL


def test_an_axis_that_is_not_there_is_answered_with_those_that_are() -> None:
    for name in ("x", "D.i", "C.x"):
        refused(
            lambda name=name: cut_of(tile={name: 4}),  # type: ignore[misc]
            f"""\
partition: cannot find the axis {name!r}
  because  no axis has that name
  help     C.i, C.j, C.k""",
        )
    assert proved(cut_of(tile={"C.i": 4, "C.k": 5})) >= EQUAL


def test_an_ambiguous_axis_is_answered_with_the_candidates() -> None:
    r = oc.reduce_axis(n, "r")
    first = oc.compute((n,), lambda i: oc.sum(A[i, k], axis=k), name="E")
    second = oc.compute((n,), lambda i: oc.sum(first[r] * F[i], axis=r), name="G")
    refused(
        lambda: cut_of(second),
        """\
partition: cannot find the axis 'i'
  because  several axes have that name
  help     E.i, G.i""",
    )
    assert proved(cut_of(second, {"G.i": 4, "r": 3})) >= EQUAL


def test_one_axis_is_cut_once() -> None:
    refused(
        lambda: cut_of(tile={"i": 8, "C.i": 4}),
        """\
partition: cannot cut C.i twice
  at       axis C.i
  because  two of the names given are this axis""",
    )


@pytest.mark.parametrize("tail", ["BALANCE", None])
def test_a_strategy_that_is_not_there_is_answered_with_those_that_are(tail: Any) -> None:
    refused(
        lambda: cut_of(tail={"i": tail}),
        f"""\
partition: cannot take tail={tail!r}
  at       axis i
  because  there is no such strategy
  help     guard, exact, cut, mask, pad, shift, ladder, balance, even, residue, version, mix""",
    )
    assert cut_of(tail={"i": CUT}).loops == cut_of(tail="cut").loops


def test_strategies_that_compete_are_refused_for_one_axis() -> None:
    tail: Any = {"i": ["mask", "peel"]}
    refused(
        lambda: cut_of(tail=tail),
        """\
partition: cannot take tail=['mask', 'peel']
  at       axis i
  because  the tail of one axis is treated by one strategy, and this is a list
  help     "mask\"""",
    )


def test_a_tail_without_a_tile_is_refused() -> None:
    refused(
        lambda: cut_of(tail={"i": "cut", "j": "mask"}),
        """\
partition: cannot treat the tail of j
  at       axis j
  because  no tile is given for it, so it is not cut
  help     tile={"j": 16}""",
    )
    assert cut_of(tail={}).loops == cut_of(tail={"i": "cut"}).loops


@pytest.mark.parametrize("tile", [0, True, 8.0, n, 2**31, np.array([8, 4])])
def test_a_tile_is_an_int_from_1_to_the_greatest_size(tile: Any) -> None:
    refused(
        lambda: cut_of(tile={"i": tile}),
        f"""\
partition: cannot cut i by {tile!r}
  at       axis i
  because  a tile is an int from 1 to 2**31 - 1: isl decides no symbolic tile size
  help     tile={{"i": 8}}
  help     tile={{"i": (64, 16)}} in two levels""",
    )
    assert proved(cut_of(tile={"i": 1})) >= EQUAL
    assert proved(cut_of(tile={"i": 2**31 - 1}, tail="guard")) >= EQUAL


@pytest.mark.parametrize("given", [{"tile": 8}, {"tail": None}])
def test_a_cut_is_given_by_axis(given: dict[str, Any]) -> None:
    ((what, value),) = given.items()
    refused(
        lambda: oc.partition(total(), **{"tile": {"i": 8}, **given}),
        f"""\
partition: cannot take {what}={value!r}
  because  a cut is given by axis
  help     tile={{"i": 14, "j": 32}}, tail={{"i": "balance", "j": "mask"}}""",
    )


def test_index_arithmetic_that_int64_may_not_hold_is_refused() -> None:
    refused(
        lambda: cut_of(row(lambda i: oc.where(i * 2**61 < 3 * 2**61, A[i, 0], 0.0))),
        """\
represent: cannot compute 2305843009213693952*i in int64
  at       C[i] = where(2305843009213693952*i < 6917529027641081856, A[i, 0], 0.0)
  because  it reaches 145268109580462718976, past 2**62
  help     give the sizes a smaller max
  help     use smaller factors""",
    )
    assert proved(cut_of(row(lambda i: oc.where(i * 2**56 < 3 * 2**56, A[i, 0], 0.0)))) >= EQUAL


OUTSIDE = [
    (
        lambda: row(lambda i: F[i + 1]),
        "C[i] = F[i + 1]",
        "with n = 1, i = 0, it is F[1] of a tensor of shape (n)",
        lambda: row(lambda i: oc.where(i + 1 < n, F[i + 1], 0.0)),
    ),
    (
        lambda: row(lambda i: A[i, i]),
        "C[i] = A[i, i]",
        "with n = 13, i = 12, it is A[12, 12] of a tensor of shape (n, 12)",
        lambda: row(lambda i: oc.where(i < 12, A[i, i], 0.0)),
    ),
    (
        lambda: row(lambda i: oc.sum(F[i + k], axis=k)),
        "C[i] += F[i + k]",
        "with n = 1, i = 0, k = 1, it is F[1] of a tensor of shape (n)",
        lambda: row(lambda i: oc.sum(F[i + k], axis=k), n - 11),
    ),
]


@pytest.mark.parametrize(("wrong", "at", "because", "right"), OUTSIDE, ids=lambda value: "")
def test_an_access_out_of_bounds_is_refused_with_the_smallest_instance(
    wrong: Callable[[], oc.Tensor], at: str, because: str, right: Callable[[], oc.Tensor]
) -> None:
    read = because.partition("it is ")[2][0]
    access = next(one for one in re.findall(r"\w+\[.*?\]", at)[1:] if one.startswith(read))
    text = f"""\
cannot access {access} out of bounds
  at       {at}
  because  {because}
  help     an if around the statement, or where(condition, …) around the access"""
    program = source(computation([wrong()]))
    refused(lambda: cut_of(wrong()), f"partition: {text}")
    refused(lambda: oc.partition(program), f"partition: {text}")
    refused(lambda: oc.compile(wrong()), f"compile: {text}")
    refused(lambda: oc.compile(program), f"compile: {text}")
    with assume(n >= 11):
        assert cut_of(right()).pieces


def test_an_access_out_of_bounds_is_named_as_its_user_does() -> None:
    size, given = dim("int32", max=64), oc.placeholder((dim("int32", max=64),), name="float32")
    wrong = oc.compute((size,), lambda i: given[i + size - size + 1], name="where")
    for op, call in (("partition", oc.partition), ("compile", oc.compile)):
        refused(
            lambda call=call: call(wrong),
            f"""\
{op}: cannot access float32[i + 1] out of bounds
  at       where[i] = float32[i + 1]
  because  with int32 = 1, i = 0, it is float32[1] of a tensor of shape (int32)
  help     an if around the statement, or where(condition, …) around the access""",
        )


def test_an_extent_that_may_be_negative_is_refused_as_described_and_as_text() -> None:
    text = """\
cannot take the extent n - 5
  at       output C: float32[n - 5]
  because  it is negative with n = 0
  help     give its sizes a larger min
  help     assume(n - 5 >= 0)"""
    short = row(lambda i: F[i], n - 5)
    program = source(computation([short]))
    for what in (short, program):
        refused(lambda what=what: oc.partition(what), f"partition: {text}")
        refused(lambda what=what: oc.compile(what), f"compile: {text}")
    with assume(n >= 5):
        assert proved(cut_of(row(lambda i: F[i], n - 5))) >= EQUAL


def test_an_array_between_that_may_have_no_shape_is_refused() -> None:
    text = """\
size n in {}
size m in {}
output C: float32[n]
local S: float32[n*m - 6]
for i in 0:n*m - 6
  S[i] = 1.0
for i in 0:n
  C[i] = 0.0
"""
    refused(
        lambda: oc.compile(oc.parse(text.format("0:64", "0:64"))),
        """\
compile: cannot take the extent n * m - 6
  at       local S: float32[n * m - 6]
  because  it may be negative: sets do not say
  help     give its sizes a larger min""",
    )
    kernel = oc.compile(oc.parse(text.format("2:64", "3:64")))
    np.testing.assert_array_equal(kernel(n=4, m=3), np.zeros(4))


UNDECIDED = {
    "an index that is not a sum": (lambda i: F[i * i], 2),
    "a condition on elements": (lambda i: oc.where(F[i] > 3.0, F[i + 1], 0.0), 5),
    "a condition that is not a sum": (lambda i: oc.where(i * n < 5, F[i + 1], 0.0), 1),
}


@pytest.mark.parametrize(("what", "tail"), [*zip(UNDECIDED, ("cut", "mask", "shift"), strict=True)])
def test_an_access_that_sets_do_not_decide_is_cut_and_asked_at_the_call(
    what: str, tail: str
) -> None:
    term, least = UNDECIDED[what]
    kernel = oc.compile(row(term), strategy={"i": tail})
    made = cut_of(row(term), tail=tail)
    for size in (0, 1, 2, 5, 17):
        given = np.arange(size, dtype=np.float32)
        try:
            wanted = made.source.run({"F": given})
        except CallError:
            assert size >= least
            with pytest.raises(CallError, match="leads outside of an array"):
                kernel(given)
        else:
            np.testing.assert_array_equal(kernel(given), wanted)
            np.testing.assert_array_equal(made.run({"F": given}), wanted)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"m": 3}, "do without n\n  because  the sizes of C are n, m\n  help     plot(n=…, m=…)"),
        (
            {"m": 3, "n": 4, "k": 5},
            "take k\n  because  the sizes of C are n, m\n  help     plot(n=…, m=…)",
        ),
        ({"m": 3, "n": 65}, "take n = 65\n  because  n is in 0…64"),
        ({"m": 3, "n": 2}, "draw at n = 2, m = 3\n  because  C assumes m <= n"),
    ],
)
def test_a_picture_is_of_sizes_that_are_allowed(sizes: dict[str, int], text: str) -> None:
    with assume(m <= n):
        p = cut_of(row(lambda i: F[i], m))
    refused(lambda: p.plot(**sizes), f"plot: cannot {text}", CallError)


def test_an_array_that_would_make_a_size_negative_is_named_with_its_extent() -> None:
    longer = oc.placeholder((n + 3,), name="L")
    made = cut_of(oc.compute((n,), lambda i: longer[i] * 2.0, name="C"))
    refused(
        lambda: made.run({"L": np.ones(2, np.float32)}),
        """\
run: cannot take n = -1
  at       axis 0, of 2, of input L: float32[n + 3]
  because  n is in 0…64""",
        CallError,
    )


def test_what_is_not_cut_is_not_drawn() -> None:
    refused(
        lambda: cut_of(tile={}).plot(n=5),
        """\
plot: cannot draw the partition
  because  no axis of it is cut
  help     tile={"i": 14}""",
    )


def test_a_picture_without_matplotlib_is_refused_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refused(
        lambda: cut_of().plot(n=5),
        """\
plot: cannot draw the partition
  because  matplotlib is not installed
  help     this needs the extra "plot": pip install ".[plot]" in the folder of offcut""",
        TargetError,
    )


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("tail", "size"),
    [
        *(("shift", size) for size in (0, 3, 4)),
        ("balance", 0),
        *((s.name, 13) for s in STRATEGIES if s != EXACT),
    ],
)
def test_a_picture_shows_every_piece_that_has_an_instance(
    tail: str, size: int, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    p = cut_of(tile={"i": 4, "j": 3}, tail={"i": tail, "j": "pad"})
    figure = p.plot(tmp_path / "cut.png", n=size)
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("j", "i")
    assert figure.get_suptitle() == f"C at n = {size}"
    assert (tmp_path / "cut.png").stat().st_size > 1000
    legend = axes.get_legend()
    labels = [text.get_text() for text in legend.get_texts()] if legend else []
    shares = [float(label.split(", ")[-1][:-2]) for label in labels if label.endswith(" %")]
    assert sum(shares) == nearly(100 if size else 0, abs=0.5)


def test_a_reduction_is_drawn_under_its_name() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    figure = cut_of(tile={"i": 4, "k": 5}, tail={"i": "shift", "k": "pad"}).plot(n=13)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "k (reduced)"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "body 4 × 5: loops, 76.9 %",
        "tail 4 × 5 pad: loops, 15.4 %",
        "tail 4 × 5 shift: loops, 6.41 %",
        "corner 4 × 5 shift: loops, 1.28 %",
        "executed, not owned",
    ]


UPDATED = """\
size n in 0:1000
input X: float32[n]
inout A: float32[n]
for i in 0:n
  A[i] += X[i]
"""
CHAIN = """\
size n in 0:1000
inout B: float32[n]
for i in 1:n
  B[i] = B[i - 1] * 2.0
"""
TRIANGLE = """\
size n in 0:99
output C: int32[n, n]
for i in 0:n
  for j in 0:i + 1
    C[i, j] = 1
"""
SUM_AND_COPY = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
inout S: float32[1]
for k in 0:n
  S[0] += X[k]
  C[k] = X[k]
"""
# A program, how it is cut, and a tail that it takes.
LOOPS = refusals(
    """
given TRIANGLE, {'i': 4, 'j': 4}, {'i': 'cut', 'j': 'pad'}, {'i': 'cut', 'j': 'mask'}
cannot take tail="pad"
  at       loop j
  because  its bounds 0:i + 1 differ between the rows of a tile, so the tail has no single extent
  help     cut, guard and mask treat each row by itself
  help     cut only one of the two loops

given TRIANGLE, {'i': 4, 'j': 65}, {'i': 'cut', 'j': 'residue'}, {'i': 'cut', 'j': 'guard'}
cannot cut by residue
  at       loop j, in tiles of 65
  because  it gives more than 64 segments, each of them code of its own
  help     tail="cut" and tail="ladder" are for tiles of any size

given UPDATED, {'i': 4}, 'shift', 'balance'
cannot take tail="shift"
  at       loop i
  because  the last tile would run A[i] += X[i] again
  help     mask, cut, ladder, balance run each instance once

given CHAIN, {'i': 4}, 'pad', 'mask'
cannot take tail="pad"
  at       loop i
  because  a padded tile runs its instances together, and this loop carries dependences between them
  help     any tail but pad and shift keeps their order

given CHAIN, {'i': 4}, 'exact', 'cut'
cannot take tail="exact"
  at       loop i
  because  with n = 2, 4 does not divide the extent n - 1
  help     tail="cut" separates the last (n + 3) % 4 iterations
  help     assume((n + 3) % 4 == 0) if every caller guarantees it

given SUM_AND_COPY, {'k': 4}, 'pad', 'mask'
cannot take tail="pad"
  because  only the terms of a reduction can be masked to its neutral element
  help     tail="mask" runs no instance outside
""",
    globals(),
)


@pytest.mark.parametrize("what", LOOPS)
def test_a_cut_of_a_loop_program_is_refused_beside_one_that_is_proved(what: str) -> None:
    text, tile, tail, accepted, refusal = LOOPS[what]
    program = oc.parse(text)
    with rejection(f"PartitionError: partition: {refusal}"):
        oc.partition(program, tile=tile, tail=tail)
    assert proved(oc.partition(program, tile=tile, tail=accepted)) >= EQUAL


@pytest.mark.parametrize(
    ("axis", "text"),
    [
        ("k", "cannot find the axis 'k'\n  because  no axis has that name\n  help     A.i, B.i"),
        (
            "i",
            "cannot find the axis 'i'\n  because  several axes have that name\n  help     A.i, B.i",
        ),
    ],
)
def test_a_loop_is_found_by_a_name_of_its_own(axis: str, text: str) -> None:
    program = oc.parse("""\
size n in 0:1000
output A: float32[n]
output B: float32[n]
for i in 0:n
  A[i] = 1.0
for i in 0:n
  B[i] = 1.0
""")
    refused(lambda: oc.partition(program, tile={axis: 4}), f"partition: {text}")


def test_a_nest_has_no_more_tiles_than_compile_in_seconds() -> None:
    text = """\
size n in 0:1000
output C: float32[n, n]
for i in 0:n
  for j in 0:n
    C[i, j] = 1.0
"""
    with rejection("""\
PartitionError: partition: cannot cut i, j so
  because  there would be at least 257 tiles, more than 256, each of them code of its own
  help     one loop with residue or mix, or fewer levels"""):
        oc.partition(oc.parse(text), {"i": 32, "j": 32}, "residue")
    assert len(oc.partition(oc.parse(text), {"i": 8, "j": 4}, "residue").pieces) == 32


def test_a_described_sum_has_no_more_parts_than_compile_in_seconds() -> None:
    n, m = oc.dim("n", max=4096), oc.dim("m", max=500)
    a, b = oc.placeholder((n, m), name="A"), oc.placeholder((m, n), name="B")
    k = oc.reduce_axis(m, "k")
    c = oc.compute((n, n), lambda i, j: oc.sum(a[i, k] * b[k, j], axis=k), name="C")
    with pytest.raises(oc.PartitionError, match=r"cannot cut k so\n.*more than 256, each"):
        oc.compile(c, strategy=dict.fromkeys("ijk", "residue"))


def test_an_assumption_that_no_set_says_is_refused() -> None:
    text = """\
size n in 0:60
size m in 0:60
assume n*m >= 3
inout A: float32[n]
for i in 0:n
  A[i] = 1.0
"""
    with rejection("""\
PartitionError: partition: cannot assume n * m >= 3
  because  isl decides quasi-affine facts only: no product of two sizes
  help     a fact of sums and integer multiples of sizes"""):
        oc.partition(oc.parse(text), tile={"i": 4})
    assert oc.partition(oc.parse(text.replace("n*m", "n + m")), tile={"i": 4}).prove()


def test_an_extent_that_is_not_shown_to_be_a_multiple_has_no_witness() -> None:
    text = """\
size n in 0:60
inout A: float32[n]
for i in 0:{extent}
  if i < n
    A[i] = 1.0
"""
    with pytest.raises(PartitionError) as error:
        oc.partition(oc.parse(text.format(extent="4*(n*n)")), tile={"i": 4}, tail="exact")
    assert error.value.because
    assert "with n" not in error.value.because


def test_a_layout_of_an_array_of_the_caller_is_refused() -> None:
    text = """\
size n in 0:99
input A: float32[n, 8] @panels(0, 1, 4)
output C: float32[n, 8]
for i in 0:n
  for j in 0:8
    C[i, j] = A[i, j]
"""
    for op, run in (("compile", oc.compile), ("partition", oc.partition)):
        with rejection(f"""\
PartitionError: {op}: cannot lay A out in panels(0, 1, 4)
  at       input A: float32[n, 8]
  because  the caller owns it, and its strides say how it lies
  help     constant A is packed when compiled
  help     a local buffer with the layout, and a loop that copies"""):
            run(oc.parse(text))


def test_a_layout_of_a_large_window_that_moves_with_a_loop_is_refused() -> None:
    text = """\
size n in 0:9999
input A: float32[n, 8]
local L: float32[n, 8]
output C: float32[n, 8]
for i in 0:n
  alloc L[i +: i + 1, 0 +: 8] layout order(1, 0)
    for j in 0:8
      L[i, j] = A[i, j]
    for j in 0:8
      C[i, j] = L[i, j]
"""
    with (
        rejection("""\
PartitionError: compile: cannot lay the window of L out in order(1, 0)
  at       alloc L[i +: i + 1, 0 +: 8] layout order(1, 0)
  because  its extents move with a loop, or it stands in a tile, and so it lies in the whole array
  help     local L with the layout
  help     a window of extents that sizes give, or of at most 4096 elements along axes that move""")
    ):
        oc.compile(oc.parse(text))


@pytest.mark.parametrize(
    ("local", "window"),
    [(" @panels(0, 1, 4, 2, 2) bits(4)", ""), ("", " layout panels(0, 1, 4, 2, 2) bits(4)")],
)
def test_elements_that_share_bytes_are_refused_of_an_array_that_code_writes(
    local: str, window: str
) -> None:
    text = f"""\
size n in 0:99
input A: int8[8, 8]
local L: int8[8, 8]{local}
output C: int8[8, 8]
alloc L[0 +: 8, 0 +: 8]{window}
  for i in 0:8
    for j in 0:8
      L[i, j] = A[i, j]
  for i in 0:8
    for j in 0:8
      C[i, j] = L[i, j]
"""
    with rejection("""\
PartitionError: compile: cannot lay L out in panels(0, 1, 4, 2, 2) bits(4)
  at       local L: int8[8, 8]
  because  code writes whole bytes, and local arrays are written
  help     panels(0, 1, 4, 2, 2)"""):
        oc.compile(oc.parse(text))


SHORT = """\
program short
size n in 1:9
input A: int8[8*n, 16]
output C: int8[8*n, 16]
local L: int8[8*n, 16] @scope(accumulators)
for b in 0:n
  alloc L[8*b +: 7, 0 +: 16]
    tile i in 8*b +: 8, j in 0 +: 16
      L[i, j] = A[i, j]
    tile i in 8*b +: 8, j in 0 +: 16
      C[i, j] = L[i, j]
"""


@pytest.mark.parametrize("target", ["cpu", "vta", "gemmini"])
def test_a_window_that_is_a_row_short_is_refused_by_every_target(target: str) -> None:
    program = oc.parse(SHORT)
    with rejection("""\
PartitionError: compile: cannot compile short
  at       alloc L
  because  with n = 1, b = 0, i = 7, j = 0, element [7, 0], counted from where the window starts, \
lies outside of it
  help     a larger window, or L without alloc, which holds all of it"""):
        oc.compile(program, target=target)


def test_a_window_that_is_a_row_short_is_not_proved_equal_to_itself() -> None:
    program = oc.parse(SHORT)
    with pytest.raises(oc.PartitionError, match="lies outside of it"):
        oc.prove_equal(program, program)
    with pytest.raises(oc.PartitionError, match="lies outside of it"):
        oc.partition(program, tile={"b": 4}, tail="mask")
