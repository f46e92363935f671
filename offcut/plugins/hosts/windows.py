"""Replace windows by arrays of their own, allocated where they live: ``A[8*i + 3]`` of the window ``A[8*i +: 8]`` is ``A_w[3]``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, at_most
from offcut.core.expr import Binary, Const, Expr, Load, Var, variables
from offcut.core.expr import rewrite as rewrite_expr
from offcut.core.layout import Digit, Layout
from offcut.core.program import Alloc, Buffer, For, Kind, Let, Program, Stmt, Store, Tile, walk
from offcut.core.text.printer import format_expr
from offcut.core.traversal import all_bound_names, map_blocks, map_own_expressions
from offcut.errors import PartitionError

BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
HARDWARE = (*BLOCKS, *THREADS)
"""The indices of a grid, as a loop is bound to them."""

_NUMBERS = "an array in such a memory has a number of elements"

Refuse = Callable[..., PartitionError]


@dataclass(frozen=True)
class _Window:
    """The array that replaces a window: its name, and the starts to subtract from indices; `slot` precedes them.

    digits  of each coordinate of a place, where elements lie in a layout
    """

    buffer: str
    starts: tuple[Expr, ...]
    slot: tuple[Expr, ...] = ()
    digits: tuple[tuple[Digit, ...], ...] | None = None

    def index(self, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        offsets = tuple(ix.sub(part, start) for part, start in zip(index, self.starts, strict=True))
        if self.digits is None:
            return (*self.slot, *offsets)
        return (
            *self.slot,
            *(ix.add(0, *(_value(d, offsets[d.axis]) for d in of)) for of in self.digits),
        )


def _value(digit: Digit, coordinate: Expr) -> Expr:
    """Return a digit of a coordinate, times its weight."""
    value = ix.floordiv(coordinate, digit.step)
    return ix.mul(value if digit.extent is None else ix.mod(value, digit.extent), digit.weight)


def _place_counts(layout: Layout, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the number of values of each coordinate of a place, for an array of `shape` elements."""
    counts: list[Expr] = []
    for of in layout.digits(len(shape)):
        counts.append(ix.const(1))
        for digit in of:
            multiple = layout.multiple_of(digit.axis)
            whole = ix.mul(ix.ceildiv(shape[digit.axis], multiple), multiple)
            values = (
                ix.ceildiv(whole, digit.step) if digit.extent is None else ix.const(digit.extent)
            )
            counts[-1] = ix.mul(counts[-1], values)
    return tuple(counts)


def with_arrays_for_windows(program: Program, refuse: Refuse, numbers: bool = False) -> Program:
    """Return `program` in which each `Alloc` is of a whole array, from 0 on, that lives inside of it.

    Of a window of depth d there is one array more an axis, around the loop whose iterations take windows in turn. One that lies in
    place of another is that one.

    refuse   called with a window and why a host cannot have it
    numbers  whether an array in another memory than the main one has a number of elements
    """
    renamer = _Windows(program, refuse, numbers)
    window_arrays = {stmt.buffer for stmt in walk(program) if isinstance(stmt, Alloc)}
    whole = {
        buffer.name: renamer.placed_array(buffer)
        for buffer in program.buffers
        if buffer.name not in window_arrays and renamer.is_placed(buffer)
    }
    body = renamer.block(program.body, whole, ())
    used_arrays = accessed_arrays(body)
    arrays = (
        buffer
        for buffer in program.buffers
        if buffer.name in used_arrays or buffer.kind not in (Kind.LOCAL, Kind.PRIVATE)
    )
    buffers = (*arrays, *renamer.new_buffers)
    return replace(program, body=body, buffers=tuple({b.name: b for b in buffers}.values()))


@dataclass
class _Windows:
    program: Program
    refuse: Refuse
    numbers: bool
    new_buffers: list[Buffer] = field(default_factory=list)
    slot_arrays: dict[int, list[Alloc]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bounds = bounds_in(self.program.body)

    def block(
        self, body: tuple[Stmt, ...], windows: Mapping[str, _Window], loops: tuple[For, ...]
    ) -> tuple[Stmt, ...]:
        return tuple(one for stmt in body for one in self.stmt(stmt, windows, loops))

    def stmt(
        self, stmt: Stmt, windows: Mapping[str, _Window], loops: tuple[For, ...]
    ) -> tuple[Stmt, ...]:
        def rewrite_loads(expr: Expr) -> Expr:
            return rewrite_expr(expr, rule)

        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Load) and node.buffer in windows:
                window = windows[node.buffer]
                return Load(window.buffer, window.index(node.index), node.dtype)
            return None

        if isinstance(stmt, Alloc):
            axes = tuple(
                (rewrite_loads(start), rewrite_loads(extent)) for start, extent in stmt.axes
            )
            return self.window(replace(stmt, axes=axes), windows, loops)
        stmt = map_own_expressions(stmt, rewrite_loads)
        if isinstance(stmt, Store) and stmt.buffer in windows:
            window = windows[stmt.buffer]
            stmt = replace(stmt, buffer=window.buffer, index=window.index(stmt.index))
        if isinstance(stmt, Tile) and stmt.cover is not None:
            renamed_body = tuple(
                (name, windows[buffer].buffer if buffer in windows else buffer)
                for name, buffer in stmt.cover.operands
            )
            stmt = replace(stmt, cover=replace(stmt.cover, operands=renamed_body))
        inner = (*loops, stmt) if isinstance(stmt, For) else loops
        statement = map_blocks(stmt, lambda body: self.block(body, windows, inner))
        for array in reversed(
            self.slot_arrays.pop(id(stmt), [])
        ):  # its iterations take them in turn
            statement = replace(array, body=(statement,))
        return (statement,)

    def window(
        self, stmt: Alloc, windows: Mapping[str, _Window], loops: tuple[For, ...]
    ) -> tuple[Stmt, ...]:
        buffer = self.program.buffer(stmt.buffer)
        starts = tuple(start for start, _ in stmt.axes)
        layout = stmt.layout or buffer.layout
        digits = None if layout is None else self.digits(stmt, layout)
        if stmt.inplace is not None:
            other = windows.get(stmt.inplace)
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
            inner_windows = {**windows, stmt.buffer: replace(other, starts=starts)}
            return self.block(stmt.body, inner_windows, loops)
        name = self.name(stmt.buffer)
        extents = tuple(extent for _, extent in stmt.axes)
        if any(one.unit in HARDWARE for one in loops):
            why = "an array inside of a kernel has a number of elements"
            extents = tuple(self.window_extent(stmt, extent, None, why) for extent in extents)
        elif self.numbers and (stmt.memory or buffer.scope) is not None:
            extents = tuple(self.window_extent(stmt, extent, None, _NUMBERS) for extent in extents)
        loop = loops[-1] if loops and loops[-1].unit is None and stmt.depth > 1 else None
        slot: tuple[Expr, ...] = ()
        if loop is not None:
            inner_names = {loop.iter, *all_bound_names(loop.body)}
            why = "windows in turn are of one"
            extents = tuple(
                self.window_extent(stmt, extent, inner_names, why) for extent in extents
            )
            slot = (ix.mod(ix.sub(Var(loop.iter), loop.lo), stmt.depth),)
        extents = extents if layout is None else _place_counts(layout, extents)
        if loop is not None:
            extents = (ix.const(stmt.depth), *extents)
        memory = stmt.memory or buffer.scope
        self.new_buffers.append(Buffer(name, buffer.dtype, extents, Kind.LOCAL, scope=memory))
        body = self.block(
            stmt.body, {**windows, stmt.buffer: _Window(name, starts, slot, digits)}, loops
        )
        alloc = Alloc(name, tuple((ix.const(0), one) for one in extents), body, memory)
        if loop is None:
            return (alloc,)
        self.slot_arrays.setdefault(id(loop), []).append(alloc)
        return body

    def is_placed(self, buffer: Buffer) -> bool:
        """Return whether a whole array lies in a layout, or in a memory whose arrays have a number of elements."""
        return buffer.layout is not None or (self.numbers and buffer.scope is not None)

    def placed_array(self, buffer: Buffer) -> _Window:
        """Return the array, without a layout, that replaces one without windows."""
        zeros = tuple(ix.const(0) for _ in buffer.shape)
        window = Alloc(buffer.name, tuple(zip(zeros, buffer.shape, strict=True)), ())
        shape, digits = buffer.shape, None
        if buffer.scope is not None and self.numbers:
            shape = tuple(self.window_extent(window, extent, None, _NUMBERS) for extent in shape)
        if buffer.layout is not None:
            digits = self.digits(window, buffer.layout)
            shape = _place_counts(buffer.layout, shape)
            if buffer.kind is not Kind.LOCAL:
                raise self.refuse(window, "it is an array of the caller, which lies in rows")
        self.new_buffers.append(replace(buffer, shape=shape, layout=None))
        return _Window(buffer.name, zeros, (), digits)

    def digits(self, stmt: Alloc, layout: Layout) -> tuple[tuple[Digit, ...], ...]:
        if layout.swizzle is not None:
            raise self.refuse(
                stmt, f"its places are swizzled, {layout.swizzle}: arrays have no bytes"
            )
        return layout.digits(len(stmt.axes))

    def name(self, base: str) -> str:
        names = {buffer.name for buffer in (*self.program.buffers, *self.new_buffers)} - {base}
        mine = {buffer.name for buffer in self.new_buffers}
        name, number = base, 1
        while name in names or name in mine:
            number += 1
            name = f"{base}_{number}"
        return name

    def window_extent(
        self, stmt: Alloc, extent: Expr, inner_names: Collection[str] | None, why: str
    ) -> Expr:
        """Return an extent that a window never exceeds: its own if it uses none of `inner_names`, else a literal."""
        if inner_names is not None and not variables(extent) & set(inner_names):
            return extent
        limit = literal_limit(extent, self.bounds)
        if limit is None:
            raise self.refuse(stmt, f"nothing bounds its extent {format_expr(extent)}, and {why}")
        return ix.const(limit)


Bounds = Mapping[str, tuple[Expr, Expr]]


def bounds_in(body: tuple[Stmt, ...]) -> Bounds:
    """Return the least value of each name that loops and `let` bind, and its greatest one."""
    bounds: dict[str, tuple[Expr, Expr]] = {}
    for stmt in walk(body):
        if isinstance(stmt, Let):
            bounds[stmt.name] = ix.const(stmt.lo), ix.const(stmt.hi - 1)
        if isinstance(stmt, For):
            bounds[stmt.iter] = stmt.lo, ix.sub(stmt.hi, 1)
    return bounds


def literal_limit(extent: Expr, bounds: Bounds) -> int | None:
    """Return a literal upper bound of an extent; None if the bounds of names give none."""
    for _ in range(16):
        if (limit := at_most(extent)) is not None:
            return limit
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
                    numerator = ix.sub(a, int(by) - 1)
                    extent = ix.add(ix.sub(extent, ix.mul(factor, atom)), ix.mul(times, numerator))
                    break
        else:
            return None
    return None
