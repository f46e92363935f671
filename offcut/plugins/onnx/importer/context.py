"""The graph that an ONNX file becomes, as the functions of operators see it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from offcut import ops
from offcut.core.dtypes import DTYPES, HALVES, numpy_dtype
from offcut.core.expr import Binary, Const, Expr, Var, variables, walk
from offcut.errors import DescribeError, OffcutError
from offcut.graph import Builder, Ref, extents
from offcut.graph.call_conditions import assert_condition, of_size
from offcut.graph.sizes.extent_values import extent, plain
from offcut.graph.views import VIEWS
from offcut.plugins.onnx.importer.nonnegative_extents import refuse_negative, require_minimum_sizes
from offcut.plugins.onnx.importer.operands import (
    Element,
    Equation,
    KnownArray,
    Operand,
    UnsupportedNode,
    format_values,
    known_array,
    unsupported_dtype,
)
from offcut.plugins.onnx.importer.size_facts import FactsRequired


class Context:
    """A builder, and what operators of ONNX ask of it.

    free     the sizes whose least value nobody stated
    origins  by a size, that of the file, and the number of which it is a multiple: it is this size times that
    axes     by a size of the file, the input and the axis that have it first, in words
    """

    def __init__(self, name: str) -> None:
        self.builder = Builder(name)
        self.free: set[str] = set()
        self.origins: dict[str, tuple[str, int]] = {}
        self.axes: dict[str, str] = {}
        self.held: dict[int, tuple[KnownArray, Ref]] = {}

    # -- what an operand is

    def shape(self, operand: Operand) -> tuple[Element, ...]:
        """Its extents."""
        if isinstance(operand, KnownArray):
            return tuple(operand.array.shape)
        return tuple(map(plain, self.builder.shape(operand)))

    def rank(self, operand: Operand) -> int:
        """Return how many axes it has."""
        return len(self.shape(operand))

    def axis(self, operand: Operand, axis: int) -> int:
        """Return an axis counted from the first.

        Raises Refused where there is none.
        """
        rank = self.rank(operand)
        if not -rank <= axis < max(rank, 1):
            raise UnsupportedNode(f"there is no axis {axis} of {rank}")
        return axis % rank if rank else 0

    def dtype(self, operand: Operand) -> str:
        """Its element type."""
        if isinstance(operand, KnownArray):
            return operand.dtype
        return self.builder.values[operand.name].dtype

    def in_float32(self, x: Operand) -> Operand:
        """Elements of 16 bits in float32: what is made of several steps is rounded once, as runtimes do that have no such steps."""
        return self.cast(x, "float32") if self.dtype(x) in HALVES else x

    def is_float(self, operand: Operand) -> bool:
        """Return whether its elements are floats."""
        return "float" in self.dtype(operand)

    def ref(self, operand: Operand) -> Ref:
        """It as a value of the graph; what is known becomes a constant, or is computed from the sizes.

        Raises Refused for an element type that is not ours.
        """
        if isinstance(operand, Ref):
            return operand
        if id(operand) not in self.held:
            if operand.dtype not in DTYPES:
                raise unsupported_dtype(operand.dtype)
            value = self._of_sizes(operand) if operand.symbolic else self._constant(operand)
            self.held[id(operand)] = operand, value
        return self.held[id(operand)][1]

    def _constant(self, operand: KnownArray) -> Ref:
        return self.builder.constant(self.builder.fresh("w"), operand.array)

    def _of_sizes(self, operand: KnownArray) -> Ref:
        """Index expressions as an array: the last of 0, 1, …, e is e."""
        parts = []
        for one in operand.elements:
            if isinstance(one, Expr):
                parts.append(self.reshape(self._of_size(one, operand.dtype), [1]))
            else:
                parts.append(self.ref(KnownArray(np.array([one], operand.dtype), operand.dtype)))
        vector = parts[0] if len(parts) == 1 else self.op("concat", tuple(parts))
        return self.ref(self.reshape(vector, operand.array.shape))

    def _of_size(self, size: Expr, dtype: str) -> Ref:
        return of_size(self.op, extents.normal(size), dtype, tuple(self.builder.sizes.values()))

    # -- what is known of it

    def elements(self, operand: Operand | None, what: str) -> list[Any]:
        """Return the elements of an operand, numbers or index expressions; none where it is left out.

        Raises Refused where they are not known at import.
        """
        if operand is None:
            return []
        if not isinstance(operand, KnownArray):
            raise UnsupportedNode(
                f"its {what} is not known at import",
                f"from_onnx(…, constants={{…}}) where a call never changes its {what}",
            )
        return operand.elements

    def numbers(self, operand: Operand | None, what: str) -> list[Any]:
        """Return the same where all are numbers."""
        elements = self.elements(operand, what)
        if any(isinstance(one, Expr) for one in elements):
            raise UnsupportedNode(f"its {what} depends on a size: {format_values(*elements)}")
        return elements

    def number(self, operand: Operand | None, what: str, default: Any = None) -> Any:
        """Return the one element; `default` where it is left out."""
        numbers = self.numbers(operand, what)
        return numbers[0] if numbers else default

    def whole(self, value: Element, what: str) -> int:
        """Return an extent that is a number.

        Raises Refused where it is symbolic.
        """
        if isinstance(value, Expr):
            names = dict.fromkeys(self.origins[name][0] for name in sorted(variables(value)))
            raise UnsupportedNode(
                f"{what} is {format_values(value)}, which is not a number",
                f"from_onnx(…, sizes={{…}}) where a call never changes {', '.join(names)}",
            )
        return int(value)

    def bounds(
        self, value: Element, within: Mapping[str, tuple[int, int]] | None = None
    ) -> tuple[int, int]:
        """Return the least and the greatest value that is seen, below 0 too.

        within  other bounds of sizes
        """
        if not isinstance(value, Expr):
            return int(value), int(value)
        sizes = self.builder.sizes
        reduced_sizes = {
            name: replace(sizes[name], min=low, max=high)
            for name, (low, high) in (within or {}).items()
        }
        return extents.span(extents.normal(value), tuple({**sizes, **reduced_sizes}.values()))

    def require_at_least(self, value: Element, least: int) -> None:
        """See to it that an extent is `least` or more, by a size that is large enough, where one that nobody bounded does.

        Raises Wanted with the least value of that size.
        """
        require_minimum_sizes(self, extent(value, -least))

    def same(self, a: Element, b: Element) -> bool:
        """Return whether two extents are seen to be equal at every size."""
        return extents.normal(a) == extents.normal(b)

    def require_equal(self, because: str, *equations: Equation) -> None:
        """Check that extents are seen to be equal, in pairs.

        because  what is wrong with others, in words

        Raises Refused with the pairs that are not.
        """
        unequal = [pair for pair in equations if not self.same(*pair)]
        if unequal:
            pairs = ", ".join(
                f"{format_values(one)} and {format_values(other)}" for one, other in unequal
            )
            raise UnsupportedNode(f"{because}: {pairs}", equations=unequal)

    def is_zero(self, operand: Operand) -> bool:
        """Return whether it is known to be nothing but zeros."""
        if isinstance(operand, KnownArray):
            return not operand.symbolic and not operand.array.any()
        return self.builder.is_zero(operand)

    # -- what is made

    def op(self, name: str, *arguments: Any, **options: Any) -> Ref:
        """Return the result of an operator of `offcut.ops`, or of a view, on operands.

        Raises Refused where there is none of that name, or it does not take them.
        """
        (result,) = self.several(name, *arguments, **options)
        return result

    def several(self, name: str, *arguments: Any, **options: Any) -> tuple[Ref, ...]:
        """Return the same of an operator of any number of results."""
        if name not in ops.__all__ and name not in VIEWS:
            raise UnsupportedNode(f"offcut.ops has no {name}")
        refs = [self._argument(one) for one in arguments]
        named_refs = {key: self._argument(one) for key, one in options.items()}
        try:
            result = self.builder.node(name, *refs, **named_refs)
        except OffcutError as refused:
            equations = refused.equal if isinstance(refused, DescribeError) else ()
            because = f"{refused.refused}: {refused.because}"
            raise UnsupportedNode(because, equations=equations) from None
        results: tuple[Ref, ...] = result if isinstance(result, tuple) else (result,)
        operands = [Ref(operand) for operand in self.builder.nodes[-1].operands]
        own = {value for operand in operands for value in self.shape(operand)}
        for value in (value for one in results for value in self.shape(one) if value not in own):
            require_minimum_sizes(self, value)
            if name not in VIEWS:  # a view is refused by the call that it does not fit
                refuse_negative(self, value)
        return tuple(map(self.with_numbers, results)) if name != "slice" else results

    def node(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Return the result of an operator, or the tuple of several, as compositions for all hosts ask for it."""
        results = self.several(name, *arguments, **options)
        return results if len(results) > 1 else results[0]

    def with_numbers(self, result: Ref) -> Ref:
        """Return a value whose extents are numbers where the bounds of sizes leave one; a size that has one value alone stays a size."""
        for axis, value in enumerate(self.shape(result)):
            low, high = self.bounds(value)
            if isinstance(value, Expr) and low == high and self._varies(value):
                result = self.op("slice", result, axis, 0, low, 1)
        return result

    def _varies(self, value: Expr) -> bool:
        """Return whether an extent is of a size that has several values."""
        sizes = (self.builder.sizes[name] for name in variables(value))
        return any(one.min < one.max for one in sizes)

    def binary(self, name: str, a: Operand, b: Operand) -> Ref:
        """Return an element-wise operator of two; one known number stands for an array of it."""
        rank = max(self.rank(a), self.rank(b))
        left, right = single_number(a, self.rank(b)), single_number(b, self.rank(a))
        if right is not None:
            result = self.op(name, a, right)
        elif left is not None:
            result = self.op(name, left, b)
        else:
            result = self.op(name, a, b)
        if self.rank(result) != rank:
            raise UnsupportedNode(f"{name} gives {self.rank(result)} axes")
        return result

    def require(self, operand: Operand, condition: Operand) -> Operand:
        """It, where a condition holds of each element: a call in which it does not is refused."""
        return assert_condition(
            self.op, self.ref(operand), self.dtype(operand), self.ref(condition)
        )

    def of_some(self, result: Operand, extents: Sequence[Element]) -> Operand:
        """What is made of elements along axes: a call in which an extent is 0 is refused, where something is made."""
        for one in extents:
            if self.bounds(one)[0] < 1:
                some = self.binary("greater", known_array(one), KnownArray(np.array(0), "int64"))
                result = self.require(result, self.broadcast(some, self.shape(result)))
        return result

    def cast(self, operand: Operand, dtype: str) -> Operand:
        """It with elements of another type."""
        if self.dtype(operand) == dtype:
            return operand
        if isinstance(operand, KnownArray) and not operand.symbolic:
            return KnownArray(operand.array.astype(numpy_dtype(dtype)), dtype)
        return self.op("cast", operand, dtype)

    def reshape(self, operand: Operand, shape: Iterable[Element]) -> Operand:
        """Its elements in another shape."""
        shape = tuple(shape)
        if shape == self.shape(operand):
            return operand
        numbers = [one for one in shape if isinstance(one, int)]
        if isinstance(operand, KnownArray) and len(numbers) == len(shape):
            return KnownArray(operand.array.reshape(numbers), operand.dtype)
        try:
            return self.op("reshape", operand, shape)
        except UnsupportedNode as refused:
            own = self.shape(operand)
            self._whole_parts(own, shape)
            raise UnsupportedNode(
                refused.because, refused.help, refused.equations or _renamed_axes(own, shape)
            ) from None

    def _whole_parts(self, own: Sequence[Element], shape: Sequence[Element]) -> None:
        """See to it that a reshape into ``h//4`` parts of 4, or into ``-1`` of them, has no rest: h is a multiple of 4."""
        parts = [node for one in shape if isinstance(one, Expr) for node in walk(one)]
        factors = {
            node.a.name: int(node.b.value)
            for node in parts
            if isinstance(node, Binary) and node.op == "//"
            if isinstance(node.a, Var) and isinstance(node.b, Const)
        }
        if not factors:
            self._whole_rows(own, shape)
            return
        multiples: dict[str, Expr] = {
            name: Binary("*", Const(factor, "index"), Var(name)) for name, factor in factors.items()
        }
        total = extents.at(extents.product(map(extents.normal, own)), multiples)
        part = extents.product(extents.normal(one) for one in shape if one != -1)
        rest = extents.quotient(total, extents.at(part, multiples))
        if rest is not None and (-1 in shape or rest == Const(1, "index")):
            raise FactsRequired(factors=factors)

    def _whole_rows(self, own: Sequence[Element], shape: Sequence[Element]) -> None:
        """See to it that what a shape leaves to -1 has no rest, where one size decides it by being a multiple.

        Raises Wanted with the least factor of that size.
        """
        if -1 not in shape:
            return
        total = extents.product(map(extents.normal, own))
        known_array = extents.product(extents.normal(one) for one in shape if one != -1)
        rows = math.prod(one for one in shape if isinstance(one, int) and one != -1)
        divisors = [factor for factor in range(2, rows + 1) if rows % factor == 0]
        factors: dict[str, int] = {}
        for factor, name in product(divisors, sorted(variables(total) & self.free)):
            multiple: dict[str, Expr] = {name: Binary("*", Const(factor, "index"), Var(name))}
            whole, part = (extents.at(one, multiple) for one in (total, known_array))
            if extents.quotient(whole, part) is not None:
                factors.setdefault(name, factor)
        if len(factors) == 1:
            raise FactsRequired(factors=factors)

    def transpose(self, operand: Operand, axes: Sequence[int]) -> Operand:
        """Its axes in another order."""
        if list(axes) == list(range(self.rank(operand))):
            return operand
        if isinstance(operand, KnownArray):
            return KnownArray(operand.array.transpose(axes), operand.dtype)
        return self.op("transpose", operand, axes=tuple(axes))

    def broadcast(self, operand: Operand, shape: Sequence[Element]) -> Operand:
        """Its elements repeated over extents of 1, and new axes before the first."""
        if tuple(shape) == self.shape(operand):
            return operand
        return self.op("broadcast_to", operand, tuple(shape))

    def slice(
        self, operand: Operand, axis: int, start: Element, stop: Element, step: int = 1
    ) -> Operand:
        """``start:stop:step`` of an axis, both within it, `step` above 0."""
        if start == 0 and step == 1 and self.same(stop, self.shape(operand)[axis]):
            return operand
        if isinstance(operand, KnownArray) and isinstance(start, int) and isinstance(stop, int):
            places = np.arange(start, stop, step)
            return KnownArray(operand.array.take(places, axis), operand.dtype)
        return self.op("slice", operand, axis, start, stop, step)

    def full(self, shape: Sequence[Element], value: Any, dtype: str) -> Operand:
        """Return an array of one number."""
        one = KnownArray(np.array(value, numpy_dtype(dtype)), dtype)
        return self.broadcast(one, shape) if shape else one

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, KnownArray):
            return self.ref(argument)
        if isinstance(argument, list | tuple):
            return tuple(map(self._argument, argument))
        return argument


def _renamed_axes(own: Sequence[Element], shape: Sequence[Element]) -> list[Equation]:
    """Return the extents of a reshape with one -1 that must be equal for it to have no rest: a size at the place of another; none for others."""
    pairs = [pair for pair in zip(own, shape, strict=False) if pair[0] != pair[1]]
    sizes = [(a, b) for a, b in pairs if isinstance(a, Var) and isinstance(b, Var)]
    if -1 not in shape or len(sizes) != 1:
        return []
    ((one, other),) = sizes
    total, rows = extents.product(map(extents.normal, own)), [one for one in shape if one != -1]
    rest = extents.quotient(
        extents.at(total, {one.name: other}), extents.product(map(extents.normal, rows))
    )
    return [(one, other)] if rest is not None else []


def single_number(operand: Operand, rank: int) -> Any:
    """Return the number that a known operand is, where an array of `rank` axes is the other; None for an operand that is none."""
    if not isinstance(operand, KnownArray) or operand.symbolic or operand.array.size != 1:
        return None
    if operand.array.ndim > rank or operand.dtype == "object":
        return None
    return operand.array.ravel()[0].item()
