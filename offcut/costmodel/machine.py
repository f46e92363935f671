"""The schema of processors: what a planner of loops needs to know of one, beside what every machine has.

A number's unit is in its name, or in what is said of it here; `source` says where a table's are from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass, replace
from math import gcd

from offcut.core.function_table import FUNCTIONS
from offcut.costmodel.device import Device, Memory
from offcut.errors import TargetError


@dataclass(frozen=True, slots=True)
class Core:
    """What computes.

    count           how many cores there are
    hertz           cycles per second, sustained while multiplying
    issue           operations of any kind, that start in a cycle
    multiply_adds   of a vector each, that start in a cycle
    loads           of a vector each, that start in a cycle
    stores          of a vector each, that start in a cycle
    latency_cycles  from a multiply–add to one that needs its result
    code_bytes      capacity of the instruction cache
    """

    count: int
    hertz: float
    issue: float
    multiply_adds: float
    loads: float
    stores: float
    latency_cycles: float
    code_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class RegisterTiles:
    """Row-block microkernels: rows by vectors of accumulators in registers.

    vectors_32          by rows, from 1 on: the widest tile in vectors, where there are 32 registers
    vectors_16          where there are fewer
    row_panels          of those, what a tile of one row reads from panels, at most: each is a stream of its own
    startup_cycles      of a tile: the call, the first loads
    accumulator_cycles  of each vector of accumulators: to begin and to store it
    widen_cycles        to widen a vector of bfloat16, for each term
    sum_cycles          to sum a row of signed bytes beforehand
    unroll              terms in the loop of a small tile; half as many in a large one
    prefetch_bytes      how far ahead a panel is asked for
    """

    vectors_32: tuple[int, ...]
    vectors_16: tuple[int, ...]
    row_panels: int
    startup_cycles: float
    accumulator_cycles: float
    widen_cycles: float
    sum_cycles: float
    unroll: int
    prefetch_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class TileUnit:
    """A unit that multiplies tiles of 16 rows by 64 bytes, where the features have one.

    multiply_cycles  of a multiplication at 16 rows, and of a tile that is streamed
    least_cycles     that a multiplication takes at any height
    row_cycles       to load a row of a tile from the nearest cache
    startup_cycles   of a block of tiles
    """

    multiply_cycles: float
    least_cycles: float
    row_cycles: float
    startup_cycles: float
    source: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """What it costs how operands lie.

    pack_bytes_per_cycle  what a core reads while packing an operand
    unpacked_near         time on an operand whose rows lie apart over time on panels, near
    unpacked_far          and where it comes from behind the nearest cache
    strided               time on rows whose terms lie apart over rows whose terms lie side by side
    narrow_bytes          of a row, below which the rows next to it are read as fast as a panel's
    overlap_loss          of the shorter of computing and streaming, the share that is not hidden
    convert_share         of a product's time that converting an operand in each term may take
    gather_margin         by which part a copy must be cheaper than a gather in the order that there is, to be made
    prefetch_share        of the time of loops over vectors that a microkernel saves, as it asks for its operands ahead
    accumulate_terms      that reading and writing accumulators costs, where loops add to them
    copy_cycles           to copy an element of a result into the order of its axes
    """

    pack_bytes_per_cycle: float
    unpacked_near: float
    unpacked_far: float
    strided: float
    narrow_bytes: int
    overlap_loss: float
    convert_share: float
    gather_margin: float
    prefetch_share: float
    accumulate_terms: float
    copy_cycles: float
    source: str


_OF_FUNCTIONS = dict.fromkeys(row.machine for row in FUNCTIONS.values() if row.machine != "other")
_Functions = make_dataclass(
    "_Functions",
    [(entry, float | None, None) for entry in _OF_FUNCTIONS],
    frozen=True,
    slots=True,
    kw_only=True,
)


@dataclass(frozen=True, slots=True)
class Operations(_Functions):  # type: ignore[misc, valid-type]
    """Cycles of operations by what they are; None: one lane after the other.

    Functions of elements have entries too: `offcut.core.functions` says which, and what one takes that has no cycles here.

    other   of every operation that has no entry
    from_bfloat16, from_float16  to widen a value to the float32 that is computed with
    to_bfloat16, to_float16      to round a float32 to it
    """

    other: float
    divide: float
    floor_divide: float | None
    remainder: float | None
    from_bfloat16: float
    to_bfloat16: float
    from_float16: float
    to_float16: float
    source: str

    def widening(self, dtype: str) -> float:
        """The cycles in which a value of an element type becomes what is computed with."""
        return {"bfloat16": self.from_bfloat16, "float16": self.from_float16}.get(dtype, 0.0)

    def rounding(self, dtype: str) -> float:
        """The cycles in which what was computed becomes a value of an element type."""
        return {"bfloat16": self.to_bfloat16, "float16": self.to_float16}.get(dtype, 0.0)

    def of(self, op: str) -> float | None:
        """The cycles of an operator or function of expressions; None where the table does not say them."""
        cycles: float | None = getattr(self, _OPERATIONS.get(op, "other"))
        return cycles


_OPERATIONS = {
    "/": "divide",
    "//": "floor_divide",
    "%": "remainder",
    **{name: row.machine for name, row in FUNCTIONS.items()},
}


@dataclass(frozen=True, slots=True)
class Loops:
    """Statements without a microkernel.

    reduce_cycles    to reduce the lanes of a vector, and to start
    extreme_cycles   from a maximum or minimum of floats to the next of the same, one by one: NaN and zeros of both signs count
    wait_cycles      for what a nest has just computed, before the next one in a loop that they share
    enter_cycles     to start a loop of vectors
    tile_cycles      of a tile of vectors, beside what its instances take, where its length is known when it is compiled
    begin_cycles     likewise where it is not
    iterate_cycles, lane_iterate_cycles  of an iteration, of one instance and of a vector of them
    bind_cycles      to ask a condition, to bind a value, or to open a window
    branch_share     of both sides of a condition, what one instance runs
    mask_cycles      to mask an iteration
    access_cycles    to read or write one element, or to read one for all lanes
    vector_cycles    to read or write elements that lie side by side
    gather_cycles, scatter_cycles  of each lane, to read and to write elements that lie apart
    lookup_cycles    of each lane, to read elements that no square of vectors holds: at places that memory says, or in a loop inside of the lanes
    select_cycles    to select, to compare, or to convert between types that are computed with
    index_cycles     of an operation of an index that is the same for all lanes
    chains           vectors of sums that are computed side by side
    ahead_bytes      how far ahead rows are asked for
    """

    reduce_cycles: float
    extreme_cycles: float
    wait_cycles: float
    enter_cycles: float
    tile_cycles: float
    begin_cycles: float
    iterate_cycles: float
    lane_iterate_cycles: float
    bind_cycles: float
    branch_share: float
    mask_cycles: float
    access_cycles: float
    vector_cycles: float
    gather_cycles: float
    lookup_cycles: float
    scatter_cycles: float
    select_cycles: float
    index_cycles: float
    chains: int
    ahead_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a kernel, beside what its loops take.

    call_seconds  from Python, with arrays of numpy: arguments are read and checked, a result is allocated, the code is entered
    way_seconds   of each way that competes in the call: its cost is evaluated and compared
    """

    call_seconds: float
    way_seconds: float
    source: str

    def of(self, ways: Sequence[int]) -> float:
        """Seconds of a call in which so many ways compete at each choice."""
        return self.call_seconds + self.way_seconds * sum(count for count in ways if count > 1)


@dataclass(frozen=True, slots=True)
class Threads:
    """Several threads on one call.

    grain_seconds  of work that a further thread is worth
    short_seconds  a call that is shorter does not wait for threads that sleep
    chunk          instances of a tile that stands alone, in each of the tiles it becomes
    panels         that a thread has at least, where threads share columns and not rows
    spin_cycles    of the time stamp counter, that a waiting thread looks again before it sleeps
    recent_cycles  likewise, between jobs, in which workers stay awake
    """

    grain_seconds: float
    short_seconds: float
    chunk: int
    panels: int
    spin_cycles: int
    recent_cycles: int
    source: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What the default policy takes where neither the user nor a cost says it.

    group_panels   the sizes of a cache group that there are, largest first
    group_share    of the nearest cache that a group takes, and of the last that weights of several loops do; the rest is for what
                   passes through
    group_terms    of a sum of which nothing says how long it is, where a group is to fit
    wide_panels    that a group of a family without fixed widths is a multiple of
    loop_vectors   in a tile of plain loops
    axis_tile      iterations of a tile of any other axis
    reduce_tile    of a tile of a reduction axis
    residue_tile   of a tile with code of its own for each height that can be left
    copies         of a statement, at most, to move conditions out of loops
    trips          of a loop of which nothing says how often it runs
    terms          of a sum of which nothing says how long it is
    block          iterations of a shared loop that each of its nests runs in turn, where one of them sums over memory
    block_share    of the nearest cache that what lives in them takes, at most
    gain           of a call's seconds that a way is to save somewhere, or it is left out
    part_cycles    that a kernel of a model takes for a further part of a batch, beside what it computes and moves
    """

    group_panels: tuple[int, ...]
    group_share: float
    group_terms: int
    wide_panels: int
    loop_vectors: int
    axis_tile: int
    reduce_tile: int
    residue_tile: int
    copies: int
    trips: int
    terms: int
    block: int
    block_share: float
    gain: float
    part_cycles: float
    source: str


@dataclass(frozen=True, slots=True)
class Compiling:
    """What code costs.

    statement_bytes    of object code that a statement takes, with the loop around it
    lanes_bytes        of one that runs as lanes, with its tails
    accumulator_bytes  of each vector of accumulators of a microkernel's tile, its loop unrolled
    statement_seconds  that it takes to compile
    budget_seconds     that separating the conditions of a program may take
    """

    statement_bytes: int
    lanes_bytes: int
    accumulator_bytes: int
    statement_seconds: float
    budget_seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a microkernel did on this machine, operands in the nearest cache.

    name           of the microkernel
    rows, columns  of the tile
    multiply_adds  of elements, per cycle
    """

    name: str
    rows: int
    columns: int
    multiply_adds: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Device):
    """A processor: one core of it, its memories, and the numbers that were tuned on it.

    features      as Linux names them in /proc/cpuinfo
    memory        from the core outwards, three levels at least; packed operands are blocked for the
                  second, and stream from the third
    microkernel   those that were measured
    """

    features: tuple[str, ...]
    core: Core
    tiles: RegisterTiles
    tile_unit: TileUnit
    traffic: Traffic
    loops: Loops
    scalar: Operations
    vector: Operations
    call: Call
    threads: Threads
    policy: Policy
    compiling: Compiling
    microkernel: tuple[Throughput, ...] = ()

    @property
    def hertz(self) -> float:
        """Cycles per second, sustained while multiplying."""
        return self.core.hertz

    @property
    def cores(self) -> int:
        """How many cores there are."""
        return self.core.count

    @property
    def nearest(self) -> Memory:
        """Return the memory that packed operands are blocked for; of a machine with one, that."""
        return self.memory[min(1, len(self.memory) - 1)]

    def rows_in_l1(self, row_bytes: int) -> int:
        """Rows of this length whose current lines an L1 set can hold, one way left for the rest.

        Lines at one offset of rows ``row_bytes`` apart fall into ``way / gcd(row_bytes, way)`` sets
        (way = capacity over associativity): rows of 4096 bytes all into one.
        """
        first = self.memory[0]
        ways = first.ways or 1
        way = first.bytes // ways
        return (ways - 1) * (way // gcd(row_bytes, way))

    def with_memory(
        self, level: int, bytes: int | None, ways: int | None, line: int | None = None
    ) -> Machine:
        """The machine with what was found of a level, counted from 0; None: as described."""
        memory = list(self.memory)
        if level < len(memory):
            old = memory[level]
            memory[level] = replace(
                old, bytes=bytes or old.bytes, ways=ways or old.ways, line=line or old.line
            )
        return replace(self, memory=tuple(memory))


def processor(device: Device) -> Machine:
    """A machine as the processor that it is.

    Raises TargetError for an accelerator.
    """
    if isinstance(device, Machine):
        return device
    raise TargetError(
        "target",
        f"cannot plan for machine={device.name!r}",
        because=f"{device.title} is not a processor: its description has no [core]",
        help=('oc.target("cpu", machine="cascade-lake")',),
    )
