"""Rewrites loop programs from the inside out, and says which names their statements bind and need.

`program.walk` visits statements and `expr.walk` the nodes of one expression; what is here is built of these
and of the parts of nodes (`blocks`, `expressions`, `children`), so that a pass states its rule alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TypeAlias, assert_never

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, substitute, variables
from offcut.core.expr import rewrite as rewrite_expr
from offcut.core.program import (
    UNROLL,
    Alloc,
    Choose,
    For,
    If,
    Let,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    TileAxis,
    Tree,
    blocks,
    statements_of,
    walk,
)

Rule: TypeAlias = Callable[[Stmt], Stmt | tuple[Stmt, ...] | None]
Place: TypeAlias = tuple[int, ...]
Path: TypeAlias = tuple[tuple[Stmt, int], ...]


def rewrite(program: Program, rule: Rule) -> Program:
    """Return `program` with `rule` applied to every statement, those inside of one before it.

    rule   gives what takes the statement's place: one, a tuple of several or none; None: it stays

    What does not change is the same object.
    """
    body = rewrite_body(program.body, rule)
    return program if body is program.body else replace(program, body=body)


def rewrite_body(body: tuple[Stmt, ...], rule: Rule) -> tuple[Stmt, ...]:
    """Statements with `rule` applied to each and to those inside, as `rewrite` does."""
    statements: list[Stmt] = []
    for stmt in body:
        inside = map_blocks(stmt, partial(rewrite_body, rule=rule))
        replacement = rule(inside)
        if isinstance(replacement, tuple):
            statements += replacement
        else:
            statements.append(inside if replacement is None else replacement)
    same = len(statements) == len(body) and all(
        a is b for a, b in zip(statements, body, strict=True)
    )
    return body if same else tuple(statements)


def walk_with_parents(tree: Tree, path: Path = ()) -> Iterator[tuple[Stmt, Path]]:
    """Yield every statement of `tree` with those it stands in, outermost first, parents first.

    A step of the path is a statement and which of its `blocks` was entered.
    """
    for stmt in statements_of(tree):
        yield stmt, path
        for number, block in enumerate(blocks(stmt)):
            yield from walk_with_parents(block, (*path, (stmt, number)))


def walk_with_paths(body: tuple[Stmt, ...], path: Place = ()) -> Iterator[tuple[Place, Stmt]]:
    """Yield every statement of `body` by its place, parents first.

    A place is a position in `body`, then one in what is inside of that statement, and so on; of an `if` or
    a choice, the number of the block comes between.
    """
    for position, stmt in enumerate(body):
        here = (*path, position)
        yield here, stmt
        several = isinstance(stmt, If | Choose)
        for number, block in enumerate(blocks(stmt)):
            yield from walk_with_paths(block, (*here, number) if several else here)


def with_numbered_blocks(
    stmt: Stmt, place: Place, change: Callable[[tuple[Stmt, ...], Place], tuple[Stmt, ...]]
) -> Stmt:
    """Return `stmt`, which stands at `place`, with each block in it replaced by `change(block, place)`.

    The place of a block is that of its statements but for the last number, as `walk_with_paths` counts them.
    """
    numbers = count()
    several = isinstance(stmt, If | Choose)
    return map_blocks(
        stmt, lambda body: change(body, (*place, next(numbers)) if several else place)
    )


def parallel_loop_paths(program: Program) -> dict[Place, For]:
    """Return the loops that are marked to run their iterations together, by their places."""
    return {
        place: stmt
        for place, stmt in walk_with_paths(program.body)
        if isinstance(stmt, For) and stmt.unit not in (None, UNROLL)
    }


def bound_names(stmt: Stmt) -> tuple[str, ...]:
    """Return the names that one statement binds in what is inside of it: of a loop, a `let`, the axes of a tile."""
    match stmt:
        case For(name) | Let(name):
            return (name,)
        case Tile(axes):
            return tuple(axis.iter for axis in axes)
        case _:
            return ()


def all_bound_names(tree: Tree) -> frozenset[str]:
    """Return the names that the statements of `tree` bind, those inside of others too."""
    return frozenset(name for stmt in walk(tree) for name in bound_names(stmt))


def runs_parts(loop: For) -> bool:
    """Return whether each iteration runs several loops in turn, over ranges that it starts: a block of rows, by stage."""
    body = loop.body
    while len(body) == 1 and isinstance(body[0], Alloc):
        body = body[0].body
    return len(body) > 1 and all(
        isinstance(stmt, For) and loop.iter in variables(stmt.lo) for stmt in body
    )


def used_names(program: Program) -> frozenset[str]:
    """Return every name that `program` uses: of a size, of a buffer, or bound by a statement."""
    declared = {size.name for size in program.sizes} | {buffer.name for buffer in program.buffers}
    return all_bound_names(program) | declared


def free_names(tree: Tree) -> frozenset[str]:
    """Return the names that expressions of `tree` mention and nothing in it binds; a program binds its sizes."""
    names: set[str] = set()
    for stmt in statements_of(tree):
        inside = set().union(*map(free_names, blocks(stmt)))
        here = set[str]()
        for expr in expressions(stmt):
            where = isinstance(stmt, Tile) and expr is stmt.where  # of each instance of the tile
            (inside if where else here).update(variables(expr))
        names |= here | (inside - set(bound_names(stmt)))
    if isinstance(tree, Program):
        names -= {size.name for size in tree.sizes}
    return frozenset(names)


def with_buffer_renamed(body: tuple[Stmt, ...], old: str, new: str) -> tuple[Stmt, ...]:
    """Return `body` with a buffer called otherwise in all that stores, reads, or holds a window of it."""

    def read(node: Expr) -> Expr | None:
        return replace(node, buffer=new) if isinstance(node, Load) and node.buffer == old else None

    def rule(stmt: Stmt) -> Stmt | None:
        stmt = map_own_expressions(stmt, lambda expr: rewrite_expr(expr, read))
        if isinstance(stmt, Store | Alloc) and stmt.buffer == old:
            return replace(stmt, buffer=new)
        if isinstance(stmt, Tile) and stmt.cover is not None:
            operands = tuple((n, new if b == old else b) for n, b in stmt.cover.operands)
            if operands != stmt.cover.operands:
                return replace(stmt, cover=replace(stmt.cover, operands=operands))
        return stmt

    return rewrite_body(body, rule)


def map_blocks(stmt: Stmt, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """Return `stmt` with `change` applied to each statement list inside it, not to those inside these.

    It is the same object where `change` gives back each list itself.
    """
    old = blocks(stmt)
    new = tuple(map(change, old))
    if all(one is other for one, other in zip(old, new, strict=True)):
        return stmt
    match stmt:
        case For() | Let() | Tile() | Alloc():
            return replace(stmt, body=new[0])
        case If():
            return replace(stmt, then=new[0], other=new[1])
        case Choose(options):
            return Choose(tuple(replace(o, body=b) for o, b in zip(options, new, strict=True)))
        case Store() | Sync():
            return stmt
        case _:
            assert_never(stmt)


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """Return the expressions of one statement, not of those inside it."""
    match stmt:
        case For(_, lo, hi):
            return lo, hi
        case If(condition):
            return (condition,)
        case Let(_, _, _, value):
            return (value,)
        case Tile(axes, _, where):
            bounds = tuple(part for axis in axes for part in (axis.start, axis.extent))
            return bounds if where is None else (*bounds, where)
        case Alloc(_, axes):
            return tuple(part for axis in axes for part in axis)
        case Store(_, index, value):
            return (*index, value)
        case Choose(options):
            return tuple(option.cost for option in options)
        case Sync(where=where):
            return () if where is None else (where,)
        case _:
            assert_never(stmt)


def map_own_expressions(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """Return `stmt` with `change` applied to each expression of its own, not to those of statements inside.

    It is the same object where `change` gives back each expression itself.
    """
    old = expressions(stmt)
    new = tuple(map(change, old))
    if all(one is other for one, other in zip(old, new, strict=True)):
        return stmt
    match stmt:
        case For():
            return replace(stmt, lo=new[0], hi=new[1])
        case If():
            return replace(stmt, condition=new[0])
        case Let():
            return replace(stmt, value=new[0])
        case Tile(axes, _, where):
            bounds = zip(axes, new[0::2], new[1::2], strict=False)
            moved = tuple(TileAxis(axis.iter, start, extent) for axis, start, extent in bounds)
            return replace(stmt, axes=moved, where=None if where is None else new[-1])
        case Alloc():
            return replace(stmt, axes=tuple(zip(new[0::2], new[1::2], strict=True)))
        case Store():
            return replace(stmt, index=new[:-1], value=new[-1])
        case Choose(options):
            return Choose(tuple(replace(o, cost=c) for o, c in zip(options, new, strict=True)))
        case Sync():
            return replace(stmt, where=new[0])
        case _:
            assert_never(stmt)


def map_expressions(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """Return `stmt` with `change` applied to every expression in it, those inside its blocks too."""
    return map_own_expressions(map_blocks(stmt, lambda body: map_body(body, change)), change)


def map_body(body: tuple[Stmt, ...], change: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    """Return `body` with `change` applied to every expression in it; the same object where none changes."""
    statements = tuple(map_expressions(stmt, change) for stmt in body)
    return body if all(a is b for a, b in zip(statements, body, strict=True)) else statements


def merge_neighbours(
    body: Sequence[Stmt], merged: Callable[[Stmt, Stmt], Stmt | None]
) -> tuple[Stmt, ...]:
    """Return a block in which statements side by side are one where `merged` makes one of two; it returns None for others."""
    statements: list[Stmt] = []
    for stmt in body:
        one = merged(statements[-1], stmt) if statements else None
        if one is None:
            statements.append(stmt)
        else:
            statements[-1] = one
    return tuple(statements)


def inside_loops(loops: Sequence[For], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return statements inside of loops, outermost first."""
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body


def substitute_coordinates(body: tuple[Stmt, ...], values: Mapping[str, Expr]) -> tuple[Stmt, ...]:
    """Return `body` with the coordinates in `values` replaced, and index arithmetic folded again.

    No statement inside may bind one of these names, or a name that a value mentions.
    """

    def change(expr: Expr) -> Expr:
        return ix.fold_indices(substitute(expr, values))

    return map_body(body, change)


def canonicalize(program: Program) -> Program:
    """Return `program` with its index arithmetic folded: what mentions a coordinate depends on it."""
    body = map_body(program.body, ix.fold_indices)
    return program if body == program.body else replace(program, body=body)
