"""The executor of programs of units, with what a GPU asks of a tile and of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy.typing as npt

from offcut.backends import executor
from offcut.backends.gpu.executor.check_covers import CoverChecker
from offcut.backends.gpu.executor.limits import Limits, check_limits
from offcut.backends.gpu.units import AGENTS
from offcut.core.interpret.values import Array
from offcut.core.program import Program, Stmt
from offcut.describe.microkernel import Microkernel


def execute(
    program: Program,
    inputs: Mapping[str, npt.ArrayLike],
    sizes: Mapping[str, int] | None = None,
    *,
    kernels: Sequence[Microkernel] = (),
    limits: Limits | None = None,
    expects: Mapping[str, int] | None = None,
    seed: int = 0,
) -> dict[str, Array]:
    """Run `program` by the units of a GPU side by side; return its results by name.

    inputs   an array for each input, constant and inout buffer; none is changed
    sizes    those that no shape determines
    kernels  the microkernels whose tiles are checked
    limits   of a block; None: none are checked
    expects  the bytes that each phase of a token's barrier expects
    seed     of the order in which agents run

    Raises CallError for arguments that do not fit the program, ExecutionFault for each fault of `FINDERS`.
    """
    checks = _Checks(program, kernels, limits)
    return executor.execute(
        program, inputs, sizes, agents=AGENTS, checks=checks, expects=expects, seed=seed
    )


class _Checks(CoverChecker):
    """Checks of a GPU: of tiles with a cover, and of launches."""

    def __init__(
        self, program: Program, kernels: Sequence[Microkernel], limits: Limits | None
    ) -> None:
        super().__init__(program, kernels)
        self.limits = limits

    def check_launch(self, launch: Sequence[Stmt], sizes: Mapping[str, int]) -> None:
        """Check that each block of a launch has room and threads enough.

        Raises ExecutionFault if one has not.
        """
        if self.limits is not None:
            check_limits(self.program, launch, sizes, self.limits)


__all__ = ["execute"]
