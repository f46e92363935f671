"""Blocks of Inception, SqueezeNet and a transformer as graphs: as they are written, as the search for substitutions left them, joined at any price.

float32, random weights, batches as a size. A graph is priced by the cost model at a batch of 1. The transformer's queries, keys
and values are joined by a pass that every model goes through, and here by it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from offcut.core.memo import lazy_property
from offcut.core.text.printer import format_expr
from offcut.graph import (
    Bound,
    Builder,
    Ref,
    Rule,
    compile_graph,
    joined_convolutions,
    joined_products,
    parts_of_one,
    search_rewrites,
    widened_convolutions,
)
from offcut.graph.passes import DEFAULT, merge_products, run_passes
from offcut.graph.substitution.matching import apply_rule, matches
from offcut.graph.substitution.rewrite_search import TIDIED
from offcut.studies.models import SubstitutedModel
from offcut.studies.peers.operators import results_of
from offcut.studies.tasks import TOLERANCE, Exact, Task

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Block:
    """A graph of one input and one output, and the rules that it is searched by: an operator of a study."""

    bound: Bound
    rules: tuple[Rule, ...]

    @lazy_property
    def written(self) -> Any:
        """The graph as it is written, compiled."""
        return compile_graph(
            self.bound, 1, passes=tuple(x for x in DEFAULT if x is not merge_products)
        )

    @lazy_property
    def joined(self) -> Any:
        """The graph after all rules, compiled."""
        return compile_graph(everywhere(self.bound, self.rules), 1)

    def task(self, sizes: Mapping[str, int], seed: int) -> Task:
        """Return a batch; its result is that of the graph as it is written, which is tested against the interpreter."""
        (given,) = self.bound.graph.inputs
        shape = (sizes["n"], *(int(format_expr(extent)) for extent in given.shape[1:]))
        inputs = {given.name: np.random.default_rng(seed).standard_normal(shape, np.float32)}

        def exact() -> Exact:
            return Exact(
                results_of(self.written(inputs)), TOLERANCE["float32"], "the graph as it is written"
            )

        moved = inputs[given.name].nbytes
        return Task(dict(sizes), inputs, {}, "float32", 0, moved, exact)

    def compiled(self, options: Mapping[str, Any]) -> SubstitutedModel:
        """Return the graph that the search found, compiled."""
        search = search_rewrites(self.bound, self.rules, alpha=1.3, sizes={"n": 1})
        return SubstitutedModel(
            compile_graph(search.bound, options.get("threads", 1)), search=search
        )


def block(n: Any, name: str) -> Block:
    """Return a block by its name; the batch is a size of its own."""
    return _block(name)


def written(inputs: Mapping[str, Array], sizes: Mapping[str, int]) -> Callable[[], Any]:
    """Return a call of the graph as it is written."""
    return partial(_block(*inputs).written, dict(inputs))


def joined(inputs: Mapping[str, Array], sizes: Mapping[str, int]) -> Callable[[], Any]:
    """Return a call of the graph after all rules, wherever they fit, whatever they cost."""
    return partial(_block(*inputs).joined, dict(inputs))


def everywhere(bound: Bound, rules: Sequence[Rule]) -> Bound:
    """The graph after all rules, wherever they fit, whatever they cost."""
    now = run_passes(bound, TIDIED)
    while True:
        places = next(((r, found) for r in rules if (found := matches(r, now.graph))), None)
        made = None if places is None else apply_rule(now, *places)
        if made is None:
            return now
        now = run_passes(made, TIDIED)


class Drawn(Builder):
    """A graph with random weights."""

    def weights(self, *shape: int) -> Ref:
        """Small ones."""
        drawn = np.random.default_rng(len(self.constants)).standard_normal(shape, np.float32)
        return self.constant(self.fresh("w"), drawn / np.float32(np.sqrt(np.prod(shape[1:]))))

    def convolved(self, x: Ref, channels: int, window: int) -> Ref:
        """A convolution that keeps the image, a bias, and relu."""
        w = self.weights(channels, int(format_expr(self.shape(x)[1])), window, window)
        made = self.node("conv2d", x, w, bias=self.weights(channels), padding=window // 2)
        result: Ref = self.node("relu", made)
        return result


def inception() -> Bound:
    """The first inception module of GoogLeNet. Source: Szegedy et al., CVPR 2015, table 1."""
    made = Drawn("inception")
    x = made.input("inception", "float32", (made.size("n", 1, 64), 192, 28, 28))
    pooled = made.node("max_pool2d", x, 3, stride=1, padding=1)
    parts = (
        made.convolved(x, 64, 1),
        made.convolved(made.convolved(x, 96, 1), 128, 3),
        made.convolved(made.convolved(x, 16, 1), 32, 5),
        made.convolved(pooled, 32, 1),
    )
    made.output(made.node("concat", parts, axis=1))
    return made.bound


def fire() -> Bound:
    """The first fire module of SqueezeNet. Source: Iandola et al., 2016, table 1."""
    made = Drawn("fire")
    x = made.input("fire", "float32", (made.size("n", 1, 64), 96, 55, 55))
    squeezed = made.convolved(x, 16, 1)
    parts = made.convolved(squeezed, 64, 1), made.convolved(squeezed, 64, 3)
    made.output(made.node("concat", parts, axis=1))
    return made.bound


def attention() -> Bound:
    """A layer's attention over 49 places, 768 wide, 12 heads. Source: Vaswani et al., NeurIPS 2017."""
    made = Drawn("attention")
    n = made.size("n", 1, 64)
    x = made.input("attention", "float32", (n, 49, 768))
    heads = []
    for _ in range(3):
        part = made.node("dense", x, made.weights(768, 768), bias=made.weights(768))
        split = made.node("reshape", part, (n, 49, 12, 64))
        heads.append(made.node("transpose", split, axes=(0, 2, 1, 3)))
    mixed = made.node("transpose", made.node("attention", *heads), axes=(0, 2, 1, 3))
    rows = made.node("reshape", mixed, (n, 49, 768))
    made.output(made.node("dense", rows, made.weights(768, 768)))
    return made.bound


@cache
def _block(name: str) -> Block:
    """Return a block; its input has its name."""
    if name == "attention":
        return Block(attention(), joined_products())
    windows = (
        *joined_convolutions(1),
        *joined_convolutions(3),
        *widened_convolutions(),
        *parts_of_one(),
    )
    return Block({"inception": inception, "fire": fire}[name](), windows)
