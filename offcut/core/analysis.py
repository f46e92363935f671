"""What a program says, found once for each program: its statements by kind, the names that it binds, where its elements start."""

from __future__ import annotations

from typing import TypeVar

from offcut.core.expr import Expr
from offcut.core.memo import lazy_property, memo, memoize_method
from offcut.core.program import Alloc, For, Kind, Program, Stmt, Store, walk

_Kind = TypeVar("_Kind", bound=Stmt)


class Analysis:
    """The facts of one program, each computed when it is first asked for. `analysis` gives it."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @lazy_property
    def statements(self) -> tuple[Stmt, ...]:
        """Every statement, parents first."""
        return tuple(walk(self.program.body))

    @memoize_method
    def of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        """The statements of one kind, parents first."""
        return tuple(stmt for stmt in self.statements if isinstance(stmt, kind))

    def has(self, *kinds: type[Stmt]) -> bool:
        """Whether there is a statement of one of these kinds."""
        return any(map(self.of, kinds))

    @lazy_property
    def iterators(self) -> frozenset[str]:
        """The names of loops; those of the axes of tiles are not among them."""
        return frozenset(loop.iter for loop in self.of(For))

    @lazy_property
    def windows(self) -> frozenset[str]:
        """The buffers of which some statement holds a window."""
        return frozenset(stmt.buffer for stmt in self.of(Alloc))

    @lazy_property
    def written(self) -> frozenset[str]:
        """The buffers that some statement stores."""
        return frozenset(stmt.buffer for stmt in self.of(Store))

    @lazy_property
    def starts(self) -> dict[str, set[Expr]]:
        """The values that are assigned to each buffer which the program alone fills."""
        kept = {buffer.name for buffer in self.program.buffers if buffer.kind is Kind.INOUT}
        found: dict[str, set[Expr]] = {}
        for stmt in self.of(Store):
            if stmt.reduce is None and stmt.buffer not in kept:
                found.setdefault(stmt.buffer, set()).add(stmt.value)
        return found


class _Identity:
    """A program as a key: it is the same object, so that nothing of it is hashed."""

    __slots__ = ("program",)

    def __init__(self, program: Program) -> None:
        self.program = program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.program is other.program

    def __hash__(self) -> int:
        return id(self.program)


def analysis(program: Program) -> Analysis:
    """Return the facts of `program`, the same ones whenever it is asked about until `memo.forget` is called."""
    return _analysis(_Identity(program))


@memo(64)
def _analysis(key: _Identity) -> Analysis:
    return Analysis(key.program)
