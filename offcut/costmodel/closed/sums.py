"""Sums over loops: all are taken in one way, and where that does not do, all again in the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.core.scan import ScanContext
from offcut.costmodel.closed.added import Tables, TooMany
from offcut.costmodel.closed.exactness import Exactness
from offcut.costmodel.closed.summation import (
    SHORT,
    NoClosedForm,
    asks,
    at_most,
    chosen,
    folded,
    half_way,
    short_sum,
    summed,
)


class Summing(Enum):
    """How a sum is taken."""

    ADDED = "added"  # short closed forms, else terms that are added up: where all sizes are known
    CLOSED = "closed"  # closed forms
    HALF_WAY = "half way"  # trips times the term half way; where a condition decides it, a bound
    BOUND = "bound"  # bounds, of what it would be if all conditions held

    @property
    def exactness(self) -> Exactness:
        """Of the sum."""
        other = {Summing.HALF_WAY: Exactness.ESTIMATE, Summing.BOUND: Exactness.BOUND}
        return other.get(self, Exactness.EXACT)


def of_counts(*, is_open: bool) -> Sequence[Summing]:
    """The ways to sum counts, the better first.

    is_open  whether a size is not given: nothing can be added up then
    """
    return (*_added(is_open), Summing.CLOSED, Summing.BOUND)


def of_bytes(*, is_open: bool) -> Sequence[Summing]:
    """Likewise bytes, whose terms are longer: how a count is bounded would say nothing of them."""
    return (*_added(is_open), Summing.HALF_WAY)


def _added(is_open: bool) -> Sequence[Summing]:
    return () if is_open else (Summing.ADDED,)


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount, and how exact it is."""

    value: Expr
    exactness: Exactness = Exactness.EXACT


@dataclass
class Sums:
    """Sums that are taken in one way.

    ways    it, and those to take where it does not do
    failed  whether it did not: what has been summed means nothing then
    """

    ways: Sequence[Summing]
    tables: Tables = field(default_factory=Tables)
    failed: bool = False

    @property
    def way(self) -> Summing:
        """The one in which they are taken."""
        return self.ways[0]

    def over(self, name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> Expr:
        """The sum of a count over ``lo <= name < hi``."""
        if self.failed:
            return term
        match self.way:
            case Summing.ADDED:
                short = short_sum(name, lo, hi, term, known, splits=1, longest=SHORT)
                if short is not None:
                    return short
                return self.tables.stands_for(name, lo, hi, folded(term))
            case Summing.CLOSED:
                try:
                    return summed(name, lo, hi, term, known)
                except NoClosedForm:
                    self.failed = True
                    return term
            case Summing.HALF_WAY:
                return (at_most if asks(term, name) else half_way)(name, lo, hi, term, known)
            case Summing.BOUND:
                return at_most(name, lo, hi, term, known)

    def where(self, condition: Expr, then: Expr, other: Expr) -> Expr:
        """One of two counts, by a condition that iterators decide."""
        return ix.add(then, other) if self.way is Summing.BOUND else chosen(condition, then, other)

    def at_last(self, total: Expr) -> Expr:
        """A sum over all loops, with what is left to add up."""
        if self.way is not Summing.ADDED or self.failed:
            return total
        try:
            return self.tables.value(total)
        except TooMany:
            self.failed = True
            return total


def settled(ways: Sequence[Summing], count: Callable[[Sums], Expr]) -> Amount:
    """A count that is made of sums, from the first way on until one does."""
    sums = Sums(ways)
    total = sums.at_last(count(sums))
    if sums.failed:
        return settled(ways[1:], count)
    return Amount(total, sums.way.exactness)
