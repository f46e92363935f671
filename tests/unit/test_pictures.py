"""What pictures and pieces count is what an enumeration of the emitted loops runs, for every kind of tile and condition. What is drawn says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from conftest import points, rejection, slow

import offcut as oc
from offcut import Partition
from offcut.ir import Alloc, Choose, Expr, For, Form, If, Let, Stmt, Store, Tile
from offcut.partition.pieces import Piece
from offcut.partition.show.plot import plot
from offcut.partition.show.tile_shapes import minus, outline, strips_of, tiles
from offcut.partition.show.tile_shapes import points as points_of
from tests.facade import evaluate

T = 4

HEAD = """\
size n in 0:100
size m in 0:100
input A: float32[n + m + 9, n + m + 9]
input X: float32[n + m + 9, 9]
inout C: float32[n + m + 9, n + m + 9]
inout D: float32[n + m + 9, n + m + 9]
"""
SET = "C[i, j] = A[i, j] * 2.0"
ROWS = "for i in 0:n\n  for j in 0:m\n    "
BODIES = {
    "a rectangle": f"{ROWS}{SET}",
    "a triangle": f"for i in 0:n\n  for j in 0:i + 1\n    {SET}".replace("m", "n"),
    "a triangle under an if": f"{ROWS}if j <= i\n      {SET}",
    "a triangle of several statements": f"{ROWS}if j <= i\n      C[i, j] = A[i, j]\n      D[i, j] = C[i, j] * 2.0",
    "a band": f"for i in 0:n\n  for j in max(0, i - 2):min(m, i + 3)\n    {SET}",
    "a band under an if": f"{ROWS}if i - 2 <= j and j < i + 3\n      {SET}",
    "a hole": f"{ROWS}if i < 3 or j >= 5\n      {SET}",
    "both sides of an if": f"{ROWS}if j < i\n      C[i, j] = A[i, j]\n    else\n      C[i, j] = 1.0",
    "one statement of two under an if": f"{ROWS}D[i, j] = 1.0\n    if j <= i\n      {SET}",
    "every other column": f"{ROWS}if j % 2 == 0\n      {SET}",
    "a sum whose terms are few": f"{ROWS}for k in 0:9\n      if k + j <= i\n        C[i, j] += X[i, k]",
    "a sum after its start": f"{ROWS}C[i, j] = 0.0\n    for k in 0:9\n      if k < i\n        C[i, j] += X[i, k]",
    "a sum of as many terms as rows": f"{ROWS}for k in 0:n\n      C[i, j] += A[k, j]",
}
TAILS: dict[str, Any] = {
    "cut": "cut",
    "mask": "mask",
    "guard": "guard",
    "guard of rows": {"i": "guard", "j": "ladder"},
    "shift": {"i": "cut", "j": "shift"},
    "balance": "balance",
    "even": {"i": "even", "j": "mask"},
    "pad": {"i": "cut", "j": "pad"},
}


@dataclass(frozen=True)
class Ran:
    """An instance of a statement; `kept`: its result is."""

    leaf: int
    store: Store
    at: Mapping[str, int]
    kept: bool


def enumerated(partition: Partition, sizes: Mapping[str, int]) -> Iterator[Ran]:
    """Every instance that the emitted loops run, statement by statement, by their text alone."""
    leaves = {id(piece.path[-1]): number for number, piece in enumerate(partition.pieces)}
    iterators = {name for piece in partition.pieces for name in piece.iterators}

    def value(expr: Expr, env: Mapping[str, int]) -> int:
        return int(evaluate(expr, {**sizes, **env}))

    def block(body: tuple[Stmt, ...], env: dict[str, int], leaf: int, kept: bool) -> Iterator[Ran]:
        for stmt in body:
            inner = leaves.get(id(stmt), leaf)
            match stmt:
                case Store():
                    at = {name: x for name, x in env.items() if name in iterators}
                    yield Ran(inner, stmt, at, kept)
                case For(name, lo, hi):
                    for x in range(value(lo, env), value(hi, env)):
                        yield from block(stmt.body, {**env, name: x}, inner, kept)
                case If(condition, then, other):
                    holds = bool(value(condition, env))
                    yield from block(then if holds else other, env, inner, kept)
                case Let(name, _, _, given):
                    yield from block(stmt.body, {**env, name: value(given, env)}, inner, kept)
                case Tile(axes, inside, where, form):
                    ranges = [
                        range(value(a.start, env), value(a.start, env) + value(a.extent, env))
                        for a in axes
                    ]
                    for point in product(*ranges):
                        here = {**env, **dict(zip((a.iter for a in axes), point, strict=True))}
                        on = where is None or bool(value(where, here))
                        if on or form is Form.PAD:
                            yield from block(inside, here, inner, kept and on)
                case Alloc():
                    yield from block(stmt.body, env, inner, kept)
                case Choose(options):
                    costs = [float(evaluate(option.cost, {**sizes, **env})) for option in options]
                    best = options[costs.index(min(costs))]
                    yield from block(best.body, env, inner, kept)

    return block(partition.loops.body, {}, -1, True)


def partition(body: str, tail: Any, **options: Any) -> Partition:
    return oc.partition(oc.parse(HEAD + BODIES[body]), tile={"i": T, "j": T}, tail=tail, **options)


def made(body: str, tail: str, copies: int | None) -> Partition:
    """A partition, or a skip where a strategy is not for these rows."""
    options = {} if copies is None else {"copies": copies}
    try:
        return partition(body, TAILS[tail], **options)
    except oc.PartitionError as refused:
        assert tail not in ("cut", "mask", "guard")  # which are for all rows and orders
        pytest.skip(str(refused).splitlines()[0])


def drawn(piece: Piece, sizes: Mapping[str, int], kept: bool) -> Counter[tuple[int, int]]:
    """The points of the plane of i and j, by how many tiles of a piece have them."""
    return Counter(
        (y, x)
        for tile in tiles(piece, ("i", "j"), sizes, wanted_only=kept)
        for top, bottom, left, right in tile.shape
        for y in range(top, bottom)
        for x in range(left, right)
    )


def check(p: Partition, sizes: Mapping[str, int]) -> None:
    """Sets and shapes of every piece against the enumeration of its instances."""
    ran = list(enumerated(p, sizes))
    owners: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for number, piece in enumerate(p.pieces):
        mine = [one for one in ran if one.leaf == number]
        lead = [one for one in mine if one.store is piece.store]
        at = [tuple(one.at[name] for name in piece.names) for one in lead]
        given = tuple(sizes[size.name] for size in piece.space.sizes)
        executed, owned = (set(points(area, *given)) for area in (piece.executed, piece.owned))
        assert executed == set(at), piece
        kept = {place for place, one in zip(at, lead, strict=True) if one.kept}
        assert owned <= kept, piece
        if not any(segment.form is Form.SHIFT for _, segment in piece.segments):
            assert owned == kept, piece
        owners.update((id(piece.store.buffer), place) for place in owned)
        plane = {(one.at["i"], one.at["j"]) for one in mine if {"i", "j"} <= set(one.at)}
        wanted = {
            (one.at["i"], one.at["j"]) for one in mine if one.kept and {"i", "j"} <= set(one.at)
        }
        assert set(drawn(piece, sizes, kept=False)) == plane, piece
        assert set(drawn(piece, sizes, kept=True)) == wanted, piece


FAST: dict[str, list[tuple[str, int | None]]] = {
    "a triangle": [("guard", None)],
    "a triangle under an if": [("cut", 1), ("guard", None)],
    "a triangle of several statements": [("mask", 1)],
    "a band": [("mask", None)],
    "a hole": [("shift", 1)],
    "both sides of an if": [("guard of rows", 1)],
    "one statement of two under an if": [("balance", 1)],
    "a sum whose terms are few": [("pad", 1)],
    "a sum after its start": [("mask", 1)],
    "a rectangle": [("pad", None)],
    "every other column": [("even", 1)],
}


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("body", "tail", "copies"),
    [
        one if one[1:] in FAST.get(body, ()) else slow(*one)
        for body in BODIES
        for tail in TAILS
        for one in ((body, tail, None), (body, tail, 1))
    ],
)
def test_what_a_piece_and_its_picture_count_is_what_runs(
    body: str, tail: str, copies: int | None
) -> None:
    p = made(body, tail, copies)
    for n, m in ((0, 5), (1, 3), (3, 13), (5, 4), (17, 12)):
        check(p, {"n": n, "m": m})


def test_a_notebook_shows_what_plot_returns_as_a_picture() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    figure: Any = partition("a triangle", "cut").plot(n=9, m=9)
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_notebook_shows_each_piece_by_columns() -> None:
    shown = partition("a rectangle", {"i": "cut", "j": "mask"})._repr_html_()
    head, *rows = shown.split("</tr>")[:-1]
    assert head.count("<th>") == 5
    assert "<th>i</th><th>j</th><th>microkernel</th>" in head
    assert all(row.count("<td>") == 5 for row in rows)
    assert "<td>body by 4</td>" in shown
    assert "<pre>program" in shown


def test_a_loop_over_data_is_no_axis_of_a_picture() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    rows = oc.parse(
        """\
size n in 0:1000
size z in 0:1000
input first: int32[n + 1]
input values: float32[z]
output y: float32[n]
for i in 0:n
  y[i] = 0.0
  for q in index(first[i]):index(first[i + 1])
    if q < z
      y[i] += values[q]
"""
    )
    (axes,) = oc.partition(rows, tile={"i": 8}, tail="mask").plot(n=29, z=40).axes
    assert axes.get_title("left") == "y over i in 0:29: 29 points, 29 run (1 ×)"


# What is drawn, and what it says.


N, M = oc.dim("n"), oc.dim("m")
k = oc.reduce_axis(16, "k")

TRIANGLE = """\
size n in 0:100000
inout C: float32[n, n]
for i in 0:n
  for j in 0:i + 1
    C[i, j] = C[i, j] * 2.0
"""
POOL = """\
input A: float32[16]
output C: float32[16]
for ow in 0:16
  C[ow] = -inf
  for kw in 0:3
    if ow >= 1 and ow <= 14
      C[ow] max= A[ow + kw - 1]
"""
ELIMINATION = """\
size n in 0:100
inout C: float32[n, n]
for k in 0:n
  for i in k + 1:n
    for j in k + 1:n
      C[i, j] = C[i, j] - C[i, k] * C[k, j]
"""


def matmul(tile: Mapping[str, Any], tail: Mapping[str, str] | str) -> Partition:
    a, b = oc.placeholder((N, 16), name="A"), oc.placeholder((16, M), name="B")
    product = oc.compute((N, M), lambda i, j: oc.sum(a[i, k] * b[k, j], axis=k), name="C")
    return oc.partition(product, tile=tile, tail=tail)


def parsed(text: str, tile: Mapping[str, Any], tail: Mapping[str, str] | str) -> Partition:
    return oc.partition(oc.parse(text), tile=tile, tail=tail)


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_tiles_of_two_levels_lie_in_larger_ones() -> None:
    p = matmul({"i": (8, 4), "j": (16, 8)}, "cut")
    found = [tile for piece in p.pieces for tile in tiles(piece, ("i", "j"), {"n": 29, "m": 70})]
    inner = [tile for tile in found if tile.outer == ((8, 16), (32, 48))]
    assert [tile.box for tile in inner] == [(y, y + 4, x, x + 8) for y in (8, 12) for x in (32, 40)]


def test_a_pool_in_one_dimension_is_a_strip(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    (axes,) = plot(parsed(POOL, {"ow": 4}, "cut"), tmp_path / "pool.svg", {}).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ow", "")
    assert axes.get_title("left") == "C over ow in 0:16: 16 points, 16 run (1 ×)"
    assert legend(axes) == ["tail 1: loops, 25 %", "body 4: loops, 75 %"]
    assert (tmp_path / "pool.svg").stat().st_size > 1000


def test_a_shift_repeats_what_another_piece_owns() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    p = matmul({"i": 4, "j": 8}, {"i": "shift", "j": "cut"})
    (axes,) = p.plot(n=29, m=64).axes
    assert axes.get_title("left") == (
        "C over i in 0:29, j in 0:64: 1,856 points, 2,048 run (1.1 ×)"
    )
    assert [label.rpartition(", ")[2] for label in legend(axes)[:-1]] == ["96.6 %", "3.45 %"]
    assert legend(axes)[-1] == "executed, not owned"


def test_a_loop_further_out_that_moves_the_tiles_is_drawn_at_its_first_iteration() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    p = parsed(ELIMINATION, {"i": 4, "j": 4}, "cut")
    (axes,) = p.plot(n=10).axes
    assert axes.get_title("left") == "C over i in 1:10, j in 1:10 at k = 0: 81 points, 81 run (1 ×)"


def test_the_plane_may_be_asked_for() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    p = matmul({"i": 4, "j": 8, "k": 5}, "cut")
    (axes,) = plot(p, None, {"n": 9, "m": 9}, ("k", "i")).axes
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("k (reduced)", "i")
    (strip,) = plot(p, None, {"n": 9, "m": 9}, ("j",)).axes
    assert (strip.get_ylabel(), strip.get_xlabel()) == ("", "j")
    (axes,) = parsed(TRIANGLE, {"j": 4}, "cut").plot(n=9).axes  # drawn with the next
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("i", "j")


def test_many_tiles_are_drawn_as_one() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    p = matmul({"i": 4, "j": 8}, "cut")
    found = [
        tile for piece in p.pieces for tile in tiles(piece, ("i", "j"), {"n": 2003, "m": 2001})
    ]
    assert len(found) == 1 + 500 + 3 * 250 + 3
    assert found[0].box == (0, 2000, 0, 2000)
    assert (found[0].count, found[0].extents) == (500 * 250, ((4,), (8,)))
    (axes,) = p.plot(n=2003, m=2001).axes
    assert legend(axes)[0].startswith("body 4 × 8: ")


def test_what_clears_and_what_adds_to_the_same_points_are_drawn_apart() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    text = """\
size n in 0:100
input A: float32[n, n]
output C: float32[n]
for i in 0:n
  C[i] = 0.0
for i in 0:n
  for j in 0:n
    C[i] += A[i, j]
"""
    figure = parsed(text, {"C.i": 4}, "cut").plot(n=9)
    assert [axes.get_title("left").partition(":")[0] for axes in figure.axes] == [
        "C = over i in 0",
        "C += over i in 0",
    ]
    assert [axes.get_xlabel() for axes in figure.axes] == ["i", "j (reduced)"]


def test_axes_that_no_nest_has_are_refused() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    p = parsed(TRIANGLE, {"i": 4}, "cut")
    for wanted in (("i", "z"), ("i", "i"), ()):
        with rejection(f"""\
PartitionError: plot: cannot draw the axes {", ".join(wanted) or "()"}
  because  a plane has one axis or two, each once, of a nest that is cut
  help     C has i, j"""):
            plot(p, None, {"n": 5}, wanted)


@pytest.mark.slow
def test_a_size_at_which_each_of_too_many_tiles_has_its_own_shape_is_refused() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    with rejection("""\
CallError: plot: cannot draw at n = 3000
  because  more than 200,000 tiles, or rows of them, have a shape of their own
  help     a smaller size shows the same pieces"""):
        parsed(TRIANGLE, {"i": 4, "j": 4}, "cut").plot(n=3000)


def test_areas_are_sets_of_points() -> None:
    one, other = ((0, 4, 0, 4), (2, 6, 3, 8)), ((1, 3, 1, 2), (5, 9, 0, 5))

    def inside(area: Sequence[tuple[int, int, int, int]]) -> set[tuple[int, int]]:
        return {(y, x) for a, b, c, d in area for y in range(a, b) for x in range(c, d)}

    assert inside(strips_of(one)) == inside(one)
    assert points_of(strips_of(one)) == len(inside(one))
    assert inside(minus(one, other)) == inside(one) - inside(other)
    corners = Counter(point for line in outline(((0, 2, 0, 3), (2, 3, 0, 1))) for point in line)
    assert all(a <= b for a, b in pairwise(sorted(corners)))
    assert {(0, 0), (3, 0), (3, 2), (1, 2), (1, 3), (0, 3)} <= set(corners)
