"""Which extent of an array gives which size, and the value that it gives."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from offcut.core import index as ix
from offcut.core.expr import Expr, Var, substitute, variables


class Names(NamedTuple):
    """The sizes in an extent, and those of them that it is affine in."""

    every: Collection[str]
    affine: Collection[str]


def names_in(extent: Expr) -> Names:
    """Return the names of an index expression."""
    plain, inner = set[str](), set[str]()
    for atom, _ in ix.to_linear(ix.simplify(extent)).terms:
        (plain if isinstance(atom, Var) else inner).update(variables(atom))
    return Names(plain | inner, plain - inner)


def solving_order(extents: Sequence[Names], known: Collection[str]) -> Iterator[tuple[str, int]]:
    """Return pairs of a size and the extent that gives it, in an order that can be followed.

    An extent gives a size if it is affine in it, and the others in it are `known` or come before.
    """
    solved, before = set(known), -1
    while before < len(solved):
        before = len(solved)
        for number, (every, affine) in enumerate(extents):
            unknown = set(every) - solved
            if len(unknown) == 1 and unknown <= set(affine):
                (name,) = unknown
                yield name, number
                solved.add(name)


def value_at(extent: Expr, sizes: Mapping[str, int]) -> Expr:
    """Return an index expression with these sizes put in."""
    return ix.simplify(substitute(extent, {name: ix.const(n) for name, n in sizes.items()}))


class Solution(NamedTuple):
    """The value that an extent, by its number, gives a size; None if no integer gives that extent."""

    name: str
    number: int
    value: int | None


def solve(extents: Sequence[tuple[Expr, int]], known: dict[str, int]) -> Iterator[Solution]:
    """Return the sizes that extents and their values give, and add each to `known` after it was looked at.

    It ends at a size without a value, and where no other extent has one name in it that is not known.
    """
    while True:
        for number, (extent, actual) in enumerate(extents):
            form = ix.to_linear(value_at(extent, known))
            match form.terms:
                case ((Var(name), factor),):
                    value, rest = divmod(actual - form.const, factor)
                    yield Solution(name, number, None if rest else value)
                    known[name] = value
                    if rest:
                        return
                    break
        else:
            return
