"""A text that names a microkernel of this machine is covered by it, or rejected with the question that fails."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc

TEXT = """program t
size n in 0:64
input X: float32[8, n]
input Y: float32[n, 32]
output Z: float32[8, 32]
tile a in 0 +: 8, b in 0 +: 32  @cover({name}{said})
  Z[a, b] = 0.0
  for c in 0:n
    Z[a, b] += {term}
"""


def fma() -> str:
    return next(k.name for k in oc.target("cpu").microkernels() if "float32" in k.name)


@pytest.mark.parametrize(
    ("said", "term", "because"),
    [
        (
            "; i=b, j=a, p=c; A=X, B=Y, C=Z",
            "X[a, c] * Y[c, b]",
            "moves: X[a, c] does not move as A[i, p] with i=b, j=a, p=c",
        ),
        ("", "X[a, c] + Y[c, b]", "term: X[a, c] + Y[c, b] is not what it sums"),
    ],
    ids=["an axis swapped", "another term"],
)
def test_a_cover_that_is_wrong_is_an_error(said: str, term: str, because: str) -> None:
    name = fma()
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(oc.parse(TEXT.format(name=name, said=said, term=term)))
    assert str(refused.value) == (
        f"compile: cannot cover a tile by {name}\n  at       tile a, b\n  because  {because}\n"
        "  help     without @cover(…) it runs as vectors"
    )


def test_a_cover_that_is_right_is_called() -> None:
    said = "; i=a, j=b, p=c; A=X, B=Y, C=Z"
    kernel = oc.compile(oc.parse(TEXT.format(name=fma(), said=said, term="X[a, c] * Y[c, b]")))
    assert not [note for note in kernel.plan(n=5).notes if fma() in note]


EDGES = """program edges
size n in 0:64
input X: float32[{rows}, n]
input Y: float32[n, {total}]
local P: float32[n, {columns}]{layout}
output Z: float32[{rows}, {total}]
for c in 0:n
  for b in 0:{columns}
    P[c, b] = Y[c, b]
for a in 0:{rows}
  for b in 0:{total}
    Z[a, b] = 7.0
tile a in 0 +: {rows}, b in 0 +: {columns}  @cover({name})
  Z[a, b] = 0.0
  for c in 0:n
    Z[a, b] += X[a, c] * P[c, b]
"""


@pytest.mark.parametrize("more", [0, 1], ids=["", "one too many"])
@pytest.mark.parametrize("layout", ["", " @digits(p: 1//{w}, k: 0, lane: 1%{w})"])
def test_an_extent_one_too_many_runs_right_along_rows_and_columns(more: int, layout: str) -> None:
    kernel = next(k for k in oc.target("cpu").microkernels() if "float32" in k.name)
    rows = max(tile.rows for tile in kernel.tiles) + more
    columns = max(tile.columns for tile in kernel.tiles) + more
    edges = EDGES.format(
        rows=rows,
        columns=columns,
        total=99 + columns,
        name=kernel.name,
        layout=layout.format(w=kernel.panel),
    )
    compiled = oc.compile(oc.parse(edges))
    assert not [note for note in compiled.plan(n=5).notes if kernel.name in note]
    random = np.random.default_rng(0)
    for n in (0, 1, 63):
        x, y = (random.integers(-4, 5, s).astype("f4") for s in ((rows, n), (n, 99 + columns)))
        wanted = np.full((rows, 99 + columns), 7, "f4")
        wanted[:, :columns] = x @ y[:, :columns]
        np.testing.assert_array_equal(compiled(x, y), wanted)


def test_a_layout_off_is_an_error() -> None:
    edges = EDGES.format(rows=4, columns=32, total=40, name=fma(), layout=" @order(1, 0)")
    with pytest.raises(oc.PartitionError, match=r"layout: P\[c, b\] is not packed as it reads it"):
        oc.compile(oc.parse(edges))
