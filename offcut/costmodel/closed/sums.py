"""Sums over loops: all are taken in one way, and where that does not do, all again in the next.

At sizes that are known, a sum without a closed form stands as an element of a table, and is added up at last: a sum over the loop i of a term that depends on the loops j, k around it is ``#3[j, k]``, an expression that is moved, summed and
summed over again as any other; once no iterator is left, its terms are added, all places of a table at once. Work is
counted in parts of terms, so that what is added up does not depend on how fast a machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Var, all_loads, rewrite, variables, walk
from offcut.core.interpret.values import evaluate_all
from offcut.core.scan import ScanContext
from offcut.costmodel.closed.counts import ZERO, Exactness
from offcut.costmodel.closed.summation import (
    SHORT,
    NoClosedForm,
    asks,
    at_most,
    half_way,
    near_sum,
    short_sum,
    sum_over,
)
from offcut.costmodel.simplification import select, simplify_index

MAX_EVALUATED_PARTS = 1 << 25
"""Parts of terms that are evaluated for the counts of a program, at most: a fraction of a second."""

MIN_PARTS_OF_TERM = 16
"""Parts that any term counts as: its place has to be found, and it has to be added."""

Array: TypeAlias = npt.NDArray[Any]


class SumTooLarge(Exception):
    """A sum exceeds the budget of evaluated terms."""


@dataclass(frozen=True, slots=True)
class _Table:
    """``table[around] = sum of term over lo <= name < hi``, with so many parts in `term`."""

    name: str
    lo: Expr
    hi: Expr
    term: Expr
    around: tuple[str, ...]
    parts: int


@dataclass
class SumTables:
    """Tables of the sums of one program, evaluated at fixed sizes.

    left  remaining budget, in evaluated parts of terms
    """

    left: int = field(default_factory=lambda: MAX_EVALUATED_PARTS)
    _tables: dict[str, _Table] = field(default_factory=dict)
    _names: dict[_Table, str] = field(default_factory=dict)
    _values: dict[Expr, Expr] = field(default_factory=dict)

    def tabulate(self, name: str, lo: Expr, hi: Expr, term: Expr) -> Expr:
        """Return an expression for the sum of `term` over ``lo <= name < hi``, in the iterators around: table loads, not yet evaluated."""
        form = ix.to_linear(
            term
        )  # of counts that are multiples of one another, the table is the same
        parts = [(atom, factor) for atom, factor in form.terms if name in variables(atom)]
        once = ix.sub(term, ix.add(*(ix.mul(factor, atom) for atom, factor in parts)))
        trips = ix.maximum(ix.sub(hi, lo), 0)
        sums = (ix.mul(factor, self._place(name, lo, hi, atom)) for atom, factor in parts)
        return ix.add(ix.mul(trips, once), *sums)

    def _place(self, name: str, lo: Expr, hi: Expr, term: Expr) -> Expr:
        """Return the load of the table entry with the sum of `term`."""
        inside = variables(term) - {name}
        around = tuple(sorted(inside | variables(lo) | variables(hi)))
        table = _Table(name, lo, hi, term, around, sum(1 for _ in walk(term)))
        known = self._names.setdefault(table, f"#{len(self._names)}")
        self._tables[known] = table
        return Load(known, tuple(map(Var, around)), "index")

    def value(self, expr: Expr) -> Expr:
        """Return `expr`, which has no iterator, with every sum evaluated.

        Raises SumTooLarge if the budget is exceeded.
        """
        sums = dict.fromkeys(all_loads(expr))
        for load in sums:
            if load not in self._values:
                value_of_load = self._evaluate_sum(load, {}, 1)
                self._values[load] = ix.const(int(value_of_load[0]))
        return simplify_index(rewrite(expr, self._values.get))

    def _at(self, expr: Expr, at: Mapping[str, Array], count: int) -> Array:
        """Evaluate an expression at `count` points, ``(count,)``."""
        sums = dict.fromkeys(all_loads(expr))
        names: dict[Expr, Expr] = {
            load: Var(f"{load.buffer} {number}") for number, load in enumerate(sums)
        }
        added = {
            f"{load.buffer} {number}": self._evaluate_sum(load, at, count)
            for number, load in enumerate(sums)
        }
        return evaluate_all(rewrite(expr, names.get), {**at, **added}, count)

    def _evaluate_sum(self, load: Load, at: Mapping[str, Array], count: int) -> Array:
        """Evaluate a sum at `count` points, ``(count,)``; equal points are evaluated once."""
        table = self._tables[load.buffer]
        here = [evaluate_all(one, at, count) for one in (ZERO, *load.index)]
        places, which = np.unique(np.stack(here), axis=1, return_inverse=True)
        around = dict(zip(table.around, places[1:], strict=True))
        number = places.shape[1]
        lo, hi = (evaluate_all(end, around, number) for end in (table.lo, table.hi))
        trips = np.maximum(hi - lo, 0)
        ends = np.cumsum(trips)
        terms = int(ends[-1])
        if not terms:
            return np.zeros(count, np.int64)
        self.left -= terms * max(table.parts, MIN_PARTS_OF_TERM)
        if self.left < 0:
            raise SumTooLarge
        inside = {name: np.repeat(values, trips) for name, values in around.items()}
        inside[table.name] = np.arange(terms) + np.repeat(lo - (ends - trips), trips)
        total = np.concatenate([[0], np.cumsum(self._at(table.term, inside, terms))])
        each: Array = total[ends] - total[ends - trips]
        return each[which.reshape(-1)]


class SumMethod(Enum):
    """How a sum over a loop is computed."""

    ADDED = "added"  # short closed forms, else terms that are added up: where all sizes are known
    CLOSED = "closed"  # closed forms
    NEAR = "near"  # closed forms, else a few terms that are added up, else as half way
    HALF_WAY = "half way"  # trips times the term half way; where a condition decides it, a bound
    BOUND = "bound"  # bounds, of what it would be if all conditions held

    @property
    def exactness(self) -> Exactness:
        """Return how exact a sum by this method is."""
        estimates = dict.fromkeys((SumMethod.HALF_WAY, SumMethod.NEAR), Exactness.ESTIMATE)
        other = {**estimates, SumMethod.BOUND: Exactness.BOUND}
        return other.get(self, Exactness.EXACT)


def count_methods(*, is_open: bool) -> Sequence[SumMethod]:
    """Return the methods to sum counts, the most exact first.

    is_open  whether a size is symbolic: terms cannot be added up then
    """
    return (*_term_by_term(is_open), SumMethod.CLOSED, SumMethod.BOUND)


def byte_methods(*, is_open: bool) -> Sequence[SumMethod]:
    """Return the methods to sum bytes, the most exact first; an upper bound of bytes would be too loose.

    is_open  whether a size is symbolic
    """
    return (*_term_by_term(is_open), SumMethod.HALF_WAY)


def _term_by_term(is_open: bool) -> Sequence[SumMethod]:
    return () if is_open else (SumMethod.ADDED,)


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount, and how exact it is."""

    value: Expr
    exactness: Exactness = Exactness.EXACT


@dataclass
class Sums:
    """Sums by one method.

    ways    the method, then its fallbacks
    failed  whether the method failed: its sums are invalid then
    """

    ways: Sequence[SumMethod]
    tables: SumTables = field(default_factory=SumTables)
    failed: bool = False

    @property
    def way(self) -> SumMethod:
        """Return the current method."""
        return self.ways[0]

    def over(self, name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> Expr:
        """Return the sum of `term` over ``lo <= name < hi``."""
        if self.failed:
            return term
        match self.way:
            case SumMethod.ADDED:
                short = short_sum(name, lo, hi, term, known, splits=1, longest=SHORT)
                if short is not None:
                    return short
                return self.tables.tabulate(name, lo, hi, simplify_index(term))
            case SumMethod.CLOSED:
                try:
                    return sum_over(name, lo, hi, term, known)
                except NoClosedForm:
                    self.failed = True
                    return term
            case SumMethod.NEAR:
                return near_sum(name, lo, hi, term, known)
            case SumMethod.HALF_WAY:
                return (at_most if asks(term, name) else half_way)(name, lo, hi, term, known)
            case SumMethod.BOUND:
                return at_most(name, lo, hi, term, known)

    def where(self, condition: Expr, then: Expr, other: Expr) -> Expr:
        """Return the count of a conditional whose condition depends on iterators."""
        return (
            ix.add(then, other) if self.way is SumMethod.BOUND else select(condition, then, other)
        )

    def finish(self, total: Expr) -> Expr:
        """Return the total of all loops, with its tables evaluated."""
        if self.way is not SumMethod.ADDED or self.failed:
            return total
        try:
            return self.tables.value(total)
        except SumTooLarge:
            self.failed = True
            return total


def first_success(ways: Sequence[SumMethod], count: Callable[[Sums], Expr]) -> Amount:
    """Return a count by the first method that does not fail."""
    sums = Sums(ways)
    total = sums.finish(count(sums))
    if sums.failed:
        return first_success(ways[1:], count)
    return Amount(total, sums.way.exactness)
