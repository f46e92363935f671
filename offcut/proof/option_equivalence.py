"""A program that leaves a choice in; whether each of its options computes what the first one does out.

One option runs, and which one the sizes of a call say: where two of them compute different things, what a call
gives depends on predicted costs. Each combination of options is compared with that of the first ones, as an
emitted program is with its source, the terms of a sum in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from offcut.core.expr import real
from offcut.core.program import Choose, Option, Program, Stmt
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.traversal import map_blocks
from offcut.errors import PartitionError
from offcut.polyhedral import PASS
from offcut.proof.by_instances.pairing import UNDECIDED, undecided_error
from offcut.proof.equivalence import check_equal
from offcut.proof.normal_forms.options import (
    count_combinations,
    find_iteration_dependent_cost,
    options,
)

_MOST = 16  # combinations that are compared


def without_costs(program: Program) -> Program:
    """`program` with options that all cost nothing: what they compute is all that is left to compare."""

    def free(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(one, body))

    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Choose):
            return Choose(tuple(Option(o.label, real(0.0), free(o.body)) for o in stmt.options))
        return map_blocks(stmt, free)

    return replace(program, body=free(program.body))


def check_throughout(program: Program) -> None:
    """Refuse to tell of options that iterations may take anew: a proof is of one option throughout.

    Those that a cut makes run the same iterations whichever is taken, and are not asked.

    Raises PartitionError.
    """
    if (cost := find_iteration_dependent_cost(program)) is not None:
        why = f"each iteration may take another option, by {format_expr(cost)}, and a proof is of one throughout"
        raise undecided_error(program.name, why)


def check_options(program: Program, op: str) -> str:
    """Prove that all options of `program` compute the same, at every allowed size; why that is not told, "" where it is.

    isl may take what a pass may, for all of them together.

    Raises PartitionError, as `op`, with the option's line and the smallest witness where one computes something else.
    """
    count = count_combinations(program.body)
    if count > _MOST:
        return f"it is not told that options compute the same: there are {count} combinations, and {_MOST} are compared"
    if (cost := find_iteration_dependent_cost(program)) is not None:
        return f"it is not told that options compute the same: each iteration may take another one, by {format_expr(cost)}"
    (_, body), *others = options(program.body)
    first = replace(program, body=body)
    for label, other in others:
        try:
            check_equal(first, replace(program, body=other), most=PASS // len(others))
        except PartitionError as error:
            if error.refused == UNDECIDED:
                return f"it is not told that option {label} computes what the first one does: {error.because}"
            raise PartitionError(
                op,
                "the options of a choice compute different things",
                at="; ".join(_lines(program, label)),
                because=f"with the first option as the source, {error.because}",
                help=(
                    "options that compute the same, in other loops",
                    "if, where the result differs",
                ),
            ) from None
    return ""


def _lines(program: Program, label: str) -> Iterator[str]:
    """How the options of a combination are written, but for those that are the first of their choice."""
    label_words = set(label.split(" "))
    for stmt in statements(program.body):
        if isinstance(stmt, Choose):
            for option in islice(stmt.options, 1, None):
                if option.label in label_words:
                    yield f"option {option.label} costs {format_expr(option.cost)}"
