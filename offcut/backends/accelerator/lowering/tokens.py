"""Which leaves push and pop tokens, and in which of their instances, from what they touch on the chip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offcut.backends.accelerator.isa import Unit
from offcut.backends.accelerator.lowering.tree import Guard, Leaf, Node, Repeat
from offcut.backends.accelerator.spec import Spec
from offcut.core.expr import Const, Expr
from offcut.core.program import Program
from offcut.errors import TargetError
from offcut.polyhedral.units.issued import Issued, Touch
from offcut.polyhedral.units.tokens import Queue, queues

_UNITS = tuple(Unit)
_MEMORY = "main memory"
"""What stores write, and the end of a stream reads."""


class TokensError(TargetError):
    """Virtual threads for whose tokens there is no room."""


@dataclass(frozen=True, slots=True)
class Said:
    """When an instance of a leaf pops and pushes, as conditions on loops and sizes."""

    pop_prev: Expr
    pop_next: Expr
    push_prev: Expr
    push_next: Expr

    @property
    def conditions(self) -> tuple[Expr, Expr, Expr, Expr]:
        """In the order of the fields of an instruction."""
        return self.pop_prev, self.pop_next, self.push_prev, self.push_next


NEVER = Const(0, "bool")
SILENT = Said(NEVER, NEVER, NEVER, NEVER)


def said(
    program: Program,
    nodes: Sequence[Node],
    unit: Callable[[Leaf], Unit],
    touches: Callable[[Leaf], Sequence[Touch]],
    spec: Spec,
) -> dict[int, Said]:
    """The tokens of each leaf by its number; the end of the stream counts as one more leaf.

    touches  the regions on the chip that a leaf accesses

    Raises TokensError where a stream could come to a standstill.
    """
    issued: list[Issued] = []

    def visit(
        body: Sequence[Node],
        loops: tuple[tuple[str, Expr, Expr], ...],
        where: tuple[Expr, ...],
        time: tuple[int | str, ...],
    ) -> None:
        for position, node in enumerate(body):
            here = (*time, position)
            match node:
                case Repeat(name, lo, hi, inner):
                    visit(inner, (*loops, (name, lo, hi)), where, (*here, name))
                case Guard(condition, inner):
                    visit(inner, loops, (*where, condition), here)
                case Leaf():
                    touched = [*touches(node)]
                    own = unit(node)
                    if own is Unit.STORE:
                        touched.append(Touch(_MEMORY, None, True))
                    place = _UNITS.index(own)
                    issued.append(Issued(node.number, place, loops, where, here, tuple(touched)))

    visit(nodes, (), (), ())
    end = Touch(_MEMORY, None, False)
    last = max((leaf.number for leaf in issued), default=-1) + 1
    compute = _UNITS.index(Unit.COMPUTE)
    issued.append(Issued(last, compute, (), (), (len(nodes),), (end,)))
    made = queues(issued, program.sizes, spec.token_depth)
    for queue in made:
        if not queue.fits:
            source, target = (_UNITS[at].value for at in (queue.source, queue.target))
            raise TokensError(
                "compile",
                f"cannot run {program.name} on {spec.name} without a standstill",
                because=f"more tokens of {source} for {target} have to lie in their queue at once than "
                f"it has room for: token_depth is {spec.token_depth}",
                help=("without virtual threads",),
            )
    return {leaf.number: _of(leaf, made) for leaf in issued}


def _of(leaf: Issued, made: Sequence[Queue]) -> Said:
    """What one leaf does with the tokens of all queues."""

    def told(step: int, pushes: bool) -> Expr:
        for queue in made:
            ends = (queue.source, queue.target)
            if ends == ((leaf.unit, leaf.unit + step) if pushes else (leaf.unit + step, leaf.unit)):
                return (queue.pushes if pushes else queue.pops).get(leaf.number, NEVER)
        return NEVER

    return Said(told(-1, False), told(1, False), told(-1, True), told(1, True))
