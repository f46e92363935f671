"""The decisions for a stage that no microkernel computes: rows on warps, and on lanes the elements of a row or the terms of a sum.

Lanes go along the axis by which most of what a stage reads lies side by side. Of an element-wise stage, or of sums down columns::

    split C.i guard 4 as i_block i_warp
    split C.j guard 256 as j_block j_lane
    order C i_block j_block i_warp j_lane
    bind C.i_block block
    bind C.j_block block
    bind C.i_warp warp
    bind C.j_lane lane

and of a sum along rows, whose terms are added in a tree that depends on the extent of the row alone::

    split S.i guard 4 as i_block i_warp
    order S i_block i_warp k
    bind S.i_block block
    bind S.i_warp warp
    bind S.k lane tree
"""

from __future__ import annotations

from collections.abc import Iterator

from offcut.core import index as ix
from offcut.core.conditions import conditional_term, conjuncts
from offcut.core.dtypes import FLOATS, HALVES
from offcut.core.expr import Load, dtype_of, reads_memory, variables, walk
from offcut.core.program import LANE
from offcut.describe.computation import Stage
from offcut.partition import GUARD
from offcut.schedule import Primitive
from offcut.schedule.decisions import Bind, Level, Order, Split

WARPS, LANES = 4, 32
"""Warps of a block, and lanes of a warp."""
COLUMNS = 256
"""Elements of a row that a warp computes, at most."""


def plain_decisions(stage: Stage, reassociate: bool = True) -> Iterator[Primitive]:
    """Yield the decisions for a stage without a microkernel.

    reassociate  whether the terms of a sum may be added in another order
    """
    axes = [axis.name for axis in stage.axes]
    terms = axis_of_terms(stage, reassociate)
    others = [axis.name for axis in stage.reduce_axes if axis.name != terms]
    *batch, row = axes[:-1] if terms is None and len(axes) > 1 else axes or [""]
    bound = [(name, "block") for name in batch]
    if len(axes) == 1 and terms is None:
        names = tuple(f"{row}_{unit}" for unit in ("block", "warp", LANE))
        yield Split(stage.buffer, row, (Level(WARPS * LANES, GUARD), Level(LANES, GUARD)), names)
        bound += zip(names, ("block", "warp", LANE), strict=True)
    elif axes:
        block, warp = f"{row}_block", f"{row}_warp"
        yield Split(stage.buffer, row, (Level(WARPS, GUARD),), (block, warp))
        bound.append((block, "block"))
        column = stage.axes[-1]
        extent, lane = ix.literal_value(column.extent), column.name
        if terms is None and (extent is None or extent > COLUMNS):
            block, lane = f"{lane}_block", f"{lane}_lane"
            yield Split(stage.buffer, column.name, (Level(COLUMNS, GUARD),), (block, lane))
            bound.append((block, "block"))
        bound += [(warp, "warp"), *([(lane, LANE)] if terms is None else [])]
        loops = (*(name for name, _ in bound), *([terms] if terms is not None else []))
        yield Order(stage.buffer, (*loops, *others))
    for axis, unit in bound:
        yield Bind(stage.buffer, axis, unit)
    if terms is not None:
        yield Bind(stage.buffer, terms, LANE, tree=True)


def axis_of_terms(stage: Stage, reassociate: bool) -> str | None:
    """Return the axis of terms that lanes add: the one by which more of what is read lies side by side than by the last axis of
    the result; None if there is none, and if a condition is asked of a whole row: where it fails, no lane has a term.
    """
    dtype = dtype_of(stage.value)
    term = conditional_term(stage.value, stage.reducer)
    terms = {axis.name for axis in stage.reduce_axes}
    if term and any(reads_memory(one) and not variables(one) & terms for one in conjuncts(term[0])):
        return None
    if dtype in HALVES or (stage.reducer == "sum" and dtype in FLOATS and not reassociate):
        return None
    loads = [one for one in walk(stage.value) if isinstance(one, Load) and one.index]
    moved_by = [variables(load.index[-1]) for load in loads]
    if not stage.axes:
        return stage.reduce_axes[-1].name if stage.reduce_axes else None
    column = stage.axes[-1].name
    by_column = sum(column in names for names in moved_by)
    for axis in reversed(stage.reduce_axes):
        if sum(axis.name in names and column not in names for names in moved_by) > by_column:
            return axis.name
    return None


__all__ = ["WARPS", "plain_decisions"]
