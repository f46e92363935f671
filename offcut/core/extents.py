"""Extents of arrays at sizes: their values, and which of them gives which size."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, substitute, variables, walk

APPLIED: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}
"""The operations of extents."""


def number_at(extent: Expr, sizes: Mapping[str, int]) -> int:
    """Return the value of an extent."""
    match extent:
        case Const(value, _):
            return int(value)
        case Var(name):
            return sizes[name]
        case Binary(op, a, b):
            return APPLIED[op](number_at(a, sizes), number_at(b, sizes))
        case _:
            raise ValueError(f"no extent: {extent}")


def is_checked(extent: Expr) -> bool:
    """Return whether machine code of a call computes an extent: it is a sum of multiples of sizes and of quotients of such sums by
    positive numbers.
    """
    inner = (atom for atom, _ in ix.to_linear(extent).terms if not isinstance(atom, Var))
    return all(
        isinstance(atom, Binary)
        and atom.op == "//"
        and isinstance(atom.b, Const)
        and is_checked(atom.a)
        for atom in inner
    )


def names_of(extent: Expr) -> tuple[str, ...]:
    """Return the sizes in an extent, in the order in which they stand."""
    return tuple(dict.fromkeys(part.name for part in walk(extent) if isinstance(part, Var)))


def factor_of(extent: Expr, name: str) -> int:
    """Return the factor of a size that an extent is affine in."""
    return dict(ix.to_linear(extent).terms)[Var(name)]


def solving_order(extents: Sequence[Expr], known: Collection[str]) -> Iterator[tuple[str, int]]:
    """Return pairs of a size and the extent that gives it, in an order that can be followed.

    An extent gives a size if it is affine in it, and the others in it are `known` or come before.
    """
    solved, before = set(known), -1
    while before < len(solved):
        before = len(solved)
        for number, extent in enumerate(extents):
            unknown = variables(extent) - solved
            parts = {atom for atom, _ in ix.to_linear(extent).terms if variables(atom) & unknown}
            if len(unknown) == 1 and parts == set(map(Var, unknown)):
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
