"""Work spread over the devices of a pool: asked for again where a device goes, all of it accounted for.

A device has one task in flight. Each idle device is given a parcel of items. What a device had when it went is given out again, each item then alone, so that
one which ends its worker takes no other along; an item that was lost more than `REQUEUES` times has crashed.

What dask.distributed does by itself with a task that fails is switched off: a task is of one worker, nothing is
tried again elsewhere, equal tasks are not one (``pure=False``). Its results lie with their workers until they are
asked for, so each is fetched as soon as it is there, and is lost where that fails.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from math import ceil
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar
from uuid import uuid4

from offcut.errors import BusyError, InternalError, OffcutError, TargetError
from offcut.search.pool.connection import RESOURCE, Pool

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
class TaskResult(Generic[Label]):
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
class InFlightTasks(Generic[Label]):
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
        # What a client knows of a scheduler that is going has no workers.
        self.devices = Devices(
            lambda: self.client.scheduler_info(n_workers=-1).get("workers", {}), self.pool.silence
        )
        # Nobody but us tries a task again that ended its worker. The function goes by its text: the
        # scheduler needs no offcut.
        self.client.run_on_scheduler(
            lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0)
        )

    def __enter__(self) -> InFlightTasks[Label]:
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

    def send(self, device: Device, label: Label, task: Callable[..., Any], *arguments: Any) -> None:
        """Start ``task(*given)`` on an idle device; `task` is a function of a module that is there."""
        future = self._submit(device, task, *arguments)
        self._flying[device] = future, label
        future.add_done_callback(lambda _: self._ended.set())

    def results(self) -> list[TaskResult[Label]]:
        """What has ended, after a short while at most; a task is told once."""
        self._ended.wait(_LOOK)
        self._ended.clear()
        self._check()
        there = self.devices.now()
        finished = []
        for device, (future, label) in list(self._flying.items()):
            one = self._fate(device, future, label, device in there)
            if one is not None:
                del self._flying[device]
                finished.append(one)
                with suppress(
                    Exception
                ):  # one that is lost may come back, and would end for nobody
                    future.cancel()
        return finished

    def tell(self, device: Device, task: Callable[..., Any], *arguments: Any) -> None:
        """Run a last, short task on an idle device, and wait for it a while; whether it ran, nobody asks."""
        with suppress(Exception):
            self._submit(device, task, *arguments).result(timeout=self.pool.answer)

    def _submit(self, device: Device, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self.client.submit(
            task,
            *arguments,
            workers=[device.address],
            allow_other_workers=False,
            resources={RESOURCE: 1},
            retries=0,
            pure=False,
        )

    def _fate(
        self, device: Device, future: Future[Any], label: Label, there: bool
    ) -> TaskResult[Label] | None:
        """What became of a task; None: it goes on."""
        from distributed import KilledWorker

        status = future.status
        if status == "finished":
            try:
                return TaskResult(device, label, future.result(timeout=self.pool.answer))
            except Exception:  # its worker went before it was here
                return TaskResult(device, label, lost="it went before its result was here")
        if status == "error":
            error = future.exception(timeout=self.pool.answer)
            if not isinstance(error, KilledWorker):
                return TaskResult(device, label, raised=error)
        elif status == "pending" and there:
            return None
        silent = status == "pending" and self.devices.is_silent(device)
        why = f"it was silent for {self.pool.silence:g} s" if silent else "it went"
        return TaskResult(device, label, lost=why)

    def _check(self) -> None:
        if self.client.status != "running":
            raise TargetError(
                self.op,
                f"cannot go on at {self.pool.address}",
                because="the scheduler went",
                help=(self.again,),
            )


Item = TypeVar("Item")
Task: TypeAlias = tuple[Any, ...]
"""A function of a module that workers have, and its arguments."""

REQUEUES = 3
"""Times that an item whose device went is given out again, at most."""


class TaskDispatcher(ABC, Generic[Item]):
    """Gives items to the devices that there are; a context manager that lets the devices go at its end.

    op     that errors name; again: what they say of going on
    most   items of a parcel, at most
    """

    op: ClassVar[str]
    again: ClassVar[str]
    most: ClassVar[int]

    def __init__(self, tasks: InFlightTasks[tuple[Item, ...]]) -> None:
        self.tasks = tasks
        self.campaign = uuid4().hex
        self._admitted: set[Device] = set()
        self._aside: dict[Device, str] = {}
        self._gone: dict[str, str] = {}

    @abstractmethod
    def admission(self) -> Task:
        """Return the task that asks a device whether it takes this work: it returns "", or why not."""

    @abstractmethod
    def order(self, parcel: tuple[Item, ...], device: Device) -> Task:
        """Return the task that does a parcel on a device: it returns what became of each item, an error to raise here, or None where the
        device has not been asked for this work.
        """

    @abstractmethod
    def dismissal(self) -> Task:
        """Return the task that tells a device that this work is over."""

    @abstractmethod
    def result_of_crash(self, item: Item, because: str) -> Any:
        """Return what is told of an item that every device went with."""

    def suits(self, item: Item, device: Device) -> bool:
        """Return whether a device should have an item before others."""
        return False

    def result(self, value: Any, device: Device | None) -> Any:
        """Return what is told of an item: by default what its device gave."""
        return value

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(TargetError):  # where the scheduler went, nobody is told
            for device in self.tasks.idle():
                if device in self._admitted:
                    self.tasks.tell(device, *self.dismissal())

    def dispatch(
        self, items: Sequence[Item], tell: Callable[[Any], None], whole: bool = False
    ) -> None:
        """Tell what becomes of each item, as soon as its parcel is back.

        whole  whether all go to one device, in one parcel

        Raises TargetError where no device is left.
        """
        distinct = deque(dict.fromkeys(items))
        work = _Work(distinct, len(distinct), self.most, whole)
        idle_since = monotonic()
        while work.waiting or len(self.tasks):
            self._send(work)
            if len(self.tasks):
                idle_since = monotonic()
            elif monotonic() - idle_since > self.tasks.pool.wait or self._is_refused_by_all():
                raise self._nobody()
            for one in self.tasks.results():
                self._take(one, work, tell)

    def _send(self, work: _Work[Item]) -> None:
        """Give every idle device something to do."""
        idle = [device for device in self.tasks.idle() if device not in self._aside]
        devices = len(idle) + len(self.tasks)
        for device in idle:
            if device not in self._admitted:
                self.tasks.send(device, (), *self.admission())
            elif work.waiting:
                parcel = work.parcel(devices, partial(self.suits, device=device))
                self.tasks.send(device, parcel, *self.order(parcel, device))

    def _take(
        self, one: TaskResult[tuple[Item, ...]], work: _Work[Item], tell: Callable[[Any], None]
    ) -> None:
        """Tell what came back, and give out again what did not."""
        name, parcel = one.device.name, one.label
        if one.lost:
            self._admitted.discard(one.device)
            self._gone[name] = one.lost
            for item in work.give_up_or_retry(parcel):
                because = f"{work.losses[item]} workers went or hung with it; {name}: {one.lost}"
                tell(self.result_of_crash(item, because))
        elif isinstance(one.raised, OffcutError | InternalError):
            raise one.raised
        elif one.raised is not None:
            self._aside[one.device] = f"{type(one.raised).__name__}: {one.raised}"
            work.waiting.extendleft(reversed(parcel))
        elif not parcel and one.value:
            self._aside[one.device] = one.value
        elif not parcel:
            self._admitted.add(one.device)
        elif one.value is None:
            self._admitted.discard(one.device)
            work.waiting.extendleft(reversed(parcel))
        elif isinstance(one.value, BusyError):
            self._aside[one.device] = one.value.because
            work.waiting.extendleft(reversed(parcel))
        elif isinstance(one.value, OffcutError):
            one.value.at = ", ".join(filter(None, (f"device {name}", one.value.at)))
            raise one.value
        else:
            for value in one.value:
                tell(self.result(value, one.device))

    def _is_refused_by_all(self) -> bool:
        """Return whether there are devices, none of which takes the work."""
        devices = self.tasks.devices.now()
        return bool(devices) and all(device in self._aside for device in devices)

    def _nobody(self) -> TargetError:
        """Return the error for a pool where no device is left."""
        reasons = {device.name: why for device, why in self._aside.items()}
        devices = "; ".join(f"{name}: {why}" for name, why in (self._gone | reasons).items())
        others = self.tasks.devices.others
        because = "there is no worker"
        if devices:
            because = f"no device is left ({devices})"
        elif others:
            because = f"of {others} workers none has the resource {RESOURCE}=1"
        address = self.tasks.pool.address
        return TargetError(
            self.op,
            f"cannot measure at {address}",
            because=because,
            help=(f"offcut worker {address} --device NAME", self.again),
        )


@dataclass
class _Work(Generic[Item]):
    """Items that wait for a device.

    count   how many there are in all
    most    items of a parcel, at most
    whole   whether they stay together
    losses  how often the device of an item went
    """

    waiting: deque[Item]
    count: int
    most: int
    whole: bool = False
    losses: Counter[Item] = field(default_factory=Counter)

    def parcel(self, devices: int, suits: Callable[[Item], bool]) -> tuple[Item, ...]:
        """Take the next items for one of so many devices, first the ones that suit it: an equal share; alone what was lost before."""
        if self.whole:
            parcel, self.waiting = tuple(self.waiting), deque()
            return parcel
        self.waiting = deque(sorted(self.waiting, key=lambda item: not suits(item)))
        fresh = takewhile(lambda item: not self.losses[item], self.waiting)
        share = min(self.most, ceil(self.count / devices))
        parcel = tuple(islice(fresh, share)) or (self.waiting[0],)
        for _ in parcel:
            self.waiting.popleft()
        return parcel

    def give_up_or_retry(self, parcel: tuple[Item, ...]) -> list[Item]:
        """Put a parcel behind all others; return those items that were lost too often, which stay away."""
        self.losses.update(parcel)
        over = [item for item in parcel if self.losses[item] > REQUEUES]
        self.waiting.extend(item for item in parcel if item not in over)
        return over
