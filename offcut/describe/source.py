"""A described computation as the loop program that a reader would write: what every cut must equal.

Each group of stages becomes one nest of loops over its axes, around a body that initialises,
reduces, and runs the stages that follow at the same point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offcut.core import index as ix
from offcut.core.expr import Var
from offcut.core.program import For, Program, Stmt, Store
from offcut.describe.computation import Computation, Stage, StageAxis

# (the reduction axis, the one update of its terms, what is inside it) -> its loops
Around = Callable[[StageAxis, tuple[Stmt, ...]], tuple[Stmt, ...]]


def source(computation: Computation) -> Program:
    """`computation` in plain loops, not cut; ``str`` of it is what `parse` could have read."""
    body: tuple[Stmt, ...] = ()
    for group in computation.groups:
        body += plain_loops(group[0].axes, instance(group))
    return Program(
        computation.name, computation.sizes, computation.assumptions, computation.buffers, body
    )


def plain_loop(axis: StageAxis, body: tuple[Stmt, ...]) -> For:
    """``for axis in 0:extent`` around `body`."""
    return For(axis.name, ix.const(0), axis.extent, body)


def plain_loops(axes: Sequence[StageAxis], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return loops over `axes`, the first outermost, around `body`."""
    for axis in reversed(axes):
        body = (plain_loop(axis, body),)
    return body


def instance(
    group: Sequence[Stage],
    around: Around = lambda axis, body: (plain_loop(axis, body),),
) -> tuple[Stmt, ...]:
    """What one point of a group runs: each reduction initialised and added up, then what follows.

    around   makes the loops of a reduction axis; plain ones by default
    """
    body: tuple[Stmt, ...] = ()
    for stage in group:
        point = tuple(Var(axis.name) for axis in stage.axes)
        if stage.reducer is None:
            body += (Store(stage.buffer, point, stage.term),)
            continue
        terms: tuple[Stmt, ...] = (Store(stage.buffer, point, stage.term, stage.reducer),)
        for axis in reversed(stage.reduce_axes):
            terms = around(axis, terms)
        body += (Store(stage.buffer, point, stage.start), *terms)
    return body
