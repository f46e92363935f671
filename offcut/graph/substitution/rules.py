"""Rules of substitution: two graphs of the same inputs that compute the same. A rule is checked before it is used.

    graph before                                     graph after
    size n in 0:…  …                                 w: float32[k, a + b] = concat([u, v], axis=1)
    input x: float32[n, k]                           d: float32[n, a + b] = dense(x, w)
    input u: float32[k, a]                           y: float32[n, a] = slice(d, 1, 0, a)
    input v: float32[k, b]                           z: float32[n, b] = slice(d, 1, a, a + b)
    y: float32[n, a] = dense(x, u)                   output y, z
    z: float32[n, b] = dense(x, v)
    output y, z

A size of a rule stands for any extent within its bounds, an input for any value of its type. That each element of the results is the
same at all sizes is proved in exact arithmetic (`offcut.proof.by_algebra`). Arithmetic is not exact, and functions have ends: so it is tried as well:

    sizes     the smallest, some longer than a vector; those that the graphs name, what is next to them, and the greatest, with few elements
    integers  small ones; all that the type has, with its ends, 0, the numbers that the graphs name, and what is next to these
    floats    in the types that it names, near 0 and further away; then with all floats in float64, where rounding is next to nothing: 0, equal
              elements, equal rows, the numbers that the graphs name, large and small ones, denormals, infinities and NaN

Floats that differ are the same where rounding (`described`) may have parted them. Of huge elements in the types that it names, what is finite before
must be finite after.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import cycle, islice
from math import prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from offcut.describe.request import Array
from offcut.errors import DescribeError, OffcutError, PartitionError, trim_traceback
from offcut.graph.graph import Bound, Graph
from offcut.graph.interpret import interpret_graph
from offcut.graph.sizes.extent_values import Numbers
from offcut.graph.substitution.graph_computation import (
    NotDescribed,
    computation_of,
    rounding_tolerance,
    rounding_unit,
)
from offcut.graph.substitution.trial_inputs import (
    Drawn,
    draw_input,
    equal_along_axes,
    floats_by_distance,
    huge_floats,
    infinite_first_row,
    large_floats,
    named_numbers,
    near_named_numbers,
    sizes_at_named_numbers,
    small_floats,
    trial_sizes,
    with_nonfinite,
)
from offcut.graph.text import format_value, parse_graph
from offcut.polyhedral import request_budget
from offcut.proof.by_algebra import NotShown, show_equal

DRAWS = 8
"""Inputs of each kind that a rule is tried at besides, at the smallest and the largest sets of sizes in which none is 0."""
FURTHER_ROOM = 1 << 22
"""Elements of a value at most, at sizes of which the proof says that the graphs may differ there."""
SCALES = (1e-3, 1e-6, 1e-9, 1e-12)
"""Magnitudes of small elements, besides those below 1 that the graphs name, and the roots of these."""
DENORMAL = (1e-310, 5e-324)
"""Those of numbers that have no inverse."""
TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 5e-2, "bfloat16": 3e-1}
"""Of an element, absolute and relative, whatever rounding may do: where a number on the way is about to be rounded to another integer."""
IN_FLOAT64 = 1e-7
"""Of an element that is computed in float64, of the largest of its array or 1: sums of elements up to `LARGE` that cancel."""
FINITE = {
    "infinities and NaN": "finite=True takes a rule of finite elements alone",
    "denormals": "finite=True takes a rule of finite elements alone, none of them a denormal",
}
"""What takes a rule that is wrong where inputs hold such elements."""
_FLOATS = re.compile(r"\b(float32|float16|bfloat16)\b")


@dataclass(frozen=True, slots=True)
class Rule:
    """``before`` may be replaced by ``after``; made by `rule`, which checks it.

    unproved   why it is not proved for all sizes, so that it was tried only; "" where it is proved
    """

    name: str
    before: Graph
    after: Graph
    unproved: str = ""


@trim_traceback
def rule(
    name: str,
    before: str | Graph,
    after: str | Graph,
    *,
    finite: bool = False,
    tried_only: bool = False,
) -> Rule:
    """Return a rule: proved in exact arithmetic for all sizes, and tried by the reference interpreter at small ones, as this module says.

    before, after  graphs, or their texts; of the same sizes, inputs and outputs, without constants
    finite         whether it is claimed of finite elements alone, none of them a denormal. Otherwise an element that is finite before is
                   the same after, though others are infinite or NaN; one that is infinite or NaN before is infinite or NaN after, unless
                   large or small elements made it so
    tried_only     whether it is taken where it holds as far as it was tried, and the proof does not reach: `Rule.unproved` says why

    Raises DescribeError where the graphs differ: with the sizes, and the first element that does; and where it is not proved, unless `tried_only`.
    """
    one, other = (parse_graph(g) if isinstance(g, str) else g for g in (before, after))
    candidate = Rule(name, one, other)
    _check_alike(candidate)
    trials = trial_sizes(one.sizes)
    is_tested, exact = False, _in_float64(candidate)
    literals = sorted({number for graph in (one, other) for number in named_numbers(graph)})
    for number, sizes in enumerate([*trials, *sizes_at_named_numbers(one, other, trials)]):
        is_tested |= _check_at(
            candidate, exact, sizes, number, floats_by_distance(number), literals
        )
    scales = [*SCALES, *({of for n in literals if 0 < abs(n) < 1 for of in (abs(n), sqrt(abs(n)))})]
    small = partial(small_floats, scales if finite else [*scales, *DENORMAL])
    full = [sizes for sizes in trials if all(sizes.values())] or trials
    some = full if len(full) < DRAWS else full[: DRAWS // 2] + full[-DRAWS // 2 :]
    for number, sizes in enumerate(islice(cycle(some), DRAWS)):
        is_tested |= _check_at(candidate, exact, sizes, number, huge_floats, literals)
        kinds: list[Drawn] = [
            partial(near_named_numbers, literals, number),
            large_floats,
            equal_along_axes,
            small,
        ]
        kinds += [] if finite else [with_nonfinite, infinite_first_row]
        for place, kind in enumerate(kinds, 1):
            is_tested |= _check_at(exact, exact, sizes, number + DRAWS * place, kind, literals)
    if not is_tested:
        raise DescribeError(
            "rule",
            f"cannot take the rule {name}",
            because="the graph before takes none of the inputs that were drawn",
        )
    why = _reason_not_proved(candidate, exact, literals)
    if why and not tried_only:
        raise DescribeError(
            "rule",
            f"cannot take the rule {name}",
            because=f"it holds where it was tried, and is not proved for all sizes: {why}",
            help=(
                "tried_only=True takes a rule that was tried only",
                "a rule without that: of the nodes around it, or in steps that are proved each",
            ),
        )
    return replace(candidate, unproved=why)


def _reason_not_proved(candidate: Rule, exact: Rule, literals: list[float]) -> str:
    """Why a rule that holds where it was tried is not proved; "" where it is.

    Raises DescribeError where it fails at sizes that the proof does not see through.
    """
    try:
        computed = [computation_of(graph) for graph in (candidate.before, candidate.after)]
        with request_budget("rule", f"cannot prove the rule {candidate.name}"):
            show_equal(*computed)
    except NotDescribed as why:
        return str(why)
    except PartitionError as why:
        return why.because
    except NotShown as why:
        if why.sizes is not None:
            sizes = {
                size.name: why.sizes.get(size.name, size.min) for size in candidate.before.sizes
            }
            extent = Numbers(sizes)
            values = (v for g in (candidate.before, candidate.after) for v in g.values.values())
            if all(prod(map(extent, value.shape)) <= FURTHER_ROOM for value in values):
                for number in range(2):
                    _check_at(candidate, exact, sizes, number, floats_by_distance(number), literals)
        return why.because
    return ""


def _check_alike(candidate: Rule) -> None:
    a, b = candidate.before, candidate.after
    values = {value.name: value for value in (*a.values.values(),)}
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
            if (now.dtype, now.shape) != (values[name].dtype, values[name].shape):
                because = f"one gives {format_value(values[name])}, the other {format_value(now)}"
    if because:
        raise DescribeError("rule", f"cannot take the rule {candidate.name}", because=because)


def _in_float64(candidate: Rule) -> Rule:
    """Return the rule with all floats in float64; as it is where an operator does not take them."""
    try:
        before, after = (
            parse_graph(_FLOATS.sub("float64", str(graph)))
            for graph in (candidate.before, candidate.after)
        )
        return Rule(candidate.name, before, after)
    except OffcutError:
        return candidate


def _alike(before: Array, after: Array, part: float, swing: Callable[[], Array]) -> Array:
    """For each element whether it is the same, but for rounding (`described`), and never further off than `TOLERANCE` and `IN_FLOAT64`."""
    if before.dtype.kind in "biu":
        return np.asarray(before == after)
    dtype, one, other = before.dtype.name, before.astype("f8"), after.astype("f8")
    finite = np.isfinite(one)
    most = float(np.abs(one[finite]).max(initial=0.0))
    rounded = part * most + float(ml_dtypes.finfo(before.dtype).smallest_normal)
    close = np.isclose(other, one, part, rounded)
    if not close[finite].all():
        least = IN_FLOAT64 * max(1.0, most) if dtype == "float64" else TOLERANCE[dtype]
        off = np.abs(np.subtract(other, one, where=finite, out=np.zeros(one.shape)))
        close |= off <= part * np.abs(one) + rounded + swing()
        close &= np.isclose(other, one, max(TOLERANCE[dtype], part), max(least, part))
    return np.asarray(np.where(finite, close, ~np.isfinite(other)))


def _differing(before: Any, after: Any) -> tuple[str, str]:
    """Two elements with as many digits as tell them apart."""
    if before.dtype.kind in "biu":
        return str(int(before)), str(int(after))
    one, other = float(before), float(after)
    short = f"{one:g}", f"{other:g}"
    return short if short[0] != short[1] else (repr(one), repr(other))


def _among(arrays: Iterable[Array]) -> str:
    """What inputs hold of which `FINITE` speaks; nothing as a rule."""
    floats = [array.astype("f8") for array in arrays if array.dtype.kind not in "biu"]
    if not all(np.isfinite(array).all() for array in floats):
        return "infinities and NaN"
    least = float(np.finfo("f8").smallest_normal)
    denormal = any(((array != 0) & (np.abs(array) < least)).any() for array in floats)
    return "denormals" if denormal else ""


def _check_at(
    candidate: Rule,
    exact: Rule,
    sizes: Mapping[str, int],
    number: int,
    floats: Drawn,
    literals: list[float],
) -> bool:
    """Return whether the graph before takes such inputs, where that after computes the same.

    Raises DescribeError where it does not.
    """
    extent = Numbers(sizes)
    inputs = {}
    for place, value in enumerate(candidate.before.inputs, number):
        generator = np.random.default_rng(2 * place + number % 2)
        shape = [extent(n) for n in value.shape]
        inputs[value.name] = draw_input(value, shape, number, generator, floats, literals)
    try:
        expected = interpret_graph(Bound(candidate.before, {}), inputs, **sizes)
    except OffcutError:
        return False
    title = f"cannot take the rule {candidate.name}"
    at = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    try:
        actual = interpret_graph(Bound(candidate.after, {}), inputs, **sizes)
    except OffcutError as refused:
        raise DescribeError("rule", title, at=at, because=str(refused).splitlines()[0]) from refused
    part = rounding_unit(value.dtype for node in candidate.before.nodes for value in node.results)

    @cache
    def both() -> tuple[dict[str, Array], ...]:
        graphs = (exact.before, exact.after)
        return tuple(rounding_tolerance(graph, inputs, sizes, part) for graph in graphs)

    def swings(name: str) -> Array:
        one, other = both()
        return np.asarray(one[name] + other[name])

    for name, array in expected.items():
        same = _alike(array, actual[name], part, partial(swings, name))
        if floats is large_floats or (isinstance(floats, partial) and floats.func is small_floats):
            same |= ~np.isfinite(array)
        if (
            floats is huge_floats and array.dtype.kind not in "biu"
        ):  # of sums that cancel nothing else is to be seen
            before, after = array.astype("f8"), actual[name].astype("f8")
            same = np.isfinite(after) | ~np.isfinite(before)
        if not same.all():
            where = tuple(int(axis) for axis in np.argwhere(~same)[0])
            one, other = _differing(array[where], actual[name][where])
            among = _among(inputs.values())
            raise DescribeError(
                "rule",
                title,
                at=at or "its only size",
                because=f"{name}[{', '.join(map(str, where))}] is {one} before and {other} after"
                + (f" ({among} among its inputs)" if among else ""),
                help=(FINITE[among],) if among else (),
            )
    return True
