"""Every refusal of learning, word for word; what is accepted is in unit/test_learned and unit/test_training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import rejection
from typer.testing import CliRunner

import offcut as oc
from offcut.costmodel.learned import columns, train, xgboost_loader
from offcut.errors import OffcutError
from offcut.tuning.learning import random_programs
from offcut.tuning.learning.learn import learn, target_of
from offcut.tuning.learning.online_model import Cases
from offcut.tuning.learning.random_programs import sample
from offcut.tuning.problem import make_problem
from tests.facade import CorrectedModel, Dataset, app


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(OffcutError) as refused:
        act()
    return str(refused.value)


def rows(count: int) -> Dataset:
    texts = np.full(count, "x")
    numbers = np.ones(count)
    return Dataset(
        ("f",), np.ones((count, 1)), texts, texts, texts, texts, texts, numbers, numbers, numbers
    )


def test_too_little_to_learn_from() -> None:
    assert (
        refusal(lambda: train(rows(3)))
        == """\
learn: cannot learn a correction
  because  there are 3 rows of 1 schedules, and 8 of 2 are the least
  help     offcut tune … --records FILE measures more"""
    )


def test_records_that_teach_nothing_say_what_was_left_out(tmp_path: Path) -> None:
    records = oc.Records(tmp_path / "r.sqlite")
    records.add(oc.Record("p", "schedule C", "m", "1", {"n": 7}, oc.Outcome.OK, 2e-6, 0.1))
    out = tmp_path / "model.json", tmp_path / "rows.npz"

    assert (
        refusal(lambda: learn([records.path], *out))
        == """\
learn: cannot learn a correction
  at       1 schedules left out: the text of the program was not kept
  because  there are 0 rows of 0 schedules, and 8 of 2 are the least
  help     offcut tune … --records FILE measures more"""
    )
    assert not out[0].exists()


def test_records_that_are_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "none.sqlite"

    assert (
        refusal(lambda: learn([missing], tmp_path / "m.json", tmp_path / "r.npz"))
        == f"""\
learn: cannot read none.sqlite
  at       {missing}
  because  it is not there
  help     offcut tune … --records {missing}"""
    )


MODELS = {
    "no JSON": (b"model", "it is not JSON"),
    "not text": (b"\xff", "it is not JSON"),
    "something else": (b"[1]", "it is not an offcut model 2"),
    "of another format": (b'{"format": "offcut model 9"}', "it is not an offcut model 2"),
    "half of one": (b'{"format": "offcut model 2", "names": []}', "it lacks 'ensemble'"),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_file_that_is_no_model(tmp_path: Path, case: str) -> None:
    said, because = MODELS[case]
    file = tmp_path / "model.json"
    file.write_bytes(said)

    assert (
        refusal(lambda: CorrectedModel.load(file))
        == f"""\
learn: cannot read model.json
  at       {file}
  because  {because}
  help     offcut learn RECORDS -o MODEL makes one"""
    )


DAMAGED: dict[str, tuple[object, str]] = {
    "numbers that are texts": ("many", "ValueError: could not convert string to float: 'many'"),
    "no number": (
        None,
        "TypeError: float() argument must be a string or a real number, not 'NoneType'",
    ),
    "not finite": (float("nan"), "ValueError: it gives no number"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_model_that_is_damaged(tmp_path: Path, case: str) -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    level, because = DAMAGED[case]
    file = tmp_path / "model.json"
    held = {
        "format": "offcut model 2",
        "doubt": 0.1,
        "closed": 0.2,
        "useless": "",
        "learned": {},
        "names": ["f"],
        "familiar": {
            "names": ["f"],
            "limit": 1,
            "low": [0],
            "high": [1],
            "width": [1],
            "kept": [[0]],
        },
        "ensemble": {"members": [], "levels": [level]},
    }
    file.write_text(json.dumps(held), encoding="utf-8")

    assert (
        refusal(lambda: CorrectedModel.load(file))
        == f"""\
learn: cannot read model.json
  at       {file}
  because  what it holds is damaged: {because}
  help     offcut learn RECORDS -o MODEL makes one"""
    )


def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> object:
        raise OSError("libgomp.so.1: cannot open shared object file\nand much more")

    monkeypatch.setattr(xgboost_loader, "is_installed", lambda name: True)
    monkeypatch.setattr(xgboost_loader, "import_module", fails)

    assert not xgboost_loader.is_available()
    assert (
        refusal(lambda: xgboost_loader.load_xgboost("learn"))
        == """\
learn: cannot use a learned model
  because  xgboost does not load: OSError: libgomp.so.1: cannot open shared object file
  help     this needs the extra "learned": pip install ".[learned]" in the folder of offcut"""
    )


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    assert "because  No such file or directory" in refusal(
        lambda: CorrectedModel.load(tmp_path / "m.json")
    )


def test_rows_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "rows.npz"
    file.write_text(json.dumps([]), encoding="utf-8")

    assert refusal(lambda: Dataset.load(file)).startswith(f"""\
learn: cannot read rows.npz
  at       {file}
  because  it holds no rows: """)


def test_a_model_of_features_that_are_not_here() -> None:
    assert (
        refusal(lambda: columns(("a", "b"), ("b", "mine", "yours"), "model.json"))
        == """\
learn: cannot use the model
  at       model.json
  because  it was learned from mine, yours, which no feature gives here
  help     offcut learn makes a model of the features that there are"""
    )
    assert columns(("a", "b"), ("b", "a"), "model.json") == [1, 0]


def test_without_xgboost_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xgboost_loader, "is_installed", lambda name: False)
    with rejection("""\
TargetError: learn: cannot use a learned model
  because  xgboost is not installed
  help     this needs the extra "learned": pip install ".[learned]" in the folder of offcut"""):
        xgboost_loader.load_xgboost("learn")


def test_where_nothing_is_kept_a_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_RECORDS", "off")
    monkeypatch.delenv("OFFCUT_MODEL", raising=False)
    done = CliRunner().invoke(app, ["learn", "records.jsonl"])
    assert done.exit_code == 2
    assert (
        done.stderr
        == """\
learn: cannot keep a model
  because  OFFCUT_RECORDS is off
  help     offcut learn records.sqlite -o model.json
"""
    )


def test_one_correction_is_of_one_target(tmp_path: Path) -> None:
    def place(name: str) -> oc.search.Place:
        return oc.search.Place(name, name, {}, 1, True)

    with pytest.raises(OffcutError) as refused:
        target_of([place("vta"), place("cpu")], None)
    assert str(refused.value) == (
        "learn: cannot learn one correction of cpu, vta\n"
        "  because  what is counted of one target is not what is counted of another\n"
        "  help     offcut learn --target cpu\n"
        "  help     offcut learn --target vta"
    )
    with pytest.raises(OffcutError) as refused:
        target_of([place("vta")], "gemmini")
    assert str(refused.value) == (
        "learn: cannot learn for target='gemmini'\n"
        "  because  the records are of vta\n"
        "  help     offcut learn --random --target gemmini"
    )
    assert (target_of([place("vta")], None), target_of([], None)) == ("vta", None)


def test_a_target_that_takes_no_random_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_programs, "KINDS", ("chain float32",))
    with pytest.raises(OffcutError) as refused:
        sample(oc.target("vta"), oc.Records(tmp_path / "r.sqlite"), 1)
    assert str(refused.value).startswith(
        "learn: cannot learn from random programs on target='vta'\n"
        "  because  it refuses all of them, the first so: compile: cannot "
    )
    assert str(refused.value).endswith(
        "\n  help     offcut learn RECORDS: of programs that it takes"
    )


def test_a_target_whose_cost_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    n = oc.dim("n", min=1, max=8)
    x = oc.placeholder((n, 32), "int8", name="X")
    y = oc.compute((n, 32), lambda i, j: oc.maximum(x[i, j], 0), name="Y")
    target = oc.target("gemmini")
    problem = make_problem("learn", y, [x], (), {"n": [3]}, target, target.options("learn"))
    monkeypatch.setattr(type(target), "predict_costs", lambda *given: lambda schedule: ())
    assert refusal(lambda: Cases(problem)(oc.Schedule.parse("schedule Y"))) == (
        "learn: cannot describe this schedule\n  because  of calls on gemmini nothing is predicted"
    )
