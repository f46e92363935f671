"""Which axes of a nest lie in the lanes of words: rows and columns of accumulators, terms of a product.

Found by access relations, as a cover is: the columns move one factor alone, the terms both, the rows the
other factor alone; each as an index of its own. Among the ways that there are, the one that fills words
best is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod, sqrt

from offcut.backends.accelerator.lowering.words import sides
from offcut.backends.accelerator.planning.staging import Element, variables_of
from offcut.backends.accelerator.planning.typical import middle_of, typical_extent, typical_extents
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Var, variables
from offcut.core.program import Size
from offcut.describe.computation import StageAxis


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


def product_roles(
    factors: tuple[Element, Element],
    axes: Sequence[StageAxis],
    terms: Sequence[StageAxis],
    constants: frozenset[str],
    others: Sequence[Element],
    spec: Spec,
    wished: Roles | None = None,
) -> tuple[Roles, bool]:
    """The roles of a sum of products, and whether the second factor is the inputs'.

    constants   arrays that are known before any call: their words cost nothing to lay
    others      what operations behind the sum read
    wished      taken where they are among those that there are
    """
    extents = {axis.name: typical_extent(axis) for axis in (*axes, *terms)}

    def waste(roles: Roles) -> float:
        sides = (roles.rows, spec.rows), (roles.columns, spec.columns), (roles.depth, spec.terms)
        factor = 1.0
        for axis, lanes in sides:
            extent = 1 if axis is None else extents[axis]
            factor *= -(-extent // lanes) * lanes / extent
        return factor

    symbolic = {axis.name for axis in axes if ix.literal(axis.extent) is None}
    found = []
    for swapped in (False, True):
        inputs, weights = factors[::-1] if swapped else factors
        for roles in _product_ways(inputs, weights, axes, terms, spec):
            unlike = weights.load.buffer not in constants
            open_ = 2 if roles.columns is None else int(roles.columns in symbolic)
            gathered = sum(_is_spread(one, roles) for one in (inputs, weights, *others))
            price = (roles != wished, unlike, open_, waste(roles), gathered, swapped)
            found.append((price, roles))
    (*_, swapped), roles = min(found, key=lambda one: one[0])
    return roles, bool(swapped)


def _product_ways(
    inputs: Element,
    weights: Element,
    axes: Sequence[StageAxis],
    terms: Sequence[StageAxis],
    spec: Spec,
) -> Iterator[Roles]:
    moving = variables_of(inputs), variables_of(weights)
    columns = [
        a.name for a in axes if a.name in moving[1] - moving[0] and _is_lone(weights, a.name)
    ]
    depth = [a.name for a in terms if all(_is_lone(one, a.name) for one in (inputs, weights))]
    rows = [a.name for a in axes if a.name in moving[0] - moving[1]] if spec.rows > 1 else []
    for row, column, term in product((*rows, None), (*columns, None), (*depth, None)):
        yield Roles(row, column, term)


def word_roles(
    elements: Sequence[Element],
    axes: Sequence[StageAxis],
    sizes: Sequence[Size],
    spec: Spec,
) -> Roles:
    """The roles of a nest without a product: the axes that fill words best, and are alone in what is read. One whose
    extent is open fills them as well as between its least and a middle size.
    """
    names = [axis.name for axis in axes]
    least = typical_extents({size.name: size.min for size in sizes}, axes)
    middle = typical_extents(middle_of(sizes), axes)

    def price(roles: Roles) -> tuple[float, int, int]:
        factor = 1.0
        for axis, lanes in ((roles.rows, spec.rows), (roles.columns, spec.columns)):
            ends = (1, 1) if axis is None else (least[axis], middle[axis])
            factor *= sqrt(prod(-(-extent // lanes) * lanes / extent for extent in ends))
        spread = sum(_is_spread(one, roles) for one in elements)
        late = sum(-names.index(a) for a in (roles.rows, roles.columns) if a is not None)
        return factor * (1 + spread), spread, late

    free = {name for name in names if not any(_is_gathered(one, name) for one in elements)}
    alone = [(name,) for name in names if spec.rows == 1 or not free - {name}]
    orders = (*alone, *permutations(names, 2), ())
    return min((Roles(*sides(order, spec.rows, spec.columns)) for order in orders), key=price)


def _is_lone(element: Element, axis: str) -> bool:
    """Whether an axis moves one index of an element, by itself, and no condition."""
    parts = [part for part in element.load.index if axis in variables(part)]
    conditions = any(axis in variables(one) for one in element.conditions)
    return parts == [Var(axis)] and not conditions


def _is_spread(element: Element, roles: Roles) -> bool:
    """Whether words of the copy are not words of the array, so that the host lays them."""
    lanes = [axis for axis in (roles.rows, roles.columns, roles.depth) if axis is not None]
    return any(_is_gathered(element, axis) for axis in lanes)


def _is_gathered(element: Element, axis: str) -> bool:
    """Whether an axis moves an element, and not by itself."""
    return axis in variables_of(element) and not _is_lone(element, axis)
