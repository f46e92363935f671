"""The loops of a nest are those that its decisions make by hand: the same function applies them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import offcut as oc
from offcut.core.program import Cover, Stmt, Tile
from offcut.core.traversal import map_blocks
from offcut.schedule import create_schedule
from tests.agree import agree

K, COLUMNS = 24, 72
FMA = "fma_float32_avx512(i=i_in, j=j_in, p=k)"


def dense_and_relu() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """Return max(A W, 0), whose columns are no multiple of a tile."""
    n = oc.dim("n", min=1, max=64)
    A, W = oc.placeholder((n, K), name="A"), oc.placeholder((K, COLUMNS), name="W")
    k = oc.reduce_axis(K, "k")
    S = oc.compute((n, COLUMNS), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="S")
    return oc.compute((n, COLUMNS), lambda i, j: oc.maximum(S[i, j], 0.0), name="C"), [A, W]


def without_operands(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return statements whose covers name no operands: the judge names them, and a schedule by hand does not say them."""

    def change(stmt: Stmt) -> Stmt:
        inside = map_blocks(stmt, without_operands)
        if isinstance(inside, Tile) and inside.cover is not None:
            return replace(inside, cover=Cover(inside.cover.microkernel, inside.cover.axes))
        return inside

    return tuple(map(change, body))


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize("cover", [FMA, "vectors"])
@pytest.mark.parametrize("rows", ["ladder", "mask", "pad", "residue"])
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
@pytest.mark.parametrize("cover", [FMA, "vectors"])
@pytest.mark.parametrize(
    "levels", ["mask 28 then ladder 14", "mask 24 then mask 14", "pad 28 then balance 14"]
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
    w = rng.standard_normal((K, COLUMNS)).astype(np.float32)
    for n in (1, 13, 14, 15, 28, 29, 42, 43):
        a = rng.standard_normal((n, K)).astype(np.float32)
        sums, terms = a.astype("f8") @ w, abs(a).astype("f8") @ abs(w)
        agree(kernel(a, w), np.maximum(sums, 0), terms=terms, units=K)
