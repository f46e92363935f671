"""A module that an operator needs and that is not installed is said once, at the start; the other operators go on."""

from __future__ import annotations

from pathlib import Path

import pytest

import offcut as oc
from offcut.errors import DescribeError
from offcut.studies.definition import read_definition
from offcut.studies.report import warnings
from offcut.studies.results import results_of
from offcut.studies.samples import FILE, read_samples
from offcut.studies.user_objects import AbsentOperator, absent_lines, missing_module

HEAD = '[study]\nname = "small"\nseconds_per_cell = 0.002\nrounds = 3\nprocesses = 1\n'
DENSE = '[[operators]]\neinsum = "mk,kn->mn"\nsizes = {m = [1, 3], k = 8, n = 16}\n'
AUTO = '[[contenders]]\nstrategy = "auto"\n'
MINE = """
def deep(name):
    def inside():
        import a_package_of_none.models
        return a_package_of_none.models.create(name)
    return inside()

def model(name):
    return helped(name)

def helped(name):
    return deep(name)

def optional():
    try:
        import a_package_of_none
    except ImportError:
        return 1
    return 2

def described(m):
    import another_of_none

def describes(m):
    import offcut.of_none
"""


def operators(*kinds: str) -> str:
    return "".join(
        f'[[operators]]\nname = "{number}"\n{kind}\n' for number, kind in enumerate(kinds)
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a file of one's own; reports have no pictures, and lines of progress are not waited for."""
    monkeypatch.setattr("offcut.studies.report.is_installed", lambda name: False)
    monkeypatch.setattr("offcut.studies.progress.LINE_SECONDS", 3600.0)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def test_a_module_that_is_missing_is_said_once_and_the_other_operators_are_measured(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = 'model = "mine:model"\narguments = {name = "x"}\nsizes = {n = [1, 2, 3]}'
    texts = operators(model, model, 'describe = "mine:described"\nsizes = {m = [1]}')
    (folder / "study.toml").write_text(HEAD + texts + DENSE + AUTO)
    outcome = oc.study(folder / "study.toml", folder / "out")

    said = capfd.readouterr().err.splitlines()
    lines = [
        "a_package_of_none is not installed (pip install a_package_of_none): 2 operators are left out: 0, 1",
        "another_of_none is not installed (pip install another_of_none): an operator is left out: 2",
    ]
    assert said == [f"offcut: study: {line}" for line in lines]
    assert (outcome.measured, outcome.failed) == (2, 0)
    samples = read_samples(folder / "out" / FILE)
    assert {one.operator for one in samples.values()} == {"mk,kn->mn"}
    definition = read_definition(folder / "study.toml")
    assert warnings(results_of(definition, samples), samples)[:2] == lines


def test_an_import_that_a_function_does_without_leaves_its_operator_in(folder: Path) -> None:
    (folder / "study.toml").write_text(HEAD + operators('model = "mine:optional"') + AUTO)
    definition = read_definition(folder / "study.toml")

    assert [one.name for one in definition.operators] == ["0"]
    assert definition.absent == ()


def test_a_study_none_of_whose_operators_stays_is_refused(folder: Path) -> None:
    described = 'describe = "mine:described"\nsizes = {m = [1]}'
    (folder / "study.toml").write_text(HEAD + operators(described) + AUTO)

    with pytest.raises(DescribeError) as refused:
        read_definition(folder / "study.toml")
    assert str(refused.value) == (
        "study: cannot read the study\n"
        "  at       study.toml\n"
        "  because  no operator can be measured\n"
        "  help     another_of_none is not installed (pip install another_of_none): an operator is left out: 0"
    )


@pytest.mark.parametrize("text", ["none:model", "mine:describes"])
def test_a_module_that_a_file_misspells_is_refused(folder: Path, text: str) -> None:
    own = f'describe = "{text}"\nsizes = {{m = [1]}}'
    (folder / "study.toml").write_text(HEAD + DENSE + operators(own) + AUTO)

    with pytest.raises(DescribeError, match="ModuleNotFoundError: No module named"):
        read_definition(folder / "study.toml")


def test_a_package_of_an_extra_is_installed_by_it() -> None:
    (line,) = absent_lines([AbsentOperator("m", "onnx")])

    assert line == (
        'onnx is not installed (this needs the extra "onnx": pip install ".[onnx]" in the folder of offcut): '
        "an operator is left out: m"
    )
    assert missing_module(ModuleNotFoundError("x", name="offcut"), "mine:f") == ""
    assert missing_module(KeyError("x"), "mine:f") == ""
