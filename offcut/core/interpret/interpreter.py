"""What a loop program means: its reference interpretation in numpy.

Statements run in the order of the text. The instances of a tile are independent, so they run
together, one lane each: a coordinate is an array over the lanes, a condition is a mask, and a
statement of the body runs for all lanes before the next one does. Outside a tile there is one lane.
A loop whose iterations touch nothing of each other (`independent.py`) runs as lanes as well, which
changes no result; a program that breaks is run again, one iteration after the other, so that the
refusal names the first one.

A lane that is masked off writes nothing, and what is read before it is written is NaN (for integers a pattern of
bytes), so that a wrong cut shows as an error or as a wrong result, never as luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

from offcut.core.analysis import analysis, is_independent
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import Expr, all_loads, variables
from offcut.core.interpret.run_arguments import (
    GIVEN,
    at_sizes,
    checked_arrays,
    checked_sizes,
    declaration,
)
from offcut.core.interpret.values import Array, Lanes, Values, Window, distinct, evaluate, lane_of
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    For,
    If,
    Kind,
    Let,
    Option,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    walk,
)
from offcut.core.text.printer import format_expr
from offcut.errors import CallError, InternalError

Chooser: TypeAlias = str | Callable[[Choose], str]

_RESULTS = (Kind.OUTPUT, Kind.INOUT)
_POISON_BYTE = 0xA5
_MAX_LANES = 1 << 22  # a larger tile runs in slices of its first axis
_MAX_ITERATIONS = 1 << 16  # of loops that run together
_MAX_WINDOWS = 1 << 24  # elements of one buffer, over the iterations that run together

_LANES_OF_ONE = 1 << 12  # take about as long as one statement does by itself
_ENOUGH = 4 * _LANES_OF_ONE
"""Iterations inside of one: those around run in turn, which takes a quarter longer at most."""

_FEW_LANES = 64
"""Lanes for which the iterations of a sum run together: with more, one after the other is as fast."""

_REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class StepLimitError(Exception):
    """A run that takes more statements than it may."""


def run(
    program: Program,
    inputs: Mapping[str, npt.ArrayLike],
    sizes: Mapping[str, int] | None = None,
    *,
    choose: Chooser | None = None,
    most: float = math.inf,
) -> dict[str, Array]:
    """The outputs of `program`, by name.

    inputs   one array for every input, constant and inout buffer, of exactly its element type and
             shape; the layout of a constant is ignored, and none is changed
    sizes    the sizes that no shape determines; others may be given too, and must agree
    choose   the label of the option to run wherever a `choose` offers it, or a function from a
             `Choose` to a label; the cheapest option runs where this decides nothing
    most     how many statements may run; of lanes that run together, some thousand count as one

    Values are computed in their element type, `sum` in the order of the loops.

    Raises CallError for arguments that do not fit the program, Fault where the program itself leaves
    a buffer or breaks a promise, StepLimitError where more than `most` statements run.
    """
    arrays = checked_arrays(program, inputs)
    known = checked_sizes(program, arrays, dict(sizes or {}))
    _check_choice(program, choose)
    with np.errstate(all="ignore"):
        try:
            machine = Machine(program, _own(program, arrays), known, choose, most, together=True)
            machine.block(program.body, lane_of(known))
        except InternalError:
            machine = Machine(program, _own(program, arrays), known, choose, most)
            machine.block(program.body, lane_of(known))
    return {b.name: machine.memory[b.name] for b in program.buffers if b.kind in _RESULTS}


def _own(program: Program, arrays: dict[str, Array]) -> dict[str, Array]:
    """`arrays` with a copy of each that the program updates."""
    updated = {buffer.name for buffer in program.buffers if buffer.kind is Kind.INOUT}
    return {name: a.copy() if name in updated else a for name, a in arrays.items()}


def _check_choice(program: Program, choose: Chooser | None) -> None:
    if isinstance(choose, str):
        chooses = analysis(program).of(Choose)
        labels = dict.fromkeys(option.label for stmt in chooses for option in stmt.options)
        if choose not in labels:
            raise _no_such_option(choose, tuple(labels))


def _no_such_option(label: str, labels: tuple[str, ...]) -> CallError:
    return CallError(
        "run",
        f"cannot choose {label!r}",
        because="no option has that label",
        help=(f"options: {', '.join(labels) or 'none'}",),
    )


class Machine(Values):
    """The memory of one run, and what statements do to it; who runs some of them on memory of its own derives from it.

    left      how many statements may still run
    together  run the iterations of independent loops as lanes
    """

    def __init__(
        self,
        program: Program,
        arrays: dict[str, Array],
        sizes: Mapping[str, int],
        choose: Chooser | None = None,
        left: float = math.inf,
        together: bool = False,
    ) -> None:
        super().__init__(program, dict(arrays))
        self.choose, self.left = choose, left
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.kinds = {buffer.name: buffer.kind for buffer in program.buffers}
        self.together: dict[int, bool] | None = {} if together else None
        self.accumulations: dict[int, tuple[For, ...]] = {}
        for name, buffer in self.buffers.items():
            if name not in arrays:
                self.memory[name] = self.fresh(buffer, sizes)

    def fresh(self, buffer: Buffer, sizes: Mapping[str, int]) -> Array:
        """Return poisoned memory for a buffer."""
        shape = []
        for extent in buffer.shape:
            shape.append(int(evaluate(extent, sizes)))
            if shape[-1] < 0:
                raise CallError(
                    "run",
                    f"cannot run at {at_sizes(extent, sizes)}",
                    at=declaration(buffer),
                    because=f"the extent {format_expr(extent)} would be {shape[-1]}",
                )
        return poison_array(tuple(shape), buffer.dtype)

    def block(self, body: tuple[Stmt, ...], lanes: Lanes) -> None:
        """Run statements, one after the other, for all lanes."""
        for stmt in body:
            if not lanes.mask.any():
                return
            self.left -= 1 + math.prod(lanes.shape) // _LANES_OF_ONE
            if self.left < 0:
                raise StepLimitError
            self.running = stmt
            self.statement(stmt, lanes)

    def statement(self, stmt: Stmt, lanes: Lanes) -> None:
        """Run a statement."""
        match stmt:
            case For():
                self.loop(stmt, lanes)
            case If(condition, then, other):
                holds = self.value(condition, lanes)
                self.block(then, lanes.where(holds))
                self.block(other, lanes.where(~holds))
            case Let(name, lo, hi, value, body):
                bound = self.value(value, lanes)
                lane = lanes.first((bound < lo) | (bound >= hi))
                if lane is not None:
                    broke = np.broadcast_to(bound, lanes.shape)[lane]
                    raise self.lane_fault(f"{name} = {broke} is not in {lo}:{hi}", lanes, lane)
                self.block(body, lanes.let(name, bound))
            case Tile():
                self.tile(stmt, lanes)
            case Alloc():
                self.window(stmt, lanes)
            case Store():
                self.store(stmt, lanes)
            case Sync():
                pass
            case Choose(options):
                self.option(stmt, options, lanes)
            case _:
                assert_never(stmt)

    def loop(self, stmt: For, lanes: Lanes) -> None:
        """Run a loop, its iterations as lanes where they touch nothing of each other."""
        lo, hi = self.value(stmt.lo, lanes), self.value(stmt.hi, lanes)
        alike = lo.ndim == 0 and hi.ndim == 0
        first, last = (int(lo), int(hi)) if alike else _range_of(lo, hi, lanes)
        if alike and last - first > 1:
            inside = self.iterations_inside(stmt, lanes)
            if inside < _ENOUGH and self.independent(stmt):
                self.iterations(stmt, first, last, lanes, inside)
                return
            nest = self.accumulation(stmt) if math.prod(lanes.shape) <= _FEW_LANES else ()
            if nest and self.accumulate(nest, lanes):
                return
        for step in range(first, last):
            at = np.asarray(step, np.int64)
            here = lanes if alike else lanes.where((lo <= at) & (at < hi))
            self.block(stmt.body, here.let(stmt.iter, at))

    def iterations_inside(self, stmt: For, lanes: Lanes) -> int:
        """How many iterations the loops have together that are all there is in `stmt`, as far as is known around it."""
        match stmt.body:
            case (For(_, lo, hi) as inner,) if variables(lo) | variables(hi) <= set(lanes.values):
                first, last = self.value(lo, lanes), self.value(hi, lanes)
                alike = first.ndim == 0 and last.ndim == 0
                count = max(0, int(last) - int(first)) if alike else 1
                return count * self.iterations_inside(inner, lanes)
            case _:
                return 1

    def independent(self, stmt: For) -> bool:
        """Whether the iterations of `stmt` run as lanes."""
        if self.together is None:
            return False
        if id(stmt) not in self.together:
            self.together[id(stmt)] = is_independent(stmt, self.kinds)
        return self.together[id(stmt)]

    def iterations(self, stmt: For, first: int, last: int, lanes: Lanes, inside: int) -> None:
        """The iterations of an independent loop, one lane each, as many together as memory allows: with all those inside of one."""
        volume = max((self.volume(inner, lanes) for inner in walk(stmt.body)), default=1)
        most = min(_MAX_ITERATIONS, _MAX_WINDOWS // volume)
        step = max(1, most // (math.prod(lanes.shape) * max(1, inside)))
        axis = (-1, *(1,) * len(lanes.shape))
        for begin in range(first, last, step):
            values = np.arange(begin, min(begin + step, last), dtype=np.int64)
            if len(values) == 1:
                self.block(stmt.body, lanes.let(stmt.iter, values[0]))
                continue
            together = lanes.let(stmt.iter, values.reshape(axis))
            self.block(stmt.body, replace(together, shape=(len(values), *lanes.shape)))

    def accumulation(self, stmt: For) -> tuple[For, ...]:
        """Return the loops of a rectangular nest around nothing but one update of what it does not read; else none."""
        if self.together is None:
            return ()
        if id(stmt) not in self.accumulations:
            self.accumulations[id(stmt)] = _accumulation(stmt)
        return self.accumulations[id(stmt)]

    def accumulate(self, nest: tuple[For, ...], lanes: Lanes) -> bool:
        """Run a nest of `accumulation`, its iterations as lanes in their order; return False where its bounds differ by lane."""
        ends = [(self.value(one.lo, lanes), self.value(one.hi, lanes)) for one in nest]
        if any(end.ndim for pair in ends for end in pair):
            return False
        ranges = [np.arange(int(lo), int(hi), dtype=np.int64) for lo, hi in ends]
        rest = math.prod(map(len, ranges[1:])) * math.prod(lanes.shape)
        step = max(1, _MAX_ITERATIONS // max(1, rest))
        for begin in range(0, len(ranges[0]) if rest else 0, step):
            first = ranges[0][begin : begin + step]
            counts = [first, *ranges[1:]]
            shape = (*map(len, counts), *lanes.shape)
            values = dict(lanes.values)
            for axis, (one, count) in enumerate(zip(nest, counts, strict=True)):
                values[one.iter] = count.reshape(-1, *(1,) * (len(shape) - axis - 1))
            self.block(nest[-1].body, replace(lanes, values=values, shape=shape))
        return True

    def volume(self, stmt: Stmt, lanes: Lanes) -> int:
        """About how many elements one iteration holds at once in `stmt`, a window or a tile."""
        extents: list[Expr] = []
        if isinstance(stmt, Alloc):
            extents = [extent for _, extent in stmt.axes]
        elif isinstance(stmt, Tile):
            extents = [axis.extent for axis in stmt.axes]
        volume_ = 1
        for extent in extents:
            known = variables(extent) <= set(lanes.values)
            volume_ *= max(1, int(np.max(self.value(extent, lanes)))) if known else 64
        return volume_

    def window(self, stmt: Alloc, lanes: Lanes) -> None:
        """Run the body of `stmt` with poisoned memory for its buffer, of its own for each lane."""
        buffer = self.buffers.get(stmt.buffer)
        alone = lanes.own is None and buffer is not None and buffer.kind is Kind.LOCAL
        if buffer is None or not alone or len(stmt.axes) != len(buffer.shape):
            raise self.lane_fault(
                f"no window of {stmt.buffer} can be here", lanes, (0,) * len(lanes.shape)
            )
        zero = np.asarray(0, np.int64)
        starts = tuple(self.value(start, lanes) for start, _ in stmt.axes)
        extents = tuple(self.value(extent, lanes) for _, extent in stmt.axes)
        shape = tuple(max(0, _range_of(zero, extent, lanes)[1]) for extent in extents)
        outer_memory, around = self.memory[buffer.name], self.windows.get(buffer.name)
        self.memory[buffer.name] = poison_array((*shape, *lanes.shape), buffer.dtype)
        self.windows[buffer.name] = Window(starts, extents, len(lanes.shape))
        self.block(stmt.body, lanes)
        self.memory[buffer.name] = outer_memory
        del self.windows[buffer.name]
        if around is not None:
            self.windows[buffer.name] = around

    def tile(self, stmt: Tile, lanes: Lanes) -> None:
        """Run the instances of a tile, as lanes."""
        starts = [self.value(axis.start, lanes) for axis in stmt.axes]
        extents = [self.value(axis.extent, lanes) for axis in stmt.axes]
        zero = np.asarray(0, np.int64)
        counts = [_range_of(zero, extent, lanes)[1] for extent in extents]
        if any(count <= 0 for count in counts):
            return
        rest = math.prod(counts[1:]) * math.prod(lanes.shape)
        step = max(1, _MAX_LANES // max(1, rest))
        for begin in range(0, counts[0] if counts else 1, step):
            offsets = [np.arange(count, dtype=np.int64) for count in counts]
            if offsets:
                offsets[0] = offsets[0][begin : begin + step]
            self.rectangle(stmt, starts, extents, offsets, lanes)

    def rectangle(
        self,
        stmt: Tile,
        starts: list[Array],
        extents: list[Array],
        offsets: list[Array],
        lanes: Lanes,
    ) -> None:
        """The instances of `stmt` at the given offsets from its starts."""
        self.running = stmt
        shape = (*(len(offset) for offset in offsets), *lanes.shape)
        values, mask = dict(lanes.values), lanes.mask
        for place, axis in enumerate(stmt.axes):
            after = len(shape) - place - 1
            offset = offsets[place].reshape(-1, *(1,) * after)
            values[axis.iter] = starts[place] + offset
            if extents[place].ndim:
                mask = mask & (offset < extents[place])
        inner = replace(lanes, values=values, mask=mask, shape=shape)
        if lanes.own is None:
            own = self.own_buffers(stmt, shape)
            inner = replace(inner, owners=len(shape), own=own)
        if stmt.where is not None:
            inner = inner.where(self.value(stmt.where, inner))
        self.block(stmt.body, inner)

    def own_buffers(self, stmt: Tile, shape: tuple[int, ...]) -> dict[str, Array]:
        """A poisoned copy for each instance of the private buffers that `stmt` starts anew.

        Such a one is assigned at an index that leaves out an axis of the tile. Where the index
        names them all, or the tile only adds to the buffer, the elements of one array do.
        """
        axes = {axis.iter for axis in stmt.axes}
        copies: dict[str, Array] = {}
        for inner in walk(stmt.body):
            if isinstance(inner, Store) and inner.reduce is None:
                buffer = self.buffers.get(inner.buffer)
                named = set().union(*map(variables, inner.index))
                if buffer is not None and buffer.kind is Kind.PRIVATE and not axes <= named:
                    whole = (*shape, *self.memory[buffer.name].shape)
                    copies[buffer.name] = poison_array(whole, buffer.dtype)
        return copies

    def store(self, stmt: Store, lanes: Lanes) -> None:
        """Store a value, or update an element by it."""
        buffer = self.buffers.get(stmt.buffer)
        value = self.value(stmt.value, lanes)
        if buffer is None or buffer.kind in GIVEN or value.dtype != numpy_dtype(buffer.dtype):
            what = f"cannot store {value.dtype} into {stmt.buffer}"
            raise self.lane_fault(what, lanes, (0,) * len(lanes.shape))
        memory, parts = self.element(stmt.buffer, stmt.index, lanes)
        view = self.view(stmt.buffer, memory, parts, lanes) if 0 not in memory.shape else None
        if view is not None and distinct(view, lanes.shape):
            if np.may_share_memory(value, memory):
                value = value.copy()
            where = True if lanes.mask.all() else lanes.mask
            if stmt.reduce is None:
                np.copyto(view, value, where=where)
            else:
                _REDUCE[stmt.reduce](view, value, out=view, where=where)
            return
        index = self.spread(stmt.buffer, parts, lanes)
        mask = np.broadcast_to(lanes.mask, lanes.shape)
        running = slice(None) if mask.all() else mask.ravel()
        where = np.zeros((), np.int64)
        for part, extent in zip(index, memory.shape, strict=True):
            where = where * extent + part
        places = np.broadcast_to(where, lanes.shape).ravel()[running]
        values = np.broadcast_to(value, lanes.shape).ravel()[running]
        flat = memory.reshape(-1)
        if stmt.reduce is not None:
            _REDUCE[stmt.reduce].at(flat, places, values)
            return
        flat[places] = values
        lost = ~((flat[places] == values) | (values != values))
        if lost.any():
            lane = np.argwhere(mask)[int(np.argmax(lost))]
            what = f"two instances of one tile store different values in {stmt.buffer}"
            raise self.lane_fault(what, lanes, tuple(map(int, lane)))

    def option(self, stmt: Choose, options: tuple[Option, ...], lanes: Lanes) -> None:
        """Run the option that is chosen, or the cheapest."""
        label = self.choose(stmt) if callable(self.choose) else self.choose
        forced = [option for option in options if option.label == label]
        if callable(self.choose) and not forced:
            raise _no_such_option(str(label), tuple(option.label for option in options))
        if forced or not options:
            self.block(forced[0].body if forced else (), lanes)
            return
        costs = [np.broadcast_to(self.value(o.cost, lanes), lanes.shape) for o in options]
        cheapest = np.argmin(np.where(np.isnan(costs), np.inf, costs), axis=0)
        for place, option in enumerate(options):
            self.block(option.body, lanes.where(cheapest == place))


def _accumulation(stmt: For) -> tuple[For, ...]:
    nest, body = [stmt], stmt.body
    while len(body) == 1 and isinstance(body[0], For):
        nest.append(body[0])
        body = body[0].body
    iterators = {one.iter for one in nest}
    if len(body) != 1 or not isinstance(body[0], Store) or body[0].reduce is None:
        return ()
    if any(iterators & (variables(one.lo) | variables(one.hi)) for one in nest):
        return ()
    update = body[0]
    read = {load.buffer for part in (update.value, *update.index) for load in all_loads(part)}
    return () if update.buffer in read else tuple(nest)


def poison_array(shape: tuple[int, ...], dtype: str) -> Array:
    """An array of what is read where nothing was written: NaN, or for integers a pattern of bytes."""
    if dtype in FLOATS:
        return np.full(shape, np.nan, numpy_dtype(dtype))
    bytes = np.full((*shape, numpy_dtype(dtype).itemsize), _POISON_BYTE, np.uint8)
    return bytes.view(numpy_dtype(dtype)).reshape(shape)


def _range_of(lo: Array, hi: Array, lanes: Lanes) -> tuple[int, int]:
    """The least `lo` and the greatest `hi` over the running lanes, of which there is one."""
    mask = np.broadcast_to(lanes.mask, lanes.shape)
    low = np.broadcast_to(lo, lanes.shape)[mask]
    high = np.broadcast_to(hi, lanes.shape)[mask]
    return int(low.min()), int(high.max())
