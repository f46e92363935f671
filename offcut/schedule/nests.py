"""The nests of a computation as records: the variants in which the loops of each run, and the loops that nests share.

A nest is the loops of one stage and of what follows it point by point. `nest_reader` reads them off decisions, `nest_decisions` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from offcut.core.expr import Expr
from offcut.core.memo import CachedHash, node
from offcut.core.names import RenamedAttribute
from offcut.partition import AxisCut, Match
from offcut.schedule.decisions import Level, Staging

WORDS = "words"
"""What covers a nest of which nothing is said but along which axes the words of a machine of queues lie: texts before 0.3."""
KERNEL_AXES = ("i", "j", "p")
"""What microkernels of a processor call their rows, columns and depth."""


@dataclass(frozen=True, slots=True)
class KernelAxes:
    """The axes of a stage that a microkernel runs along; None: it has one row, or one column."""

    microkernel: str
    rows: str | None
    columns: str | None
    depth: str

    @staticmethod
    def of(match: Match) -> KernelAxes:
        """Return the axes of the stage that a microkernel is laid over."""
        return KernelAxes(match.microkernel.name, match.rows, match.columns, match.depth)


@dataclass(frozen=True, slots=True)
class Pack:
    """The operand that moves along the columns is copied into panels.

    staging  the decision that says so, with a layout in panels: their rows and columns are the last two axes of the copy
    splits   of the loops that copy it
    loops    of them that run plainly, outermost first
    at       the plain loop of the sum in each iteration of which what it reads is copied; "": it is copied whole, before these loops
    """

    staging: Staging
    splits: tuple[AxisCut, ...]
    loops: tuple[str, ...]
    at: str = ""

    @property
    def name(self) -> str:
        """Return the name of the copy."""
        return self.staging.name


@node
@dataclass(frozen=True, slots=True)
class LoopVariant(CachedHash):
    """How the loops of a nest run, outermost first: plain loops, cache groups, plain loops in these,
    tiles; what is neither split nor a loop lies in the tile.

    cost    seconds, over the sizes: a call takes the cheapest of the variants; None: what the cost model
            predicts
    splits  with a tail strategy each
    inner   plain loops inside of the cache groups; none where tiles are visited in no groups
    depth   (axis, windows): so many windows, which iterations take in turn; of texts before 0.3 alone
    """

    label: str = ""
    cost: Expr | None = None
    cover: KernelAxes | None = None
    pack: Pack | None = None
    splits: tuple[AxisCut, ...] = ()
    loops: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    depth: tuple[str, int] | None = None

    @property
    def plain(self) -> LoopVariant:
        """It, its loops around groups and inside of them one after the other where there are no groups."""
        if not self.inner or any(cut.group is not None for cut in self.splits):
            return self
        return replace(self, loops=(*self.loops, *self.inner), inner=())


def label_of(variant: LoopVariant) -> str:
    """Return what a variant is called where nobody says: how its rows are cut, or that it is loops."""
    if variant.cover is None or variant.cover.microkernel == WORDS:
        return "loops"
    rows = next((cut for cut in variant.splits if cut.axis == variant.cover.rows), None)
    label = "whole" if rows is None else rows.strategy.name
    return label if variant.pack is None else f"{label}_packed"


@node
@dataclass(frozen=True, slots=True)
class Nest(CachedHash):
    """The loops that compute `stage` and what follows it point by point, in one variant or in several
    that compete at run time.

    followers  the stages that follow it, in order: the loops are those of the last; none: nothing follows, or the text does not say it
    terms      the axes over the terms of its sum, outermost first; none: as they are described, or, in older texts, the one that a
               microkernel runs along innermost
    """

    stage: str
    variants: tuple[LoopVariant, ...]
    followers: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()

    ways = RenamedAttribute("variants")

    @property
    def last(self) -> str:
        """Return the stage whose loops these are."""
        return self.followers[-1] if self.followers else self.stage


@dataclass(frozen=True, slots=True)
class Together:
    """Nests that share their outermost loops.

    axes   of the shared loops, outermost first
    parts  what runs inside, in order
    block  the level of a split of the innermost of the loops, whose tiles each part runs in turn; None: single iterations
    """

    axes: tuple[str, ...]
    parts: tuple[Nest | Together, ...]
    block: Level | None = None


@dataclass(frozen=True)
class NestView:
    """What a schedule says of nests.

    first  the number of the decision that it begins with: those before are of other loops, which it is applied to
    parts  the nests in the order in which they run, as far as they share no loops
    lines  of the schedule's text, by the identity of what is read there: nests, variants, splits, covers, orders of terms
    named  (stage, loop, line) of the loops in tiles that an order names: they lie there with all that none names
    """

    first: int
    parts: tuple[Nest | Together, ...]
    lines: Mapping[int, int] = field(compare=False)
    named: tuple[tuple[str, str, int], ...] = field(compare=False, default=())


def nests_in(parts: Sequence[Nest | Together]) -> Iterator[Nest]:
    """Yield the nests in `parts`, in order."""
    return (nest for nest, _ in nests_with_axes(parts))


def nests_with_axes(
    parts: Sequence[Nest | Together], around: tuple[str, ...] = ()
) -> Iterator[tuple[Nest, tuple[str, ...]]]:
    """Yield the nests in `parts`, in order, each with the axes of the shared loops around it, outermost first."""
    for part in parts:
        if isinstance(part, Nest):
            yield part, around
        else:
            yield from nests_with_axes(part.parts, (*around, *part.axes))
