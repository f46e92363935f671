"""A contender that ends its process is a row that says how; the others take their turns, and the study ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import slow

import offcut as oc
from offcut.errors import OffcutError
from offcut.search.job_runner import JobResult, JobStatus
from offcut.studies import cell_processes
from offcut.studies.cell_processes import GroupProcess
from offcut.studies.definition import Source, read_definition
from offcut.studies.samples import FILE, Sample, read_samples

HEAD = '[study]\nname = "small"\nseconds_per_cell = 0.002\nrounds = 3\nprocesses = 1\n'
DENSE = '[[operators]]\neinsum = "mk,kn->mn"\nsizes = {m = [1, 3], k = 8, n = 16}\n'
PEERS = '[[contenders]]\nname = "auto"\nstrategy = "auto"\n[[contenders]]\npeer = "mine:ends"\n[[contenders]]\npeer = "numpy"\n'
ENDS = {
    "leaves": ("os._exit(3)", "it left with status 3"),
    "segfaults": ("ctypes.string_at(0)", "ended by SIGSEGV"),
    "aborts": ("os.abort()", "ended by SIGABRT"),
}


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the pictures of reports, which take a second each."""
    monkeypatch.setattr("offcut.studies.report.is_installed", lambda name: False)


MINE = """
import ctypes, os
def ends(inputs, sizes):
    return lambda: {code}
def ends_at_one(inputs, sizes):
    if sizes['m'] == 1:
        os._exit(3)
    return lambda: inputs['A'] @ inputs['B']
"""
OWN = """
import os
class Own:
    def task(self, sizes, seed):
        os._exit(7)
    def compiled(self, options):
        pass
def own(m):
    return Own()
"""


@pytest.mark.parametrize("end", ["leaves", slow("segfaults"), slow("aborts")])
def test_what_ends_its_process_is_rows_that_say_how_and_all_others_are_measured(
    tmp_path: Path, end: str
) -> None:
    """An operator ends it, so all of its cells fail; a contender at every size, and one at one size."""
    code, because = ENDS[end]
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "mine.py").write_text(MINE.format(code=code))
    own = '[[operators]]\nname = "own"\ndescribe = "own:own"\nsizes = {m = [4]}\n'
    at_one = '[[contenders]]\npeer = "mine:ends_at_one"\n'
    (tmp_path / "study.toml").write_text(HEAD + own + DENSE + PEERS + at_one)
    outcome = oc.study(tmp_path / "study.toml", tmp_path / "out")

    samples = list(read_samples(tmp_path / "out" / FILE).values())
    assert (outcome.measured, outcome.failed) == (12, 4 + 3)
    assert len((tmp_path / "out" / FILE).read_text().splitlines()) == 12
    assert {one.operator for one in samples[:4]} == {"own"}
    assert [one.failed for one in samples[:4]] == ["its process ended: it left with status 7"] * 4

    dense = [one for one in samples if one.operator != "own"]
    failed = [one for one in dense if one.failed]
    assert {(one.contender, one.sizes["m"], one.failed) for one in failed} == {
        ("mine:ends", 1, f"its process ended: {because}"),
        ("mine:ends", 3, f"its process ended: {because}"),
        ("mine:ends_at_one", 1, "its process ended: it left with status 3"),
    }
    assert all(one.peer for one in failed)
    others = [one for one in dense if one.contender in ("auto", "numpy")]
    assert len(others) == 4
    assert len({one.turns for one in others}) == 2, "those that are left take turns"


class FakeChildren:
    """Children whose runs end with the cell whose turn it is, or with a sample of each cell.

    ends  the cells that end a run, one after the other
    runs  the cells of each run
    """

    runs: list[tuple[str, ...]]

    def __init__(self, ends: list[str]) -> None:
        self.ends, self.runs = ends, []

    def run(self, function: str, order: object, seconds: float, say: object) -> JobResult:
        cells = order.cells  # type: ignore[attr-defined]
        self.runs.append(cells)
        for cell in cells:
            if self.ends and cell == self.ends[0]:
                del self.ends[0]
                (order.folder / "turn").write_text(cell)  # type: ignore[attr-defined]
                return JobResult(JobStatus.CRASHED, None, "it left with status 3")
            say((Sample(cell, "dense", {}, cell, (1.0,)),))  # type: ignore[operator]
        return JobResult(JobStatus.RETURNED)

    def close(self) -> None:
        """Do nothing."""


def test_a_cell_whose_turn_another_one_ended_is_measured_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    children = [FakeChildren(["b", "d"]), FakeChildren(["d"])]
    pending = list(children)
    monkeypatch.setattr(isolated, "JobRunner", lambda memory, environment: pending.pop(0))
    told: list[Sample] = []
    with GroupProcess(Source({}, Path("s"))) as process:
        process.measure(dict(zip("abcd", "wxyz", strict=True)), told.extend)
        process.measure({"e": "x", "f": "w"}, told.extend)

    shared, single = children
    assert [one.cell for one in told] == ["a", "c", "b", "d", "f", "e"]
    assert [one.cell for one in told if one.failed] == ["d"]
    assert shared.runs == [("a", "b", "c", "d"), ("c", "d"), ("f",)]
    assert single.runs == [("b",), ("d",), ("e",)], "what ended a process stays apart"


def test_a_file_that_is_changed_while_a_study_runs_ends_it_with_words(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    (tmp_path / "mine.py").write_text("def ends(inputs, sizes):\n    return None\n")
    file.write_text(HEAD + DENSE + PEERS)
    with (
        GroupProcess(read_definition(file).source) as process,
        pytest.raises(OffcutError) as refused,
    ):
        process.measure({"0123456789abcdef": "another"}, lambda sample: None)

    assert str(refused.value) == (
        "study: cannot go on\n"
        "  because  a file was changed while the study ran: 1 of 1 cells are others now\n"
        "  help     the same command goes on with what is measured"
    )


@pytest.mark.slow
def test_a_module_that_crashes_while_it_is_read_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import ctypes\nctypes.string_at(0)\n")
    (tmp_path / "study.toml").write_text(HEAD + DENSE + PEERS)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "offcut", "study", "study.toml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )

    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert 'mine.py", line 2 in <module>' in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["call", "compile"])
def test_a_study_that_is_killed_leaves_no_process_behind_and_goes_on(
    tmp_path: Path, measure: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "import os, pathlib, time\n"
        "def ends(inputs, sizes):\n"
        "    pathlib.Path('child').write_text(str(os.getpid()))\n"
        "    time.sleep(0 if pathlib.Path('again').exists() else 600)\n"
        "    return lambda: inputs['A'] @ inputs['B']\n"
    )
    peer = f'[[contenders]]\npeer = "mine:ends"\nmeasure = "{measure}"\n'
    (tmp_path / "study.toml").write_text(HEAD + DENSE + peer)
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-m", "offcut", "study", "study.toml", "--out", "out"]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    child, deadline = tmp_path / "child", time.monotonic() + 120
    while not (child.exists() and child.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    number = int(child.read_text())
    while Path(f"/proc/{number}/stat").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{number}/stat").read_text().split()[2] == "Z":
            break
        time.sleep(0.02)
    assert time.monotonic() < deadline, "its child goes on"

    (tmp_path / "again").touch()
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert f"the process {process.pid}, which measured into out, was killed" in done.stderr
    samples = read_samples(tmp_path / "out" / FILE)
    assert [one.failed for one in samples.values()] == [""] * 2


def test_what_contenders_compiled_of_an_operator_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators = (
        f'[[operators]]\nname = "{name}"\n' + DENSE.partition("\n")[2].replace("16", columns)
        for name, columns in (("first", "16"), ("next", "17"))
    )
    contenders = '[[contenders]]\nstrategy = "auto"\n'
    (tmp_path / "study.toml").write_text(HEAD + "".join(operators) + contenders)
    source = read_definition(tmp_path / "study.toml").source
    definition = source.read()
    read, reads = Source.read, list[Source]()
    monkeypatch.setattr(Source, "read", lambda source: reads.append(source) or read(source))
    measured = []
    for name in ("first", "next"):
        cells = tuple(
            group_cell
            for group in cell_processes.groups_of(
                definition, frozenset(cell for *_, cell in definition.cells())
            )
            for group_cell in group.cells
            if group.operator.name == name
        )
        order = cell_processes._Order(source, cells, {}, tmp_path, has_owner=False)
        (tmp_path / cell_processes.TURN).write_text("")
        cell_processes.measure_cells(order, measured.append)
        (contender,) = cell_processes._READ[0].definition.contenders
        assert set(contender._compiled) == {name}
    cell_processes._READ.clear()
    assert sum(map(len, measured)) == 4
    assert len(reads) == 2, "once for each operator"
