"""What the processor can do: loops that are valid code, and limits that follow from their rates."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conftest import slow

from offcut.backends.cpu.machine import isa, jit
from offcut.experiment import limits
from offcut.experiment.limits import Bound, Level, Limits, Meter, Rate
from tests.agree import nearly

KINDS = ["float32", "float64", "bfloat16", "int8", "uint8"]
HIDDEN = ["", "avx512f", "avx512vnni", "avx2"]


def fixed(name: str, per_second: float) -> Meter:
    """A meter that always says the same."""

    class Always(Meter):
        def rate(self) -> Rate:
            return Rate(name, per_second)

    return Always(name, (), 0)


def known() -> Limits:
    """A machine of 1 KB caches: 100 flop/s, 50 and 10 bytes/s."""
    made = Limits()
    made._peaks = {"float32": fixed("fma", 100.0)}
    made._levels = (Level(1000, fixed("L1", 50.0)), Level(0, fixed("DRAM", 10.0)))
    return made


@pytest.mark.parametrize(
    ("operations", "moved", "expected"),
    [
        (1000, 100, Bound(10.0, "fma")),
        (10, 1000, Bound(20.0, "L1")),
        (10, 1001, Bound(100.1, "DRAM")),
        (0, 100, Bound(2.0, "L1")),
    ],
)
def test_the_slower_of_arithmetic_and_reading_bounds_a_call(
    operations: int, moved: int, expected: Bound
) -> None:
    found = known().now(operations, moved, "float32")

    assert (found.by, found.seconds) == (expected.by, nearly(expected.seconds))


def test_limits_say_the_greatest_rates_so_far() -> None:
    made = known()
    made.now(10, 100, "float32")

    assert str(made) == "L1 0 GB/s, fma 0 GFLOP/s"


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("kind", KINDS)
def test_the_loops_of_every_kind_are_code_of_this_host(
    kind: str, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", hidden)
    host = isa.host()

    for loop in limits.arithmetic_loops(kind, host, tiles=False):
        assert loop.work > 0
        assert jit.object_code(loop.text, host, passes=False)


@pytest.mark.parametrize(
    ("kind", "instruction"), [("int8", "tdpbssd"), ("uint8", "tdpbssd"), ("bfloat16", "tdpbf16ps")]
)
def test_tiles_are_used_where_they_may_be(kind: str, instruction: str) -> None:
    host = isa.host()
    if "64bit" not in host.features:
        pytest.skip("tile instructions are those of x86-64")
    tiles = {"amx-tile", "amx-int8", "amx-bf16"}
    with_tiles = dataclasses.replace(host, features=host.features | tiles)

    chosen = limits.arithmetic_loops(kind, with_tiles, tiles=True)[0]

    assert chosen.name == f"amx {instruction}"
    assembly = jit.assembly(chosen.text, with_tiles, passes=False)
    assert assembly.count(f"\t{instruction}\t") == 32
    assert "tile" not in limits.arithmetic_loops(kind, with_tiles, tiles=False)[0].text


def test_a_reading_loop_reads_its_bytes_and_no_others() -> None:
    host = isa.host()
    block = limits.STREAM_VECTORS * host.isa.register_bytes
    data = np.arange(4 * block, dtype=np.uint8)
    start = -data.ctypes.data % 64
    loop = limits.reading_loop(host, blocks=2)
    seen = data[start : start + 2 * block]
    seen[:] = 0
    seen[-1] = 7

    meter = limits.meter("read", loop, host, [seen], count=2)
    meter.calls[0]()

    kept = meter.calls[0]._held[1]  # type: ignore[attr-defined]
    assert loop.work == block
    assert meter.work == 2 * block
    assert int(np.bitwise_or.reduce(kept)) == 7


@pytest.mark.parametrize("threads", [1, slow(2)])
def test_rates_of_this_machine_are_plausible(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 1e-4)
    made = Limits(threads)

    bound = made.now(10**9, 1000, "float32")

    rates = made._seen
    assert bound.by in rates
    assert bound.seconds == max(
        10**9 / next(rate for name, rate in rates.items() if name != "L1"), 1000 / rates["L1"]
    )
    assert "GFLOP/s" in str(made)
