"""Operators that are written as loop programs: what they have in common, and their text.

What one iteration reads of the iteration before is no tensor of expressions. Such an operator gives a `Program`, which
`offcut.compile` takes, and which is an operator of graphs as others are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Expr, Var, substitute
from offcut.core.program import Buffer, Kind, Program, Size
from offcut.core.sizes import condition_of, facts_about, index_of
from offcut.core.text.parser import parse
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Names
from offcut.describe.tensor import Tensor, checked_name, sizes_of
from offcut.errors import DescribeError

_ITERATOR = re.compile(r"\$(\w+)")


class Written:
    """A loop program as far as it is written.

    operands  by label; each is checked already but for being a placeholder
    given     what the program calls each operand, by label
    lines     its statements; ``$i`` stands for an iterator of its own, one for each such name

    Raises DescribeError where an operand is computed, or two of one name are not one.
    """

    def __init__(self, op: str, name: str, operands: Mapping[str, Tensor]) -> None:
        self.op, self.name = op, checked_name(op, name)
        for label, one in operands.items():
            if one.definition is not None:
                raise DescribeError(
                    op,
                    f"cannot take {label} = {one.name}",
                    because="it is computed, and a program reads placeholders",
                    help=(f'placeholder(…, name="{one.name}")',),
                )
        distinct = list(dict.fromkeys(operands.values()))
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
        self.given = {label: self.called[tensor] for label, tensor in operands.items()}
        self.dims = sizes_of(distinct)
        self.sizes: dict[str, Expr] = {d.name: Var(self.names.fresh(d.name)) for d in self.dims}
        self.outputs: list[Buffer] = []
        self.locals: list[Buffer] = []
        self.lines: list[str] = []

    def extent(self, size: Any) -> Expr:
        """An extent in the names of the program."""
        if isinstance(size, int):
            return ix.const(size)
        index = index_of(size)
        assert index is not None
        return ix.simplify(substitute(index, self.sizes))

    def extent_text(self, size: Any) -> str:
        """An extent as text."""
        return format_expr(self.extent(size))

    def result(self, wish: str, dtype: str, shape: Sequence[Any]) -> str:
        """The name of one more result."""
        return self._declare(self.outputs, wish, dtype, shape, Kind.OUTPUT)

    def local(self, wish: str, dtype: str, shape: Sequence[Any], kind: Kind = Kind.LOCAL) -> str:
        """The name of one more array of the program alone."""
        return self._declare(self.locals, wish, dtype, shape, kind)

    def _declare(
        self, among: list[Buffer], wish: str, dtype: str, shape: Sequence[Any], kind: Kind
    ) -> str:
        buffer = Buffer(self.names.fresh(wish), dtype, tuple(map(self.extent, shape)), kind)
        among.append(buffer)
        return buffer.name

    def nest(self, depth: int, letters: Sequence[str], shape: Sequence[Any], *body: str) -> None:
        """Write loops over the places of an array around some lines.

        depth  of the outermost loop, in levels
        """
        for level, (letter, extent) in enumerate(zip(letters, shape, strict=True)):
            self.lines.append(
                f"{'  ' * (depth + level)}for ${letter} in 0:{self.extent_text(extent)}"
            )
        inner = "  " * (depth + len(letters))
        self.lines += [inner + line for line in body]

    def program(self) -> Program:
        """The whole program."""
        buffers = [
            Buffer(name, tensor.dtype, tuple(map(self.extent, tensor.shape)), Kind.INPUT)
            for tensor, name in self.called.items()
        ]
        conditions = [condition_of(fact) for fact in facts_about(self.dims)]
        head = Program(
            self.name,
            tuple(Size(self.extent_text(d), d.min, d.max, d.multiple_of) for d in self.dims),
            tuple(substitute(one, self.sizes) for one in conditions if one is not None),
            (*buffers, *self.outputs, *self.locals),
            (),
        )
        text = "\n".join([str(head).rstrip(), *self.lines, ""])
        for wish in dict.fromkeys(_ITERATOR.findall(text)):
            text = re.sub(rf"\${wish}\b", self.names.fresh(wish), text)
        return parse(text)
