"""What the command writes to, where it cannot be written: refused in words, before anything is measured."""

from __future__ import annotations

import errno
import importlib
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from offcut import Outcome, Record, Records
from tests.facade import app

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


@pytest.fixture(autouse=True)
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


@pytest.mark.parametrize("what", PICTURES)
def test_a_picture_of_no_format_is_refused(what: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    op, because, help = refusal(WRITES[what], "a.xyz").splitlines()
    assert op == f"{PICTURES[what]}: cannot draw a.xyz"
    assert because.startswith("  because  xyz is not one of ")
    assert help == "  help     a.png"
    assert not Path("a.xyz").exists()


def test_a_folder_is_made_and_what_is_said_of_a_picture_is_in_it() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    for name in ("new/a.png", "newer/a.jpg", "newest/a.svg"):
        assert CliRunner().invoke(app, [*WRITES["show"].split(), name]).exit_code == 0
    assert b"measured" in Path("new/a.png").read_bytes()
    assert "measured" in Path("newest/a.svg").read_text()
