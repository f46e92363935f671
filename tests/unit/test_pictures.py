"""What pictures and pieces count is what an enumeration of the emitted loops runs, for every kind of tile and condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from conftest import points

import offcut as oc
from offcut import Partition
from offcut.ir import Alloc, Choose, Expr, For, Form, If, Let, Stmt, Store, Tile
from offcut.partition.pieces import Piece
from offcut.partition.show.tile_shapes import tiles
from tests.facade import evaluate

T = 4
SIZES = (0, 1, T - 1, T, T + 1, 3 * T, 3 * T + 5)

HEAD = """\
size n in 0:100
size m in 0:100
input A: float32[n + m + 9, n + m + 9]
input X: float32[n + m + 9, 9]
inout C: float32[n + m + 9, n + m + 9]
inout D: float32[n + m + 9, n + m + 9]
"""
SET = "C[i, j] = A[i, j] * 2.0"
BODIES = {
    "a rectangle": f"for i in 0:n\n  for j in 0:m\n    {SET}",
    "a triangle": f"for i in 0:n\n  for j in 0:i + 1\n    {SET}".replace("m", "n"),
    "a triangle under an if": f"for i in 0:n\n  for j in 0:m\n    if j <= i\n      {SET}",
    "a triangle of several statements": "for i in 0:n\n  for j in 0:m\n    if j <= i\n      C[i, j] = A[i, j]\n      D[i, j] = C[i, j] * 2.0",
    "a band": f"for i in 0:n\n  for j in max(0, i - 2):min(m, i + 3)\n    {SET}",
    "a band under an if": f"for i in 0:n\n  for j in 0:m\n    if i - 2 <= j and j < i + 3\n      {SET}",
    "a hole": f"for i in 0:n\n  for j in 0:m\n    if i < 3 or j >= 5\n      {SET}",
    "both sides of an if": "for i in 0:n\n  for j in 0:m\n    if j < i\n      C[i, j] = A[i, j]\n    else\n      C[i, j] = 1.0",
    "one statement of two under an if": f"for i in 0:n\n  for j in 0:m\n    D[i, j] = 1.0\n    if j <= i\n      {SET}",
    "every other column": f"for i in 0:n\n  for j in 0:m\n    if j % 2 == 0\n      {SET}",
    "a sum whose terms are few": "for i in 0:n\n  for j in 0:m\n    for k in 0:9\n      if k + j <= i\n        C[i, j] += X[i, k]",
    "a sum after its start": "for i in 0:n\n  for j in 0:m\n    C[i, j] = 0.0\n    for k in 0:9\n      if k < i\n        C[i, j] += X[i, k]",
    "a sum of as many terms as rows": "for i in 0:n\n  for j in 0:m\n    for k in 0:n\n      C[i, j] += A[k, j]",
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


FAST = [
    ("a triangle under an if", "cut", 1),
    ("a triangle under an if", "guard", None),
    ("a triangle of several statements", "mask", 1),
    ("a triangle", "guard", None),
    ("a band", "mask", None),
    ("a hole", "shift", 1),
    ("both sides of an if", "guard of rows", 1),
    ("one statement of two under an if", "balance", 1),
    ("a sum whose terms are few", "pad", 1),
    ("a sum after its start", "mask", 1),
    ("a rectangle", "pad", None),
    ("every other column", "even", 1),
]


@pytest.mark.every(4)
@pytest.mark.parametrize(("body", "tail", "copies"), FAST)
def test_what_a_piece_and_its_picture_count_is_what_runs(
    body: str, tail: str, copies: int | None
) -> None:
    p = made(body, tail, copies)
    for n, m in ((0, 5), (1, 3), (5, 4), (17, 12)):
        check(p, {"n": n, "m": m})


@pytest.mark.slow
@pytest.mark.parametrize("copies", [None, 1])
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("body", BODIES)
def test_each_piece_counts_what_runs(body: str, tail: str, copies: int | None) -> None:
    p = made(body, tail, copies)
    for n, m in zip(SIZES, (3, 13) * len(SIZES), strict=False):
        check(p, {"n": n, "m": m})


@pytest.mark.parametrize("tail", ["cut", "mask", "guard"])
def test_the_title_counts_the_instances_of_statements_under_an_if(tail: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    p = partition("a triangle of several statements", tail, copies=1)
    (axes, other) = (*p.plot(n=40, m=48).axes, None)[:2]
    title = axes.get_title("left")
    assert title == "D over i in 0:40, j in 0:40: 820 points, 820 run (1 ×)" or title == (
        "C over i in 0:40, j in 0:40: 820 points, 820 run (1 ×)"
    )
    assert other is None
    shares = [text.get_text() for text in axes.get_legend().get_texts()]
    assert any(share.endswith(" %") for share in shares)


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
