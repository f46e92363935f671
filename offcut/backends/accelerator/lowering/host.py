"""Arrays that the host fills before a stream runs: elements of others, at sums of loops, constants around.

The reference interpreter runs them, all elements at once. What is no copy is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offcut.backends.accelerator.lowering.python_codegen import Values
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.accesses import accessed_arrays, stored_arrays
from offcut.core.expr import Const, Expr, Load, Select, loads, reads_memory, variables
from offcut.core.interpret.interpreter import Machine
from offcut.core.interpret.values import Array, lane_of
from offcut.core.program import For, Kind, Program, Stmt, Store
from offcut.core.text.printer import format_expr, format_stmt
from offcut.errors import TargetError


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
