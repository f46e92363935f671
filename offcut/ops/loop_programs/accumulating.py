"""Sums, products and extremes of all elements up to each, as loop programs: each element is added once, to what stands before it.

Along an axis that others stand behind, the elements behind it are added side by side, a vector at a time, to totals that
each line of the axis goes through. Where few stand behind it, or none, each line is a chain of its own, and waits for itself:
eight lines of an array of several run next to each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from offcut.core.dtypes import FLOATS, NUMBERS, reduction_start
from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.ops.checks import (
    axis_number,
    check_dtype,
    check_tensor,
    choice,
    flag,
    result_name,
    wider,
)
from offcut.ops.loop_programs.program_writer import Written

FEW = 8  # lines that run next to each other, and elements behind an axis that are worth a vector

_JOINED = {
    "add": "{} + {}",
    "mul": "{} * {}",
    "max": "max({}, {})",
    "min": "min({}, {})",
    "logaddexp": f"max({{0}}, {{1}}) + where({{0}} == {{1}}, {math.log(2)!r}, log1p(exp(-abs({{0}} - {{1}}))))",
}


def accumulated(
    x: Tensor,
    axis: int = -1,
    reduction: str = "add",
    places: bool = False,
    *,
    name: str | None = None,
) -> Program:
    """A program of ``result[…, i, …] = x[…, 0, …] + … + x[…, i, …]`` along `axis`, in ascending order.

    x           of any element type, with at least one axis; of numbers for extremes
    axis        negative ones count from the last
    reduction   "add", "mul", "max", "min", or "logaddexp", ``log(exp(a) + exp(b))`` of floats
    places      for extremes: whether the place of each is a second result, of int64; of equal elements, and of
                NaN, the last

    Sums, products and logarithms of float32 are accumulated in float64, those of bfloat16 and float16 in float32, and each
    is rounded once; integers of 8 and 16 bits and bool give int32. Extremes behind a NaN are NaN.

    Raises DescribeError where there is no such axis or reduction, or `x` is computed.
    """
    op = "accumulated"
    check_tensor(op, "x", x, least=1)
    position, places = axis_number(op, x, axis), flag(op, "places", places)
    allowed = ["max", "min"] if places else [*_JOINED]
    choice(op, "reduction", reduction, allowed, " with places" if places else "")
    result = total = x.dtype
    nothing: int | float
    if reduction in ("max", "min"):
        check_dtype(op, "x", x, NUMBERS)
        nothing = reduction_start(reduction, x.dtype)
    else:
        if reduction == "logaddexp":
            check_dtype(op, "x", x, FLOATS)
        nothing = {"add": 0, "mul": 1, "logaddexp": -math.inf}[reduction]
        total = {"float32": "float64", "bool": "int32"}.get(x.dtype, wider(x.dtype))
        result = x.dtype if x.dtype in FLOATS else total
    options = (("axis", position, len(x.shape) - 1), ("", reduction, "add"))
    name = result_name(op, name, [x], *options, ("places", places, False))
    text = Written(op, name, {"x": x})
    text.result(name, result, x.shape)
    if places:
        text.result(f"{name}_places", "int64", x.shape)
    lines = _Lines(text, x, position, reduction, total, str(nothing))
    if position == len(x.shape) - 1:
        lines.apart()
    else:
        lines.side_by_side()
    return text.program()


class _Totals(NamedTuple):
    """Elements that hold what is joined so far, and the place of an extreme."""

    total: str
    at: str


class _Lines:
    """The lines of an array along an axis, and what is written of each.

    total    the type of totals
    nothing  the total of no elements
    """

    def __init__(
        self, text: Written, x: Tensor, position: int, reduction: str, total: str, nothing: str
    ) -> None:
        self.text, self.x, self.position, self.reduction = text, x, position, reduction
        self.total, self.nothing = total, nothing
        self.letters = [f"z{n}" for n in range(len(x.shape))]
        self.before, self.behind = self.letters[:position], self.letters[position + 1 :]
        self.along = f"for ${self.letters[position]} in 0:{text.extent_text(x.shape[position])}"

    def apart(self) -> None:
        """Along the last axis: eight lines next to each other as long as there are eight, then one after the other."""
        if not self.before:
            self._chains(0, [[]])
            return
        *outer, row = self.before
        *shape, rows = map(self.text.extent_text, self.x.shape[: self.position])
        self.text.nest(0, outer, self.x.shape[: len(outer)])
        own, depth = [f"${name}" for name in outer], len(shape)
        eights, loop = f"({rows})//{FEW}", f"{'  ' * depth}for ${row} in "
        self.text.lines.append(f"{loop}0:{eights}")
        self._chains(depth + 1, [[*own, f"{FEW}*${row} + {n}"] for n in range(FEW)])
        self.text.lines.append(f"{loop}{FEW}*({eights}):{rows}")
        self._chains(depth + 1, [[*own, f"${row}"]])

    def side_by_side(self) -> None:
        """Along another axis: the elements behind it are lanes, but where they are few."""
        depth, last = len(self.before), self.x.shape[-1]
        self.text.nest(0, self.before, self.x.shape[:depth])
        if not last.is_Integer:
            self.text.lines.append(f"{'  ' * depth}if {self.text.extent_text(last)} < {FEW}")
            self._few(depth + 1)
            self.text.lines.append(f"{'  ' * depth}else")
            self._many(depth + 1)
        elif last < FEW:
            self._few(depth)
        else:
            self._many(depth)

    def _few(self, depth: int) -> None:
        shape = self.x.shape[self.position + 1 :]
        self.text.nest(depth, self.behind, shape)
        self._chains(depth + len(shape), [[f"${name}" for name in self.before]])

    def _many(self, depth: int) -> None:
        shape = self.x.shape[self.position + 1 :]
        totals = self._totals(shape, [f"${name}" for name in self.behind])
        before = [f"${name}" for name in self.before]
        self.text.nest(depth, self.behind, shape, *self._first(totals))
        self.text.lines.append(f"{'  ' * depth}{self.along}")
        self.text.nest(depth + 1, self.behind, shape, *self._join(totals, before))
        self.text.nest(depth + 1, self.behind, shape, *self._store(totals, before))

    def _chains(self, depth: int, lines: Sequence[Sequence[str]]) -> None:
        """Lines at places before the axis, an element of each in turn."""
        indent = "  " * depth
        each = [(self._totals((1,), ["0"]), before) for before in lines]
        self.text.lines += [indent + line for totals, _ in each for line in self._first(totals)]
        self.text.lines.append(f"{indent}{self.along}")
        for totals, before in each:
            body = (*self._join(totals, before), *self._store(totals, before))
            self.text.lines += [f"{indent}  {line}" for line in body]

    def _totals(self, shape: Sequence[Any], index: Sequence[str]) -> _Totals:
        own = f"[{', '.join(index)}]"
        total = self.text.local("total", self.total, shape) + own
        with_places = len(self.text.outputs) == 2
        return _Totals(total, self.text.local("at", "int32", shape) + own if with_places else "")

    def _first(self, totals: _Totals) -> list[str]:
        lines = [f"{totals.total} = {self.nothing}"]
        return [*lines, f"{totals.at} = 0"] if totals.at else lines

    def _join(self, totals: _Totals, before: Sequence[str]) -> list[str]:
        element, total = self.text.given["x"] + self._place(before), totals.total
        own = element if self.total == self.x.dtype else f"{self.total}({element})"
        if not totals.at:
            return [f"{total} = {_JOINED[self.reduction].format(total, own)}"]
        here = f"{element} {'>=' if self.reduction == 'max' else '<='} {total}"
        if self.x.dtype in FLOATS:
            here = f"{here} or {element} != {element}"
        step = f"int32(${self.letters[self.position]})"
        return [f"if {here}", f"  {total} = {element}", f"  {totals.at} = {step}"]

    def _store(self, totals: _Totals, before: Sequence[str]) -> list[str]:
        own = zip(self.text.outputs, (self.total, "int32"), totals, strict=False)
        return [
            f"{into.name}{self._place(before)} = "
            + (one if into.dtype == dtype else f"{into.dtype}({one})")
            for into, dtype, one in own
        ]

    def _place(self, before: Sequence[str]) -> str:
        """The index of an element of a line."""
        own = [f"${name}" for name in self.letters[self.position :]]
        return f"[{', '.join([*before, *own])}]"
