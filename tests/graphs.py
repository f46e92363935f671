"""Graphs drawn at random, and arrays for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from offcut.errors import DescribeError
from offcut.graph.sizes.extent_values import Numbers
from offcut.graph.sizes.extents import product
from offcut.ir import Const, Expr
from tests.facade import Bound, Builder, Ref

Array = np.ndarray[Any, Any]
SIZES = {"b": 4, "n": 5}


def drawn(seed: int, nodes: int = 8) -> Bound:
    """A graph of some nodes over two sizes: products, reductions, operators by element, and views."""
    generator = np.random.default_rng(seed)
    made = Builder(f"drawn{seed}")
    b, n = (made.size(name, 1, high) for name, high in SIZES.items())
    values = [made.input("x", "float32", (b, n, 6)), made.input("y", "float32", (b, n, 6))]
    for _ in range(nodes):
        recent = values[-3:]
        x = recent[generator.integers(len(recent))]
        try:
            values.append(_node(made, generator, x, values))
        except DescribeError:
            continue
    used = {name for node in made.nodes for name in node.operands}
    made.output(*(value for value in values[2:] if value.name not in used))
    if generator.integers(2):
        made.output(values[len(values) // 2])
    return made.bound


def arrays(bound: Bound, seed: int, **sizes: int) -> dict[str, Array]:
    """Inputs of a graph."""
    generator, number = np.random.default_rng(seed), Numbers(sizes)
    return {
        value.name: generator.uniform(-1, 1, [number(e) for e in value.shape]).astype(value.dtype)
        for value in bound.graph.inputs
    }


def _node(made: Builder, generator: np.random.Generator, x: Ref, values: list[Ref]) -> Ref:
    shape = made.shape(x)
    rank = len(shape)

    def constant(*extents: int) -> Ref:
        held = generator.uniform(-1, 1, extents).astype("float32")
        return made.constant(made.fresh("c"), held)

    def plain() -> Ref:
        return made.node(["relu", "sigmoid", "negative", "square"][generator.integers(4)], x)

    def pair() -> Ref:
        alike = [value for value in values if made.shape(value) == shape]
        op = ["add", "multiply", "maximum"][generator.integers(3)]
        return made.node(op, x, alike[generator.integers(len(alike))])

    def weighed() -> Ref:
        return made.node("multiply", x, constant(_literal(shape[-1])))

    def dense() -> Ref:
        return made.node("dense", x, constant(_literal(shape[-1]), 4), constant(4))

    def against() -> Ref:
        swapped = made.node("transpose", x, axes=[*range(rank - 2), rank - 1, rank - 2])
        return made.node("matmul", x, swapped)

    def rows() -> Ref:
        op = ["softmax", "layernorm"][generator.integers(2)]
        return made.node(op, x)

    def turned() -> Ref:
        return made.node("transpose", x, axes=[int(a) for a in generator.permutation(rank)])

    def merged() -> Ref:
        at = int(generator.integers(rank - 1))
        extent = product(shape[at : at + 2])
        return made.node("reshape", x, [*shape[:at], extent, *shape[at + 2 :]])

    def split() -> Ref:
        last = _literal(shape[-1])
        return made.node("reshape", x, [*shape[:-1], 2, last // 2])

    def part() -> Ref:
        last = _literal(shape[-1])
        return made.node("slice", x, rank - 1, 1, last, int(generator.integers(1, 3)))

    def total() -> Ref:
        return made.node("sum", x, axis=int(generator.integers(rank)))

    def joined() -> Ref:
        return made.node("concat", [x, x], axis=int(generator.integers(rank)))

    kinds = (plain, plain, pair, pair, weighed, dense, against, rows, turned, merged, split, part)
    kinds += (total, joined)
    found = kinds[generator.integers(len(kinds))]
    if rank < 2:
        found = plain
    return found()


def _literal(extent: Expr) -> int:
    if not isinstance(extent, Const) or int(extent.value) < 2 or int(extent.value) > 12:
        raise DescribeError("drawn", "cannot take this", because="it needs a number")
    return int(extent.value)
