"""What a call of a model runs, as a table."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from offcut.core.expr import Expr
from offcut.core.interpret.run_arguments import given_sizes
from offcut.core.text.printer import format_expr
from offcut.graph.graph import Graph
from offcut.graph.models.batches.arena_plan import ArenaPlan, align_up
from offcut.graph.models.batches.parts import Part
from offcut.graph.models.frames import Prepared
from offcut.graph.models.kernel_step import Operand, Step

TARGET = 2  # the column of `ModelPlan.rows`


@dataclass(frozen=True)
class ModelPlan:
    """The kernels of a call, in order; ``str`` of it is a table.

    rows     value, operators, target, shapes of the results, slots of the arena, or whether they lie there for a part or for all
             of the batch, or how large what is measured may be; the table shows targets where there are several
    kernels  how many of the kernels are distinct
    arena    bytes of the slots, by expressions or numbers; of all of it where kernels run in parts
    parts    kernels that run for a part of the batch at a time, where sizes are known; their lines are a text that `compiled` takes
    split    kernels that a target runs after others refused them, and why these did
    distributed  kernels in which products are distributed over sums, so that they may round otherwise than described
    notes    what was not fused, or does not run in parts as it might, and why
    """

    name: str
    sizes: Mapping[str, int]
    rows: tuple[tuple[str, str, str, str, str], ...]
    kernels: int
    arena: tuple[str, ...]
    parts: tuple[Part, ...]
    split: tuple[str, ...]
    distributed: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        lines = [f"{self.name}({at}): {len(self.rows)} kernels, {self.kernels} distinct"]
        rows = [("value", "operators", "target", "shape", "memory"), *self.rows]
        several = len({row[TARGET] for row in self.rows}) > 1 or bool(self.split)
        columns = [column for column in range(4) if several or column != TARGET]
        widths = [max(len(row[column]) for row in rows) for column in columns]
        for row in rows:
            cells = [
                row[column].ljust(width) for column, width in zip(columns, widths, strict=True)
            ]
            lines.append("  ".join((*cells, row[4])).rstrip())
        lines.append(f"arena: {' + '.join(self.arena) or '0'} bytes")
        lines += map(str, self.parts)
        lines += self.split
        if self.distributed:
            lines.append(
                f"products distributed over sums, unless distributive=False: {', '.join(self.distributed)}"
            )
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def make_plan(
    graph: Graph, shared: Prepared, notes: Sequence[str], sizes: Mapping[str, int]
) -> ModelPlan:
    """The plan of a model, at sizes or in formulas.

    Raises CallError for a size that is missing, unknown, or not allowed.
    """
    sizes = given_sizes("plan", graph.name, graph.sizes, sizes) if sizes else {}
    number = shared.valued(sizes) if sizes or not graph.sizes else None
    steps, arena = shared.steps, shared.arena
    runs, dropped = ([], []) if number is None else shared.runs(number, sizes)
    layout = None if number is None else ArenaPlan(arena, number, runs)
    own = dict[str, str]()
    if layout is not None:
        own = dict.fromkeys(arena.lives, "arena") if runs else {}
        own |= dict.fromkeys(frozenset[str]().union(*layout.inner), "part")

    def format_extent(expr: Expr) -> str:
        return format_expr(expr) if number is None else f"{number(expr)}"

    def memory(root: str) -> str:
        return own.get(root) or (f"slot {arena.of[root]}" if root in arena.of else "result")

    def line(step: Step) -> tuple[str, str, str, str, str]:
        shape = ", ".join(_shape(one, format_extent) for one in step.outputs)
        lies = ", ".join(memory(one.root) for one in step.outputs)
        if step.limits:
            lies = ", ".join(f"at most {limit:.1e}" for limit in step.limits)
        return step.name, " ".join(step.nodes), step.target, shape, lies

    if layout is None:
        slots = tuple(map(str, arena.slots))
    else:
        slots = tuple(f"{align_up(need):,}" for need in layout.slots or (layout.bytes,))
    split = tuple(
        f"{step.name}: runs on {step.target}, since {name} refuses it: {because}"
        for step in steps
        for name, because in step.refused
    )
    return ModelPlan(
        graph.name,
        dict(sizes),
        rows=tuple(map(line, steps)),
        kernels=len({step.code for step in steps}),
        arena=slots,
        parts=tuple(run.part for run in runs),
        split=split,
        distributed=tuple(step.name for step in steps if step.distributed),
        notes=(*dropped, *notes),
    )


def _shape(one: Operand, format_extent: Callable[[Expr], str]) -> str:
    return f"[{', '.join(map(format_extent, one.shape))}]"
