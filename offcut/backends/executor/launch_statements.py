"""The statements of a program that are launches, and when a call takes each: the host chooses among options by their costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from offcut.core.expr import Compare, Expr, Logic
from offcut.core.interpret.values import evaluate
from offcut.core.program import Choose, Option, Program, Stmt, Sync


@dataclass(frozen=True, slots=True)
class LaunchStatement:
    """A launch.

    kernel  the name of its kernel
    option  the label of the option that it is in; "": none
    taken   whether a call takes it, over the sizes; None: every call does
    """

    stmt: Stmt
    kernel: str
    option: str
    taken: Expr | None


def launch_statements(program: Program) -> tuple[LaunchStatement, ...]:
    """Return the launches of a program, those of all options, in the order of its text."""
    launches = list(_launches(program.body, "", None))
    base = f"offcut_{program.name}"
    return tuple(
        LaunchStatement(stmt, f"{base}_{number}" if len(launches) > 1 else base, label, taken)
        for number, (stmt, label, taken) in enumerate(launches, 1)
    )


def cheapest(options: Sequence[Option], values: Mapping[str, int]) -> Option:
    """Return the option whose cost is least at these values, the first of equal ones; a cost that is no number is above all others."""

    def cost_of(option: Option) -> float:
        cost = float(evaluate(option.cost, values))
        return inf if cost != cost else cost

    return min(options, key=cost_of)


def _launches(
    body: Sequence[Stmt], label: str, taken: Expr | None
) -> Iterator[tuple[Stmt, str, Expr | None]]:
    for stmt in body:
        match stmt:
            case Sync():
                pass
            case Choose(options):
                for number, option in enumerate(options):
                    outer = () if taken is None else (taken,)
                    conditions = (*outer, *_is_least(options, number))
                    all_hold = Logic("and", conditions) if conditions else None
                    yield from _launches(option.body, option.label, all_hold)
            case _:
                yield stmt, label, taken


def _is_least(options: Sequence[Option], number: int) -> list[Expr]:
    """Return the conditions by which an option costs least, and less than those before it."""
    own = options[number].cost
    before = [Compare("<", own, other.cost) for other in options[:number]]
    return [*before, *(Compare("<=", own, other.cost) for other in options[number + 1 :])]


__all__ = ["LaunchStatement", "cheapest", "launch_statements"]
