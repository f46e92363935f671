"""The operators of graphs: every function of `offcut.ops` on tensors, loop programs, and the views. What one is like is read from
its description.

Operators are classed as TVM's fusion does: ``injective``, each element from elements at its own place; ``reduction``; ``complex``,
sums of products, whose results others may follow; ``opaque``, a loop program, which nothing joins. A view is none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from offcut import ops
from offcut.core.expr import Binary, Cast, Expr, Reduce, loads
from offcut.core.names import similar_names
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.graph.program_operators import PROGRAMS
from offcut.graph.views import VIEWS


class Kind(Enum):
    """How an operator may be fused."""

    INJECTIVE = "injective"
    REDUCTION = "reduction"
    COMPLEX = "complex"
    OPAQUE = "opaque"


def get_operator(op: str) -> Callable[..., Any]:
    """The function of tensors that an operator is; what it gives are tensors, or a loop program.

    Raises DescribeError where there is none of that name, or it is a view that no index says.
    """
    view = VIEWS[op].describe if op in VIEWS else None
    if view is not None:
        return view
    if op in PROGRAMS:
        return PROGRAMS[op]
    if op not in ops.__all__:
        known = sorted((*ops.__all__, *PROGRAMS, *VIEWS))
        raise DescribeError(
            "graph",
            f"cannot find the operator {op!r}",
            because=f"operators are {', '.join(known)}",
            help=tuple(filter(None, [similar_names(op, known)])),
        )
    operator: Callable[..., Any] = getattr(ops, op)
    return operator


def kind_of(results: tuple[Tensor, ...]) -> Kind:
    """The class of an operator, by what it describes: the tensors of its results."""
    kinds, pending, visited = [Kind.INJECTIVE], list(results), set[int]()
    while pending:
        tensor = pending.pop()
        if id(tensor) in visited or tensor.definition is None:
            continue
        visited.add(id(tensor))
        body = tensor.definition.body
        if isinstance(body, Reduce):
            kinds.append(Kind.COMPLEX if _is_product(body.value) else Kind.REDUCTION)
        pending += tensor.definition.reads
    order = (Kind.COMPLEX, Kind.REDUCTION, Kind.INJECTIVE)
    return next(kind for kind in order if kind in kinds)


def _is_product(term: Expr) -> bool:
    """Whether a term multiplies elements of two arrays, or of one at two places."""
    while isinstance(term, Cast):
        term = term.a
    if not isinstance(term, Binary) or term.op != "*":
        return False
    sides = [{(load.buffer, load.index) for load, _ in loads(side)} for side in (term.a, term.b)]
    return bool(sides[0]) and bool(sides[1]) and sides[0] != sides[1]
