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
from dataclasses import replace

from offcut.core.expr import Expr, Load, Var, substitute, walk
from offcut.describe.computation import Computation, Stage
from offcut.errors import PartitionError
from offcut.schedule.nests import Nest, Together, nests_in, nests_with_axes


def share_loops(computation: Computation, limits: Sequence[int]) -> tuple[Nest | Together, ...]:
    """Return the nests of the groups, without variants, in the loops that they can share, by names that no other axis has.

    limits   of each group, how many of its first axes may be loops of their own
    """
    groups, names = computation.groups, computation.names()
    by_stage = {group[0].buffer: group for group in groups}

    def with_names(part: Nest | Together, known: tuple[str, ...]) -> Nest | Together:
        if isinstance(part, Nest):
            return part
        first = len(known)
        stages = [stage for nest in nests_in((part,)) for stage in by_stage[nest.stage]]
        axes: tuple[str, ...] = ()
        for k, name in enumerate(part.axes, first):
            others = {
                a.name for s in stages for a in (*s.axes[:k], *s.axes[k + 1 :], *s.reduce_axes)
            }
            free = name not in others and name not in (*known, *axes)
            axes += (name if free else names.fresh(stages[0].axes[k].label),)
        inside = tuple(with_names(inner, (*known, *axes)) for inner in part.parts)
        return replace(part, axes=axes, parts=inside)

    return tuple(with_names(part, ()) for part in _runs(groups, range(len(groups)), 0, limits))


def with_shared(computation: Computation, parts: Sequence[Nest | Together]) -> Computation:
    """Return `computation` with the first axes of groups named as the loops that they share."""
    names = {nest.stage: axes for nest, axes in nests_with_axes(parts)}
    groups = (
        tuple(_on(stage, names.get(group[0].buffer, ())) for stage in group)
        for group in computation.groups
    )
    return replace(computation, groups=tuple(groups))


def check_shared(computation: Computation, together: Together, around: int = 0) -> None:
    """Refuse loops that groups cannot share: of different extents, or where an iteration reads what
    another one makes.

    around   loops that lie around these
    """
    length = around + len(together.axes)
    places = {group[0].buffer: place for place, group in enumerate(computation.groups)}
    positions = [places[nest.stage] for nest in nests_in((together,))]
    for count, position in enumerate(positions[1:], 1):
        limits = [length] * len(computation.groups)
        run = positions[:count]
        if _prefix(computation.groups, run, position, limits, alone=length) < length:
            lead = computation.groups[position][0]
            raise PartitionError(
                "schedule",
                f"cannot compute {lead.label} in loops that it shares",
                at=f"the loops {', '.join(together.axes)}",
                because="an iteration would read what another one makes, or the extents differ",
                help=("nests one after the other",),
            )


def _runs(
    groups: Sequence[Sequence[Stage]], positions: Iterable[int], depth: int, limits: Sequence[int]
) -> list[Nest | Together]:
    """Return neighbours that share more loops than the `depth` around them, as far as each run goes."""
    runs: list[tuple[list[int], int]] = []
    for position in positions:
        if runs:
            run, length = runs[-1]
            shares = min(length, _prefix(groups, run, position, limits))
            if shares > depth:
                runs[-1] = [*run, position], shares
                continue
        runs.append(([position], limits[position]))
    parts: list[Nest | Together] = []
    for run, length in runs:
        lead = groups[run[0]][0]
        if len(run) == 1:
            followers = tuple(stage.buffer for stage in groups[run[0]][1:])
            parts.append(Nest(lead.buffer, (), followers))
            continue
        axes = tuple(axis.name for axis in lead.axes[depth:length])
        parts.append(Together(axes, tuple(_runs(groups, run, length, limits))))
    return parts


def _prefix(
    groups: Sequence[Sequence[Stage]],
    run: Sequence[int],
    position: int,
    limits: Sequence[int],
    alone: int = 0,
) -> int:
    """Return how many of its first axes a group can share with a run before it; `alone` if it reads none of it."""
    lead, mine = groups[run[0]][0], groups[position][0]
    length = min(limits[position], len(lead.axes), len(mine.axes))
    alike = (a.extent == b.extent for a, b in zip(lead.axes, mine.axes, strict=False))
    length = min(length, next((k for k, same in enumerate(alike) if not same), length))
    stored = {stage.buffer for other in run for stage in groups[other]}
    nodes = (node for stage in groups[position] for node in walk(stage.value))
    reads = [node for node in nodes if isinstance(node, Load) and node.buffer in stored]
    for load in reads:
        own = [part == Var(axis.name) for part, axis in zip(load.index, mine.axes, strict=False)]
        length = min(length, next((k for k, same in enumerate(own) if not same), len(own)))
    return length if reads else min(length, alone)


def _on(stage: Stage, names: Sequence[str]) -> Stage:
    """Return `stage` with these names for its first axes."""
    own, rest = stage.axes[: len(names)], stage.axes[len(names) :]
    renamed: dict[str, Expr] = {a.name: Var(name) for a, name in zip(own, names, strict=True)}
    outer = (replace(axis, name=name) for axis, name in zip(own, names, strict=True))
    return replace(stage, axes=(*outer, *rest), body=substitute(stage.body, renamed))
