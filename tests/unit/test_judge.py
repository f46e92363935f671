"""A microkernel is recognised by where its operands move, never by a name; of a cover planted wrong the first question that fails is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut.backends.gpu import instructions
from offcut.core.panels import panels
from offcut.core.program import Cover, Tile, walk
from offcut.core.sizes import dim
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, computation
from offcut.describe.microkernel import Microkernel
from offcut.describe.tile_shapes import Place, TileShape, multiples
from offcut.partition import (
    BEFORE_STAGING,
    Coverage,
    Match,
    Refusal,
    all_matches,
    cover,
    with_covers,
)
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
RECOGNISED: dict[str, Any] = {  # shapes of A, B and the result; a term of an instance; the operands that it has
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


# Covers planted wrong: the judge names the first question that fails; a warp's product runs inside a loop over k.


def product(scratchpad: bool = False, **changed: Any) -> Microkernel:
    """``C[i, j] = sum over p of A[i, p] * B[p, j]``, 4 × 8, any p."""
    k = oc.dim("k")
    A, B = oc.placeholder((4, k), name="A"), oc.placeholder((k, 8), name="B")
    p = oc.reduce_axis(k, "p")
    C = oc.compute((4, 8), lambda i, j: oc.sum(A[i, p] * B[p, j], axis=p), name="C")
    places = {"A": Place(beside="p"), "B": Place(beside="j"), "C": Place(beside="j")}
    if scratchpad:
        places["B"] = Place(memories=("shared",), layout=panels(8), beside="j", by="descriptor")
    return Microkernel("mine", C, (TileShape((4, 8), 4.0, 4.0),), operands=places, **changed)


def conv_rows() -> Microkernel:
    """``C[x, o] = sum over r, p of A[x + r, p] * B[r, p, o]``: two reduction axes, and a stencil."""
    x, q = oc.dim("x", min=1, max=8), oc.dim("q")
    A, B = oc.placeholder((x + 2, q), name="A"), oc.placeholder((3, q, 8), name="B")
    r, p = oc.reduce_axis(3, "r"), oc.reduce_axis(q, "p")
    C = oc.compute((x, 8), lambda x, o: oc.sum(A[x + r, p] * B[r, p, o], axis=(r, p)), name="C")
    tiles = tuple(TileShape((rows, 8), 8.0, 4.0) for rows in range(1, 9))
    return Microkernel("conv_rows", C, tiles, bounds={"r": 3, "p": multiples(4)})


TEXT = """program t
size n in 0:64
input X: float32[4, n]
input Y: float32[n, 8]
local S: float32[n, 8]
output Z: float32[4, 8]
{outer}tile a in 0 +: 4, b in 0 +: {columns}{mark}  @cover(mine{said})
  Z[a, b] = {start}
  for c in 0:n
    Z[a, b] {op} {term}
"""
GOOD = {
    "outer": "",
    "columns": "8",
    "mark": "",
    "said": "",
    "start": "0.0",
    "op": "+=",
    "term": "X[a, c] * Y[c, b]",
}
FAULTS: dict[str, tuple[dict[str, str], Microkernel, str]] = {
    "another type": ({"dtype": "float64"}, product(), "term"),
    "an axis swapped": ({"said": "; i=b, j=a, p=c; A=X, B=Y, C=Z"}, product(), "moves"),
    "operands swapped": ({"said": "; i=a, j=b, p=c; A=Y, B=X, C=Z"}, product(), "moves"),
    "another result": ({"said": "; i=a, j=b, p=c; A=X, B=Y, C=S"}, product(), "moves"),
    "an axis that it has not": ({"said": "; q=a; A=X"}, product(), "term"),
    "a start lost": ({"start": "1.0"}, product(accumulate="fresh"), "start"),
    "no reset": ({}, product(accumulate="adds"), "start"),
    "a layout off": (
        {"term": "X[a, c] * S[c, b]"},
        product(scratchpad=True, unit="matrix"),
        "memory",
    ),
    "an operand transposed": ({"term": "X[a, c] * Y[b, c]"}, product(), "layout"),
    "a wrong reducer": ({"op": "max="}, product(), "term"),
    "an extent one too many": ({"columns": "9"}, product(), "extents"),
    "inside the wrong unit": ({"mark": "  @by(load)"}, product(), "unit"),
    "in no warp": ({}, product(unit="warp"), "unit"),
    "the result read inside": ({"term": "X[a, c] * Z[c, b]"}, product(), "inside"),
}


def tile_of(program: oc.Program) -> Tile:
    return next(stmt for stmt in walk(program.body) if isinstance(stmt, Tile))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_cover_planted_wrong_is_refused_with_the_first_question_that_fails(fault: str) -> None:
    changed, kernel, question = FAULTS[fault]
    dtype = changed.get("dtype", "float32")
    program = oc.parse(TEXT.format(**{**GOOD, **changed}).replace("float32", dtype))
    tile = tile_of(program)

    found = cover(tile, program, kernel, tile.cover)

    assert isinstance(found, Refusal), found
    assert found.question.value == question, found
    with pytest.raises(oc.PartitionError) as refused:
        with_covers(program, {"mine": kernel}.get)
    assert refused.value.because == f"{question}: {found}"
    assert fault != "another type" or str(found).startswith("its elements are float64, and those")


CONV = """program c
size n in 1:64
input X: float32[n + 2, 16]
input F: float32[3, 16, 8]
output Z: float32[n, 8]
for t in 0:n//8
  tile a in 8*t +: 8, b in 0 +: 8  @cover(conv_rows)
    Z[a, b] = 0.0
    for u in 0:3
      for v in 0:{depth}
        Z[a, b] += X[a + {step}u, v] * F[u, v, b]
"""


def test_two_reduction_axes_and_a_stencil_are_one_microkernel() -> None:
    program = oc.parse(CONV.format(depth=16, step=""))
    covered = with_covers(program, {"conv_rows": conv_rows()}.get)
    said = "conv_rows; x=a, o=b, r=u, p=v; A=X, B=F, C=Z"
    assert f"@cover({said})" in str(covered)
    for wrong, question in (
        ({"depth": 14, "step": ""}, "extents"),
        ({"depth": 16, "step": "2*"}, "moves"),
    ):
        text = CONV.format(**wrong).replace("n + 2", "n + 4")
        planted = oc.parse(text)
        axes = (("x", "a"), ("o", "b"), ("r", "u"), ("p", "v"))
        found = cover(tile_of(planted), planted, conv_rows(), Cover("conv_rows", axes))
        assert isinstance(found, Refusal)
        assert found.question.value == question
    text = CONV.format(depth=16, step="").replace("for u in 0:3", "for u in a:a + 3")
    counted = oc.parse(text.replace("X[a + u, v] * F[u, v, b]", "X[u, v] * F[u - a, v, b]"))
    wanted = Cover("conv_rows", (("x", "a"), ("o", "b"), ("r", "u"), ("p", "v")))
    assert isinstance(cover(tile_of(counted), counted, conv_rows(), wanted), Coverage)
    found = cover(tile_of(counted), counted, conv_rows())  # the axes are not said
    assert isinstance(found, Refusal)
    assert found.question.value in ("bounds", "moves")


STAGED = """program t
size n in 0:64
input X: float32[4, n]
local S: float32[n, 8] @scope(shared) @{layout}
output Z: float32[4, 8]
tile a in 0 +: 4, b in 0 +: 8  @cover(mine)
  for c in 0:n
    Z[a, b] += X[a, c] * S[c, b]
"""


@pytest.mark.parametrize(
    ("layout", "sound"),
    [
        ("panels(0, 1, 8)", True),
        ("digits(panel: 1//8, offset: 1%8 0)", True),
        ("digits(group: 1//8, term: 0, lane: 1%8)", True),
        ("panels(0, 1, 4)", False),
        ("panels(0, 1, 8, 2, 2)", False),
        ("panels(1, 0, 8)", False),
        ("order(1, 0)", False),
    ],
)
def test_a_stated_layout_is_the_declared_one_however_it_is_written(
    layout: str, sound: bool
) -> None:
    kernel = product(scratchpad=True, unit="matrix")
    program = oc.parse(STAGED.format(layout=layout))
    answer = cover(tile_of(program), program, kernel, tile_of(program).cover)
    if sound:
        assert isinstance(answer, Coverage), answer
    else:
        assert isinstance(answer, Refusal)
        assert answer.question.value == "layout"
        assert str(answer) == "S[c, b] is not packed as it reads it"


def warp_product(kernel: Microkernel, scope: str = "registers") -> oc.HandSchedule:
    A, B = oc.placeholder((32, 64), "float16", "A"), oc.placeholder((64, 16), "float16", "B")
    k = oc.reduce_axis(64, "k")
    C = oc.compute(
        (32, 16),
        lambda i, j: oc.sum(oc.cast(A[i, k], "float32") * oc.cast(B[k, j], "float32"), axis=k),
        name="C",
    )
    s = oc.create_schedule(C)
    acc = s.cache_write(C, "registers")
    a, b = s.cache_read(A, scope, readers=[acc]), s.cache_read(B, "registers", readers=[acc])
    _, jo, _, _ = s[C].tile("i", "j", 16, 8)
    s[C].bind("io", "warp")
    acc.compute_at(s[C], jo)
    ko, ki = acc.split("k", 16)
    acc.reorder(ko, "i", "j", ki)
    a.compute_at(acc, ko)
    b.compute_at(acc, ko)
    acc.tensorize("i", kernel)
    return s


def test_a_declared_warp_product_covers_a_tile_inside_a_loop_over_k() -> None:
    kernel = instructions.MMA[1]
    program = warp_product(kernel).lower()

    text = str(program)
    assert "@cover(zero_m16n8; i=i, j=j; C=CL)" in text
    assert "@cover(mma_m16n8k16_float16; i=i, j=j, p=k; A=AL, B=BL, C=CL)" in text
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, s).astype(np.float16) for s in ((32, 64), (64, 16)))
    np.testing.assert_array_equal(program.run({"A": a, "B": b}), a.astype("f4") @ b.astype("f4"))
    with pytest.raises(oc.PartitionError) as refused:
        warp_product(kernel, "shared").lower()
    assert refused.value.because.startswith("memory: AL lies in shared, and")


@pytest.mark.parametrize(
    ("condition", "extent", "takes"),
    [
        ("n % 8 > 0", "n % 8", True),
        ("8*(n//8) < n", "n - 8*(n//8)", True),
        ("n % 8 > 0 and n >= 8", "(n % 8 + 1)//2", True),
        ("n >= 0", "n % 8", False),  # 0 rows, too
        ("n < 9", "n", False),
        ("n > 0 and n < 9", "n", True),
        ("n % 8 > 0", "n % 8 + 1 + n // 40", False),  # 9 rows
    ],
)
def test_extents_are_those_where_the_conditions_around_hold(
    condition: str, extent: str, takes: bool
) -> None:
    text = f"""program g
size n in 0:50
input X: float32[n + 10, 16]
input F: float32[3, 16, 8]
output Z: float32[n + 8, 8]
if {condition}
  tile a in 0 +: {extent}, b in 0 +: 8  @cover(conv_rows; x=a, o=b, r=u, p=v; A=X, B=F, C=Z)
    Z[a, b] = 0.0
    for u in 0:3
      for v in 0:16
        Z[a, b] += X[a + u, v] * F[u, v, b]
"""
    program = oc.parse(text)
    answer = cover(tile_of(program), program, conv_rows(), tile_of(program).cover)
    assert isinstance(answer, Coverage if takes else Refusal)
