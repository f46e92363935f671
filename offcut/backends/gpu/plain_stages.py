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

The stages of loops that end at elements of arrays, as rows of a sparse matrix do: what is decided for them is that of other stages.

::

    for i in 0:n
      C[i] = 0.0                                     split C.i guard 4 as i_block i_warp
      for e in index(P[i]):index(P[i + 1])    ->     order C i_block i_warp e
        C[i] += X[index(K[e])] * V[e]                bind C.i_block block
                                                     bind C.i_warp warp
                                                     bind C.e lane tree

Loops that count a result are its axes, and the one loop of terms is one that a sum is over, whose order depends on the number of its terms alone.
Of a result of several axes, as that of a sparse matrix by a dense one, lanes go along the last one: its elements lie side by side, and terms
name rows that lie anywhere. If the loop over it is inside of that of terms, it stays there: each lane has the same elements in every term.
"""

from __future__ import annotations

from collections.abc import Iterator

from offcut.core import index as ix
from offcut.core.analysis import only_reduces, stored_arrays
from offcut.core.conditions import conditional_term, conjuncts
from offcut.core.dtypes import FLOATS, HALVES
from offcut.core.expr import Expr, Load, Reduce, Var, dtype_of, reads_memory, variables
from offcut.core.expr import walk as walk_expr
from offcut.core.program import LANE, For, Program, Stmt, Store, walk
from offcut.describe.computation import Stage, StageAxis
from offcut.partition import GUARD
from offcut.proof.normal_forms.element_loops import ends_at_elements, with_distinct_loops
from offcut.schedule import Primitive, Schedule
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
    loads = [one for one in walk_expr(stage.value) if isinstance(one, Load) and one.index]
    moved_by = [variables(load.index[-1]) for load in loads]
    if not stage.axes:
        return stage.reduce_axes[-1].name if stage.reduce_axes else None
    column = stage.axes[-1].name
    by_column = sum(column in names for names in moved_by)
    for axis in reversed(stage.reduce_axes):
        if sum(axis.name in names and column not in names for names in moved_by) > by_column:
            return axis.name
    return None


def loop_schedule(program: Program, reassociate: bool) -> Schedule | None:
    """Return the decisions for the loops of a program that end at elements of arrays; None if there are none, or if a nest is no stage.

    reassociate  whether the terms of a sum may be added in another order
    """
    if not ends_at_elements(program):
        return None
    steps, buffers = list[Primitive](), set[str]()
    for nest in with_distinct_loops(program).body:
        stage = stage_of(nest)
        own = row_decisions(nest) if stage is None else plain_decisions(stage, reassociate)
        before, stored = len(steps), stored_arrays((nest,))
        steps += own
        if len(steps) == before or buffers & stored:
            return None
        buffers |= stored
    return Schedule(program.name, tuple(steps))


def row_decisions(nest: Stmt) -> Iterator[Primitive]:
    """Yield the decisions for a nest that is no stage, but whose outermost loop counts the rows of its one result, and whose innermost loops
    run over one range of its last axis: rows on warps, elements of a row on lanes; none for any other.
    """
    loops = [stmt for stmt in walk((nest,)) if isinstance(stmt, For)]
    inner = [one for one in loops[1:] if not any(isinstance(stmt, For) for stmt in walk(one.body))]
    rows = [(one.iter, stmt) for one in inner for stmt in walk(one.body) if isinstance(stmt, Store)]
    stores = [stmt for stmt in walk((nest,)) if isinstance(stmt, Store)]
    is_alike = len({(one.lo, one.hi) for one in inner}) == 1 == len(stored_arrays((nest,)))
    if not isinstance(nest, For) or len(rows) < len(stores) or not is_alike:
        return
    buffer, row = stores[0].buffer, nest.iter
    if any((one.index[0], one.index[-1]) != (Var(row), Var(name)) for name, one in rows):
        return
    yield Split(buffer, row, (Level(WARPS, GUARD),), (f"{row}_block", f"{row}_warp"))
    yield Bind(buffer, f"{row}_block", "block")
    yield Bind(buffer, f"{row}_warp", "warp")
    for one in inner:
        yield Bind(buffer, one.iter, LANE)


def stage_of(nest: Stmt) -> Stage | None:
    """Return a nest as a stage: of the loops that count the elements of its one result, outermost first, and of the terms of one sum inside;
    None if it is no such nest.
    """
    stores = [stmt for stmt in walk((nest,)) if isinstance(stmt, Store)]
    if len({(store.buffer, store.index) for store in stores}) != 1:
        return None
    axes = list[StageAxis]()
    body: tuple[Stmt, ...] = (nest,)
    while len(body) == 1 and isinstance(loop := body[0], For) and Var(loop.iter) in stores[0].index:
        axes.append(_axis(loop))
        body = loop.body
    sums = [stmt for stmt in body if isinstance(stmt, For)]
    if not axes or len(axes) < len(stores[0].index) or len(sums) > 1:
        return None
    value: Expr = stores[-1].value
    terms = () if len(axes) > 1 else tuple(map(_axis, filter(only_reduces, sums)))
    if terms:
        value = Reduce(stores[-1].reduce or "sum", value, tuple(one.name for one in terms))
    return Stage(stores[0].buffer, stores[0].buffer, tuple(axes), terms, value)


def _axis(loop: For) -> StageAxis:
    return StageAxis(loop.iter, ix.sub(loop.hi, loop.lo), loop.iter)
