"""Programs with one thing wrong: every way to break a program a little, wherever it can be done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from offcut.ir import (
    Alloc,
    Choose,
    Expr,
    For,
    If,
    Load,
    Option,
    Program,
    Stmt,
    Store,
    Tile,
    TileAxis,
    blocks,
    rewrite,
)
from tests.facade import add, sub, substitute, with_blocks

Body = tuple[Stmt, ...]
Broken = Callable[[Stmt], Iterator[Body]]


def dropped(stmt: Stmt) -> Iterator[Body]:
    """A store is gone."""
    if isinstance(stmt, Store):
        yield ()


def repeated(stmt: Stmt) -> Iterator[Body]:
    """A store runs twice."""
    if isinstance(stmt, Store):
        yield stmt, stmt


def off_by_one(stmt: Stmt) -> Iterator[Body]:
    """A loop or a tile ends, or starts, one too early or too late."""
    match stmt:
        case For():
            yield (replace(stmt, hi=sub(stmt.hi, 1)),)
            yield (replace(stmt, hi=add(stmt.hi, 1)),)
            yield (replace(stmt, lo=add(stmt.lo, 1)),)
        case Tile():
            for k, axis in enumerate(stmt.axes):
                for made in (
                    TileAxis(axis.iter, axis.start, sub(axis.extent, 1)),
                    TileAxis(axis.iter, axis.start, add(axis.extent, 1)),
                    TileAxis(axis.iter, add(axis.start, 1), axis.extent),
                ):
                    yield (replace(stmt, axes=(*stmt.axes[:k], made, *stmt.axes[k + 1 :])),)
        case _:
            pass


def swapped(stmt: Stmt) -> Iterator[Body]:
    """Two statements in a block change places."""
    for number, block in enumerate(blocks(stmt)):
        for made in _swaps(block):
            yield (_with_block(stmt, number, made),)


def marked(stmt: Stmt) -> Iterator[Body]:
    """A loop is marked to be shared by threads, or to run as lanes, whatever it carries."""
    if isinstance(stmt, For):
        for mark in ("thread", "lane"):
            if stmt.unit != mark:
                yield (replace(stmt, unit=mark),)


def as_lanes(stmt: Stmt) -> Iterator[Body]:
    """A loop becomes a tile: its iterations run side by side."""
    if isinstance(stmt, For):
        axis = TileAxis(stmt.iter, stmt.lo, sub(stmt.hi, stmt.lo))
        yield (Tile((axis,), stmt.body),)


def unguarded(stmt: Stmt) -> Iterator[Body]:
    """A condition is gone, or its branches change places."""
    if isinstance(stmt, If):
        yield stmt.then
        yield (If(stmt.condition, stmt.other, stmt.then),)
    if isinstance(stmt, Tile) and stmt.where is not None:
        yield (replace(stmt, where=None),)


def misplaced(stmt: Stmt) -> Iterator[Body]:
    """A store is one element off, or reads one element off."""
    if not isinstance(stmt, Store):
        return
    for k, part in enumerate(stmt.index):
        yield (replace(stmt, index=(*stmt.index[:k], add(part, 1), *stmt.index[k + 1 :])),)

    def off(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or not node.index:
            return None
        return replace(node, index=(*node.index[:-1], sub(node.index[-1], 1)))

    yield (replace(stmt, value=rewrite(stmt.value, off)),)


def overwritten(stmt: Stmt) -> Iterator[Body]:
    """An update stores its term alone."""
    if isinstance(stmt, Store) and stmt.reduce is not None:
        yield (replace(stmt, reduce=None),)


def unwindowed(stmt: Stmt) -> Iterator[Body]:
    """A window is gone: its elements are those of the window around, or of the whole array."""
    if isinstance(stmt, Alloc):
        yield stmt.body


def resized(stmt: Stmt) -> Iterator[Body]:
    """A window has one element less or more along an axis, or starts one earlier or later."""
    if not isinstance(stmt, Alloc):
        return
    for k, (start, count) in enumerate(stmt.axes):
        for made in (
            (start, sub(count, 1)),
            (start, add(count, 1)),
            (add(start, 1), count),
            (add(start, 1), sub(count, 1)),
            (sub(start, 1), count),
            (sub(start, 1), add(count, 1)),
        ):
            yield (replace(stmt, axes=(*stmt.axes[:k], made, *stmt.axes[k + 1 :])),)


def reopened(stmt: Stmt) -> Iterator[Body]:
    """A window is opened again: in turn, around the first or the last of its statements, or in one of them."""
    if not isinstance(stmt, Alloc):
        return

    def again(body: Body) -> Alloc:
        return replace(stmt, body=body)

    for k in range(1, len(stmt.body)):
        before, after = stmt.body[:k], stmt.body[k:]
        yield again(before), again(after)
        yield (again((again(before), *after)),)
        yield (again((*before, again(after))),)
    for inside in _in(
        stmt.body, lambda one: iter(() if isinstance(one, Alloc) else ((again((one,)),),))
    ):
        yield (again(inside),)


def sunk(stmt: Stmt) -> Iterator[Body]:
    """A window is opened by each of its statements, or by each iteration of them."""
    if not isinstance(stmt, Alloc):
        return
    yield tuple(replace(stmt, body=(one,)) for one in stmt.body)
    inner = [replace(stmt, body=blocks(one)[0]) if blocks(one) else None for one in stmt.body]
    yield tuple(
        one if made is None else _with_block(one, 0, (made,))
        for one, made in zip(stmt.body, inner, strict=True)
    )


def raised(stmt: Stmt) -> Iterator[Body]:
    """The window of the first iteration of a loop is opened once, for all of them."""
    if isinstance(stmt, For) and len(stmt.body) == 1 and isinstance(stmt.body[0], Alloc):
        window, first = stmt.body[0], {stmt.iter: stmt.lo}
        axes = tuple(
            (substitute(start, first), substitute(count, first)) for start, count in window.axes
        )
        yield (replace(window, axes=axes, body=(replace(stmt, body=window.body),)),)


def shortened(stmt: Stmt) -> Iterator[Body]:
    """A window opens after some of its statements, or closes before some."""
    if isinstance(stmt, Alloc):
        for k in range(1, len(stmt.body)):
            yield *stmt.body[:k], replace(stmt, body=stmt.body[k:])
            yield replace(stmt, body=stmt.body[:k]), *stmt.body[k:]


KINDS: dict[str, Broken] = {
    broken.__name__: broken
    for broken in (
        dropped,
        repeated,
        off_by_one,
        swapped,
        marked,
        as_lanes,
        unguarded,
        misplaced,
        overwritten,
    )
}
OF_WINDOWS: dict[str, Broken] = {
    broken.__name__: broken for broken in (unwindowed, resized, reopened, sunk, raised, shortened)
}


def corrupted(program: Program, kind: str) -> Iterator[Program]:
    """`program` broken in one place, in every place and way of this kind, in the order of the text."""
    if kind == "swapped":
        for body in _swaps(program.body):
            yield replace(program, body=body)
    for body in _in(program.body, {**KINDS, **OF_WINDOWS}[kind]):
        yield replace(program, body=body)


def _in(body: Body, broken: Broken) -> Iterator[Body]:
    for position, stmt in enumerate(body):
        before, after = body[:position], body[position + 1 :]
        for made in broken(stmt):
            yield (*before, *made, *after)
        for number, block in enumerate(blocks(stmt)):
            for inside in _in(block, broken):
                yield (*before, _with_block(stmt, number, inside), *after)


def _swaps(body: Body) -> Iterator[Body]:
    for k in range(len(body) - 1):
        yield (*body[:k], body[k + 1], body[k], *body[k + 2 :])


def _with_block(stmt: Stmt, number: int, block: Body) -> Stmt:
    """`stmt` with one of its blocks exchanged."""
    match stmt:
        case If(condition, then, other):
            return If(condition, block, other) if number == 0 else If(condition, then, block)
        case Choose(options):
            made = [
                Option(o.label, o.cost, block if k == number else o.body)
                for k, o in enumerate(options)
            ]
            return Choose(tuple(made))
        case _:
            return with_blocks(stmt, lambda _: block)
