"""A program without its copies: what a local array holds is read from where it came.

A nest that stores every element of a local array, each as a function of its place, is a copy of what
that function reads: padded, transposed, converted, or computed ahead. Where the nest is done before
any reader begins, and what it reads stays as it is until the last of them, a read of the array is
that function at the element that is read::

    for z in 0:n + 2                                        for x in 0:n
      S[z] = where(z >= 1 and z <= n, X[z - 1], 0.0)          for r in 0:3
    for x in 0:n                                       ->       Y[x] += F[r] * where(…, X[x + r - 1], 0.0)
      for r in 0:3
        Y[x] += F[r] * S[x + r]

That the nest, in whatever pieces, stores every element so is proved as any other cut is: beside plain
loops over the array (`check_structure`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.conditions import negated
from offcut.core.expr import Expr, Load, Var, rewrite, substitute, variables, walk
from offcut.core.program import (
    Alloc,
    Buffer,
    For,
    If,
    Kind,
    Program,
    Stmt,
    Store,
    Tile,
    expressions,
    mapped,
)
from offcut.core.program import walk as statements
from offcut.partition.structure import NotStructural, check_structure

_MOST_FORMS = 4  # of the statement of one copy, in its pieces


def forwarded(program: Program, kept: Collection[str] = ()) -> Program:
    """`program` with the readers of each copy reading what was copied, and without the copies.

    program   leaves no choice; all that it accesses lies inside of its buffers
    kept      arrays that stay, copies or not
    """
    for buffer in program.buffers:
        if buffer.kind is Kind.LOCAL and buffer.name not in kept:
            whole = (None,) * len(buffer.shape)
            body = _Copy(program, buffer).without(program.body, (), whole)
            if buffer.name not in _touched(body):
                left = tuple(other for other in program.buffers if other != buffer)
                program = replace(program, buffers=left, body=body)
    return program


Held = tuple[Expr | None, ...]
"""What is there of an array, by axis: one coordinate; None: all of them."""


class _Copy:
    """A local array, and how to do without it where it is a copy."""

    def __init__(self, program: Program, buffer: Buffer) -> None:
        self.program, self.buffer = program, buffer

    def without(
        self, body: tuple[Stmt, ...], around: tuple[Stmt, ...], held: Held
    ) -> tuple[Stmt, ...]:
        """`body` without the array, where that can be told; else as it is.

        around   the loops and conditions that it stands in, outermost first
        """
        name = self.buffer.name
        storing = [p for p, stmt in enumerate(body) if name in _stored((stmt,))]
        if not storing:
            return body
        first, last = storing[0], storing[-1] + 1
        before, nest, after = body[:first], body[first:last], body[last:]
        if name not in _touched(after):
            if len(nest) > 1:
                return body
            return (*before, *self.inside(nest[0], around, held), *after)
        copied = self.copied(nest, around, held)
        if copied is None or _stored(after) & {load.buffer for load in _loads(copied.value)}:
            return body
        return (*before, *(mapped(one, lambda e: self.read(e, held, copied)) for one in after))

    def inside(self, stmt: Stmt, around: tuple[Stmt, ...], held: Held) -> tuple[Stmt, ...]:
        """`stmt`, outside of which nothing reads the array, likewise."""
        match stmt:
            case Alloc(name, axes, body) if name == self.buffer.name:
                window = _held(self.buffer, axes)
                left = body if window is None else self.without(body, around, window)
                return (stmt,) if name in _touched(left) else left
            case Alloc():
                return (replace(stmt, body=self.without(stmt.body, around, held)),)
            case For() | Tile():
                further = (*around, replace(stmt, body=()))
                return (replace(stmt, body=self.without(stmt.body, further, held)),)
            case If(condition, then, other):
                holds, fails = If(condition, ()), If(negated(condition), ())
                then = self.without(then, (*around, holds), held)
                return (If(condition, then, self.without(other, (*around, fails), held)),)
            case _:
                return (stmt,)

    def copied(self, nest: tuple[Stmt, ...], around: Sequence[Stmt], held: Held) -> Store | None:
        """The store that `nest` makes of each element that is there, where it does just that."""
        forms = [stmt for stmt in statements(nest) if isinstance(stmt, Store)]
        if any(form.buffer != self.buffer.name or form.reduce is not None for form in forms):
            return None
        for form in list(dict.fromkeys(forms))[:_MOST_FORMS]:
            plain = self.plain(form, around, held)
            if plain is None:
                continue
            try:
                check_structure(self.alone(plain, around), self.alone(nest, around))
            except NotStructural:
                continue
            return form
        return None

    def plain(self, form: Store, around: Sequence[Stmt], held: Held) -> tuple[Stmt, ...] | None:
        """Loops that store all that is there, a coordinate by each index of `form`."""
        names = {size.name for size in self.program.sizes} | _bound(around)
        loops: dict[str, Expr] = {}
        for own, one, extent in zip(form.index, held, self.buffer.shape, strict=True):
            if own == one:
                continue
            if one is not None or not isinstance(own, Var) or own.name in names | loops.keys():
                return None
            loops[own.name] = extent
        if variables(form.value) - names - loops.keys():
            return None
        plain: tuple[Stmt, ...] = (form,)
        for name, extent in reversed(loops.items()):
            plain = (For(name, ix.const(0), extent, plain),)
        return plain

    def alone(self, body: tuple[Stmt, ...], around: Sequence[Stmt]) -> Program:
        """The program that runs `body` wherever `around` does, and gives back the array."""
        for stmt in reversed(around):
            body = _around(stmt, body)
        names = _touched(body)
        buffers = (buffer for buffer in self.program.buffers if buffer.name in names)
        kinds = {self.buffer.name: Kind.OUTPUT}
        plain = tuple(replace(b, kind=kinds.get(b.name, Kind.INPUT), layout=None) for b in buffers)
        return replace(self.program, buffers=plain, body=body)

    def read(self, expr: Expr, held: Held, copied: Store) -> Expr:
        """`expr` with the array's elements written out, but for those that are not there."""

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer != self.buffer.name:
                return None
            at: dict[str, Expr] = {}
            for own, one, asked in zip(copied.index, held, node.index, strict=True):
                if one is None:
                    assert isinstance(own, Var)
                    at[own.name] = asked
                elif one != asked:
                    return None
            return ix.folded(substitute(copied.value, at))

        return rewrite(expr, rule)


def _held(buffer: Buffer, axes: Sequence[tuple[Expr, Expr]]) -> Held | None:
    """A window that has one coordinate, or all of them, on each axis; None of any other."""
    found: list[Expr | None] = []
    for extent, (start, count) in zip(buffer.shape, axes, strict=True):
        if ix.literal(count) == 1:
            found.append(start)
        elif ix.literal(start) == 0 and count == extent:
            found.append(None)
        else:
            return None
    return tuple(found)


def _around(stmt: Stmt, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`body` where a loop, a condition, or the points of a tile run it."""
    match stmt:
        case For():
            return (replace(stmt, body=body),)
        case If():
            return (replace(stmt, then=body),)
        case Tile(axes, _, where):
            body = body if where is None else (If(where, body),)
            for axis in reversed(axes):
                body = (For(axis.iter, axis.start, ix.add(axis.start, axis.extent), body),)
            return body
        case _:
            raise AssertionError(stmt)


def _bound(around: Sequence[Stmt]) -> set[str]:
    """The names of loops."""
    loops = {stmt.iter for stmt in around if isinstance(stmt, For)}
    return loops | {a.iter for stmt in around if isinstance(stmt, Tile) for a in stmt.axes}


def _stored(body: tuple[Stmt, ...]) -> set[str]:
    return {stmt.buffer for stmt in statements(body) if isinstance(stmt, Store)}


def _loads(expr: Expr) -> list[Load]:
    return [node for node in walk(expr) if isinstance(node, Load)]


def _touched(body: tuple[Stmt, ...]) -> set[str]:
    """The arrays that `body` reads or stores."""
    found = _stored(body)
    for stmt in statements(body):
        for expr in expressions(stmt):
            found |= {load.buffer for load in _loads(expr)}
    return found
