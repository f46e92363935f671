"""Which axes of a nest lie in the lanes of words: rows and columns of accumulators, terms of a product.

The judge of covers says by which axes the matrix unit runs a product. Among the layouts that there are, the one that fills words
best is taken: over sizes that are left open, between their least and those of a middle layer. Another one that fills
words better at one of these ends stands beside it, and a call takes the faster.

Sizes and extents of a middle layer, where ways to run a nest are compared before any size is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod, sqrt

from offcut.backends.accelerator.lowering.word_layout import lane_axes
from offcut.backends.accelerator.microkernels import products_of
from offcut.backends.accelerator.planning.staging import Element, is_laid_by_loops, variables_of
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Binary, Cast, Expr, Load, Var, substitute, variables
from offcut.core.program import Program, Size
from offcut.describe.computation import StageAxis
from offcut.partition.judge import matches

TYPICAL = 64
"""What is not known is taken to be: about the rows, and the channels, of the first residual layers of ResNet-18."""

AROUND = (0.125, 0.6, 4.0)
"""Times a typical size: sizes that are compared beside it."""
BETWEEN = (0.03, 0.25)
"""The same, of sizes at which another way may be the better one."""


def typical_sizes(program: Program) -> dict[str, int]:
    """Sizes of a middle layer, as far as they are allowed."""
    return midpoint_sizes(program.sizes)


def least_sizes(program: Program) -> dict[str, int]:
    """Return the least allowed value of each size, from 1 on."""
    return {size.name: size.at_or_above(1) for size in program.sizes}


def sizes_around(program: Program, parts: Sequence[float] = AROUND) -> list[dict[str, int]]:
    """Return typical sizes, then smaller and larger ones, as far as they are allowed, at which a way should be good, too.

    parts  of typical sizes, that the others are
    """
    typical = typical_sizes(program)
    vectors = [typical]
    for part in parts:
        sizes = {
            size.name: max(min(round(typical[size.name] * part), size.max), size.min, 1)
            for size in program.sizes
        }
        if sizes not in vectors:
            vectors.append(sizes)
    return vectors


def midpoint_sizes(sizes: Sequence[Size]) -> dict[str, int]:
    """The same of sizes."""
    return {size.name: max(min(size.max, TYPICAL), size.min) for size in sizes}


def typical_extents(sizes: Mapping[str, int], axes: Sequence[StageAxis]) -> dict[str, int]:
    """Extents of axes at these sizes, at least 1."""
    known: dict[str, Expr] = {name: ix.const(size) for name, size in sizes.items()}
    extents = {
        axis.name: ix.literal_value(ix.simplify(substitute(axis.extent, known))) for axis in axes
    }
    return {name: max(TYPICAL if n is None else n, 1) for name, n in extents.items()}


BETTER = 1.25
"""How many times as well another layout fills words at one end of the sizes, so that it stands beside the first. A choice, no
measurement: each layout is compiled, proved, and counted at a call, which a few words that are filled better do not pay for.
"""


@dataclass(frozen=True, slots=True)
class Roles:
    """Axes in lanes, by name; None: the lane is one, the others hold nothing that is read.

    rows     of accumulators and inputs
    columns  of accumulators, the rows of weights
    depth    the terms, of inputs and weights; None of a nest without a product
    """

    rows: str | None
    columns: str | None
    depth: str | None = None


@dataclass(frozen=True, slots=True)
class Laid:
    """A layout: how a nest lies in words.

    lanes    (axis, lanes along it)
    swapped  of a product, whether the second factor is the inputs'
    before   what counts more than how well words are filled, the less the better: whether words are to be laid at each
             call; whether columns are of an open extent
    spread   copies whose words are not words of the array
    late     between layouts that are alike, the least is taken
    """

    roles: Roles
    lanes: tuple[tuple[str | None, int], ...]
    swapped: bool = False
    before: tuple[int, int] = (0, 0)
    spread: int = 0
    late: int = 0

    def waste(self, extents: Mapping[str, int]) -> float:
        """By which factor its words have more elements than there are."""
        factor = 1.0
        for axis, count in self.lanes:
            extent = 1 if axis is None else extents[axis]
            factor *= -(-extent // count) * count / extent
        return factor


@dataclass(frozen=True, slots=True)
class Layouts:
    """How a nest may lie in words, and the layouts that are worth it: the best one first."""

    every: Mapping[Roles, Laid]
    chosen: tuple[Roles, ...]

    def preferred(self, wished: Roles | None) -> Laid:
        """Return `wished` where it is among them, else the best."""
        wished_layout = None if wished is None else self.every.get(wished)
        return self.every[self.chosen[0]] if wished_layout is None else wished_layout


def product_layouts(
    factors: tuple[Element, Element],
    axes: Sequence[StageAxis],
    terms: Sequence[StageAxis],
    sizes: Sequence[Size],
    constants: frozenset[str],
    others: Sequence[Element],
    spec: AcceleratorSpec,
) -> Layouts:
    """Those of a sum of products.

    constants   arrays that are known before any call: their words cost nothing to lay
    others      what operations behind the sum read
    """
    symbolic = {axis.name for axis in axes if ix.literal_value(axis.extent) is None}
    candidates: list[Laid] = []
    for swapped in (False, True):
        inputs, weights = factors[::-1] if swapped else factors
        for roles in _product_roles(inputs, weights, axes, terms, spec):
            lanes = (
                (roles.rows, spec.rows),
                (roles.columns, spec.columns),
                (roles.depth, spec.terms),
            )
            unlike = int(weights.load.buffer not in constants)
            open_ = 2 if roles.columns is None else int(roles.columns in symbolic)
            spread = sum(_is_spread(one, roles) for one in (inputs, weights, *others))
            candidates.append(Laid(roles, lanes, swapped, (unlike, open_), spread, int(swapped)))
    ends = _ends(sizes, (*axes, *terms))
    best = min(candidates, key=lambda one: (one.before, one.waste(ends[1]), one.spread, one.late))
    rivals = [one for one in candidates if one.before[0] == best.before[0]]
    return _with_rivals(candidates, best, rivals, ends)


def _product_roles(
    inputs: Element,
    weights: Element,
    axes: Sequence[StageAxis],
    terms: Sequence[StageAxis],
    spec: AcceleratorSpec,
) -> Iterator[Roles]:
    """Yield those by which the matrix unit runs a product of copies along loops, where columns, and terms, are no sums of loops, but for terms of
    copies that have an axis for each loop anyway.

    Any axis may be the innermost one: rows may be left out before the columns, whichever these are.
    """
    own, summed = (tuple([axis.name for axis in some]) for some in (axes, terms))
    loops = *own, *summed
    moving = (tuple(Var(n) for n in loops if n in variables_of(one)) for one in (inputs, weights))
    a, b = (Cast(Load("AB"[at], index, "int8"), "int32") for at, index in enumerate(moving))
    total = Load("C", tuple(map(Var, own)), "int32")
    values = (Binary("*", a, b), "sum"), (Binary("+", total, Binary("*", a, b)), None)
    inner = (tuple(sorted(own, key=lambda name: name == last)) for last in own)
    ways = [
        way
        for axes, (unit, value) in product(inner, zip(products_of(spec), values, strict=True))
        for way in matches(unit, *value, axes, summed)
        if way.operand("A").buffer == "A"
    ]

    def along(name: str, *lone: Element) -> list[str | None]:
        names = {way.axis(name) for way in ways}
        return [n for n in loops if n in names and all(_is_lone(one, n) for one in lone)] + [None]

    every = (*axes, *terms)
    sums = [one for one in (inputs, weights) if not is_laid_by_loops(one, every)]
    rows = along("i") if spec.rows > 1 else [None]
    for row, column, term in product(rows, along("j", weights), along("p", *sums)):
        yield Roles(row, column, term)


def word_layouts(
    elements: Sequence[Element],
    axes: Sequence[StageAxis],
    sizes: Sequence[Size],
    spec: AcceleratorSpec,
) -> Layouts:
    """Those of a nest without a product: along axes that are alone in what is read."""
    names = [axis.name for axis in axes]
    free = {name for name in names if not any(_is_gathered(one, name) for one in elements)}
    alone = [(name,) for name in names if spec.rows == 1 or not free - {name}]
    candidates: list[Laid] = []
    for order in (*alone, *permutations(names, 2), ()):
        roles = Roles(*lane_axes(order, spec.rows, spec.columns))
        spread = sum(_is_spread(one, roles) for one in elements)
        late = sum(-names.index(a) for a in (roles.rows, roles.columns) if a is not None)
        lanes = (roles.rows, spec.rows), (roles.columns, spec.columns)
        candidates.append(Laid(roles, lanes, spread=spread, late=late))
    ends = _ends(sizes, axes)

    def price(one: Laid) -> tuple[float, int, int]:
        return (1 + one.spread) * sqrt(prod(map(one.waste, ends))), one.spread, one.late

    best = min(candidates, key=price)
    return _with_rivals(
        candidates, best, [one for one in candidates if one.spread <= best.spread], ends
    )


Ends = tuple[Mapping[str, int], Mapping[str, int]]
"""Extents of axes at the least sizes, and at those of a middle layer."""


def _ends(sizes: Sequence[Size], axes: Sequence[StageAxis]) -> Ends:
    least = {size.name: size.min for size in sizes}
    return typical_extents(least, axes), typical_extents(midpoint_sizes(sizes), axes)


def _with_rivals(every: Sequence[Laid], best: Laid, rivals: Sequence[Laid], ends: Ends) -> Layouts:
    """Return the best layout, and at each end of the sizes the best of its rivals, where that fills words better."""
    chosen = [best.roles]
    for end in ends:
        rival = min(rivals, key=lambda one: (one.waste(end), one.before, one.spread, one.late))
        if rival.roles not in chosen and BETTER * rival.waste(end) <= best.waste(end):
            chosen.append(rival.roles)
    known: dict[Roles, Laid] = {}
    for one in sorted(every, key=lambda one: (one.before, one.spread, one.late)):
        known.setdefault(one.roles, one)
    return Layouts(known, tuple(chosen))


def _is_lone(element: Element, axis: str) -> bool:
    """Return whether an axis moves one index of an element, by itself, and no condition."""
    parts = [part for part in element.load.index if axis in variables(part)]
    conditions = any(axis in variables(one) for one in element.conditions)
    return parts == [Var(axis)] and not conditions


def _is_spread(element: Element, roles: Roles) -> bool:
    """Return whether words of the copy are not words of the array, so that the host lays them."""
    lanes = [axis for axis in (roles.rows, roles.columns, roles.depth) if axis is not None]
    return any(_is_gathered(element, axis) for axis in lanes)


def _is_gathered(element: Element, axis: str) -> bool:
    """Return whether an axis moves an element, and not by itself."""
    return axis in variables_of(element) and not _is_lone(element, axis)
