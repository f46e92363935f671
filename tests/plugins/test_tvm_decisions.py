"""Schedules told to TVM's pass: what comes back computes the product, compiled by TVM, or node by node where it is a grid or calls others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm", reason="needs apache-tvm: make test-hosts installs it")

import tvm
from tvm import te

import offcut.plugins.tvm as plugin
from offcut.errors import DescribeError, ParseError
from tests.plugins.host_schedules import (
    COVERS,
    DECISIONS,
    DEPTH,
    INTRINSICS,
    KERNELS,
    SIZES,
    SUMS,
    TAILS,
    arrays,
    declare,
)
from tests.plugins.tvm_interpreter import run

COMPILED = TAILS | SUMS | DECISIONS


def product() -> Any:
    n, m = te.var("n", "int64"), te.var("m", "int64")
    A, B = te.placeholder((n, DEPTH), name="A"), te.placeholder((DEPTH, m), name="B")
    p = te.reduce_axis((0, DEPTH), name="p")
    acc = te.compute((n, m), lambda i, j: te.sum(A[i, p] * B[p, j], axis=p), name="acc")
    C = te.compute((n, m), lambda i, j: acc[i, j] * 2.0, name="C")
    return tvm.IRModule({"main": te.create_prim_func([A, B, C])})


def scheduled(text: str, **options: Any) -> Any:
    """The function that comes back."""
    report = plugin.Report()
    text = "schedule main\n" + text.replace("{n}", "n")
    made = plugin.partition_pass(schedule=text, report=report, **options)(
        plugin.lowering_passes()(product())
    )
    assert not report.skipped, report.skipped["main"]
    return made["main"]


def check(name: str, run_one: Any) -> None:
    for n in SIZES:
        a, b, c = arrays(n, n + 1)
        np.testing.assert_array_equal(run_one(a, b, c, n), 2 * (a @ b), err_msg=f"{name}, n = {n}")


@pytest.mark.parametrize("name", COMPILED)
def test_what_tvm_compiles_computes_the_product(name: str) -> None:
    text = "schedule main\n" + COMPILED[name].replace("{n}", "n")
    report = plugin.register("offcut-test", schedule=text)
    built = tvm.compile(product(), "llvm", tir_pipeline="offcut-test")
    assert list(report.cut) == ["main"], report.skipped["main"]

    def by_tvm(a: Any, b: Any, c: Any, _: int) -> Any:
        given = [tvm.runtime.tensor(one) for one in (a, b, c)]
        built(*given)
        return given[-1].numpy()

    check(name, by_tvm)


def by_address(name: str) -> Any:
    """An intrinsic that is called with addresses, strides and extents."""

    def called(*given: Any) -> int:
        operands = 1 if name.endswith("zero") else 3
        rank = 2
        views = [given[k * (1 + rank) : (k + 1) * (1 + rank)] for k in range(operands)]
        extents = given[operands * (1 + rank) :]
        rows, columns, depth = (*extents, None)[:3]
        sizes = ((rows, depth), (depth, columns), (rows, columns))[-operands:]
        INTRINSICS[name](*(v[0].view(s, v[1:]) for v, s in zip(views, sizes, strict=True)))
        return 0

    return called


@pytest.mark.parametrize("name", COVERS | KERNELS)
def test_grids_and_calls_compute_the_product(name: str) -> None:
    declare()
    function = scheduled((COVERS | KERNELS)[name])
    calls = {one: by_address(one) for one in INTRINSICS}

    def by_node(a: Any, b: Any, c: Any, n: int) -> Any:
        run(function, (a, b, c), calls, seed=n)
        return c

    check(name, by_node)


REFUSALS = {
    "stage read B for acc as L in tiles": (
        "line 2: stage read B for acc as L in tiles",
        "nothing bounds its extent m, and an array in such a memory has a number of elements",
    ),
    "split acc.p 3 as po pi\nbind acc.pi lane": (
        "line 3: bind acc.pi lane",
        "its iterations write one element of acc",
    ),
    "bind C.i thread\nbind C.j thread": (
        "line 3: bind C.j thread",
        "another loop around is run by threads already",
    ),
    "bind * lane": ("line 2: bind * lane", "a target decides so, and tvm has none"),
    "split D.i 4 as io ii": ("line 2: split D.i 4 as io ii", "no stage writes it"),
}


@pytest.mark.parametrize("text", REFUSALS)
def test_what_tvm_cannot_say_is_left_with_the_words_of_its_line(text: str) -> None:
    at, because = REFUSALS[text]
    report, module = plugin.Report(), plugin.lowering_passes()(product())
    left = plugin.partition_pass(schedule="schedule main\n" + text, report=report)(module)
    assert report.skipped["main"].splitlines()[1:3] == [f"  at       {at}", f"  because  {because}"]
    assert str(left) == str(module)


def test_a_function_may_carry_its_schedule() -> None:
    text = "schedule main\nsplit C.i 4 as io ii\nbind C.io thread"
    module = plugin.lowering_passes()(product())
    own = tvm.IRModule({"main": module["main"].with_attr("offcut.schedule", text)})
    report = plugin.Report()
    assert "T.parallel" in plugin.partition_pass(report=report)(own)["main"].script()
    assert str(report) == "main: scheduled"


def test_a_text_that_is_no_schedule_and_tiles_beside_one_are_refused_at_once() -> None:
    with pytest.raises(ParseError, match="it is not a decision"):
        plugin.partition_pass(schedule="schedule main\nsplt x")
    with pytest.raises(DescribeError, match="tiles are beside it"):
        plugin.partition_pass(tile={"i": 4}, schedule="schedule main\nbind C.i thread")
