"""What `oc.partition` says that runs on a target runs on it: its loops, its schedule, the microkernels of its pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut import Kernel, Partition, Target, Tensor
from tests.agree import agree, of_program
from tests.conftest import slow
from tests.facade import called_by, evaluate, strategies

OF_QUEUES = ("vta", "vta-osdi18", "gemmini")  # they take int8 alone
TILE = 16


def rows() -> Any:
    return oc.dim("n", min=1, max=512)


def product(dtype: str) -> tuple[Tensor, list[Tensor], str]:
    """``A @ W``, cut to int8 where it is of int8: its result, inputs, and the stage that is cut in tiles."""
    n, k, wide = rows(), oc.reduce_axis(40, name="k"), "int32" if dtype == "int8" else dtype
    a, w = oc.placeholder((n, 40), dtype, "A"), oc.placeholder((40, 37), dtype, "W")
    total = oc.compute(
        (n, 37),
        lambda i, j: oc.sum(oc.cast(a[i, k], wide) * oc.cast(w[k, j], wide), axis=k),
        name="S",
    )
    if dtype != "int8":
        return oc.compute((n, 37), lambda i, j: oc.maximum(total[i, j], 0.0), name="C"), [a, w], "S"
    return requantised(total), [a, w], "S"


def requantised(total: Tensor) -> Tensor:
    return oc.compute(
        total.shape,
        lambda i, j: oc.cast(oc.maximum(oc.minimum(total[i, j] // 64, 127), -128), "int8"),
        name="C",
    )


def elements(dtype: str) -> tuple[Tensor, list[Tensor], str]:
    n = rows()
    a, b = (oc.placeholder((n, 37), dtype, name) for name in "AB")
    made = oc.compute((n, 37), lambda i, j: oc.maximum(a[i, j] + b[i, j], b[i, j]), name="C")
    return made, [a, b], ""


def window(dtype: str) -> tuple[Tensor, list[Tensor], str]:
    n = rows()
    a = oc.placeholder((n + 2, 37), dtype, "A")
    made = oc.compute(
        (n, 37), lambda i, j: oc.maximum(oc.maximum(a[i, j], a[i + 1, j]), a[i + 2, j]), name="C"
    )
    return made, [a], ""


PROGRAMS: dict[str, Callable[[str], tuple[Tensor, list[Tensor], str]]] = {
    "product": product,
    "elements": elements,
    "window": window,
}


def cut(target: Target, program: str, strategy: str) -> tuple[Tensor, list[Tensor], Partition]:
    result, inputs, stage = PROGRAMS[program]("int8" if target.name in OF_QUEUES else "float32")
    tile = {f"{stage}.{axis}" if stage else axis: TILE for axis in "ij"}
    return result, inputs, oc.partition(result, tile=tile, tail=strategy, target=target)


def assert_runs_as_it_says(kernel: Kernel, inputs: list[Tensor], made: Partition) -> None:
    """The microkernels that pieces claim are those that the code calls, and results are those of the source."""
    called = called_by(kernel)
    if called is not None:
        assert called == {piece.microkernel for piece in made.pieces} - {None}
    declared = kernel.signature.inputs
    for n in (1, TILE + 1, 3 * TILE + 5):
        arrays = [
            values(one.dtype, [int(evaluate(extent, {"n": n})) for extent in one.shape])
            for one in declared
        ]
        names = (tensor.name for tensor in inputs)
        expected = of_program(made.source, dict(zip(names, arrays, strict=True)), n=n)
        agree(kernel(*arrays), expected)


def values(dtype: str, shape: list[int]) -> Any:
    rng = np.random.default_rng(shape)
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype("int8")
    return rng.normal(size=shape).astype(dtype)


OF_MANY_CODES = (("product", "residue"), ("product", "mix"))
"""For which other programs, and other strategies of products, stand in `make test`."""
IN_WORDS = ("balance", "even", "shift")
"""Strategies by which a tile along the lanes of words would begin inside of one."""


def is_refused(target: Target, program: str, strategy: str) -> bool:
    """Whether a machine of queues refuses to cut so, in words that say why."""
    if target.name not in OF_QUEUES or strategy not in IN_WORDS:
        return False
    with pytest.raises(oc.OffcutError) as refused:
        cut(target, program, strategy)
    stage = "S" if program == "product" else "C"
    assert refused.value.at in (f"axis {stage}.i", f"axis {stage}.j")
    assert (
        refused.value.because == "it runs along words of 16, and a tile would begin inside of one"
    )
    return True


def check_loops(target: Target, strategy: str, inputs: list[Tensor], made: Partition) -> None:
    """The loops of a partition run on its target."""
    if target.name == "cuda" and strategy in ("balance", "mix"):  # heights are quotients of sizes
        with pytest.raises(oc.PartitionError, match=r"tiles of literal heights: \"balance\(16\)\""):
            oc.compile(made.loops, target=target)
        return
    assert_runs_as_it_says(oc.compile(made.loops, target=target), inputs, made)


def check_schedule(target: Target, result: Tensor, inputs: list[Tensor], made: Partition) -> None:
    """The schedule of a partition is taken by its target."""
    as_it_stands = str(made.schedule).splitlines()[1].startswith("separate")
    if as_it_stands and target.name in ("interpret", "cuda"):  # who decide about tiles of units
        with pytest.raises(oc.TargetError, match="cannot take schedule="):
            oc.compile(result, inputs=inputs, schedule=made.schedule, target=target)
        return
    kernel = oc.compile(result, inputs=inputs, schedule=made.schedule, target=target)
    assert kernel.loops == made.loops
    assert_runs_as_it_says(kernel, inputs, made)


@pytest.mark.every(40)
@pytest.mark.parametrize(
    ("program", "strategy"),
    [
        slow(program, name) if (program, name) in OF_MANY_CODES else (program, name)
        for program in PROGRAMS
        for name in strategies()
    ],
)
def test_the_loops_and_the_schedule_of_a_partition_run_on_its_target(
    target: Target, program: str, strategy: str
) -> None:
    if target.name == "toy":
        pytest.skip("the toy target has no words for what a partition makes")
    if is_refused(target, program, strategy):
        return
    result, inputs, made = cut(target, program, strategy)
    check_loops(target, strategy, inputs, made)
    check_schedule(target, result, inputs, made)
