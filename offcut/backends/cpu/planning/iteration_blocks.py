"""Blocks of iterations of loops that nests share: each nest runs all of a block before the next nest does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from offcut.backends.cpu.planning.lanes import is_row_reduction
from offcut.costmodel import Machine
from offcut.describe.computation import Computation
from offcut.schedule import (
    At,
    Level,
    Nest,
    Order,
    Schedule,
    Split,
    Step,
    Together,
    min_nest_block_bytes,
    nests_in,
    position_of,
)


def iteration_block(
    computation: Computation,
    machine: Machine,
    nests: Sequence[Nest | Together],
    axes: tuple[str, ...],
) -> Level | None:
    """Return the iterations that loops around sums over memory run part by part: a sum ends in a chain of a few lanes, which
    those of other iterations hide. None where microkernels or further loops are inside, or where no size has room for them.

    axes  of these loops and those around, outermost first
    """
    sizes = machine.policy
    plain = all(
        isinstance(nest, Nest) and all(variant.cover is None for variant in nest.variants)
        for nest in nests
    )
    positions = (position_of(computation, nest.stage) for nest in nests_in(nests))
    sums = any(is_row_reduction(computation.groups[position][0]) for position in positions)
    if not plain or not sums or sizes.block < 2:
        return None
    room = int(sizes.block_share * machine.memory[0].bytes)
    block = Level(sizes.block, room=room)
    together = Together(axes, tuple(nests), block)
    return block if min_nest_block_bytes(computation, together) <= room else None


def unblock_shared_loops(schedule: Schedule) -> Schedule:
    """Return a schedule whose shared loops run one iteration after the other."""

    blocks: dict[tuple[str, str], str] = {}
    for step in schedule.steps:
        if _is_block(step):
            blocks[step.stage, step.names[0]] = step.axis

    def single(step: Step) -> Step:
        match step:
            case Order(stage, loops):
                return replace(step, loops=tuple(blocks.get((stage, n), n) for n in loops))
            case At(_, reader, axis) if axis is not None:
                return replace(step, axis=blocks.get((reader, axis), axis))
            case _:
                return step

    remaining = (single(step) for step in schedule.steps if not _is_block(step))
    return replace(schedule, steps=tuple(remaining)) if blocks else schedule


def _is_block(step: Step) -> TypeGuard[Split]:
    return isinstance(step, Split) and any(level.room is not None for level in step.levels)
