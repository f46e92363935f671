"""A microkernel is recognised by where its operands move, never by a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import offcut as oc
from offcut.core.panels import panels
from offcut.core.program import Cover, Tile, walk
from offcut.core.sizes import dim
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, computation
from offcut.describe.microkernel import Microkernel
from offcut.describe.tile_shapes import Place, TileShape
from offcut.partition import BEFORE_STAGING, Coverage, Match, all_matches, cover
from offcut.schedule import cut


def outer_product(name: str = "outer", op: Callable[..., Any] = oc.sum) -> Microkernel:
    """``C[r, c] += X[r, d] * Y[d, c]``, up to 4 rows, 8 columns, or 2 rows and 16."""
    rows, columns, depth = dim("rows", min=1, max=4), dim("columns", min=1, max=16), dim("d")
    X, Y = oc.placeholder((rows, depth), name="X"), oc.placeholder((depth, columns), name="Y")
    d = oc.reduce_axis(depth, "d")
    Z = oc.compute((rows, columns), lambda r, c: op(X[r, d] * Y[d, c], axis=d), name="Z")
    tiles = (
        *(TileShape((rows, 8), 1.0, 4.0) for rows in (1, 2, 3, 4)),
        TileShape((2, 16), 1.0, 4.0),
    )
    return Microkernel(
        name, Z, tiles, predicates=frozenset({"c"}), operands={"Y": Place(layout=panels(8))}
    )


KERNEL = outer_product()
n, m, p, b = dim("n", max=64), dim("m", max=64), dim("p", max=64), dim("batch", max=64)


def described(
    A: tuple[Any, ...], B: tuple[Any, ...], C: tuple[Any, ...], term: Callable[..., Any], **how: Any
) -> Computation:
    """``C[axes] = reduce over k of term(A, B, *axes, k)``."""
    left, right = oc.placeholder(A, name="A"), oc.placeholder(B, name="B")
    k = oc.reduce_axis(how.pop("depth", p), "k")
    reduce = how.pop("reduce", oc.sum)
    axes = "bij"[-len(C) :] if C else ()
    result = oc.compute(C, lambda *ix: reduce(term(left, right, *ix, k), axis=k), axes=axes)
    return computation([result])


def matched(c: Computation, kernel: Microkernel = KERNEL) -> Match | None:
    return next(all_matches(c.groups[0][0], [kernel]), None)


def summary(found: Match | None) -> str | None:
    if found is None:
        return None
    loads = ", ".join(f"{name} = {format_expr(load)}" for name, load in found.operands)
    return f"rows {found.rows}, columns {found.columns}, depth {found.depth}: {loads}"


MATRICES = (n, p), (p, m), (n, m)
RECOGNISED = {  # shapes of A, B and the result; a term of an instance; the operands that it has
    "commuted": (MATRICES, lambda A, B, i, j, k: B[k, j] * A[i, k], "rows i, columns j, depth k: X = A[i, k], Y = B[k, j]"),
    "transposed": (
        ((p, n), (m, p), (n, m)), lambda A, B, i, j, k: A[k, i] * B[j, k], "rows i, columns j, depth k: X = A[k, i], Y = B[j, k]"
    ),
    "operands swapped": (
        ((m, p), (p, n), (n, m)), lambda A, B, i, j, k: A[j, k] * B[k, i], "rows i, columns j, depth k: X = B[k, i], Y = A[j, k]"
    ),
    "shared B": (
        ((b, n, p), (p, m), (b, n, m)), lambda A, B, b, i, j, k: A[b, i, k] * B[k, j],
        "rows i, columns j, depth k: X = A[b, i, k], Y = B[k, j]",
    ),
    "rows outermost": (
        ((b, p), (p, n, m), (b, n, m)), lambda A, B, b, i, j, k: A[b, k] * B[k, i, j],
        "rows b, columns j, depth k: X = A[b, k], Y = B[k, i, j]",
    ),
    "matrix-vector": (
        ((n, p), (p,), (n,)), lambda A, B, j, k: A[j, k] * B[k], "rows None, columns j, depth k: X = B[k], Y = A[j, k]"
    ),
    "dot": (((p,), (p,), ()), lambda A, B, k: A[k] * B[k], "rows None, columns None, depth k: X = A[k], Y = B[k]"),
    "a sum": (MATRICES, lambda A, B, i, j, k: A[i, k] + B[k, j], None),
    "three factors": (MATRICES, lambda A, B, i, j, k: A[i, k] * B[k, j] * 2.0, None),
    "one operand": (MATRICES, lambda A, B, i, j, k: A[i, k], None),
}  # fmt: skip


@pytest.mark.parametrize("what", RECOGNISED)
def test_a_contraction_is_recognised_by_its_accesses_and_nothing_else_is_one(what: str) -> None:
    shapes, term, wanted = RECOGNISED[what]
    assert summary(matched(described(*shapes, term))) == wanted


def test_another_reducer_and_a_depth_that_is_not_affine_are_not_covered() -> None:
    greatest = described(*MATRICES, lambda A, B, i, j, k: A[i, k] * B[k, j], reduce=oc.max)
    halves = ((n, n), (n, m), (n, m)), lambda A, B, i, j, k: A[i, k // 2] * B[k, j]
    assert matched(greatest) is matched(described(*halves[0], halves[1], depth=n)) is None


def test_microkernels_are_tried_in_their_order() -> None:
    lead = described((n, p), (p, m), (n, m), lambda A, B, i, j, k: A[i, k] * B[k, j]).groups[0][0]
    kernels = [outer_product("greatest", oc.max), outer_product("one"), outer_product("two")]
    found = [one.microkernel.name for one in all_matches(lead, kernels)]
    assert found == sorted(found)
    assert set(found) == {"one", "two"}
    assert not list(all_matches(lead, []))
    offered = list(map(summary, all_matches(lead, [KERNEL])))
    assert offered[0] == "rows i, columns j, depth k: X = A[i, k], Y = B[k, j]"
    assert "rows j, columns i, depth k: X = B[k, j], Y = A[i, k]" in offered


PRODUCT = """program product
size n in 0:64
input A: float32[64, n]
input B: float32[n, 64]
output C: float32[64, 64]
tile i in 0 +: 4, j in 0 +: 8{where}
  C[i, j] = 0.0
  for k in 0:n
    C[i, j] += A[i, k] * B[k, j]
"""


def covered(heights: dict[str, tuple[int, int]], masked: str = "") -> bool:
    where = f" where {masked} < n  @mask" if masked else ""
    program = oc.parse(PRODUCT.format(where=where))
    (tile,) = (stmt for stmt in walk(program.body) if isinstance(stmt, Tile))
    wanted = Cover("outer", (("r", "i"), ("c", "j"), ("d", "k")))
    found = cover(tile, program, KERNEL, wanted, heights=heights, undecided=BEFORE_STAGING)
    return isinstance(found, Coverage)


def test_a_way_covers_a_tile_where_one_register_tile_holds_it_at_every_height() -> None:
    assert covered({"i": (1, 4), "j": (8, 8)})
    assert covered({"i": (2, 2), "j": (16, 16)})
    assert not covered({"i": (1, 5), "j": (8, 8)})
    assert not covered({"i": (1, 2), "j": (16, 16)})
    assert not covered({"i": (4, 4), "j": (16, 16)})
    assert covered({"i": (4, 4), "j": (8, 8)}, "j")
    assert not covered({"i": (4, 4), "j": (8, 8)}, "i"), "no predicate along it"
    lead = described(*MATRICES, lambda A, B, i, j, k: A[i, k] * B[k, j])
    tiles = [*walk(cut(lead, {"i": 5, "j": 8}, "cut", [KERNEL]).loops.body)]
    assert {one.microkernel for one in tiles if isinstance(one, Tile)} == {"outer"}, "too tall"
