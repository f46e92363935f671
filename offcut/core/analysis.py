"""Facts of a program that are computed once: its statements by kind, the names that it binds, the values that elements start from."""

from __future__ import annotations

from typing import TypeVar

from offcut.core.expr import Expr
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
    def starts(self) -> dict[str, set[Expr]]:
        """The values that are assigned to each buffer, without those that the caller fills, too."""
        updated = {buffer.name for buffer in self.program.buffers if buffer.kind is Kind.INOUT}
        values: dict[str, set[Expr]] = {}
        for stmt in self.of(Store):
            if stmt.reduce is None and stmt.buffer not in updated:
                values.setdefault(stmt.buffer, set()).add(stmt.value)
        return values


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
