"""Time by counting: cycle after cycle, each unit does a cycle's worth of what it is at."""

from __future__ import annotations

from collections import deque

from offcut.backends.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    Stream,
    Unit,
)
from offcut.backends.accelerator.spec import AcceleratorSpec

UNITS = list(Unit)


def cost(one: Instruction, spec: AcceleratorSpec) -> tuple[int, int]:
    """Cycles off and on the bus, by the words of the instruction set's page."""
    if isinstance(one, Finish):
        return int(spec.instruction_cycles[Unit.COMPUTE]), 0
    if isinstance(one, Gemm | Alu):
        steps = one.outer.extent * one.inner.extent * (one.end - one.begin)
        each = spec.gemm_cycles
        if isinstance(one, Alu):
            each = spec.operand_cycles if one.immediate is None else spec.immediate_cycles
        return int(spec.instruction_cycles[Unit.COMPUTE] + steps * each), 0
    place = one.place if isinstance(one, Load) else MemorySpace.OUTPUTS
    unit = spec.loads[place] if isinstance(one, Load) else Unit.STORE
    beats = -(-one.x * spec.words[place].bytes // spec.beat)
    row = spec.row_cycles + beats * spec.beat / spec.bus_bytes
    zeros = 0
    if isinstance(one, Load):
        top, bottom, left, right = one.pad
        zeros = (top + one.y + bottom) * (left + one.x + right) - one.y * one.x
    fill = zeros * spec.words[place].fill_cycles
    return int(spec.instruction_cycles[unit] + fill), int(one.y * row) if one.x and one.y else 0


def ends(stream: Stream, spec: AcceleratorSpec, limit: int) -> dict[int, int] | None:
    """When each instruction has ended, by position; None where some have not within `limit` cycles."""
    queues: list[deque[int]] = [deque(), deque(), deque()]
    tokens = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], 0)
    at: list[int | None] = [None, None, None]
    left, moving, asked = [0, 0, 0], [False] * 3, [0, 0, 0]
    fetched, next_fetch = 0, int(spec.fetch_cycles)
    bus: int | None = None
    found: dict[int, int] = {}
    finished = 0
    for now in range(limit):
        changed = True
        while changed:  # what happens at this moment, until nothing more does
            changed = False
            if fetched < len(stream.instructions) and now >= next_fetch:
                unit = UNITS.index(spec.unit(stream.instructions[fetched]))
                if len(queues[unit]) < spec.queue_depth[UNITS[unit]]:
                    queues[unit].append(fetched)
                    fetched, next_fetch, changed = fetched + 1, now + int(spec.fetch_cycles), True
            for unit in range(3):
                position = at[unit]
                if position is None and queues[unit]:
                    changed |= _begin(unit, queues, tokens, at, stream)
                    if at[unit] is not None:
                        left[unit], moving[unit] = (
                            cost(stream.instructions[at[unit]], spec)[0],
                            False,
                        )
                        asked[unit] = now + left[unit]
                elif position is not None and left[unit] == 0:
                    on_bus = cost(stream.instructions[position], spec)[1]
                    if on_bus and not moving[unit]:
                        continue
                    if moving[unit] and bus == unit:
                        bus, changed = None, True
                    found.setdefault(position, now)
                    if _push(unit, position, tokens, stream, spec):
                        at[unit], changed, finished = None, True, finished + 1
            if bus is None:
                asking = [
                    (asked[unit], unit)
                    for unit in range(3)
                    if (position := at[unit]) is not None
                    and left[unit] == 0
                    and not moving[unit]
                    and cost(stream.instructions[position], spec)[1]
                ]
                if asking and not changed:
                    _, bus = min(asking)
                    position = at[bus]
                    assert position is not None
                    left[bus], moving[bus] = cost(stream.instructions[position], spec)[1], True
        if finished == len(stream.instructions):
            return found
        for unit in range(3):
            if at[unit] is not None and left[unit]:
                left[unit] -= 1
    return None


def _begin(
    unit: int,
    queues: list[deque[int]],
    tokens: dict[tuple[int, int], int],
    at: list[int | None],
    stream: Stream,
) -> bool:
    told = stream.instructions[queues[unit][0]].tokens
    pops = [(unit - 1, unit)] * told.pop_prev + [(unit + 1, unit)] * told.pop_next
    if not all(tokens[one] for one in pops):
        return False
    for one in pops:
        tokens[one] -= 1
    at[unit] = queues[unit].popleft()
    return True


def _push(
    unit: int,
    position: int,
    tokens: dict[tuple[int, int], int],
    stream: Stream,
    spec: AcceleratorSpec,
) -> bool:
    told = stream.instructions[position].tokens
    pushes = [(unit, unit - 1)] * told.push_prev + [(unit, unit + 1)] * told.push_next
    if any(tokens[one] >= spec.token_depth for one in pushes):
        return False
    for one in pushes:
        tokens[one] += 1
    return True
