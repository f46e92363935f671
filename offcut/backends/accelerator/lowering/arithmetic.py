"""Microkernels of the vector unit as its operations, each of which changes a word in place.

::

    T = a // 64     T lies over a:  shr 6
    T = a - b       T lies over b:  mul -1, add a
    T = a // 3      T lies over a:  add 129, mul 171, shr 9, add -43    where a is of int8
    T = a % 8       T is a copy:    shr 3, mul -8, add a
    T = a << 3      T lies over a:  shr -3

What is of int8 or uint8 is kept as the int32 of its value; an operation that may leave its type is followed by
two shifts, which cut it as int8 does, of uint8 between two additions of half its range.

Floored quotients by a product and a shift, exact on a range.

With ``y = x + c * d >= 0``, ``m = ceil(2**s / d)`` and ``e = m * d - 2**s``::

    floor(x / d) = floor(y * m / 2**s) - c        where  y * e < 2**s

for ``y * m / 2**s`` is above ``y / d`` by ``y * e / (d * 2**s)``, less than the ``1 / d`` by which it lies below
the next whole number at least. The product must be an int32.

Source: Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994; theirs has the
upper half of a product, which the unit has not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from offcut.backends.accelerator.isa import AluOp
from offcut.backends.accelerator.lowering.capacity import Loops
from offcut.backends.accelerator.lowering.issue_tree import (
    Leaf,
    Node,
    leaves_and_ancestors,
    ranges_of,
)
from offcut.backends.accelerator.microkernels import instructions_of, microkernel_name
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Binary, Cast, Const, Expr, Load, dtype_of, variables
from offcut.core.intervals import Interval, interval
from offcut.core.program import Program, Store
from offcut.partition.judge import pairings
from offcut.polyhedral import maximum

Steps = tuple[tuple[AluOp, int], ...]


def to_multiply_shift(divisor: int, low: int, high: int) -> Steps | None:
    """The operations that divide each whole number from `low` to `high`; None where none are exact there.

    >>> divided(64, -(2**31), 2**31 - 1)
    ((<AluOp.SHR: 'shr'>, 6),)
    >>> divided(3, -128, 127)
    ((<AluOp.ADD: 'add'>, 129), (<AluOp.MUL: 'mul'>, 171), (<AluOp.SHR: 'shr'>, 9), (<AluOp.ADD: 'add'>, -43))
    """
    if divisor & divisor - 1 == 0:
        return ((AluOp.SHR, divisor.bit_length() - 1),)
    below = max(-(low // divisor), 0)
    most = high + below * divisor
    for shift in range(31):
        factor = -(-(1 << shift) // divisor)
        error = factor * divisor - (1 << shift)
        if most * error < 1 << shift and most * factor < 1 << 31:
            around = ((AluOp.ADD, below * divisor),) if below else ()
            behind = ((AluOp.ADD, -below),) if below else ()
            return (*around, (AluOp.MUL, factor), (AluOp.SHR, shift), *behind)
    return None


def exact_range(divisor: int) -> int:
    """The greatest `c` for which numbers from ``-c`` to ``c`` are divided."""
    low, high = 0, 1 << 31
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if to_multiply_shift(divisor, -middle, middle) is None else (middle, high)
        )
    return low


Other = Load | int
"""A second word, or an immediate."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is done to each word of a result.

    base   the element that the word begins with; None: zero; of an update: what is there
    copied whether it must be a copy: the element is read again
    steps  in order
    """

    base: Load | None
    copied: bool
    steps: tuple[tuple[AluOp, Other], ...]
    update: bool = False

    @property
    def reads(self) -> tuple[Load, ...]:
        """Elements that are read."""
        own = () if self.base is None else (self.base,)
        return (*own, *(other for _, other in self.steps if isinstance(other, Load)))


Values = Callable[[Load], tuple[int, int]]
"""The least and the greatest value of an element."""

_SHIFTS = ((AluOp.SHR, -24), (AluOp.SHR, 24))
_CUTS: dict[str, tuple[tuple[AluOp, Other], ...]] = {
    "int8": _SHIFTS,
    "uint8": ((AluOp.ADD, 128), *_SHIFTS, (AluOp.ADD, 128)),
    "int32": (),
}
"""What an element type does to words that may have left it."""
_AMOUNTS = range(32)
"""Bits by which an int32 is shifted; by others, its sign is all that is left, or nothing."""
_SAME = {
    "alu_add": AluOp.ADD,
    "alu_multiply": AluOp.MUL,
    "alu_min": AluOp.MIN,
    "alu_max": AluOp.MAX,
}
"""What runs a microkernel alone."""
_LEAVES = (
    *("alu_add", "alu_subtract", "alu_multiply"),
    *("alu_negate", "alu_absolute", "alu_cut", "alu_shl"),
)
"""Microkernels whose results may leave an element type."""


def recipe(
    name: str, operands: Mapping[str, Load], store: Store, dtype: str, values: Values
) -> Recipe | None:
    """Return the operations of a microkernel that computes a statement; None if a quotient is not exact, or a word shifts by less than 0.

    operands  what the statement reads for those of the microkernel
    dtype     of its result
    values    of what it reads: a division is exact on a range
    """
    cut = _CUTS[dtype] if name in _LEAVES else ()
    if store.reduce is not None:
        return Recipe(None, False, ((_SAME[name], operands["B"]), *cut), update=True)
    a, b = operands.get("A"), operands.get("B")
    constant = literal(store.value)
    other: Other = constant if b is None else b
    steps: tuple[tuple[AluOp, Other], ...] = ()
    match name:
        case "alu_fill":
            steps = ((AluOp.ADD, constant),)
        case "alu_subtract" if b is not None:  # what is taken away is the word that changes
            a, other = b, constant if a is None else a
            steps = (AluOp.MUL, -1), (AluOp.ADD, other)
        case "alu_subtract":
            steps = ((AluOp.ADD, -constant),)
        case "alu_negate":
            steps = ((AluOp.MUL, -1),)
        case "alu_absolute":
            assert a is not None
            steps = (AluOp.MUL, -1), (AluOp.MAX, a)
        case "alu_divide" | "alu_modulo":
            assert a is not None
            quotient = to_multiply_shift(constant, *values(a))
            if quotient is None:
                return None
            rest = ((AluOp.MUL, -constant), (AluOp.ADD, a)) if name == "alu_modulo" else ()
            steps = (*quotient, *rest)
        case "alu_shr" if b is not None:
            if values(b)[0] < 0:
                return None
            steps = ((AluOp.SHR, b),)
        case "alu_shr":
            steps = ((AluOp.SHR, constant if constant in _AMOUNTS else _AMOUNTS[-1]),)
        case "alu_shl":
            steps = ((AluOp.SHR, -constant) if constant in _AMOUNTS else (AluOp.MUL, 0),)
        case _ if name in _SAME:
            steps = ((_SAME[name], other),)
    again = any(step == a for _, step in steps)
    return Recipe(a, again, (*steps, *cut))


def recipe_of(store: Store, dtype: str, spec: AcceleratorSpec) -> Recipe | None:
    """Return the operations of a statement on accumulators, of whatever values; None where it is none of its microkernels."""
    name = microkernel_name(store, spec)
    for kernel in instructions_of(store, name, dtype, spec):
        for pairing in pairings(kernel, store.value):
            read = {
                mine.buffer: load
                for mine, load in pairing
                if isinstance(mine, Load) and isinstance(load, Load)
            }
            return recipe(name, read, store, dtype, lambda load: (0, 0))
    return None


def literal(value: Expr) -> int:
    """Return the constant of an operation; 0 of one that has none."""
    parts = (value.a, value.b) if isinstance(value, Binary) else (value,)
    return next((int(one.value) for one in parts if isinstance(one, Const)), 0)


# Which values the elements on the chip have, at most: intervals, from what is stored in each buffer.
#
# ::
#
#     S[i] = 0;  9 times S[i] += int32(a[i, r])   ->   S  from -1152 to 1143
#
# What may leave its element type wraps, so that nothing is known of it then. So it is of a buffer that is
# computed from itself, other than by a sum, a minimum or a maximum.


@dataclass
class ValueRanges:
    """The values of the buffers that the leaves of a nest store in."""

    program: Program
    nodes: Sequence[Node]
    known: dict[str, Interval] = field(default_factory=dict)
    stores: dict[str, list[tuple[Leaf, Loops]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for leaf, ancestors in leaves_and_ancestors(self.nodes):
            self.stores.setdefault(leaf.store.buffer, []).append((leaf, ranges_of(ancestors)))

    def of(self, load: Load) -> Interval:
        """Return the values of an element."""
        if load.buffer not in self.known:
            self.known[load.buffer] = _whole(load.dtype)  # of what is computed from itself
            self.known[load.buffer] = self.stored_value(load)
        return self.known[load.buffer]

    def stored_value(self, load: Load) -> Interval:
        """What all stores in a buffer make of its elements."""
        stores = self.stores.get(load.buffer, [])
        starts = [self.value(leaf.store.value) for leaf, _ in stores if leaf.store.reduce is None]
        if not starts:
            return _whole(load.dtype)
        low, high = min(low for low, _ in starts), max(high for _, high in starts)
        for leaf, loops in stores:
            match leaf.store:
                case Store(value=value, reduce="sum"):
                    least, most = self.value(value)
                    count = self.times(leaf, loops)
                    low, high = low + count * min(least, 0), high + count * max(most, 0)
                case Store(value=value, reduce="min" | "max"):
                    least, most = self.value(value)
                    low, high = min(low, least), max(high, most)
        return _within((low, high), load.dtype)

    def times(self, leaf: Leaf, loops: Loops) -> int:
        """Return how often, at most, a leaf adds to an element while its window lasts."""
        moved = frozenset().union(*map(variables, leaf.store.index))
        window = leaf.windows.get(leaf.store.buffer)
        own = loops if window is None else loops[window.level :]
        extents = [(name, ix.sub(hi, lo)) for name, lo, hi in own]
        extents += [(name, count) for name, _, count in leaf.axes]
        count = 1
        for name, extent in extents:
            if name not in moved:
                greatest = maximum(extent, self.program.sizes, self.program.assumptions, loops)
                count *= 2**32 if greatest is None else max(greatest, 0)
        return count

    def value(self, expr: Expr) -> Interval:
        """Return the values of an expression."""
        return interval(
            expr, self._known_value, lambda node, bounds: _within(bounds, dtype_of(node))
        )

    def _known_value(self, expr: Expr) -> Interval | None:
        match expr:
            case Load():
                return self.of(expr)
            case Cast():
                return None
            case _:
                return _whole(dtype_of(expr))


def _whole(dtype: str) -> Interval:
    of = np.iinfo(numpy_dtype(dtype))
    return int(of.min), int(of.max)


def _within(bounds: Interval, dtype: str) -> Interval:
    """Return a range of an element type; all of it where it may be left."""
    low, high = _whole(dtype)
    return bounds if low <= bounds[0] and bounds[1] <= high else (low, high)
