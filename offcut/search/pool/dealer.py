"""Work dealt out to the devices of a pool: asked for again where a device goes, all of it accounted for.

Each idle device is given a parcel of items. What a device had when it went is dealt out again, each item then alone, so that
one which ends its worker takes no other along; an item that was lost more than `REQUEUES` times has crashed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from math import ceil
from time import monotonic
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar
from uuid import uuid4

from offcut.errors import BusyError, InternalError, OffcutError, TargetError
from offcut.search.pool.in_flight import Device, Flights, Landed
from offcut.search.pool.settings import RESOURCE

Item = TypeVar("Item")
Task: TypeAlias = tuple[Any, ...]
"""A function of a module that workers have, and its arguments."""

REQUEUES = 3
"""Times that an item whose device went is dealt out again, at most."""


class Dealer(ABC, Generic[Item]):
    """Deals items to the devices that there are; a context manager that lets the devices go at its end.

    op     that errors name; again: what they say of going on
    most   items of a parcel, at most
    """

    op: ClassVar[str]
    again: ClassVar[str]
    most: ClassVar[int]

    def __init__(self, flights: Flights[tuple[Item, ...]]) -> None:
        self.flights = flights
        self.campaign = uuid4().hex
        self._admitted: set[Device] = set()
        self._aside: dict[Device, str] = {}
        self._gone: dict[str, str] = {}

    @abstractmethod
    def admission(self) -> Task:
        """Return the task that asks a device whether it takes this work: it returns "", or why not."""

    @abstractmethod
    def order(self, parcel: tuple[Item, ...]) -> Task:
        """Return the task that does a parcel: it returns what became of each item, an error to raise here, or None where the
        device has not been asked for this work.
        """

    @abstractmethod
    def dismissal(self) -> Task:
        """Return the task that tells a device that this work is over."""

    @abstractmethod
    def crashed(self, item: Item, because: str) -> Any:
        """Return what is told of an item that every device went with."""

    def result(self, value: Any, device: Device | None) -> Any:
        """Return what is told of an item: by default what its device gave."""
        return value

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(TargetError):  # where the scheduler went, nobody is told
            for device in self.flights.idle():
                if device in self._admitted:
                    self.flights.tell(device, *self.dismissal())

    def deal(self, items: Sequence[Item], tell: Callable[[Any], None], whole: bool = False) -> None:
        """Tell what becomes of each item, as soon as its parcel is back.

        whole  whether all go to one device, in one parcel

        Raises TargetError where no device is left.
        """
        distinct = deque(dict.fromkeys(items))
        work = _Work(distinct, len(distinct), self.most, whole)
        idle_since = monotonic()
        while work.waiting or len(self.flights):
            self._send(work)
            if len(self.flights):
                idle_since = monotonic()
            elif monotonic() - idle_since > self.flights.pool.wait or self._only_refused():
                raise self._nobody()
            for one in self.flights.landed():
                self._take(one, work, tell)

    def _send(self, work: _Work[Item]) -> None:
        """Give every idle device something to do."""
        idle = [device for device in self.flights.idle() if device not in self._aside]
        devices = len(idle) + len(self.flights)
        for device in idle:
            if device not in self._admitted:
                self.flights.send(device, (), *self.admission())
            elif work.waiting:
                parcel = work.parcel(devices)
                self.flights.send(device, parcel, *self.order(parcel))

    def _take(
        self, one: Landed[tuple[Item, ...]], work: _Work[Item], tell: Callable[[Any], None]
    ) -> None:
        """Tell what came back, and deal out again what did not."""
        name, parcel = one.device.name, one.label
        if one.lost:
            self._admitted.discard(one.device)
            self._gone[name] = one.lost
            for item in work.lost(parcel):
                because = f"{work.losses[item]} workers went or hung with it; {name}: {one.lost}"
                tell(self.crashed(item, because))
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

    def _only_refused(self) -> bool:
        """Return whether there are devices, none of which takes the work."""
        devices = self.flights.devices.now()
        return bool(devices) and all(device in self._aside for device in devices)

    def _nobody(self) -> TargetError:
        """Return the error for a pool where no device is left."""
        reasons = {device.name: why for device, why in self._aside.items()}
        listed = "; ".join(f"{name}: {why}" for name, why in (self._gone | reasons).items())
        others = self.flights.devices.others
        because = "there is no worker"
        if listed:
            because = f"no device is left ({listed})"
        elif others:
            because = f"of {others} workers none has the resource {RESOURCE}=1"
        address = self.flights.pool.address
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

    def parcel(self, devices: int) -> tuple[Item, ...]:
        """Take the next items for one of so many devices: an equal share; alone what was lost before."""
        if self.whole:
            parcel, self.waiting = tuple(self.waiting), deque()
            return parcel
        fresh = takewhile(lambda item: not self.losses[item], self.waiting)
        share = min(self.most, ceil(self.count / devices))
        parcel = tuple(islice(fresh, share)) or (self.waiting[0],)
        for _ in parcel:
            self.waiting.popleft()
        return parcel

    def lost(self, parcel: tuple[Item, ...]) -> list[Item]:
        """Put a parcel behind all others; return those items that were lost too often, which stay away."""
        self.losses.update(parcel)
        over = [item for item in parcel if self.losses[item] > REQUEUES]
        self.waiting.extend(item for item in parcel if item not in over)
        return over
