"""How elements move: a linear map from the places that a microkernel declares to those of an array.

A[x + r, p]  over  X[b, 2*s + 2*u, k]     x -> s, r -> u, p -> k:  a row is (0, 2, 0), a column (0, 0, 1)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Var
from offcut.core.memo import lazy_property
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
