"""Which devices a pool has: workers with the resource, that gave a sign of late."""

from __future__ import annotations

from typing import Any

from offcut.search.pool import Device, Devices


def worker(name: str, last_seen: float, device: int = 1) -> dict[str, Any]:
    resources = {"device": device} if device else {}
    return {"name": name, "last_seen": last_seen, "resources": resources}


class World:
    """A scheduler's view of its workers, and a clock."""

    def __init__(self, **workers: dict[str, Any]) -> None:
        self.workers, self.now = workers, 0.0

    def devices(self, silence: float = 5.0) -> Devices:
        return Devices(lambda: dict(self.workers), silence, lambda: self.now)


def names(devices: Devices) -> list[str]:
    return [device.name for device in devices.now()]


def test_a_worker_without_a_device_is_counted_and_is_none() -> None:
    world = World(x=worker("b", 1.0), y=worker("a", 1.0), z=worker("c", 1.0, device=0))
    devices = world.devices()

    assert devices.now() == (Device("a", "y"), Device("b", "x"))
    assert devices.others == 1


def test_a_worker_that_gives_no_sign_is_not_there_until_it_does() -> None:
    # The scheduler's time is years away from ours: only whether it moves counts.
    world = World(x=worker("a", 1e9), y=worker("b", 1e9))
    devices = world.devices()
    assert names(devices) == ["a", "b"]
    world.now, world.workers["x"] = 4.0, worker("a", 1e9 + 4)
    assert names(devices) == ["a", "b"]
    world.now = 6.0
    assert names(devices) == ["a"]
    assert devices.is_silent(Device("b", "y"))
    world.workers["y"] = worker("b", 1e9 + 6)
    assert names(devices) == ["a", "b"]


def test_a_worker_that_went_is_neither_there_nor_silent() -> None:
    world = World(x=worker("a", 1.0))
    devices = world.devices()
    devices.now()
    del world.workers["x"]

    assert devices.now() == ()
    assert not devices.is_silent(Device("a", "x"))
    world.workers["y"] = worker("a", 1.0)
    assert devices.now() == (Device("a", "y"),)
