"""Conditions taken apart: what holds where another fails, and the parts that hold together."""

from __future__ import annotations

from dataclasses import replace

from offcut.core.expr import Compare, Expr, Logic


def negated(condition: Expr) -> Expr:
    """What holds where `condition` does not."""
    if isinstance(condition, Compare):
        return replace(condition, op=_OPPOSITE[condition.op])
    return Logic("not", (condition,))


_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def conjuncts(condition: Expr, holds: bool = True) -> tuple[Expr, ...]:
    """Conditions that hold together exactly where `condition` does; where it fails, if not `holds`."""
    match condition:
        case Logic("not", (inner,)):
            return conjuncts(inner, not holds)
        case Logic(op, args) if op == ("and" if holds else "or"):
            return tuple(part for arg in args for part in conjuncts(arg, holds))
    return (condition if holds else negated(condition),)
