"""The text of a recurrent layer, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offcut.core.program import Kind, Program
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.ops.given.arguments import flag
from offcut.ops.given.operands import check_dtype, check_shape, check_tensor
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
        arrays = {label: one for label, (one, _) in operands.items() if one is not None}
        self.x = arrays["x"]
        for label, one in arrays.items():
            _check(op, label, one, operands[label][1], self.x)
        self.text = Written(op, name, arrays)
        self.given, rows = self.text.given, self.x.shape[:2]
        self.output = self.text.result(name, self.x.dtype, (*rows, states["h"]))
        self.results = {
            one: self.text.result(f"{name}_{one}", self.x.dtype, (rows[1], width))
            for one, width in states.items()
        }
        self.steps, self.batch = map(self.text.shown, rows)
        self.step = f"{self.steps} - 1 - $t" if backwards else "$t"
        self.lines: list[str] = []

    def local(self, wish: str, width: int, kind: Kind = Kind.LOCAL) -> str:
        """An array of the step alone: so many columns for each row of the batch."""
        return self.text.local(wish, self.x.dtype, (self.x.shape[1], width), kind)

    def product(self, into: str, input_product: str | None, weights: str, state: str) -> None:
        """``into = given at the step + state @ weights.T``; without `input_product`, the product alone."""
        inner, width = next(
            map(self.text.shown, reversed(tensor.shape))
            for tensor, name in self.text.called.items()
            if name == weights
        )
        sums = into
        if input_product is not None:
            sums = self.local(f"{into}_sum", int(width), Kind.PRIVATE)
        self.lines += [
            f"  for $i in 0:{self.batch}",
            f"    for $j in 0:{width}",
            f"      {sums}[$i, $j] = 0.0",
            f"      for $k in 0:{inner}",
            f"        {sums}[$i, $j] += {state}[$i, $k] * {weights}[$j, $k]",
        ]
        if input_product is not None:
            self.lines.append(
                f"      {into}[$i, $j] = {input_product}[{self.step}, $i, $j] + {sums}[$i, $j]"
            )

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
            stored = self._within(value, into) if into in states else value
            self.lines.append(f"      {into} = {stored}")

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
    state_width = r if projection is None else projection
    check_tensor(op, "r", r, 2)
    if projection is not None:
        check_tensor(op, "projection", projection, 2)
    for one in (r, state_width):
        width = one.shape[1]
        if not (width.is_Integer and width >= 1):
            raise DescribeError(
                op,
                f"cannot take a state of {width}",
                at=repr(one),
                because="its extent is an int, at least 1",
            )
    return int(state_width.shape[1])


def _check(op: str, label: str, tensor: Tensor, shape: Sequence[Any], x: Tensor) -> None:
    check_tensor(op, label, tensor, len(shape))
    check_dtype(op, label, tensor, COUNTS if label == "lengths" else STATES)
    check_shape(op, label, tensor, shape)
    if label != "lengths":
        check_dtype(op, label, tensor, (x.dtype,))
