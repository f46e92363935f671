"""What a loop program means: its reference interpretation in numpy.

Statements run in the order of the text. The instances of a tile are independent, so they run
together, one lane each: a coordinate is an array over the lanes, a condition is a mask, and a
statement of the body runs for all lanes before the next one does. Outside a tile there is one lane.
A loop whose iterations touch nothing of each other (`independent.py`) runs as lanes as well, which
changes no result; a program that breaks is run again, one iteration after the other, so that the
refusal names the first one.

A lane that is masked off reads nothing and writes nothing. Every other access is checked against
the extents of its buffer, and what is read before it is written is NaN (for integers a pattern of
bytes), so that a wrong cut shows as an error or as a wrong result, never as luck.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Reduce,
    Select,
    Unary,
    Var,
    substitute,
    variables,
)
from offcut.core.independent import independent
from offcut.core.printer import format_expr, format_stmt
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
    Size,
    Stmt,
    Store,
    Tile,
    walk,
)
from offcut.core.strided import distinct, strided
from offcut.errors import CallError, InternalError

Array: TypeAlias = npt.NDArray[Any]
Chooser: TypeAlias = str | Callable[[Choose], str]

_GIVEN = (Kind.INPUT, Kind.CONSTANT)
_RESULTS = (Kind.OUTPUT, Kind.INOUT)
_POISON_BYTE = 0xA5
_MAX_LANES = 1 << 22  # a larger tile runs in slices of its first axis
_MAX_ITERATIONS = 1 << 14  # of loops that run together
_MAX_WINDOWS = 1 << 24  # elements of one buffer, over the iterations that run together

_erf = np.vectorize(math.erf, otypes=[np.float64])

_BINARY: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "min": np.minimum,
    "max": np.maximum,
}
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": _erf,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "log": np.log,
}
_COMPARE: dict[str, Callable[..., Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Fault(InternalError):
    """A program that leaves a buffer or breaks a promise: a bug, where offcut wrote the program.

    what, at, because   what it does, the statement, and the coordinates
    """

    def __init__(self, name: str, what: str, at: str, because: str) -> None:
        super().__init__(f"program {name}: {what}\n  at       {at}\n  because  {because}")
        self.what, self.at, self.because = what, at, because

    def __reduce__(self) -> tuple[Any, ...]:
        return InternalError, self.args


class TooLong(Exception):
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
    most     how many statements may run; those of lanes that run together count as one

    Values are computed in their element type, `sum` in the order of the loops.

    Raises CallError for arguments that do not fit the program, Fault where the program itself leaves
    a buffer or breaks a promise, TooLong where more than `most` statements run.
    """
    arrays = _arrays(program, inputs)
    known = _sizes(program, arrays, dict(sizes or {}))
    _check_choice(program, choose)
    with np.errstate(all="ignore"):
        try:
            machine = _Machine(program, _own(program, arrays), known, choose, most, together=True)
            machine.block(program.body, _lane(known))
        except InternalError:
            machine = _Machine(program, _own(program, arrays), known, choose, most)
            machine.block(program.body, _lane(known))
    return {b.name: machine.memory[b.name] for b in program.buffers if b.kind in _RESULTS}


def _own(program: Program, arrays: dict[str, Array]) -> dict[str, Array]:
    """`arrays` with a copy of each that the program updates."""
    updated = {buffer.name for buffer in program.buffers if buffer.kind is Kind.INOUT}
    return {name: a.copy() if name in updated else a for name, a in arrays.items()}


def _arrays(program: Program, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
    given = (*_GIVEN, Kind.INOUT)
    wanted = {buffer.name: buffer for buffer in program.buffers if buffer.kind in given}
    listed = (f"inputs: {', '.join(wanted) or 'none'}",)
    for name in inputs:
        if name not in wanted:
            raise CallError(
                "run",
                f"cannot take an input {name}",
                because=f"program {program.name} reads no such buffer",
                help=listed,
            )
    arrays: dict[str, Array] = {}
    for name, buffer in wanted.items():
        if name not in inputs:
            raise CallError(
                "run", f"cannot run without {name}", at=_declared(buffer), because="it is not given"
            )
        array = arrays[name] = np.asarray(inputs[name])
        if array.dtype != numpy_dtype(buffer.dtype):
            raise CallError(
                "run",
                f"cannot take {name} of {array.dtype}",
                at=_declared(buffer),
                because=f"its elements are {buffer.dtype}",
                help=(f'{name}.astype("{buffer.dtype}")',),
            )
        if array.ndim != len(buffer.shape):
            raise CallError(
                "run",
                f"cannot take {name} of shape {array.shape}",
                at=_declared(buffer),
                because=f"it has {len(buffer.shape)} axes, not {array.ndim}",
            )
    return arrays


def _sizes(program: Program, arrays: dict[str, Array], given: dict[str, int]) -> dict[str, int]:
    """Every size of the program: as given, else solved from the shapes, then checked."""
    declared = {size.name: size for size in program.sizes}
    known: dict[str, int] = {}
    for name, value in given.items():
        if name not in declared:
            raise CallError(
                "run",
                f"cannot take a size {name}",
                because=f"program {program.name} has no such size",
                help=(f"sizes: {', '.join(declared) or 'none'}",),
            )
        try:
            known[name] = operator.index(value)
        except TypeError:
            raise CallError(
                "run", f"cannot take {name} = {value!r}", because="a size is an integer"
            ) from None
    while _solve_one(program, arrays, known):
        pass
    for name, size in declared.items():
        if name not in known:
            raise CallError(
                "run",
                f"cannot run without the size {name}",
                because="no shape of an input determines it",
                help=(f"run(…, {name}={size.min})",),
            )
        _check_size(size, known[name])
    _check_shapes(program, arrays, known)
    for fact in program.assumptions:
        if not evaluate(fact, known):
            raise CallError(
                "run",
                f"cannot run at {_at_sizes(fact, known)}",
                at=f"program {program.name}",
                because=f"it assumes {format_expr(fact)}",
            )
    return known


def _solve_one(program: Program, arrays: dict[str, Array], known: dict[str, int]) -> bool:
    """Solve one extent that is affine in a single unknown size; False where there is none."""
    values: dict[str, Expr] = {name: ix.const(value) for name, value in known.items()}
    for buffer, axis, extent in _extents(program, arrays):
        form = ix.linear(ix.simplify(substitute(extent, values)))
        if len(form.terms) != 1 or not isinstance(form.terms[0][0], Var):
            continue
        unknown, factor = form.terms[0][0].name, form.terms[0][1]
        actual = arrays[buffer.name].shape[axis]
        size, rest = divmod(actual - form.const, factor)
        if rest:
            raise CallError(
                "run",
                f"cannot take {buffer.name} of shape {arrays[buffer.name].shape}",
                at=_declared(buffer),
                because=f"axis {axis} is {actual}, and no {unknown} makes {format_expr(extent)} that",
            )
        known[unknown] = size
        return True
    return False


def _extents(program: Program, arrays: dict[str, Array]) -> Iterator[tuple[Buffer, int, Expr]]:
    for buffer in program.buffers:
        if buffer.name in arrays:
            for axis, extent in enumerate(buffer.shape):
                yield buffer, axis, extent


def _check_size(size: Size, value: int) -> None:
    because = ""
    if not size.min <= value <= size.max:
        because = f"{size.name} is in {size.min}…{size.max}"
    elif value % size.multiple_of:
        because = f"{size.name} is a multiple of {size.multiple_of}"
    if because:
        raise CallError("run", f"cannot run at {size.name} = {value}", because=because)


def _check_shapes(program: Program, arrays: dict[str, Array], known: dict[str, int]) -> None:
    for buffer, axis, extent in _extents(program, arrays):
        actual, wanted = arrays[buffer.name].shape[axis], int(evaluate(extent, known))
        if actual != wanted:
            sizes = _at_sizes(extent, known)
            raise CallError(
                "run",
                f"cannot take {buffer.name} of shape {arrays[buffer.name].shape}",
                at=_declared(buffer),
                because=f"axis {axis} is {wanted}{f' at {sizes}' if sizes else ''}, not {actual}",
            )


def _check_choice(program: Program, choose: Chooser | None) -> None:
    if isinstance(choose, str):
        chooses = [stmt for stmt in walk(program.body) if isinstance(stmt, Choose)]
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


def _declared(buffer: Buffer) -> str:
    shape = ", ".join(map(format_expr, buffer.shape))
    return f"{buffer.kind.value} {buffer.name}: {buffer.dtype}[{shape}]"


def _at_sizes(expr: Expr, known: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {known[name]}" for name in sorted(variables(expr)))


def evaluate(expr: Expr, values: Mapping[str, int]) -> int | float | bool:
    """The value of an expression without loads, at given sizes and coordinates."""
    machine = _Machine(Program("", (), (), (), ()), {}, {}, None)
    with np.errstate(all="ignore"):
        value: int | float | bool = machine.value(expr, _lane(values)).item()
    return value


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Instances that run together.

    values   coordinates and sizes by name, each broadcastable to `shape`
    mask     which lanes run, broadcastable to `shape`
    shape    one axis for each axis of the tiles around, the innermost tile's first
    owners   the trailing axes of `shape` that are the outermost tile's
    own      the private buffers of which each of those owners has a copy
    """

    values: Mapping[str, Array]
    mask: Array
    shape: tuple[int, ...] = ()
    owners: int = 0
    own: Mapping[str, Array] | None = None

    def where(self, condition: Array) -> _Lanes:
        """The lanes of these where `condition` holds too."""
        return replace(self, mask=self.mask & condition)

    def let(self, name: str, value: Array) -> _Lanes:
        """These lanes, with `name` bound."""
        return replace(self, values={**self.values, name: value})

    def first(self, bad: Array) -> tuple[int, ...] | None:
        """The first running lane at which `bad` holds."""
        if not bad.any():
            return None
        found = np.argwhere(np.broadcast_to(self.mask & bad, self.shape))
        return tuple(map(int, found[0])) if len(found) else None

    def describe(self, lane: tuple[int, ...]) -> str:
        """The coordinates of a lane, for a message."""
        values = {n: np.broadcast_to(v, self.shape)[lane] for n, v in self.values.items()}
        return ", ".join(f"{name} = {value}" for name, value in values.items())


@dataclass(frozen=True, slots=True)
class _Window:
    """What a buffer holds for a while: from `starts` on, `extents` elements, by axis.

    lanes  how many trailing axes of the lanes have a window of their own; they are the trailing axes
           of the memory, and of starts and extents
    """

    starts: tuple[Array, ...]
    extents: tuple[Array, ...]
    lanes: int


class _Machine:
    """The memory of one run, and what statements do to it.

    left      how many statements may still run
    together  run the iterations of independent loops as lanes
    """

    def __init__(
        self,
        program: Program,
        arrays: dict[str, Array],
        sizes: dict[str, int],
        choose: Chooser | None,
        left: float = math.inf,
        together: bool = False,
    ) -> None:
        self.program, self.choose, self.left = program, choose, left
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.kinds = {buffer.name: buffer.kind for buffer in program.buffers}
        self.memory = dict(arrays)
        self.windows: dict[str, _Window] = {}
        self.together: dict[int, bool] | None = {} if together else None
        self.running: Stmt | None = None
        for name, buffer in self.buffers.items():
            if name not in arrays:
                self.memory[name] = self.fresh(buffer, sizes)

    def fresh(self, buffer: Buffer, sizes: dict[str, int]) -> Array:
        shape = []
        for extent in buffer.shape:
            shape.append(int(evaluate(extent, sizes)))
            if shape[-1] < 0:
                raise CallError(
                    "run",
                    f"cannot run at {_at_sizes(extent, sizes)}",
                    at=_declared(buffer),
                    because=f"the extent {format_expr(extent)} would be {shape[-1]}",
                )
        return poisoned(tuple(shape), buffer.dtype)

    def broken(self, what: str, lanes: _Lanes, lane: tuple[int, ...]) -> Fault:
        line = "" if self.running is None else format_stmt(self.running).partition("\n")[0]
        because = f"it runs at {lanes.describe(lane) or 'no coordinates'}"
        return Fault(self.program.name, what, line, because)

    def block(self, body: tuple[Stmt, ...], lanes: _Lanes) -> None:
        for stmt in body:
            if not lanes.mask.any():
                return
            self.left -= 1
            if self.left < 0:
                raise TooLong
            self.running = stmt
            self.statement(stmt, lanes)

    def statement(self, stmt: Stmt, lanes: _Lanes) -> None:
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
                    raise self.broken(f"{name} = {broke} is not in {lo}:{hi}", lanes, lane)
                self.block(body, lanes.let(name, bound))
            case Tile():
                self.tile(stmt, lanes)
            case Alloc():
                self.window(stmt, lanes)
            case Store():
                self.store(stmt, lanes)
            case Choose(options):
                self.option(stmt, options, lanes)
            case _:
                assert_never(stmt)

    def loop(self, stmt: For, lanes: _Lanes) -> None:
        lo, hi = self.value(stmt.lo, lanes), self.value(stmt.hi, lanes)
        alike = lo.ndim == 0 and hi.ndim == 0
        first, last = (int(lo), int(hi)) if alike else _range_of(lo, hi, lanes)
        if alike and last - first > 1 and self.independent(stmt):
            self.iterations(stmt, first, last, lanes)
            return
        for step in range(first, last):
            at = np.asarray(step, np.int64)
            here = lanes if alike else lanes.where((lo <= at) & (at < hi))
            self.block(stmt.body, here.let(stmt.iter, at))

    def independent(self, stmt: For) -> bool:
        """Whether the iterations of `stmt` run as lanes."""
        if self.together is None:
            return False
        if id(stmt) not in self.together:
            self.together[id(stmt)] = independent(stmt, self.kinds)
        return self.together[id(stmt)]

    def iterations(self, stmt: For, first: int, last: int, lanes: _Lanes) -> None:
        """The iterations of an independent loop, one lane each, as many together as memory allows."""
        volume = max((self.volume(inner, lanes) for inner in walk(stmt.body)), default=1)
        most = min(_MAX_ITERATIONS, _MAX_WINDOWS // volume)
        step = max(1, most // math.prod(lanes.shape))
        axis = (-1, *(1,) * len(lanes.shape))
        for begin in range(first, last, step):
            values = np.arange(begin, min(begin + step, last), dtype=np.int64)
            if len(values) == 1:
                self.block(stmt.body, lanes.let(stmt.iter, values[0]))
                continue
            together = lanes.let(stmt.iter, values.reshape(axis))
            self.block(stmt.body, replace(together, shape=(len(values), *lanes.shape)))

    def volume(self, stmt: Stmt, lanes: _Lanes) -> int:
        """About how many elements one iteration holds at once in `stmt`, a window or a tile."""
        extents: list[Expr] = []
        if isinstance(stmt, Alloc):
            extents = [extent for _, extent in stmt.axes]
        elif isinstance(stmt, Tile):
            extents = [axis.extent for axis in stmt.axes]
        found = 1
        for extent in extents:
            known = variables(extent) <= set(lanes.values)
            found *= max(1, int(np.max(self.value(extent, lanes)))) if known else 64
        return found

    def window(self, stmt: Alloc, lanes: _Lanes) -> None:
        """Run the body of `stmt` with poisoned memory for its buffer, of its own for each lane."""
        buffer = self.buffers.get(stmt.buffer)
        alone = lanes.own is None and buffer is not None and buffer.kind is Kind.LOCAL
        if buffer is None or not alone or len(stmt.axes) != len(buffer.shape):
            raise self.broken(
                f"no window of {stmt.buffer} can be here", lanes, (0,) * len(lanes.shape)
            )
        zero = np.asarray(0, np.int64)
        starts = tuple(self.value(start, lanes) for start, _ in stmt.axes)
        extents = tuple(self.value(extent, lanes) for _, extent in stmt.axes)
        shape = tuple(max(0, _range_of(zero, extent, lanes)[1]) for extent in extents)
        kept, around = self.memory[buffer.name], self.windows.get(buffer.name)
        self.memory[buffer.name] = poisoned((*shape, *lanes.shape), buffer.dtype)
        self.windows[buffer.name] = _Window(starts, extents, len(lanes.shape))
        self.block(stmt.body, lanes)
        self.memory[buffer.name] = kept
        del self.windows[buffer.name]
        if around is not None:
            self.windows[buffer.name] = around

    def tile(self, stmt: Tile, lanes: _Lanes) -> None:
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
        lanes: _Lanes,
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
                    copies[buffer.name] = poisoned(whole, buffer.dtype)
        return copies

    def store(self, stmt: Store, lanes: _Lanes) -> None:
        buffer = self.buffers.get(stmt.buffer)
        value = self.value(stmt.value, lanes)
        if buffer is None or buffer.kind in _GIVEN or value.dtype != numpy_dtype(buffer.dtype):
            what = f"cannot store {value.dtype} into {stmt.buffer}"
            raise self.broken(what, lanes, (0,) * len(lanes.shape))
        memory, parts = self.element(stmt.buffer, stmt.index, lanes)
        view = self.view(stmt.buffer, memory, parts, lanes) if 0 not in memory.shape else None
        if view is not None and distinct(view, lanes.shape):
            if np.may_share_memory(value, memory):
                value = value.copy()
            if stmt.reduce is None:
                np.copyto(view, value, where=lanes.mask)
            elif lanes.mask.all():
                _REDUCE[stmt.reduce](view, value, out=view)
            else:
                _REDUCE[stmt.reduce](view, value, out=view, where=lanes.mask)
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
            raise self.broken(what, lanes, tuple(map(int, lane)))

    def option(self, stmt: Choose, options: tuple[Option, ...], lanes: _Lanes) -> None:
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

    def value(self, expr: Expr, lanes: _Lanes) -> Array:
        """The value of `expr` at every running lane; what it is at the others is not defined."""
        return np.asarray(self.compute(expr, lanes))

    def compute(self, expr: Expr, lanes: _Lanes) -> Any:
        match expr:
            case Const(value, dtype):
                return np.asarray(value, _numpy(dtype))
            case Var(name):
                if name not in lanes.values:
                    raise self.broken(f"{name} has no value", lanes, (0,) * len(lanes.shape))
                return lanes.values[name]
            case Load(buffer, index, _):
                return self.load(buffer, index, lanes)
            case Binary(op, a, b):
                return self.binary(op, self.value(a, lanes), self.value(b, lanes), lanes)
            case Unary(op, a):
                operand = self.value(a, lanes)
                return np.asarray(_UNARY[op](operand)).astype(operand.dtype, copy=False)
            case Cast(a, dtype):
                return self.value(a, lanes).astype(_numpy(dtype))
            case Select(condition, then, other):
                holds = self.value(condition, lanes)
                taken = self.value(then, lanes.where(holds))
                return np.where(holds, taken, self.value(other, lanes.where(~holds)))
            case Compare(op, a, b):
                return _COMPARE[op](self.value(a, lanes), self.value(b, lanes))
            case Logic("not", (arg,)):
                return ~self.value(arg, lanes)
            case Logic(op, args):
                join = np.logical_and if op == "and" else np.logical_or
                return join.reduce(np.broadcast_arrays(*(self.value(a, lanes) for a in args)))
            case Lookup(table, at):
                row = self.inside("the table", self.value(at, lanes), len(table), lanes)
                return np.asarray(table, np.float64)[row] if table else np.float64(0)
            case Reduce():
                what = f"the reduction {format_expr(expr)} is not lowered to loops"
                raise self.broken(what, lanes, (0,) * len(lanes.shape))
            case _:
                assert_never(expr)

    def binary(self, op: str, a: Array, b: Array, lanes: _Lanes) -> Any:
        integers = b.dtype.kind in "iu"
        if a.dtype != b.dtype or (op == "/" and integers):
            what = f"{a.dtype} {op} {b.dtype} has no meaning"
            raise self.broken(what, lanes, (0,) * len(lanes.shape))
        if op in ("//", "%") and integers:
            lane = lanes.first(b <= 0)
            if lane is not None:
                divisor = np.broadcast_to(b, lanes.shape)[lane]
                raise self.broken(f"{op} by {divisor}, which is not positive", lanes, lane)
        return _BINARY[op](a, b)

    def load(self, name: str, index: tuple[Expr, ...], lanes: _Lanes) -> Array:
        memory, parts = self.element(name, index, lanes)
        if 0 in memory.shape:
            return np.zeros((), memory.dtype)
        view = self.view(name, memory, parts, lanes)
        return view if view is not None else np.asarray(memory[self.spread(name, parts, lanes)])

    def element(
        self, name: str, index: tuple[Expr, ...], lanes: _Lanes
    ) -> tuple[Array, tuple[Array, ...]]:
        """The array that holds a buffer for these lanes, and the indices into it, all inside."""
        whole, window = self.memory.get(name), self.windows.get(name)
        if whole is None or whole.ndim - (window.lanes if window else 0) != len(index):
            what = f"{name} has no element [{', '.join(map(format_expr, index))}]"
            raise self.broken(what, lanes, (0,) * len(lanes.shape))
        parts = [self.value(part, lanes) for part in index]
        extents: tuple[int | Array, ...] = whole.shape
        if window is not None:
            parts = [part - start for part, start in zip(parts, window.starts, strict=True)]
            extents = window.extents
        copy = (lanes.own or {}).get(name)
        inside = tuple(
            self.inside(name, part, extents[k], lanes, parts) for k, part in enumerate(parts)
        )
        return whole if copy is None else copy, inside

    def view(
        self, name: str, memory: Array, parts: tuple[Array, ...], lanes: _Lanes
    ) -> Array | None:
        """The elements as a view of the memory that holds them, broadcastable to the lanes."""
        window = self.windows.get(name)
        if name in (lanes.own or {}):
            return None
        return strided(memory, parts, lanes.shape, window.lanes if window else 0)

    def spread(self, name: str, parts: tuple[Array, ...], lanes: _Lanes) -> tuple[Array, ...]:
        """Indices into the memory that holds a buffer, those of the lanes that own a part of it too."""
        window = self.windows.get(name)
        if window is not None:
            own = lanes.shape[len(lanes.shape) - window.lanes :]
            return (*parts, *np.ogrid[tuple(slice(extent) for extent in own)])
        if name not in (lanes.own or {}):
            return parts
        owners = lanes.shape[len(lanes.shape) - lanes.owners :]
        return (*np.ogrid[tuple(slice(extent) for extent in owners)], *parts)

    def inside(
        self,
        name: str,
        part: Array,
        extent: int | Array,
        lanes: _Lanes,
        parts: list[Array] | None = None,
    ) -> Array:
        """`part`, which lies in ``0:extent`` at every running lane; 0 at others that do not."""
        outside = (part < 0) | (part >= extent)
        if not outside.any():
            return part
        lane = lanes.first(outside)
        if lane is None:
            return np.where(outside, 0, part)
        element = [int(np.broadcast_to(p, lanes.shape)[lane]) for p in parts or [part]]
        whole = () if parts is None else self.memory[name].shape[: len(parts)]
        shape = "" if parts is None else f" of shape {whole}"
        text = ", ".join(map(str, element))
        raise self.broken(f"[{text}] is outside {name}{shape}", lanes, lane)


def _lane(sizes: Mapping[str, int]) -> _Lanes:
    """The one lane outside all tiles."""
    return _Lanes({n: np.asarray(v, np.int64) for n, v in sizes.items()}, np.asarray(True))


def _numpy(dtype: str) -> np.dtype[Any]:
    return numpy_dtype({"index": "int64"}.get(dtype, dtype))


def poisoned(shape: tuple[int, ...], dtype: str) -> Array:
    """An array of what is read where nothing was written: NaN, or for integers a pattern of bytes."""
    if dtype in FLOATS:
        return np.full(shape, np.nan, numpy_dtype(dtype))
    bytes = np.full((*shape, numpy_dtype(dtype).itemsize), _POISON_BYTE, np.uint8)
    return bytes.view(numpy_dtype(dtype)).reshape(shape)


def _range_of(lo: Array, hi: Array, lanes: _Lanes) -> tuple[int, int]:
    """The least `lo` and the greatest `hi` over the running lanes, of which there is one."""
    mask = np.broadcast_to(lanes.mask, lanes.shape)
    low = np.broadcast_to(lo, lanes.shape)[mask]
    high = np.broadcast_to(hi, lanes.shape)[mask]
    return int(low.min()), int(high.max())
