"""What a program is counted as: its pieces, how often each runs, and what that computes and moves; as index expressions over the sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.costmodel.simplification import part_of_cheapest


class Exactness(StrEnum):
    """How an amount relates to the true one, from the most exact on."""

    EXACT = "exact"  # equal
    BOUND = "bound"  # an upper bound
    ESTIMATE = "estimate"  # near it


def least_exact(*each: Exactness) -> Exactness:
    """Return the exactness of an amount that is computed from amounts of these."""
    return max(each, key=list(Exactness).index, default=Exactness.EXACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class HowExact:
    """How exact the amounts of a cost are.

    flop    operations, with which go instances and runs
    cycles  seconds are as exact
    """

    flop: Exactness
    bytes: Exactness
    cycles: Exactness
    energy: Exactness

    @staticmethod
    def estimates(flop: Exactness = Exactness.ESTIMATE) -> HowExact:
        """Return that all amounts are estimates, but for the operations, which may be exact or a bound."""
        return HowExact(
            flop=flop, **dict.fromkeys(("bytes", "cycles", "energy"), Exactness.ESTIMATE)
        )

    def __str__(self) -> str:
        """``exact: flop; estimate: bytes, cycles, energy``."""
        amounts = asdict(self).items()
        by_kind = {kind: [name for name, own in amounts if own is kind] for kind in Exactness}
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind.items() if names)


ZERO = ix.const(0)
THOUSANDTHS = 1000


@dataclass(frozen=True, slots=True)
class Piece:
    """What runs as one.

    stage        the array that it stores last
    role         body, tail, or whole, of a tile
    tile         extents, by axis; none of statements outside of tiles
    microkernel  that covers it; None: plain loops
    option       the option of a `choose` that it is in, by the number of the choose and of the option; None outside
    """

    stage: str
    role: str
    tile: tuple[tuple[str, Expr], ...]
    microkernel: str | None
    option: OptionNumber


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a piece, in a call.

    runs          of the tile, or of its statements
    instances     of its statements; of a masked tile, those that are switched off too
    flop          operations on elements: additions, multiplications, comparisons of ``max=``, functions
    instructions  thousandths of those that are issued
    cycles        thousandths that what computes takes, operands at hand
    picojoules    thousandths that the operations take; 0 where the machine does not say
    work          of resources that a machine has beside a core, by name: what their rates count
    """

    runs: Expr = ZERO
    instances: Expr = ZERO
    flop: Expr = ZERO
    instructions: Expr = ZERO
    cycles: Expr = ZERO
    picojoules: Expr = ZERO
    work: Mapping[str, Expr] = field(default_factory=dict)

    def map(self, of: Callable[[Expr], Expr]) -> Counts:
        """Each count put through a function."""
        return Counts(
            of(self.runs),
            of(self.instances),
            of(self.flop),
            of(self.instructions),
            of(self.cycles),
            of(self.picojoules),
            {name: of(amount) for name, amount in self.work.items()},
        )

    def combine(self, other: Counts, of: Callable[[Expr, Expr], Expr]) -> Counts:
        """Return counts of which each is a function of both."""
        names = dict.fromkeys((*self.work, *other.work))
        return Counts(
            of(self.runs, other.runs),
            of(self.instances, other.instances),
            of(self.flop, other.flop),
            of(self.instructions, other.instructions),
            of(self.cycles, other.cycles),
            of(self.picojoules, other.picojoules),
            {name: of(self.work.get(name, ZERO), other.work.get(name, ZERO)) for name in names},
        )

    def plus(self, other: Counts) -> Counts:
        """Of both."""
        return self.combine(other, ix.add)


def sum_counts(parts: Iterable[Mapping[int, Counts]]) -> dict[int, Counts]:
    """Counts by piece, of all parts together."""
    total: dict[int, Counts] = {}
    for part in parts:
        for piece, counts in part.items():
            total[piece] = total[piece].plus(counts) if piece in total else counts
    return total


@dataclass(frozen=True, slots=True)
class PricedOption:
    """An option of a `choose`, and what it is predicted to cost, in one unit for all options of it."""

    label: str
    cost: Expr


OptionNumber: TypeAlias = tuple[int, int] | None
"""A choice and an option of it, by number; None outside of choices."""


def total_of_options(
    parts: Mapping[OptionNumber, Expr],
    choices: Sequence[Sequence[PricedOption]],
    zero: Expr,
    plus: Callable[[Expr, Expr], Expr],
) -> Expr:
    """Return what is outside of choices, and of each choice the part of the option whose cost is least.

    parts  of the options that have one; `zero` of others
    """
    total = parts.get(None, zero)
    for number, options in enumerate(choices):
        each = [parts.get((number, at), zero) for at in range(len(options))]
        total = plus(total, part_of_cheapest([one.cost for one in options], each))
    return total


@dataclass(frozen=True, slots=True)
class Counted:
    """A program, counted.

    counts   by piece
    moved    into each level, nearest first, by piece, or by array where that was asked for: bytes
    kept     in each level, of what a call touches
    choices  the options of each `choose`
    values   what bounded values stand for that are named in the counts, each in terms of those before
    exactness  of the counts: bytes are estimates
    """

    pieces: tuple[Piece, ...]
    counts: tuple[Counts, ...]
    moved: tuple[Mapping[int | str, Expr], ...]
    kept: tuple[Expr, ...]
    choices: tuple[tuple[PricedOption, ...], ...]
    values: Mapping[str, Expr]
    exactness: Exactness
