"""When each instruction runs: three units side by side, a bus that they share, queues between them.

No clock is counted. Instructions are fetched in the order of the stream, as long as the queue of their unit has
room. The first one in a queue **begins** when its unit is free, when the tokens that it pops have been pushed (or, on
a machine without tokens, when the instructions that it must follow have completed); then it leaves the queue. It
**asks** for the bus when nothing but words is left to do, and the bus serves who asks first; at the same moment, load
before compute before store. One that pushes a token where no more have room holds its unit until there is room.

The earliest of what can happen next is taken next. Whatever becomes known by it cannot come before it, so times are
those of the machine.

Beside the time, each instruction has a **clock**: how many instructions of each unit have completed before it
starts, by tokens and the order of each unit alone, whatever the times. What is not in it may run at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from offcut.backends.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    Store,
    Tokens,
    Unit,
)
from offcut.backends.accelerator.isa.listing import summary
from offcut.backends.accelerator.simulator.race_detection import Predecessor
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.errors import StreamError

UNITS = tuple(Unit)


class Stall(Enum):
    """What an instruction waits for while its unit does nothing."""

    FETCH = "instructions"
    LOAD = "load"
    COMPUTE = "compute"
    STORE = "store"
    BUS = "bus"
    ROOM = "room for tokens"


_BY_UNIT = (Stall.LOAD, Stall.COMPUTE, Stall.STORE)


@dataclass(frozen=True, slots=True)
class Event:
    """One instruction as it ran.

    position  in the stream
    start, end  in cycles; one that waits for the bus is taken to start so much later
    waits     what its unit waited for before, and for how many cycles
    """

    position: int
    unit: Unit
    start: float
    end: float
    waits: tuple[tuple[Stall, float], ...] = ()


@dataclass(slots=True)
class _Channel:
    """The tokens from one unit to another."""

    source: int
    sink: int
    pushed: list[float] = field(default_factory=list)
    clocks: list[tuple[int, ...]] = field(default_factory=list)
    popped: list[float] = field(default_factory=list)


class Timing:
    """The run of a stream in time."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        spec: AcceleratorSpec,
        after: Sequence[tuple[Predecessor, ...]] | None = None,
    ) -> None:
        """Runs them.

        after  by instruction, those that it must follow; None: not asked for, and the machine has tokens

        Raises StreamError where all units wait.
        """
        self.events: list[Event] = []
        self.clocks: list[tuple[int, ...]] = [()] * len(instructions)
        self._instructions, self._spec, self._after = instructions, spec, after
        self._unit = [UNITS.index(spec.unit(one)) for one in instructions]
        self._cycles = [cycles(one, spec) for one in instructions]
        self._queue: list[list[int]] = [[], [], []]
        for position, unit in enumerate(self._unit):
            self._queue[unit].append(position)
        self._depth = [spec.queue_depth[unit] for unit in UNITS]
        self._started: list[list[float]] = [[], [], []]
        self._ended: list[list[float]] = [[], [], []]
        self._channels = {pair: _Channel(*pair) for pair in ((0, 1), (1, 0), (1, 2), (2, 1))}
        self._pops = [
            self._pushers((tokens.pop_prev, unit - 1, unit), (tokens.pop_next, unit + 1, unit))
            for unit, tokens in self._tokens()
        ]
        self._pushes = [
            self._pushers((tokens.push_prev, unit, unit - 1), (tokens.push_next, unit, unit + 1))
            for unit, tokens in self._tokens()
        ]
        self._asking: list[float | None] = [None, None, None]  # since when, for the bus
        self._pushing: list[float | None] = [None, None, None]  # the end of the work
        self._stalls: list[list[tuple[Stall, float]]] = [[], [], []]
        self._free, self._bus = [0.0, 0.0, 0.0], 0.0
        self._blocked = [0.0, 0.0, 0.0]  # until when a unit held its last token
        self._clock = [[0, 0, 0] for _ in UNITS]
        self._arrival: list[float] = []
        self._arrived = [0, 0, 0]
        self._run()

    @property
    def cycles(self) -> float:
        """Until all units are free again."""
        return max(self._free)

    @property
    def unpopped_tokens(self) -> dict[tuple[Unit, Unit], int]:
        """Tokens that nobody has popped, by who pushed them for whom."""
        return {
            (UNITS[one.source], UNITS[one.sink]): len(one.pushed) - len(one.popped)
            for one in self._channels.values()
            if len(one.pushed) > len(one.popped)
        }

    def _run(self) -> None:
        while True:
            waiting = [unit for unit in range(3) if self._pushing[unit] is not None]
            pushed = sum(self._push(unit) for unit in waiting)
            self._fetch()
            begins = [self._ready(unit) for unit in range(3)]
            first = min((one for one in begins if one is not None), default=None)
            asked = ((ask, unit) for unit, ask in enumerate(self._asking) if ask is not None)
            asks = min(asked, default=None)
            if first is not None and (asks is None or first[0] <= asks[0]):
                self._begin(*first)
            elif asks is not None:
                self._move(*asks)
            elif not pushed:
                break
        if len(self.events) < len(self._instructions) or any(
            one is not None for one in self._pushing
        ):
            raise self._deadlock()

    def _fetch(self) -> None:
        while len(self._arrival) < len(self._instructions):
            unit = self._unit[len(self._arrival)]
            before = self._arrived[unit] - self._depth[unit]
            if before >= len(self._started[unit]):
                return
            room = self._started[unit][before] if before >= 0 else 0.0
            last = self._arrival[-1] if self._arrival else 0.0
            self._arrival.append(max(last + self._spec.fetch_cycles, room))
            self._arrived[unit] += 1

    def _ready(self, unit: int) -> tuple[float, int, Stall] | None:
        """When the first instruction of a queue begins, the unit, and what it waits for last. None where that is not
        known yet, or nothing is queued.
        """
        done = len(self._started[unit])
        if self._asking[unit] is not None or self._pushing[unit] is not None:
            return None
        if done == len(self._queue[unit]) or self._queue[unit][done] >= len(self._arrival):
            return None
        position = self._queue[unit][done]
        last, why = self._arrival[position], Stall.FETCH
        for channel in self._pops[position]:
            number = len(channel.popped)
            if number >= len(channel.pushed):
                return None
            if channel.pushed[number] > last:
                last, why = channel.pushed[number], _BY_UNIT[channel.source]
        if not self._spec.tokens and self._after is not None:
            for one in self._after[position]:
                if one.sequence >= len(self._ended[one.unit]):
                    return None
                if self._ended[one.unit][one.sequence] > last:
                    last, why = self._ended[one.unit][one.sequence], _BY_UNIT[one.unit]
        return max(self._free[unit], last), unit, why

    def _begin(self, when: float, unit: int, why: Stall) -> None:
        position = self._queue[unit][len(self._started[unit])]
        self._started[unit].append(when)
        clock = self._clock[unit]
        for channel in self._pops[position]:
            clock[:] = map(max, clock, channel.clocks[len(channel.popped)])
            channel.popped.append(when)
        self.clocks[position] = tuple(clock)
        clock[unit] += 1
        free, blocked = self._free[unit], self._blocked[unit]
        waited = ((Stall.ROOM, free - blocked), (why, when - free))
        self._stalls[unit] = [one for one in waited if one[1] > 0]
        own, bus = self._cycles[position]
        if bus:
            self._asking[unit] = when + own
        else:
            self._end(unit, position, when, when + own)

    def _move(self, asked: float, unit: int) -> None:
        """Give the bus to a unit."""
        position = self._queue[unit][len(self._started[unit]) - 1]
        own, bus = self._cycles[position]
        begins = max(asked, self._bus)
        if begins > asked:
            self._stalls[unit].append((Stall.BUS, begins - asked))
        self._bus = begins + bus
        self._asking[unit] = None
        self._end(unit, position, begins - own, self._bus)

    def _end(self, unit: int, position: int, start: float, end: float) -> None:
        self.events.append(Event(position, UNITS[unit], start, end, tuple(self._stalls[unit])))
        self._pushing[unit] = end
        self._push(unit)

    def _push(self, unit: int) -> bool:
        """Push what the instruction that has ended pushes, where there is room; whether there was."""
        end, position = self._pushing[unit], self._queue[unit][len(self._started[unit]) - 1]
        assert end is not None
        when = end
        channels = self._pushes[position]
        for channel in channels:
            before = len(channel.pushed) - self._spec.token_depth
            if before >= len(channel.popped):
                return False
            if before >= 0:
                when = max(when, channel.popped[before])
        for channel in channels:
            channel.pushed.append(when)
            channel.clocks.append(tuple(self._clock[unit]))
        self._ended[unit].append(when)
        self._free[unit], self._blocked[unit], self._pushing[unit] = when, end, None
        return True

    def _tokens(self) -> Iterator[tuple[int, Tokens]]:
        for unit, instruction in zip(self._unit, self._instructions, strict=True):
            yield unit, instruction.tokens

    def _pushers(self, *asked: tuple[bool, int, int]) -> tuple[_Channel, ...]:
        return tuple(self._channels[source, sink] for wanted, source, sink in asked if wanted)

    def _deadlock(self) -> StreamError:
        """Who waits for whom, where nothing can go on."""
        reasons = [self._standing(unit) for unit in range(3)]
        fetched = len(self._arrival)
        if fetched < len(self._instructions):
            unit = self._unit[fetched]
            room = f"the queue of {UNITS[unit].value}, of {self._depth[unit]}"
            reasons.append(f"instruction {fetched} waits for room in {room}")
        stuck = min(
            self._queue[unit][len(self._started[unit]) - (self._pushing[unit] is not None)]
            for unit in range(3)
            if self._pushing[unit] is not None or len(self._started[unit]) < len(self._queue[unit])
        )
        return StreamError(
            "simulate",
            "the stream comes to a standstill",
            at=f"instruction {stuck}: {summary(self._instructions[stuck])}",
            because="; ".join(reasons),
        )

    def _standing(self, unit: int) -> str:
        """What a unit waits for, where nothing can go on."""
        name, done = UNITS[unit].value, len(self._started[unit])
        if self._pushing[unit] is not None:
            position = self._queue[unit][done - 1]
            full = (
                UNITS[one.sink].value
                for one in self._pushes[position]
                if len(one.pushed) - self._spec.token_depth >= len(one.popped)
            )
            return f"{name}, at {position}, waits for room for a token to {', '.join(full)}"
        if done == len(self._queue[unit]):
            return f"{name} has run all of its instructions"
        position = self._queue[unit][done]
        if position >= len(self._arrival):
            return f"{name} waits for instruction {position}"
        whom = (
            UNITS[one.source].value
            for one in self._pops[position]
            if len(one.popped) >= len(one.pushed)
        )
        return f"{name}, at {position}, waits for a token of {', '.join(whom)}"


# How long an instruction takes, and for how much of it the bus is taken.
#
#     own  = instruction_cycles(unit) + zeros · fill_cycles        of a load
#          = instruction_cycles(unit) + steps · cycles of a step    of a product, of a vector operation
#     bus  = rows · (row_cycles + ⌈bytes of a row / beat⌉ · beat / bus_bytes)
#
# An instruction takes ``own + bus`` cycles, and the bus during the last `bus` of them.


def cycles(instruction: Instruction, spec: AcceleratorSpec) -> tuple[float, float]:
    """Cycles of an instruction without the bus, and with it."""
    match instruction:
        case Load(place=place, y=y, x=x):
            zeros = instruction.words - y * x
            own = spec.instruction_cycles[spec.loads[place]] + zeros * spec.words[place].fill_cycles
            return own, moving_cycles(place, y, x, spec)
        case Store(y=y, x=x):
            return spec.instruction_cycles[Unit.STORE], moving_cycles(
                MemorySpace.OUTPUTS, y, x, spec
            )
        case Gemm():
            own = step_count(instruction) * spec.gemm_cycles
        case Alu(immediate=immediate):
            each = spec.operand_cycles if immediate is None else spec.immediate_cycles
            own = step_count(instruction) * each
        case Finish():
            own = 0.0
        case _:
            assert_never(instruction)
    return spec.instruction_cycles[Unit.COMPUTE] + own, 0.0


def step_count(instruction: Gemm | Alu) -> int:
    """Micro-ops that an instruction takes, loops included."""
    ops = max(instruction.end - instruction.begin, 0)
    return instruction.outer.extent * instruction.inner.extent * ops


def moved_bytes(place: MemorySpace, y: int, x: int, spec: AcceleratorSpec) -> int:
    """Bytes that `y` rows of `x` words take on the bus, which moves whole beats."""
    return y * -(-x * spec.words[place].bytes // spec.beat) * spec.beat


def moving_cycles(place: MemorySpace, y: int, x: int, spec: AcceleratorSpec) -> float:
    """Cycles for which rows of words take the bus."""
    if not y or not x:
        return 0.0
    return y * spec.row_cycles + moved_bytes(place, y, x, spec) / spec.bus_bytes
