"""Nests of a program that are computations of their own, cut as these are, where the program is none.

A recurrence is no sequence of whole arrays, but what it does in one step may consist of some::

    for t in 0:steps                                     for t in 0:steps
      for i in 0:b                                         <tiles of G, by microkernels>
        for j in 0:n                                       for i in 0:b
          G[i, j] = P[t, i, j]                    ->         for j in 0:n
          for k in 0:m                                         H[i, j] = tanh(G[i, j])
            G[i, j] += H[i, k] * U[k, j]
      for i in 0:b
        for j in 0:n
          H[i, j] = tanh(G[i, j])

A nest is taken as a program: the iterators of the loops around it are sizes within the bounds of these, and what it
stores and others read are its results, each of them whole. The outermost nests that can be taken are. Under a loop none is
that copies operands first, at each turn of it; how constants lie costs nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, stored_arrays
from offcut.core.expr import Binary, Compare, Var, loads, variables
from offcut.core.program import Buffer, For, Kind, Program, Size, Stmt, Store, walk

_OWN = (Kind.LOCAL, Kind.PRIVATE)


def cut_nests(
    program: Program, cut: Callable[[Program], Program | None]
) -> tuple[Program, tuple[Program, ...]]:
    """`program` with its nests of products of sums cut, and what these were cut into; `program` itself where there is none.

    cut   a program of one nest, cut so that microkernels run it; None where they do not
    """
    nests = _Nests(program, cut)
    return nests.make_program(), tuple(nests.results)


def extract_nest(program: Program, body: tuple[Stmt, ...], around: Sequence[For]) -> Program:
    """`body`, which stands in loops of `program`, as a program of any iteration of these: their iterators are sizes."""
    most = {size.name: size.max for size in program.sizes}

    def size(loop: For) -> Size:
        end = ix.literal_value(loop.hi)
        if end is None and isinstance(loop.hi, Var):
            end = most.get(loop.hi.name)
        return Size(loop.iter, _first(loop) or 0, Size("").max if end is None else max(end - 1, 0))

    bounds = [
        fact
        for loop in around
        for fact in (Compare("<=", loop.lo, Var(loop.iter)), Compare("<", Var(loop.iter), loop.hi))
    ]
    return replace(
        program,
        sizes=(*program.sizes, *map(size, around)),
        assumptions=(*program.assumptions, *bounds),
        body=body,
    )


class _Nests:
    """The buffers so far, by name."""

    def __init__(self, program: Program, cut: Callable[[Program], Program | None]) -> None:
        self.program, self.cut = program, cut
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.results: list[Program] = []

    def make_program(self) -> Program:
        body = self.block(self.program.body, (), set())
        if body == self.program.body:
            return self.program
        used = accessed_arrays(body)
        used_buffers = (b for b in self.buffers.values() if b.kind not in _OWN or b.name in used)
        return replace(self.program, buffers=tuple(used_buffers), body=body)

    def block(
        self, body: tuple[Stmt, ...], around: tuple[For, ...], others: set[str]
    ) -> tuple[Stmt, ...]:
        """`body` with its nests cut.

        around   the loops that it stands in, outermost first
        others   arrays that statements outside of it touch
        """
        statements: list[Stmt] = []
        for place, stmt in enumerate(body):
            if not isinstance(stmt, For) or not has_product((stmt,)):
                statements.append(stmt)
                continue
            rest = others | accessed_arrays((*body[:place], *body[place + 1 :]))
            cut_body = self.nest(stmt, around, rest)
            if cut_body is not None:
                statements += cut_body
            elif stmt.unit is None and _first(stmt) is not None:
                statements.append(replace(stmt, body=self.block(stmt.body, (*around, stmt), rest)))
            else:
                statements.append(stmt)
        return tuple(statements)

    def nest(self, loop: For, around: tuple[For, ...], others: set[str]) -> tuple[Stmt, ...] | None:
        """What runs instead of a nest; None where it stays."""
        inside, written = accessed_arrays((loop,)), stored_arrays((loop,))
        nest = replace(
            extract_nest(self.program, (loop,), around),
            buffers=tuple(
                replace(buffer, kind=_role(buffer, written, others))
                for buffer in self.buffers.values()
                if buffer.name in inside
            ),
        )
        cut_nest = self.cut(nest)
        if cut_nest is None or not self.fits(cut_nest, bool(around), others):
            return None
        self.results.append(cut_nest)
        for buffer in cut_nest.buffers:
            old_buffer = self.buffers.get(buffer.name, buffer)
            self.buffers[buffer.name] = replace(buffer, kind=old_buffer.kind)
        return cut_nest.body

    def fits(self, cut_nest: Program, inner: bool, others: set[str]) -> bool:
        """Whether the arrays of a nest that was cut may be those of the program."""
        sizes = {size.name for size in self.program.sizes}
        for buffer in cut_nest.buffers:
            old_buffer = self.buffers.get(buffer.name)
            if old_buffer is None and buffer.kind is Kind.PRIVATE:
                if buffer.name in sizes:
                    return False
            elif old_buffer is None:
                if inner or any(variables(extent) - sizes for extent in buffer.shape):
                    return False
            elif replace(buffer, kind=old_buffer.kind) != old_buffer and buffer.name in others:
                return False
        return True


def _first(loop: For) -> int | None:
    """Where a loop starts, if that is a number that a size may be."""
    start = ix.literal_value(loop.lo)
    return start if start is not None and start >= 0 else None


def _role(buffer: Buffer, written: set[str], others: set[str]) -> Kind:
    """What an array of the program is to one nest."""
    if buffer.name not in written:
        return Kind.CONSTANT if buffer.kind is Kind.CONSTANT else Kind.INPUT
    own = buffer.kind in _OWN and buffer.name not in others
    return buffer.kind if own else Kind.OUTPUT


def has_product(body: tuple[Stmt, ...]) -> bool:
    """Whether a sum may be one of products of two arrays."""
    return any(
        isinstance(stmt, Store)
        and stmt.reduce == "sum"
        and isinstance(stmt.value, Binary)
        and len({load.buffer for load, _ in loads(stmt.value)}) > 1
        for stmt in walk(body)
    )
