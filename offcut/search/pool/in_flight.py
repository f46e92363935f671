"""Tasks on devices, one in flight on each; a task whose device goes, or hangs, is lost and comes back as that.

What dask.distributed does by itself with a task that fails is switched off: a task is of one worker, nothing is
tried again elsewhere, equal tasks are not one (``pure=False``). Its results lie with their workers until they are
asked for, so each is fetched as soon as it is there, and is lost where that fails.

Workers that have a device come, fall silent, and go (`Devices`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from offcut.errors import TargetError
from offcut.search.pool.settings import RESOURCE, Pool

if TYPE_CHECKING:
    from distributed import Client, Future


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
        workers, moment = self.workers(), self.clock()
        devices, signs = [], dict[str, tuple[Any, float]]()
        self.others = 0
        for address, worker in workers.items():
            if worker.get("resources", {}).get(RESOURCE, 0) < 1:
                self.others += 1
                continue
            sign, since = self._signs.get(address, (None, moment))
            if sign != worker["last_seen"]:
                sign, since = worker["last_seen"], moment
            signs[address] = sign, since
            if moment - since <= self.silence:
                devices.append(Device(str(worker["name"]), address))
        self._signs = signs
        return tuple(sorted(devices, key=lambda device: (device.name, device.address)))

    def is_silent(self, device: Device) -> bool:
        """Whether the scheduler still lists it, though it gives no sign."""
        return device.address in self._signs


Label = TypeVar("Label")

_LOOK = 0.2  # seconds between two looks at which devices there are


@dataclass(frozen=True, slots=True)
class Landed(Generic[Label]):
    """What became of a task.

    label   as it was sent
    value   what it returned
    raised  the exception that it ended by; None: it did not
    lost    why nobody knows what became of it; "" where that is known
    """

    device: Device
    label: Label
    value: Any = None
    raised: BaseException | None = None
    lost: str = ""


@dataclass
class Flights(Generic[Label]):
    """Tasks in flight; a context manager that leaves none behind.

    op     that errors name; again: what they say of going on

    Raises TargetError where the scheduler goes.
    """

    client: Client
    pool: Pool
    op: str = "tune"
    again: str = "begun again, tuning takes from the records what was measured"
    devices: Devices = field(init=False)
    _flying: dict[Device, tuple[Future[Any], Label]] = field(default_factory=dict, init=False)
    _ended: Event = field(default_factory=Event, init=False)

    def __post_init__(self) -> None:
        self.devices = Devices(
            lambda: self.client.scheduler_info(n_workers=-1)["workers"], self.pool.silence
        )
        # Nobody but us tries a task again that ended its worker. The function goes by its text: the
        # scheduler needs no offcut.
        self.client.run_on_scheduler(
            lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0)
        )

    def __enter__(self) -> Flights[Label]:
        return self

    def __exit__(self, *_: object) -> None:
        for future, _label in self._flying.values():
            with suppress(Exception):
                future.cancel()
        self._flying.clear()

    def __len__(self) -> int:
        return len(self._flying)

    def idle(self) -> tuple[Device, ...]:
        """The devices that are there and have no task of ours."""
        self._check()
        return tuple(device for device in self.devices.now() if device not in self._flying)

    def send(self, device: Device, label: Label, task: Callable[..., Any], *given: Any) -> None:
        """Start ``task(*given)`` on an idle device; `task` is a function of a module that is there."""
        future = self._submitted(device, task, *given)
        self._flying[device] = future, label
        future.add_done_callback(lambda _: self._ended.set())

    def landed(self) -> list[Landed[Label]]:
        """What has ended, after a short while at most; a task is told once."""
        self._ended.wait(_LOOK)
        self._ended.clear()
        self._check()
        there = self.devices.now()
        found = []
        for device, (future, label) in list(self._flying.items()):
            one = self._fate(device, future, label, device in there)
            if one is not None:
                del self._flying[device]
                found.append(one)
                with suppress(
                    Exception
                ):  # one that is lost may come back, and would end for nobody
                    future.cancel()
        return found

    def tell(self, device: Device, task: Callable[..., Any], *given: Any) -> None:
        """Run a last, short task on an idle device, and wait for it a while; whether it ran, nobody asks."""
        with suppress(Exception):
            self._submitted(device, task, *given).result(timeout=self.pool.answer)

    def _submitted(self, device: Device, task: Callable[..., Any], *given: Any) -> Future[Any]:
        return self.client.submit(
            task,
            *given,
            workers=[device.address],
            allow_other_workers=False,
            resources={RESOURCE: 1},
            retries=0,
            pure=False,
        )

    def _fate(
        self, device: Device, future: Future[Any], label: Label, there: bool
    ) -> Landed[Label] | None:
        """What became of a task; None: it goes on."""
        from distributed import KilledWorker

        status = future.status
        if status == "finished":
            try:
                return Landed(device, label, future.result(timeout=self.pool.answer))
            except Exception:  # its worker went before it was here
                return Landed(device, label, lost="it went before its result was here")
        if status == "error":
            error = future.exception(timeout=self.pool.answer)
            if not isinstance(error, KilledWorker):
                return Landed(device, label, raised=error)
        elif status == "pending" and there:
            return None
        silent = status == "pending" and self.devices.is_silent(device)
        why = f"it was silent for {self.pool.silence:g} s" if silent else "it went"
        return Landed(device, label, lost=why)

    def _check(self) -> None:
        if self.client.status != "running":
            raise TargetError(
                self.op,
                f"cannot go on at {self.pool.address}",
                because="the scheduler went",
                help=(self.again,),
            )
