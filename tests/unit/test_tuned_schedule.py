"""`compile` looks for the schedule that tuning settled on, and nothing in records can break it."""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut import Outcome, Record, Records
from offcut.backends.driver import find_tuned_schedule
from offcut.errors import InternalError, PartitionError
from offcut.search import trials
from offcut.search.trials import BEST, DEFAULT, machine_kind
from tests.facade import requested

ROOT = Path(__file__).parents[2]
n = oc.dim("n", min=1, max=64)
A, W = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 16), name="W")
k = oc.reduce_axis(24, name="k")
C = oc.compute((n, 16), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="C")
GIVEN = {"inputs": [A, W], "constants": {"W": np.ones((24, 16), "float32")}}
ELSE = oc.compile(C, **GIVEN, strategy={"i": "mask"}).schedule
"""A schedule that the policy does not choose."""

PROGRAM = requested(C, GIVEN["inputs"], GIVEN["constants"], "compile").program
CPU = oc.target("cpu")


def verdict(
    schedule: str = str(ELSE), version: str = oc.__version__, before: float = 3e-6, **options: Any
) -> list[Record]:
    """What a campaign would record that settled on a schedule at n = 1 and 9."""
    machine = options.get(
        "machine", CPU.record_key(CPU.options("tune", threads=options.get("threads")))
    )
    return [
        Record(
            *(PROGRAM.digest, text, machine, version, {"n": size}, Outcome.OK),
            seconds=seconds,
            spread=0.0,
            explorer=explorer,
            created=1_700_000_000.0,
        )
        for explorer, text, seconds in (
            (BEST, schedule, 2e-6),
            (DEFAULT, "schedule C", before),
        )
        for size in (1, 9)
    ]


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """The default file, empty; nothing is shipped."""
    monkeypatch.setenv("OFFCUT_RECORDS", str(tmp_path / "records.sqlite"))
    monkeypatch.setattr(trials, "SHIPPED", tmp_path / "shipped")
    (tmp_path / "shipped").mkdir()
    return Records()


def notes(kernel: oc.Kernel) -> list[str]:
    """What the plan says of records."""
    return [note for note in kernel.plan(n=9).notes if "record" in note or "tuned" in note]


def test_the_schedule_that_tuning_settled_on_is_taken_and_the_plan_says_so(
    records: Records,
) -> None:
    policy = oc.compile(C, **GIVEN)
    records.add(verdict())
    kernel = oc.compile(C, **GIVEN)
    assert kernel.schedule == ELSE != policy.schedule
    said = "records.sqlite: tuned 2023-11-14, 1.50× as fast as the default at n = 1, 9"
    assert notes(kernel) == [said]
    assert said in str(kernel.plan(n=1))
    x = np.random.default_rng(0).standard_normal((9, 24), dtype=np.float32)
    assert np.array_equal(kernel(x), policy(x))


def test_a_kernel_that_was_tuned_stays_so_when_it_is_pickled_or_given_other_constants(
    records: Records,
) -> None:
    records.add(verdict())
    kernel = oc.compile(C, **GIVEN)
    other = kernel.with_constants({"W": np.zeros((24, 16), "float32")})
    records.path.unlink()
    for same in (pickle.loads(pickle.dumps(kernel)), other):
        assert same.schedule == ELSE
        assert notes(same) == notes(kernel)


def test_tuning_is_found_by_itself(records: Records) -> None:
    from math import inf

    from tests.facade import Limits

    def few(space: Any, seen: Any, rng: Any, count: int) -> Any:
        return space.neighbours(space.first)[:1]

    tuned = oc.tune(
        *(C, [A, W], ["W"], {"n": [1, 9]}),
        trials=2,
        explorer=few,
        limits=Limits(budget=0.01, noise=inf),
    )
    kernel = oc.compile(C, **GIVEN)
    assert kernel.schedule == oc.compile(C, **GIVEN, schedule=tuned).schedule
    assert len(notes(kernel)) == 1


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "decided",
    [
        {"records": False},
        {"strategy": "cut"},
        {"schedule": oc.Schedule.parse("schedule C\norder C i\ncover C vectors\n")},
        {"price": lambda loops: 1e-6},
        {"threads": 2},  # another place
        {"reassociate": False},
        {"target": "interpret"},
        {"OFFCUT_RECORDS": "off"},
    ],
    ids=lambda decided: next(iter(decided)),
)
def test_where_something_decides_already_nothing_is_looked_up(
    records: Records, decided: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    records.add(verdict())
    if decided == {"OFFCUT_RECORDS": "off"}:
        monkeypatch.setenv(*decided.popitem())
    assert notes(oc.compile(C, **GIVEN, **decided)) == []


@pytest.mark.parametrize("kind", [str, Path, Records])
def test_a_file_is_named(records: Records, tmp_path: Path, kind: Any) -> None:
    Records(tmp_path / "mine").add(verdict())
    kernel = oc.compile(C, **GIVEN, records=kind(tmp_path / "mine"))
    assert kernel.schedule == ELSE
    assert notes(kernel)[0].startswith("mine: tuned")


def test_the_default_that_stayed_is_the_policy_of_today(records: Records) -> None:
    records.add(verdict("schedule C"))
    kernel = oc.compile(C, **GIVEN)
    assert kernel.schedule == oc.compile(C, **GIVEN, records=False).schedule
    said = "records.sqlite: tuned 2023-11-14, the default was the best at n = 1, 9"
    assert notes(kernel) == [said]


def test_a_verdict_of_another_version_is_named_when_it_is_not_taken(records: Records) -> None:
    records.add(verdict(version="0.0.9"))
    assert notes(oc.compile(C, **GIVEN)) == [
        "records: records.sqlite has a verdict of offcut 0.0.9, which is not taken: this is "
        f"{oc.__version__}, and schedules may plan otherwise; tune again"
    ]
    major, minor, *_ = oc.__version__.split(".")
    records.add(verdict(version=f"{major}.{minor}.99"))
    assert oc.compile(C, **GIVEN).schedule == ELSE, "another last number is no other version"


# What is wrong with records is said, and breaks nothing


REFUSED = {
    "no schedule": ("nonsense", "it is not of this form"),
    "an axis that is not there": (str(ELSE).replace("C.i", "C.q"), "q"),
    "of another program": (str(ELSE).replace("C", "Q"), "another program"),
}


@pytest.mark.parametrize(("text", "word"), REFUSED.values(), ids=REFUSED)
def test_a_schedule_that_is_refused_is_left_aside(records: Records, text: str, word: str) -> None:
    records.add(verdict(text))
    kernel = oc.compile(C, **GIVEN)
    assert kernel.schedule == oc.compile(C, **GIVEN, records=False).schedule
    (said,) = notes(kernel) or [""]
    assert said.startswith("records.sqlite: the tuned schedule is left aside: ")
    assert word in said


@pytest.mark.parametrize("kind", [InternalError("odd"), PartitionError("x", "y", because="odd")])
def test_a_schedule_that_breaks_the_compiler_is_left_aside(
    records: Records, monkeypatch: pytest.MonkeyPatch, kind: Exception
) -> None:
    from offcut import kernel

    records.add(verdict())
    made = kernel.kernel_of

    def broken(request: Any, options: Any, *rest: Any) -> Any:
        if options.schedule is not None:
            raise kind
        return made(request, options, *rest)

    monkeypatch.setattr(kernel, "kernel_of", broken)
    assert notes(oc.compile(C, **GIVEN))[0].endswith("odd")


def damaged(file: Path) -> None:
    file.write_bytes(b"not a database at all" * 200)


def of_something_else(file: Path) -> None:
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE mine (x)")


def torn(file: Path) -> None:
    Records(file).add(verdict())
    file.write_bytes(file.read_bytes()[:5000])


def with_odd_fields(file: Path) -> None:
    Records(file).add(verdict())
    with sqlite3.connect(file) as other:
        other.execute("UPDATE record SET sizes = 'odd', seconds = 'slow'")


@pytest.mark.parametrize(
    "plant", [damaged, of_something_else, torn, Path.mkdir, Path.touch, with_odd_fields]
)
def test_a_file_that_cannot_be_read_is_left_aside(records: Records, plant: Any) -> None:
    plant(records.path)
    kernel = oc.compile(C, **GIVEN)
    assert kernel.schedule == oc.compile(C, **GIVEN, records=False).schedule
    (said,) = notes(kernel)
    assert said.startswith("records: records.sqlite cannot be used: ")


def test_a_file_that_a_writer_has_locked_is_left_aside_at_once(records: Records) -> None:
    records.add(verdict())
    writer = sqlite3.connect(records.path, isolation_level=None)
    writer.execute("PRAGMA locking_mode = EXCLUSIVE")
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("DELETE FROM record")
    try:
        assert notes(oc.compile(C, **GIVEN)) == [
            "records: records.sqlite cannot be used: database is locked"
        ]
    finally:
        writer.execute("ROLLBACK")
        writer.close()
    assert oc.compile(C, **GIVEN).schedule == ELSE


def test_a_folder_without_rights_is_no_error_of_a_compile(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", "records.sqlite")

    monkeypatch.setattr(Path, "exists", denied)
    request = requested(C, GIVEN["inputs"], GIVEN["constants"], "compile")
    found = find_tuned_schedule(request, CPU.options("compile"), CPU, None)
    assert found.schedule is None
    assert len(found.notes) == 1
    assert found.notes[0].startswith("records: they cannot be used: [Errno 13] Permission denied")


def test_a_look_up_writes_nothing(records: Records, tmp_path: Path) -> None:
    kernel = oc.compile(C, **GIVEN, records=tmp_path / "none")
    assert notes(kernel) == [f"records: there is no file {tmp_path / 'none'}"]
    assert not (tmp_path / "none").exists()
    records.add(verdict())
    before = records.path.read_bytes(), sorted(records.path.parent.iterdir())
    oc.compile(C, **GIVEN)
    assert (records.path.read_bytes(), sorted(records.path.parent.iterdir())) == before


# What is shipped


def shipped(kept: list[Record], threads: int = 1) -> Path:
    place = CPU.machine_kind(CPU.options("compile", threads=threads))
    file = trials.SHIPPED / f"this-{place}.jsonl"
    source = Records(trials.SHIPPED / "made.sqlite")
    source.add(kept)
    source.export(file)
    return file


def test_what_is_shipped_is_taken_where_the_user_has_tuned_nothing(records: Records) -> None:
    shipped(verdict(machine="any"))
    kernel = oc.compile(C, **GIVEN)
    assert kernel.schedule == ELSE
    assert notes(kernel)[0].startswith("shipped records: tuned 2023-11-14, 1.50×")
    records.add(verdict("schedule C"))
    assert notes(oc.compile(C, **GIVEN))[0].startswith("records.sqlite: ")
    damaged(records.path)
    kernel = oc.compile(C, **GIVEN)
    assert (kernel.schedule, len(notes(kernel))) == (ELSE, 2)


def test_what_is_shipped_is_of_this_kind_of_machine_whatever_its_cores(records: Records) -> None:
    machine = CPU.machine
    more = replace(machine, core=replace(machine.core, count=machine.core.count + 6))
    less = machine.with_memory(0, 4096, 2, 64)
    assert machine_kind("cpu", more, 1, True) == machine_kind("cpu", machine, 1, True)
    assert machine_kind("cpu", more, 2, True) != machine_kind("cpu", machine, 1, True)
    assert machine_kind("cpu", less, 1, True) != machine_kind("cpu", machine, 1, True)


@pytest.mark.parametrize("odd", [b"\xff\xfe", b'{"program": "DIGEST", "explorer": "the best"}\n'])
def test_shipped_lines_that_cannot_be_read_are_left_aside(records: Records, odd: bytes) -> None:
    shipped(verdict()).write_bytes(odd.replace(b"DIGEST", PROGRAM.digest.encode()))
    (said,) = notes(oc.compile(C, **GIVEN))
    assert said.startswith("records: shipped records cannot be used: ")


SCRIPT = """
import sys, numpy as np, offcut as oc
n = oc.dim("n", max=64)
A = oc.placeholder((n, 24), name="A")
oc.compile(oc.compute((n, 24), lambda i, j: A[i, j] * 2.0, name="B"))
print("sqlite3" in sys.modules)
"""


def test_where_there_are_no_records_sqlite_is_not_loaded(records: Records) -> None:
    made = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
