"""A program without its copies: what a local array holds is read from where it came.

A nest that stores every element of a local array, each as a function of its place, is a copy of what
that function reads: padded, transposed, converted, or computed ahead. Where the nest is done before
any reader begins, and what it reads stays as it is until the last of them, a read of the array is
that function at the element that is read::

    for z in 0:n + 2                                        for x in 0:n
      S[z] = where(z >= 1 and z <= n, X[z - 1], 0.0)          for r in 0:3
    for x in 0:n                                       ->       Y[x] += F[r] * where(…, X[x + r - 1], 0.0)
      for r in 0:3
        Y[x] += F[r] * S[x + r]

That the nest, in whatever pieces, stores every element so is proved as any other cut is: beside plain
loops over the array (`check_structure`).

A staged program -> one that may be what it was staged from: without windows, and without copies into them.

It is a guess, which is proved like any other program on the way (`bodies`, and side by side with the source);
a poor one proves nothing.

    alloc A_in[s +: q, 0 +: 64]                         tile i in s +: q
      tile i in s +: q, k in 0 +: 64                      for k in 0:64
        A_in[i, k] = A[i, k]                    ->          S[i] += A[i, k]
      tile i in s +: q
        for k in 0:64
          S[i] += A_in[i, k]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.analysis import (
    accessed_arrays,
    indices,
    read_arrays,
    stored_arrays,
    windowed_arrays,
)
from offcut.core.conditions import negate
from offcut.core.expr import Expr, Load, Var, dtype_of, rewrite, substitute, variables
from offcut.core.expr import walk as walk_expr
from offcut.core.plain_loops import tile_to_loops
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    For,
    If,
    Kind,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
    walk,
)
from offcut.core.program import walk as statements
from offcut.core.traversal import (
    bound_names,
    map_blocks,
    map_body,
    map_expressions,
    merge_neighbours,
    rewrite_body,
    with_buffer_renamed,
)
from offcut.polyhedral import escaping_windows
from offcut.proof.by_structure.places import NotStructural
from offcut.proof.by_structure.structure import check_structure

_MOST_FORMS = 4  # of the statement of one copy, in its pieces
_MOST_NODES = 200  # of what an element is: copies of copies grow


def forward_copies(program: Program, live_buffers: Collection[str] = ()) -> Program:
    """`program` with the readers of each copy reading what was copied, and without the copies.

    program   all that it accesses lies inside of its buffers
    live_buffers      arrays that stay, copies or not

    An array of which anything is left stays as it was; `program` itself comes back where all do.
    """
    for buffer in program.buffers:
        if buffer.kind is Kind.LOCAL and buffer.name not in live_buffers:
            whole = (None,) * len(buffer.shape)
            body = _Copy(program, buffer).without(program.body, (), whole)
            if buffer.name not in accessed_arrays(body) and not any(
                isinstance(stmt, Alloc) and stmt.buffer == buffer.name for stmt in statements(body)
            ):
                buffers = tuple(other for other in program.buffers if other != buffer)
                program = replace(program, buffers=buffers, body=body)
    return program


def find_whole_copy(program: Program, buffer: Buffer, nest: tuple[Stmt, ...]) -> Store | None:
    """The store that makes each element of `buffer` what it is, where `nest` makes them all and does
    no more; None where that is not told.
    """
    return _Copy(program, buffer).copying_store(nest, (), (None,) * len(buffer.shape))


@dataclass(frozen=True, slots=True)
class AxisRange:
    """Coordinates of an axis that are there: ``start <= x < start + count``."""

    start: Expr
    count: Expr

    def names(self, index: Expr) -> bool:
        """Whether there is one, and an index is written as it is."""
        return ix.literal_value(self.count) == 1 and index == self.start


Held = tuple[AxisRange | None, ...]
"""What is there of an array, by axis; None: all coordinates."""


class _Copy:
    """A local array, and how to do without it where it is a copy."""

    def __init__(self, program: Program, buffer: Buffer) -> None:
        self.program, self.buffer = program, buffer

    def without(
        self, body: tuple[Stmt, ...], around: tuple[For | If, ...], held_elements: Held
    ) -> tuple[Stmt, ...]:
        """`body` without the array, where that can be told; else with all or some of it.

        around   the loops and conditions that it stands in, outermost first
        held_elements     what there is of the array
        """
        name = self.buffer.name
        storing = [p for p, stmt in enumerate(body) if name in stored_arrays((stmt,))]
        if not storing:
            return body
        first, last = storing[0], storing[-1] + 1
        before, nest, after = body[:first], body[first:last], body[last:]
        if name not in accessed_arrays(after):
            if len(nest) > 1 and name not in windowed_arrays(nest):
                return body
            parts = (part for stmt in nest for part in self.inside(stmt, around, held_elements))
            return (*before, *parts, *after)
        if any(isinstance(s, Alloc) and s.buffer == name for s in statements((*nest, *after))):
            return body  # what another window holds is no element of this one
        copied = self.copying_store(nest, around, held_elements)
        if copied is None or stored_arrays(after) & read_arrays((copied.value,)):
            return body
        if self.reads_only_parts(copied, held_elements, after) and escaping_windows(
            self.program, frozenset((name,))
        ):
            return body
        return (
            *before,
            *(
                map_expressions(one, lambda e: self.read(e, held_elements, copied, around))
                for one in after
            ),
        )

    def inside(self, stmt: Stmt, around: tuple[For | If, ...], ranges: Held) -> tuple[Stmt, ...]:
        """`stmt`, after which nothing of its block reads the array, likewise.

        What stands before it, and reads what an earlier iteration left, keeps the array in the program.
        """
        match stmt:
            case Alloc(name, axes, body) if name == self.buffer.name:
                window = self.window_extents(axes)
                inner = body if window is None else self.without(body, around, window)
                return (stmt,) if name in accessed_arrays(inner) else inner
            case Alloc():
                return (replace(stmt, body=self.without(stmt.body, around, ranges)),)
            case For() if self.is_of_an_iteration(stmt):
                further = (*around, replace(stmt, body=()))
                return (replace(stmt, body=self.without(stmt.body, further, ranges)),)
            case If(condition, then, other):
                holds, fails = If(condition, ()), If(negate(condition), ())
                then = self.without(then, (*around, holds), ranges)
                return (If(condition, then, self.without(other, (*around, fails), ranges)),)
            case Choose(options):
                new_options = (
                    replace(o, body=self.without(o.body, around, ranges)) for o in options
                )
                return (Choose(tuple(new_options)),)
            case _:
                return (stmt,)

    def window_extents(self, axes: Sequence[tuple[Expr, Expr]]) -> Held | None:
        """What a window holds; None of one that memory says."""
        if any(read_arrays(pair) for pair in axes):
            return None
        return tuple(
            None if ix.literal_value(start) == 0 and count == extent else AxisRange(start, count)
            for extent, (start, count) in zip(self.buffer.shape, axes, strict=True)
        )

    def is_of_an_iteration(self, loop: For) -> bool:
        """Whether iterations run in turn, or each has the array to itself."""
        return loop.unit is None or self.buffer.name in windowed_arrays(loop.body)

    def copying_store(
        self, nest: tuple[Stmt, ...], around: Sequence[For | If], ranges: Held
    ) -> Store | None:
        """A store of `nest` that makes each element what it is, where `nest` does no more."""
        forms = [stmt for stmt in statements(nest) if isinstance(stmt, Store)]
        if any(sum(1 for _ in walk_expr(form.value)) > _MOST_NODES for form in forms):
            return None
        if any(form.buffer != self.buffer.name or form.reduce is not None for form in forms):
            return None
        if any(dtype_of(form.value) != self.buffer.dtype for form in forms):
            return None
        order = [name for stmt in statements(nest) for name in bound_names(stmt)]
        for form in list(dict.fromkeys(forms))[:_MOST_FORMS]:
            plain = self.plain(form, around, ranges, order)
            if plain is None:
                continue
            try:
                check_structure(self.alone(plain, around), self.alone(nest, around))
            except NotStructural:
                continue
            return form
        return None

    def plain(
        self, form: Store, around: Sequence[For | If], ranges: Held, order: Sequence[str]
    ) -> tuple[Stmt, ...] | None:
        """`form` in loops over all that is there, in this order; None where an index is no name of its own."""
        names = self.names_around(around)
        loops: dict[str, tuple[Expr, Expr]] = {}
        for own, there in zip(form.index, self.axis_ranges(ranges), strict=True):
            if there.names(own):
                continue
            counted = _base_and_offset(own, names)
            if counted is None or counted[0] in loops:
                return None
            name, first = counted
            start = ix.sub(there.start, first)
            loops[name] = start, ix.add(start, there.count)
        if variables(form.value) - names - loops.keys() or not loops.keys() <= set(order):
            return None
        plain: tuple[Stmt, ...] = (form,)
        for name in sorted(loops, key=order.index, reverse=True):
            plain = (For(name, *loops[name], plain),)
        return plain

    def axis_ranges(self, ranges: Held) -> Iterator[AxisRange]:
        """Yield the coordinates of each axis that are there."""
        for one, extent in zip(ranges, self.buffer.shape, strict=True):
            yield AxisRange(ix.const(0), extent) if one is None else one

    def reads_only_parts(self, copied: Store, ranges: Held, readers: tuple[Stmt, ...]) -> bool:
        """Return whether readers ask for coordinates of an axis of which only some are there."""
        read_indices = indices(readers, self.buffer.name)
        return any(
            one is not None
            and not (one.names(own) and all(index[at] == own for index in read_indices))
            for at, (own, one) in enumerate(zip(copied.index, ranges, strict=True))
        )

    def names_around(self, around: Sequence[For | If]) -> set[str]:
        """What is fixed where a copy stands: sizes, and the iterators of the loops around."""
        loops = {name for stmt in around for name in bound_names(stmt)}
        return loops | {size.name for size in self.program.sizes}

    def alone(self, body: tuple[Stmt, ...], around: Sequence[For | If]) -> Program:
        """The program that runs `body` wherever `around` does, and gives back the array."""
        for stmt in reversed(around):
            body = _around(stmt, body)
        names = accessed_arrays(body)
        buffers = (buffer for buffer in self.program.buffers if buffer.name in names)
        kinds = {self.buffer.name: Kind.OUTPUT}
        plain = tuple(replace(b, kind=kinds.get(b.name, Kind.INPUT), layout=None) for b in buffers)
        return replace(self.program, buffers=plain, body=body)

    def read(self, expr: Expr, ranges: Held, copied: Store, around: Sequence[For | If]) -> Expr:
        """`expr` with the array's elements written out, but for those that are not there."""
        names = self.names_around(around)

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer != self.buffer.name:
                return None
            at: dict[str, Expr] = {}
            axes = zip(copied.index, self.axis_ranges(ranges), node.index, strict=True)
            for own, there, part in axes:
                if there.names(own):
                    continue  # there is no other
                counted = _base_and_offset(own, names)
                assert counted is not None
                at[counted[0]] = ix.sub(part, counted[1])
            return ix.fold_indices(substitute(copied.value, at))

        return rewrite(expr, rule)


def _base_and_offset(index: Expr, fixed: Collection[str]) -> tuple[str, Expr] | None:
    """An index as a name of its own, and what is added to it, which is fixed; None of any other."""
    own = variables(index) - set(fixed)
    if len(own) != 1:
        return None
    (name,) = own
    first = ix.sub(index, Var(name))
    return None if name in variables(first) else (name, first)


def _around(stmt: For | If, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`body` in a loop, or under a condition."""
    return (replace(stmt, body=body) if isinstance(stmt, For) else replace(stmt, then=body),)


def without_copies(program: Program, source: Program) -> tuple[Program, ...]:
    """Return `program` without its windows, and without what one statement fills, or is copied whole to another array, of the arrays
    that `source` has not: with tiles over the same rows as they are, and as one.
    """
    buffer_of = {buffer.name: buffer for buffer in source.buffers}
    body = rewrite_body(program.body, lambda s: s.body if isinstance(s, Alloc) else None)
    for buffer in program.buffers:
        if buffer.name not in buffer_of:
            body = _without(body, buffer.name)
    body = rewrite_body(body, lambda s: () if _is_idle(s) else None)
    buffers = tuple(
        buffer_of.get(b.name, b)
        for b in program.buffers
        if b.name in buffer_of or b.name in accessed_arrays(body)
    )
    bodies = dict.fromkeys(_join_tiles(body, shared) for shared in (False, True))
    return tuple(replace(program, buffers=buffers, body=one) for one in bodies)


def _without(body: tuple[Stmt, ...], name: str) -> tuple[Stmt, ...]:
    stores = [s for s in walk(body) if isinstance(s, Store)]
    mine = list(dict.fromkeys(s for s in stores if s.buffer == name))
    copies = {s.buffer for s in stores if _is_copy(s, name)}
    readers = [s for s in stores if name in read_arrays((s.value, *s.index))]
    if len(mine) == 1 and mine[0].reduce is None and _names(mine[0]) is not None:
        return _forward_store(body, mine[0])
    if len(copies) == 1 and mine and all(_is_copy(s, name) or s.buffer == name for s in readers):
        (other,) = copies
        body = rewrite_body(
            body, lambda s: () if isinstance(s, Store) and _is_copy(s, name) else None
        )
        return with_buffer_renamed(body, name, other)
    return body


def _is_copy(store: Store, name: str) -> bool:
    """Return whether an element of an array is copied to the same place of another one."""
    value = store.value
    copies = isinstance(value, Load) and value.buffer == name and value.index == store.index
    return copies and store.reduce is None and store.buffer != name


def _names(store: Store) -> list[str] | None:
    """Return the names that its index is made of, one by one."""
    names = [part.name for part in store.index if isinstance(part, Var)]
    own = len(names) == len(set(names)) == len(store.index)
    return names if own and variables(store.value) <= set(names) else None


def _forward_store(body: tuple[Stmt, ...], store: Store) -> tuple[Stmt, ...]:
    names = _names(store)
    assert names is not None

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer != store.buffer:
            return None
        return substitute(store.value, dict(zip(names, node.index, strict=True)))

    rest = rewrite_body(body, lambda s: () if s == store else None)
    return map_body(rest, lambda expr: rewrite(expr, rule))


def _is_idle(stmt: Stmt) -> bool:
    return not isinstance(stmt, Store) and not any(blocks(stmt))


def _join_tiles(body: tuple[Stmt, ...], shared: bool) -> tuple[Stmt, ...]:
    """Return `body` with tiles that run one after the other as one: those over the same instances, and if `shared` those whose first
    axes are the same, whose further axes become loops.
    """
    inner = [map_blocks(stmt, lambda inside: _join_tiles(inside, shared)) for stmt in body]
    return merge_neighbours(inner, lambda first, second: _together(first, second, shared))


def _together(first: Stmt, second: Stmt, shared: bool) -> Tile | None:
    if not isinstance(first, Tile) or not isinstance(second, Tile):
        return None
    if replace(first, body=second.body) == second:
        return replace(first, body=(*first.body, *second.body))
    count = 0
    for one, other in zip(first.axes, second.axes, strict=False):
        if one != other:
            break
        count += 1
    if not shared or not count or replace(first, axes=second.axes, body=second.body) != second:
        return None
    return replace(
        first, axes=first.axes[:count], body=(*_inner(first, count), *_inner(second, count))
    )


def _inner(tile: Tile, count: int) -> tuple[Stmt, ...]:
    """Return the body of a tile in loops over its axes but for the first `count` ones."""
    return tile_to_loops(replace(tile, axes=tile.axes[count:], where=None))
