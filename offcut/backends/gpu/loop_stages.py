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
name rows that lie anywhere.
"""

from __future__ import annotations

from offcut.backends.gpu.plain_stages import plain_decisions
from offcut.core import index as ix
from offcut.core.accesses import only_reduces
from offcut.core.expr import Expr, Reduce, Var
from offcut.core.program import For, Program, Stmt, Store, walk
from offcut.describe.computation import Stage, StageAxis
from offcut.proof.normal_forms.unit_tiles import ends_at_elements
from offcut.schedule import Schedule


def loop_schedule(program: Program, reassociate: bool) -> Schedule | None:
    """Return the decisions for the loops of a program that end at elements of arrays; None if there are none, or if a nest is no stage.

    reassociate  whether the terms of a sum may be added in another order
    """
    if not ends_at_elements(program):
        return None
    stages = [stage_of(stmt) for stmt in program.body]
    known = [stage for stage in stages if stage is not None]
    if len(known) < len(stages) or len({stage.buffer for stage in known}) < len(known):
        return None
    steps = (step for stage in known for step in plain_decisions(stage, reassociate))
    return Schedule(program.name, tuple(steps))


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
