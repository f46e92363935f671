"""Jobs in processes that crash, hang, and ask for all memory: each is told apart, and none is left."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compiled import needs_fork

from offcut.errors import OffcutError
from offcut.search.job_runner import JobResult, JobRunner, JobStatus, run_in_fork

PATIENCE = 60.0
MEMORY = 1 << 30


@pytest.fixture(scope="module")
def children() -> Iterator[JobRunner]:
    with JobRunner(MEMORY) as found:
        yield found


def run(
    children: JobRunner, job: str, given: object = None, seconds: float = PATIENCE
) -> JobResult:
    return children.run(f"planted_jobs:{job}", given, seconds)


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(process: int) -> bool:
    """Whether a process ends within some seconds."""
    until = time.monotonic() + 600
    while is_there(process) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_there(process)


def test_values_larger_than_a_pipe_cross_both_ways_and_one_child_does_many_jobs(
    children: JobRunner,
) -> None:
    heard: list[object] = []
    given = os.urandom(3_000_000)
    ended = children.run("planted_jobs:double", given, PATIENCE, heard.append)
    assert (ended.status, ended.value, ended.last_message) == (JobStatus.RETURNED, given * 2, given)
    assert heard == [given]
    session, group = run(children, "session").value
    assert session == group == run(children, "process").value
    assert session not in (os.getsid(0), os.getpid())
    assert run(children, "fail").status is JobStatus.RAISED
    assert run(children, "shout").value == "heard", "what a job prints is no answer"
    assert run(children, "take", MEMORY // 4).status is JobStatus.RETURNED
    assert run(children, "process").value == session


@pytest.mark.parametrize(
    ("job", "given", "ending", "because"),
    [
        ("abort", None, JobStatus.CRASHED, "ended by SIGABRT"),
        ("read_nowhere", None, JobStatus.CRASHED, "ended by SIGSEGV"),
        ("leave", None, JobStatus.CRASHED, "it left with status 3"),
        ("fail", None, JobStatus.RAISED, "ValueError: no"),
        ("not_there", None, JobStatus.RAISED, "module 'planted_jobs' has no attribute 'not_there'"),
        ("give_what_cannot_be_sent", None, JobStatus.RAISED, "Can't pickle local object"),
        ("take", 8 << 30, JobStatus.OUT_OF_MEMORY, "MemoryError"),
        ("take_as_c", None, JobStatus.OUT_OF_MEMORY, "ended by SIGABRT"),
    ],
)
def test_how_a_job_ends_is_said_and_the_next_one_runs(
    children: JobRunner, job: str, given: object, ending: JobStatus, because: str
) -> None:
    ended = run(children, job, given)

    assert ended.status is ending
    assert because in ended.because
    if job == "abort":
        assert ended.last_message == "about to"
        assert "planted_jobs.py" in ended.details, "the stack at the signal"
        heard: list[object] = []
        children.run(f"planted_jobs:{job}", given, PATIENCE, heard.append)
        assert len(heard) == 1, "it runs once: nobody ended it from outside"
    assert run(children, "double", 4).value == 8


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_whose_child_is_ended_from_outside_runs_once_more(
    children: JobRunner, number: int, tmp_path: Path
) -> None:
    os.kill(run(children, "process").value, number)
    assert run(children, "double", 4).value == 8, "it was ended between two jobs"

    heard: list[int] = []

    def end_the_first(said: object) -> None:
        assert isinstance(said, int)
        heard.append(said)
        if len(heard) == 1:
            os.kill(said, number)

    ended = children.run("planted_jobs:wait_where_first", tmp_path, PATIENCE, end_the_first)
    assert (ended.status, ended.value) == (JobStatus.RETURNED, "done")
    assert len(set(heard)) == 2


def test_a_job_whose_child_is_ended_from_outside_twice_is_a_crash(children: JobRunner) -> None:
    heard: list[int] = []

    def end_it(said: object) -> None:
        assert isinstance(said, int)
        heard.append(said)
        os.kill(said, signal.SIGKILL)

    ended = children.run("planted_jobs:hang_by_name", None, PATIENCE, end_it)

    assert ended.status is JobStatus.CRASHED
    assert ended.because == (
        "ended by SIGKILL; the system sends it where memory is short, and so was a second run"
    )
    assert len(set(heard)) == 2
    assert run(children, "double", 4).value == 8


@pytest.mark.parametrize("job", ["hang", "spin"])
def test_a_silent_job_is_ended(children: JobRunner, job: str) -> None:
    started = run(children, "process").value

    ended = run(children, job, seconds=0.5)

    assert ended.status is JobStatus.HUNG
    assert ended.because == "silent for 0.5 s"
    assert gone(started)
    assert run(children, "double", 4).value == 8


class Clock:
    """The machine's, which goes on by so many seconds at each word of a job, or from then on at each look."""

    def __init__(self, each_word: float = 0.0, each_look: float = 0.0) -> None:
        self.each_word, self.each_look = each_word, each_look
        self.ahead, self.heard = 0.0, list[int]()
        self.real = time.monotonic

    def __call__(self) -> float:
        self.ahead += self.each_look if self.heard else 0.0
        return self.real() + self.ahead

    def hear(self, said: int) -> None:
        self.heard.append(said)
        self.ahead += self.each_word


def test_a_job_that_talks_is_not_silent(
    children: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(each_word=PATIENCE / 2)
    monkeypatch.setattr("offcut.search.job_runner.time.monotonic", clock)
    assert children.run("planted_jobs:talk", 8, PATIENCE, clock.hear).value == "done"
    assert clock.heard == list(range(8))


def test_what_a_job_started_ends_with_it(
    children: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(each_look=2 * PATIENCE)
    with monkeypatch.context() as patch:
        patch.setattr("offcut.search.job_runner.time.monotonic", clock)
        ended = children.run("planted_jobs:hang_with_a_child", None, PATIENCE, clock.hear)

    assert ended.status is JobStatus.HUNG
    assert gone(clock.heard[0])


def test_nothing_is_left_where_the_caller_is_interrupted_or_forgets_its_children() -> None:
    def interrupt(said: object) -> None:
        raise KeyboardInterrupt

    with JobRunner(MEMORY) as children:
        started = run(children, "process").value
        with pytest.raises(KeyboardInterrupt):
            children.run("planted_jobs:hang", None, PATIENCE, interrupt)

        assert gone(started)
        assert run(children, "double", 4).value == 8
    forgotten = JobRunner(MEMORY)
    started = run(forgotten, "process").value
    del forgotten
    gc.collect()
    assert gone(started)


def own_children() -> set[int]:
    """The processes whose parent is this one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


def test_no_pipe_and_no_process_is_left() -> None:
    before, others = len(os.listdir("/proc/self/fd")), own_children()
    for _ in range(2):
        with JobRunner(MEMORY) as children:
            run(children, "abort")
            run(children, "double", 4)

    assert len(os.listdir("/proc/self/fd")) == before
    assert own_children() <= others


ORPHAN = """
import os
from offcut.search.job_runner import JobRunner

def end(child):
    print(child, flush=True)
    os.kill(os.getpid(), 9)

children = JobRunner(1 << 30)
"""
IDLE = 'end(children.run("planted_jobs:process", None, 60.0).value)'
BUSY = 'children.run("planted_jobs:hang_by_name", None, 0.1, end)'


@pytest.mark.parametrize("last", [IDLE, pytest.param(BUSY, marks=pytest.mark.slow)])
def test_a_child_whose_parent_is_killed_ends(last: str) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", ORPHAN + last],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        check=False,
    )

    assert parent.returncode == -9
    assert gone(int(parent.stdout))


def test_what_cannot_be_sent_is_refused(children: JobRunner) -> None:
    with pytest.raises(OffcutError) as refused:
        run(children, "double", lambda: None)

    assert str(refused.value).startswith(
        "run: cannot send a function to another process\n  because  "
    )
    assert refused.value.help == ("functions and classes of an importable module can be sent",)
    assert run(children, "double", 4).value == 8


@needs_fork
def test_a_fork_knows_what_this_process_knows_and_changes_nothing_of_it() -> None:
    seen: list[int] = []

    def job(say: Callable[[object], None]) -> tuple[int, list[int]]:
        seen.append(1)
        say("in")
        return os.getpid(), seen

    ended = run_in_fork(job, PATIENCE, PATIENCE, MEMORY)

    assert ended.status is JobStatus.RETURNED
    assert ended.value[0] != os.getpid()
    assert (ended.value[1], ended.last_message, seen) == ([1], "in", [])
    assert not is_there(ended.value[0])


@pytest.mark.every(3)
@needs_fork
@pytest.mark.parametrize(
    ("job", "ending", "because"),
    [
        (lambda say: os._exit(0), JobStatus.CRASHED, "it left with status 0"),
        (lambda say: os.abort(), JobStatus.CRASHED, "ended by SIGABRT"),
        (lambda say: [*iter(int, 1)], JobStatus.HUNG, "busy for 0.1 s of the processor's time"),
        (lambda say: bytearray(8 << 30), JobStatus.OUT_OF_MEMORY, "MemoryError"),
        (lambda say: lambda: 0, JobStatus.RAISED, "Can't pickle"),
        (lambda say: 1 // 0, JobStatus.RAISED, "ZeroDivisionError"),
    ],
)
def test_how_a_fork_ends_is_said(
    job: Callable[[object], object], ending: JobStatus, because: str
) -> None:
    ended = run_in_fork(job, PATIENCE, 0.1 if "busy" in because else PATIENCE, MEMORY)

    assert ended.status is ending
    assert because in ended.because


@needs_fork
def test_a_fork_that_is_blocked_before_it_says_a_word_is_followed_by_one_more(
    tmp_path: Path,
) -> None:
    def job(say: Callable[[object], None]) -> str:
        if not (tmp_path / "first").exists():
            (tmp_path / "first").touch()
            time.sleep(60)
        return "done"

    assert run_in_fork(job, 0.3, PATIENCE, MEMORY).value == "done"
    twice = run_in_fork(lambda say: time.sleep(60), 0.3, PATIENCE, MEMORY)
    assert (twice.status, twice.because) == (
        JobStatus.HUNG,
        "silent for 0.3 s, and so was a second run",
    )
    begun = run_in_fork(lambda say: (say(1), time.sleep(60)), 0.3, PATIENCE, MEMORY)
    assert (begun.because, begun.last_message) == ("silent for 0.3 s", 1)


@needs_fork
def test_a_fork_that_is_ended_from_outside_is_followed_by_one_more(tmp_path: Path) -> None:
    def job(say: Callable[[object], None]) -> str:
        if (tmp_path / "first").exists():
            return "done"
        (tmp_path / "first").touch()
        os.kill(os.getpid(), signal.SIGKILL)
        return "still there"

    assert run_in_fork(job, PATIENCE, PATIENCE, MEMORY).value == "done"
    twice = run_in_fork(
        lambda say: os.kill(os.getpid(), signal.SIGKILL), PATIENCE, PATIENCE, MEMORY
    )
    assert twice.status is JobStatus.CRASHED
    assert twice.because.endswith(", and so was a second run")
