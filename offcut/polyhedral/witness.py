"""Find the smallest counterexample in a set, for an error; check that it is one."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from offcut.core.expr import Expr, Load, walk
from offcut.core.interpret.values import evaluate
from offcut.errors import InternalError

_PARAM, _SET = isl.dim_type.param, isl.dim_type.set


def smallest_point(broken: isl.Set) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return sizes and coordinates of the smallest point of `broken`; None if it is empty.

    Smallest: the least sum of the sizes, then the sizes, then the coordinates, lexicographically.
    Every parameter must be bounded below, as sizes are; of a coordinate that is not, the least that
    is not negative, or else the greatest.
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
    # Part by part: isl's minimum over a union in which a part has become empty is not one.
    parts = points.apply(by_sum).get_basic_sets()
    lowest = min(_least(isl.Set.from_basic_set(p)) for p in parts if not p.is_empty())
    return lowest[1 : 1 + sizes], lowest[1 + sizes :]


def holds_at(condition: Expr, point: Mapping[str, int]) -> bool:
    """Return whether a condition has a value at these sizes and iterators, and holds."""
    if any(isinstance(node, Load) for node in walk(condition)):
        return False
    try:
        return bool(evaluate(condition, point))
    except InternalError:  # it divides by what is not positive
        return False


def _least(points: isl.Set) -> tuple[int, ...]:
    """Return the lexicographic minimum, one coordinate after the other: of some sets that were projected,
    isl's own has no sample.
    """
    values: list[int] = []
    for k in range(points.dim(_SET)):
        value = points.dim_min_val(k)
        if not value.is_int():
            up = points.lower_bound_val(_SET, k, 0)
            value = points.dim_max_val(k) if up.is_empty() else up.dim_min_val(k)
        if not value.is_int():  # isl stopped at the bound of its work, and says NaN
            raise isl.Error("a set that is not empty has no least value")
        points = points.fix_val(_SET, k, value)
        values.append(int(value.to_python()))
    return tuple(values)


def project_onto_sizes(points: isl.Set, sizes: int) -> isl.Set:
    """Project `points` onto the first sizes."""
    more = points.dim(isl.dim_type.param) - sizes
    return points.project_out(isl.dim_type.param, sizes, more)
