"""Every refusal of `compile`, `Kernel.plan`, `Kernel.source` and `with_constants`, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import build

import offcut as oc
from offcut.core.tensor import Tensor
from offcut.pipeline import Kernel

n, m = oc.dim("n", min=1, max=64), oc.dim("m", max=64)
even = oc.dim("even", min=4, max=64, multiple_of=4)
A, B = oc.placeholder((n, 8), name="A"), oc.placeholder((8, 12), name="B")
V = oc.placeholder((2 * n + 1,), name="V")
E = oc.placeholder((even,), name="E")
k = oc.reduce_axis(8, "k")
C = oc.compute((n, 12), lambda i, j: oc.sum(A[i, k] * B[k, j], axis=k), name="C")
D = oc.compute((n,), lambda i: V[2 * i], name="D")
F = oc.compute((even,), lambda i: E[i], name="F")
b = np.ones((8, 12), "float32")


def row(extent: Any, fn: Callable[[Any], Any] | None = None) -> Tensor:
    X = oc.placeholder((extent,), name="X")
    return oc.compute((extent,), fn or (lambda i: X[i] + 1.0), name="Y")


def under(fact: Any, output: Tensor) -> Kernel:
    with oc.assume(fact):
        return oc.compile(output)


def two() -> Tensor:
    P, Q = oc.placeholder((n,), name="P"), oc.placeholder((m,), name="Q")
    return oc.compute((n, m), lambda i, j: P[i] + Q[j], name="Y")


def refused(call: Callable[[], Any], text: str, kind: type[oc.OffcutError]) -> None:
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == text
    assert type(error.value) is kind


DESCRIBED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing to compute": (
        lambda: oc.compile([]),
        """""",
    ),
    "a placeholder as output": (
        lambda: oc.compile(A),
        """""",
    ),
    "no tensor as output": (
        lambda: oc.compile([C, "D"]),  # type: ignore[list-item]
        """""",
    ),
    "an input left out": (
        lambda: oc.compile(C, inputs=[A]),
        """""",
    ),
    "a constant that is no input": (
        lambda: oc.compile(C, inputs=[A, B], constants={"W": b}),
        """""",
    ),
    "a constant of another type": (
        lambda: oc.compile(C, inputs=[A, B], constants={"B": b.astype("float64")}),
        """""",
    ),
    "a constant of another rank": (
        lambda: oc.compile(C, inputs=[A, B], constants={"B": b[0]}),
        """""",
    ),
    "a constant that is no array": (
        lambda: oc.compile(C, inputs=[A, B], constants={"B": None}),
        """""",
    ),
    "a constant of another extent": (
        lambda: oc.compile(C, inputs=[A, B], constants={"B": b[:, :11]}),
        """""",
    ),
    "a constant whose extent no size gives": (
        lambda: oc.compile(D, constants={"V": np.ones(8, "float32")}),
        """""",
    ),
    "a constant whose size is below its facts": (
        lambda: oc.compile(D, constants={"V": np.ones(1, "float32")}),
        """""",
    ),
    "a constant whose size is no multiple": (
        lambda: oc.compile(F, constants={"E": np.ones(6, "float32")}),
        """""",
    ),
    "an extent that a call cannot check": (
        lambda: oc.compile(row(n % 4 + 1, lambda i: oc.cast(i, "float32"))),
        """""",
    ),
    "an extent of two divisions": (
        lambda: oc.compile(row(n // 2 + n // 3)),
        """""",
    ),
    "a promise that a call cannot check": (
        lambda: under(n // 2 <= m, two()),
        """""",
    ),
    "a form of source that is not there": (
        lambda: build(C, inputs=[A, B], strategy="cut").source("ptx"),
        """""",
    ),
    "constants for a kernel without": (
        lambda: build(C, inputs=[A, B], strategy="cut").with_constants({"B": b}),
        """""",
    ),
    "no constant for a kernel with one": (
        lambda: held().with_constants({}),
        """""",
    ),
    "an unknown constant": (
        lambda: held().with_constants({"W": b}),
        """""",
    ),
    "another constant of another type": (
        lambda: held().with_constants({"B": b.astype("int8")}),
        """""",
    ),
    "another constant of another shape": (
        lambda: held().with_constants({"B": b[:7]}),
        """""",
    ),
}
TARGETS: dict[str, tuple[Callable[[], Any], str]] = {
    "another target": (
        lambda: oc.compile(C, target="tpu"),
        """""",
    ),
    "another target of a partition": (
        lambda: oc.partition(C, tile={"i": 4}, target="tpu"),
        """""",
    ),
    "two threads": (
        lambda: oc.compile(C, threads=2),
        """""",
    ),
    "no number of threads": (
        lambda: oc.compile(C, threads=True),
        """""",
    ),
}
CUTS: dict[str, tuple[Callable[[], Any], str]] = {
    "a strategy that is not there": (
        lambda: oc.compile(C, strategy="roundup"),
        """""",
    ),
    "a strategy that is not there, by axis": (
        lambda: oc.compile(C, strategy={"i": "roundup"}),
        """""",
    ),
    "an axis that is not there": (
        lambda: oc.compile(C, strategy={"row": "shift"}),
        """""",
    ),
    "exact for a size that is no multiple": (
        lambda: oc.compile(C, strategy={"i": "exact"}),
        """""",
    ),
    "shift of a sum": (
        lambda: oc.compile(C, strategy={"k": "shift"}),
        """""",
    ),
    "an access out of bounds": (
        lambda: oc.compile(oc.compute((n,), lambda i: A[i + 1, 0], name="Y")),
        """""",
    ),
}
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "a plan without a size": (
        lambda: held().plan(),
        """""",
    ),
    "a plan with a size too many": (
        lambda: held().plan(n=3, q=2),
        """""",
    ),
    "a plan of a size below its facts": (
        lambda: held().plan(n=0),
        """""",
    ),
    "a plan of a size above its facts": (
        lambda: held().plan(n=65),
        """""",
    ),
    "a plan of a size that is no multiple": (
        lambda: build(F).plan(even=6),
        """""",
    ),
    "a plan of a size that is no integer": (
        lambda: held().plan(n="3"),  # type: ignore[arg-type]
        """""",
    ),
    "a plan of half a size": (
        lambda: held().plan(n=2.5),  # type: ignore[arg-type]
        """""",
    ),
}


def held() -> Kernel:
    return build(C, inputs=[A, B], constants={"B": b}, strategy="cut")


@pytest.mark.parametrize("what", DESCRIBED)
def test_a_description_that_does_not_fit_is_refused(what: str) -> None:
    refused(*DESCRIBED[what], oc.DescribeError)


@pytest.mark.parametrize("what", TARGETS)
def test_a_target_that_is_not_there_is_refused(what: str) -> None:
    refused(*TARGETS[what], oc.TargetError)


@pytest.mark.parametrize("what", CUTS)
def test_a_cut_that_is_not_legal_is_refused(what: str) -> None:
    refused(*CUTS[what], oc.PartitionError)


@pytest.mark.parametrize("what", CALLS)
def test_a_plan_of_sizes_that_do_not_fit_is_refused(what: str) -> None:
    refused(*CALLS[what], oc.CallError)


def test_what_lies_beside_each_refusal_is_accepted() -> None:
    kernel = held()
    assert kernel.plan(n=64).pieces
    assert kernel.with_constants({"B": 2 * b}).plan(n=1).pieces
    assert build(F).plan(even=8).pieces
    assert build(D, constants={"V": np.arange(9, dtype="float32")})().tolist() == [0, 2, 4, 6]
    assert build(row((n + 3) // 4))(np.ones(1, "float32"), n=3).tolist() == [2.0]
    assert under(n <= m, two())(np.ones(2, "float32"), np.ones(3, "float32")).sum() == 12
    assert build(C, target="cpu", threads=1, strategy={"i": "shift", "C.j": "cut"}).plan(n=3).pieces
