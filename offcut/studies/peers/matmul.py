"""A contraction seen as a matrix product, where it is one: what libraries have a call for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from offcut.describe.request import Array
from offcut.experiment.timing import Run
from offcut.studies.peers.operators import Problem


@dataclass(frozen=True, slots=True)
class Matmul:
    """A contraction seen as ``c[b, m, n] = sum over k of a[b, m, k] * b[b, k, n]``.

    The arrays are without the axis b when the contraction has no axis that both operands and the
    result share. `c` is a view of `out`, so writing the one writes the other.

    columns  axes of the result that are n
    """

    a: Array
    b: Array
    c: Array
    out: Array
    constant_b: bool
    kind: str
    columns: int

    @property
    def batched(self) -> bool:
        """Return whether there is an axis b."""
        return self.a.ndim == 3

    @property
    def is_in_order(self) -> bool:
        """Return whether the result's axes lie as b, m, n do: steps of an epilogue then have the same rows and columns."""
        return bool(self.c.flags.c_contiguous)

    @property
    def has_row_bias(self) -> bool:
        """Return whether what is added along the result's last axis is added along n."""
        return self.is_in_order and self.columns == 1


def as_matmul(problem: Problem) -> Matmul | None:
    """Return `problem` as a matrix product, or None when it is not one.

    Axes are grouped by who has them: both operands and the result (b), the first and the result
    (m), the second and the result (n), both operands (k). Constants are copied where that makes
    their groups adjacent; another operand must be a view, or the copy would not be timed.
    """
    contraction = problem.contraction
    if len(contraction.operands) != 2:
        return None
    left, right = contraction.operands
    if len(set(left)) < len(left) or len(set(right)) < len(right):
        return None
    result = contraction.result
    shared = [x for x in result if x in left and x in right]
    rows = [x for x in result if x not in right]
    columns = [x for x in result if x not in left]
    inner = [x for x in left if x in right and x not in result]
    if len(shared) + len(rows) + len(inner) < len(left):
        return None
    if len(shared) + len(columns) + len(inner) < len(right):
        return None

    def grouped(
        array: Array, letters: str, groups: tuple[list[str], ...], copy: bool
    ) -> Array | None:
        axes = [letters.index(x) for group in groups for x in group]
        sizes = [int(np.prod([problem.sizes[x] for x in group], dtype=int)) for group in groups]
        seen = array.transpose(axes).reshape(sizes)
        if np.may_share_memory(seen, array):
            return seen
        return np.ascontiguousarray(seen) if copy else None

    batch = (shared,) if shared else ()
    name_a, name_b = contraction.names
    out = problem.result()
    a = grouped(problem.arrays[name_a], left, (*batch, rows, inner), name_a in problem.constant)
    b = grouped(problem.arrays[name_b], right, (*batch, inner, columns), name_b in problem.constant)
    c = grouped(out, result, (*batch, rows, columns), copy=False)
    if a is None or b is None or c is None:
        return None
    return Matmul(a, b, c, out, name_b in problem.constant, problem.kind, len(columns))


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a problem.

    run    one call on operands that it holds
    read   the result of the latest `run`, from what that returned; axes as the problem has them; of a model, as `results_of` takes it
    """

    name: str
    run: Run
    read: Callable[[Any], Any]


class Peer(Protocol):
    """A library, or a compiler of loops, that computes tasks in one way or several."""

    @property
    def name(self) -> str:
        """Return its name in tables and pictures."""

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """Return the ways it has to compute `task`; none when it cannot."""
