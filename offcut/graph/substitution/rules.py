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
from itertools import islice
from itertools import product as pairs

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.core.program import Size
from offcut.describe.request import Array
from offcut.errors import DescribeError, OffcutError
from offcut.graph.graph import Bound, Graph, Value
from offcut.graph.interpret import interpreted
from offcut.graph.sizes.extents import Numbers
from offcut.graph.text import format_value, parse_graph

SMALL = 5
"""The smallest values of a size that a rule is tried at in all combinations, as far as `TRIALS` goes."""
TRIALS = 16
"""Sets of sizes that a rule is tried at, the smallest first; besides, some in which no size is 0."""
LONG = 17
"""A size that is longer than a vector."""
FAR = 20.0
"""How far from 0 elements are in every other trial."""
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
    for number, sizes in enumerate(_trials(one.sizes)):
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


def _trials(sizes: tuple[Size, ...]) -> list[dict[str, int]]:
    """Sets of sizes, the least sum first: the smallest, some in which none is 0, and for each size one in which it is longer than a
    vector.
    """
    first = [[*islice(_allowed(size, size.min), SMALL)] for size in sizes]
    some = [
        [*islice(_allowed(size, max(size.min, 1)), SMALL)] or few
        for size, few in zip(sizes, first, strict=True)
    ]
    far = [next(_allowed(size, LONG), few[-1]) for size, few in zip(sizes, first, strict=True)]
    found = sorted(pairs(*first), key=lambda values: (sum(values), values))[:TRIALS]
    found.append(tuple(few[0] for few in some))
    for turn in range(3):
        found.append(tuple(few[(at + turn) % min(len(few), 3)] for at, few in enumerate(some)))
    for at, long in enumerate(far):
        found.append(tuple(long if n == at else few[0] for n, few in enumerate(some)))
    every = sorted(dict.fromkeys(found), key=lambda values: (sum(values), values))
    return [{size.name: n for size, n in zip(sizes, values, strict=True)} for values in every]


def _allowed(size: Size, least: int) -> Iterator[int]:
    by = size.multiple_of
    return iter(range(-(-max(least, size.min) // by) * by, size.max + 1, by))


def _drawn(value: Value, shape: list[int], seed: int) -> Array:
    """Values of an input: near 0 in even trials, further away in odd ones; of integers all that there are."""
    generator, dtype = np.random.default_rng(seed), numpy_dtype(value.dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    wide = bool(seed % 2)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if wide else (max(info.min, -2), 2)
        return generator.integers(low, high, shape, dtype, endpoint=True)
    most = FAR if wide else 2.0
    return generator.uniform(-most, most, shape).astype(dtype)


def _check_at(made: Rule, sizes: dict[str, int], seed: int) -> None:
    number = Numbers(sizes)
    given = {
        value.name: _drawn(value, [number(extent) for extent in value.shape], 2 * place + seed % 2)
        for place, value in enumerate(made.before.inputs, seed)
    }
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
