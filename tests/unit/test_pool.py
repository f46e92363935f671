"""A pool whose workers are killed, stopped, or gone, and whose candidates crash and hang: each is accounted for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import rejection
from planted_target import Planted
from typer.testing import CliRunner

import offcut as oc
from offcut import Schedule
from offcut.errors import OffcutError
from offcut.search.pool import Pool
from offcut.search.pool.connection import serve
from offcut.tuning.pooled_bench import open_pooled_bench
from tests.facade import (
    Limits,
    Problem,
    ScheduleSpace,
    TriedSchedule,
    app,
    requested,
    stand_ins,
)
from tests.spaces import dense, space_of
from tests.workers import listens_at, worker_process

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")

QUICK = Limits(patience=3.0, memory=1 << 30, budget=0.02, noise=math.inf)
SIZES = (({"n": 3}, 0.5), ({"n": 20}, 0.5))
STRATEGIES = ("balance", "cut", "guard", "mask", "even", "residue", "pad", "shift")


def problem(faults: Mapping[str, str]) -> Problem:
    result, a, w = dense()
    target = Planted(faults)
    request = requested(result, [a, w], stand_ins(["W"], result, [a, w], "tune"), "tune")
    return Problem(request, target.options("tune", threads=1), target, SIZES)


@pytest.fixture(scope="module")
def schedules() -> list[Schedule]:
    result, a, w = dense()
    constants = stand_ins(["W"], result, [a, w], "tune")
    made = [
        oc.compile(result, [a, w], constants, strategy={"i": name}, threads=1).schedule
        for name in STRATEGIES
    ]
    assert len(set(made)) == len(STRATEGIES)
    return made


@pytest.fixture
def cluster() -> Iterator[Any]:
    settings = {"n_workers": 0, "processes": False, "protocol": "tcp://", "host": "127.0.0.1"}
    with distributed.LocalCluster(**settings, dashboard_address=None) as found:
        yield found


@pytest.fixture
def workers(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``workers("a", "b")`` starts workers, which end with the test; the address of their pool."""
    monkeypatch.setenv("OFFCUT_PLANTED", str(tmp_path))
    with ExitStack() as stack:
        started = []

        def start(*names: str) -> str:
            for name in names:
                process = stack.enter_context(worker_process(cluster.scheduler_address, name))
                started.append(process)
            return str(cluster.scheduler_address)

        start.processes = started  # type: ignore[attr-defined]
        yield start
        for process in started:
            process.kill()  # one that is stopped ends by nothing else


def two_rounds(
    space: ScheduleSpace, seen: Sequence[TriedSchedule], rng: Random, count: int
) -> Sequence[Schedule]:
    """The default alone, then its first neighbours."""
    return space.neighbours(space.first)[:3] if seen else ()


@pytest.mark.slow
def test_a_pool_whose_last_worker_goes_keeps_what_was_measured_and_goes_on(
    cluster: Any, workers: Any, tmp_path: Path
) -> None:
    result, a, w = dense()
    given = {"inputs": [a, w], "constants": ["W"], "sizes": {"n": [3, 20]}, "limits": QUICK}
    given |= {"trials": 3, "explorer": two_rounds, "records": tmp_path / "r", "threads": 1}
    records = oc.Records(tmp_path / "r")
    asked = problem({})
    space = space_of(asked.request, asked.options, asked.target, 3)
    address = workers("a")
    cluster.wait_for_workers(1)
    pool = Pool(address, wait=60.0)
    target = Planted({space.neighbours(space.first)[0].digest: "end_the_worker"})
    with rejection(f"""\
TargetError: tune: cannot measure at {address}
  because  no device is left (a: it went)
  help     offcut worker {address} --device NAME
  help     begun again, tuning takes from the records what was measured"""):
        oc.tune(result, **given, pool=replace(pool, wait=0.5), target=target)
    kept = list(records)
    assert [record.sizes for record in kept] == [{"n": 3}, {"n": 20}]
    workers("b")
    tuned = oc.tune(result, **given, pool=pool)
    assert list(records)[:2] == kept
    assert len({record.schedule for record in records if record.explorer == "two_rounds"}) == 3
    assert isinstance(tuned, Schedule)


def test_what_a_pool_does_not_do_is_refused(
    workers: Any, schedules: list[Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(workers("a"), wait=120.0, answer=0.5)
    asked = problem({})

    def refusal(limits: Limits) -> str:
        with pytest.raises(OffcutError) as refused, open_pooled_bench(asked, limits, pool) as bench:
            bench.dispatch(schedules[:1], lambda measured: None)
        return str(refused.value.at or refused.value.because)

    loaded = refusal(replace(QUICK, noise=0.0))
    assert loaded.startswith("no device is left (a: the quartiles of one and the same kernel are ")
    if Path("/proc/self/net/tcp").exists():
        addresses = listens_at(workers.processes[0].pid)
        assert addresses
        assert all(address.is_loopback for address in addresses)
    assert refusal(replace(QUICK, reference=1e-9)) == "device a"
    with rejection(f"""\
TargetError: worker: cannot be device 'a' of {pool.address}
  because  a worker of that name is there
  help     --device another name"""):
        serve(pool, "a", lambda: None)
    there = oc.__version__
    monkeypatch.setattr(oc, "__version__", "0.0.0")
    assert refusal(QUICK) == f"no device is left (a: offcut is {there} there, and 0.0.0 here)"


def test_workers_without_a_device_are_none(cluster: Any, schedules: list[Schedule]) -> None:
    pool = Pool(cluster.scheduler_address, wait=0.5)
    empty = refused_by(pool, schedules)
    cluster.scale(2)
    cluster.wait_for_workers(2)

    assert (empty.because, refused_by(pool, schedules).because) == (
        "there is no worker",
        "of 2 workers none has the resource device=1",
    )


def refused_by(pool: Pool, schedules: Sequence[Schedule]) -> OffcutError:
    with (
        pytest.raises(OffcutError) as refused,
        open_pooled_bench(problem({}), QUICK, pool) as bench,
    ):
        bench.dispatch(schedules, lambda measured: None)
    return refused.value


def test_a_scheduler_that_goes_is_said(cluster: Any, schedules: list[Schedule]) -> None:
    pool = Pool(cluster.scheduler_address, wait=30.0)
    with open_pooled_bench(problem({}), QUICK, pool) as bench:
        cluster.close()
        with rejection(f"""\
TargetError: tune: cannot go on at {pool.address}
  because  the scheduler went
  help     begun again, tuning takes from the records what was measured"""):
            bench.dispatch(schedules, lambda measured: None)


def test_a_worker_is_started_by_a_command_that_refuses_in_words() -> None:
    done = CliRunner().invoke(app, ["worker", "nowhere"])

    assert done.exit_code == 2
    assert "because  it is not tls://, a host, and a port" in done.output
