"""An expression, with memory and coordinates -> its value at every lane, in numpy; or a `InterpreterFault`.

Instances that run together are lanes: a coordinate is an array over them, a condition a mask. A lane
that is masked off reads nothing; every other access is checked against the extents of its buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import (
    BITWISE,
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
)
from offcut.core.function_table import FUNCTIONS
from offcut.core.program import Program, Stmt
from offcut.core.text.printer import format_expr, format_head
from offcut.errors import InternalError

Array: TypeAlias = npt.NDArray[Any]

NUMPY: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "neg": np.negative,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    **{name: row.evaluate for name, row in FUNCTIONS.items()},
}
"""The functions of arrays that operators, comparisons and functions are."""


class InterpreterFault(InternalError):
    """A program that leaves a buffer or breaks a promise: a bug, where offcut wrote the program.

    what, at, because   what it does, the statement, and the coordinates
    """

    def __init__(self, name: str, what: str, at: str, because: str) -> None:
        super().__init__(f"program {name}: {what}\n  at       {at}\n  because  {because}")
        self.what, self.at, self.because = what, at, because

    def __reduce__(self) -> tuple[Any, ...]:
        return InternalError, self.args


def evaluate(expr: Expr, values: Mapping[str, int]) -> int | float | bool:
    """Return the value of an expression without loads, at given sizes and coordinates."""
    value: int | float | bool = _value(expr, lane_of(values)).item()
    return value


def evaluate_all(expr: Expr, values: Mapping[str, Array], count: int) -> Array:
    """Return `evaluate` at `count` places at once: of each name, its value at each of them."""
    lanes = Lanes(values, np.ones(count, bool), (count,))
    return np.broadcast_to(_value(expr, lanes), (count,))


def _value(expr: Expr, lanes: Lanes) -> Array:
    machine = Values(Program("", (), (), (), ()), {})
    with np.errstate(all="ignore"):
        return machine.value(expr, lanes)


@dataclass(frozen=True, slots=True)
class Lanes:
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

    def where(self, condition: Array) -> Lanes:
        """Return the lanes of these where `condition` holds too."""
        return replace(self, mask=self.mask & condition)

    def let(self, name: str, value: Array) -> Lanes:
        """These lanes, with `name` bound."""
        return replace(self, values={**self.values, name: value})

    def first(self, bad: Array) -> tuple[int, ...] | None:
        """Return the first running lane at which `bad` holds."""
        if not bad.any():
            return None
        places = np.argwhere(np.broadcast_to(self.mask & bad, self.shape))
        return tuple(map(int, places[0])) if len(places) else None

    def describe(self, lane: tuple[int, ...]) -> str:
        """Return the coordinates of a lane, for a message."""
        values = {n: np.broadcast_to(v, self.shape)[lane] for n, v in self.values.items()}
        return ", ".join(f"{name} = {value}" for name, value in values.items())


@dataclass(frozen=True, slots=True)
class Window:
    """What a buffer holds for a while: from `starts` on, `extents` elements, by axis.

    lanes  how many trailing axes of the lanes have a window of their own; they are the trailing axes
           of the memory, and of starts and extents
    """

    starts: tuple[Array, ...]
    extents: tuple[Array, ...]
    lanes: int


class Values:
    """What expressions read: the memory of one run.

    memory   by buffer, the whole of it or what its window holds
    running  the statement that runs, for messages
    """

    def __init__(self, program: Program, memory: dict[str, Array]) -> None:
        self.program, self.memory = program, memory
        self.windows: dict[str, Window] = {}
        self.running: Stmt | None = None

    def lane_fault(self, what: str, lanes: Lanes, lane: tuple[int, ...]) -> InterpreterFault:
        """Return the fault of a lane: what it does, at which statement and coordinates."""
        line = "" if self.running is None else format_head(self.running)
        because = f"it runs at {lanes.describe(lane) or 'no coordinates'}"
        return InterpreterFault(self.program.name, what, line, because)

    def value(self, expr: Expr, lanes: Lanes) -> Array:
        """Return the value of `expr` at every running lane; what it is at the others is not defined."""
        return np.asarray(self._compute(expr, lanes))

    def _compute(self, expr: Expr, lanes: Lanes) -> Any:
        match expr:
            case Const(value, dtype):
                return np.asarray(value, _numpy(dtype))
            case Var(name):
                if name not in lanes.values:
                    raise self.lane_fault(f"{name} has no value", lanes, (0,) * len(lanes.shape))
                return lanes.values[name]
            case Load(buffer, index, _):
                return self._load(buffer, index, lanes)
            case Binary("min" | "max" as op, a, Const(0, dtype) as zero) if dtype in FLOATS:
                operand, least = self.value(a, lanes), self.value(zero, lanes)  # -0.0 stays
                beyond = operand < least if op == "max" else operand > least
                return np.where(beyond, least, operand)
            case Binary(op, a, b):
                return self._binary(op, self.value(a, lanes), self.value(b, lanes), lanes)
            case Unary(op, a):
                operand = self.value(a, lanes)
                return np.asarray(NUMPY[op](operand)).astype(operand.dtype, copy=False)
            case Cast(a, dtype):
                return cast_values(self.value(a, lanes), _numpy(dtype))
            case Select(condition, then, other):
                holds = self.value(condition, lanes)
                if holds.ndim == 0:
                    return self.value(then if holds else other, lanes)
                then_value = self.value(then, lanes.where(holds))
                return np.where(holds, then_value, self.value(other, lanes.where(~holds)))
            case Compare(op, a, b):
                return NUMPY[op](self.value(a, lanes), self.value(b, lanes))
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
                raise self.lane_fault(what, lanes, (0,) * len(lanes.shape))
            case _:
                assert_never(expr)

    def _binary(self, op: str, a: Array, b: Array, lanes: Lanes) -> Any:
        integers = b.dtype.kind in "iu"
        if a.dtype != b.dtype or (op == "/" and integers) or (op in BITWISE and not integers):
            what = f"{a.dtype} {op} {b.dtype} has no meaning"
            raise self.lane_fault(what, lanes, (0,) * len(lanes.shape))
        if op in ("//", "%") and integers:
            lane = lanes.first(b <= 0)
            if lane is not None:
                divisor = np.broadcast_to(b, lanes.shape)[lane]
                raise self.lane_fault(f"{op} by {divisor}, which is not positive", lanes, lane)
        return np.asarray(NUMPY[op](a, b)).astype(a.dtype, copy=False)

    def _load(self, name: str, index: tuple[Expr, ...], lanes: Lanes) -> Array:
        memory, parts = self.element(name, index, lanes)
        if 0 in memory.shape:
            return np.zeros((), memory.dtype)
        view = self.view(name, memory, parts, lanes)
        return view if view is not None else np.asarray(memory[self.spread(name, parts, lanes)])

    def element(
        self, name: str, index: tuple[Expr, ...], lanes: Lanes
    ) -> tuple[Array, tuple[Array, ...]]:
        """Return the array that holds a buffer for these lanes, and the indices into it, all inside."""
        whole, window = self.memory.get(name), self.windows.get(name)
        if whole is None or whole.ndim - (window.lanes if window else 0) != len(index):
            what = f"{name} has no element [{', '.join(map(format_expr, index))}]"
            raise self.lane_fault(what, lanes, (0,) * len(lanes.shape))
        parts = [self.value(part, lanes) for part in index]
        extents: tuple[int | Array, ...] = whole.shape
        if window is not None:
            parts = [part - start for part, start in zip(parts, window.starts, strict=True)]
            # memory is as large as running lanes need it: others have no more of it
            extents = tuple(map(np.minimum, window.extents, whole.shape))
        copy = (lanes.own or {}).get(name)
        inside = tuple(
            self.inside(name, part, extents[k], lanes, parts) for k, part in enumerate(parts)
        )
        return whole if copy is None else copy, inside

    def view(
        self, name: str, memory: Array, parts: tuple[Array, ...], lanes: Lanes
    ) -> Array | None:
        """Return the elements as a view of the memory that holds them, broadcastable to the lanes."""
        window = self.windows.get(name)
        if name in (lanes.own or {}):
            return None
        return as_strided_view(memory, parts, lanes.shape, window.lanes if window else 0)

    def spread(self, name: str, parts: tuple[Array, ...], lanes: Lanes) -> tuple[Array, ...]:
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
        lanes: Lanes,
        parts: list[Array] | None = None,
    ) -> Array:
        """Return `part`, which lies in ``0:extent`` at every running lane; 0 at others that do not."""
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
        raise self.lane_fault(f"[{text}] is outside {name}{shape}", lanes, lane)


def lane_of(sizes: Mapping[str, int]) -> Lanes:
    """Return the one lane outside all tiles."""
    return Lanes({n: np.asarray(v, np.int64) for n, v in sizes.items()}, np.asarray(True))


def cast_values(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return `values` as `dtype`; floats become integers toward zero, the nearest there is, NaN 0; bool is what is not 0."""
    if values.dtype.kind in "biu" or dtype.kind not in "iu":
        return values.astype(dtype)
    whole, limits = np.nan_to_num(np.trunc(values.astype(np.float64)), nan=0.0), np.iinfo(dtype)
    above, below = whole >= float(limits.max), whole <= float(limits.min)
    inside = np.where(above | below, 0.0, whole).astype(dtype)
    return np.where(above, dtype.type(limits.max), np.where(below, dtype.type(limits.min), inside))


def _numpy(dtype: str) -> np.dtype[Any]:
    return numpy_dtype({"index": "int64"}.get(dtype, dtype))


# Elements at affine indices as one strided view: what makes the interpreter fast.
#
# Indices are arrays, one axis for each axis of the lanes. Where every index is an arithmetic
# progression along each of these axes, the elements are a view of the memory, without a copy.


def as_strided_view(
    memory: Array, parts: Sequence[Array], shape: tuple[int, ...], own: int
) -> Array | None:
    """``memory[parts]`` as a view, broadcastable to `shape`; None where it is none.

    parts   integer arrays that broadcast to `shape`, each within its axis of `memory`
    shape   of the lanes
    own     how many trailing axes of `memory` are the trailing axes of the lanes
    """
    rank = len(shape)
    counts, steps = [1] * rank, [0] * rank
    for part, step in zip(parts, memory.strides, strict=False):
        found = _progression(part, rank)
        if found is None:
            return None
        for axis, delta in found:
            counts[axis] = shape[axis]
            steps[axis] += delta * step
    for k in range(own):
        axis = rank - own + k
        counts[axis] = memory.shape[len(parts) + k]
        steps[axis] += memory.strides[len(parts) + k]
    begin: tuple[Any, ...] = (*(slice(int(part.flat[0]), None) for part in parts), ...)
    first = memory[begin]
    return np.lib.stride_tricks.as_strided(first, tuple(counts), tuple(steps))


def _progression(part: Array, rank: int) -> list[tuple[int, int]] | None:
    """[(axis, difference)] of an array that is one along each of its axes."""
    base = int(part.flat[0])
    if part.size == 1:
        return []
    lead = rank - part.ndim
    deltas = []
    expected: Any = base
    for axis, count in enumerate(part.shape):
        if count > 1:
            where = [0] * part.ndim
            where[axis] = 1
            delta = int(part[tuple(where)]) - base
            deltas.append((lead + axis, delta))
            line = np.arange(0, delta * count, delta) if delta else np.zeros(count, np.int64)
            expected = expected + line.reshape(-1, *(1,) * (part.ndim - axis - 1))
    return deltas if bool((part == expected).all()) else None


def distinct(view: Array, shape: tuple[int, ...]) -> bool:
    """Whether every lane of `shape` has an element of its own in `view`."""
    if math.prod(view.shape) != math.prod(shape):
        return False
    reach = view.itemsize
    for step, count in sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True)):
        if count > 1:
            if step < reach:
                return False
            reach = step * (count - 1) + reach
    return True
