"""Windows of arrays -> arrays of their own, where they live: ``A[8*i + 3]`` of the window ``A[8*i +: 8]`` is ``A_w[3]``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.accesses import accessed_arrays
from offcut.core.expr import Binary, Const, Expr, Load, Var, variables
from offcut.core.expr import rewrite as rewrite_expr
from offcut.core.program import (
    Alloc,
    Buffer,
    For,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    map_blocks,
    map_own_expressions,
    walk,
)
from offcut.core.text.printer import format_expr
from offcut.core.tile_limits import at_most
from offcut.core.traversal import all_bound_names
from offcut.errors import PartitionError

BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
HARDWARE = (*BLOCKS, *THREADS)
"""The indices of a grid, as a loop is bound to them."""

Refuse = Callable[..., PartitionError]


@dataclass(frozen=True)
class _Window:
    """An array in place of a window: its name, and what is subtracted from indices; `slot` comes before them."""

    buffer: str
    starts: tuple[Expr, ...]
    slot: tuple[Expr, ...] = ()

    def index(self, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        moved = (ix.sub(part, start) for part, start in zip(index, self.starts, strict=True))
        return (*self.slot, *moved)


def with_arrays_for_windows(program: Program, refuse: Refuse, numbers: bool = False) -> Program:
    """Return `program` in which each `Alloc` is of a whole array, from 0 on, that lives inside of it.

    Of a window of depth d there is one array more an axis, around the loop whose iterations take windows in turn. One that lies in
    place of another is that one.

    refuse   called with a window and why a host cannot have it
    numbers  whether an array in another memory than the main one has a number of elements
    """
    renamer = _Windows(program, refuse, numbers)
    body = renamer.block(program.body, {}, ())
    used = accessed_arrays(body)
    kept = (
        buffer
        for buffer in program.buffers
        if buffer.name in used or buffer.kind not in (Kind.LOCAL, Kind.PRIVATE)
    )
    buffers = (*kept, *renamer.added)
    return replace(program, body=body, buffers=tuple({b.name: b for b in buffers}.values()))


@dataclass
class _Windows:
    program: Program
    refuse: Refuse
    numbers: bool
    added: list[Buffer] = field(default_factory=list)
    around: dict[int, list[Alloc]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bounds = bounds_in(self.program.body)

    def block(
        self, body: tuple[Stmt, ...], known: Mapping[str, _Window], loops: tuple[For, ...]
    ) -> tuple[Stmt, ...]:
        return tuple(one for stmt in body for one in self.stmt(stmt, known, loops))

    def stmt(
        self, stmt: Stmt, known: Mapping[str, _Window], loops: tuple[For, ...]
    ) -> tuple[Stmt, ...]:
        def moved(expr: Expr) -> Expr:
            return rewrite_expr(expr, rule)

        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Load) and node.buffer in known:
                window = known[node.buffer]
                return Load(window.buffer, window.index(node.index), node.dtype)
            return None

        if isinstance(stmt, Alloc):
            axes = tuple((moved(start), moved(extent)) for start, extent in stmt.axes)
            return self.window(replace(stmt, axes=axes), known, loops)
        stmt = map_own_expressions(stmt, moved)
        if isinstance(stmt, Store) and stmt.buffer in known:
            window = known[stmt.buffer]
            stmt = replace(stmt, buffer=window.buffer, index=window.index(stmt.index))
        if isinstance(stmt, Tile) and stmt.cover is not None:
            named = tuple(
                (name, known[buffer].buffer if buffer in known else buffer)
                for name, buffer in stmt.cover.operands
            )
            stmt = replace(stmt, cover=replace(stmt.cover, operands=named))
        inner = (*loops, stmt) if isinstance(stmt, For) else loops
        made = map_blocks(stmt, lambda body: self.block(body, known, inner))
        for held in reversed(self.around.pop(id(stmt), [])):  # its iterations take them in turn
            made = replace(held, body=(made,))
        return (made,)

    def window(
        self, stmt: Alloc, known: Mapping[str, _Window], loops: tuple[For, ...]
    ) -> tuple[Stmt, ...]:
        buffer = self.program.buffer(stmt.buffer)
        starts = tuple(start for start, _ in stmt.axes)
        if stmt.layout is not None:
            raise self.refuse(stmt, f"it lies as {stmt.layout}, and arrays of the host in rows")
        if stmt.inplace is not None:
            other = known.get(stmt.inplace)
            holder = self.program.buffer(stmt.inplace)
            if other is None or (holder.dtype, len(holder.shape)) != (
                buffer.dtype,
                len(buffer.shape),
            ):
                raise self.refuse(
                    stmt,
                    f"{stmt.inplace} has no window of {buffer.dtype} there whose place it could take",
                    "without `inplace …`",
                )
            there = {**known, stmt.buffer: replace(other, starts=starts)}
            return self.block(stmt.body, there, loops)
        name = self.name(stmt.buffer)
        extents = tuple(extent for _, extent in stmt.axes)
        if any(one.unit in HARDWARE for one in loops):
            why = "an array inside of a kernel has a number of elements"
            extents = tuple(self.fixed(stmt, extent, None, why) for extent in extents)
        elif self.numbers and (stmt.memory or buffer.scope) is not None:
            why = "an array in such a memory has a number of elements"
            extents = tuple(self.fixed(stmt, extent, None, why) for extent in extents)
        loop = loops[-1] if loops and loops[-1].unit is None and stmt.depth > 1 else None
        slot: tuple[Expr, ...] = ()
        if loop is not None:
            inside = {loop.iter, *all_bound_names(loop.body)}
            why = "windows in turn are of one"
            extents = tuple(self.fixed(stmt, extent, inside, why) for extent in extents)
            extents = (ix.const(stmt.depth), *extents)
            slot = (ix.mod(ix.sub(Var(loop.iter), loop.lo), stmt.depth),)
        memory = stmt.memory or buffer.scope
        self.added.append(Buffer(name, buffer.dtype, extents, Kind.LOCAL, scope=memory))
        body = self.block(stmt.body, {**known, stmt.buffer: _Window(name, starts, slot)}, loops)
        made = Alloc(name, tuple((ix.const(0), one) for one in extents), body, memory)
        if loop is None:
            return (made,)
        self.around.setdefault(id(loop), []).append(made)
        return body

    def name(self, wanted: str) -> str:
        taken = {buffer.name for buffer in (*self.program.buffers, *self.added)} - {wanted}
        mine = {buffer.name for buffer in self.added}
        name, number = wanted, 1
        while name in taken or name in mine:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def fixed(self, stmt: Alloc, extent: Expr, inside: Collection[str] | None, why: str) -> Expr:
        """Return an extent that a window always has room in: its own where no name `inside` decides it, else a number."""
        if inside is not None and not variables(extent) & set(inside):
            return extent
        most = literal_limit(extent, self.bounds)
        if most is None:
            raise self.refuse(stmt, f"nothing bounds its extent {format_expr(extent)}, and {why}")
        return ix.const(most)


Bounds = Mapping[str, tuple[Expr, Expr]]


def bounds_in(body: tuple[Stmt, ...]) -> Bounds:
    """Return the least value of each name that loops and `let` bind, and its greatest one."""
    found: dict[str, tuple[Expr, Expr]] = {}
    for stmt in walk(body):
        if isinstance(stmt, Let):
            found[stmt.name] = ix.const(stmt.lo), ix.const(stmt.hi - 1)
        if isinstance(stmt, For):
            found[stmt.iter] = stmt.lo, ix.sub(stmt.hi, 1)
    return found


def literal_limit(extent: Expr, bounds: Bounds) -> int | None:
    """Return a number that an extent does not exceed; None where bounds of names show none."""
    for _ in range(16):
        if (most := at_most(extent)) is not None:
            return most
        form = ix.to_linear(extent)
        for atom, factor in form.terms:
            if isinstance(atom, Var) and atom.name in bounds:
                extent = ix.add(
                    ix.sub(extent, ix.mul(factor, atom)),
                    ix.mul(factor, bounds[atom.name][factor > 0]),
                )
                break
            match atom:  # t*(a // t) >= a - (t - 1)
                case Binary("//", a, Const(by, _)) if factor < 0 and factor % int(by) == 0:
                    times = factor // int(by)
                    least = ix.sub(a, int(by) - 1)
                    extent = ix.add(ix.sub(extent, ix.mul(factor, atom)), ix.mul(times, least))
                    break
        else:
            return None
    return None
