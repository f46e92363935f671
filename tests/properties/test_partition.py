"""Whatever is described, cut how it may be: the loops give numpy's result, and isl accepts them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from conftest import EQUAL, points, proved
from hypothesis import given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut import Partition, dim, parse
from offcut.describe.computation import computation
from offcut.ir import Tile, walk
from offcut.schedule import cut

REDUCED = ["guard", "cut", "mask", "pad", "ladder", "balance", "even", "residue", "version"]
SPATIAL = [*REDUCED, "shift"]
SIZES = ("n", "m")
MAX_LISTED = 2_000
"""Instances of a partition that are listed, at most."""


@dataclass(frozen=True)
class Axis:
    """``factor*size + offset``; cut by `tile` with `tail` unless `tile` is 0."""

    name: str
    size: str
    factor: int
    offset: int
    tile: int
    tail: str

    @property
    def extent(self) -> Any:
        return self.factor * dim(self.size, max=40) + self.offset

    def at(self, sizes: dict[str, int]) -> int:
        return self.factor * sizes[self.size] + self.offset


@st.composite
def axis(draw: st.DrawFn, name: str, tails: list[str]) -> Axis:
    factor = draw(st.integers(0, 2))
    return Axis(
        name,
        draw(st.sampled_from(SIZES)),
        factor,
        draw(st.integers(0, 3) if factor else st.integers(0, 7)),
        draw(st.integers(0, 5)),
        draw(st.sampled_from(tails)),
    )


@st.composite
def contractions(draw: st.DrawFn) -> tuple[list[Axis], list[Axis], list[tuple[str, ...]]]:
    """Axes of the result, reduction axes, and the axes of two operands in any order."""
    rank, depth = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    spatial = [draw(axis(name, SPATIAL)) for name in "bij"[:rank]]
    reduced = [draw(axis(name, REDUCED)) for name in "kr"[:depth]]
    names = [a.name for a in (*spatial, *reduced)]
    operands = [
        tuple(draw(st.permutations(names))[: draw(st.integers(1, len(names)))]) for _ in range(2)
    ]
    return spatial, reduced, operands


def check_owners(p: Partition, extents: list[int], sizes: dict[str, int]) -> None:
    """Check that each instance is owned by one piece, which runs it; of few of them, since all are listed.

    A sum of no terms at any size is no statement.
    """
    names = {len(piece.names) for piece in p.pieces}
    if names != {len(extents)} or prod(extents) > MAX_LISTED:
        return
    values = [sizes[name] for name, _ in p.users.sizes]
    owners = Counter(point for piece in p.pieces for point in points(piece.owned, *values))
    assert owners == dict.fromkeys(product(*map(range, extents)), 1)
    for piece in p.pieces:
        assert set(points(piece.owned, *values)) <= set(points(piece.executed, *values))


VALUES = st.fixed_dictionaries({name: st.integers(0, 7) for name in SIZES})


@given(contractions(), st.lists(VALUES, min_size=2, max_size=2), st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_cut_contraction_is_numpys_and_proved(
    described: tuple[list[Axis], list[Axis], list[tuple[str, ...]]],
    calls: list[dict[str, int]],
    biased: bool,
) -> None:
    spatial, reduced, operands = described
    axes = {a.name: a for a in (*spatial, *reduced)}
    A, B = (
        oc.placeholder([axes[x].extent for x in names], "float64", label)
        for names, label in zip(operands, "AB", strict=True)
    )
    along = {a.name: oc.reduce_axis(a.extent, a.name) for a in reduced}

    def term(*point: Any) -> Any:
        at = dict(zip((a.name for a in spatial), point, strict=True)) | along
        left, right = (
            T[tuple(at[x] for x in names)] for T, names in ((A, operands[0]), (B, operands[1]))
        )
        total = oc.sum(left * right, axis=tuple(along.values()))
        return total + 1.0 if biased else total

    C = oc.compute([a.extent for a in spatial], term, "C", axes=[a.name for a in spatial])
    chosen = [a for a in axes.values() if a.tile]
    p = cut(
        computation([C]), {a.name: a.tile for a in chosen}, {a.name: a.tail for a in chosen}, []
    )
    assert parse(str(p)) == p.loops
    used = {name for name, _ in p.users.sizes}
    rng = np.random.default_rng(0)
    for sizes in calls:
        a, b = (
            rng.integers(-9, 10, [axes[x].at(sizes) for x in names]).astype(np.float64)
            for names in operands
        )
        repeats = [np.ones(one.at(sizes)) for one in axes.values()]
        singles = [f"{name}," for name in axes]
        text = f"{''.join(operands[0])},{''.join(operands[1])},{''.join(singles)}"
        wanted = np.einsum(
            f"{text.rstrip(',')}->{''.join(x.name for x in spatial)}", a, b, *repeats
        )
        given_sizes = {name: value for name, value in sizes.items() if name in used}
        result = p.run({"A": a, "B": b}, **given_sizes)
        np.testing.assert_array_equal(result, wanted + biased)
        check_owners(p, [one.at(sizes) for one in axes.values()], sizes)
    tailed = {"cut", "mask", "pad", "shift", "ladder"}
    if len(chosen) > 1 and all(a.factor and a.tail in tailed for a in chosen):
        assert any(piece.role == "corner" for piece in p.pieces)
    p.prove()


@given(st.sampled_from(SPATIAL), st.integers(1, 6), st.integers(0, 25), st.integers(0, 25))
@settings(max_examples=12, deadline=None)
def test_an_element_is_the_same_bit_for_bit_at_every_size_and_cut(
    tail: str, tile: int, n: int, more: int
) -> None:
    size = dim("n", max=64)
    A, B = oc.placeholder((size, 7), name="A"), oc.placeholder((7, 3), name="B")
    k = oc.reduce_axis(7, "k")
    C = oc.compute((size, 3), lambda i, j: oc.sum(A[i, k] * B[k, j], axis=k), name="C")
    p = cut(computation([C]), {"i": tile}, tail, [])
    rng = np.random.default_rng(n)
    a = rng.standard_normal((n + more, 7)).astype(np.float32)
    b = rng.standard_normal((7, 3)).astype(np.float32)
    whole, part = p.run({"A": a, "B": b}), p.run({"A": a[:n], "B": b})
    np.testing.assert_array_equal(whole[:n], part)
    uncut = cut(computation([C]), {}, {}, []).run({"A": a, "B": b})
    np.testing.assert_array_equal(whole, uncut)


def test_what_is_not_cut_is_the_source() -> None:
    size = dim("n", max=64)
    A, B = oc.placeholder((size, 7), name="A"), oc.placeholder((7, 3), name="B")
    k = oc.reduce_axis(7, "k")
    C = oc.compute((size, 3), lambda i, j: oc.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = oc.compute((size, 3), lambda i, j: oc.maximum(C[i, j], 0.0), name="D")
    total = oc.compute((), lambda: oc.sum(B[k, 0], axis=k), name="total")
    for outputs in ([C], [D], [total], [D, total]):
        made = cut(computation(outputs), {}, {}, [])
        assert made.loops == made.source
        assert proved(made) >= EQUAL
    inner = cut(computation([C]), {"k": 3}, "cut", []).loops
    assert not any(isinstance(stmt, Tile) for stmt in walk(inner.body))
