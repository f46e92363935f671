"""What a user sees where something around offcut is not there: packages, files to write; and how long a traceback is."""

from __future__ import annotations

import errno
import importlib
import json
import os
import subprocess
import sys
import traceback
from importlib.metadata import metadata
from pathlib import Path

import numpy as np
import pytest
from conftest import refusals
from typer.testing import CliRunner

import offcut as oc
from offcut import Outcome, Record, Records
from offcut.core.extras import EXTRAS
from offcut.errors import OffcutError, trim_traceback
from tests.facade import app

USES = refusals(
    r"""
torch
given ('torch', 'import offcut as oc\noc.from_torch(lambda x: x)')
from_torch: cannot take a model of torch

onnx
given ('onnx', "import offcut as oc\noc.from_onnx('model.onnx')")
from_onnx: cannot read ONNX files

mlir
given ('xdsl', 'import offcut.plugins.mlir')
import: cannot import offcut.plugins.mlir

tvm
given ('tvm', 'from offcut.plugins.tvm import partitioned')
import: cannot import offcut.plugins.tvm

plot
given ('matplotlib', "from offcut.experiment.outputs import plot_lines\nfrom pathlib import Path\nplot_lines(Path('x.png'), {}, title='', x_label='', footer='')")
plot: cannot draw x.png

pool
given ('distributed', "from offcut.search.pool import pool_of\npool_of('tcp://localhost:8786', 'tune')")
tune: cannot use a pool of devices

learned
given ('xgboost', "from offcut.costmodel.learned import library\nlibrary.load_xgboost('learn')")
learn: cannot use a learned model""",
    globals(),
)
BLOCKED = """\
import json, sys
uses = json.load(sys.stdin)
for package, _ in uses.values():
    sys.modules[package] = None
from offcut.errors import TargetError
told = dict.fromkeys(uses, "")
for extra, (_, call) in uses.items():
    try:
        exec(call)
    except TargetError as error:
        told[extra] = str(error)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What is said of each extra."""
    ran = subprocess.run(
        [sys.executable, "-c", BLOCKED],
        input=json.dumps({extra: use for extra, (use, _) in USES.items()}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("extra", USES)
def test_what_is_missing_names_the_extra_that_installs_it(extra: str, told: dict[str, str]) -> None:
    (package, _), refused = USES[extra]
    assert EXTRAS[package] == extra
    assert extra in metadata("offcut").get_all("Provides-Extra", [])
    assert (
        told[extra]
        == f"""\
{refused}
  because  {package} is not installed
  help     this needs the extra "{extra}": pip install ".[{extra}]" in the folder of offcut"""
    )


def test_every_package_of_an_extra_is_asked_for() -> None:
    assert {package for (package, _), _ in USES.values()} == EXTRAS.keys()


GRAM = """\
program gram
size n in 0:65
input x: float32[n]
output y: float32[n]
for i in 0:n
  y[i] = x[i]
"""
WRITES = {
    "cut": "cut gram.offcut --tile i=8 --at n=20 --png",
    "plot": "records plot abc --records records",
    "show": "target show zen4 --plot",
    "oracle": "sweep gram.offcut --oracle --sizes n=1 --csv a.csv --png",
    "tune": "tune gram.offcut --sizes n=3 --records records --out",
    "learn": "learn records --out",
    "probe": "target probe --out",
}
PICTURES = {"cut": "plot", "plot": "plot", "show": "plot", "oracle": "sweep"}


def never(*_: object, **__: object) -> None:
    raise AssertionError("it was begun")


@pytest.fixture
def _where_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gram.offcut").write_text(GRAM)
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "folder.png").mkdir()
    Records(tmp_path / "records").add(
        [Record("abc1", "schedule C", "here", "1", {"n": 7}, Outcome.OK, 2e-6, 0.1)]
    )
    for module, name in (("tuning.tune", "tune"), ("tuning.learning.learn", "learn")):
        monkeypatch.setattr(importlib.import_module(f"offcut.{module}"), name, never)
    monkeypatch.setattr(importlib.import_module("offcut.experiment.probe"), "measured", never)


def refusal(words: str, file: str) -> str:
    done = CliRunner().invoke(app, [*words.split(), file])
    assert done.exit_code == 2, done.output
    return done.stderr


@pytest.mark.usefixtures("_where_commands_run")
@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize(
    ("file", "number"), [("folder", errno.EISDIR), ("gram.offcut/a", errno.ENOTDIR)]
)
def test_a_file_that_cannot_be_written_is_refused(what: str, file: str, number: int) -> None:
    if what in PICTURES:
        pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    suffix = ".toml" if what == "probe" else ".png"
    told = refusal(WRITES[what], file + suffix).splitlines()
    assert told[0].split(": ")[1].startswith("cannot write ")
    assert told[0].endswith(Path(file + suffix).name)
    assert f"  because  {os.strerror(number)}" in told


@pytest.mark.usefixtures("_where_commands_run")
@pytest.mark.parametrize("what", PICTURES)
def test_a_picture_of_no_format_is_refused(what: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    op, because, help = refusal(WRITES[what], "a.xyz").splitlines()
    assert op == f"{PICTURES[what]}: cannot draw a.xyz"
    assert because.startswith("  because  xyz is not one of ")
    assert help == "  help     a.png"
    assert not Path("a.xyz").exists()


@pytest.mark.usefixtures("_where_commands_run")
def test_a_folder_is_made_and_what_is_said_of_a_picture_is_in_it() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    for name in ("new/a.png", "newer/a.jpg", "newest/a.svg"):
        assert CliRunner().invoke(app, [*WRITES["show"].split(), name]).exit_code == 0
    assert b"measured" in Path("new/a.png").read_bytes()
    assert "measured" in Path("newest/a.svg").read_text()


def _dense():
    n = oc.dim("n", min=1, max=64)
    a, w = oc.placeholder((n, 8), name="A"), oc.placeholder((8, 9), name="W")
    k = oc.reduce_axis(8, name="k")
    return oc.compute((n, 9), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C"), [a, w]


def _compile():
    output, inputs = _dense()
    oc.compile(output, inputs=inputs, strategy={"i": "exact"})


def _call():
    output, inputs = _dense()
    oc.compile(output, inputs=inputs, target="interpret")(np.zeros((3, 8)), np.zeros((8, 9)))


CALLS = {
    "compile": _compile,
    "a call of a kernel": _call,
    "a method of a kernel": lambda: oc.compile(*_dense(), target="interpret").plan(n=1000),
    "partition": lambda: oc.partition(_dense()[0], tile={"i": 8}, tail="exact"),
    "parse": lambda: oc.parse("program x("),
    "target": lambda: oc.target("nowhere"),
    "a schedule by hand": lambda: oc.create_schedule(_dense()[0])["C"].split("q", 4),
    "Schedule.parse": lambda: oc.Schedule.parse("nothing of the kind"),
}


def _files(call):
    with pytest.raises(oc.OffcutError) as rejected:
        call()
    return [frame.filename for frame in traceback.extract_tb(rejected.value.__traceback__)]


@pytest.mark.parametrize("name", CALLS)
def test_a_traceback_shows_one_frame_of_offcut(name, monkeypatch):
    monkeypatch.delenv("OFFCUT_DEBUG", raising=False)
    own = [file for file in _files(CALLS[name]) if file != __file__]
    assert len(own) == 1
    assert own[0] == oc.errors.__file__


def test_the_users_function_that_offcut_called_stays_in_the_traceback(monkeypatch):
    monkeypatch.delenv("OFFCUT_DEBUG", raising=False)
    a = oc.placeholder((oc.dim("n"), 8), name="A")

    def element(i, j):
        return a[i, j, j]

    with pytest.raises(oc.DescribeError) as rejected:
        oc.compute((4, 8), element)
    frames = traceback.extract_tb(rejected.value.__traceback__)
    assert [frame.name for frame in frames] == [
        "test_the_users_function_that_offcut_called_stays_in_the_traceback",
        "call",
        "element",
    ]


def test_debugging_shows_every_frame(monkeypatch):
    monkeypatch.setenv("OFFCUT_DEBUG", "1")
    assert len(_files(CALLS["compile"])) > 10


def test_the_traceback_of_a_cause_may_be_as_long_as_the_stack() -> None:
    def endless() -> None:
        endless()

    @trim_traceback
    def refuse() -> None:
        try:
            endless()
        except RecursionError as error:
            raise OffcutError("refuse", "cannot go on", because="it recurses") from error

    with pytest.raises(OffcutError) as refused:
        refuse()
    assert isinstance(refused.value.__cause__, RecursionError)
