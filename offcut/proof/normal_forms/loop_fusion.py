"""Loops joined where another program has them as one, and loops over blocks apart: a launch for each statement.

Two loops in turn over one range may be one loop around both bodies if no iteration of the second needs, or
changes, what a later iteration of the first does. It is enough that whatever one of them stores and the
other one accesses is named, on some axis, by the iterator alone::

    for i in 0:n                              for i in 0:n
      S[i] = …                                  S[i] = …
    for i in 0:n                       ->       Y[i] = S[i] + 1.0
      Y[i] = S[i] + 1.0

Loops over blocks around several statements -> a launch for each of them.

for i in 0:n//64  @block                  for i in 0:n//64  @block
  for j in 0:m//128  @block                 for j in 0:m//128  @block
    tiles of 128 columns                      tiles of 128 columns
  the last m mod 128 columns        ->    for i in 0:n//64  @block
                                            the last m mod 128 columns

Units of a block are those of its loops, so what runs on units of two loops would want two sets of them. Theorem: where no loop over blocks
carries a dependence, but on a window of its own, its iterations run in any order, and so do its statements in loops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, analysis, indices, read_arrays, stored_arrays
from offcut.core.expr import Expr, Var, variables
from offcut.core.plain_loops import strip_annotations
from offcut.core.program import Alloc, Choose, For, Form, If, Program, Stmt, Tile, walk
from offcut.core.program import walk as statements
from offcut.core.traversal import (
    all_bound_names,
    expressions,
    inside_loops,
    map_blocks,
    merge_neighbours,
    substitute_coordinates,
)
from offcut.polyhedral import Facts, Space, try_isl
from offcut.polyhedral.dependences import dependences


def fuse_loops_like(emitted: Program, source: Program) -> Program:
    """Return `source` with loops joined that are one in `emitted`, where they may be."""
    there = [stmt for stmt in statements(emitted.body) if isinstance(stmt, For)]
    stores = [(loop, stored_arrays(loop.body)) for loop in there]

    def as_one(first: For, second: For) -> For | None:
        both = stored_arrays((first, second))
        holding = [loop for loop, loops_of_store in stores if both <= loops_of_store]
        alike = [loop for loop in holding if (loop.lo, loop.hi) == (first.lo, first.hi)]
        for name in dict.fromkeys(loop.iter for loop in (*alike, *reversed(holding))):
            one, other = _with_iterator_name(first, name), _with_iterator_name(second, name)
            if one is not None and other is not None and _may_join(one, other):
                return replace(one, body=(*one.body, *other.body))
        return None

    return replace(source, body=_join_loops(source.body, as_one))


def fuse_ranges(program: Program) -> Program:
    """Return `program` with loops joined that run over one part of a range in turn, where they may be.

    Such are the loops of a block of rows; its start is that of an iteration of the loop around::

        for i_block in 0:(n + 3)//4
          for i in 4*i_block:min(4*i_block + 4, n)
            S[i] = …
          for i in 4*i_block:min(4*i_block + 4, n)
            Y[i] = S[i] + 1.0
    """
    over = analysis(program).iterators

    def as_one(first: For, second: For) -> For | None:
        if not variables(first.lo) & over or not _may_join(first, second):
            return None
        return replace(first, body=(*first.body, *second.body))

    return replace(program, body=_join_loops(program.body, as_one))


def _join_loops(
    body: tuple[Stmt, ...], as_one: Callable[[For, For], For | None]
) -> tuple[Stmt, ...]:
    """Return `body` with the loops that stand side by side as one, where `as_one` makes one of them."""

    def merged(before: Stmt, stmt: Stmt) -> Stmt | None:
        both = isinstance(before, For) and isinstance(stmt, For)
        return as_one(before, stmt) if both else None  # type: ignore[arg-type]

    statements = merge_neighbours(body, merged)
    return tuple(map_blocks(stmt, lambda inner: _join_loops(inner, as_one)) for stmt in statements)


def _with_iterator_name(loop: For, name: str) -> For | None:
    """Return `loop` with its iterator called `name`; None where something else in it is called so."""
    if loop.iter == name:
        return loop
    inside = [expr for stmt in statements((loop,)) for expr in expressions(stmt)]
    if name in all_bound_names(loop.body) or any(name in variables(expr) for expr in inside):
        return None
    body = substitute_coordinates(loop.body, {loop.iter: Var(name)})
    return replace(loop, iter=name, body=body)


def _may_join(first: For, second: For) -> bool:
    """Return whether two loops in turn have one range, and their iterations meet in what is theirs alone."""
    if (first.iter, first.lo, first.hi) != (second.iter, second.lo, second.hi):
        return False
    if read_arrays((first.lo, first.hi)) or first.iter in all_bound_names(
        (*first.body, *second.body)
    ):
        return False
    one, other = first.body, second.body
    shared = stored_arrays(one) & accessed_arrays(other) | accessed_arrays(one) & stored_arrays(
        other
    )
    return all(_is_by_iteration(first.iter, indices((*one, *other), name)) for name in shared)


def _is_by_iteration(name: str, accesses: Sequence[Sequence[Expr]]) -> bool:
    """Return whether the iterator alone is the index on some axis of every access."""
    return any(all(index == Var(name) for index in axis) for axis in zip(*accesses, strict=True))


# Loops of one body over ranges that follow each other -> the one loop over both.
#
# Iterations run in the same order, whatever they depend on, so this needs nothing but the bounds::
#
#     for n in 0:b - b % 2                      for n in 0:b
#       S[n]                             ->       S[n]
#     for n in b - b % 2:b
#       S[n]


def unequal_pairs(pairs: Iterable[tuple[Program, Program]]) -> tuple[int, ...]:
    """Return the numbers of the pairs that differ in more than annotations, and loops that follow each other."""
    plain = [tuple(map(strip_annotations, pair)) for pair in pairs]
    return tuple(
        number
        for number, (before, after) in enumerate(plain)
        if before != after and concatenate_loops(before) != concatenate_loops(after)
    )


def concatenate_loops(program: Program) -> Program:
    """`program`, bare, with outermost loops joined that follow each other at every size, in options too; bounds are of sizes."""
    facts = Facts(Space(program.sizes, program.assumptions))
    sizes = {size.name for size in program.sizes}

    def merged(one: Stmt, other: Stmt) -> Stmt | None:
        if not (isinstance(one, For) and isinstance(other, For)):
            return None
        bounds = (one.lo, one.hi, other.hi)
        if (one.iter, one.hi, one.body) != (other.iter, other.lo, other.body) or not all(
            variables(bound) <= sizes for bound in bounds
        ):
            return None
        ordered = [ix.compare("<=", low, high) for low, high in pairwise(bounds)]
        follows = try_isl(lambda: all(map(facts.holds, ordered)), False)
        return replace(one, hi=other.hi) if follows else None

    def concatenate(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        inner = (map_blocks(s, concatenate) if isinstance(s, Choose) else s for s in body)
        return merge_neighbours(tuple(inner), merged)

    plain = strip_annotations(program)
    return replace(plain, body=concatenate(plain.body))


# A program -> the same with tiles of one shape, that run one after the other, as one tile.
#
#     tile x in a +: t                                  tile x in a +: t
#       Y[x] = 0.0                                        Y[x] = 0.0
#     for s in 0:3                                        for s in 0:3
#       tile x in a +: t where x >= 1 - s        ->         if x >= 1 - s
#         Y[x] += A[x, s] * B[s]                              Y[x] += A[x, s] * B[s]
#
# Theorem: an element that they write is accessed at one index only, in which each axis of the tiles stands by
# itself. So no two instances share one: each runs its statements in the order that it did, and those of others
# before or after make no difference.


def fuse_tiles(program: Program) -> Program:
    """`program` with such tiles as one."""
    return replace(program, body=_fuse(program.body))


def _fuse(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return merge_neighbours([map_blocks(stmt, _fuse) for stmt in body], _joined_tiles)


def _joined_tiles(first: Stmt, then: Stmt) -> Tile | None:
    """Two statements as one tile; None where they are none."""
    loops: list[For] = []
    while isinstance(then, For) and len(then.body) == 1:
        loops.append(then)
        then = then.body[0]
    if not isinstance(first, Tile) or not isinstance(then, Tile):
        return None
    if then.axes != first.axes or first.where is not None:
        return None
    if {first.form, then.form} != {Form.FULL} or _is_bound_anew(then, loops):
        return None
    more: tuple[Stmt, ...] = then.body
    if then.where is not None:
        more = (If(then.where, more),)
    body = (*first.body, *inside_loops(loops, more))
    return replace(then, where=None, body=body) if _is_apart(then, body) else None


def _is_bound_anew(tile: Tile, loops: Sequence[For]) -> bool:
    """Whether an axis of the tile has the name of another coordinate that the loops around it name, or they one of its."""
    axes = {axis.iter for axis in tile.axes}
    names = set[str]().union(*(variables(end) for loop in loops for end in (loop.lo, loop.hi)))
    around = set[str]().union(
        *(variables(axis.start) | variables(axis.extent) for axis in tile.axes)
    )
    mine = {loop.iter for loop in loops}
    return bool(axes & (names | mine) or around & mine)


def _is_apart(tile: Tile, body: tuple[Stmt, ...]) -> bool:
    """Whether what an instance writes is no other's."""
    for name in stored_arrays(body):
        points = {tuple(map(ix.simplify, point)) for point in indices(body, name)}
        if len(points) != 1 or not {Var(axis.iter) for axis in tile.axes} <= set(*points):
            return False
    return True


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
