"""Facts of a program that are computed once: its statements by kind, the names that it binds, the sums that begin as 0."""

from __future__ import annotations

from typing import TypeVar

from offcut.core.dtypes import is_identity
from offcut.core.expr import Const, Expr, is_zero
from offcut.core.memo import lazy_property, memo, memoize_method
from offcut.core.program import STATUS, Alloc, For, Kind, Program, Stmt, Store, walk

_Kind = TypeVar("_Kind", bound=Stmt)


class Analysis:
    """The facts of one program, each computed at its first use. `analysis` returns it."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @lazy_property
    def statements(self) -> tuple[Stmt, ...]:
        """Every statement, parents first."""
        return tuple(walk(self.program.body))

    @memoize_method
    def of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        """Return the statements of one kind, parents first."""
        return tuple(stmt for stmt in self.statements if isinstance(stmt, kind))

    def has(self, *kinds: type[Stmt]) -> bool:
        """Return whether there is a statement of one of these kinds."""
        return any(map(self.of, kinds))

    @lazy_property
    def iterators(self) -> frozenset[str]:
        """The names of loops; those of the axes of tiles are not among them."""
        return frozenset(loop.iter for loop in self.of(For))

    @lazy_property
    def windows(self) -> frozenset[str]:
        """The buffers that have a window."""
        return frozenset(stmt.buffer for stmt in self.of(Alloc))

    @lazy_property
    def stored_buffers(self) -> frozenset[str]:
        """The buffers that are stored to."""
        return frozenset(stmt.buffer for stmt in self.of(Store))

    @lazy_property
    def status_buffers(self) -> frozenset[str]:
        """The buffers that say whether some access would have left an array: whoever says so says the same."""
        return frozenset(b.name for b in self.program.buffers if b.scope == STATUS)

    @lazy_property
    def zero_sums(self) -> frozenset[str]:
        """The buffers that begin as 0 and are only added to: no element of them is -0.0, so adding a zero of either sign changes nothing."""
        begun = {stmt.buffer for stmt in self.of(Store) if stmt.reduce is None}
        others = {buffer.name for buffer in self.program.buffers if buffer.kind is Kind.INOUT}
        for stmt in self.of(Store):
            if not (is_zero(stmt.value) if stmt.reduce is None else stmt.reduce == "sum"):
                others.add(stmt.buffer)
        return frozenset(begun - others)

    def adds_nothing(self, store: Store, value: Expr) -> bool:
        """Return whether updating an element with a literal changes nothing: with a neutral one, or with a zero in one of `zero_sums`."""
        if store.reduce is None or not isinstance(value, Const):
            return False
        is_sum = store.reduce == "sum" and store.buffer in self.zero_sums
        return is_identity(store.reduce, value.value, value.dtype) or (is_sum and value.value == 0)


class _Identity:
    """A program as a key, compared by identity: hashing a program visits all of it."""

    __slots__ = ("program",)

    def __init__(self, program: Program) -> None:
        self.program = program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.program is other.program

    def __hash__(self) -> int:
        return id(self.program)


def analysis(program: Program) -> Analysis:
    """Return the facts of `program`: one object for it until `memo.forget` is called."""
    return _analysis(_Identity(program))


@memo(64)
def _analysis(key: _Identity) -> Analysis:
    return Analysis(key.program)
