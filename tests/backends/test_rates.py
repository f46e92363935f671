"""What functions cost is measured: a declaration that flatters or slanders one changes nothing."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from foreign import CHEAP, DEAR, Own, product

import offcut as oc
from offcut.backends.cpu.machine import instruction_rates, isa
from offcut.backends.cpu.machine.instruction_rates import NUM_CHAINS, multiply_add
from offcut.backends.cpu.microkernels import external
from offcut.describe.microkernel import Microkernel
from tests.agree import nearly
from tests.facade import forget_rates


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    forget_rates()
    yield
    forget_rates()


class Slow(Own):
    """A product that does everything a hundred times."""

    def run(self, *arguments: int) -> None:  # type: ignore[override]
        for _ in range(100):
            super().run(*arguments)


def case() -> tuple[list[oc.Tensor], oc.Tensor]:
    m, k = oc.dim("m", max=200), oc.reduce_axis(64, "k")
    a, b = oc.placeholder((m, 64), name="A"), oc.placeholder((64, 48), name="B")
    return [a, b], oc.compute((m, 48), lambda i, j: oc.sum(a[i, k] * b[k, j], axis=k), name="C")


def taken(kernel: Microkernel) -> set[str]:
    inputs, c = case()
    made = oc.compile(c, inputs=inputs, microkernels=[kernel])
    return {piece.microkernel for piece in made.plan(m=100).pieces}


def test_a_slow_function_that_claims_to_be_fast_is_not_taken() -> None:
    slow = Slow()
    assert taken(slow.declared(cycles=CHEAP)) == {"own"}  # believed
    assert "own" not in taken(slow.declared(cycles=CHEAP, measured=True))
    _, c = case()
    tile = max(oc.target("cpu").microkernels()[0].tiles, key=lambda one: (one.rows, one.columns))
    own = slow.declared(cycles=CHEAP, measured=True)
    cut = oc.partition(c, {"i": tile.rows, "j": tile.columns}, "mask", microkernels=[own])
    assert "own" not in {piece.microkernel for piece in cut.pieces}


def test_a_fast_function_that_claims_to_be_slow_is_as_fast_as_it_is() -> None:
    pytest.importorskip("scipy", reason="scipy, which brings the BLAS, is not installed")
    rows = oc.dim("m", min=1, max=256)
    modest = oc.external_microkernel(
        "sgemm",
        product(rows=rows),
        oc.external.blas("sgemm"),
        convention="blas_gemm",
        cycles=1e6,
        verify=False,
    )
    (found,) = external.time_kernels([modest], isa.host())
    assert found.cycles < 100 < modest.cycles
    assert replace(found, tiles=modest.tiles) == modest


def test_a_function_is_asked_once() -> None:
    own = Own()
    kernel = own.declared(cycles=DEAR, measured=True)
    (first,) = external.time_kernels([kernel], isa.host())
    asked = len(own.calls)
    assert asked > 0
    assert {call[3] for call in own.calls} == {0}
    assert external.time_kernels([kernel], isa.host()) == (first,)
    assert len(own.calls) == asked


def test_what_scipy_costs_is_kept_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    pytest.importorskip("scipy", reason="scipy, which brings the BLAS, is not installed")
    monkeypatch.setenv("OFFCUT_CACHE", os.fspath(tmp_path))
    how: dict[str, Any] = {"convention": "blas_gemm", "cycles": 1.0, "verify": False}
    kernel = oc.external_microkernel("sgemm", product(), oc.external.blas("sgemm"), **how)
    first = external.time_kernels([kernel], isa.host())
    forget_rates()
    monkeypatch.setattr(instruction_rates, "cycles", lambda *_: pytest.fail("it is kept"))
    assert external.time_kernels([kernel], isa.host()) == first


def test_what_is_declared_counts_where_nothing_can_be_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nowhere = oc.external_microkernel("own", product(), 4096, cycles=0.5, verify=False)
    assert external.time_kernels([nowhere], isa.host()) == (nowhere,)
    own = Own().declared(cycles=0.5, measured=True)
    monkeypatch.setattr(
        external, "detect_processor", lambda features: None
    )  # a machine that is not this one
    assert external.time_kernels([own], isa.host()) == (own,)


def test_a_function_without_its_address_in_code_is_known() -> None:
    assert external._is_code(ctypes.cast(ctypes.CDLL(None).memcpy, ctypes.c_void_p).value or 0)
    if os.path.exists("/proc/self/maps"):
        data = np.zeros(64, np.uint8)
        assert not external._is_code(data.ctypes.data)
        assert not external._is_code(1)


@pytest.mark.parametrize(
    "costs", [(0.5, 2.0, 300.0), (0.03, 0.0, 0.0), (1.0, 0.0, 5000.0), (0.04, 0.9, 0.0)]
)
def test_costs_are_found_from_what_tiles_take(costs: tuple[float, float, float]) -> None:
    shapes = [(48, 128, 128), (1, 128, 128), (1, 1, 1)]
    each, copying, startup = costs
    took = [n * k * (m * each + copying) + startup for m, n, k in shapes]
    assert list(external._fit(shapes, took)) == nearly(list(costs), abs=1e-6)
    for less in np.eye(3) * 0.05:  # in each, a twentieth
        noisy = np.array(took) * (1 - less)
        found = external._fit(shapes, list(noisy))
        assert min(found) >= 0
        assert found[0] == nearly(each, rel=0.2)


def test_the_unit_is_a_multiply_add_of_two_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    def clock(calls: Sequence[instruction_rates.Bound]) -> list[float]:
        """A call takes a millisecond, and each iteration of its loop 2 ns."""
        return [1e-3 + 2e-9 * call._call.args[1] for call in calls]

    monkeypatch.setattr(instruction_rates, "_least", clock)
    host = isa.host()
    text = multiply_add("float32", host.isa)
    (found,) = instruction_rates.cycles(
        host, [instruction_rates.loop(host, text, 2 * instruction_rates.COUNT)]
    )
    each = 2 if host.isa.fma else 1
    found_exactly = NUM_CHAINS * (2 * instruction_rates.COUNT - 1) / each
    assert found == nearly(found_exactly)
