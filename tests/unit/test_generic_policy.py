"""A target that says nothing of a policy: what offcut decides for it from the declarations of its microkernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import rejection, slow

import offcut as oc
from offcut.backends import generic
from offcut.backends.options import TargetPlan
from offcut.backends.target import Target, python_callable
from offcut.describe.microkernel import Microkernel
from offcut.describe.tile_shapes import Place, TileShape
from offcut.ir import Kind
from tests.facade import STRATEGIES, load_machine

n = oc.dim("n", max=40)
X, W = oc.placeholder((n, 6), name="X"), oc.placeholder((6, 10), name="W")
k = oc.reduce_axis(6, name="k")
D = oc.compute((n, 10), lambda i, j: oc.sum(X[i, k] * W[k, j], axis=k), name="D")
R = oc.compute((n, 10), lambda i, j: oc.maximum(D[i, j] + 1.0, 0.0), name="R")


def unit(**memories: str) -> Microkernel:
    """A unit that adds products of up to 4 by 4; where its operands lie."""
    i, j, p = oc.dim("i", min=1, max=4), oc.dim("j", min=1, max=4), oc.dim("p")
    A, B = oc.placeholder((i, p), name="A"), oc.placeholder((p, j), name="B")
    q = oc.reduce_axis(p, name="q")
    product = oc.compute((i, j), lambda i, j: oc.sum(A[i, q] * B[q, j], axis=q), name="C")
    tiles = tuple(TileShape((h, w), 1.0, 4.0) for h in (1, 2, 3, 4) for w in (1, 2, 3, 4))
    places = {operand: Place(memories=(name,)) for operand, name in memories.items()}
    return Microkernel("unit4", product, tiles, operands=places, unit="matrix")


class Machine(Target):
    """Runs programs by the interpreter."""

    name = "machine4"
    machine = load_machine("cascade-lake")

    def __init__(self, kernel: Microkernel) -> None:
        self.kernel = kernel

    def microkernels(self, options: Any = None) -> tuple[Microkernel, ...]:
        return (self.kernel,)

    def lower(self, planned: Any, signature: Any, options: Any) -> bytes:
        return str(planned.program).encode()

    def load(self, lowered: bytes, signature: Any, options: Any) -> Any:
        program = oc.parse(lowered.decode())
        taken = [b.name for b in program.buffers if b.kind is Kind.INPUT]
        names = [size.name for size in program.sizes]

        def bound(constants: Any) -> Callable[..., Any]:
            def call(inputs: Any, sizes: Any) -> list[Any]:
                arrays = {**dict(zip(taken, inputs, strict=True)), **constants}
                return [program.run(arrays, **dict(zip(names, sizes.values(), strict=True)))]

            return python_callable(signature, call)

        return bound


PLACES: dict[str, dict[str, str]] = {
    "anywhere": {},
    "operands": {"A": "pad", "B": "pad"},
    "operands and sums": {"A": "inputs", "B": "weights", "C": "sums"},
}


def is_right(kernel: Any, result: str, sizes: tuple[int, ...] = (0, 1, 3, 4, 5, 12, 17)) -> bool:
    rng = np.random.default_rng(0)
    w = rng.integers(-8, 8, (6, 10)).astype("float32")
    for rows in sizes:
        x = rng.integers(-8, 8, (rows, 6)).astype("float32")
        exact = x.astype("float64") @ w
        exact = np.maximum(exact + 1, 0) if result == "R" else exact
        if not np.array_equal(kernel(x, w), exact):
            return False
    return True


@pytest.mark.parametrize(
    ("places", "result"),
    [
        *(("anywhere", "D"), ("operands", "R"), ("operands and sums", "R")),
        *(slow("anywhere", "R"), slow("operands", "D"), slow("operands and sums", "D")),
    ],
)
def test_what_a_microkernel_computes_is_staged_where_it_says_and_covered(
    places: str, result: str
) -> None:
    target = Machine(unit(**PLACES[places]))
    kernel = oc.compile({"D": D, "R": R}[result], inputs=[X, W], target=target)
    text = kernel.source()
    assert "@cover(unit4; i=" in text
    for memory in PLACES[places].values():
        assert f"@scope({memory})" in text or f" in {memory}" in text
    assert is_right(kernel, result)
    assert oc.Schedule.parse(str(kernel.schedule)) == kernel.schedule
    again = oc.compile(
        {"D": D, "R": R}[result], inputs=[X, W], target=target, schedule=kernel.schedule
    )
    assert again.schedule == kernel.schedule
    assert is_right(again, result)


NAMES = [str(one) for one in STRATEGIES if str(one) != "exact"]


@pytest.mark.every(12)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("places", PLACES)
def test_every_strategy_is_taken(places: str, name: str) -> None:
    target = Machine(unit(**PLACES[places]))
    kernel = oc.compile(R, inputs=[X, W], target=target, strategy=name)
    assert f" {name} 4 as i_tile i_in" in str(kernel.schedule)
    assert is_right(kernel, "R")


def test_a_partition_has_windows_and_covers() -> None:
    target = Machine(unit(A="pad", B="pad"))
    cut = oc.partition(D, inputs=[X, W], tile={"i": 3, "j": 4}, tail="mask", target=target)
    assert {piece.microkernel for piece in cut.pieces} == {"unit4", None}
    assert cut.prove()
    x, w = np.ones((7, 6), "float32"), np.ones((6, 10), "float32")
    np.testing.assert_array_equal(cut.run({"X": x, "W": w}, n=7), np.full((7, 10), 6.0))


def test_a_strategy_of_a_program_that_no_microkernel_computes_is_refused() -> None:
    doubled = oc.compute((n, 6), lambda i, j: X[i, j] * 2.0, name="E")
    with rejection(
        "PartitionError: compile: cannot take strategy=mask with E\n"
        "  because  no microkernel computes a part of it\n"
        "  help     oc.compile(oc.partition(program, tile={…}, tail={…}).loops)"
    ):
        oc.compile(doubled, inputs=[X], target=Machine(unit()), strategy="mask")


def test_a_strategy_along_an_axis_that_there_is_not_is_refused() -> None:
    with pytest.raises(oc.PartitionError, match="cannot find the axis 'z'"):
        oc.compile(D, inputs=[X, W], target=Machine(unit()), strategy={"z": "mask"})


@pytest.mark.parametrize("places", ["operands and sums", *map(slow, ("anywhere", "operands"))])
def test_sums_over_more_than_the_microkernel_sums_over_are_added_to_around_its_tiles(
    places: str,
) -> None:
    x, f = oc.placeholder((n + 2, 6), name="X"), oc.placeholder((3, 6, 10), name="F")
    r, c = oc.reduce_axis(3, name="r"), oc.reduce_axis(6, name="c")
    y = oc.compute((n, 10), lambda i, j: oc.sum(x[i + r, c] * f[r, c, j], axis=[r, c]), name="Y")
    kernel = oc.compile(
        y, inputs=[x, f], target=Machine(unit(**PLACES[places])), strategy="balance"
    )
    assert "unit4" in {piece.microkernel for piece in kernel.cost(n=9).pieces}
    rng = np.random.default_rng(0)
    weights = rng.integers(-8, 8, (3, 6, 10)).astype("float32")
    for rows in (0, 1, 4, 9):
        values = rng.integers(-8, 8, (rows + 2, 6)).astype("float32")
        expected = sum(values[at : at + rows] @ weights[at] for at in range(3))
        np.testing.assert_array_equal(kernel(values, weights), expected)


def test_a_program_that_runs_as_it_stands_says_what_its_plans_were_refused_for() -> None:
    class Nothing(Machine):
        def policy(self, program: Any, users: Any, options: Any) -> Any:
            def refusing(plan: TargetPlan) -> TargetPlan:
                if plan.schedule is None:
                    return plan
                raise oc.PartitionError("place", "cannot place windows", because="there is no room")

            return generic.policy(self, program, users, options, complete=refusing)

    kernel = oc.compile(D, inputs=[X, W], target=Nothing(unit()))
    assert kernel.plan(n=3).notes[0] == (
        "runs as it stands: cannot place windows: there is no room"
    )
