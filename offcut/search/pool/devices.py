"""The workers of a scheduler that have a device, as they come, fall silent, and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from offcut.search.pool.settings import RESOURCE


@dataclass(frozen=True, slots=True)
class Device:
    """A worker with a device.

    name     as its worker was started
    address  of this worker: one that is started again has another
    """

    name: str
    address: str


@dataclass
class Devices:
    """Which devices there are.

    workers  what the scheduler says of workers now, by their addresses
    silence  seconds without a sign of a worker, after which it is not there
    clock    seconds of this process: what other machines take for the time is only compared with itself
    """

    workers: Callable[[], Mapping[str, Any]]
    silence: float
    clock: Callable[[], float] = time.monotonic
    others: int = field(default=0, init=False)
    _signs: dict[str, tuple[Any, float]] = field(default_factory=dict, init=False)

    def now(self) -> tuple[Device, ...]:
        """Those that gave a sign not long ago, in the order of their names; `others` counts workers without a device."""
        told, moment = self.workers(), self.clock()
        found, signs = [], dict[str, tuple[Any, float]]()
        self.others = 0
        for address, worker in told.items():
            if worker.get("resources", {}).get(RESOURCE, 0) < 1:
                self.others += 1
                continue
            sign, since = self._signs.get(address, (None, moment))
            if sign != worker["last_seen"]:
                sign, since = worker["last_seen"], moment
            signs[address] = sign, since
            if moment - since <= self.silence:
                found.append(Device(str(worker["name"]), address))
        self._signs = signs
        return tuple(sorted(found, key=lambda device: (device.name, device.address)))

    def is_silent(self, device: Device) -> bool:
        """Whether the scheduler still lists it, though it gives no sign."""
        return device.address in self._signs
