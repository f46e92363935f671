"""Where units that share loops of a program have to meet: before a statement that touches what others write.

Read by whoever runs a program on several units: threads of a processor, blocks of a grid, queues of instructions.
"""

from __future__ import annotations

from collections.abc import Iterator

from offcut.core.accesses import statuses
from offcut.core.program import THREAD, For, Program, Stmt, Store, blocks
from offcut.core.program import walk as statements
from offcut.polyhedral.units.footprints import Access, Footprints


def has_parallel(stmt: Stmt) -> bool:
    """Whether some loop in `stmt`, or itself, is marked."""
    return any(isinstance(inner, For) and inner.unit == THREAD for inner in statements((stmt,)))


class Meetings:
    """Between which statements of a block all units have to meet."""

    def __init__(self, program: Program, everywhere: frozenset[str]) -> None:
        """`everywhere`: the buffers that no two units share."""
        written = frozenset(s.buffer for s in statements(program.body) if isinstance(s, Store))
        self.footprints = Footprints(program, written - everywhere)
        self.found: dict[Stmt, frozenset[Access]] = {}

    def conflict(self, one: Stmt, other: Stmt) -> bool:
        """Whether one of two statements may touch what the other one writes."""
        mine, theirs = self.accesses(one), self.accesses(other)
        return any(
            a.buffer == b.buffer and (a.writes or b.writes) and not self.footprints.apart(a, b)
            for a in mine
            for b in theirs
        )

    def accesses(self, stmt: Stmt) -> frozenset[Access]:
        """What a statement touches, each footprint once."""
        if stmt not in self.found:
            self.found[stmt] = frozenset(self.footprints.of((stmt,)))
        return self.found[stmt]


def meets(program: Program, own: frozenset[str]) -> Iterator[tuple[tuple[Stmt, ...], int]]:
    """The statements that may not run before all units are done with an earlier one of their block."""
    meetings = Meetings(program, own | statuses(program))

    def among(body: tuple[Stmt, ...]) -> Iterator[tuple[tuple[Stmt, ...], int]]:
        since: list[Stmt] = []
        for position, stmt in enumerate(body):
            several = (one for one in since if has_parallel(stmt) or has_parallel(one))
            if any(meetings.conflict(stmt, one) for one in several):
                yield body, position
                since = []
            since.append(stmt)
            in_step = not (isinstance(stmt, For) and stmt.unit == THREAD)
            if in_step and has_parallel(stmt):
                for block in blocks(stmt):
                    yield from among(block)

    yield from among(program.body)
