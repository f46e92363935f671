"""Loops over blocks around several statements -> a launch for each of them.

for i in 0:n//64  @block                  for i in 0:n//64  @block
  for j in 0:m//128  @block                 for j in 0:m//128  @block
    tiles of 128 columns                      tiles of 128 columns
  the last m mod 128 columns        ->    for i in 0:n//64  @block
                                            the last m mod 128 columns

Units of a block are those of its loops, so what runs on units of two loops would want two sets of them. Theorem: where no loop over blocks
carries a dependence, but on a window of its own, its iterations run in any order, and so do its statements in loops of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from offcut.core.accesses import accessed_arrays
from offcut.core.program import Alloc, Choose, For, If, Program, Stmt, walk
from offcut.polyhedral.dependences import dependences

BLOCK = "block"


def separate_launches(program: Program) -> Program:
    """Return `program` with one statement inside of its outermost loops over blocks; itself if it is so."""
    body = tuple(part for stmt in program.body for part in _launches(stmt))
    return program if body == program.body else replace(program, body=body)


def has_independent_blocks(program: Program) -> bool:
    """Return whether no loop over blocks that `separate_launches` takes apart carries a dependence, but on a window inside of it."""
    return all(
        _is_independent(replace(program, body=(stmt,)))
        for stmt in program.body
        if tuple(_launches(stmt)) != (stmt,)
    )


def _is_independent(program: Program) -> bool:
    loops = [s for s in walk(program.body) if isinstance(s, For) and s.unit == BLOCK]
    shared = {
        (loop.iter, name)
        for loop in loops
        for name in accessed_arrays(loop.body)
        - {one.buffer for one in walk(loop.body) if isinstance(one, Alloc)}
    }
    carried = dependences(program, {name for _, name in shared})
    return not any((one.loop, one.buffer) in shared for one in carried)


def _launches(stmt: Stmt) -> Iterator[Stmt]:
    match stmt:
        case For(body=body) if stmt.unit == BLOCK:
            for inner in body:
                yield from (replace(stmt, body=(one,)) for one in _launches(inner))
        case If(condition, then, ()):
            for inner in then:
                yield from (If(condition, (one,)) for one in _launches(inner))
        case Choose(options):
            bodies = (tuple(p for s in option.body for p in _launches(s)) for option in options)
            pairs = zip(options, bodies, strict=True)
            yield Choose(tuple(replace(option, body=body) for option, body in pairs))
        case _:
            yield stmt
