"""Rooflines: peaks, bandwidths and where they meet, against numbers by hand."""

from __future__ import annotations

import pytest

from offcut.costmodel import roofline
from tests.agree import nearly
from tests.facade import load_machine, shipped_machines


def test_the_roofline_of_cascade_lake_by_hand() -> None:
    """At 2.1 GHz: 32 multiply–adds a cycle are 134.4 GFLOP/s, 24 bytes of L2 are 50.4 GB/s."""
    machine = load_machine("cascade-lake")
    roof = roofline(machine, machine.unit[:1])
    assert [peak for _, peak in roof.peaks] == nearly([134.4e9])
    assert dict(roof.bandwidths)["L2"] == nearly(50.4e9)
    assert [name for name, _ in roof.bandwidths] == ["L1", "L2", "L3", "DRAM"]
    assert roof.ridges(50.4e9) == nearly((134.4 / 50.4,))
    assert roof.attainable(50.4e9, 1.0) == nearly(50.4e9)
    assert roof.attainable(50.4e9, 100.0) == nearly(134.4e9)


@pytest.mark.parametrize("name", shipped_machines())
def test_a_memory_stops_binding_at_its_ridge(name: str) -> None:
    machine = load_machine(name)
    roof = roofline(machine, machine.unit)
    peak = max(peak for _, peak in roof.peaks)
    for _, bandwidth in roof.bandwidths:
        ridge = max(roof.ridges(bandwidth))
        assert roof.attainable(bandwidth, ridge) == nearly(peak)
        assert roof.attainable(bandwidth, ridge / 2) == nearly(peak / 2)
        assert roof.attainable(bandwidth, ridge * 2) == peak
