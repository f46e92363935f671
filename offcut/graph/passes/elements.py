"""Elements of a value as expressions over their index and over sizes, read from the descriptions of operators, never from their names.

``cast(less_equal(iota(t), reshape(iota(s), (s, 1))), float32)`` has at ``(i, j)`` the element ``where(j <= i, 1.0, 0.0)``. An array that is
known is looked through, too: its integers may ascend by a step along each axis, and where it has two elements, these may lie in a band.
Each is checked to be so. An element of which no more is known is a `Load` of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from offcut.core import index as ix
from offcut.core.conditions import conjunction, negate
from offcut.core.dtypes import FLOATS
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Reduce,
    Select,
    Var,
    children,
    dtype_of,
    rebuild,
    substitute,
    variables,
    walk,
)
from offcut.core.interpret.values import evaluate
from offcut.describe.request import Array
from offcut.describe.tensor import Tensor
from offcut.describe.value import size_var
from offcut.graph.graph import Bound, Node
from offcut.graph.sizes.extents import normal, span
from offcut.graph.tensor_semantics import alike, description_of

MOST = 256
"""Elements that one is made of at most, as far as they are looked through, and choices in it."""
_WIDE = ("int32", "int64")
"""Integers in which places are counted: sizes are numbers of the narrower."""
_EMPTY, _FULL = Const(0, "bool"), Const(1, "bool")


class TooManyError(Exception):
    """An element needs more than `MOST` others, a sum, or a division by something else than a positive number."""


@dataclass
class Elements:
    """Elements of the values of a graph.

    ends     the last place along each axis that is asked for, by the name of its index: extents less 1
    outside  whether an element that may lie outside of its array was looked through: a call in which it does is refused
    """

    bound: Bound
    ends: Mapping[str, Expr]
    outside: bool = False
    _looked: int = 0
    _makers: dict[str, tuple[Node, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = self.bound.graph.nodes
        self._makers = {v.name: (node, n) for node in nodes for n, v in enumerate(node.results)}

    def of(self, name: str, at: Sequence[Expr]) -> Expr:
        """Return the element of a value at a place.

        Raises TooManyError.
        """
        self._looked += 1
        if self._looked > MOST:
            raise TooManyError
        value = self.bound.graph.values[name]
        self.outside |= not all(map(self._is_inside, at, value.shape))
        load = Load(name, tuple(at), value.dtype)
        if name in self.bound.arrays:
            known = element_of_array(self.bound.arrays[name], at)
            return load if known is None else known
        if name not in self._makers:
            return load
        node, place = self._makers[name]
        if node.op == "reshape":
            (x,) = node.operands
            before = _before_reshape(at, value.shape, self.bound.graph.values[x].shape)
            return load if before is None else self.of(x, before)
        same = alike(node, self.bound.graph.values, self.bound.graph.sizes)
        description, results = description_of(same)
        names = dict(zip((one.name for one in same.operands), node.operands, strict=True))
        sizes = {size_var(size): extent for size, extent in description.dims.extents.items()}
        return self._described_element(results[place], at, names, sizes, load)

    def _described_element(
        self,
        tensor: Tensor,
        at: Sequence[Expr],
        names: Mapping[str, str],
        sizes: Mapping[str, Expr],
        otherwise: Load,
    ) -> Expr:
        """Return an element of a tensor of an operator's description, over the values of the graph.

        names      by operand of the description, the value of the graph
        sizes      by size of the description, its extent in the graph
        otherwise  the element of a tensor that is no operand

        Raises TooManyError for a sum.
        """
        definition = tensor.definition
        if definition is None:
            return self.of(names[tensor.name], at) if tensor.name in names else otherwise
        if isinstance(definition.body, Reduce):
            raise TooManyError
        reads = {one.name: one for one in definition.reads}
        places = {axis.name: part for axis, part in zip(definition.axes, at, strict=True)}

        def element(expr: Expr) -> Expr:
            if isinstance(expr, Select):  # the branch that is taken alone is read
                condition = element(expr.condition)
                if isinstance(condition, Const):
                    return element(expr.then if condition.value else expr.other)
                return to_mask_form(Select(condition, element(expr.then), element(expr.other)))
            parts = tuple(map(element, children(expr)))
            if isinstance(expr, Load):
                return self._described_element(reads[expr.buffer], parts, names, sizes, otherwise)
            return to_mask_form(rebuild(expr, parts))

        return element(substitute(definition.body, {**sizes, **places}))

    def _is_inside(self, at: Expr, extent: Expr) -> bool:
        """Return whether an index is proved to be from 0 to ``extent - 1``."""
        form = ix.to_linear(at)
        indices = variables(at) & self.ends.keys()
        moving = (atom for atom, _ in form.terms if variables(atom) & indices)
        if not (is_index(at) and all(isinstance(atom, Var) for atom in moving)):
            return False
        least = greatest = at
        for atom, factor in form.terms:
            if isinstance(atom, Var) and atom.name in indices:
                first, last = ix.const(0), self.ends[atom.name]
                ends = (first, last) if factor > 0 else (last, first)
                least = substitute(least, {atom.name: ends[0]})
                greatest = substitute(greatest, {atom.name: ends[1]})
        sizes = self.bound.graph.sizes
        room = Binary("-", Binary("-", extent, ix.const(1)), greatest)
        return span(normal(least), sizes)[0] >= 0 and span(normal(room), sizes)[0] >= 0


def _before_reshape(
    at: Sequence[Expr], after: Sequence[Expr], before: Sequence[Expr]
) -> list[Expr] | None:
    """Return the place before a reshape that adds and drops axes of 1 alone; None for another."""
    one = ix.const(1)
    rest = [(extent, part) for extent, part in zip(after, at, strict=True) if extent != one]
    if [extent for extent, _ in rest] != [extent for extent in before if extent != one]:
        return None
    parts = iter(part for _, part in rest)
    return [ix.const(0) if extent == one else next(parts) for extent in before]


def is_index(expr: Expr) -> bool:
    """Return whether an expression consists of indices, sizes and arithmetic on these."""
    return all(
        isinstance(one, Var | Binary) or (isinstance(one, Const) and one.dtype == "index")
        for one in walk(expr)
    )


def to_mask_form(expr: Expr) -> Expr:
    """Return an expression, whose parts are folded already, in the form that masks are read from.

    Integers become indices, and conditions are of type bool; selects are outermost.

    Raises TooManyError if that takes more than `MOST` selects, or if a divisor is not a positive number.
    """
    match expr:
        case Const(value, dtype) if dtype in _WIDE:
            return ix.const(int(value))
        case Binary("//" | "%", _, by) if (ix.literal_value(by) or 0) <= 0:
            raise TooManyError
        case Select(condition, then, other):
            return _select(condition, then, other)
        case Logic("not", (a,)):
            return _not(a)
        case Logic(op, args):
            return _and(args) if op == "and" else _not(_and([_not(one) for one in args]))
    parts = children(expr)
    for place, part in enumerate(parts):
        if isinstance(part, Select) and not isinstance(expr, Load):
            sides = (
                to_mask_form(rebuild(expr, (*parts[:place], one, *parts[place + 1 :])))
                for one in (part.then, part.other)
            )
            return _select(part.condition, *sides)
    match expr:
        case Const() | Var() | Load():
            return expr
        case Cast(a, dtype) if dtype == "bool":
            return a if _is_condition(a) else to_mask_form(Compare("!=", a, Const(0, "index")))
        case Cast(a, dtype) if _is_condition(a) and not isinstance(a, Const):
            return _select(a, *(to_mask_form(Cast(Const(n, "bool"), dtype)) for n in (1, 0)))
        case Cast(a, dtype) if dtype in (*_WIDE, "index") and is_index(a):
            return a
        case Binary(op, a, b) if op in _ARITHMETIC and is_index(a) and is_index(b):
            return _ARITHMETIC[op](a, b)
        case Compare(op, a, b) if is_index(a) and is_index(b):
            return _compare(op, a, b)
    if parts and all(isinstance(part, Const) for part in parts):
        return _number(expr)
    return expr


_ARITHMETIC: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "+": ix.add,
    "-": lambda a, b: _signed_value(a, b) or ix.sub(a, b),
    "*": ix.mul,
    "//": ix.floordiv,
    "%": ix.mod,
}


def _signed_value(above: Expr, below: Expr) -> Expr | None:
    """Return e for ``max(0, e) - max(0, -e)``, which is how sizes of either sign are counted; None for any other difference."""
    match normal(above), normal(below):
        case Binary("max", Const(0), e), Binary("max", Const(0), less):
            return e if normal(Binary("+", e, less)) == ix.const(0) else None
        case _:
            return None


def _number(expr: Expr) -> Expr:
    """Return the value of an expression whose operands are all constants, as a constant."""
    dtype = dtype_of(expr)
    with np.errstate(all="ignore"):
        value = evaluate(expr, {})
    return to_mask_form(Const(float(value) if dtype in FLOATS else int(value), dtype))


def _compare(op: str, a: Expr, b: Expr) -> Expr:
    """Return a comparison of indices, or its value if that is the same for all indices and sizes from 0 on."""
    comparison = ix.compare(op, a, b)
    if isinstance(comparison, Const):
        return comparison
    form = ix.to_linear(ix.sub(a, b))
    if any(not isinstance(atom, Var) for atom, _ in form.terms):
        return comparison
    for holds_of, sign in ((_ABOVE, 1), (_BELOW, -1)):
        if all(sign * factor > 0 for _, factor in form.terms):
            end = sign * form.const
            if end >= 0 and op in holds_of[end > 0]:
                return _FULL if holds_of[end > 0][op] else _EMPTY
    return comparison


_ABOVE: tuple[Mapping[str, bool], ...] = (
    {">=": True, "<": False},
    {">=": True, "<": False, ">": True, "<=": False, "!=": True, "==": False},
)
"""The value of a comparison with 0: for operands from 0 on, then for operands above 0."""
_BELOW: tuple[Mapping[str, bool], ...] = (
    {"<=": True, ">": False},
    {"<=": True, ">": False, "<": True, ">=": False, "!=": True, "==": False},
)


def _is_condition(expr: Expr) -> bool:
    return isinstance(expr, Compare | Logic) or (
        isinstance(expr, Const | Load) and expr.dtype == "bool"
    )


def _not(a: Expr) -> Expr:
    match a:
        case Const(value, _):
            return _EMPTY if value else _FULL
        case Logic("not", (inner,)):
            return inner
        case Compare(_, x, y) if is_index(x) and is_index(y):
            return negate(a)
        case _:
            return Logic("not", (a,))


def _and(args: Sequence[Expr]) -> Expr:
    parts = (one.args if isinstance(one, Logic) and one.op == "and" else (one,) for one in args)
    conditions = [one for one in dict.fromkeys(chain.from_iterable(parts)) if one != _FULL]
    if _EMPTY in conditions:
        return _EMPTY
    return conjunction(conditions) if conditions else _FULL


def _select(condition: Expr, then: Expr, other: Expr) -> Expr:
    """Return a select; if both of its values are conditions, the condition that is equal to it.

    Raises TooManyError if it has more than `MOST` selects.
    """
    if isinstance(condition, Const):
        return then if condition.value else other
    if then == other:
        return then
    if _is_condition(then) and _is_condition(other):
        both = _and([condition, then]), _and([_not(condition), other])
        return _not(_and([_not(one) for one in both]))
    select = Select(condition, then, other)
    if sum(isinstance(one, Select) for one in walk(select)) > MOST:
        raise TooManyError
    return select


def element_of_array(array: Array, at: Sequence[Expr]) -> Expr | None:
    """Return the element of a known array at an index; None if its elements follow none of the rules.

    The rules: all elements are equal; integers that ascend by a step along each axis; two values, one of them in a band.
    """
    places = [part for extent, part in zip(array.shape, at, strict=True) if extent != 1]
    flat = array.reshape([extent for extent in array.shape if extent != 1])
    if not flat.size or flat.ndim > 2:
        return None
    first = flat.flat[0]
    same = flat == first
    if same.all():
        return _constant(first)
    if flat.dtype.name in _WIDE:
        return _ascending(flat, places)
    second = flat.flat[int(np.argmin(same))]
    if not (flat[~same] == second).all():
        return None
    inner = places if flat.ndim == 2 else [ix.const(0), *places]
    for inside, inner_value, outer_value in ((same, first, second), (~same, second, first)):
        band = _band(np.atleast_2d(inside), inner[0], inner[1])
        if band is not None:
            return _select(band, _constant(inner_value), _constant(outer_value))
    return None


def _constant(value: object) -> Expr:
    element = np.asarray(value)
    name = str(element.dtype)
    return to_mask_form(Const(float(element) if name in FLOATS else int(element), name))


def _ascending(array: Array, at: Sequence[Expr]) -> Expr | None:
    """Return ``a + b*i`` or ``a + b*i + c*j`` if all elements of an array have this value; else None."""
    start = int(array.flat[0])
    exact, total = np.full((1,) * array.ndim, start, np.int64), ix.index(start)
    for axis, part in enumerate(at):
        step = int(np.take(array, 1, axis).flat[0]) - start
        shape = [-1 if n == axis else 1 for n in range(array.ndim)]
        exact = exact + step * np.arange(array.shape[axis]).reshape(shape)
        total = ix.add(total, ix.mul(step, part))
    return total if np.array_equal(array, exact) else None


def _band(mask: Array, row: Expr, column: Expr) -> Expr | None:
    """Return the condition ``row + a <= column <= row + b`` that holds exactly for the True elements of `mask`; None if there is none."""
    rows, columns = mask.shape
    some = np.flatnonzero(mask.any(1))
    first = mask.argmax(1)[some] if some.size else some
    last = columns - 1 - mask[:, ::-1].argmax(1)[some] if some.size else some
    low = {*(first - some)[first > 0].tolist()}
    high = {*(last - some)[last < columns - 1].tolist()}
    if len(low) > 1 or len(high) > 1:
        return None
    i, j = np.arange(rows)[:, None], np.arange(columns)
    expected, conditions = np.ones_like(mask), list[Expr]()
    for least in low:
        expected &= j >= i + least
        conditions.append(_compare(">=", column, ix.add(row, least)))
    for most in high:
        expected &= j <= i + most
        conditions.append(_compare("<=", column, ix.add(row, most)))
    return _and(conditions) if np.array_equal(mask, expected) else None
