"""Unroll-and-jam: iterations of a loop around tiles run each tile together, and what all of them read alike is loaded once.

    for j in 0:n  @unroll(4)                        for j in 0:4*(n//4) by 4
      tile c in 0:64                                  tile c in 0:64
        S[j, c] = 0.0                                   S[j, c], S[j + 1, c], … = 0.0, 0.0, …
        for r in 0:3                          ->        for r in 0:3
          S[j, c] += X[j + r, c] * W[r, c]                S[j, c], … += X[j + r, c] * W[r, c], …
        Y[j, c] = S[j, c]                               Y[j, c], … = S[j, c], …

`planning/unroll_and_jam.py` marks the loops, and shows that it is legal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from offcut.core.program import For, Stmt, Store

if TYPE_CHECKING:
    from offcut.backends.cpu.lowering.addressing import Lanes
    from offcut.backends.cpu.lowering.vectors import Vectors


def emit_jammed(
    low: Vectors,
    body: Sequence[Stmt],
    lanes: Lanes,
    name: str,
    copies: Sequence[tuple[str, Mapping[str, str]]],
) -> None:
    """Emit statements for a vector of instances of several iterations.

    name    the loop's iterator
    copies  of each iteration its number, and the registers that stand for buffers
    """
    for stmt in body:
        if isinstance(stmt, For):
            ends = low.scalar(stmt.lo), low.scalar(stmt.hi)
            emit = partial(emit_jammed, low, stmt.body, name=name, copies=copies)
            low.each(stmt, ends, lanes, emit)
            continue
        assert isinstance(stmt, Store)
        for value, slots in copies:
            with low.bound(name, value):
                low.vector_store(stmt, lanes, slots)
