"""How a family of the CPU computes a tile: what the judge of covers says of its microkernel, and the calls.

What the judge cannot know is asked here: that a scratch for the tile's sums has bounds, and that sums
which lie in it are indexed by the axes of the tile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from offcut.backends.cpu.lowering.addressing import Addressing
from offcut.backends.cpu.microkernels.family import Family
from offcut.core import index as ix
from offcut.core.accesses import indices
from offcut.core.expr import Var, variables
from offcut.core.program import Form, Stmt, Store, Tile
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.tile_limits import begun, limits
from offcut.partition import Covered, Parts, Question, Refusal, Surroundings
from offcut.partition import cover as judge
from offcut.polyhedral.units.independence import begins_with_store


def cover(low: Addressing, tile: Tile, family: Family) -> Parts | Refusal:
    """Return what becomes of each statement of `tile` where `low` stands if `family` computes it, or why it does not."""
    kernel = family.microkernel
    stated_cover = tile.cover if tile.microkernel == kernel.name else None
    at = Surroundings((), low.range_of, lambda buffer: buffer.name not in low.memory)
    verdict = judge(tile, low.program, kernel, stated_cover, at=at, issued={kernel.columns})
    if isinstance(verdict, Refusal):
        return verdict
    tile = begun(tile)
    for axis in tile.axes:
        if not low.bounded(axis.extent):
            because = f"nothing bounds the extent {format_expr(axis.extent)} of {axis.iter}"
            return Refusal(Question.EXTENTS, because)
    for one in verdict.covered:
        varying = _varying_rows(low, tile, one)
        if varying is not None:
            return Refusal(Question.EXTENTS, varying)
    target, first = verdict.covered[0].store.buffer, verdict.covered[0].match
    padded = tile.form is Form.PAD
    if (padded or target not in low.memory) and not _is_by_axes(low, tile, target):
        because = f"{target} is not indexed by the axes of the tile alone"
        return Refusal(Question.LAYOUT, because)
    parts: list[Covered | Stmt | None] = []
    for stmt, part in zip(tile.body, verdict.parts, strict=True):
        if isinstance(part, Covered):
            match = part.match
            alike = (
                part.store.buffer == target
                and match.rows == first.rows
                and match.columns == first.columns
            )
            if (padded or part.store.buffer not in low.memory) and not alike:
                if parts and parts[-1] is None:
                    parts[-1] = tile.body[len(parts) - 1]
                part = stmt
        parts.append(part)
    return tuple(parts)


def explain_no_cover(low: Addressing, tile: Tile, families: Iterable[Family]) -> str:
    """Return why a tile that names no microkernel has none: what keeps the first that sums its terms."""
    sums = [s for s in statements(tile.body) if isinstance(s, Store) and s.reduce is not None]
    if not sums:
        return "it has no sum"
    for family in families:
        verdict = cover(low, replace(tile, cover=None), family)
        if not isinstance(verdict, Refusal):
            return f"no register tile of {family.microkernel.name} has its rows and columns"
        if verdict.question is not Question.TERM:
            return f"{family.microkernel.name} does not: {verdict}"
    return f"no microkernel sums {format_expr(sums[0].value)}"


def _varying_rows(low: Addressing, tile: Tile, one: Covered) -> str | None:
    """Why rows that are padded have no scratch of one size."""
    rows = next((axis for axis in tile.axes if axis.iter == one.match.rows), None)
    if rows is None or tile.form is not Form.PAD or not any(limits(tile, rows.iter)):
        return None
    terms = ix.sub(one.loop.hi, one.loop.lo)
    sizes = {size.name for size in low.program.sizes}
    if variables(ix.mul(rows.extent, terms)) <= sizes:
        return None
    return f"the rows that are padded are as long as {one.loop.iter} is, which varies"


def _is_by_axes(low: Addressing, tile: Tile, buffer: str) -> bool:
    """Return whether the tile accesses a buffer at one element of each instance, by its axes and loops around the tile, each
    once, and fills it before it reads it if it is nobody else's.
    """
    points = {tuple(map(ix.simplify, index)) for index in indices(tile.body, buffer)}
    (point, *others) = points
    axes = {axis.iter for axis in tile.axes}
    names = [part.name for part in point if isinstance(part, Var)]
    filled = buffer in low.memory or begins_with_store(buffer, tile.body)
    return (
        not others
        and len(set(names)) == len(names) == len(point)
        and axes <= set(names)
        and all(name in axes or name in low.values for name in names)
        and filled
    )
