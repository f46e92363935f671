"""Masks that places give are options of attention: every band of known elements, masks of sizes, what stays a mask, and what is not read."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from offcut.core.expr import Var
from offcut.graph import Builder, compile_graph
from offcut.graph.passes import fold_constants, masks_as_domains
from offcut.graph.passes.elements import element_of_array
from tests.agree import agree
from tests.facade import evaluate

D = 8
Make = Callable[[Builder, Any, Any], Any]


def attention(mask: Make, longer: bool = False, depth: Any = D, **options: Any) -> Builder:
    """A graph of attention under a mask that is made in it, of two sentences.

    longer  whether keys are of as many places before the queries, and of these
    depth   of queries, keys and values, or the name of a size
    """
    g = Builder("net")
    s = g.size("s", 0, 512)
    t = s + g.size("p", 0, 512) if longer else g.size("t", 0, 512)
    d = g.size(depth) if isinstance(depth, str) else depth
    arrays = [g.input(name, "float32", (2, n, d)) for name, n in zip("qkv", (s, t, t), strict=True)]
    g.output(g.node("attention", *arrays, mask=mask(g, s, t), **options))
    return g


def places(g: Builder, s: Any, t: Any) -> tuple[Any, Any]:
    return g.node("reshape", g.node("iota", s, "int64"), (s, 1)), g.node("iota", t, "int64")


def option(made: Builder) -> dict[str, Any]:
    (node,) = (
        one
        for one in masks_as_domains(fold_constants(made.bound)).graph.nodes
        if one.op == "attention"
    )
    return {name: str(one) for name, one in node.options}


def lower(g: Builder, s: Any, t: Any) -> Any:
    row, column = places(g, s, t)
    return g.node("less_equal", column, row)


def added(g: Builder, s: Any, t: Any) -> Any:
    return g.node("where", lower(g, s, t), 0.0, -math.inf, dtype="float32")


def behind(g: Builder, s: Any, t: Any) -> Any:
    """Of queries that are the last of the keys: the four before each, and itself."""
    row, column = places(g, s, t)
    before = g.node("slice", g.node("iota", t - s + 1, "int64"), 0, t - s, t - s + 1)
    last = g.node("add", row, before)
    near = g.node("greater", column, g.node("subtract", last, 5))
    return g.node("logical_and", near, g.node("logical_not", g.node("greater", column, last)))


def test_a_mask_that_places_give_is_what_attention_says_of_places() -> None:
    assert option(attention(lower)) == {"causal": "True", "past": "0"}
    assert option(attention(added)) == {"causal": "True", "past": "0"}
    assert option(attention(lower, causal=True)) == {"causal": "True", "past": "0"}
    found = option(attention(behind, longer=True))
    assert found == {"causal": "True", "past": "Var(name='p')", "window": "5"}


def least(mask: Make) -> Make:
    """A mask that excludes keys by the least finite number, as modules of transformers write it."""
    number = float(np.finfo(np.float32).min)
    return lambda g, s, t: g.node("where", mask(g, s, t), 0.0, number, dtype="float32")


def test_the_least_number_excludes_keys_where_each_query_sees_one() -> None:
    assert option(attention(least(lower))) == {"causal": "True", "past": "0"}
    found = option(attention(least(behind), longer=True))
    assert found == {"causal": "True", "past": "Var(name='p')", "window": "5"}

    def earlier(g: Builder, s: Any, t: Any) -> Any:  # the first query sees no key
        row, column = places(g, s, t)
        return g.node("less", column, row)

    def near(g: Builder, s: Any, t: Any) -> Any:  # a query far behind the keys sees none
        row, column = places(g, s, t)
        behind_row = g.node("greater", column, g.node("subtract", row, 5))
        return g.node("logical_and", lower(g, s, t), behind_row)

    for mask in (earlier, near, padded):
        assert set(option(attention(least(mask)))) == {"mask"}


def cut(rows: int, start: int) -> Make:
    """Part of a triangle that a file holds."""

    def mask(g: Builder, s: Any, t: Any) -> Any:
        whole = g.constant("whole", np.tril(np.ones((1, rows, rows), bool)))
        part = g.node("slice", whole, 1, start, s + start)
        return g.node("slice", part, 2, 0, t)

    return mask


def test_part_of_a_triangle_that_a_file_holds_is_one() -> None:
    assert option(attention(cut(600, 5))) == {"causal": "True", "past": "5"}
    beyond = option(attention(cut(100, 0)))  # a call of more is refused: it still is
    assert beyond.pop("mask")
    assert beyond == {"causal": "True", "past": "0"}


def padded(g: Builder, s: Any, t: Any) -> Any:
    ends = g.input("ends", "int64", (2,))
    keys = g.node("less", g.node("iota", t, "int64"), g.node("reshape", ends, (2, 1, 1)))
    return g.node("logical_and", lower(g, s, t), keys)


def test_what_places_do_not_say_stays_a_mask() -> None:
    found = option(attention(padded))
    assert found.pop("mask")
    assert found == {"causal": "True", "past": "0"}
    for mask in (
        lambda g, s, t: g.input("m", "bool", (s, t)),
        lambda g, s, t: g.node("where", lower(g, s, t), 0.0, -3.4e38, dtype="float32"),
        lambda g, s, t: g.node("greater", *places(g, s, t)[::-1]),
        lambda g, s, t: g.node("not_equal", *places(g, s, t)),
        lambda g, s, t: g.node("less", *(g.node("remainder", one, one) for one in places(g, s, t))),
    ):
        assert set(option(attention(mask))) == {"mask"}
    assert set(option(attention(lower, depth="d", scale=1.0))) == {"mask", "scale"}


@pytest.mark.parametrize("kind", ["bool", "float32"])
def test_a_band_of_known_elements_is_one_at_each_of_its_places(kind: str) -> None:
    place = Var("i"), Var("j")
    for rows, columns in ((1, 4), (4, 1), (3, 5)):
        i, j = np.arange(rows)[:, None], np.arange(columns)
        for low, high in product(range(-rows - 1, columns + 2), repeat=2):
            inside = (j >= i + low) & (j <= i + high)
            array = inside if kind == "bool" else np.where(inside, np.float32(0), -np.inf)
            found = element_of_array(array.astype(kind), place)
            if found is None:
                continue
            for a, b in product(range(rows), range(columns)):
                assert evaluate(found, {"i": a, "j": b}) == array[a, b]
            moved = array.copy()
            moved[-1, 0] = not inside[-1, 0] if kind == "bool" else 1.0
            other = element_of_array(moved, place)
            for a, b in product(range(rows), range(columns) if other is not None else ()):
                assert evaluate(other, {"i": a, "j": b}) == moved[a, b]


def seen(s: int, t: int, past: int, window: int | None) -> Any:
    i, j = np.arange(s)[:, None] + past, np.arange(t)
    return (j <= i) & (j > i - (window or t + s + 1))


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "past", "window"), [(added, False, None), (behind, True, 5)])
def test_a_key_behind_a_mask_is_not_read(mask: Make, past: bool, window: int | None) -> None:
    model = compile_graph(attention(mask, longer=past).bound)
    rng = np.random.default_rng(0)
    for s, t in ((0, 3), (1, 1), (13, 14), (14, 14), (15, 47), (47, 47)):
        q, k, v = (rng.standard_normal((2, n, D)).astype(np.float32) for n in (s, t, t))
        near = seen(s, t, t - s if past else 0, window)
        hidden = ~near.any(0)
        k[:, hidden], v[:, hidden] = np.nan, np.inf
        if t > 1 and s > 1:
            v[0, t - 1] = np.nan  # the last query alone may see it
        found = model(q, k, v)
        wide = [np.where(np.isfinite(x), x, 0).astype(np.float64) for x in (q, k, v)]
        scores = np.where(near, np.einsum("bid,bjd->bij", *wide[:2]) / math.sqrt(D), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e300))
        weights /= np.maximum(weights.sum(-1, keepdims=True), 1)
        exact, terms = weights @ wide[2], weights @ np.abs(wide[2])
        reached = np.zeros(exact.shape, bool)
        if t > 1 and s > 1:
            reached[0] = near[:, t - 1, None]
        assert np.isnan(found[reached]).all()
        agree(
            found[~reached], exact[~reached], terms=terms[~reached] + 1e-6, units=64, sums="float32"
        )
