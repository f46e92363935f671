"""The smallest counterexample in a set: what a refusal shows."""

from __future__ import annotations

import islpy as isl

_PARAM, _SET = isl.dim_type.param, isl.dim_type.set


def smallest(broken: isl.Set) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Sizes and coordinates of the smallest point of `broken`; None when it is empty.

    Smallest: the least sum of the sizes, then the sizes, then the coordinates, lexicographically.
    Every parameter must be bounded below, as sizes are.
    """
    if broken.is_empty():
        return None
    sizes, rank = broken.dim(_PARAM), broken.dim(_SET)
    if sizes + rank == 0:
        return (), ()
    points = broken.move_dims(_SET, 0, _PARAM, 0, sizes) if sizes else broken
    points = points.reset_tuple_id() if points.has_tuple_id() else points
    dims = [f"d{k}" for k in range(sizes + rank)]
    total = " + ".join(dims[:sizes]) or "0"
    by_sum = isl.Map(f"{{ [{', '.join(dims)}] -> [{total}, {', '.join(dims)}] }}")
    point = points.apply(by_sum).lexmin().sample_point()
    values = [int(point.get_coordinate_val(_SET, k + 1).to_python()) for k in range(sizes + rank)]
    return tuple(values[:sizes]), tuple(values[sizes:])
