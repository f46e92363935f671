"""Sums without a closed form, at sizes that are known: each stands as an element of a table, and is added up at last.

A sum over the loop i of a term that depends on the loops j, k around it is ``#3[j, k]``, an expression that is moved, summed and
summed over again as any other; once no iterator is left, its terms are added, all places of a table at once. Work is
counted in parts of terms, so that what is added up does not depend on how fast a machine is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Var, all_loads, rewrite, variables, walk
from offcut.core.interpret.values import evaluate_all
from offcut.costmodel.closed.counts import ZERO
from offcut.costmodel.closed.summation import folded

MOST = 1 << 25
"""Parts of terms that are evaluated for the counts of a program, at most: a fraction of a second."""

LEAST = 16
"""Parts that any term counts as: its place has to be found, and it has to be added."""

Array: TypeAlias = npt.NDArray[Any]


class TooMany(Exception):
    """A count takes more work than is done for it."""


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
class Tables:
    """The sums of one program, at one choice of sizes.

    left  parts of terms that may still be evaluated
    """

    left: int = field(default_factory=lambda: MOST)
    _tables: dict[str, _Table] = field(default_factory=dict)
    _names: dict[_Table, str] = field(default_factory=dict)
    _values: dict[Expr, Expr] = field(default_factory=dict)

    def stands_for(self, name: str, lo: Expr, hi: Expr, term: Expr) -> Expr:
        """An expression that is the sum of `term` over ``lo <= name < hi``, wherever the iterators around are."""
        form = ix.to_linear(
            term
        )  # of counts that are multiples of one another, the table is the same
        parts = [(atom, factor) for atom, factor in form.terms if name in variables(atom)]
        once = ix.sub(term, ix.add(*(ix.mul(factor, atom) for atom, factor in parts)))
        trips = ix.maximum(ix.sub(hi, lo), 0)
        sums = (ix.mul(factor, self._place(name, lo, hi, atom)) for atom, factor in parts)
        return ix.add(ix.mul(trips, once), *sums)

    def _place(self, name: str, lo: Expr, hi: Expr, term: Expr) -> Expr:
        """The place of a table where the sum of `term` stands."""
        inside = variables(term) - {name}
        around = tuple(sorted(inside | variables(lo) | variables(hi)))
        table = _Table(name, lo, hi, term, around, sum(1 for _ in walk(term)))
        known = self._names.setdefault(table, f"#{len(self._names)}")
        self._tables[known] = table
        return Load(known, tuple(map(Var, around)), "index")

    def value(self, expr: Expr) -> Expr:
        """`expr`, which names no iterator, with every sum added up.

        Raises TooMany where that is more work than is left.
        """
        sums = dict.fromkeys(all_loads(expr))
        for load in sums:
            if load not in self._values:
                found = self._added(load, {}, 1)
                self._values[load] = ix.const(int(found[0]))
        return folded(rewrite(expr, self._values.get))

    def _at(self, expr: Expr, at: Mapping[str, Array], count: int) -> Array:
        """An expression at `count` places at once."""
        sums = dict.fromkeys(all_loads(expr))
        names: dict[Expr, Expr] = {
            load: Var(f"{load.buffer} {number}") for number, load in enumerate(sums)
        }
        added = {
            f"{load.buffer} {number}": self._added(load, at, count)
            for number, load in enumerate(sums)
        }
        return evaluate_all(rewrite(expr, names.get), {**at, **added}, count)

    def _added(self, load: Load, at: Mapping[str, Array], count: int) -> Array:
        """A sum at `count` places at once: each of the places of its table that they are is added once."""
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
        self.left -= terms * max(table.parts, LEAST)
        if self.left < 0:
            raise TooMany
        inside = {name: np.repeat(values, trips) for name, values in around.items()}
        inside[table.name] = np.arange(terms) + np.repeat(lo - (ends - trips), trips)
        total = np.concatenate([[0], np.cumsum(self._at(table.term, inside, terms))])
        each: Array = total[ends] - total[ends - trips]
        return each[which.reshape(-1)]
