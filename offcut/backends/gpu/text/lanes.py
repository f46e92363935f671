"""Writes the statements of a warp that no microkernel runs: loops bound to lanes, and what the first lane does alone.

Lane l runs the iterations l, l + 32, … of a loop bound to lanes. Of one whose iterations only reduce, each lane has a partial result in
registers, and these are reduced in halves: the order of the terms depends on the extent of the loop alone::

    for k in 0:n  @lane          float S_part = -0.0f;
      S[i] += A[i, k]      ->    for (int k = lane; k < n; k += 32) S_part += A[…];
                                 S_part = sum_of_lanes(S_part);
                                 if (lane == 0) S[i] += S_part;

Statements outside of such loops are run by lane 0. Where two statements touch an array, and other lanes may have written what is read,
the warp meets between them. The instances of a tile are parallel: lanes share its innermost axis, if no loop inside is bound to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from offcut.backends.gpu.text.windows import CUDA, TYPES, name_of, no_text
from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, is_independent
from offcut.core.dtypes import HALVES, identity
from offcut.core.expr import Const, Load, all_loads, variables
from offcut.core.program import LANE, For, If, Let, Stmt, Store, Tile, walk
from offcut.core.text.c_expressions import CStatements, braces
from offcut.core.text.printer import format_head
from offcut.core.traversal import all_bound_names, expressions

if TYPE_CHECKING:
    from offcut.backends.gpu.text.leaves import LeafWriter

LANES = 32
MEET = "__syncwarp();"
_ACROSS = {"sum": "sum_of_lanes", "max": "greatest_of_lanes", "min": "least_of_lanes"}


@dataclass(frozen=True)
class LaneWriter:
    """Writes statements for the lanes of a warp."""

    leaves: LeafWriter

    def lines(self, stmt: Stmt) -> list[str]:
        """Return the lines of a statement that all lanes of a warp come to.

        Raises DescribeError for a statement that has no text so far.
        """
        stmt = _loops_of_tiles(stmt)
        if not _has_lanes(stmt):
            lines = self.plain.lines(stmt)
            single = isinstance(stmt, Store)
            return [f"if (lane == 0) {lines[0]}"] if single else braces("if (lane == 0)", lines)
        match stmt:
            case For(body=body) if stmt.unit == LANE:
                if any(_has_lanes(inner) for inner in body):
                    raise no_text(format_head(stmt), "lanes inside of lanes have no text")
                return self.partial_results(stmt) if _reduces(stmt) else self.spread(stmt)
            case For(body=body):
                lines = self.block(body)
                if any(self.meet(one, other) for one in body for other in body):
                    lines.append(MEET)
                return braces(self.plain.head(stmt), lines)
            case If(condition, then, other):
                lines = braces(f"if ({self.leaves.text(condition)})", self.block(then))
                return [*lines, *(braces("else", self.block(other)) if other else ())]
            case Let(body=body):
                return braces("", [self.plain.let(stmt), *self.block(body)])
        raise no_text(format_head(stmt), "this statement has no text so far")

    def block(self, body: tuple[Stmt, ...]) -> list[str]:
        """Return the lines of statements, between which the warp meets where it has to."""
        lines: list[str] = []
        for at, stmt in enumerate(body):
            if any(self.meet(earlier, stmt) for earlier in body[:at]) and lines[-1] != MEET:
                lines.append(MEET)
            lines += self.lines(stmt)
        return lines

    def meet(self, one: Stmt, other: Stmt) -> bool:
        """Return whether the warp meets between two statements: they touch an array, one writes it, and not lane 0 alone touches it."""
        before, after = (list(_lane_accesses(_loops_of_tiles(stmt))) for stmt in (one, other))
        return any(
            name == own and (writes or stores) and (all_lanes or spread)
            for name, writes, all_lanes in before
            for own, stores, spread in after
        )

    @property
    def plain(self) -> CStatements:
        """Return the writer of statements that one lane runs."""
        return CStatements(CUDA, self.leaves.text, self.leaves.store)

    def spread(self, loop: For) -> list[str]:
        """Return a loop whose iterations lanes share."""
        kinds = {buffer.name: buffer.kind for buffer in self.leaves.program.buffers}
        updates = any(isinstance(one, Store) and one.reduce is not None for one in walk(loop.body))
        if updates and not is_independent(loop, kinds):
            raise no_text(format_head(loop), "lanes that update one element have no text so far")
        lines = self.plain.block(loop.body)
        if (ix.literal_value(loop.lo), ix.literal_value(loop.hi)) == (0, LANES):
            return braces("", [f"const int {name_of(loop.iter)} = lane;", *lines])
        return braces(self.plain.head(loop, "lane", "{} += 32"), lines)

    def partial_results(self, loop: For) -> list[str]:
        """Return a loop that reduces: a partial result for each lane, then those of all lanes."""
        program = self.leaves.program
        stores = [one for one in walk(loop.body) if isinstance(one, Store)]
        names = {one.buffer: f"{name_of(one.buffer)}_part" for one in stores}
        inside = replace(self.leaves, fragment={**self.leaves.fragment, **names})
        begin, end = [], []
        for one in stores:
            dtype, part = program.buffer(one.buffer).dtype, names[one.buffer]
            reduce = str(one.reduce)
            if dtype in HALVES:
                raise no_text(one.buffer, f"partial results of lanes in {dtype} have no text")
            start = self.leaves.writer.literal(identity(reduce, dtype), dtype)
            begin.append(f"{TYPES[dtype]} {part} = {start};")
            end.append(f"{part} = {_ACROSS[reduce]}({part});")
            to = self.leaves.element(Load(one.buffer, one.index, dtype))
            end.append(f"if (lane == 0) {self.leaves.update(reduce, dtype, to, part)}")
        lines = LaneWriter(inside).plain.block(loop.body)
        return braces("", [*begin, *braces(self.plain.head(loop, "lane", "{} += 32"), lines), *end])


def _loops_of_tiles(stmt: Stmt) -> Stmt:
    """Return a statement with loops in place of its tiles, of which the innermost is bound to lanes if nothing inside is."""
    match stmt:
        case Tile(axes, body, where):
            inner = tuple(map(_loops_of_tiles, body))
            spread = not any(map(_has_lanes, inner))
            nest: tuple[Stmt, ...] = inner if where is None else (If(where, inner),)
            for number, axis in enumerate(reversed(axes)):
                end = ix.simplify(ix.add(axis.start, axis.extent))
                unit = LANE if spread and number == 0 else None
                nest = (For(axis.iter, axis.start, end, nest, unit=unit),)
            return nest[0] if len(nest) == 1 else If(Const(True, "bool"), nest)
        case For(body=body):
            return replace(stmt, body=tuple(map(_loops_of_tiles, body)))
        case If(_, then, other):
            new = tuple(map(_loops_of_tiles, then)), tuple(map(_loops_of_tiles, other))
            return replace(stmt, then=new[0], other=new[1])
        case Let(body=body):
            return replace(stmt, body=tuple(map(_loops_of_tiles, body)))
    return stmt


def _has_lanes(stmt: Stmt) -> bool:
    return any(isinstance(one, For) and one.unit == LANE for one in walk((stmt,)))


def _reduces(loop: For) -> bool:
    """Return whether a loop does nothing but reduce into elements that do not move inside of it, and that it does not read."""
    stores = [one for one in walk(loop.body) if isinstance(one, Store)]
    written = [one.buffer for one in stores]
    moving = all_bound_names(loop.body) | {loop.iter}
    read = {
        load.buffer
        for one in walk(loop.body)
        for expr in expressions(one)
        for load in all_loads(expr)
    }
    return (
        len(written) == len({*written})
        and not {*written} & read
        and all(one.reduce is not None for one in stores)
        and not any(moving & variables(part) for one in stores for part in one.index)
    )


def _lane_accesses(stmt: Stmt) -> Iterator[tuple[str, bool, bool]]:
    """Yield each array that a statement touches: whether it writes it, and whether lanes other than the first may touch it."""
    if not _has_lanes(stmt):
        stored = {one.buffer for one in walk((stmt,)) if isinstance(one, Store)}
        yield from ((name, name in stored, False) for name in accessed_arrays((stmt,)))
        return
    if isinstance(stmt, For) and stmt.unit == LANE:
        stored = {one.buffer for one in walk(stmt.body) if isinstance(one, Store)}
        alone = _reduces(stmt)
        for name in accessed_arrays((stmt,)):
            yield name, name in stored, not (alone and name in stored)
        return
    for expr in expressions(stmt):
        yield from ((load.buffer, False, True) for load in all_loads(expr))
    blocks = (stmt.then, stmt.other) if isinstance(stmt, If) else (getattr(stmt, "body", ()),)
    for inner in (one for block in blocks for one in block):
        yield from _lane_accesses(inner)
