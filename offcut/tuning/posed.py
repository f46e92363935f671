"""What a user asks to be tuned -> the problem that it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offcut.backends.requested import stand_ins
from offcut.backends.target import Options, Target
from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.tuning.distribution import distribution
from offcut.tuning.problem import Problem


def posed(
    op: str,
    output: Tensor | Sequence[Tensor] | Program,
    inputs: Sequence[Tensor] | None,
    constants: Sequence[str] | Mapping[str, Any],
    sizes: Mapping[str, Any] | None,
    target: Target,
    options: Options,
    seed: int = 0,
) -> Problem:
    """Return a computation at a distribution of sizes; other arguments are those of `offcut.tune`.

    op   what refusals call the step

    Raises DescribeError for an argument that means nothing.
    """
    known = constants
    if not isinstance(constants, Mapping):
        known = stand_ins(constants, output, inputs, op)
    request, _ = target.request(output, inputs, known, options, op)
    weights = distribution(request.program, request.users, sizes)
    return Problem(request, options, target, weights, seed)
