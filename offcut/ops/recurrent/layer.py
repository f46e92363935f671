"""The text of a recurrent layer, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offcut.core.program import Kind, Program
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.ops.given.arguments import flag
from offcut.ops.given.operands import check_shape, check_tensor
from offcut.ops.programs.written import Written

STATES = ("float32", "float64")
COUNTS = ("int32", "int64")


class Layer:
    """A layer as far as it is written: its operands, and what a step does.

    operands  by label, with the shape of each; None for one that is not given
    states    what is kept from step to step: the columns of each
    step      the index of the step in a sequence; ``$t``, ``$i``, ``$j`` and ``$k`` stand for iterators

    Raises DescribeError where an operand is not of its shape, or two of one name are not one.
    """

    def __init__(
        self,
        op: str,
        name: str,
        reverse: Any,
        operands: Mapping[str, tuple[Tensor | None, Sequence[Any]]],
        states: Mapping[str, int],
    ) -> None:
        backwards, self.states = flag(op, "reverse", reverse), dict(states)
        given = {label: one for label, (one, _) in operands.items() if one is not None}
        self.x = given["x"]
        for label, one in given.items():
            _check(op, label, one, operands[label][1], self.x)
        self.text = Written(op, name, given)
        self.given, rows = self.text.given, self.x.shape[:2]
        self.output = self.text.result(name, self.x.dtype, (*rows, states["h"]))
        self.results = {
            one: self.text.result(f"{name}_{one}", self.x.dtype, (rows[1], width))
            for one, width in states.items()
        }
        self.steps, self.batch = map(self.text.shown, rows)
        self.step = f"{self.steps} - 1 - $t" if backwards else "$t"
        self.lines: list[str] = []

    def local(self, wish: str, width: int, kind: Kind = Kind.LOCAL, dtype: str = "") -> str:
        """An array of the step alone: so many columns for each row of the batch, of the type of the input by default."""
        return self.text.local(wish, dtype or self.x.dtype, (self.x.shape[1], width), kind)

    def product(self, into: str, given: str | None, weights: str, state: str) -> None:
        """``into = given at the step + state @ weights.T``; without `given`, the product alone."""
        inner, width = next(
            map(self.text.shown, reversed(tensor.shape))
            for tensor, name in self.text.called.items()
            if name == weights
        )
        sums = into
        if given is not None:
            sums = self.local(f"{into}_sum", int(width), Kind.PRIVATE)
        self.lines += [
            f"  for $i in 0:{self.batch}",
            f"    for $j in 0:{width}",
            f"      {sums}[$i, $j] = 0.0",
            f"      for $k in 0:{inner}",
            f"        {sums}[$i, $j] += {state}[$i, $k] * {weights}[$j, $k]",
        ]
        if given is not None:
            self.lines.append(
                f"      {into}[$i, $j] = {given}[{self.step}, $i, $j] + {sums}[$i, $j]"
            )

    def byte_product(self, into: str, weights: str, state: str) -> None:
        """``into = given at the step + state @ weights.T``, of weights of int8 and a state that is quantized to uint8 by its least and its greatest element.

        In int32, ``sum (q - z) * (r - u) = sum q * r - u * sum q - z * sum (r - u)``; of the last sum the operand `sums` has one for each row of weights.
        """
        inner, width = self.states["h"], 4 * self.states["c"]
        low, high, unit, point = (
            self.text.local(f"{into}_{wish}", dtype, (1,))
            for wish, dtype in (
                *(("low", "float32"), ("high", "float32"), ("unit", "float32")),
                ("zero", "int32"),
            )
        )
        data = self.local(f"{into}_bytes", inner, dtype="uint8")
        total = self.local(f"{into}_sum", width, Kind.PRIVATE, "int32")
        zero, rows = self.given.get("zero"), ""
        span, start = f"{high}[0] - {low}[0]", f"-{low}[0] / {unit}[0]"
        near = f"int32(round({state}[$i, $k] / {unit}[0])) + {point}[0]"
        self.lines += [
            f"  {low}[0] = 0.0",
            f"  {high}[0] = 0.0",
            f"  for $i in 0:{self.batch}",
            f"    for $k in 0:{inner}",
            f"      {low}[0] min= {state}[$i, $k]",
            f"      {high}[0] max= {state}[$i, $k]",
            f"  {unit}[0] = where({span} > 0.0, ({span}) / 255.0, 1.0)",
            f"  {point}[0] = int32(round(min(max({start}, 0.0), 255.0)))",
            f"  for $i in 0:{self.batch}",
            f"    for $k in 0:{inner}",
            f"      {data}[$i, $k] = uint8(min(max({near}, 0), 255))",
        ]
        if zero is not None:
            row = self.text.local(f"{into}_rows", "int32", (self.x.shape[1],))
            self.lines += [
                f"  for $i in 0:{self.batch}",
                f"    {row}[$i] = 0",
                f"    for $k in 0:{inner}",
                f"      {row}[$i] += int32({data}[$i, $k])",
            ]
            rows = f" - {zero}[$j] * {row}[$i]"
        whole = f"{total}[$i, $j] - {point}[0] * {self.given['sums']}[$j]{rows}"
        self.lines += [
            f"  for $i in 0:{self.batch}",
            f"    for $j in 0:{width}",
            f"      {total}[$i, $j] = 0",
            f"      for $k in 0:{inner}",
            f"        {total}[$i, $j] += int32({data}[$i, $k]) * int32({weights}[$j, $k])",
            f"      {into}[$i, $j] = {self.given['x']}[{self.step}, $i, $j] + float32({whole}) * ({unit}[0] * {self.given['scale']}[$j])",
        ]

    def element(self, *stores: tuple[str, str]) -> None:
        """``element = value`` one after the other for each element of a state; a state stays past the length of its row."""
        self._nest([*self.states.values()][-1], stores)

    def projected(self, state: str, wide: str) -> None:
        """``state = wide @ projection.T``."""
        width = self.states["h"]
        narrow = self.local(f"{wide}_projected", width)
        self.product(narrow, None, self.given["projection"], wide)
        self._nest(width, [(f"{state}[$i, $j]", f"{narrow}[$i, $j]")])

    def _nest(self, width: int, stores: Sequence[tuple[str, str]]) -> None:
        self.lines += [f"  for $i in 0:{self.batch}", f"    for $j in 0:{width}"]
        states = {f"{name}[$i, $j]" for name in self.results.values()}
        for into, value in stores:
            kept = self._within(value, into) if into in states else value
            self.lines.append(f"      {into} = {kept}")

    def _within(self, value: str, other: str) -> str:
        """A value; another past the length of a row."""
        if "lengths" not in self.given:
            return value
        return f"where({self.step} < index({self.given['lengths']}[$i]), {value}, {other})"

    def program(self, state: str) -> Program:
        """The whole program, which keeps each element of `state` where it was stored last."""
        shown = self._within(f"{state}[$i, $j]", "0.0")
        self.lines.append(f"      {self.output}[{self.step}, $i, $j] = {shown}")
        start = [
            line
            for one, w in self.states.items()
            for line in (
                f"for $i in 0:{self.batch}",
                f"  for $j in 0:{w}",
                f"    {self.results[one]}[$i, $j] = "
                + (f"{self.given[one]}[$i, $j]" if one in self.given else "0.0"),
            )
        ]
        self.text.lines += [*start, f"for $t in 0:{self.steps}", *self.lines]
        return self.text.made()


def width_of(op: str, r: Tensor, projection: Tensor | None = None) -> int:
    """The columns of a state.

    r           the weights that it is multiplied by
    projection  where there is one, its columns are

    Raises DescribeError where they are no number.
    """
    found = r if projection is None else projection
    check_tensor(op, "r", r, 2)
    if projection is not None:
        check_tensor(op, "projection", projection, 2)
    for one in (r, found):
        width = one.shape[1]
        if not (width.is_Integer and width >= 1):
            raise DescribeError(
                op,
                f"cannot take a state of {width}",
                at=repr(one),
                because="its extent is an int, at least 1",
            )
    return int(found.shape[1])


def _check(op: str, label: str, given: Tensor, shape: Sequence[Any], x: Tensor) -> None:
    kinds = {"lengths": COUNTS, "sums": ("int32",), "zero": ("int32",), "x": STATES}
    weights = ("int8",) if label == "r" and given.dtype == "int8" else (x.dtype,)
    check_tensor(op, label, given, len(shape), dtypes=kinds.get(label, weights))
    check_shape(op, label, given, shape)
