"""Substitution with backtracking: graphs that rules lead to, the cheapest by predicted cost, through some that are dearer.

A search that takes only what is cheaper at once misses what is cheaper after two rules. So a graph that costs at most
``alpha`` times the best one is looked at again. A rule is applied at all places where it fits, and at each alone where these are few.

Source: Jia et al., "Optimizing DNN Computation with Relaxed Graph Substitutions" (MetaFlow), MLSys 2019. There a graph's cost is the sum of measured times of
operators; here it is the sum of predicted times of its kernels, after fusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

from offcut.errors import DescribeError, OffcutError
from offcut.graph.graph import Bound
from offcut.graph.models.compiling.kernels import Kernels, steps_of_bound
from offcut.graph.models.compiling.split import Targets
from offcut.graph.passes import (
    Pass,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    run_passes,
)
from offcut.graph.sizes.extent_values import Numbers, typical_sizes
from offcut.graph.substitution.matching import apply_rule, matches
from offcut.graph.substitution.rules import Rule, rule

CallPrice: TypeAlias = tuple[float, int]
"""Predicted seconds of a call, and its kernels: of two graphs of one time, fewer are cheaper."""
FEW = 3
"""Places of a rule that are tried one by one."""
TIDIED: tuple[Pass, ...] = (eliminate_dead_code, fold_constants, eliminate_common_subexpressions)
"""What is done to graphs before rules are looked for in them; they are priced after all passes."""


@dataclass(frozen=True)
class Substituted:
    """What a search found.

    rules           that were applied, in order
    before, after   predicted seconds of a call
    tried           graphs that were priced
    unproved        those of the rules that were tried only
    """

    bound: Bound
    rules: tuple[str, ...]
    before: float
    after: float
    tried: int
    unproved: tuple[str, ...] = ()


def search_rewrites(
    bound: Bound,
    rules: Sequence[Rule],
    alpha: float = 1.05,
    sizes: Mapping[str, int] | None = None,
    most: int = 32,
    target: Targets = "cpu",
) -> Substituted:
    """The cheapest graph that rules lead to.

    alpha  a graph that costs at most so many times the best is gone on from, at least 1
    sizes  at which graphs are priced, each of the graph's; None: typical ones
    most   graphs that are priced, at most

    Raises DescribeError for arguments that mean nothing, and what `offcut.graph.compile_graph` raises for the first graph.
    """
    names = [size.name for size in bound.graph.sizes]
    if not alpha >= 1:
        raise DescribeError("graph", f"cannot take alpha={alpha!r}", because="alpha is at least 1")
    if sizes is not None and set(sizes) != set(names):
        because = f"its sizes are {', '.join(names) or 'none'}"
        raise DescribeError("graph", f"cannot price at {', '.join(sizes)}", because=because)
    start = run_passes(bound, TIDIED)
    at = dict(typical_sizes(start.graph.sizes) if sizes is None else sizes)
    prices = Prices(run_passes(start), at, target)
    first = prices.known_of(run_passes(start))
    best, count, visited = (first, start, tuple[str, ...]()), 1, {str(start)}
    queue: list[tuple[CallPrice, int, Bound, tuple[str, ...]]] = []
    heappush(queue, (first, 0, start, tuple[str, ...]()))
    while queue and count < most:
        cost, _, graph, path = heappop(queue)
        if cost[0] > alpha * best[0][0]:
            break
        for rewrite in rules:
            places = matches(rewrite, graph.graph)
            groups = [places] if places else []
            groups += [(one,) for one in places] if 1 < len(places) <= FEW else []
            for group in groups:
                rewritten = apply_rule(graph, rewrite, group)
                now = None if rewritten is None else run_passes(rewritten, TIDIED)
                if now is None or str(now) in visited or count >= most:
                    continue
                visited.add(str(now))
                count += 1
                price, steps = prices.of(run_passes(now)), (*path, rewrite.name)
                if price < best[0]:
                    best = price, now, steps
                if price[0] <= alpha * best[0][0]:
                    heappush(queue, (price, count, now, steps))
    unproved = {one.name for one in rules if one.unproved}
    tried_only = tuple(name for name in best[2] if name in unproved)
    return Substituted(best[1], best[2], first[0], best[0][0], count, tried_only)


class Prices:
    """Predicted seconds of a call of a graph, at some sizes; equal kernels are priced once."""

    def __init__(self, bound: Bound, sizes: Mapping[str, int], target: Targets) -> None:
        self.sizes, self.target = sizes, target
        self.first = self.kernels(bound, None)
        self.known: dict[object, float] = {}

    def kernels(self, bound: Bound, like: Kernels | None) -> Kernels:
        """Kernels of a graph that share code with those of the first."""
        graph = bound.graph
        return Kernels(graph.sizes, graph.values, bound.arrays, self.target, 1, like)

    def of(self, bound: Bound) -> CallPrice:
        """What a call costs; infinite where a node has no kernel."""
        try:
            return self.known_of(bound)
        except OffcutError:
            return float("inf"), 0

    def known_of(self, bound: Bound) -> CallPrice:
        """What a call costs.

        Raises what `offcut.graph.compile_graph` does where a node has no kernel.
        """
        steps = steps_of_bound(bound, self.kernels(bound, self.first), priced=True).steps
        number, total = Numbers(self.sizes), 0.0
        for step in steps:
            at = {name: number(extent) for name, extent in step.sizes}
            key = step.code, tuple(sorted(at.items()))
            if key not in self.known:
                self.known[key] = float(step.kernel.cost(**at).seconds)
            total += self.known[key]
        return total, len(steps)


# Rules that are known to hold: sums of products of one operand are one sum, with what they multiply by side by side.
#
# ``y = dense(x, u)``, ``z = dense(x, v)`` are two parts of ``dense(x, [u v])``; two convolutions with one window likewise, along
# their channels, and what works point by point on both parts works on the whole. A convolution of single points is one with a window whose other weights
# are 0, by which it can join another with that window (Jia et al., MLSys 2019).

_SIDE_BY_SIDE = """\
graph products
size n in 0:1073741825
size k in 0:1073741825
size a in 0:1073741825
size b in 0:1073741825
input x: float32[n, k]
input u: float32[k, a]
input v: float32[k, b]
"""
_LEADING = _SIDE_BY_SIDE.replace("size k", "size m in 0:1073741825\nsize k").replace(
    "[n, k]", "[n, m, k]"
)


def joined_products(dtype: str = "float32") -> tuple[Rule, ...]:
    """Two products of one operand are one of both matrices side by side, cut in two: with and without bias, of two and three axes.

    dtype  of all of them
    """
    rules = []
    for head, lead in ((_SIDE_BY_SIDE, "n"), (_LEADING, "n, m")):
        axis = lead.count(",") + 1
        for biased in (False, True):
            inputs = "input c: float32[a]\ninput d: float32[b]\n" if biased else ""
            one, other, both = (", c", ", d", ", e") if biased else ("", "", "")
            before = f"y: float32[{lead}, a] = dense(x, u{one})\nz: float32[{lead}, b] = dense(x, v{other})\noutput y, z"
            biases = "e: float32[a + b] = concat([c, d], axis=0)\n" if biased else ""
            after = (
                f"w: float32[k, a + b] = concat([u, v], axis=1)\n{biases}"
                f"p: float32[{lead}, a + b] = dense(x, w{both})\n"
                f"y: float32[{lead}, a] = slice(p, {axis}, 0, a)\n"
                f"z: float32[{lead}, b] = slice(p, {axis}, a, a + b)\noutput y, z"
            )
            name = f"products of one operand{' with bias' if biased else ''}, {axis + 1} axes"
            texts = (head + inputs + part for part in (before, after))
            rules.append(rule(name, *(text.replace("float32", dtype) for text in texts)))
    return tuple(rules)


_IMAGE = "\n".join(
    [
        "graph image",
        *(f"size {name} in 1:1073741825" for name in "nchwab"),
        "input x: float32[n, c, h, w]",
    ]
)


def joined_convolutions(
    window: int = 1, stride: int = 1, dtype: str = "float32"
) -> tuple[Rule, ...]:
    """Two convolutions of one image, with windows of one size, are one with more channels: with and without bias.

    window  odd, of both axes, padded on each side by its half
    """
    rows, columns = (side if stride == 1 else f"({side} - 1)//{stride} + 1" for side in "hw")
    ends = f"stride={stride}, padding={window // 2}"
    of = f"{window}, {window}"
    return tuple(
        _convolutions(
            f"convolutions {window}×{window}",
            of,
            of,
            "u",
            (rows, columns),
            ends,
            ends,
            biased,
            dtype,
        )
        for biased in (False, True)
    )


def widened_convolutions(window: int = 3, dtype: str = "float32") -> tuple[Rule, ...]:
    """A convolution of points beside one with a window takes that window, all but the middle of which is 0: with and without bias.

    window  odd, of both axes, padded on each side by its half
    """
    half = window // 2
    wide = f"pad(u, before=[0, 0, {half}, {half}], after=[0, 0, {half}, {half}])"
    return tuple(
        _convolutions(
            f"points beside {window}×{window}",
            "1, 1",
            f"{window}, {window}",
            wide,
            ("h", "w"),
            "padding=0",
            f"padding={half}",
            biased,
            dtype,
        )
        for biased in (False, True)
    )


def _convolutions(
    name: str,
    one: str,
    other: str,
    wide: str,
    image: tuple[str, str],
    alone: str,
    ends: str,
    biased: bool,
    dtype: str,
) -> Rule:
    """Two convolutions of x with u and v are one.

    one, other   the windows of u and v
    wide         u with the window of v
    image        rows and columns of the results
    alone, ends  options of the convolution with u, and of those with v and with both
    """
    side = ", ".join(image)
    head = f"{_IMAGE}\ninput u: float32[a, c, {one}]\ninput v: float32[b, c, {other}]\n"
    head += "input d: float32[a]\ninput e: float32[b]\n" if biased else ""
    biases = "f: float32[a + b] = concat([d, e], axis=0)\n" if biased else ""
    first, second, both = ("bias=d, ", "bias=e, ", "bias=f, ") if biased else ("", "", "")
    before = (
        f"y: float32[n, a, {side}] = conv2d(x, u, {first}{alone})\n"
        f"z: float32[n, b, {side}] = conv2d(x, v, {second}{ends})\noutput y, z"
    )
    whole = f"t: float32[a, c, {other}] = {wide}\n" if wide != "u" else ""
    after = (
        f"{whole}{biases}g: float32[a + b, c, {other}] = concat([{'t' if whole else 'u'}, v], axis=0)\n"
        f"p: float32[n, a + b, {side}] = conv2d(x, g, {both}{ends})\n"
        f"y: float32[n, a, {side}] = slice(p, 1, 0, a)\n"
        f"z: float32[n, b, {side}] = slice(p, 1, a, a + b)\noutput y, z"
    )
    texts = ((head + part).replace("float32", dtype) for part in (before, after))
    return rule(f"{name}{' with bias' if biased else ''}", *texts, finite=whole != "")


def parts_of_one(op: str = "relu", dtype: str = "float32") -> tuple[Rule, ...]:
    """What works point by point on both parts of an image's channels works on all of them; and both parts side by side are the image.

    op  an operator of one operand
    """
    head = _IMAGE.replace("size c in 1:1073741825\n", "").replace("[n, c,", "[n, a + b,") + "\n"
    parts = "s: float32[n, a, h, w] = slice({0}, 1, 0, a)\nt: float32[n, b, h, w] = slice({0}, 1, a, a + b)\n"
    each = f"y: float32[n, a, h, w] = {op}(s)\nz: float32[n, b, h, w] = {op}(t)\noutput y, z"
    at_once = f"q: float32[n, a + b, h, w] = {op}(x)\n" + parts.format("q").replace(
        "s:", "y:"
    ).replace("t:", "z:")
    whole = parts.format("x") + "y: float32[n, a + b, h, w] = concat([s, t], axis=1)\noutput y"
    texts = (
        (f"{op} of both parts", parts.format("x") + each, at_once + "output y, z"),
        (
            "both parts side by side",
            whole,
            "y: float32[n, a + b, h, w] = reshape(x, [n, a + b, h, w])\noutput y",
        ),
    )
    return tuple(
        rule(name, *((head + part).replace("float32", dtype) for part in pair))
        for name, *pair in texts
    )
