"""What a call of a model runs, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from offcut.core.expr import Expr
from offcut.core.interpret.run_arguments import check_size
from offcut.core.text.printer import format_expr
from offcut.errors import CallError
from offcut.graph.graph import Graph
from offcut.graph.models.arena import ALIGNMENT, Arena
from offcut.graph.models.step import Operand, Step
from offcut.graph.sizes.extents import Numbers

TARGET = 2  # the column of `ModelPlan.rows`


@dataclass(frozen=True)
class ModelPlan:
    """The kernels of a call, in order; ``str`` of it is a table.

    rows     value, operators, target, shapes of the results, slots of the arena, or how large what is measured may be; the table
             shows targets where there are several
    kernels  how many of the kernels are distinct
    arena    bytes of the slots, by expressions or numbers
    split    kernels that a target runs after others refused them, and why these did
    distributed  kernels in which products are distributed over sums, so that they may round otherwise than described
    notes    what was not fused, and why
    """

    name: str
    sizes: Mapping[str, int]
    rows: tuple[tuple[str, str, str, str, str], ...]
    kernels: int
    arena: tuple[str, ...]
    split: tuple[str, ...]
    distributed: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        lines = [f"{self.name}({at}): {len(self.rows)} kernels, {self.kernels} distinct"]
        rows = [("value", "operators", "target", "shape", "memory"), *self.rows]
        several = len({row[TARGET] for row in self.rows}) > 1 or bool(self.split)
        shown = [column for column in range(4) if several or column != TARGET]
        widths = [max(len(row[column]) for row in rows) for column in shown]
        for row in rows:
            cells = [row[column].ljust(width) for column, width in zip(shown, widths, strict=True)]
            lines.append("  ".join((*cells, row[4])).rstrip())
        lines.append(f"arena: {' + '.join(self.arena) or '0'} bytes")
        lines += self.split
        if self.distributed:
            lines.append(
                f"products distributed over sums, unless distributive=False: {', '.join(self.distributed)}"
            )
        return "\n".join([*lines, *self.notes])


def planned(
    graph: Graph,
    steps: Sequence[Step],
    arena: Arena,
    notes: Sequence[str],
    sizes: Mapping[str, int],
) -> ModelPlan:
    """The plan of a model, at sizes or in formulas.

    Raises CallError for a size that is missing, unknown, or not allowed.
    """
    names = [size.name for size in graph.sizes]
    if sizes and set(sizes) != set(names):
        raise CallError(
            "plan",
            f"cannot plan {graph.name} at {', '.join(sizes)}",
            because=f"its sizes are {', '.join(names) or 'none'}",
            help=(f"plan({', '.join(f'{name}=…' for name in names)})",),
        )
    for size in graph.sizes if sizes else ():
        check_size(size, sizes[size.name], "plan")
    number = Numbers(sizes) if sizes or not names else None

    def shown(expr: Expr) -> str:
        return format_expr(expr) if number is None else f"{number(expr)}"

    def line(step: Step) -> tuple[str, str, str, str, str]:
        shape = ", ".join(_shape(one, shown) for one in step.outputs)
        slots = [arena.of.get(one.root) for one in step.outputs]
        memory = ", ".join("result" if slot is None else f"slot {slot}" for slot in slots)
        if step.limits:
            memory = ", ".join(f"at most {limit:.1e}" for limit in step.limits)
        return step.name, " ".join(step.nodes), step.target, shape, memory

    slots = tuple(
        str(slot)
        if number is None
        else f"{-(-max(map(number, slot.bytes)) // ALIGNMENT) * ALIGNMENT:,}"
        for slot in arena.slots
    )
    distinct = len({step.code for step in steps})
    split = tuple(
        f"{step.name}: runs on {step.target}, since {name} refuses it: {because}"
        for step in steps
        for name, because in step.refused
    )
    rows = tuple(map(line, steps))
    distributed = tuple(step.name for step in steps if step.distributed)
    return ModelPlan(
        graph.name, dict(sizes), rows, distinct, slots, split, distributed, tuple(notes)
    )


def _shape(one: Operand, shown: Callable[[Expr], str]) -> str:
    return f"[{', '.join(map(shown, one.shape))}]"
