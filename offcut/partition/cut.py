"""Cutting a computation: what is asked is checked, each check a theorem, then pieces and loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from offcut.core import index as ix
from offcut.core.computation import Computation, Names, Stage, StageAxis
from offcut.core.microkernel import Microkernel
from offcut.core.program import Program, Stmt
from offcut.errors import PartitionError
from offcut.partition.match import Match, matches
from offcut.partition.nest import AxisCut, Cover, nest
from offcut.partition.pieces import Partition, Piece
from offcut.partition.prove import Certificate, Theorem, check_axis, check_divides
from offcut.partition.strategies import Segment, Strategy, segments
from offcut.polyhedral import (
    Space,
    check_extents,
    check_fits,
    check_in_bounds,
    check_parallel,
    space_of,
    stage_sets,
)

# A reduction keeps its order, so its tiles may neither repeat (but for max and min) nor regroup.
ON_REDUCTIONS = (Strategy.EXACT, Strategy.CUT, Strategy.GUARD, Strategy.MASK, Strategy.PAD)


@dataclass(frozen=True, slots=True)
class GroupCut:
    """How one group of stages is cut; `nest` says what the fields mean."""

    group: tuple[Stage, ...]
    cuts: tuple[AxisCut, ...] = ()
    reduce_cuts: tuple[AxisCut, ...] = ()
    outer: tuple[str, ...] = ()
    match: Match | None = None
    prologue: Mapping[int, tuple[Stmt, ...]] = field(default_factory=dict)


def cut(
    computation: Computation,
    tile: Mapping[str, int],
    tail: Mapping[str, str] | str,
    microkernels: Sequence[Microkernel],
) -> Partition:
    """`computation` with the axes in `tile` cut, and no other.

    tile   the largest tile by axis, in iterations; an axis is ``j``, or ``C.j`` where two have it
    tail   what to do with the partial tile, by axis, or one strategy for all; ``cut`` by default

    Raises PartitionError for what is not there, not legal, or not proved.
    """
    wanted = _resolve(computation, tile, tail)
    cuts: list[GroupCut] = []
    for position, group in enumerate(computation.groups):
        lead = group[0]
        mine = {axis: choice for (home, axis), choice in wanted.items() if home == position}
        spatial = tuple(_axis_cut(a, mine[a.name]) for a in lead.axes if a.name in mine)
        reduced = tuple(_axis_cut(a, mine[a.name]) for a in lead.reduce_axes if a.name in mine)
        first = next((k for k, a in enumerate(lead.axes) if a.name in mine), len(lead.axes))
        found = next(all_matches(lead, microkernels), None)
        outer = tuple(a.name for a in lead.axes[:first])
        cuts.append(GroupCut(group, spatial, reduced, outer, found))
    names = computation.names()
    parts = [cut_group(computation, one, names) for one in cuts]
    theorems = prove(computation, cuts)
    body = tuple(stmt for body, _ in parts for stmt in body)
    pieces = tuple(piece for _, found in parts for piece in found)
    return Partition(computation, pieces, program_of(computation, body), theorems)


def program_of(computation: Computation, body: tuple[Stmt, ...]) -> Program:
    """The loop program of `computation` with this body."""
    return Program(
        computation.name, computation.sizes, computation.assumptions, computation.buffers, body
    )


def all_matches(stage: Stage, microkernels: Sequence[Microkernel]) -> Iterator[Match]:
    """Every way in which a microkernel computes what `stage` does, the preferred ones first."""
    axes = [axis.name for axis in stage.axes]
    reduced = [axis.name for axis in stage.reduce_axes]
    for kernel in microkernels:
        yield from matches(kernel, stage.value, stage.reducer, axes, reduced)


def cut_group(
    computation: Computation, plan: GroupCut, names: Names
) -> tuple[tuple[Stmt, ...], tuple[Piece, ...]]:
    """The statements and the pieces of one group."""
    made = nest(
        plan.group,
        plan.cuts,
        plan.reduce_cuts,
        plan.outer,
        _cover(plan.match),
        names,
        plan.prologue,
    )
    space, lead = space_of(computation), plan.group[0]
    along: list[list[tuple[str, Segment]]] = []
    extents = {axis.name: axis.extent for axis in lead.reduce_axes}
    for one in plan.reduce_cuts:
        parts = segments(one.strategy, extents[one.axis], one.tile)
        along.append([(one.axis, segment) for segment in parts])
    pieces = tuple(
        Piece(space, lead, (*region.segments, *reduced), region.microkernel)
        for region in made.regions
        for reduced in product(*along)
    )
    return made.body, pieces


def _cover(found: Match | None) -> Cover:
    """The microkernel's name wherever one of its tiles holds every tile of these heights, and it has
    a predicate on every axis with lanes that are off.
    """

    def cover(heights: Mapping[str, tuple[int, int]], masked: frozenset[str]) -> str | None:
        if found is None or found.columns not in (None, *heights):
            return None
        axes = {found.rows: found.microkernel.rows, found.columns: found.microkernel.columns}
        if any(axes.get(axis) not in (None, *found.microkernel.predicates) for axis in masked):
            return None
        low, high = heights.get(found.rows, (1, 1)) if found.rows is not None else (1, 1)
        kernel = found.microkernel
        columns = heights[found.columns][1] if found.columns is not None else 1
        fits = high <= kernel.max_rows and all(
            kernel.columns_for(rows) >= columns for rows in range(max(low, 1), high + 1)
        )
        return kernel.name if fits else None

    return cover


def prove(computation: Computation, cuts: Sequence[GroupCut]) -> Certificate:
    """The certificate of a computation cut so; raises PartitionError where a theorem fails."""
    space = space_of(computation)
    names = {name: user for user, name in computation.size_names}
    theorems: dict[Theorem, None] = {}
    for one in cuts:
        for stage in one.group:
            check_extents(computation, space, stage)
            check_fits(computation, stage)
            sets = stage_sets(space, stage)
            check_in_bounds(computation, space, sets)
            check_parallel(sets)
            of = stage.label
            theorems[Theorem("in bounds", "every access lies inside its tensor", of)] = None
            theorems[Theorem("int64", "index arithmetic stays within 2^62", of)] = None
            theorems[Theorem("order kept", "dependences run along the reduction only", of)] = None
        lead = one.group[0]
        axes = {axis.name: axis for axis in (*lead.axes, *lead.reduce_axes)}
        for axis_cut in (*one.cuts, *one.reduce_cuts):
            axis = axes[axis_cut.axis]
            reduced = axis in lead.reduce_axes
            theorems |= dict.fromkeys(_prove_axis(space, names, lead, axis, axis_cut, reduced))
    return Certificate(tuple(theorems))


def _prove_axis(
    space: Space,
    names: dict[str, str],
    lead: Stage,
    axis: StageAxis,
    asked: AxisCut,
    reduced: bool,
) -> list[Theorem]:
    at = f"axis {lead.label}.{axis.label}"
    check_legal(lead, asked.strategy, reduced, at=at)
    by_height = [(tile, heights) for _, tile, heights in asked.by_height]
    alone = [(asked.tile, asked.heights)]
    found: list[Theorem] = []
    size = ix.literal(axis.extent)
    windows = [size]
    if asked.group is not None and (size is None or size > asked.group):
        found += check_axis(Strategy.LADDER, asked.group, None, reduced, size)
        windows = [None] if size is None else [asked.group, size % asked.group]
    for tile, heights in by_height or alone:
        for window in windows:
            found += check_axis(asked.strategy, tile, heights, reduced, window)
        if asked.strategy is Strategy.EXACT:
            found.append(check_divides(space, names, axis.extent, tile, at=at))
    if asked.strategy is Strategy.SHIFT:
        statement = "a repeated instance starts from the neutral element and writes the same value"
        found.append(Theorem("repetition safe", statement, at))
    return found


def check_legal(lead: Stage, strategy: Strategy, reduced: bool, *, at: str) -> None:
    """Refuse a strategy that would change a reduction.

    Theorem: a tile of a reduction axis runs every term once, in ascending order; only for max and
    min, which are idempotent, may a term be met again (``shift``).
    """
    idempotent = lead.reducer in ("max", "min")
    if not reduced or strategy in ON_REDUCTIONS or (strategy is Strategy.SHIFT and idempotent):
        return
    because = "tiles of a reduction are added in order, and all of one height but the last"
    if strategy is Strategy.SHIFT:
        because = f"the last tile would add terms again: {lead.reducer} is not idempotent"
    allowed = [s.value for s in ON_REDUCTIONS] + (["shift"] if idempotent else [])
    raise PartitionError(
        "partition",
        f'cannot take tail="{strategy.value}" on a reduction',
        at=at,
        because=because,
        help=(f"a reduction axis takes {', '.join(allowed)}",),
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    tile: int
    strategy: Strategy


def _axis_cut(axis: StageAxis, choice: _Choice) -> AxisCut:
    return AxisCut(axis.name, choice.strategy, choice.tile)


def _resolve(
    computation: Computation, tile: Mapping[str, int], tail: Mapping[str, str] | str
) -> dict[tuple[int, str], _Choice]:
    """(group, axis) -> choice, from the user's names."""
    for what, given in (("tile", tile), ("tail", tail)):
        if not isinstance(given, Mapping) and not (what == "tail" and isinstance(given, str)):
            raise PartitionError(
                "partition",
                f"cannot take {what}={given!r}",
                because="a cut is given by axis",
                help=('tile={"i": 14, "j": 32}, tail={"i": "balance", "j": "mask"}',),
            )
    tails = dict.fromkeys(tile, tail) if isinstance(tail, str) else dict(tail)
    found: dict[tuple[int, str], _Choice] = {}
    for name in [*tile, *(extra for extra in tails if extra not in tile)]:
        home = axis_named(computation, name)
        if name not in tile:
            raise PartitionError(
                "partition",
                f"cannot treat the tail of {name}",
                at=f"axis {name}",
                because="no tile is given for it, so it is not cut",
                help=(f'tile={{"{name}": 16}}',),
            )
        size = tile[name]
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size < 2**31:
            raise PartitionError(
                "partition",
                f"cannot cut {name} by {size!r}",
                at=f"axis {name}",
                because="a tile is an int from 1 to 2**31 - 1: isl decides no symbolic tile size",
            )
        if home in found:
            raise PartitionError(
                "partition",
                f"cannot cut {name} twice",
                at=f"axis {name}",
                because="two of the names given are this axis",
            )
        found[home] = _Choice(size, strategy_named(tails.get(name, "cut"), at=f"axis {name}"))
    return found


def strategy_named(name: object, *, at: str, op: str = "partition") -> Strategy:
    """The strategy of that name; raises PartitionError with the names there are."""
    for strategy in Strategy:
        if name == strategy.value or name is strategy:
            return strategy
    raise PartitionError(
        op,
        f"cannot take {'tail' if op == 'partition' else 'strategy'}={name!r}",
        at=at,
        because="there is no such strategy",
        help=(", ".join(strategy.value for strategy in Strategy),),
    )


def axis_named(computation: Computation, name: str) -> tuple[int, str]:
    """(group, axis) that the user calls `name`: ``j``, or ``C.j`` where several stages have it."""
    homes: dict[tuple[int, str], str] = {}
    known: dict[str, None] = {}
    for position, group in enumerate(computation.groups):
        for stage in group:
            for axis in (*stage.axes, *stage.reduce_axes):
                full = f"{stage.label}.{axis.label}"
                known[full] = None
                if name in (axis.label, full):
                    homes.setdefault((position, axis.name), full)
    if len(homes) == 1:
        return next(iter(homes))
    candidates = list(homes.values()) or list(known)
    raise PartitionError(
        "partition",
        f"cannot find the axis {name!r}",
        because="several axes have that name" if homes else "no axis has that name",
        help=(", ".join(candidates),),
    )
