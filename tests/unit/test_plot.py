"""What a picture of a partition shows: the tiles that run, counted, and every point once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import offcut as oc
from offcut import Partition
from offcut.errors import CallError, OffcutError, PartitionError
from offcut.partition.show.plot import plot
from offcut.partition.show.tile_shapes import minus, outline, points, strips_of, tiles

n, m = oc.dim("n"), oc.dim("m")
k = oc.reduce_axis(16, "k")

TRIANGLE = """\
size n in 0:100000
inout C: float32[n, n]
for i in 0:n
  for j in 0:i + 1
    C[i, j] = C[i, j] * 2.0
"""
CONVOLUTION = """\
size n in 0:100
size m in 0:100
input X: float32[n, m]
input W: float32[3, 3]
output C: float32[n, m]
for i in 0:n
  for j in 0:m
    C[i, j] = 0.0
    for r in 0:3
      for s in 0:3
        C[i, j] += where(i + r >= 1 and i + r < n + 1 and j + s >= 1 and j + s < m + 1, \
X[i + r - 1, j + s - 1] * W[r, s], 0.0)
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
    a, b = oc.placeholder((n, 16), name="A"), oc.placeholder((16, m), name="B")
    product = oc.compute((n, m), lambda i, j: oc.sum(a[i, k] * b[k, j], axis=k), name="C")
    return oc.partition(product, tile=tile, tail=tail)


def parsed(text: str, tile: Mapping[str, Any], tail: Mapping[str, str] | str) -> Partition:
    return oc.partition(oc.parse(text), tile=tile, tail=tail)


def counted(
    partition: Partition, plane: Sequence[str], **sizes: int
) -> Counter[tuple[str, int, int]]:
    """How many tiles each role has, by their extents."""
    found: Counter[tuple[str, int, int]] = Counter()
    for piece in partition.pieces:
        for tile in tiles(piece, plane, sizes):
            top, bottom, left, right = tile.box
            found[piece.role, bottom - top, right - left] += tile.count
    return found


def met(partition: Partition, plane: Sequence[str], **sizes: int) -> Counter[tuple[int, int]]:
    """How many tiles want an instance at each point."""
    return Counter(
        (y, x)
        for piece in partition.pieces
        for tile in tiles(piece, plane, sizes)
        for top, bottom, left, right in tile.shape
        for y in range(top, bottom)
        for x in range(left, right)
    )


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize("tail", ["cut", "mask", "guard"])
def test_each_point_of_a_triangle_is_in_one_tile(tail: str) -> None:
    p = parsed(TRIANGLE, {"i": 4, "j": 4}, tail)
    for size in (0, 1, 3, 4, 5, 13):
        wanted = {(i, j): 1 for i in range(size) for j in range(i + 1)}
        assert met(p, ("i", "j"), n=size) == wanted
        assert met(p, ("j", "i"), n=size) == {(j, i): 1 for i, j in wanted}


def test_a_border_of_a_convolution_is_a_piece_of_its_own() -> None:
    p = parsed(CONVOLUTION, {"i": 4, "j": 8}, {"i": "cut", "j": "mask"})
    found = counted(p, ("i", "j"), n=11, m=19)
    assert found["body", 4, 8] == 4
    assert found["tail", 1, 8] == 2 * 2 + 2
    assert found["corner", 1, 1] == 6
    assert met(p, ("i", "j"), n=11, m=19) == {(i, j): 1 for i in range(11) for j in range(19)}


@pytest.mark.parametrize("tail", ["cut", "mask", "pad", "shift", "balance", "residue"])
def test_what_a_matmul_runs_covers_it(tail: str) -> None:
    p = matmul({"i": 4, "j": 8}, {"i": tail, "j": "pad"})
    for rows, columns in ((0, 3), (3, 8), (29, 70)):
        found = met(p, ("i", "j"), n=rows, m=columns)
        assert set(found) == {(i, j) for i in range(rows) for j in range(columns)}
        assert max(found.values(), default=1) == (2 if tail == "shift" and rows == 29 else 1)


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


def test_an_axis_that_is_cut_alone_is_drawn_with_the_next() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    (axes,) = matmul({"i": 4}, "cut").plot(n=9, m=9).axes
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("i", "j")
    (axes,) = parsed(TRIANGLE, {"j": 4}, "cut").plot(n=9).axes
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


def refused(call: Callable[[], Any], text: str, kind: type[OffcutError]) -> None:
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == text


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
        refused(
            lambda wanted=wanted: plot(p, None, {"n": 5}, wanted),  # type: ignore[misc]
            f"""\
plot: cannot draw the axes {", ".join(wanted) or "()"}
  because  a plane has one axis or two, each once, of a nest that is cut
  help     C has i, j""",
            PartitionError,
        )


@pytest.mark.slow
def test_a_size_at_which_each_of_too_many_tiles_has_its_own_shape_is_refused() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    refused(
        lambda: parsed(TRIANGLE, {"i": 4, "j": 4}, "cut").plot(n=3000),
        """\
plot: cannot draw at n = 3000
  because  more than 200,000 tiles, or rows of them, have a shape of their own
  help     a smaller size shows the same pieces""",
        CallError,
    )


def test_areas_are_sets_of_points() -> None:
    one, other = ((0, 4, 0, 4), (2, 6, 3, 8)), ((1, 3, 1, 2), (5, 9, 0, 5))

    def inside(area: Sequence[tuple[int, int, int, int]]) -> set[tuple[int, int]]:
        return {(y, x) for a, b, c, d in area for y in range(a, b) for x in range(c, d)}

    assert inside(strips_of(one)) == inside(one)
    assert points(strips_of(one)) == len(inside(one))
    assert inside(minus(one, other)) == inside(one) - inside(other)
    corners = Counter(point for line in outline(((0, 2, 0, 3), (2, 3, 0, 1))) for point in line)
    assert all(a <= b for a, b in pairwise(sorted(corners)))
    assert {(0, 0), (3, 0), (3, 2), (1, 2), (1, 3), (0, 3)} <= set(corners)
