"""Staged programs for tests of proofs: the tiles of a cut program in windows, written by hand and not by offcut.

Of each tile ``S = 0; S += A * W; C = f(S)`` become copies of what it reads into windows, each statement as a
tile of its own, in windows of what it makes, and a copy of what it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import Compare, Expr, Load, Var, loads, rewrite, substitute, variables
from offcut.core.program import (
    Alloc,
    Buffer,
    For,
    Form,
    Kind,
    Program,
    Stmt,
    Store,
    Tile,
    TileAxis,
    walk,
)
from offcut.core.traversal import map_blocks, map_expressions

_SCRATCH = (Kind.LOCAL, Kind.PRIVATE)


@dataclass(frozen=True)
class Staging:
    """Which arrays of a cut program lie in windows around its tiles.

    reads   arrays that are copied in, whole tiles of them: in a window ``A_in``
    writes  arrays that are copied out: from a window ``C_out``
    makes   local arrays of the program that are windows of a tile
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()

    def of(self, program: Program) -> Program:
        """`program` with its tiles staged."""
        body = tuple(self._around(stmt, program) for stmt in program.body)
        names = {s.buffer for s in walk(body) if isinstance(s, Alloc)}
        buffers = [
            replace(b, kind=Kind.LOCAL) if b.kind in _SCRATCH else b for b in program.buffers
        ]
        for old, new in (
            *((r, f"{r}_in") for r in self.reads),
            *((w, f"{w}_out") for w in self.writes),
        ):
            if new in names:
                like = program.buffer(old)
                buffers.append(Buffer(new, like.dtype, like.shape, Kind.LOCAL))
        return replace(program, buffers=tuple(buffers), body=body)

    def _around(self, stmt: Stmt, program: Program) -> Stmt:
        if isinstance(stmt, Tile):
            return self._tile(stmt, program)
        return map_blocks(stmt, lambda body: tuple(self._around(s, program) for s in body))

    def _tile(self, tile: Tile, program: Program) -> Stmt:
        made: list[Stmt] = [replace(tile, body=(part,)) for part in tile.body]
        windows: list[tuple[str, tuple[tuple[Expr, Expr], ...]]] = []
        for name in self.writes:
            if any(isinstance(s, Store) and s.buffer == name for s in walk(tile)):
                made, window = _copied_out(tile, made, name)
                windows.append((f"{name}_out", window))
        for name in self.makes:
            window = _window(tile, name)
            if window is not None:
                windows.append((name, window))
        for name in self.reads:
            window = _window(tile, name, program.buffer(name).shape)
            if window is not None:
                shape = program.buffer(name).shape
                made = [
                    _copy(tile, name, window, shape),
                    *(_renamed(s, name, f"{name}_in") for s in made),
                ]
                windows.append((f"{name}_in", window))
        inside: tuple[Stmt, ...] = tuple(made)
        for name, axes in windows:
            inside = (Alloc(name, axes, inside),)
        (only,) = inside
        return only


def _ranges(tile: Tile) -> dict[str, tuple[Expr, Expr]]:
    """The first coordinate and the extent of the tile's axes and of the loops in it."""
    found = {axis.iter: (axis.start, axis.extent) for axis in tile.axes}
    for stmt in walk(tile.body):
        if isinstance(stmt, For):
            found[stmt.iter] = stmt.lo, ix.sub(stmt.hi, stmt.lo)
    return found


def _indices(tile: Tile, name: str) -> Iterator[tuple[Expr, ...]]:
    for stmt in walk(tile.body):
        if isinstance(stmt, Store):
            if stmt.buffer == name:
                yield stmt.index
            for load, _ in loads(stmt.value):
                if load.buffer == name:
                    yield load.index


def _window(
    tile: Tile, name: str, shape: Sequence[Expr] = ()
) -> tuple[tuple[Expr, Expr], ...] | None:
    """The least box around what a tile touches of an array, whose accesses are alike; of `shape`, all of an axis that the
    axes of the tile are not in.
    """
    index = next(_indices(tile, name), None)
    if index is None:
        return None
    ranges, axes = _ranges(tile), {axis.iter for axis in tile.axes}
    boxes = [_box(part, ranges) for part in index]
    for number, extent in enumerate(shape):
        if not variables(index[number]) & axes:
            boxes[number] = ix.const(0), extent
    return tuple(boxes)


def _box(part: Expr, ranges: dict[str, tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
    first = last = part
    while names := (variables(first) | variables(last)) & ranges.keys():
        name = sorted(names)[-1]
        lo, extent = ranges[name]
        first = ix.simplify(substitute(first, {name: lo}))
        last = ix.simplify(substitute(last, {name: ix.sub(ix.add(lo, extent), 1)}))
    return first, ix.simplify(ix.add(ix.sub(last, first), 1))


def _copy(
    tile: Tile, name: str, window: Sequence[tuple[Expr, Expr]], shape: Sequence[Expr]
) -> Stmt:
    """``A_in[…] = A[…]`` for the window, as far as the tile is asked for it."""
    index = next(_indices(tile, name))
    taken = {a.iter for a in tile.axes} | {s.iter for s in walk(tile.body) if isinstance(s, For)}
    names = [part.name if isinstance(part, Var) else f"z{k}" for k, part in enumerate(index)]
    assert len(set(names)) == len(names)
    assert not {n for n in names if n[0] == "z"} & taken
    at = tuple(map(Var, names))
    dtype = next(
        load.dtype
        for s in walk(tile.body)
        if isinstance(s, Store)
        for load, _ in loads(s.value)
        if load.buffer == name
    )
    where = () if tile.where is None else conjuncts(tile.where)
    mine = [one for one in where if variables(one) & set(names)]
    for part, own, extent in zip(index, names, shape, strict=True):
        if where and not isinstance(part, Var):
            mine.append(Compare("<", Var(own), extent))
    axes = tuple(TileAxis(n, *box) for n, box in zip(names, window, strict=True))
    copy = Store(f"{name}_in", at, Load(name, at, dtype))
    form = Form.MASK if mine else Form.FULL
    return Tile(axes, (copy,), conjunction(mine) if mine else None, form)


def _copied_out(
    tile: Tile, parts: list[Stmt], name: str
) -> tuple[list[Stmt], tuple[tuple[Expr, Expr], ...]]:
    store = next(s for s in walk(tile.body) if isinstance(s, Store) and s.buffer == name)
    window = _window(tile, name)
    assert window is not None
    made = [_renamed(s, name, f"{name}_out") for s in parts]
    dtype = _dtype(store.value)
    copy = Store(name, store.index, Load(f"{name}_out", store.index, dtype))
    own, ranges = {axis.iter for axis in tile.axes}, _ranges(tile)
    inner = sorted(frozenset().union(*map(variables, store.index)) & (ranges.keys() - own))
    axes = (*tile.axes, *(TileAxis(one, *ranges[one]) for one in inner))
    return [*made, replace(tile, axes=axes, body=(copy,))], window


def _dtype(value: Expr) -> str:
    from offcut.core.expr import dtype_of

    return dtype_of(value)


def _renamed(stmt: Stmt, old: str, new: str) -> Stmt:
    def rule(node: Expr) -> Expr | None:
        return replace(node, buffer=new) if isinstance(node, Load) and node.buffer == old else None

    def stores(inner: Stmt) -> Stmt:
        if isinstance(inner, Store) and inner.buffer == old:
            inner = replace(inner, buffer=new)
        return map_blocks(inner, lambda body: tuple(map(stores, body)))

    return stores(map_expressions(stmt, lambda expr: rewrite(expr, rule)))
