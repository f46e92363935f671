"""What substitution gains: blocks of Inception, SqueezeNet and a transformer, as they are written and as the search left them.

    python bench/substitution.py            # some minutes
    python bench/substitution.py --quick    # one batch each

float32, random weights, batches as a size. A graph is priced by the cost model at a batch of 1; both of its models are measured in turns.
The transformer's queries, keys and values are joined by a pass that every model goes through, and here by it alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from harness import read_options, row_of

from offcut.core.text.printer import format_expr
from offcut.experiment.machine import describe
from offcut.experiment.outputs import wide_console
from offcut.experiment.timing import measure
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
from offcut.graph.substitution.substitute import TIDIED
from offcut.studies.rows import Row
from offcut.studies.table import Table, as_rich
from offcut.studies.tables import figure, rows_table

BATCHES = (1, 2, 3, 5, 8)
CLOSE = 1e-4
"""Of the largest element of a result: what an element may be off."""
WRITTEN, FOUND, JOINED = "as written", "as found", "joined at any price"


@dataclass(frozen=True)
class Block:
    """A graph of one input and one output, and the rules that it is searched by."""

    bound: Bound
    rules: tuple[Rule, ...]

    @cached_property
    def models(self) -> dict[str, Any]:
        """The compiled graphs."""
        plain = tuple(one for one in DEFAULT if one is not merge_products)
        written = compile_graph(self.bound, 1, passes=plain)
        joined = compile_graph(everywhere(self.bound, self.rules), 1)
        return {FOUND: compile_graph(self.search.bound, 1), WRITTEN: written, JOINED: joined}

    @cached_property
    def search(self) -> Any:
        """What the search found."""
        return search_rewrites(self.bound, self.rules, alpha=1.3, sizes={"n": 1})


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
    x = made.input("x", "float32", (made.size("n", 1, 64), 192, 28, 28))
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
    x = made.input("x", "float32", (made.size("n", 1, 64), 96, 55, 55))
    squeezed = made.convolved(x, 16, 1)
    parts = made.convolved(squeezed, 64, 1), made.convolved(squeezed, 64, 3)
    made.output(made.node("concat", parts, axis=1))
    return made.bound


def attention() -> Bound:
    """A layer's attention over 49 places, 768 wide, 12 heads. Source: Vaswani et al., NeurIPS 2017."""
    made = Drawn("attention")
    n = made.size("n", 1, 64)
    x = made.input("x", "float32", (n, 49, 768))
    heads = []
    for _ in range(3):
        part = made.node("dense", x, made.weights(768, 768), bias=made.weights(768))
        split = made.node("reshape", part, (n, 49, 12, 64))
        heads.append(made.node("transpose", split, axes=(0, 2, 1, 3)))
    mixed = made.node("transpose", made.node("attention", *heads), axes=(0, 2, 1, 3))
    rows = made.node("reshape", mixed, (n, 49, 768))
    made.output(made.node("dense", rows, made.weights(768, 768)))
    return made.bound


def blocks() -> dict[str, Block]:
    """The blocks, by the titles of their tables."""
    windows = (
        *joined_convolutions(1),
        *joined_convolutions(3),
        *widened_convolutions(),
        *parts_of_one(),
    )
    return {
        "Inception": Block(inception(), windows),
        "SqueezeNet": Block(fire(), windows),
        "a transformer": Block(attention(), joined_products()),
    }


def measured(title: str, block: Block, n: int, budget: float) -> Row:
    """A block on a batch: its models in turns, each checked against the graph as it is written, which is tested against the interpreter."""
    (given,) = block.bound.graph.inputs
    shape = (n, *(int(format_expr(extent)) for extent in given.shape[1:]))
    x = np.random.default_rng(n).standard_normal(shape, np.float32)
    exact = np.asarray(block.models[WRITTEN](x))
    bound, wrong = CLOSE * np.abs(exact).max(), dict[str, str]()
    for name, model in block.models.items():
        off = np.abs(np.asarray(model(x)) - exact).max()
        if not off <= bound:
            wrong[name] = f"off by {off:.3g}, {bound:.3g} allowed"
    timings = measure({name: partial(one, x) for name, one in block.models.items()}, budget=budget)
    return row_of(title, f"n={n}", {name: t.samples for name, t in timings.items()}, wrong=wrong)


def searches(every: Mapping[str, Block]) -> Table:
    """Return what the search says of each block."""
    rows = []
    for title, block in every.items():
        search = block.search
        rules = ", ".join(search.rules) or "nothing is cheaper"
        rows.append((title, rules, f"{search.before / search.after:.2f}", str(search.tried)))
    columns = ("block", "rules", "predicted gain", "graphs")
    return Table("searches", "What the search found.", columns, tuple(rows), 2)


def gains(rows: Sequence[Row]) -> Table:
    """Return how many times as fast the graph that was found is as each of the others."""
    lines = []
    for row in rows:
        over = [row.over(FOUND, other) for other in (WRITTEN, JOINED)]
        lines.append(
            (row.operator, row.name, *("–" if one is None else figure(one) for one in over))
        )
    caption = f"Times over those of {FOUND}; above 1, it is faster."
    return Table("gains", caption, ("operator", "sizes", WRITTEN, JOINED), tuple(lines), 2)


def main() -> None:
    """Measure and print; the exit status is 1 where values are wrong."""
    options = read_options(__doc__ or "", ("cells", "budget"))
    every = {title: one for title, one in blocks().items() if re.search(options.cells, title)}
    batches = BATCHES[:1] if options.quick else BATCHES
    rows = [
        measured(title, block, n, options.budget) for title, block in every.items() for n in batches
    ]
    console = wide_console()
    for table in (rows_table(rows, FOUND, (FOUND, WRITTEN, JOINED)), gains(rows), searches(every)):
        console.print(as_rich(table))
    console.print(f"machine: {describe()}", highlight=False, soft_wrap=True)
    raise SystemExit(any(one.failed for row in rows for one in row.samples.values()))


if __name__ == "__main__":
    main()
