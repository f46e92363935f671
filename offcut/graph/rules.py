"""Rules of substitution: two graphs of the same inputs that compute the same. A rule is checked before it is used.

    graph before                                     graph after
    size n in 0:…  …                                 w: float32[k, a + b] = concat([u, v], axis=1)
    input x: float32[n, k]                           d: float32[n, a + b] = dense(x, w)
    input u: float32[k, a]                           y: float32[n, a] = slice(d, 1, 0, a)
    input v: float32[k, b]                           z: float32[n, b] = slice(d, 1, a, a + b)
    y: float32[n, a] = dense(x, u)                   output y, z
    z: float32[n, b] = dense(x, v)
    output y, z

A size of a rule stands for any extent within its bounds, an input for any value of its type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs
from typing import Any

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.core.program import Size
from offcut.errors import DescribeError, OffcutError
from offcut.graph.extents import Numbers
from offcut.graph.graph import Bound, Graph
from offcut.graph.interpret import interpreted
from offcut.graph.text import format_value, parse_graph

SMALL = 5
"""The greatest size, above its least, that a rule is tried at."""
TRIALS = 24
"""Sets of sizes that a rule is tried at, the smallest first."""
TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 5e-2, "bfloat16": 3e-1}
"""Of an element, absolute and relative: sums may be added in another order."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``before`` may be replaced by ``after``; made by `rule`, which checks it."""

    name: str
    before: Graph
    after: Graph


def rule(name: str, before: str | Graph, after: str | Graph) -> Rule:
    """A rule, checked by the reference interpreter at small sizes on random inputs.

    before, after  graphs, or their texts; of the same sizes, inputs and outputs, without constants

    Raises DescribeError where they differ: with the sizes, and the first element that does.
    """
    one, other = (parse_graph(g) if isinstance(g, str) else g for g in (before, after))
    made = Rule(name, one, other)
    _check_alike(made)
    for number, sizes in enumerate(_small(one.sizes)):
        if number >= TRIALS:
            break
        _check_at(made, sizes, number)
    return made


def _check_alike(made: Rule) -> None:
    a, b = made.before, made.after
    shown = {value.name: value for value in (*a.values.values(),)}
    because = ""
    if (a.sizes, a.inputs) != (b.sizes, b.inputs):
        because = "its graphs take different inputs or sizes"
    elif a.constants or b.constants:
        because = "a graph of a rule has no constants: an input stands for one as well"
    elif not a.nodes or any(
        n not in {v.name for x in a.nodes for v in x.results} for n in a.outputs
    ):
        because = "each output of the graph before is the result of an operator"
    elif a.outputs != b.outputs:
        because = f"one gives {', '.join(a.outputs)}, the other {', '.join(b.outputs)}"
    else:
        for name in a.outputs:
            now = b.values[name]
            if (now.dtype, now.shape) != (shown[name].dtype, shown[name].shape):
                because = f"one gives {format_value(shown[name])}, the other {format_value(now)}"
    if because:
        raise DescribeError("rule", f"cannot take the rule {made.name}", because=because)


def _small(sizes: tuple[Size, ...]) -> Iterator[dict[str, int]]:
    """Sets of sizes, the least sum first."""
    ranges = [
        [n for n in range(s.min, min(s.max, s.min + SMALL) + 1) if n % s.multiple_of == 0]
        for s in sizes
    ]
    for chosen in sorted(pairs(*ranges), key=lambda values: (sum(values), values)):
        yield {size.name: value for size, value in zip(sizes, chosen, strict=True)}


def _check_at(made: Rule, sizes: dict[str, int], seed: int) -> None:
    generator, number = np.random.default_rng(seed), Numbers(sizes)
    given: dict[str, Any] = {}
    for value in made.before.inputs:
        drawn = generator.uniform(-2, 2, [number(extent) for extent in value.shape])
        given[value.name] = drawn.round() if "int" in value.dtype else drawn
        given[value.name] = given[value.name].astype(numpy_dtype(value.dtype))
    at = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    try:
        expected, found = (
            interpreted(Bound(graph, {}), given, **sizes) for graph in (made.before, made.after)
        )
    except OffcutError as refused:
        raise DescribeError(
            "rule", f"cannot take the rule {made.name}", at=at, because=str(refused).splitlines()[0]
        ) from refused
    for name, array in expected.items():
        tolerance = TOLERANCE.get(array.dtype.name, 0.0)
        same = np.isclose(
            found[name].astype("f8"), array.astype("f8"), tolerance, tolerance, equal_nan=True
        )
        if not same.all():
            where = tuple(int(axis) for axis in np.argwhere(~same)[0])
            raise DescribeError(
                "rule",
                f"cannot take the rule {made.name}",
                at=at or "its only size",
                because=f"{name}[{', '.join(map(str, where))}] is {float(array[where]):g} before and {float(found[name][where]):g} after",
            )
