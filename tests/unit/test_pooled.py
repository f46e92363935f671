"""How schedules are dealt to devices that go, refuse, or forget: made up, so that every order of events is fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from conftest import rejection

from offcut import Outcome, Schedule
from offcut.errors import BusyError, InternalError, OffcutError, TargetError
from offcut.search.pool import Device, Devices, Pool, TaskResult
from offcut.tuning import pooled_bench
from offcut.tuning.pooled_bench import REQUEUES, Parcel, PooledBench
from offcut.tuning.problem import DEFAULT
from tests import spaces
from tests.facade import Measured, Problem
from tests.workers import FakeDevices

BUSY = BusyError("tune", "cannot rank", because="other work")
SIZES = (({"n": 1}, 1.0),)


Fate = Callable[[Device, Parcel], TaskResult[Parcel]]


@dataclass
class Fake:
    """Tasks that end at once, in the order in which they were sent.

    fate   of a parcel
    admit  what a device says to a campaign
    """

    devices: FakeDevices
    fate: Fate
    admit: Callable[[Device], str] = lambda device: ""
    pool: Pool = field(default_factory=lambda: Pool("tcp://scheduler:8786", wait=0.0))
    flying: dict[Device, tuple[Any, Parcel]] = field(default_factory=dict)
    dealt: list[tuple[str, Parcel]] = field(default_factory=list)
    told: list[tuple[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.flying)

    def idle(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices.now() if device not in self.flying)

    def send(self, device: Device, label: Parcel, task: Any, *given: Any) -> None:
        self.flying[device] = task, label
        if task is pooled_bench.measure_parcel:
            assert given[1] == tuple(map(str, label))
            self.dealt.append((device.name, label))

    def results(self) -> list[TaskResult[Parcel]]:
        found = []
        for device, (task, label) in self.flying.items():
            asked = task is pooled_bench.admit_problem
            found.append(
                TaskResult(device, label, self.admit(device)) if asked else self.fate(device, label)
            )
        self.flying.clear()
        return found

    def tell(self, device: Device, task: Any, *given: Any) -> None:
        self.told.append((device.name, task))


@pytest.fixture(scope="module")
def problem() -> Problem:
    request, options, target = spaces.problem("loops")
    return Problem(request, options, target, SIZES)


@pytest.fixture(scope="module")
def schedules() -> list[Schedule]:
    space = spaces.space("dense", 2)
    return [*space.enumerate(16)]


def fine(device: Device, parcel: Parcel) -> TaskResult[Parcel]:
    return TaskResult(device, parcel, tuple(Measured(one, Outcome.OK) for one in parcel))


def lost(device: Device, parcel: Parcel) -> TaskResult[Parcel]:
    return TaskResult(device, parcel, lost="it went")


def outcomes(
    problem: Problem, tasks: Fake, schedules: Sequence[Schedule], together: bool = False
) -> dict[Schedule, Measured]:
    told: list[Measured] = []
    with PooledBench(problem, DEFAULT, tasks) as bench:  # type: ignore[arg-type]
        bench.dispatch(schedules, told.append, whole=together)
    assert Counter(one.schedule for one in told) == Counter(schedules), "each is told once"
    return {one.schedule: one for one in told}


@pytest.mark.parametrize(
    ("devices", "shares"), [(1, [8, 8]), (2, [8, 8]), (3, [6, 6, 4]), (5, [4] * 4)]
)
def test_each_device_is_given_its_share_and_at_most_a_batch(
    problem: Problem, schedules: list[Schedule], devices: int, shares: list[int]
) -> None:
    tasks = Fake(FakeDevices([f"d{k}" for k in range(devices)]), fine)
    outcomes(problem, tasks, schedules)

    assert [len(parcel) for _, parcel in tasks.dealt] == shares
    assert [one for _, parcel in tasks.dealt for one in parcel] == schedules
    assert tasks.told == [(f"d{k}", pooled_bench.dismiss_campaign) for k in range(devices)]
    last = Fake(FakeDevices(["a", "b"]), fine)
    outcomes(problem, last, schedules[:5], together=True)
    assert last.dealt == [("a", tuple(schedules[:5]))], "the last run stays together"


def test_what_a_device_had_when_it_went_is_measured_alone(
    problem: Problem, schedules: list[Schedule]
) -> None:
    def goes_once(device: Device, parcel: Parcel) -> TaskResult[Parcel]:
        return lost(device, parcel) if len(tasks.dealt) == 1 else fine(device, parcel)

    tasks = Fake(FakeDevices(["a"]), goes_once)
    found = outcomes(problem, tasks, schedules[:10])

    assert {one.outcome for one in found.values()} == {Outcome.OK}
    assert [len(parcel) for _, parcel in tasks.dealt] == [8, 2, *[1] * 8]


def test_who_ends_every_worker_has_crashed_and_takes_no_other_along(
    problem: Problem, schedules: list[Schedule]
) -> None:
    killer = schedules[2]

    def kills(device: Device, parcel: Parcel) -> TaskResult[Parcel]:
        return lost(device, parcel) if killer in parcel else fine(device, parcel)

    tasks = Fake(FakeDevices(["a"]), kills)
    found = outcomes(problem, tasks, schedules[:8])

    assert found[killer].outcome is Outcome.CRASHED
    assert found[killer].because == "4 workers went or hung with it; a: it went"
    assert {one.outcome for s, one in found.items() if s != killer} == {Outcome.OK}
    assert sum(killer in parcel for _, parcel in tasks.dealt) == REQUEUES + 1


def test_a_device_that_is_too_loaded_is_left_and_others_go_on(
    problem: Problem, schedules: list[Schedule]
) -> None:
    def busy(device: Device, parcel: Parcel) -> TaskResult[Parcel]:
        return TaskResult(device, parcel, BUSY) if device.name == "a" else fine(device, parcel)

    tasks = Fake(FakeDevices(["a", "b"]), busy)
    found = outcomes(problem, tasks, schedules)
    assert {one.outcome for one in found.values()} == {Outcome.OK}
    assert [name for name, _ in tasks.dealt].count("a") == 1

    alone = Fake(FakeDevices(["a"]), busy)
    with pytest.raises(TargetError) as refused:
        outcomes(problem, alone, schedules)
    assert refused.value.because == "no device is left (a: other work)"


def test_a_device_that_forgot_the_campaign_is_asked_again(
    problem: Problem, schedules: list[Schedule]
) -> None:
    def forgets(device: Device, parcel: Parcel) -> TaskResult[Parcel]:
        return TaskResult(device, parcel, None) if len(tasks.dealt) == 1 else fine(device, parcel)

    tasks = Fake(FakeDevices(["a"]), forgets)
    outcomes(problem, tasks, schedules[:8])

    assert tasks.dealt == [("a", tuple(schedules[:8]))] * 2


def test_a_device_that_refuses_the_campaign_has_its_reason_said(
    problem: Problem, schedules: list[Schedule]
) -> None:
    refuses = {"a": "offcut is 0 there, and 1 here", "b": ""}
    tasks = Fake(FakeDevices(["a", "b"]), fine, lambda device: refuses[device.name])
    outcomes(problem, tasks, schedules)
    assert {name for name, _ in tasks.dealt} == {"b"}

    tasks = Fake(FakeDevices(["a"], others=2), fine, lambda device: refuses[device.name])
    with rejection("""\
TargetError: tune: cannot measure at tcp://scheduler:8786
  because  no device is left (a: offcut is 0 there, and 1 here)
  help     offcut worker tcp://scheduler:8786 --device NAME
  help     begun again, tuning takes from the records what was measured"""):
        outcomes(problem, tasks, schedules)


def test_a_worker_that_lacks_offcut_has_it_said(
    problem: Problem, schedules: list[Schedule]
) -> None:
    class Lacking(Fake):
        def results(self) -> list[TaskResult[Parcel]]:
            why = ModuleNotFoundError("No module named 'offcut'")
            found = [TaskResult(one, Parcel(), raised=why) for one in self.flying]
            self.flying.clear()
            return found

    with pytest.raises(TargetError) as refused:
        outcomes(problem, Lacking(FakeDevices(["a"]), fine), schedules)
    assert refused.value.because == (
        "no device is left (a: ModuleNotFoundError: No module named 'offcut')"
    )


def test_a_device_that_raises_while_it_measures_is_put_aside_and_loses_nothing(
    problem: Problem, schedules: list[Schedule]
) -> None:
    def a_raises(device: Device, parcel: Parcel) -> TaskResult[Parcel]:
        full = OSError("No space left on device")
        return (
            TaskResult(device, parcel, raised=full) if device.name == "a" else fine(device, parcel)
        )

    tasks = Fake(FakeDevices(["a", "b"]), a_raises)
    found = outcomes(problem, tasks, schedules)

    assert {one.outcome for one in found.values()} == {Outcome.OK}
    assert [name for name, _ in tasks.dealt].count("a") == 1
    with pytest.raises(TargetError) as refused:
        outcomes(problem, Fake(FakeDevices(["a"]), a_raises), schedules)
    assert refused.value.because == "no device is left (a: OSError: No space left on device)"


def test_what_ends_a_campaign_here_ends_it_there(
    problem: Problem, schedules: list[Schedule]
) -> None:
    unclear = TargetError("tune", "cannot check what C computes", at="n = 3", because="…")
    bug = InternalError("a tile of no height")
    for fate in ({"value": unclear}, {"raised": bug}):

        def ends(device: Device, parcel: Parcel, fate: Any = fate) -> TaskResult[Parcel]:
            return TaskResult(device, parcel, **fate)

        with pytest.raises((OffcutError, InternalError)) as ended:
            outcomes(problem, Fake(FakeDevices(["a"]), ends), schedules)
        assert ended.value in (unclear, bug)
    assert unclear.at == "device a, n = 3"


# Which devices a pool has: workers with the resource, that gave a sign of late.


def worker(name: str, last_seen: float, device: int = 1) -> dict[str, Any]:
    resources = {"device": device} if device else {}
    return {"name": name, "last_seen": last_seen, "resources": resources}


class World:
    """A scheduler's view of its workers, and a clock."""

    def __init__(self, **workers: dict[str, Any]) -> None:
        self.workers, self.now = workers, 0.0

    def devices(self) -> Devices:
        return Devices(lambda: dict(self.workers), 5.0, lambda: self.now)


def test_a_worker_that_went_or_gives_no_sign_is_not_there_until_it_does() -> None:
    # The scheduler's time is years away from ours: only whether it moves counts.
    world = World(x=worker("a", 1e9), y=worker("b", 1e9), z=worker("c", 1e9, device=0))
    devices, a, b = world.devices(), Device("a", "x"), Device("b", "y")
    assert (devices.now(), devices.others) == ((a, b), 1)
    world.now, world.workers["x"] = 4.0, worker("a", 1e9 + 4)
    assert devices.now() == (a, b)
    world.now = 6.0
    assert devices.now() == (a,)
    assert devices.is_silent(b)
    world.workers["y"] = worker("b", 1e9 + 6)
    assert devices.now() == (a, b)
    del world.workers["x"]
    assert devices.now() == (b,)
    assert not devices.is_silent(a)
    world.workers["v"] = worker("a", 1.0)
    assert devices.now() == (Device("a", "v"), b)
