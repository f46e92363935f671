"""Ways to lay a microkernel over a statement: terms that agree, elements that move alike, axes along iterators.

How elements move: a linear map from the places that a microkernel declares to those of an array.

A[x + r, p]  over  X[b, 2*s + 2*u, k]     x -> s, r -> u, p -> k:  a row is (0, 2, 0), a column (0, 0, 1)

Terms that agree node by node: what stands in a statement for each load and axis of a microkernel.

What the judge asks of a tile, in its order, and the refusal that names the first question that fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Reduce,
    Select,
    Unary,
    Var,
    children,
    dtype_of,
    reads_memory,
    rebuild,
    variables,
)
from offcut.core.memo import lazy_property, memo
from offcut.describe.computation import Stage
from offcut.describe.microkernel import Microkernel
from offcut.polyhedral import coefficient

Steps: TypeAlias = tuple[tuple[int, ...], ...]


class Movement:
    """How elements of an operand, and of the array that stands for it, move along axes.

    mine, theirs  what the microkernel reads, and what the statement does
    repeated      axes along which the array may stand still
    """

    def __init__(
        self,
        mine: Expr,
        theirs: Expr,
        axes: Sequence[str],
        iterators: Iterable[str | None],
        repeated: Collection[str] = (),
    ) -> None:
        self.mine, self.theirs, self.repeated = mine, theirs, repeated
        own = mine.index if isinstance(mine, Load) else ()
        index = theirs.index if isinstance(theirs, Load) else ()
        self.factors = {axis: [coefficient(part, axis) or 0 for part in own] for axis in axes}
        self.moved: dict[str, tuple[int, ...] | None] = {}
        for iterator in iterators:
            if iterator is not None:
                steps = [coefficient(part, iterator) for part in index]
                self.moved[iterator] = None if None in steps else tuple(s or 0 for s in steps)

    @lazy_property
    def likely(self) -> frozenset[tuple[str, str | None]]:
        """Axes of the microkernel with iterators: both move the element, or neither does."""
        pairs: list[tuple[str, str | None]] = [(axis, None) for axis in self.factors]
        for axis, factors in self.factors.items():
            count = len(factors) - factors.count(0)
            for iterator, steps in self.moved.items():
                if steps is None:
                    continue
                is_still = axis in self.repeated and not any(steps)
                if (
                    count > 1
                    or (count == 1) == any(steps)
                    or is_still
                    or isinstance(self.mine, Var)
                ):
                    pairs.append((axis, iterator))
        return frozenset(pairs)

    def steps(self, mapping: Mapping[str, str | None]) -> Steps | None:
        """Return by how much elements move, in each dimension of the array, with each dimension of the operand.

        That is the linear map u for which ``theirs(y) = u(mine(x)) + constant`` with each axis x run by
        ``y = mapping[x]``; None where there is none, or where it lets different elements fall into one.
        """
        mine, theirs = self.mine, self.theirs
        if isinstance(mine, Var):
            alike = mapping.get(mine.name) is not None and theirs == Var(mapping[mine.name] or "")
            return () if alike else None
        if not (isinstance(mine, Load) and isinstance(theirs, Load)):
            return None
        open_axes: dict[str, tuple[int, ...]] = {}
        still: set[int] = set()
        for axis, iterator in mapping.items():
            if iterator is not None:
                step = self.moved[iterator]
                if step is None:
                    return None
                if axis in self.repeated and not any(step):
                    still |= {d for d, factor in enumerate(self.factors[axis]) if factor}
                else:
                    open_axes[axis] = step
        zero = (0,) * len(theirs.index)
        known = dict.fromkeys(still, zero)
        while open_axes:
            for axis in open_axes:
                factors = self.factors[axis]
                unknown = [d for d, factor in enumerate(factors) if factor and d not in known]
                if len(unknown) <= 1:
                    break
            else:
                return None
            rest = open_axes.pop(axis)
            for d, own in known.items():
                if factors[d]:
                    rest = tuple([r - factors[d] * u for r, u in zip(rest, own, strict=True)])
            factor = factors[unknown[0]] if unknown else 0
            if any(r % factor for r in rest) if factor else any(rest):
                return None
            if factor:
                known[unknown[0]] = tuple([r // factor for r in rest])
        if any(own == zero for d, own in known.items() if d not in still):
            return None
        return tuple([known.get(d, zero) for d in range(len(mine.index))])


def is_linear(movements: Sequence[Movement], mapping: Mapping[str, str | None]) -> bool:
    """Return whether there is one linear map for each operand, by which all its elements are those of one array."""
    first: dict[str, tuple[Load, Load, Steps]] = {}
    for one in movements:
        mine, theirs, steps = one.mine, one.theirs, one.steps(mapping)
        if steps is None:
            return False
        if not (isinstance(mine, Load) and isinstance(theirs, Load)):
            continue
        own, of, known = first.setdefault(mine.buffer, (mine, theirs, steps))
        if own is mine:
            continue
        if of.buffer != theirs.buffer or known != steps:
            return False
        apart = [ix.literal_value(ix.sub(a, b)) for a, b in zip(mine.index, own.index, strict=True)]
        there = [
            ix.literal_value(ix.sub(a, b)) for a, b in zip(theirs.index, of.index, strict=True)
        ]
        actual = [
            sum((n or 0) * u[d] for n, u in zip(apart, steps, strict=True))
            for d in range(len(there))
        ]
        if None in apart or there != actual:
            return False
    return True


Pairing: TypeAlias = tuple[tuple[Expr, Expr], ...]
"""Loads, and axes, of a microkernel, each with what stands in its place in a statement."""

_COMMUTE = ("+", "*", "min", "max")


def pairings(kernel: Microkernel, value: Expr) -> Iterator[Pairing]:
    """Yield every way in which the term of a microkernel is `value`, node by node."""
    body = kernel.definition.body
    for pairing in _unify(body.value if isinstance(body, Reduce) else body, value, kernel):
        elements: dict[tuple[str, tuple[Expr, ...]], Expr] = {}
        if all(  # one element of an operand is one element of an array
            elements.setdefault((mine.buffer, mine.index), theirs) == theirs
            for mine, theirs in pairing
            if isinstance(mine, Load)
        ):
            yield pairing


def _unify(mine: Expr, theirs: Expr, kernel: Microkernel) -> Iterator[Pairing]:
    match mine, theirs:
        case Load(buffer, dtype=dtype), Const() if kernel.place_of(buffer).by == "immediate":
            if dtype == theirs.dtype:
                yield ()
        case Load(buffer, dtype=dtype), Cast(Load() as load, to) if to == dtype:
            if load.dtype in kernel.place_of(buffer).types:
                yield ((mine, load),)
        case Load(), Load() if mine.dtype == theirs.dtype:
            yield ((mine, theirs),)
        case Var(), _ if dtype_of(theirs) == "index":
            yield ((mine, theirs),)
        case Binary(op, a, b), Binary(other, x, y) if op == other:
            for order in [(x, y), (y, x)] if op in _COMMUTE else [(x, y)]:
                yield from _unify_all((a, b), order, kernel)
        case (
            (Unary(), Unary())
            | (Cast(), Cast())
            | (Select(), Select())
            | (Compare(), Compare())
            | (Logic(), Logic())
            | (Lookup(), Lookup())
        ):
            own, of = children(mine), children(theirs)
            if len(own) == len(of) and rebuild(mine, of) == theirs:
                yield from _unify_all(own, of, kernel)
        case _ if mine == theirs and not variables(mine) and not reads_memory(mine):
            yield ()


def _unify_all(
    mine: Sequence[Expr], theirs: Sequence[Expr], kernel: Microkernel
) -> Iterator[Pairing]:
    if not mine:
        yield ()
        return
    for first in _unify(mine[0], theirs[0], kernel):
        yield from (first + rest for rest in _unify_all(mine[1:], theirs[1:], kernel))


@dataclass(frozen=True, slots=True)
class Match:
    """A microkernel laid over a statement.

    axes      (axis of the microkernel, iterator of the statement); None: the statement has no such
              axis, which has one value
    operands  what the statement reads for each operand of the microkernel, by its name
    """

    microkernel: Microkernel
    axes: tuple[tuple[str, str | None], ...]
    operands: tuple[tuple[str, Load], ...]

    def axis(self, name: str) -> str | None:
        """Return the iterator of an axis of the microkernel."""
        for axis, iterator in self.axes:
            if axis == name:
                return iterator
        return None

    def operand(self, name: str) -> Load:
        """Return what the statement reads for the microkernel's operand `name`."""
        return dict(self.operands)[name]

    @property
    def rows(self) -> str | None:
        """Return the iterator of the axis before the last one of the microkernel's result."""
        return self.axis(self.microkernel.rows)

    @property
    def columns(self) -> str | None:
        """Return the iterator of the last axis of the microkernel's result."""
        return self.axis(self.microkernel.columns)

    @property
    def depth(self) -> str:
        """Return the innermost loop of the sum; "" where the microkernel has none."""
        return self.axis(self.microkernel.depth) or ""

    @property
    def by_rows(self) -> Load:
        """What the statement reads for the operand that moves along the microkernel's rows."""
        return self.operand(self.microkernel.operand_along(self.microkernel.rows))

    @property
    def by_columns(self) -> Load:
        """What the statement reads for the operand that moves along the microkernel's columns."""
        return self.operand(self.microkernel.operand_along(self.microkernel.columns))

    def axes_in_function(self, lead: Stage) -> tuple[str, ...]:
        """Return the axes of a sum, of known extents, that run inside of the microkernel's functions around its depth."""
        others = [axis for axis in lead.reduce_axes if axis.name != self.depth]
        inside: list[str] = []
        for axis in others[::-1][: self.microkernel.turns]:
            if not ix.literal_value(axis.extent):
                break
            inside.insert(0, axis.name)
        return tuple(inside)


@memo(1 << 10)
def matches(
    microkernel: Microkernel,
    value: Expr,
    reducer: str | None,
    axes: tuple[str, ...],
    reduce_axes: tuple[str, ...],
) -> tuple[Match, ...]:
    """Return every way to lay `microkernel` over ``C[axes] reducer= value``, the preferred ones first.

    Preferred: the last axis of the microkernel on the innermost axis, the one before it on the next that
    fits, its reductions on the innermost ones.
    """
    if microkernel.reducer != reducer:
        return ()
    names = (*microkernel.axes, *microkernel.reduce_axes)
    candidates = []
    for pairing in pairings(microkernel, value):
        movements = [
            Movement(*pair, names, (*axes, *reduce_axes), microkernel.repeated_axes(pair[0]))
            for pair in pairing
        ]
        every = [one.likely for one in movements]
        candidates.append((pairing, movements, frozenset.intersection(*every) if every else None))
    if not candidates:
        return ()
    ways: list[Match] = []
    for own in _choices(microkernel.axes, axes[::-1]):
        near = [one for one in candidates if one[2] is None or own.items() <= one[2]]
        for summed in _assignments(microkernel.reduce_axes, reduce_axes[::-1]) if near else ():
            mapping = {**own, **summed}
            for pairing, movements, likely in near:
                if likely is not None and not summed.items() <= likely:
                    continue
                if is_linear(movements, mapping):
                    loads = tuple(
                        (m.buffer, t)
                        for m, t in pairing
                        if isinstance(t, Load) and isinstance(m, Load)
                    )
                    ways.append(Match(microkernel, tuple(mapping.items()), loads))
    return tuple(ways)


def all_matches(stage: Stage, microkernels: Sequence[Microkernel]) -> Iterator[Match]:
    """Yield every way in which a microkernel computes what `stage` does, the preferred ones first."""
    axes = tuple([axis.name for axis in stage.axes])
    reduced = tuple([axis.name for axis in stage.reduce_axes])
    for kernel in microkernels:
        yield from matches(kernel, stage.value, stage.reducer, axes, reduced)


@memo(1 << 6)
def _choices(kernel: tuple[str, ...], inner: tuple[str, ...]) -> list[dict[str, str | None]]:
    """Return iterators of the axes of a result, the last axis on the innermost one first. An axis is left out where
    those behind it are on the innermost axes in their order, or left out too.

    inner  the axes of the statement, innermost first
    """

    def choices(
        names: Sequence[str], before: tuple[str | None, ...]
    ) -> Iterator[tuple[str | None, ...]]:
        if not names:
            yield before
            return
        free = [name for name in inner if name not in before]
        ordered = before == inner[: len(before)]
        left_out: list[str | None] = [None] if ordered or not any(before) else []
        for name in (*free, *left_out):
            yield from choices(names[1:], (*before, name))

    backwards = kernel[::-1]
    return [
        dict(reversed(list(zip(backwards, choice, strict=True))))
        for choice in choices(backwards, ())
    ]


@memo(1 << 6)
def _assignments(kernel: tuple[str, ...], inner: tuple[str, ...]) -> list[dict[str, str | None]]:
    """Return loops of the reductions of a microkernel, each one of its own, the last on the innermost one first."""
    if not kernel:
        return [{}]
    return [
        {**others, kernel[-1]: name}
        for name in inner
        for others in _assignments(kernel[:-1], tuple(other for other in inner if other != name))
    ]


class Question(Enum):
    """What the judge asks, in its order."""

    TERM = "term"
    BOUNDS = "bounds"
    EXTENTS = "extents"
    MOVES = "moves"
    MEMORY = "memory"
    LAYOUT = "layout"
    START = "start"
    INSIDE = "inside"
    UNIT = "unit"


BEFORE_STAGING = frozenset({Question.MEMORY, Question.LAYOUT, Question.UNIT})
"""What is not decided yet where loops are cut: memories, layouts, units."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a microkernel does not run a tile.

    question  the first one that fails
    because   what fails, with its value
    witness   the smallest case in which it does; "" where the text shows it for all
    """

    question: Question
    because: str
    witness: str = ""

    def __str__(self) -> str:
        return f"{self.because}: {self.witness}" if self.witness else self.because
