"""What a cost must be that somebody wrote: seconds, told by the sizes alone.

What it divides by is shown to be positive for all sizes, as the loops evaluate it at each call. That it is a number and at least
0 is looked at where sizes are small, and at some larger ones: it decides what runs, never what that computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from offcut.core.expr import Expr, Load, variables, walk
from offcut.core.interpret.values import Array, evaluate_all
from offcut.core.program import Size
from offcut.core.samples import samples
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError
from offcut.polyhedral import unsafe_divisor

_POINTS = 1024  # that are looked at, of all sizes together
_LONGEST = 80  # characters of a cost that are shown: one that a target made has hundreds


def check_cost(cost: Expr, sizes: Sequence[Size], assumptions: Sequence[Expr]) -> None:
    """Refuse predicted seconds that are no expression in the sizes alone, or no seconds at some of them.

    Raises PartitionError with the smallest sizes that are looked at at which it is negative, or no number.
    """
    known = [size.name for size in sizes]
    loads = (one.buffer for one in walk(cost) if isinstance(one, Load))
    others = sorted({*variables(cost), *loads} - {*known})
    if others:
        because = f"it reads {', '.join(others)}, and a cost is told by the sizes alone"
        raise _refusal(cost, f"{because}, which are {', '.join(known) or 'none'}")
    unsafe = unsafe_divisor(cost, sizes, assumptions)
    if unsafe is not None:
        divisor, because = unsafe
        help = f"max({format_expr(divisor)}, 1)", "where(…), around the division"
        raise _refusal(cost, f"it divides by {format_expr(divisor)}; {because}", *help)
    points = _points(tuple(sizes))
    count = len(points.T)
    values = dict(zip(known, points, strict=True))
    allowed = [evaluate_all(fact, values, count) for fact in assumptions]
    costs = np.asarray(evaluate_all(cost, values, count), np.float64)
    (broken,) = np.nonzero(np.logical_and.reduce([~(costs >= 0), *allowed]))
    if broken.size:
        at = ", ".join(f"{name} = {of[broken[0]]}" for name, of in values.items())
        condition = f"with {at}, " if variables(cost) else ""
        raise _refusal(cost, f"{condition}it is {costs[broken[0]]:g}, and seconds are at least 0")


@lru_cache(1 << 8)
def _points(sizes: tuple[Size, ...]) -> Array:
    """Some values of all sizes, by size, then by point; the smallest points first."""
    each = int(_POINTS ** (1 / max(len(sizes), 1)))
    points = product(*(_values(size, each) for size in sizes))
    return np.array(sorted(points, key=lambda at: (sum(at), at)), np.int64).T


def _values(size: Size, count: int) -> Sequence[int]:
    """As many values of a size at most: half of them its least ones, the others further and further apart, up to the last."""
    least = range(size.at_or_above(0), size.max + 1, size.multiple_of)[: max(count // 2, 1)]
    larger = samples(size, count - len(least)) if size.max > least[-1] else ()
    return sorted({*least, *map(int, larger)})


def _refusal(cost: Expr, because: str, *help: str) -> PartitionError:
    text = format_expr(cost)
    what = f"cannot take {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…'} as a cost"
    return PartitionError("schedule", what, because=because, help=help)
