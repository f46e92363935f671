"""Studies that run: what is measured anew, what fails or ends its process, several processes, measures other than calls."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import slow
from typer.testing import CliRunner

import offcut as oc
from offcut.errors import DescribeError, OffcutError
from offcut.experiment.limits import Bound
from offcut.experiment.timing import KERNELS
from offcut.search.job_runner import JobResult, JobStatus
from offcut.studies import cell_processes, progress
from offcut.studies.cell_processes import GroupProcess
from offcut.studies.definition import Source, read_definition
from offcut.studies.folder import keep_results, locked, machine_name
from offcut.studies.groups import measure_group
from offcut.studies.progress import StudyProgress
from offcut.studies.results import results_of
from offcut.studies.rows import Row
from offcut.studies.run import missing_groups, run_study
from offcut.studies.samples import FILE, Sample, append_samples, read_samples
from offcut.studies.target_tables import target_tables
from offcut.studies.tasks import LAYOUT, at_page_offset
from tests.agree import agree
from tests.facade import app
from tests.studies import AUTO, DENSE, HEAD, NAMED, NUMPY, defined, measured, written


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Leave out the pictures of reports, which take a second each."""
    if "pictures" not in request.node.name:
        monkeypatch.setattr("offcut.studies.report.is_installed", lambda name: False)


def test_a_study_measures_what_is_new_and_keeps_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = oc.study(written(tmp_path, HEAD + DENSE + AUTO + NUMPY), out)
    lines = (out / FILE).read_text().splitlines()
    again = oc.study(tmp_path / "study.toml", out)
    more = oc.study(
        written(tmp_path, HEAD + DENSE.replace("[1, 3]", "[1, 3, 4]") + AUTO + NUMPY), out
    )

    assert (first.measured, first.kept, first.failed) == (4, 0, 0)
    assert (again.measured, again.kept) == (0, 4)
    assert (more.measured, more.kept) == (2, 4)
    assert (out / FILE).read_text().splitlines()[:4] == lines
    samples = read_samples(out / FILE).values()
    assert all(len(one.seconds) == len(one.round) == len(one.order) for one in samples)
    assert all(one.error is not None and one.error < 1e-5 for one in samples)
    assert {(one.contender, one.predicted is None) for one in samples} == {
        ("auto", False),
        ("numpy", True),
    }
    (environment,) = (out / "environments").glob("*.json")
    assert {one.environment for one in samples} == {environment.stem}
    facts = {"cpu", "commit", "dirty", "llvm", "libraries", "governor", "seed", "command"}
    assert facts <= json.loads(environment.read_text()).keys()
    names = {file.name for file in out.iterdir()}
    assert {"report.html", "cells.csv", "cells.tex", "speed.csv", "latency.tex"} <= names


@pytest.mark.slow
def test_a_report_has_pictures_in_two_formats(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    oc.study(written(tmp_path, HEAD + DENSE + AUTO + NUMPY), tmp_path / "out")

    names = {"speed_0", "profile", "roofline", "predicted"}
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert {f"{name}{suffix}" for name in names for suffix in (".png", ".pdf")} <= files
    assert (tmp_path / "out" / "report.html").read_text().count("data:image/png;base64,") == 4


def test_a_contender_that_fails_is_a_row_that_says_why_and_does_not_spoil_the_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(
        "import sys\n"
        "def writes(inputs, sizes):\n    inputs['A'][...] = 0\n    return lambda: inputs['A'] @ inputs['B']\n"
        "def tires(inputs, sizes):\n    left = [0] * 3\n"
        "    return lambda: (left.pop(), inputs['A'] @ inputs['B'])[1]\n"
        "def spoils(inputs, sizes):\n    a, b = inputs['A'], inputs['B']\n"
        "    def call():\n        result = a @ b\n        a[...] = 0\n        return result\n    return call\n"
        "def nothing(inputs, sizes):\n    return lambda: None\n"
        "def leaves(inputs, sizes):\n    sys.exit(3)\n"
        "def wrong(inputs, sizes):\n    return lambda: inputs['A'] @ inputs['B'] + 1\n"
        "def broken(inputs, sizes):\n    raise KeyError('no such thing')\n"
    )
    names = ("writes", "tires", "spoils", "nothing", "leaves", "wrong", "broken")
    own = "".join(f'[[contenders]]\npeer = "mine:{name}"\n' for name in names)
    text = HEAD + DENSE.replace("[1, 3]", "[2]") + AUTO + own + NUMPY
    outcome = oc.study(written(tmp_path, text), tmp_path / "out")
    again = oc.study(tmp_path / "study.toml", tmp_path / "out", retry=True)

    failed = {one.contender: one.failed for one in read_samples(tmp_path / "out" / FILE).values()}
    off = r"32 of 32 elements are off; \[\d+, \d+\] is "
    assert re.match(f"wrong values: {off}", failed.pop("mine:writes"))
    assert re.match(f"wrong values: {off}", failed.pop("mine:wrong"))
    spoils = f"wrong values after it was timed, as if a call changed its inputs: {off}"
    assert re.match(spoils, failed.pop("mine:spoils"))
    assert failed == {
        "auto": "",
        "numpy": "",
        "mine:tires": "while it was timed, IndexError: pop from empty list",
        "mine:nothing": "wrong values: results of shape () where (2, 16) are due",
        "mine:leaves": "SystemExit: 3",
        "mine:broken": "KeyError: 'no such thing'",
    }
    assert (outcome.measured, outcome.failed) == (9, 7)
    assert (again.measured, again.kept) == (7, 2)
    assert "KeyError" in (tmp_path / "out" / "failed.csv").read_text()


def test_a_model_of_a_file_is_measured(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, kind, ["batch", 8]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    models = (
        '[[operators]]\nmodel = "m.onnx"\nsizes = {batch = [1, 3]}\n'
        '[[operators]]\nname = "other"\nmodel = "m.onnx"\nsizes = {lines = [1]}\n'
    )
    oc.study(written(tmp_path, HEAD + models + AUTO), tmp_path / "out")

    good, same, bad = read_samples(tmp_path / "out" / FILE).values()
    assert [good.failed, same.failed, good.error] == ["", "", 0.0]
    assert good.predicted is not None
    assert bad.failed == "study: cannot measure m.onnx, because its size 'batch' has no value"


# The time that is spent, limits, the lock of a folder, arrays, and lines of progress.


class Known:
    """Limits of a machine that never change."""

    def __init__(self, threads: int) -> None:
        self.times = iter((3.0, 2.0) * 9)

    def now(self, flop: int, moved: int, kind: str) -> Bound:
        assert (kind, moved > 0) == ("float32", True)
        return Bound(next(self.times), "fma")


def test_limits_are_measured_before_and_after_a_row_and_the_tighter_one_counts(
    tmp_path: Path,
) -> None:
    text = HEAD + "limits = true\n" + DENSE.replace("[1, 3]", "[3]") + AUTO
    definition, out, rows = defined(tmp_path, text), tmp_path / "out", list[Row]()
    (group,) = missing_groups(definition, {}, retry=False)
    (sample,) = measure_group(definition, group, Known(1))  # type: ignore[arg-type]
    outcome = run_study(definition, out, tell=rows.append, report=False)
    again = run_study(definition, out, again=True, report=False)

    assert (sample.limit, sample.limit_by) == (2.0, "fma")
    (sample,) = rows[0].samples.values()
    assert sample.limit > 0
    assert [outcome.measured, again.measured, again.kept] == [1, 1, 0]
    assert outcome.tables["rows"].columns[-4:] == ("limit", "by", "of it", "spread")


def test_what_would_last_too_long_is_left_out(tmp_path: Path) -> None:
    over = run_study(
        defined(tmp_path, HEAD + DENSE + AUTO), tmp_path / "out", seconds=0.0, report=False
    )
    assert (over.measured, over.left) == (1, 1)

    never = "def never(inputs, sizes):\n    raise KeyError('it was called')\n"
    (tmp_path / "mine.py").write_text(never)
    own = '[[contenders]]\nfunction = "mine:never"\n'
    definition = defined(tmp_path, HEAD + "patience = 0.5\n" + DENSE + own)
    (group, *_) = missing_groups(definition, {}, retry=False)
    (sample,) = measure_group(definition, group, rates={"mine:never": 100.0})
    expected = "a call is expected to last longer than 0.5 s, by its rate in the rows before"
    assert (sample.failed, sample.peer) == (expected, False)


def test_a_folder_is_measured_into_by_one_at_a_time(tmp_path: Path) -> None:
    first = locked(tmp_path / "out")
    with first, pytest.raises(OffcutError) as refused, locked(tmp_path / "out"):
        pytest.fail("it was begun")
    with locked(tmp_path / "out") as killed:
        assert killed == ""

    assert str(refused.value) == (
        "study: cannot measure\n"
        f"  at       {tmp_path / 'out'}\n"
        f"  because  the process {os.getpid()} measures into it\n"
        "  help     wait for it to end\n"
        "  help     --out another folder"
    )


def test_a_lock_whose_process_was_killed_is_taken_over_with_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 3600.0)
    out = tmp_path / "out"
    code = (
        "import os, signal, sys, pathlib\nfrom offcut.studies.folder import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(out)])
    assert process.wait() == -signal.SIGKILL
    definition = defined(tmp_path, HEAD + DENSE.replace("[1, 3]", "[3]") + AUTO)
    capfd.readouterr()
    said = f"the process {process.pid}, which measured into {out}, was killed: its samples are kept"
    for expected in (f"offcut: study: {said}\n", ""):
        run_study(definition, out, report=False)
        assert capfd.readouterr().err == expected


def test_a_process_lays_its_arrays_apart_where_its_number_says() -> None:
    def places() -> list[int]:
        arrays = [at_page_offset(np.arange(5.0), number) for number in range(4)]
        agree(arrays[3], np.arange(5.0))
        return [array.ctypes.data % 4096 for array in arrays]

    fixed, several = places(), []
    try:
        for process in (1, 1, 2):
            LAYOUT.set(f"{process} dense m=3")
            several.append(places())
    finally:
        LAYOUT.set("")
    assert fixed == [0, 832, 1664, 2496]
    assert several[0] == several[1] != several[2]
    assert all(len({*some}) == 4 and not any(x % 64 for x in some) for some in several)


def test_lines_say_how_far_a_study_is_while_a_row_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    text = ""
    with StudyProgress("layers", 3) as study:
        study.begin_row("dense m=1")
        study.advance(1)
        end = time.monotonic() + 60
        while "dense" not in text and time.monotonic() < end:
            time.sleep(0.01)
            text += capsys.readouterr().err
    capsys.readouterr()
    time.sleep(0.05)

    assert "offcut: study: 1 of 3 cells, now dense m=1\n" in text
    assert capsys.readouterr().err == ""


# Several processes.

DOT = """
import os, pathlib
import numpy as np
def dot(inputs, sizes):
    with open(pathlib.Path(__file__).parent / "processes", "a") as file:
        file.write(f"{os.getpid()} {len(os.environ.get('STUDY_PADDING', ''))}\\n")
    return lambda: np.dot(inputs["A"], inputs["B"])
"""


def test_a_study_is_measured_in_fresh_processes_and_goes_on_with_those_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(DOT)
    out = tmp_path / "out"

    def file(processes: int) -> Path:
        head = HEAD.replace(
            "= 0.002\nrounds = 3\nprocesses = 1", "= 0.003\nrounds = 5\nprocesses = "
        )
        own = '[[contenders]]\npeer = "mine:dot"\n'
        return written(tmp_path, f"{head.rstrip()} {processes}\n{DENSE}{AUTO}{own}")

    with monkeypatch.context() as unmerged:
        unmerged.setattr("offcut.studies.run.merge_lines", lambda file: None)
        first = oc.study(file(2), out)
    lines = (out / FILE).read_text().splitlines(keepends=True)

    assert (first.measured, first.kept, first.failed, len(lines)) == (4, 0, 0, 8)
    samples = read_samples(out / FILE).values()
    assert {one.process for one in samples} == {(0, 0, 0, 1, 1)}
    assert {len(one.turns.split()) for one in samples} == {2}
    begun = (tmp_path / "processes").read_text().split("\n")[:-1]
    assert [begun.count(one) for one in dict.fromkeys(begun)] == [2, 2]

    (out / FILE).write_text("".join(lines[:5]))  # as if it was killed in its second process
    again = oc.study(file(2), out)
    assert (again.measured, again.kept) == (3, 1)
    assert len((out / FILE).read_text().splitlines()) == 4

    expected = CliRunner().invoke(app, ["study", str(file(3)), "--out", str(out), "--dry-run"])
    assert expected.stdout.splitlines()[-1] == (  # 3 processes have 2, 2 and 1 of 5 rounds
        "4 of 4 cells to measure: 0.0024 s, and what compiling and checking take"
    )
    more = oc.study(file(3), out)
    assert (more.measured, more.kept) == (4, 0)
    assert {one.process for one in read_samples(out / FILE).values()} == {(0, 0, 0, 1, 1, 2)}
    assert read_definition(file(3)).rounds_of(2) == 1


def test_a_report_names_variables_that_hold_libraries_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KERNELS:
        monkeypatch.delenv(name, raising=False)
    file = written(tmp_path, HEAD + DENSE + NUMPY)
    oc.study(file, tmp_path / "free")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    oc.study(file, tmp_path / "forced")

    warning = "HELD BACK: OPENBLAS_CORETYPE=Haswell: libraries ran the kernels of another processor"
    assert warning in (tmp_path / "forced" / "cells.csv").read_text()
    assert warning in (tmp_path / "forced" / "report.html").read_text()
    assert "HELD BACK" not in (tmp_path / "free" / "cells.csv").read_text()


# A contender that ends its process is a row that says how; the others take their turns, and the study ends.

PEERS = AUTO + '[[contenders]]\npeer = "mine:ends"\n' + NUMPY
ENDS = {
    "leaves": ("os._exit(3)", "it left with status 3"),
    "segfaults": ("ctypes.string_at(0)", "ended by SIGSEGV"),
    "aborts": ("os.abort()", "ended by SIGABRT"),
}
MINE = """
import ctypes, os
def ends(inputs, sizes):
    return lambda: {code}
def ends_at_one(inputs, sizes):
    if sizes['m'] == 1:
        os._exit(3)
    return lambda: inputs['A'] @ inputs['B']
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
    (tmp_path / "mine.py").write_text(MINE.format(code=code))
    own = '[[operators]]\nname = "own"\ndescribe = "mine:own"\nsizes = {m = [4]}\n'
    at_one = '[[contenders]]\npeer = "mine:ends_at_one"\n'
    outcome = oc.study(written(tmp_path, HEAD + own + DENSE + PEERS + at_one), tmp_path / "out")

    samples = list(read_samples(tmp_path / "out" / FILE).values())
    assert (outcome.measured, outcome.failed) == (12, 4 + 3)
    assert len((tmp_path / "out" / FILE).read_text().splitlines()) == 12
    assert {one.operator for one in samples[:4]} == {"own"}
    assert {one.failed for one in samples[:4]} == {"its process ended: it left with status 7"}
    failed = [one for one in samples[4:] if one.failed]
    assert {(one.contender, one.sizes["m"], one.failed) for one in failed} == {
        ("mine:ends", 1, f"its process ended: {because}"),
        ("mine:ends", 3, f"its process ended: {because}"),
        ("mine:ends_at_one", 1, "its process ended: it left with status 3"),
    }
    assert all(one.peer for one in failed)
    others = [one for one in samples[4:] if one.contender in ("auto", "numpy")]
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

    def run(self, function: str, order: Any, seconds: float, say: Any) -> JobResult:
        self.runs.append(order.cells)
        for cell in order.cells:
            if self.ends and cell == self.ends[0]:
                del self.ends[0]
                (order.folder / "turn").write_text(cell)
                return JobResult(JobStatus.CRASHED, None, "it left with status 3")
            say((Sample(cell, "dense", {}, cell, (1.0,)),))
        return JobResult(JobStatus.RETURNED)

    def close(self) -> None:
        """Do nothing."""


def test_a_cell_whose_turn_another_one_ended_is_measured_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared, single = pending = [FakeChildren(["b", "d"]), FakeChildren(["d"])]
    children = iter(pending)
    monkeypatch.setattr(cell_processes, "JobRunner", lambda memory, environment: next(children))
    told: list[Sample] = []
    with GroupProcess(Source({}, Path("s"))) as process:
        process.measure(dict(zip("abcd", "wxyz", strict=True)), told.extend)
        process.measure({"e": "x", "f": "w"}, told.extend)

    assert [one.cell for one in told] == ["a", "c", "b", "d", "f", "e"]
    assert [one.cell for one in told if one.failed] == ["d"]
    assert shared.runs == [("a", "b", "c", "d"), ("c", "d"), ("f",)]
    assert single.runs == [("b",), ("d",), ("e",)], "what ended a process stays apart"


def test_a_file_that_is_changed_while_a_study_runs_ends_it_with_words(tmp_path: Path) -> None:
    source = defined(tmp_path, HEAD + DENSE + AUTO).source
    with GroupProcess(source) as process, pytest.raises(OffcutError) as refused:
        process.measure({"0123456789abcdef": "another"}, lambda sample: None)

    assert str(refused.value) == (
        "study: cannot go on\n"
        "  because  a file was changed while the study ran: 1 of 1 cells are others now\n"
        "  help     the same command goes on with what is measured"
    )


def command(folder: Path, *more: str) -> dict[str, Any]:
    """Return the arguments of a process that runs a study in its folder."""
    path = os.pathsep.join(filter(None, sys.path))
    words = [sys.executable, "-m", "offcut", "study", "study.toml", *more]
    return {"args": words, "cwd": folder, "env": {**os.environ, "PYTHONPATH": path}}


@pytest.mark.slow
def test_a_module_that_crashes_while_it_is_read_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import ctypes\nctypes.string_at(0)\n")
    written(tmp_path, HEAD + DENSE + PEERS)
    done = subprocess.run(**command(tmp_path), capture_output=True, text=True)

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
    written(tmp_path, HEAD + DENSE + peer)
    process = subprocess.Popen(**command(tmp_path, "--out", "out"))
    child, deadline = tmp_path / "child", time.monotonic() + 120
    while not (child.exists() and child.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    state = Path(f"/proc/{int(child.read_text())}/stat")
    while state.exists() and time.monotonic() < deadline:
        if state.read_text().split()[2] == "Z":
            break
        time.sleep(0.02)
    assert time.monotonic() < deadline, "its child goes on"

    (tmp_path / "again").touch()
    done = subprocess.run(**command(tmp_path, "--out", "out"), capture_output=True, text=True)
    assert f"the process {process.pid}, which measured into out, was killed" in done.stderr
    samples = read_samples(tmp_path / "out" / FILE)
    assert [one.failed for one in samples.values()] == [""] * 2


def test_what_contenders_compiled_of_an_operator_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = NAMED.replace("dense", "next").replace("16", "17")
    source = defined(tmp_path, HEAD + NAMED + other + AUTO).source
    definition = source.read()
    every = frozenset(cell for *_, cell in definition.cells())
    read, reads = Source.read, list[Source]()
    monkeypatch.setattr(Source, "read", lambda source: reads.append(source) or read(source))
    measured = []
    for name in ("dense", "next"):
        groups = cell_processes.groups_of(definition, every)
        cells = tuple(cell for one in groups if one.operator.name == name for cell in one.cells)
        order = cell_processes._Order(source, cells, {}, tmp_path, has_owner=False)
        (tmp_path / cell_processes.TURN).write_text("")
        cell_processes.measure_cells(order, measured.append)
        (contender,) = cell_processes._READ[0].definition.contenders
        assert set(contender._compiled) == {name}
    cell_processes._READ.clear()
    assert sum(map(len, measured)) == 4
    assert len(reads) == 2, "once for each operator"


# Measures other than calls: predicted, simulated, compiles, first calls, and what tuning found.

OF_VTA = """
[[operators]]
name = "layer"
describe = "layer:layer"
sizes = {n = [37], k = 64, m = 64}
bounds = {n = 64}
"""
TWICE = HEAD.replace("rounds = 3", "rounds = 2")


@pytest.fixture
def layer(tmp_path: Path) -> str:
    """Return the text of the file that the layer of a study is described in."""
    text = """
import offcut as oc

def layer(n, k, m):
    a, w = oc.placeholder((n, k), "int8", name="A"), oc.placeholder((k, m), "int8", name="W")
    return oc.ops.requantize(oc.ops.dense(a, w, name="S"), 8, name="Y"), [a, w]
"""
    (tmp_path / "layer.py").write_text(text)
    return text


@pytest.mark.slow
def test_what_is_predicted_is_the_cost_and_runs_nowhere(tmp_path: Path) -> None:
    text = TWICE + 'measure = "predicted"\n' + NAMED
    text += '[[contenders]]\nname = "here"\ntarget = "cpu"\nmachine = "cascade-lake"\n'
    text += '[[contenders]]\nname = "there"\ntarget = "cpu"\nmachine = "zen5"\n'
    found = measured(tmp_path, text + NUMPY)

    m = oc.dim("m", min=1, max=2**16)
    a, b = oc.placeholder((m, 8), name="A"), oc.placeholder((8, 16), name="B")
    k = oc.reduce_axis(8, name="k")
    c = oc.compute((m, 16), lambda i, j: oc.sum(a[i, k] * b[k, j], axis=k), name="C")
    weights = {"B": np.ones((8, 16), "f4")}
    kernel = oc.compile(c, [a, b], weights, oc.target("cpu", machine="zen5"), records=False)
    for size in (1, 3):
        agree(np.array(found[f"there {size}"].seconds), np.array([kernel.cost(m=size).seconds]))
    assert {one.clock for one in found.values() if one.seconds} == {"predicted"}
    assert found["numpy 3"].failed == (
        "study: cannot measure, because predicted is measured of offcut alone"
    )
    results = results_of(
        read_definition(tmp_path / "study.toml"), {s.cell: s for s in found.values()}
    )
    tables = {one.name: one for one in target_tables(results)}
    assert {row[2] for row in tables["winners"].rows} == {"cpu, cascade-lake", "cpu, zen5"}
    assert len(tables["energy"].rows) == 2


def test_what_is_not_timed_by_calls_has_one_process(tmp_path: Path) -> None:
    text = TWICE.replace("processes = 1", "processes = 3") + DENSE + AUTO
    text += '[[contenders]]\nname = "said"\nstrategy = "mask"\nmeasure = "predicted"\n'
    nothing_timed = text.replace("[study]", '[study]\nmeasure = "predicted"')
    several = "0.006 s, and what compiling and checking take, in 3 processes one after the other"
    for one, counts, line in (
        (text, [3, 1], several),
        (nothing_timed, [1, 1], "what compiling and checking take"),
    ):
        definition = defined(tmp_path, one)
        assert [definition.processes_of(name) for name in ("auto", "said")] == counts
        said = CliRunner().invoke(app, ["study", str(definition.file), "--dry-run"])
        assert said.stdout.splitlines()[-1] == f"4 of 4 cells to measure: {line}"
    assert definition.processes == 1


def test_what_is_simulated_is_the_time_of_the_simulator_with_and_without_hiding(
    tmp_path: Path, layer: str
) -> None:
    slow_bus = 'target = "vta"\nmachine_fields = {dram = {bytes_per_cycle = 1.0}}\n'
    text = f"""{TWICE}measure = "simulated"
{OF_VTA}
[[contenders]]\nname = "alone"\ntarget = "vta"\nhiding = false
[[contenders]]\nname = "hidden"\ntarget = "vta"
[[contenders]]\nname = "slow bus"\n{slow_bus}
[[contenders]]\nname = "same tiles"\nreplan = false\n{slow_bus}
[[contenders]]\nname = "processor"\nstrategy = "auto"
"""
    found = measured(tmp_path, text)

    hidden, names = found["hidden 37"], dict[str, Any]()
    exec(layer, names)
    output, inputs = names["layer"](oc.dim("n", min=1, max=64), 64, 64)
    constants = {"W": np.zeros((64, 64), np.int8)}
    kernel = oc.compile(output, inputs, constants, "vta", records=False)
    cycles = kernel.timeline(n=37).cycles
    agree(np.array(hidden.seconds), np.array([cycles / kernel.machine.hertz]))
    assert (hidden.failed, hidden.clock) == ("", "simulated")
    assert hidden.seconds[0] < found["alone 37"].seconds[0]
    slow, same = (found[f"{name} 37"].seconds[0] for name in ("slow bus", "same tiles"))
    assert hidden.seconds[0] < slow <= same, "tiles that are planned for a bus are no worse on it"
    assert "no simulator" in found["processor 37"].failed
    assert hidden.peak == 2 * 256 * 100e6
    csv = (tmp_path / "out" / "use.csv").read_text()
    assert f"{hidden.flop / (hidden.seconds[0] * hidden.peak):.1%}" in csv
    assert oc.target("vta").is_simulator


@pytest.mark.slow
def test_compiles_and_proofs_are_measured_in_fresh_processes(tmp_path: Path) -> None:
    text = TWICE + NAMED.replace("[1, 3]", "[3]")
    measures = {"compile": "compile", "proof": "proof", "cached": "cached compile"}
    for name, measure in measures.items():
        text += f'[[contenders]]\nname = "{name}"\nstrategy = "auto"\nmeasure = "{measure}"\n'
    found = measured(tmp_path, text)

    assert [len(found[f"{name} 3"].seconds) for name in measures] == [2, 2, 2]
    assert all(second > 0 for name in measures for second in found[f"{name} 3"].seconds)
    assert [found[f"{name} 3"].clock for name in measures] == [
        "processor time of a compile",
        "time of the proof",
        "processor time of a cached compile",
    ]
    assert max(found["cached 3"].seconds) < min(found["compile 3"].seconds)
    rows = (tmp_path / "out" / "compile.csv").read_text().splitlines()[-3:]
    assert all(",3,2,1," in row for row in rows), "loops, stores and sizes of a product"


@pytest.mark.slow
def test_a_first_call_is_at_a_size_that_the_process_has_not_met(tmp_path: Path) -> None:
    text = TWICE + 'measure = "first call"\n' + DENSE.replace("[1, 3]", "[1, 3, 9]") + AUTO + NUMPY
    found = measured(tmp_path, text)

    assert sorted(found) == ["auto 3", "auto 9", "numpy 3", "numpy 9"], "the first size is met"
    assert all(len(found[f"auto {size}"].seconds) == 2 for size in (3, 9))
    assert "first call is measured of models alone" in found["numpy 3"].failed


@pytest.mark.slow
def test_a_module_of_torch_is_measured_by_calls_and_by_first_calls(tmp_path: Path) -> None:
    for package in ("torch", "onnx", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is an extra")
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "def dense():\n"
        "    return torch.nn.Linear(8, 4), lambda m: (torch.randn(m, 8),)\n"
    )
    model = '[[operators]]\nmodel = "net:dense"\nsizes = {m = [2, 3]}\n'
    calls = measured(tmp_path, HEAD + model + AUTO + '[[contenders]]\npeer = "torch"\n')
    assert {one.failed for one in calls.values()} == {""}
    assert [one.predicted is None for one in calls.values()] == [False, True] * 2

    peer = '[[contenders]]\npeer = "onnxruntime"\n'
    first = measured(tmp_path, TWICE + 'measure = "first call"\n' + model + peer)
    assert (first["onnxruntime 3"].failed, len(first["onnxruntime 3"].seconds)) == ("", 2)


@pytest.mark.slow
@pytest.mark.usefixtures("layer")
def test_a_tuned_contender_runs_what_its_explorer_found(tmp_path: Path) -> None:
    simulated = 'target = "vta"\nmeasure = "simulated"\n'
    text = TWICE + OF_VTA + f'[[contenders]]\nname = "auto"\n{simulated}'
    text += f'[[contenders]]\n{simulated}tune = {{explorer = "random"}}\n'
    found = measured(tmp_path, text + 'each = {"tune.trials" = [1, 6]}\nname = "random"\n')

    seconds = [found[f"{name} 37"].seconds[0] for name in ("auto", "random 1", "random 6")]
    assert seconds == sorted(seconds, reverse=True), "more trials are never worse, by the clock"


def test_results_are_kept_by_machine_date_and_commit_and_never_of_a_changed_one(
    tmp_path: Path,
) -> None:
    definition = defined(tmp_path, HEAD + DENSE + AUTO)
    out, results = tmp_path / "out", tmp_path / "results"
    (out / "environments").mkdir(parents=True)
    facts = {"machine": "m", "cpu": "A(R) B(TM) CPU @ 2.0GHz", "commit": "0123456789ab"}
    for name, dirty in (("a", False), ("b", True)):
        text = json.dumps({**facts, "libraries": {}, "dirty": dirty})
        (out / "environments" / f"{name}.json").write_text(text)
    sample = Sample("cell", "dense", {"m": 1}, "auto", (1.0,), 1)
    sample = replace(sample, environment="a", date="2026-01-02T03")
    append_samples(out / FILE, [sample])
    (out / "cells.csv").write_text("x\n")

    place = keep_results(definition.file, out, results)
    assert place == results / "a-b" / "2026-01-02-01234567" / "study"
    kept = {file.relative_to(place).as_posix() for file in place.rglob("*") if file.is_file()}
    assert kept == {"study.toml", FILE, "cells.csv", "environments/a.json", "environments/b.json"}
    assert read_samples(place / FILE) == read_samples(out / FILE)
    append_samples(out / FILE, [replace(sample, cell="other", environment="b")])
    with pytest.raises(DescribeError, match="at a commit with changes"):
        keep_results(definition.file, out, results)
    assert machine_name("AMD EPYC-Rome Processor") == "amd-epyc-rome"
