"""Pieces, and the partition that they make up."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from offcut.core import index as ix
from offcut.core.analysis import analysis
from offcut.core.expr import Expr
from offcut.core.memo import lazy_property
from offcut.core.names import RenamedAttribute
from offcut.core.program import (
    For,
    Form,
    Program,
    Role,
    Stmt,
    Store,
    Tile,
    blocks,
    walk,
)
from offcut.core.text.expressions import count
from offcut.core.text.tables import html_table
from offcut.core.traversal import bound_names, walk_with_parents
from offcut.errors import trim_tracebacks
from offcut.partition.cutting import EmittedTile
from offcut.partition.strategies.segment_placement import Segment, leading_form
from offcut.polyhedral import Set, Space, iteration_domain
from offcut.proof import Certificate, Theorem, check_equal


@dataclass(frozen=True, repr=False)
class Piece:
    """A part of a loop program that is executed in one way.

    segments     (axis, segment) of every axis that is cut
    microkernel  the one that covers its tiles; None where plain vector loops do
    path         the statement that runs the instances of one tile, last, and what encloses it
    iterators    the loops of the program that was cut; other names count tiles
    users        the users' names
    """

    segments: tuple[tuple[str, Segment], ...]
    microkernel: str | None
    space: Space
    path: tuple[Stmt, ...]
    iterators: frozenset[str]
    users: Users

    @property
    def roles(self) -> dict[str, Role]:
        """Body or tail, by axis."""
        return {self.label_of(axis): segment.role for axis, segment in self.segments}

    @property
    def role(self) -> str:
        """``body``; ``tail`` where one axis is a tail; ``corner`` where several are."""
        tails = [segment for _, segment in self.segments if segment.role is Role.TAIL]
        return ("body", "tail", "corner")[min(len(tails), 2)]

    @property
    def tile(self) -> dict[str, int]:
        """Return the largest extent of its tiles, by axis."""
        return {self.label_of(axis): segment.heights[1] for axis, segment in self.segments}

    @property
    def form(self) -> Form:
        """Return how its tiles are executed, the most particular of its axes."""
        return leading_form(segment.form for _, segment in self.segments)

    @lazy_property
    def inside(self) -> tuple[tuple[Stmt, int], ...]:
        """Return the statement of it that lies in most loops, last, and all that encloses it, with the block
        of each that is entered.
        """
        stores_inside = [
            (path, stmt)
            for stmt, path in walk_with_parents(self.path[-1])
            if isinstance(stmt, Store)
        ]
        below, store = max(
            stores_inside, key=lambda one: sum(len(bound_names(stmt)) for stmt, _ in one[0])
        )
        return (*self.enclosing_blocks, *below, (store, 0))

    entered = RenamedAttribute("enclosing_blocks")

    @property
    def enclosing_blocks(self) -> tuple[tuple[Stmt, int], ...]:
        """What encloses the statement that runs the instances of one tile, with the block of each that is entered."""
        return tuple(
            (
                stmt,
                next(k for k, block in enumerate(blocks(stmt)) if any(s is inner for s in block)),
            )
            for stmt, inner in pairwise(self.path)
        )

    @property
    def store(self) -> Store:
        """Return the statement of it that lies in most loops."""
        store = self.inside[-1][0]
        assert isinstance(store, Store)
        return store

    @property
    def axes(self) -> tuple[str, ...]:
        """Return the user's names of the coordinates of `owned` and `executed`, by position."""
        return tuple(map(self.label_of, self.names))

    @property
    def names(self) -> tuple[str, ...]:
        """Likewise, their names in the program."""
        inside = (name for stmt, _ in self.inside for name in bound_names(stmt))
        return tuple(name for name in inside if name in self.iterators)

    @property
    def owned(self) -> Set:
        """Return the instances that this piece answers for; the pieces' sets are disjoint and covering."""
        return self._reached_instances(self._owning)

    @property
    def executed(self) -> Set:
        """What actually runs: repeated and padded instances too; none that a mask or a guard switches off."""
        return self._reached_instances(_all_lanes)

    @property
    def ranges(self) -> dict[str, tuple[Expr, Expr]]:
        """``lo, hi`` of the owned coordinates, by axis, counted from the start of its loop."""
        return {self.label_of(axis): segment.owned for axis, segment in self.segments}

    def label_of(self, axis: str) -> str:
        """What the user calls an axis."""
        return self.users.of_axes.get(axis, axis)

    def _owning(self, stmt: Stmt) -> Stmt:
        """`stmt`; where it runs a tile that was moved back, only what no other tile runs, and where it
        runs terms past the last one, without these.
        """
        for axis, segment in self.segments:
            if segment.form is Form.PAD and isinstance(stmt, For) and stmt.iter == axis:
                past = ix.sub(segment.owned[1], segment.start)
                stmt = replace(stmt, hi=ix.add(stmt.lo, past))
            if segment.form is not Form.SHIFT:
                continue
            skipped = ix.sub(segment.owned[0], segment.start)
            match stmt:
                case For(name, lo) if name == axis:
                    stmt = replace(stmt, lo=ix.add(lo, skipped))
                case Tile(axes):
                    own_axes = tuple(
                        replace(
                            a,
                            start=ix.add(a.start, skipped),
                            extent=ix.sub(a.extent, skipped),
                        )
                        if a.iter == axis
                        else a
                        for a in axes
                    )
                    stmt = replace(stmt, axes=own_axes)
                case _:
                    pass
        return stmt

    def _reached_instances(self, change: Callable[[Stmt], Stmt]) -> Set:
        """Return the instances that reach its statement, with its path changed so."""
        outer = len(self.path)
        path = ((change(s) if k < outer else s, n == 0) for k, (s, n) in enumerate(self.inside))
        return iteration_domain(self.space, tuple(path), self.names)

    def __str__(self) -> str:
        parts = [f"{axis} {role.value} by {self.tile[axis]}" for axis, role in self.roles.items()]
        return f"{self.store.buffer} {self.role}: {', '.join(parts)}; {self.microkernel or 'loops'}"

    def __repr__(self) -> str:
        return f"<piece {self}>"


def _all_lanes(stmt: Stmt) -> Stmt:
    """Return a tile with the instances that it runs and does not keep."""
    if isinstance(stmt, Tile) and stmt.form is Form.PAD:
        return replace(stmt, where=None)
    return stmt


def _stores(program: Program) -> int:
    return len(analysis(program).of(Store))


@dataclass(frozen=True, slots=True)
class Users:
    """What a user calls the sizes and the buffers of a program: (user's name, name in the program).

    axes   likewise ``C.i``, of those that the program calls otherwise
    """

    sizes: tuple[tuple[str, str], ...]
    buffers: tuple[tuple[str, str], ...]
    axes: tuple[tuple[str, str], ...] = ()

    @property
    def of_sizes(self) -> dict[str, str]:
        """Return the users' names of the sizes, by the program's."""
        return {inner: user for user, inner in self.sizes}

    @property
    def of_axes(self) -> dict[str, str]:
        """Return the users' names of the axes that the program calls otherwise, by the program's."""
        return {inner: full.rpartition(".")[2] for full, inner in reversed(self.axes)}

    @property
    def names(self) -> dict[str, str]:
        """What the user calls whatever the program calls otherwise, by the program's names."""
        pairs = {inner: user for user, inner in (*self.sizes, *self.buffers)} | self.of_axes
        return {inner: user for inner, user in pairs.items() if inner != user}

    @staticmethod
    def of(program: Program) -> Users:
        """Return the names of a program that a user wrote."""
        return Users(
            tuple((size.name, size.name) for size in program.sizes),
            tuple((buffer.name, buffer.name) for buffer in program.buffers),
        )


@dataclass(frozen=True, slots=True)
class Size:
    """How large an emitted program is.

    statements, lines  of its text, declarations not counted
    copies             stores of it per store of the source
    code_bytes         of its object code; None where no back end measures it
    """

    statements: int
    lines: int
    copies: float
    code_bytes: int | None

    def __str__(self) -> str:
        code = "" if self.code_bytes is None else f", {self.code_bytes:,} bytes of object code"
        return (
            f"{self.statements} statements in {self.lines} lines, "
            f"{self.copies:.3g} copies of each{code}"
        )


@trim_tracebacks
@dataclass(frozen=True)
class Partition:
    """A program cut into pieces, with its proof.

    source       what was asked, in plain loops
    pieces       every part of every iteration domain
    loops        the loop program; ``str(partition)`` is its text
    users        the users' names
    notes        what was decided, and what was left as it is, and why
    measure      bytes of the object code that a back end makes of `loops`
    through      a program on the way from `source` to `loops`, by which the proof goes
    steps        programs on the way, each a small step from the one before
    reassociate  whether the terms of a sum may be added in another order
    schedule     what was decided, as an `offcut.Schedule`: it cuts the same program so again
    """

    source: Program
    pieces: tuple[Piece, ...]
    loops: Program
    certificate: Certificate
    users: Users
    notes: tuple[str, ...] = ()
    measure: Callable[[Partition], int | None] | None = field(
        default=None, repr=False, compare=False
    )
    through: Program | None = field(default=None, repr=False, compare=False)
    steps: tuple[Program, ...] = field(default=(), repr=False, compare=False)
    reassociate: bool = field(default=False, repr=False, compare=False)
    schedule: Any = field(default=None, repr=False, compare=False)

    @lazy_property
    def size(self) -> Size:
        """Return how large the emitted program and its object code are; the code is made to be measured."""
        emitted, source_stores = _stores(self.loops), _stores(self.source)
        lines = len(analysis(self.loops).statements)
        code = None if self.measure is None else self.measure(self)
        return Size(emitted, lines, emitted / max(1, source_stores), code)

    def prove(self) -> Certificate:
        """What isl proved when the partition was made, and the emitted loops read back into sets.

        Raises PartitionError with a witness where a theorem fails.
        """
        names, through = self.users.of_sizes, self.through
        proved: tuple[Theorem, ...] = ()
        for before, after in pairwise((self.source, *self.steps, self.loops)):
            one = check_equal(
                before, after, reassociate=self.reassociate, users=names, through=through
            )
            proved += tuple(one)
        return Certificate(tuple(dict.fromkeys((*self.certificate.theorems, *proved))))

    def run(self, inputs: Mapping[str, Any], **sizes: int) -> Any:
        """Return the result of the reference interpreter on numpy arrays, by the users' names.

        Raises CallError where an input or a size does not fit.
        """
        buffers, names = dict(self.users.buffers), dict(self.users.sizes)
        items = inputs.items() if isinstance(inputs, Mapping) else ()
        return self.loops.run(
            {buffers.get(n, n): value for n, value in items} if items else inputs,
            **{names.get(name, name): value for name, value in sizes.items()},
        )

    def explain(self) -> str:
        """What was cut, what was left as it is, and why: a paragraph."""
        from offcut.partition.show.explain import explain

        return explain(self)

    def plot(
        self,
        path: str | Path | None = None,
        *,
        axes: tuple[str, str] | None = None,
        **sizes: int,
    ) -> Any:
        """Draw the tiles at these sizes; needs the extra ``plot``.

        path   where to write a picture; None: only the figure is returned
        axes   the two that make the plane; None: the first two that are cut
        """
        from offcut.partition.show.plot import plot

        return plot(self, path, sizes, axes)

    def __str__(self) -> str:
        return str(self.loops)

    def __repr__(self) -> str:
        covered = sum(piece.microkernel is not None for piece in self.pieces)
        pieces = count(len(self.pieces), "piece")
        return f"<partition {self.loops.name}: {pieces}, {covered} by microkernels>"

    def _repr_html_(self) -> str:
        axes = tuple(dict.fromkeys(axis for piece in self.pieces for axis in piece.tile))
        rows = [["stores", "role", *axes, "microkernel"]]
        rows += [
            [
                piece.store.buffer,
                piece.role,
                *(
                    f"{piece.roles[a].value} by {piece.tile[a]}" if a in piece.tile else ""
                    for a in axes
                ),
                piece.microkernel or "loops",
            ]
            for piece in self.pieces
        ]
        return f"{html_table(rows)}<pre>{html.escape(str(self.loops))}</pre>"


def pieces_of_tiles(
    source: Program, emitted: Program, emitted_tiles: Sequence[EmittedTile], users: Users
) -> tuple[Piece, ...]:
    """Return a piece for every tile of `emitted`, in the order of the text.

    emitted_tiles  what each tile is by the loops that were cut around it; passes since may have added to tiles, and changed none
    """
    tiles = [stmt for stmt in walk(emitted.body) if isinstance(stmt, Tile)]
    matching = (
        emitted_tiles
        if len(emitted_tiles) == len(tiles)
        else [EmittedTile(tile, (), None) for tile in tiles]
    )
    now = [
        replace(one, leaf=tile, microkernel=tile.microkernel)
        for one, tile in zip(matching, tiles, strict=True)
    ]
    space = Space(source.sizes, source.assumptions)
    return pieces_of(space, source, emitted, now, users)


def pieces_of(
    space: Space,
    source: Program,
    emitted: Program,
    emitted_tiles: Sequence[EmittedTile],
    users: Users,
) -> tuple[Piece, ...]:
    """Return a piece for every tile that was made, in the order of the text, with all that encloses it."""
    iterators = frozenset(stmt.iter for stmt in walk(source.body) if isinstance(stmt, For))
    pieces: list[Piece] = []
    by_leaf = {id(one.leaf): one for one in emitted_tiles}
    for stmt, path in walk_with_parents(emitted):
        one = by_leaf.get(id(stmt))
        if one is not None:
            whole = (*(outer for outer, _ in path), stmt)
            cut = one.segments, one.microkernel
            pieces.append(Piece(*cut, space, whole, iterators, users))
    return tuple(pieces)
