"""Groups of stages in shared loops: what a later group reads of an earlier one stays near.

Two groups may share a loop over their first axes when the later one reads, of what the earlier one
makes, only what the same iteration made::

    for b, h                         scores[b, h, i, j]   (its rows i and columns j stay whole)
      scores = …                     peak[b, h, i]        reads scores[b, h, i, j]
      for i                          weight[b, h, i, j]   reads scores[b, h, i, j], peak[b, h, i]
        peak, weight = …             result[b, h, i, d]   reads weight[b, h, i, j]
      result = …

What is made and read inside one iteration alone lives in a window of that iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from offcut.core.expr import Expr, Load, Var, substitute, walk
from offcut.describe.computation import Computation, Stage, StageAxis
from offcut.errors import PartitionError


@dataclass(frozen=True, slots=True)
class Block:
    """Iterations of a shared loop that each part runs before the next part does: what one waits for, others of them hide.

    iterations  2 at least
    room        bytes that what lives in them may take, and each line that they add up; where it is more, iterations run one by one
    """

    iterations: int
    room: int


@dataclass(frozen=True, slots=True)
class Shared:
    """Loops that several groups share, outermost first, and what runs inside, in order.

    parts   the position of a group, or further loops that some of them share
    block   of the innermost loop; None: each iteration by itself
    """

    axes: tuple[StageAxis, ...]
    parts: tuple[int | Shared, ...]
    block: Block | None = None

    @property
    def groups(self) -> tuple[int, ...]:
        """The positions of all groups inside."""
        return tuple(
            position
            for part in self.parts
            for position in ((part,) if isinstance(part, int) else part.groups)
        )


def fused(computation: Computation, limits: Sequence[int]) -> Shared:
    """The loops that groups can share, with names that no other axis has: none around all.

    limits   of each group, how many of its first axes may be loops of their own
    """
    groups = computation.groups
    names = computation.names()

    def named(part: int | Shared, known: tuple[StageAxis, ...]) -> int | Shared:
        if isinstance(part, int):
            return part
        first = len(known)
        stages = [stage for position in part.groups for stage in groups[position]]
        axes: tuple[StageAxis, ...] = ()
        for k, axis in enumerate(part.axes, first):
            others = {
                a.name for s in stages for a in (*s.axes[:k], *s.axes[k + 1 :], *s.reduce_axes)
            }
            free = axis.name not in others and axis.name not in {a.name for a in (*known, *axes)}
            axes += (axis if free else replace(axis, name=names.fresh(axis.label)),)
        inside = tuple(named(inner, (*known, *axes)) for inner in part.parts)
        return replace(part, axes=axes, parts=inside)

    parts = _runs(groups, range(len(groups)), 0, limits)
    return Shared((), tuple(named(part, ()) for part in parts))


def with_shared(computation: Computation, shared: Shared) -> Computation:
    """`computation` with the first axes of groups named as the loops that they share."""
    groups = list(computation.groups)

    def name(part: int | Shared, known: tuple[StageAxis, ...]) -> None:
        if isinstance(part, int):
            groups[part] = tuple(_on(stage, known) for stage in groups[part])
            return
        for inner in part.parts:
            name(inner, (*known, *part.axes))

    name(shared, ())
    return replace(computation, groups=tuple(groups))


def check_shared(computation: Computation, shared: Shared, around: int = 0) -> None:
    """Refuse loops that groups cannot share: of different extents, or where an iteration reads what
    another one makes.

    around   loops that lie around these
    """
    length = around + len(shared.axes)
    positions = shared.groups
    for count, position in enumerate(positions[1:], 1):
        limits = [length] * len(computation.groups)
        run = list(positions[:count])
        if _prefix(computation.groups, run, position, limits, alone=length) < length:
            lead = computation.groups[position][0]
            raise PartitionError(
                "schedule",
                f"cannot compute {lead.label} in loops that it shares",
                at=f"the loops {', '.join(axis.name for axis in shared.axes)}",
                because="an iteration would read what another one makes, or the extents differ",
                help=("nests one after the other",),
            )
    for part in shared.parts:
        if isinstance(part, Shared):
            check_shared(computation, part, length)


def _runs(
    groups: Sequence[Sequence[Stage]], positions: Iterable[int], depth: int, limits: Sequence[int]
) -> list[int | Shared]:
    """Neighbours that share more loops than the `depth` around them, as far as each run goes."""
    runs: list[tuple[list[int], int]] = []
    for position in positions:
        if runs:
            run, length = runs[-1]
            shares = min(length, _prefix(groups, run, position, limits))
            if shares > depth:
                runs[-1] = [*run, position], shares
                continue
        runs.append(([position], limits[position]))
    parts: list[int | Shared] = []
    for run, length in runs:
        if len(run) == 1:
            parts += run
            continue
        axes = groups[run[0]][0].axes[depth:length]
        parts.append(Shared(axes, tuple(_runs(groups, run, length, limits))))
    return parts


def _prefix(
    groups: Sequence[Sequence[Stage]],
    run: Sequence[int],
    position: int,
    limits: Sequence[int],
    alone: int = 0,
) -> int:
    """How many of its first axes a group can share with a run before it; `alone` if it reads none of it."""
    lead, mine = groups[run[0]][0], groups[position][0]
    length = min(limits[position], len(lead.axes), len(mine.axes))
    alike = (a.extent == b.extent for a, b in zip(lead.axes, mine.axes, strict=False))
    length = min(length, next((k for k, same in enumerate(alike) if not same), length))
    computed = {stage.buffer for other in run for stage in groups[other]}
    reads = [load for load in _loads(groups[position]) if load.buffer in computed]
    for load in reads:
        own = [part == Var(axis.name) for part, axis in zip(load.index, mine.axes, strict=False)]
        length = min(length, next((k for k, same in enumerate(own) if not same), len(own)))
    return length if reads else min(length, alone)


def _loads(group: Sequence[Stage]) -> list[Load]:
    return [node for stage in group for node in walk(stage.value) if isinstance(node, Load)]


def _on(stage: Stage, axes: Sequence[StageAxis]) -> Stage:
    """`stage` with its first axes named as these are."""
    own = stage.axes[: len(axes)]
    renamed: dict[str, Expr] = {old.name: Var(new.name) for old, new in zip(own, axes, strict=True)}
    inner_axes = stage.axes[len(axes) :]
    named = tuple(replace(old, name=new.name) for old, new in zip(own, axes, strict=True))
    return replace(stage, axes=(*named, *inner_axes), body=substitute(stage.body, renamed))
