"""The stages of loops that end at elements of arrays, as rows of a sparse matrix do: what is decided for them is that of other stages.

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

from offcut.backends.gpu.plain_stages import WARPS, plain_decisions
from offcut.core import index as ix
from offcut.core.accesses import only_reduces, stored_arrays
from offcut.core.expr import Expr, Reduce, Var
from offcut.core.program import LANE, For, Program, Stmt, Store, walk
from offcut.describe.computation import Stage, StageAxis
from offcut.partition import GUARD
from offcut.proof.normal_forms.unit_tiles import ends_at_elements, with_distinct_loops
from offcut.schedule import Primitive, Schedule
from offcut.schedule.decisions import Bind, Level, Split


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
