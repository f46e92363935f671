"""Schedules measured by the devices of a pool: dealt out, asked for again where a device goes, all accounted for.

Each idle device is given a parcel of schedules, which it times in turns beside the default's kernel. By what that
kernel takes, times of other devices and other moments compare (`recorded_trials`). What a device had when it went is dealt out
again, each schedule then alone, so that one which ends its worker takes no other along; whoever was
lost once more than `REQUEUES` times has crashed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from math import ceil
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

from offcut.errors import BusyError, InternalError, OffcutError, TargetError
from offcut.schedule import Schedule
from offcut.search import Outcome
from offcut.search.pool import RESOURCE, Device, Flights, Landed, Pool, connected
from offcut.tuning.campaign import BATCH
from offcut.tuning.pooling import remote
from offcut.tuning.pooling.remote import Wire, sent
from offcut.tuning.problem import Limits, Measured, Problem

ROUND = 2 * BATCH
"""Schedules in a round: the same however many devices there are, so that the same ones are proposed."""

REQUEUES = 3
"""Times that a schedule whose device went is measured again, at most."""

Parcel: TypeAlias = tuple[Schedule, ...]
"""What a device is given; nothing: it is asked whether it takes the campaign."""

Tell: TypeAlias = Callable[[Measured], None]


@dataclass
class PooledBench:
    """Measures schedules of a problem on the devices that there are.

    flights   to the devices
    campaign  what workers know it by
    """

    problem: Problem
    limits: Limits
    flights: Flights[Parcel]
    campaign: str = field(default_factory=lambda: uuid4().hex)
    _wire: Wire = field(init=False)
    _admitted: set[Device] = field(default_factory=set, init=False)
    _aside: dict[Device, str] = field(default_factory=dict, init=False)
    _gone: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._wire = sent(self.problem, self.limits)

    def __enter__(self) -> PooledBench:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(TargetError):  # where the scheduler went, nobody is told
            for device in self.flights.idle():
                if device in self._admitted:
                    self.flights.tell(device, remote.dismiss, self.campaign)

    def measured(self, schedules: Sequence[Schedule], tell: Tell) -> None:
        """Tell what becomes of each schedule, as soon as its parcel is back.

        Raises TargetError where no device is left, or the program cannot be checked.
        """
        self._all(_Work.of(schedules), tell)

    def together(self, schedules: Sequence[Schedule], tell: Tell) -> None:
        """Likewise, all in turns on one device."""
        self._all(_Work.of(schedules, whole=True), tell)

    def _all(self, work: _Work, tell: Tell) -> None:
        idle_since = monotonic()
        while work.waiting or len(self.flights):
            self._deal(work)
            if len(self.flights):
                idle_since = monotonic()
            elif monotonic() - idle_since > self.flights.pool.wait or self._only_refused():
                raise self._nobody()
            for one in self.flights.landed():
                self._take(one, work, tell)

    def _deal(self, work: _Work) -> None:
        """Give every idle device something to do."""
        idle = [device for device in self.flights.idle() if device not in self._aside]
        devices = len(idle) + len(self.flights)
        for device in idle:
            if device not in self._admitted:
                self.flights.send(device, (), remote.admit, self.campaign, self._wire)
            elif work.waiting:
                parcel = work.parcel(devices)
                texts = tuple(map(str, parcel))
                self.flights.send(device, parcel, remote.measure, self.campaign, texts)

    def _take(self, one: Landed[Parcel], work: _Work, tell: Tell) -> None:
        """Tell what came back, and deal out again what did not."""
        name, parcel = one.device.name, one.label
        if one.lost:
            self._admitted.discard(one.device)
            self._gone[name] = one.lost
            for schedule in work.lost(parcel):
                because = (
                    f"{work.losses[schedule]} workers went or hung with it; {name}: {one.lost}"
                )
                tell(Measured(schedule, Outcome.CRASHED, (), because))
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
            for measured in one.value:
                tell(measured)

    def _only_refused(self) -> bool:
        """Whether there are devices, none of which takes the campaign."""
        there = self.flights.devices.now()
        return bool(there) and all(device in self._aside for device in there)

    def _nobody(self) -> TargetError:
        """What is to be said where no device is left."""
        reasons = {device.name: why for device, why in self._aside.items()}
        said = "; ".join(f"{name}: {why}" for name, why in (self._gone | reasons).items())
        others = self.flights.devices.others
        because = "there is no worker"
        if said:
            because = f"no device is left ({said})"
        elif others:
            because = f"of {others} workers none has the resource {RESOURCE}=1"
        address = self.flights.pool.address
        return TargetError(
            "tune",
            f"cannot measure at {address}",
            because=because,
            help=(
                f"offcut worker {address} --device NAME",
                "begun again, tuning takes from the records what was measured",
            ),
        )


@dataclass
class _Work:
    """Schedules that wait for a device.

    count   how many there are in all
    whole   whether they stay together
    losses  how often the device of a schedule went
    """

    waiting: deque[Schedule]
    count: int
    whole: bool = False
    losses: Counter[Schedule] = field(default_factory=Counter)

    @staticmethod
    def of(schedules: Sequence[Schedule], whole: bool = False) -> _Work:
        """All of them, once each."""
        waiting = deque(dict.fromkeys(schedules))
        return _Work(waiting, len(waiting), whole)

    def parcel(self, devices: int) -> Parcel:
        """The next for one of so many devices: an equal share; alone what was lost before."""
        if self.whole:
            parcel, self.waiting = tuple(self.waiting), deque()
            return parcel
        fresh = takewhile(lambda schedule: not self.losses[schedule], self.waiting)
        share = min(BATCH, ceil(self.count / devices))
        parcel = tuple(islice(fresh, share)) or (self.waiting[0],)
        for _ in parcel:
            self.waiting.popleft()
        return parcel

    def lost(self, parcel: Parcel) -> list[Schedule]:
        """Put a parcel behind all others, but for those that were lost too often: these come back."""
        self.losses.update(parcel)
        over = [schedule for schedule in parcel if self.losses[schedule] > REQUEUES]
        self.waiting.extend(schedule for schedule in parcel if schedule not in over)
        return over


@contextmanager
def pooled(problem: Problem, limits: Limits, pool: Pool) -> Iterator[PooledBench]:
    """A bench on the devices of a pool, as long as the context lasts.

    Raises TargetError where no scheduler answers.
    """
    with connected(pool, "tune") as client:
        flights = Flights[Parcel](client, pool)
        with flights, PooledBench(problem, limits, flights) as bench:
            yield bench
