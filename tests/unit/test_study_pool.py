"""The cells of a study on the devices of a pool: what is sent, what comes back, what is lost and measured again."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import offcut as oc
from offcut.errors import OffcutError, TargetError
from offcut.search.pool import Device, Pool, TaskResult
from offcut.studies import device_pool
from offcut.studies.definition import Source, read_definition
from offcut.studies.device_pool import PooledStudy, Result
from offcut.studies.groups import groups_of
from offcut.studies.run import write_samples
from offcut.studies.samples import FILE, Sample, read_samples
from offcut.studies.study_files import SentStudy, pack_study, unpack_study
from tests.workers import FakeDevices, worker_process

TEXT = """[study]
name = "small"
seconds_per_cell = 0.002
rounds = 3
processes = 1
[[operators]]
name = "dense"
einsum = "mk,kn->mn"
sizes = {m = "lengths.csv", k = 8, n = 16}
[[contenders]]
strategy = "auto"
[[contenders]]
name = "dot"
peer = "mine:dot"
"""
MINE = """
import numpy as np

def dot(inputs, sizes):
    return lambda: np.dot(inputs["A"], inputs["B"])
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a study with a module and a list of lengths beside it; its report has no pictures."""
    monkeypatch.setattr("offcut.studies.report.is_installed", lambda name: False)
    (tmp_path / "lengths.csv").write_text("m\n1\n3\n3\n9\n")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "other.txt").write_text("nobody names it")
    study = tmp_path / "study.toml"
    study.write_text(TEXT)
    return study


def packed(file: Path) -> SentStudy:
    definition = read_definition(file)
    earlier = read_samples(file.parent / "out" / "small" / FILE)
    counts = {cell: definition.processes_of(one.name) for *_, one, cell in definition.cells()}
    return pack_study(definition.source, counts, earlier)


def test_a_study_is_sent_with_what_it_names_and_is_the_same_there(
    file: Path, tmp_path: Path
) -> None:
    study = pickle.loads(pickle.dumps(packed(file)))
    there = unpack_study(study, tmp_path / "there")

    assert sorted(study.files) == ["lengths.csv", "mine.py", "study.toml"]
    assert {cell for *_, cell in read_definition(there).cells()} == {*study.counts}
    leads_out = SentStudy("", Source({}, Path("s")), {"../s": b""}, {})
    with pytest.raises(OffcutError, match="leads out of the folder"):
        unpack_study(leads_out, tmp_path / "x")


def test_a_file_outside_of_the_folder_is_not_sent(file: Path) -> None:
    outside = file.parent.parent / "lengths.csv"
    outside.write_text("m\n1\n")
    file.write_text(TEXT.replace('"lengths.csv"', '"../lengths.csv"'))

    with pytest.raises(OffcutError) as error:
        packed(file)
    assert str(error.value) == (
        "study: cannot send study.toml to a pool\n"
        "  because  lengths.csv lies outside of the folder of study.toml\n"
        "  help     move it beside the study"
    )


@dataclass
class FakeFlights:
    """Tasks that end at once: each group comes back measured, or its device goes.

    lost  how often a group with this cell ends its device
    """

    devices: FakeDevices
    lost: dict[str, int] = field(default_factory=dict)
    pool: Pool = field(default_factory=lambda: Pool("tcp://scheduler:8786", wait=0.0))
    flying: dict[Device, tuple[Any, Any]] = field(default_factory=dict)
    ends: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.flying)

    def idle(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices.now() if device not in self.flying)

    def send(self, device: Device, label: Any, task: Any, *given: Any) -> None:
        self.flying[device] = task, label

    def results(self) -> list[TaskResult[Any]]:
        found = [self.fate(device, task, label) for device, (task, label) in self.flying.items()]
        self.flying.clear()
        return found

    def fate(self, device: Device, task: Any, label: Any) -> TaskResult[Any]:
        if task is device_pool.admit:
            return TaskResult(device, label, "")
        (cells,) = label
        for cell in cells:
            if self.lost.get(cell, 0):
                self.lost[cell] -= 1
                return TaskResult(device, label, lost="it went")
        made = tuple(Sample(cell, "dense", {}, "auto", (1.0,), 1) for cell in cells)
        return TaskResult(device, label, (Result(made, {"cpu": device.name}),))

    def tell(self, device: Device, task: Any, *given: Any) -> None:
        self.ends.append((device.name, task))


def dealt(file: Path, tasks: FakeFlights) -> list[Result]:
    """Return what is told of all groups of a study."""
    study, definition = packed(file), read_definition(file)
    told: list[Result] = []
    with PooledStudy(study, groups_of(definition, frozenset(study.counts)), tasks) as bench:  # type: ignore[arg-type]
        bench.measure(told.append)
    assert sorted(s.cell for one in told for s in one.samples) == sorted(study.counts)
    return told


def test_each_group_goes_to_one_device_and_its_samples_say_which(file: Path) -> None:
    tasks = FakeFlights(FakeDevices(["a", "b"]))
    told = dealt(file, tasks)

    assert len(told) == 3, "a group for each length"
    assert [[sample.device for sample in one.samples] for one in told] == [
        ["a", "a"],
        ["b", "b"],
        ["a", "a"],
    ]
    assert [one.environment["cpu"] for one in told] == ["a", "b", "a"]
    assert tasks.ends == [("a", device_pool.dismiss), ("b", device_pool.dismiss)]


def test_a_group_whose_device_goes_is_measured_again_and_one_that_ends_all_fails(
    file: Path,
) -> None:
    first, second, *_ = groups_of(read_definition(file), frozenset(packed(file).counts))
    once, always = next(iter(first.cells)), next(iter(second.cells))
    told = dealt(file, FakeFlights(FakeDevices(["a"]), {once: 1, always: 99}))
    samples = {sample.cell: sample for one in told for sample in one.samples}

    assert {cell for cell, one in samples.items() if one.failed} == set(second.cells)
    failed = samples[always]
    assert failed.failed == "4 workers went or hung with it; a: it went"
    assert (failed.contender, failed.sizes) == ("auto", second.point.sizes)


def test_a_device_adds_the_processes_that_it_lacks_and_has_its_own_groups_first(file: Path) -> None:
    def measured(device: str) -> list[list[int]]:
        study = packed(file)
        assert device_pool.admit("one", study) == ""
        groups = [
            tuple(group.cells)
            for group in groups_of(read_definition(file), frozenset(study.counts))
        ]
        try:
            results = device_pool.measure("one", groups[:1], device)
        finally:
            device_pool.dismiss("one")
        assert isinstance(results, tuple)
        samples = [replace(one, device=device) for one in results[0].samples]
        write_samples(read_definition(file), samples_file.parent, samples, results[0].environment)
        return [[*one.process] for one in samples]

    samples_file = file.parent / "out" / "small" / FILE
    samples_file.parent.mkdir(parents=True)
    assert measured("a") == [[0, 0, 0]] * 2

    file.write_text(TEXT.replace("processes = 1", "processes = 2"))
    assert measured("a") == [[1]] * 2, "three rounds of two processes are two and one"
    assert measured("a") == [], "nothing is missing"
    assert measured("b") == [[0, 0], [0, 0], [1], [1]], "another device measures all itself"

    devices = [one.samples[0].device for one in dealt(file, FakeFlights(FakeDevices(["a", "b"])))]
    assert devices == ["a", "b", "a"], "b has the first group, and a the one behind it"


def test_a_pool_without_devices_is_an_error_that_says_how_to_go_on(file: Path) -> None:
    with pytest.raises(TargetError) as error:
        dealt(file, FakeFlights(FakeDevices([], others=2)))
    assert str(error.value) == (
        "study: cannot measure at tcp://scheduler:8786\n"
        "  because  of 2 workers none has the resource device=1\n"
        "  help     offcut worker tcp://scheduler:8786 --device NAME\n"
        "  help     the same command goes on with what is measured"
    )


@pytest.fixture
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    settings = {"n_workers": 0, "processes": False, "protocol": "tcp://", "host": "127.0.0.1"}
    with distributed.LocalCluster(**settings, dashboard_address=None) as found:
        yield found.scheduler_address


@pytest.mark.slow
def test_two_workers_measure_a_study_that_is_killed_and_begun_again(
    file: Path, scheduler: str
) -> None:
    file.write_text(TEXT.replace("0.002", "0.2").replace('"lengths.csv"', '"1:6"'))
    command = [sys.executable, "-m", "offcut", "study", file.name, "--pool", scheduler]
    path = os.pathsep.join(filter(None, sys.path))
    samples = file.parent / "out" / "small" / FILE
    with worker_process(scheduler, "a"), worker_process(scheduler, "b"):
        process = subprocess.Popen(command, cwd=file.parent, env={**os.environ, "PYTHONPATH": path})
        deadline = time.monotonic() + 120
        while not (samples.exists() and read_samples(samples)) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = read_samples(samples)
        outcome = oc.study(file, pool=Pool(scheduler, wait=60.0))

    after = read_samples(samples)
    assert 0 < len(before) <= len(after) == 12
    assert (outcome.measured, outcome.kept, outcome.failed) == (12 - len(before), len(before), 0)
    assert {one.device for one in after.values()} <= {"a", "b"}, "whoever is there first has most"
    assert all(after[cell] == one for cell, one in before.items())
    assert all(one.error is not None and one.error < 1e-5 for one in after.values())
    turns = {one.turns: one.device for one in after.values()}
    assert len(turns) == 6, "cells that take turns are of one device"


@pytest.mark.slow
def test_a_contender_that_ends_its_process_takes_no_other_along(file: Path, scheduler: str) -> None:
    mine = MINE + "\nimport os\n\ndef ends(inputs, sizes):\n    os._exit(3)\n"
    (file.parent / "mine.py").write_text(mine)
    file.write_text(TEXT + '[[contenders]]\nname = "ends"\npeer = "mine:ends"\n')
    with worker_process(scheduler, "a"):
        outcome = oc.study(file, pool=Pool(scheduler, wait=60.0))

    found = read_samples(file.parent / "out" / "small" / FILE).values()
    assert {one.contender for one in found if one.failed} == {"ends"}
    assert {one.failed for one in found if one.failed} == {
        "its process ended: it left with status 3"
    }
    assert (outcome.measured, outcome.failed) == (9, 3)
