"""The text of a recurrent layer, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Expr, Var, substitute
from offcut.core.program import Buffer, Kind, Program, Size
from offcut.core.sizes import condition_of, facts_about, index_of
from offcut.core.text.parser import parse
from offcut.core.text.printer import format_expr
from offcut.describe.axes import checked_name
from offcut.describe.computation import Names
from offcut.describe.reads import sizes_of
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.ops.arguments import flag
from offcut.ops.operands import check_dtype, check_shape, check_tensor

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
        self.op, self.name, self.states = op, checked_name(op, name), dict(states)
        backwards = flag(op, "reverse", reverse)
        given = {label: one for label, (one, _) in operands.items() if one is not None}
        self.x = given["x"]
        for label, one in given.items():
            _check(op, label, one, operands[label][1], self.x)
        distinct = list(dict.fromkeys(given.values()))
        called = [tensor.name for tensor in distinct]
        if len(set(called)) != len(called):
            raise DescribeError(
                op,
                "cannot tell its operands apart",
                because=f"they are called {', '.join(called)}",
                help=("a name of its own for each",),
            )
        self.names = Names()  # operands keep theirs, sizes where they can
        self.called = {tensor: self.names.fresh(tensor.name) for tensor in distinct}
        self.given = {label: self.called[tensor] for label, tensor in given.items()}
        self.dims = sizes_of(distinct)
        self.sizes: dict[str, Expr] = {d.name: Var(self.names.fresh(d.name)) for d in self.dims}
        self.output = self.names.fresh(name)
        self.results = {one: self.names.fresh(f"{name}_{one}") for one in states}
        self.locals: list[Buffer] = []
        self.steps, self.batch = map(self.shown, self.x.shape[:2])
        self.step = f"{self.steps} - 1 - $t" if backwards else "$t"
        self.lines: list[str] = []

    def extent(self, size: Any) -> Expr:
        """An extent in the names of the program."""
        found = index_of(size)
        assert found is not None
        return ix.simplify(substitute(found, self.sizes))

    def shown(self, size: Any) -> str:
        """An extent as text."""
        return format_expr(self.extent(size))

    def local(self, wish: str, width: int, kind: Kind = Kind.LOCAL) -> str:
        """An array of the step alone: so many columns for each row of the batch."""
        shape = self.extent(self.x.shape[1]), ix.const(width)
        made = Buffer(self.names.fresh(wish), self.x.dtype, shape, kind)
        self.locals.append(made)
        return made.name

    def product(self, into: str, given: str | None, weights: str, state: str) -> None:
        """``into = given at the step + state @ weights.T``; without `given`, the product alone."""
        inner, width = next(
            map(self.shown, reversed(tensor.shape))
            for tensor, name in self.called.items()
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
        x = self.x
        width = next(w for one, w in self.states.items() if self.results[one] == state)
        shown = self._within(f"{state}[$i, $j]", "0.0")
        self.lines.append(f"      {self.output}[{self.step}, $i, $j] = {shown}")
        rows = tuple(map(self.extent, x.shape[:2]))
        buffers = [
            Buffer(name, tensor.dtype, tuple(map(self.extent, tensor.shape)), Kind.INPUT)
            for tensor, name in self.called.items()
        ]
        buffers.append(Buffer(self.output, x.dtype, (*rows, ix.const(width)), Kind.OUTPUT))
        buffers += [
            Buffer(self.results[one], x.dtype, (rows[1], ix.const(w)), Kind.OUTPUT)
            for one, w in self.states.items()
        ]
        conditions = [condition_of(fact) for fact in facts_about(self.dims)]
        head = Program(
            self.name,
            tuple(Size(self.shown(d), d.min, d.max, d.multiple_of) for d in self.dims),
            tuple(substitute(one, self.sizes) for one in conditions if one is not None),
            (*buffers, *self.locals),
            (),
        )
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
        steps = f"for $t in 0:{self.steps}"
        text = "\n".join([str(head).rstrip(), *start, steps, *self.lines, ""])
        for mark in "tijk":
            text = text.replace(f"${mark}", self.names.fresh(mark))
        return parse(text)


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
    check_tensor(op, label, given, len(shape))
    check_dtype(op, label, given, COUNTS if label == "lengths" else STATES)
    check_shape(op, label, given, shape)
    if label != "lengths":
        check_dtype(op, label, given, (x.dtype,))
    if given.definition is not None:
        raise DescribeError(
            op,
            f"cannot take {label} = {given.name}",
            because="it is computed, and a program reads placeholders",
            help=(f'placeholder(…, name="{given.name}")',),
        )
