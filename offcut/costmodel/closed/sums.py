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
from offcut.core.expr import (
    Binary,
    Expr,
    Load,
    Select,
    Var,
    all_loads,
    children,
    reads_memory,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.interpret.values import evaluate_all
from offcut.core.intervals import ends
from offcut.core.scan import ScanContext
from offcut.core.text.printer import format_expr
from offcut.costmodel.closed.counts import ZERO, Exactness
from offcut.costmodel.closed.summation import (
    LONGEST,
    LONGEST_PERIOD,
    NoClosedForm,
    is_longer,
    sum_over,
    trips,
    value_at,
)
from offcut.costmodel.simplification import select, simplify_index
from offcut.errors import InternalError

MAX_EVALUATED_PARTS = 1 << 25
"""Parts of terms that are evaluated for the counts of a program, at most: a fraction of a second."""

MIN_PARTS_OF_TERM = 16
"""Parts that any term counts as: its place has to be found, and it has to be added."""

SHORT = 40
"""Parts of a sum that is to be put into others, of which there may be many: each loop around multiplies what is longer."""

Array: TypeAlias = npt.NDArray[Any]


class SumTooLarge(Exception):
    """A sum exceeds the budget of evaluated terms."""


def middle_of(lo: Expr, hi: Expr) -> Expr:
    """Of the iterations of a loop, the one half way."""
    return ix.floordiv(ix.add(lo, hi), 2)


def asks(term: Expr, name: str) -> bool:
    """Whether a condition in it asks for an iterator."""
    return any(isinstance(one, Select) and name in variables(one.condition) for one in walk(term))


def half_way(name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> Expr:
    """The last term, and the middle one of the others times their number: exact where the others are equal, as of tiles with a tail,
    or move evenly. Of a long term the middle one times all trips.
    """
    count = trips(lo, hi, known)
    if is_longer(term, LONGEST):
        return ix.mul(count, simplify_index(value_at(term, name, middle_of(lo, hi))))
    last = ix.sub(hi, 1)
    end, middle = (simplify_index(value_at(term, name, at)) for at in (last, middle_of(lo, last)))
    if end == middle:
        return ix.mul(count, end)
    others = ix.sub(count, 1)
    some: Expr = ix.const(1)
    if not known.at_least_zero(others):
        others, some = ix.maximum(others, 0), ix.minimum(count, 1)
    return ix.add(ix.mul(others, middle), ix.mul(some, end))


def near_sum(name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> tuple[Expr, bool]:
    """The sum of `term` over ``lo <= name < hi``: in closed form; term by term, of few; else as the last one and the middle one of the
    others say, and whether it is that, an estimate.
    """
    try:
        return sum_over(name, lo, hi, term, known), False
    except NoClosedForm:
        count = ix.literal_value(ix.sub(hi, lo))
        if count is None or count > LONGEST_PERIOD:
            return half_way(name, lo, hi, term, known), True
        terms = (simplify_index(value_at(term, name, ix.add(lo, step))) for step in range(count))
        return ix.add(*terms, ix.const(0)), False


def short_sum(
    name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext, splits: int, longest: int
) -> Expr | None:
    """The sum of `term` over ``lo <= name < hi`` where that is a formula of no more parts than `longest`, of a term of as few."""
    try:
        total = sum_over(name, lo, hi, term, known, splits, longest)
    except NoClosedForm:
        return None
    return None if is_longer(total, longest) else total


def at_most(name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> Expr:
    """A bound of the sum of a count over ``lo <= name < hi``: the sum, where that is a short formula, else the trips times the
    greatest term there may be, every part of the term taken as if it moved for itself.
    """
    term = simplify_index(term)
    total = short_sum(name, lo, hi, term, known, splits=4, longest=4 * SHORT)
    if total is not None:
        return total
    return ix.mul(trips(lo, hi, known), greatest(name, lo, hi, term, known))


def greatest(name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> Expr:
    """A bound of a count over ``lo <= name < hi``: every part of the term taken as if it moved for itself; of elements of memory no bound."""
    between = {name: (lo, ix.sub(hi, 1))}
    bounds = ends(term, between, natural=lambda part: _is_count(part, known))
    if bounds is None and reads_memory(
        term
    ):  # no bound is known of an element: as half-way through the loop
        return ix.maximum(simplify_index(value_at(term, name, middle_of(lo, hi))), 0)
    if bounds is None:
        raise InternalError(f"{format_expr(term)} is not a count")
    return ix.maximum(simplify_index(bounds[1]), 0)


def _is_count(expr: Expr, known: ScanContext) -> bool:
    """Whether an expression is seen to be 0 or more."""
    match expr:
        case Binary("max", a, b):
            return _is_count(a, known) or _is_count(b, known)
        case Binary("+" | "*" | "//" | "min", a, b) if _is_count(a, known) and _is_count(b, known):
            return True
        case Select(_, then, other):
            return _is_count(then, known) and _is_count(other, known)
        case _:
            return known.at_least_zero(expr)


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
    NEAR = "near"  # closed forms, else a few terms that are added up, else as half way: an estimate
    HALF_WAY = "half way"  # trips times the term half way; where a condition decides it, a bound
    BOUND = "bound"  # bounds, of what it would be if all conditions held


def count_methods(*, is_open: bool, last: SumMethod = SumMethod.BOUND) -> Sequence[SumMethod]:
    """Return the methods to sum counts, the most exact first.

    is_open  whether a size is symbolic: terms cannot be added up then
    last     of what has no closed form: a bound, or an estimate
    """
    closed = () if last is SumMethod.NEAR else (SumMethod.CLOSED,)
    return (*_term_by_term(is_open), *closed, last)


def byte_methods(*, is_open: bool) -> Sequence[SumMethod]:
    """Return the methods to sum bytes, the most exact first; an upper bound of bytes would be too loose.

    is_open  whether a size is symbolic
    """
    return (*_term_by_term(is_open), SumMethod.HALF_WAY)


def _term_by_term(is_open: bool) -> Sequence[SumMethod]:
    return () if is_open else (SumMethod.ADDED,)


@dataclass(frozen=True, slots=True)
class _Strip:
    """A sum over ``size*block <= name < min(size*block + size, end)`` of a term that no block moves.

    known  what is known around it
    """

    name: str
    size: int
    block: str
    end: Expr
    term: Expr
    known: ScanContext

    @staticmethod
    def of(name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> _Strip | None:
        """Return a sum over a loop as one over a strip; None if it is none."""
        match ix.to_linear(lo), hi:
            case ix.Linear(((Var(block), size),), 0), Binary("min", a, b) if size > 0:
                whole = ix.add(lo, size)
                end = b if a == whole else a
                if whole in (a, b) and block not in variables(term) | variables(end):
                    return _Strip(name, size, block, end, term, known)
        return None

    def is_cut_by(self, lo: Expr, hi: Expr) -> bool:
        """Return whether these are the bounds of the blocks of all of it."""
        return lo == ZERO and hi == simplify_index(ix.ceildiv(self.end, self.size))

    @property
    def around(self) -> tuple[Var, ...]:
        """Return what says which sum it is: the block, and all names in the end and in the term."""
        names = (variables(self.term) | variables(self.end)) - {self.name}
        return Var(self.block), *map(Var, sorted(names))

    @property
    def bounds(self) -> tuple[Expr, Expr]:
        """Return the first iteration, and the end."""
        start = ix.mul(self.size, Var(self.block))
        return start, ix.minimum(ix.add(start, self.size), self.end)


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount, and how exact it is."""

    value: Expr
    exactness: Exactness = Exactness.EXACT


@dataclass
class Sums:
    """Sums by one method.

    methods  the method, then its fallbacks
    failed  whether the method failed: its sums are invalid then
    strips  sums over strips that no loop has put together yet, by the names of the elements that stand for them
    is_estimate  whether a sum has no closed form, and is an estimate
    """

    methods: Sequence[SumMethod]
    tables: SumTables = field(default_factory=SumTables)
    failed: bool = False
    strips: dict[str, _Strip] = field(default_factory=dict)
    is_estimate: bool = False

    @property
    def exactness(self) -> Exactness:
        """Return how exact the sums are."""
        if self.method is SumMethod.BOUND:
            return Exactness.BOUND
        is_near = self.is_estimate or self.method is SumMethod.HALF_WAY
        return Exactness.ESTIMATE if is_near else Exactness.EXACT

    @property
    def method(self) -> SumMethod:
        """Return the current method."""
        return self.methods[0]

    def over(self, name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> Expr:
        """Return the sum of `term` over ``lo <= name < hi``."""
        if self.failed:
            return term
        match self.method:
            case SumMethod.ADDED:
                short = short_sum(name, lo, hi, term, known, splits=1, longest=SHORT)
                if short is not None:
                    return short
                return self.tables.tabulate(name, lo, hi, simplify_index(term))
            case SumMethod.CLOSED | SumMethod.NEAR:
                strip = _Strip.of(name, lo, hi, term, known)
                if strip is None:
                    return self.over_strips(name, lo, hi, term, known)
                place = f"#{len(self.strips)}"
                self.strips[place] = strip
                return Load(place, strip.around, "index")
            case SumMethod.HALF_WAY:
                return (at_most if asks(term, name) else half_way)(name, lo, hi, term, known)
            case SumMethod.BOUND:
                return at_most(name, lo, hi, term, known)

    def over_strips(self, name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> Expr:
        """Return the sum of a term in which sums over strips stand: those of all strips of a loop are one over all of it."""
        total: Expr = ZERO
        for atom, factor in ix.to_linear(term).terms:
            strip = self.strips.get(atom.buffer) if isinstance(atom, Load) else None
            if strip is None or not isinstance(atom, Load) or atom.index != strip.around:
                continue
            if strip.block == name and strip.is_cut_by(lo, hi):
                term = ix.sub(term, ix.mul(factor, atom))
                whole = self.over_strips(strip.name, ZERO, strip.end, strip.term, known)
                total = ix.add(total, ix.mul(factor, whole))
        return ix.add(total, self.closed(name, lo, hi, self.without_strips(term, name), known))

    def without_strips(self, expr: Expr, name: str | None = None) -> Expr:
        """Return an expression with the sums in place of what stands for those that move with `name`; None: for all."""

        def sum_of(part: Expr) -> Expr | None:
            strip = self.strips.get(part.buffer) if isinstance(part, Load) else None
            if strip is None or name not in (None, *variables(part)):
                return None
            total = self.over_strips(strip.name, *strip.bounds, strip.term, strip.known)
            at = zip(strip.around, children(part), strict=True)
            return substitute(total, {var.name: value for var, value in at if var != value})

        return rewrite(expr, sum_of) if self.strips else expr

    def closed(self, name: str, lo: Expr, hi: Expr, term: Expr, known: ScanContext) -> Expr:
        """Return a sum in closed form, or near it."""
        if self.method is SumMethod.NEAR:
            total, is_near = near_sum(name, lo, hi, term, known)
            self.is_estimate |= is_near
            return total
        try:
            return sum_over(name, lo, hi, term, known)
        except NoClosedForm:
            self.failed = True
            return term

    def where(self, condition: Expr, then: Expr, other: Expr) -> Expr:
        """Return the count of a conditional whose condition depends on iterators."""
        return (
            ix.add(then, other)
            if self.method is SumMethod.BOUND
            else select(condition, then, other)
        )

    def finish(self, total: Expr) -> Expr:
        """Return the total of all loops, with its tables evaluated."""
        if self.failed:
            return total
        if self.method is not SumMethod.ADDED:
            return self.without_strips(total)
        try:
            return self.tables.value(total)
        except SumTooLarge:
            self.failed = True
            return total


def first_success(methods: Sequence[SumMethod], count: Callable[[Sums], Expr]) -> Amount:
    """Return a count by the first method that does not fail."""
    sums = Sums(methods)
    total = sums.finish(count(sums))
    if sums.failed:
        return first_success(methods[1:], count)
    return Amount(total, sums.exactness)
