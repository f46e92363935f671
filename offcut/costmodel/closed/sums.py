"""How exactly a sum over a loop is taken: in one way, and where that does not do, all again in the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.core.ranges import Known
from offcut.costmodel.closed.added import Tables, TooMany
from offcut.costmodel.closed.summation import (
    SHORT,
    Sum,
    at_most,
    chosen,
    folded,
    short_sum,
    summed,
)


class Exactness(Enum):
    """What a sum becomes, the better ways first."""

    ADDED = "added"  # short closed forms, else terms that are added up: where all sizes are known
    CLOSED = "closed"  # closed forms
    BOUND = "bound"  # bounds, of what it would be if all conditions held


@dataclass
class Sums:
    """Sums that are taken in one way.

    how      the way
    instead  the one to take, where this did not do: what has been summed means nothing then
    """

    how: Exactness
    tables: Tables = field(default_factory=Tables)
    instead: Exactness | None = None

    def over(self, name: str, lo: Expr, hi: Expr, term: Expr, known: Known) -> Expr:
        """The sum of a count over ``lo <= name < hi``."""
        if self.instead is not None:
            return term
        match self.how:
            case Exactness.ADDED:
                short = short_sum(name, lo, hi, term, known, splits=1, longest=SHORT)
                if short is not None:
                    return short
                return self.tables.stands_for(name, lo, hi, folded(term))
            case Exactness.CLOSED:
                closed = summed(name, lo, hi, term, known)
                self.instead = None if closed.exact else Exactness.BOUND
                return closed.value
            case Exactness.BOUND:
                return at_most(name, lo, hi, term, known)

    def where(self, condition: Expr, then: Expr, other: Expr) -> Expr:
        """One of two counts, by a condition that iterators decide."""
        return (
            ix.add(then, other) if self.how is Exactness.BOUND else chosen(condition, then, other)
        )

    def at_last(self, total: Expr) -> Expr:
        """A sum over all loops, with what is left to add up."""
        if self.how is not Exactness.ADDED or self.instead is not None:
            return total
        try:
            return self.tables.value(total)
        except TooMany:
            self.instead = Exactness.CLOSED
            return total


def settled(first: Exactness, count: Callable[[Sums], Expr]) -> Sum:
    """A count that is made of sums, from the first way on until one does."""
    sums = Sums(first)
    total = sums.at_last(count(sums))
    if sums.instead is not None:
        return settled(sums.instead, count)
    return Sum(total, sums.how is not Exactness.BOUND)
