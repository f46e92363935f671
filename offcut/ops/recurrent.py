"""Recurrent layers over a sequence of any length, as loop programs.

What a step reads of the step before is no tensor of expressions: these give a `Program`, which `offcut.compile` takes. The
product of the input with its weights is not in it: it is one product for all steps, `dense` of (steps, batch, e). The
products of the state are nests of their own inside the loop over the steps, which microkernels run; weights bound as
constants lie as these read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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


def lstm(
    x: Tensor,
    r: Tensor,
    h: Tensor,
    c: Tensor,
    gates: str = "ifgo",
    reverse: bool = False,
    *,
    name: str = "lstm",
) -> Program:
    """A program of the layer: for each step, with ``G = x[t] + h @ r.T`` in four parts of w columns,
    ``c = sigmoid(f) * c + sigmoid(i) * tanh(g)`` and ``h = sigmoid(o) * tanh(c)``.

    x         (steps, batch, 4w) of float32 or float64: the input times its weights, biases added; w is an int
    r         (4w, w), the weights of the state
    h, c      (batch, w), the state before the first step
    gates     the order of the parts in `x` and `r`: torch "ifgo", ONNX "iofg"
    reverse   whether the last step comes first

    Its results are `name`, (steps, batch, w), the state h after each step, ``{name}_h`` and ``{name}_c`` after
    the last.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    order = _order("lstm", gates, "ifgo")
    layer = _Layer("lstm", x, r, 4, {"h": h, "c": c}, {}, reverse, name)
    g, state, cell = layer.local("G"), layer.result("h"), layer.result("c")
    i, f, z, o = (f"{g}[$i, $j + {order[gate] * layer.width}]" for gate in "ifgo")
    layer.product(g, layer.given("x"), layer.given("r"), state)
    layer.element(f"{cell}[$i, $j]", f"{_sigmoid(f)} * {cell}[$i, $j] + {_sigmoid(i)} * tanh({z})")
    layer.element(f"{state}[$i, $j]", f"{_sigmoid(o)} * tanh({cell}[$i, $j])")
    return layer.program(state)


def gru(
    x: Tensor,
    r: Tensor,
    h: Tensor,
    bias: Tensor,
    gates: str = "rzn",
    reverse: bool = False,
    *,
    name: str = "gru",
) -> Program:
    """A program of the layer: for each step, with the parts r, z, n of w columns of ``x[t]`` and of ``Q = h @ r.T``,
    ``h = (1 - z) * n + z * h``, where ``n = tanh(x_n + sigmoid(x_r + Q_r) * (Q_n + bias))`` and
    ``z = sigmoid(x_z + Q_z)``.

    x         (steps, batch, 3w) of float32 or float64, as in `lstm`, with all biases but this one
    r         (3w, w), the weights of the state
    h         (batch, w), the state before the first step
    bias      (w,), what is added to Q_n: torch's layer, ONNX's with ``linear_before_reset=1``
    gates     the order of the parts: torch "rzn", ONNX "zrn"
    reverse   whether the last step comes first

    Its results are `name`, (steps, batch, w), the state after each step, and ``{name}_h`` after the last.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    order = _order("gru", gates, "rzn")
    layer = _Layer("gru", x, r, 3, {"h": h}, {"bias": bias}, reverse, name)
    q, state = layer.local("Q"), layer.result("h")
    parts = {gate: f"$i, $j + {place * layer.width}" for gate, place in order.items()}
    given = {gate: f"{layer.given('x')}[{layer.step}, {at}]" for gate, at in parts.items()}
    seen = {gate: f"{q}[{at}]" for gate, at in parts.items()}
    reset, update = (_sigmoid(f"{given[gate]} + {seen[gate]}") for gate in "rz")
    new = f"tanh({given['n']} + {reset} * ({seen['n']} + {layer.given('bias')}[$j]))"
    layer.product(q, None, layer.given("r"), state)
    layer.element(f"{state}[$i, $j]", f"(1.0 - {update}) * {new} + {update} * {state}[$i, $j]")
    return layer.program(state)


class _Layer:
    """The text of a layer, as far as it is written.

    parts     of w columns each
    states    what is there before the first step; others   what does not change
    step      the index of the step in a sequence; ``$t``, ``$i``, ``$j`` and ``$k`` stand for iterators
    """

    def __init__(
        self,
        op: str,
        x: Tensor,
        r: Tensor,
        parts: int,
        states: dict[str, Tensor],
        others: dict[str, Tensor],
        reverse: Any,
        name: str,
    ) -> None:
        self.op, self.name = op, checked_name(op, name)
        self.tensors = {"x": x, "r": r, **states, **others}
        _check(op, x, r, parts, states, others)
        self.width, self.states = int(r.shape[1]), tuple(states)
        self.dims = sizes_of(list(self.tensors.values()))
        names = [tensor.name for tensor in self.tensors.values()]
        if len(set(names)) != len(names):
            raise DescribeError(
                op,
                "cannot tell its operands apart",
                because=f"they are called {', '.join(names)}",
                help=("a name of its own for each",),
            )
        self.names = Names(dim.name for dim in self.dims)
        self.called = {label: self.names.fresh(one.name) for label, one in self.tensors.items()}
        self.output = self.names.fresh(name)
        self.results = {one: self.names.fresh(f"{name}_{one}") for one in states}
        self.locals: list[Buffer] = []
        self.steps, self.batch = (format_expr(self.extent(x.shape[n])) for n in (0, 1))
        backwards = flag(op, "reverse", reverse)
        self.step = f"{self.steps} - 1 - $t" if backwards else "$t"
        self.lines: list[str] = []

    def extent(self, size: Any) -> Any:
        found = index_of(size)
        assert found is not None
        return found

    def given(self, label: str) -> str:
        """What an operand is called."""
        return self.called[label]

    def result(self, state: str) -> str:
        """What a state is called, in which it is kept and given back."""
        return self.results[state]

    def local(self, wish: str) -> str:
        """An array of the step alone, of all parts."""
        x = self.tensors["x"]
        shape = (self.extent(x.shape[1]), self.extent(x.shape[2]))
        made = Buffer(self.names.fresh(wish), x.dtype, shape, Kind.LOCAL)
        self.locals.append(made)
        return made.name

    def product(self, into: str, given: str | None, weights: str, state: str) -> None:
        """``into = given at the step + state @ weights.T``; without `given`, the product alone."""
        sums = into
        if given is not None:
            whole = next(one for one in self.locals if one.name == into)
            sums = self.names.fresh(f"{into}_sum")
            self.locals.append(replace(whole, name=sums, kind=Kind.PRIVATE))
        self.lines += [
            f"  for $i in 0:{self.batch}",
            f"    for $j in 0:{format_expr(self.extent(self.tensors['r'].shape[0]))}",
            f"      {sums}[$i, $j] = 0.0",
            f"      for $k in 0:{self.width}",
            f"        {sums}[$i, $j] += {state}[$i, $k] * {weights}[$j, $k]",
        ]
        if given is not None:
            self.lines.append(
                f"      {into}[$i, $j] = {given}[{self.step}, $i, $j] + {sums}[$i, $j]"
            )

    def element(self, into: str, value: str) -> None:
        """A statement for each element of the state."""
        self.lines += [
            f"  for $i in 0:{self.batch}",
            f"    for $j in 0:{self.width}",
            f"      {into} = {value}",
        ]

    def program(self, state: str) -> Program:
        """The whole program, which keeps `state` of each step."""
        self.element(f"{self.output}[{self.step}, $i, $j]", f"{state}[$i, $j]")
        x = self.tensors["x"]
        rows = tuple(self.extent(x.shape[n]) for n in (0, 1))
        width = self.extent(self.tensors["r"].shape[1])
        buffers = [
            Buffer(self.called[label], one.dtype, tuple(map(self.extent, one.shape)), Kind.INPUT)
            for label, one in self.tensors.items()
        ]
        buffers.append(Buffer(self.output, x.dtype, (*rows, width), Kind.OUTPUT))
        buffers += [
            Buffer(one, x.dtype, (rows[1], width), Kind.OUTPUT) for one in self.results.values()
        ]
        conditions = [condition_of(fact) for fact in facts_about(self.dims)]
        head = Program(
            self.name,
            tuple(Size(d.name, d.min, d.max, d.multiple_of) for d in self.dims),
            tuple(one for one in conditions if one is not None),
            (*buffers, *self.locals),
            (),
        )
        start = [
            line
            for one, kept in self.results.items()
            for line in (
                f"for $i in 0:{self.batch}",
                f"  for $j in 0:{self.width}",
                f"    {kept}[$i, $j] = {self.given(one)}[$i, $j]",
            )
        ]
        steps = f"for $t in 0:{self.steps}"
        text = "\n".join([str(head).rstrip(), *start, steps, *self.lines, ""])
        for mark in "tijk":
            text = text.replace(f"${mark}", self.names.fresh(mark))
        return parse(text)


def _sigmoid(value: str) -> str:
    return f"1.0 / (1.0 + exp(-({value})))"


def _order(op: str, gates: Any, known: str) -> dict[str, int]:
    if not isinstance(gates, str) or sorted(gates) != sorted(known):
        raise DescribeError(
            op,
            f"cannot take gates={gates!r}",
            because=f"gates are the letters of {known!r} in the order of the weights",
        )
    return {gate: gates.index(gate) for gate in known}


def _check(
    op: str,
    x: Tensor,
    r: Tensor,
    parts: int,
    states: dict[str, Tensor],
    others: dict[str, Tensor],
) -> None:
    check_tensor(op, "x", x, 3)
    check_dtype(op, "x", x, STATES)
    check_tensor(op, "r", r, 2)
    width = r.shape[1]
    if not (width.is_Integer and width >= 1):
        raise DescribeError(
            op,
            f"cannot take a state of {width}",
            at=repr(r),
            because="its extent is an int, at least 1",
        )
    wanted: list[tuple[str, Tensor, Sequence[Any]]] = [
        ("r", r, (parts * width, width)),
        ("x", x, (*x.shape[:2], parts * width)),
        *((label, one, (x.shape[1], width)) for label, one in states.items()),
        *((label, one, (width,)) for label, one in others.items()),
    ]
    for label, tensor, shape in wanted:
        check_tensor(op, label, tensor, len(shape))
        check_shape(op, label, tensor, shape)
        check_dtype(op, label, tensor, (x.dtype,))
    for label, tensor in (("x", x), ("r", r), *states.items(), *others.items()):
        if tensor.definition is not None:
            raise DescribeError(
                op,
                f"cannot take {label} = {tensor.name}",
                because="it is computed, and a program reads placeholders",
                help=(f'placeholder(…, name="{tensor.name}")',),
            )
