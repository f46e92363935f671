"""The loops around leaves as a Python function: what is symbolic is computed once a kernel, not once a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from offcut.backends.accelerator.lowering.issue_tree import Guard, Leaf, Node, Repeat
from offcut.core.expr import Const, Expr, Var, substitute, variables
from offcut.core.program import Program
from offcut.core.text.printer import format_expr
from offcut.polyhedral.derived_sizes import check_promise

Values = Mapping[str, int]
Shape = tuple[int, ...]
Issue = Callable[[int, Shape, Callable[[], Sequence[int]]], None]
"""The number of a leaf, what its instances that run alike have in common, and the values of its expressions."""


def compile_walker(
    program: Program,
    nodes: Sequence[Node],
    shapes: Mapping[int, Sequence[Expr]],
    asked: Mapping[int, Sequence[Expr]],
) -> Callable[[Issue, Values], None]:
    """Return a function that issues the leaves of a nest for given sizes.

    shapes  by the number of a leaf, the expressions that say whether two instances run alike
    asked   those that are to be known of each, which are computed where they are asked for
    """
    lines = ["def issue(leaf, sizes):"]
    lines += [f"  {_own(size.name)} = sizes[{size.name!r}]" for size in program.sizes]
    lines.append("  pass")
    _write(nodes, shapes, asked, "  ", lines)
    scope: dict[str, Any] = {}
    exec("\n".join(lines), {"true": True, "false": False, "promised": _bounded_value}, scope)
    walker: Callable[[Issue, Values], None] = scope["issue"]
    return walker


def _write(
    nodes: Sequence[Node],
    shapes: Mapping[int, Sequence[Expr]],
    asked: Mapping[int, Sequence[Expr]],
    indent: str,
    lines: list[str],
) -> None:
    for node in nodes:
        match node:
            case Leaf(number):
                shape = "".join(f"{to_python(one)}, " for one in shapes[number])
                values = "".join(f"{to_python(one)}, " for one in asked[number])
                lines.append(f"{indent}leaf({number}, ({shape}), lambda: ({values}))")
                continue
            case Repeat(name, value, promised=(lo, hi)):
                arguments = f"{name!r}, {to_python(value)}, {lo}, {hi}"
                lines.append(f"{indent}for {_own(name)} in promised({arguments}):")
            case Repeat(name, lo, hi):
                lines.append(
                    f"{indent}for {_own(name)} in range({to_python(lo)}, {to_python(hi)}):"
                )
            case Guard(condition):
                lines.append(f"{indent}if {to_python(condition)}:")
        lines.append(f"{indent}  pass")
        _write(node.body, shapes, asked, indent + "  ", lines)


def _bounded_value(name: str, value: int, lo: int, hi: int) -> tuple[int]:
    """Return the one iteration of a `let`."""
    return (check_promise(name, value, lo, hi),)


def to_python(expr: Expr) -> str:
    """Return an expression over sizes and loops as Python; names get an underscore, none is a word of Python then."""
    if isinstance(expr, Const):
        return str(int(expr.value))
    own: dict[str, Expr] = {name: Var(_own(name)) for name in variables(expr)}
    return format_expr(substitute(expr, own))


def _own(name: str) -> str:
    return f"_{name}"
