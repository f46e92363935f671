"""Python functions that are made of a lowered nest: the loops around its leaves, and arrays that the host fills.

Arrays that the host fills before a stream runs: elements of others, at sums of loops, constants around.

The reference interpreter runs them, all elements at once. What is no copy is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from offcut.backends.accelerator.lowering.issue_tree import Guard, Leaf, Node, Repeat
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.analysis import accessed_arrays, stored_arrays
from offcut.core.expr import (
    Const,
    Expr,
    Load,
    Select,
    Var,
    loads,
    reads_memory,
    substitute,
    variables,
)
from offcut.core.interpret.interpreter import Machine
from offcut.core.interpret.values import Array, lane_of
from offcut.core.program import For, Kind, Program, Stmt, Store
from offcut.core.text.printer import format_expr, format_stmt
from offcut.errors import TargetError
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


def is_host(program: Program, stmt: Stmt) -> bool:
    """Whether a statement fills an array in main memory from others there."""
    scoped = {buffer.name for buffer in program.buffers if buffer.scope is not None}
    while isinstance(stmt, For) and len(stmt.body) == 1:
        stmt = stmt.body[0]
    return isinstance(stmt, Store) and not accessed_arrays((stmt,)) & scoped and stmt.reduce is None


def check_copy(program: Program, stmt: Stmt, spec: AcceleratorSpec) -> None:
    """Refuse a statement of the host that is no copy of whole boxes.

    Raises TargetError.
    """
    loops, store = _nest(stmt)
    names = {name for name, _, _ in loops}
    bounds = set().union(*(variables(lo) | variables(hi) for _, lo, hi in loops))
    because = _no_copy(store.value)
    if names & bounds:
        because = "its loops are bounded by one another, and the host fills boxes"
    elif not all(map(_is_index, store.index)):
        because = "it is stored where memory says"
    elif store.buffer in {load.buffer for load, _ in loads(store.value)}:
        because = f"it reads {store.buffer}, which it fills"
    if because is not None:
        raise TargetError(
            "compile",
            f"cannot run a statement for {spec.name} on the host",
            at=format_stmt(store),
            because=because,
            help=(
                "the host copies elements, or constants where a condition fails",
                f"{program.buffer(store.buffer).name} in a memory of the machine, which computes",
            ),
        )


def _no_copy(value: Expr) -> str | None:
    """Why a value is no copy; None where it is one."""
    match value:
        case Const():
            return None
        case Load(index=index) if all(map(_is_index, index)):
            return None
        case Select(condition, Load(index=index), Const()) if all(map(_is_index, index)):
            return None if _is_index(condition) else "its condition reads memory"
        case Load() | Select(_, Load(), Const()):
            return "it reads where memory says"
    return f"{format_expr(value)} is not an element"


def _is_index(expr: Expr) -> bool:
    """Whether coordinates alone say what it is."""
    return not reads_memory(expr)


def _nest(stmt: Stmt) -> tuple[list[tuple[str, Expr, Expr]], Store]:
    """The loops around a statement, outermost first."""
    loops: list[tuple[str, Expr, Expr]] = []
    while isinstance(stmt, For):
        loops.append((stmt.iter, stmt.lo, stmt.hi))
        stmt = stmt.body[0]
    assert isinstance(stmt, Store)
    return loops, stmt


def run_host_copies(
    program: Program, stmt: Stmt, arrays: Mapping[str, Array], sizes: Values
) -> Array:
    """Return the array that a nest of copies fills; elsewhere what was there stays.

    arrays  by name, those of `program` that the nest accesses: the one that it fills is changed in place
    """
    (name,) = stored_arrays((stmt,))
    accessed = accessed_arrays((stmt,))
    kinds = {name: Kind.OUTPUT}
    buffers = tuple(
        replace(program.buffer(one), kind=kinds.get(one, Kind.INPUT)) for one in sorted(accessed)
    )
    memory = {one: arrays[one] for one in accessed}
    machine = Machine(replace(program, buffers=buffers, body=(stmt,)), memory, sizes, together=True)
    machine.block((stmt,), lane_of(sizes))
    return machine.memory[name]
