"""Nests as decisions: what `nests_of` reads, in the order of a text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeGuard

from offcut.describe.computation import Computation, Names
from offcut.partition import LADDER, AxisCut
from offcut.schedule.decisions import (
    VECTORS,
    Alternative,
    At,
    Choose,
    Cover,
    Level,
    Order,
    Primitive,
    Schedule,
    Split,
    Staging,
    Step,
    each_decision,
    panel_copies,
    split_names,
)
from offcut.schedule.nest_reader import parts_of
from offcut.schedule.nests import KERNEL_AXES, LoopVariant, Nest, Together


def decisions_of(
    parts: Sequence[Nest | Together], sums: frozenset[tuple[str, str]] = frozenset()
) -> tuple[Step, ...]:
    """Return the decisions that `nests_of` reads as these nests.

    sums  (stage, axis) of those whose iterations are the terms of a sum: their tiles run inside of others
    """
    steps: list[Step] = []
    places: list[Step] = []

    def visit(
        part: Nest | Together,
        shared: Sequence[tuple[str, Level | None]],
        around: tuple[str, ...],
    ) -> str:
        if isinstance(part, Nest):
            steps.extend(_nest_steps(part, tuple(shared), sums, around))
            return part.last
        own = (*((axis, None) for axis in part.axes[:-1]), (part.axes[-1], part.block))
        *others, last = part.parts
        around = (*around, *part.axes)
        inside = [visit(other, (), around) for other in others]
        reader = visit(last, (*shared, *own), around)
        loop = shared_name(*own[-1])
        places.extend(At(stage, reader, loop) for stage in inside)
        copies = (name for nest in part.parts if isinstance(nest, Nest) for name in _copies(nest))
        places.extend(At(name, reader, loop) for name in copies)
        return reader

    for part in parts:
        visit(_alone(part), (), ())
    return (*steps, *places)


def _alone(part: Nest | Together) -> Nest | Together:
    """Return nests, loops that one of them shares with no other as its own."""
    if isinstance(part, Nest):
        return part
    parts = tuple(map(_alone, part.parts))
    if len(parts) > 1:
        return replace(part, parts=parts)
    (only,) = parts
    if isinstance(only, Together):
        return replace(only, axes=(*part.axes, *only.axes))
    return replace(only, variants=tuple(in_loops(variant, part.axes) for variant in only.variants))


def with_orders_of_terms(
    parts: Sequence[Nest | Together], computation: Computation
) -> tuple[Nest | Together, ...]:
    """Return the nests of `computation` with the orders in which their sums run: the axis that a microkernel runs along is the innermost."""
    leads = {group[0].buffer: group[0] for group in computation.groups}

    def part(one: Nest | Together) -> Nest | Together:
        if isinstance(one, Together):
            return replace(one, parts=tuple(map(part, one.parts)))
        depths = {variant.cover.depth for variant in one.variants if variant.cover is not None}
        axes = [axis.name for axis in leads[one.stage].reduce_axes]
        if len(depths) != 1 or axes[-1:] == [*depths]:
            return one
        return replace(one, terms=tuple(sorted(axes, key=depths.__contains__)))

    return tuple(map(part, parts))


def _copies(nest: Nest) -> Iterator[str]:
    """Yield the copy that a nest reads, where it runs in one variant, and makes it before its own loops."""
    if len(nest.variants) == 1 and nest.variants[0].cost is None:
        (variant,) = nest.variants
        if variant.pack is not None and not variant.pack.at:
            yield variant.pack.name


def in_loops(variant: LoopVariant, loops: tuple[str, ...]) -> LoopVariant:
    """Return `variant` in further plain loops, which run around what it packs, too."""
    if not loops:
        return variant
    pack = variant.pack
    if pack is not None and not pack.at:
        pack = replace(pack, loops=(*loops, *pack.loops))
    return replace(variant, loops=(*loops, *variant.loops), pack=pack)


def shared_name(axis: str, block: Level | None) -> str:
    """Return what a loop that nests share is called: as its axis, or as blocks of it."""
    return axis if block is None else f"{axis}_block"


@lru_cache(1 << 15)
def _nest_steps(
    nest: Nest,
    shared: tuple[tuple[str, Level | None], ...],
    sums: frozenset[tuple[str, str]],
    around: tuple[str, ...],
) -> tuple[Step, ...]:
    stage, steps = nest.last, list[Step]()
    for axis, block in shared:
        if block is not None:
            names = shared_name(axis, block), f"{axis}_in"
            steps.append(Split(stage, axis, (block,), names))
    if shared:
        steps.append(Order(stage, tuple(shared_name(*one) for one in shared)))
    if nest.terms and (
        nest.followers or all(variant.splits or variant.loops for variant in nest.variants)
    ):
        steps.append(Order(nest.stage, nest.terms))
    summed = frozenset(axis for of, axis in sums if of in (stage, nest.stage))
    if len(nest.variants) == 1 and nest.variants[0].cost is None:
        return (*steps, *_variant_steps(nest, nest.variants[0], summed, around))
    options = (
        Alternative(
            variant.label, variant.cost, tuple(_variant_steps(nest, variant, summed, around))
        )
        for variant in nest.variants
    )
    return (*steps, Choose(tuple(options)))


def _variant_steps(
    nest: Nest, variant: LoopVariant, sums: frozenset[str], around: tuple[str, ...]
) -> Iterator[Primitive]:
    variant, pack, stage = variant.plain, variant.pack, nest.last
    if pack is not None:
        yield replace(pack.staging, readers=(nest.stage,))
        yield from loop_steps(pack.name, pack.splits, pack.loops, (), sums, {})
    inside: dict[str, str] = {}
    own = list(loop_steps(stage, variant.splits, variant.loops, variant.inner, sums, inside))
    place = () if pack is None or not pack.at else (At(pack.name, stage, pack.at),)
    if nest.followers:
        orders = [step.loops for step in own if isinstance(step, Order)]
        names = orders[0] if inside.keys() - sums else () if variant.loops else around
        innermost = names[-1] if names else None
        members = (*nest.followers[-2::-1], nest.stage)
        terms = [replace(s, stage=nest.stage) for s in own if _is_of_sum(s, sums)]
        own = [step for step in own if not _is_of_sum(step, sums)]
        place = (*(At(member, stage, innermost) for member in members), *place)
        yield from (*own, *place, *terms)
    else:
        yield from (*place, *own)
    if variant.depth is not None:
        axis, windows = variant.depth
        yield At(stage, stage, f"{axis}_tile" if axis in inside else axis, depth=windows)
    yield cover_step(stage, variant, sums, inside)


def cover_step(
    stage: str, variant: LoopVariant, sums: frozenset[str], inside: Mapping[str, str]
) -> Cover:
    """Return what covers the tiles of a stage in a variant.

    inside  what the loops in its tiles are called, by axis
    """
    at = next((inside[cut.axis] for cut in variant.splits if cut.axis not in sums), "")
    cover = variant.cover
    if cover is None:
        return Cover(stage, at, VECTORS)
    along = zip(KERNEL_AXES, (cover.rows, cover.columns, cover.depth), strict=True)
    axes = tuple((name, inside.get(axis, axis)) for name, axis in along if axis)
    return Cover(stage, at, cover.microkernel, axes)


def _is_of_sum(step: Primitive, sums: frozenset[str]) -> TypeGuard[Split]:
    """Return whether a decision splits the terms of a sum."""
    return isinstance(step, Split) and step.axis in sums


def loop_steps(
    stage: str,
    splits: Sequence[AxisCut],
    outer: Sequence[str],
    inner: Sequence[str],
    sums: frozenset[str],
    inside: dict[str, str],
    others: Sequence[str] = (),
) -> Iterator[Primitive]:
    """Yield the splits of a stage and the order of its loops; what the loops in its tiles are called goes to `inside`.

    others  axes that are in none of these
    """
    names = Names([*outer, *inner, *(cut.axis for cut in splits), *others])
    groups, tiles = list[str](), list[str]()
    before: AxisCut | None = None
    for cut in splits:
        own = tuple(map(names.fresh, split_names(cut.axis, 1 if cut.group is None else 2)))
        by = None if before is None or not cut.by_height else inside[before.axis]
        last = Level(cut.tile, cut.strategy, cut.heights, by, cut.by_height)
        group = () if cut.group is None else (Level(cut.group, LADDER),)
        yield Split(stage, cut.axis, (*group, last), own)
        inside[cut.axis] = own[-1]
        if cut.axis not in sums:
            before = cut
            groups += own[:-2]
            tiles.append(own[-2])
    inner_loops = [inside[cut.axis] for cut in splits if cut.axis not in sums]
    loops = (*outer, *groups, *inner, *tiles, *inner_loops)
    if loops:
        yield Order(stage, loops)


def with_parts(schedule: Schedule, parts: Sequence[Nest | Together]) -> Schedule:
    """Return a schedule with other nests, or shared loops, in place of its own; each sum is of the axes that it was of."""
    steps, copies = schedule.steps, panel_copies(schedule.steps)
    own = [place for place, step in enumerate(steps) if _is_of_nests(step, copies)]
    first, last = own[0], own[-1] + 1
    decisions = list(each_decision(steps[first:last]))
    ordered_loops = {(s.stage, name) for s in decisions if isinstance(s, Order) for name in s.loops}
    sums = frozenset(
        (s.stage, s.axis)
        for s in decisions
        if isinstance(s, Split) and (s.stage, s.names[-2]) not in ordered_loops
    )
    return replace(schedule, steps=(*steps[:first], *decisions_of(parts, sums), *steps[last:]))


def with_variants(
    schedule: Schedule,
    stage: str,
    variants: Callable[[tuple[LoopVariant, ...]], tuple[LoopVariant, ...]],
) -> Schedule:
    """Return a schedule with other variants of the nest of one stage; one without nests as it is."""

    def part(one: Nest | Together) -> Nest | Together:
        if isinstance(one, Together):
            return replace(one, parts=tuple(map(part, one.parts)))
        return replace(one, variants=variants(one.variants)) if one.stage == stage else one

    parts = parts_of(schedule)
    return with_parts(schedule, tuple(map(part, parts))) if parts else schedule


def _is_of_nests(step: Step, copies: Collection[str]) -> bool:
    """Return whether a decision is one of those that `decisions_of` writes.

    copies  that are made for what covers their reader
    """
    if isinstance(step, Staging):
        return step.how == "read" or step.name in copies
    return isinstance(step, Split | Order | Cover | Choose | At)
