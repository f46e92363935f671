"""A text that names a microkernel of this machine is covered by it, or rejected with the question that fails."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import Microkernel
from tests.facade import Place, TileShape
from tests.toy_target import Toy

TEXT = """program t
size n in 0:64
input X: float32[4, n]
input Y: float32[n, 32]
output Z: float32[4, 32]
tile a in 0 +: 4, b in 0 +: 32  @cover({name}{said})
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
    with rejection(
        f"PartitionError: compile: cannot cover a tile by {name}\n  at       tile a, b\n  because  {because}\n"
        "  help     without @cover(…) it runs as vectors"
    ):
        oc.compile(oc.parse(TEXT.format(name=name, said=said, term=term)))


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


PRODUCT = """program t
size n in 0:64
input X: float32[4, {n}]
input Y: float32[{n}, 4]
output Z: float32[4, 4]
tile a in 0 +: 4, b in 0 +: 4  @cover({said})
  Z[a, b] = 0.0
  for c in 0:{n}
    Z[a, b] += {term}
"""
RIGHT = "X[a, c] * Y[c, b]"
MIXED = "moves: X[a, c] does not move as A[i, p] with i=b, j=a, p=c"


def instruction(name: str, extent: int, reset: str = "") -> Microkernel:
    A, B = oc.placeholder((extent, 8), name="A"), oc.placeholder((8, extent), name="B")
    p = oc.reduce_axis(8, name="p")
    C = oc.compute((extent, extent), lambda i, j: oc.sum(A[i, p] * B[p, j], axis=p), name="C")
    hardware = oc.hardware_intrinsic
    one = hardware(name)
    three = one, hardware(reset or "none"), hardware(f"{name}_add")
    return oc.decl_tensor_intrin(C, lambda _, __: three if reset else one)


class Scratch(Toy):
    """A target whose unit reads Y from a scratchpad."""

    own = Microkernel(
        "scratch",
        Toy.outer.computes,
        tuple(TileShape((rows, 4), 4.0, 4.0) for rows in (1, 2, 3, 4)),
        operands={"B": Place(memories=("pad",))},
    )

    def microkernels(self, options: object = None) -> tuple[Microkernel, ...]:
        return (self.own,)


@pytest.mark.parametrize("op", ["compile", "partition"])
@pytest.mark.parametrize(
    ("said", "term", "because"),
    [
        ("toy_outer; i=b, j=a, p=c; A=X, B=Y, C=Z", RIGHT, MIXED),
        (
            "toy_outer; i=a, j=b, p=c; A=Y, B=X",
            RIGHT,
            "moves: Y[c, b] does not move as A[i, p] with i=a, j=b, p=c",
        ),
        (
            "toy_outer; i=a, q=b; A=X",
            RIGHT,
            "term: toy_outer has no axis q: i, j, p",
        ),
        ("toy_outer", "X[a, c] + Y[c, b]", "term: X[a, c] + Y[c, b] is not what it sums"),
    ],
    ids=["an axis swapped", "operands swapped", "an axis that it has not", "another term"],
)
def test_covers_of_a_target_of_ones_own_are_judged(
    op: str, said: str, term: str, because: str
) -> None:
    door = oc.compile if op == "compile" else oc.partition
    with rejection(
        f"PartitionError: {op}: cannot cover a tile by toy_outer\n  at       tile a, b\n"
        f"  because  {because}\n  help     without @cover(…) it runs as loops"
    ):
        door(oc.parse(PRODUCT.format(n="n", said=said, term=term)), target=Toy())


def test_a_name_that_a_target_does_not_have_is_an_error() -> None:
    with rejection(
        "PartitionError: compile: cannot cover a tile by nobody\n  at       tile a, b\n  because  no microkernel of this machine, "
        "and no declared instruction, has that name\n  help     toy_outer\n"
        "  help     without @cover(nobody) it runs as loops"
    ):
        oc.compile(oc.parse(PRODUCT.format(n="n", said="nobody", term=RIGHT)), target=Toy())


def test_memories_are_asked_of_what_a_target_of_ones_own_lowers() -> None:
    text = PRODUCT.format(n="n", said="scratch", term=RIGHT)
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(oc.parse(text), target=Scratch())
    assert refused.value.because == "memory: Y lies in main memory, and scratch has B in pad"
    whole = "local P: float32[n, 4] @scope({memory})\nfor k in 0:n\n  for j in 0:4\n    P[k, j] = Y[k, j]\ntile"
    staged = text.replace("tile", whole).replace("Y[c, b]", "P[c, b]")
    said = staged.format(memory="elsewhere").replace(
        "@cover(scratch)", "@cover(scratch; i=a, j=b, p=c; B=P)"
    )
    with pytest.raises(oc.PartitionError, match="memory: P lies in elsewhere, and scratch has B"):
        oc.partition(oc.parse(said), target=Scratch())
    kernel = oc.compile(oc.parse(staged.format(memory="pad")), target=Scratch())
    assert "@cover(scratch; i=a, j=b, p=c; A=X, B=P, C=Z)" in kernel.source("loops")


@pytest.mark.parametrize("target", ["cpu", "interpret", "vta", "toy"])
def test_covers_by_declared_instructions_are_judged(target: str) -> None:
    instruction("declared_4", 4)
    for said, n, because in (
        ("declared_4; i=b, j=a, p=c; A=X", 8, MIXED),
        ("declared_4", 9, "extents: c is 9 long, and declared_4 takes 8"),
    ):
        text = oc.parse(PRODUCT.format(n=n, said=said, term=RIGHT))
        with rejection(
            "PartitionError: compile: cannot cover a tile by declared_4\n  at       tile a, b\n"
            f"  because  {because}\n  help     without @cover(…) it runs as loops"
        ):
            oc.compile(text, target=Toy() if target == "toy" else target)


def test_instructions_may_share_the_name_of_their_start() -> None:
    instruction("declared_of_4", 4, "from_zero")
    instruction("declared_of_2", 2, "from_zero")
    text = PRODUCT.format(n=8, said="declared_of_4", term=RIGHT).replace("  Z[a, b] = 0.0\n", "")
    start = "tile a in 0 +: 4, b in 0 +: 4  @cover(from_zero)\n  Z[a, b] = 0.0\ntile"
    text = text.replace("tile", start).replace("declared_of_4", "declared_of_4_add")
    x, y = np.ones((4, 8), "f4"), np.ones((8, 4), "f4")
    for target in ("cpu", "interpret", Toy()):
        np.testing.assert_array_equal(oc.compile(oc.parse(text), target=target)(x, y, n=1), x @ y)
    with pytest.raises(oc.PartitionError, match=r"extents: a is 3 long"):
        oc.partition(oc.parse(text.replace("tile a in 0 +: 4", "tile a in 0 +: 3", 1)))


def test_the_interpreter_says_which_names_it_does_not_check() -> None:
    kernel = oc.compile(
        oc.parse(PRODUCT.format(n="n", said="nobody", term=RIGHT)), target="interpret"
    )
    (note,) = (note for note in kernel.plan(n=5).notes if "nobody" in note)
    assert note == (
        "nobody stays a name, and is not checked: target='interpret' knows no microkernel of that name"
    )


def test_a_wrong_cover_of_the_machine_is_an_error_when_it_is_cut_further() -> None:
    text = TEXT.format(name=fma(), said="; i=b, j=a, p=c; A=X, B=Y, C=Z", term=RIGHT)
    with pytest.raises(oc.PartitionError, match="partition: cannot cover a tile by"):
        oc.partition(oc.parse(text))


def test_notes_say_why_a_microkernel_covers_nothing() -> None:
    n, p = oc.dim("n", max=64), oc.reduce_axis(64, name="p")
    A, B = oc.placeholder((n, 64), name="A"), oc.placeholder((64, 64), name="B")
    C = oc.compute((n, 64), lambda i, j: oc.sum(A[i, p] * B[p, j], axis=p), name="C")
    a, b = oc.placeholder((8, 16), name="A"), oc.placeholder((16, 8), name="B")
    q = oc.reduce_axis(16, name="q")
    block = oc.compute((8, 8), lambda i, j: oc.sum(a[i, q] * b[q, j], axis=q), name="C")
    warp = Microkernel("block_8", block, (TileShape((8, 8), 4.0, 4.0),), unit="warp")

    def notes(**tile: int) -> list[str]:
        made = oc.partition(C, tile=tile, microkernels=[warp])
        return [note for note in made.notes if "block_8" in note]

    assert notes() == ["block_8 covers nothing: no loop is cut into tiles"]
    assert notes(i=4, j=8) == [
        "tile i, j: block_8 does not cover it: extents: i is 4 long, and block_8 takes 8",
        "tile i, j: block_8 does not cover it: extents: i is 1 long, and block_8 takes 8",
    ]
