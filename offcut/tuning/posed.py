"""What a user asks to be tuned -> the problem that it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offcut.backends.compile_request import request_by_names
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
    request, _ = request_by_names(target, output, inputs, constants, options, op)
    weights = distribution(request.program, request.users, sizes)
    return Problem(request, options, target, weights, seed)
