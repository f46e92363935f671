"""The greatest value of an index over the loops around it and the sizes, as isl finds it."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from offcut.core.expr import Compare, Expr, Var
from offcut.core.program import Size
from offcut.polyhedral.affine import Set, Space, coordinates


def maximum(
    expr: Expr,
    sizes: Sequence[Size],
    assumptions: Sequence[Expr],
    loops: Sequence[tuple[str, Expr, Expr]],
) -> int | None:
    """``max { expr : loops, sizes }``; None where there is no greatest, or it is not quasi-affine.

    loops  (iterator, lo, hi), outermost first

    0 where nothing runs.
    """
    space = Space(tuple(sizes), tuple(assumptions))
    names = [name for name, _, _ in loops]
    at = coordinates(names)
    value = space.expr(expr, at)
    if value is None:
        return None
    said = [space.facts, f"x{len(names)} = {value}"]
    for name, lo, hi in loops:
        for side in (Compare("<=", lo, Var(name)), Compare("<", Var(name), hi)):
            text = space.condition(side, at)
            if text is not None:
                said.append(text)
    dims = ", ".join(f"x{k}" for k in range(len(names) + 1))
    points = Set(f"{space.parameters}{{ [{dims}] : {' and '.join(said)} }}")
    points = points.project_out(isl.dim_type.set, 0, len(names))
    points = points.move_dims(
        isl.dim_type.set, 1, isl.dim_type.param, 0, points.dim(isl.dim_type.param)
    )
    if points.is_empty():
        return 0
    found = points.dim_max_val(0)
    return int(found.to_python()) if found.is_int() else None
