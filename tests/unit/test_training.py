"""From records to a model: what becomes a row, what is left out and why, the files, and the table of what was left out."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import offcut as oc
from offcut.costmodel.learned import FEATURES, Settings, compute_features, xgboost_loader
from offcut.errors import TargetError
from offcut.search import Origin, Place, ProgramText, Source
from offcut.tuning.learning.heldout import held_out, table
from offcut.tuning.learning.learn import learn, training_set
from tests import planted_times as planted
from tests.agree import agree, nearly
from tests.facade import CorrectedModel, Dataset, app

run = CliRunner().invoke


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> oc.Records:
    """Records of three programs on two machines."""
    made = oc.Records(tmp_path_factory.mktemp("records") / "all.sqlite")
    for name in ("dense", "unpacked", "softmax"):
        planted.keep(made, name, 10)
    planted.keep(made, "dense", 6, "zen4")
    return made


def test_a_row_is_a_schedule_at_one_vector_of_sizes(file: oc.Records) -> None:
    made = training_set(file, file.origins, FEATURES)
    one = planted.cases("dense")
    schedule = planted.drawn("dense", 10)[3]
    names, found = compute_features(one(schedule), FEATURES)
    here = (made.rows.program == one.problem.program) & (made.rows.place == one.problem.machine)
    row = np.flatnonzero(here)[4 * 3 : 4 * 4]

    assert (len(made.rows), made.left) == (4 * (3 * 10 + 6), {})
    assert made.rows.names == names
    agree(made.rows.features[row], found.astype("float64"))
    assert np.exp(made.rows.log_ratio[row]) == nearly(planted.factor(one(schedule)))
    assert list(made.rows.sizes[row]) == ["n=1", "n=16", "n=33", "n=64"]


def test_of_what_was_measured_twice_the_last_counts() -> None:
    kept = planted.records("dense", 2)
    again = [replace(one, seconds=1.0, explorer="confirm") for one in kept[:1]]
    made = training_set([*kept, *again], planted.cases("dense").problem.origins, FEATURES)

    assert len(made.rows) == 8
    assert made.rows.seconds[0] == 1.0


def test_what_failed_teaches_nothing() -> None:
    kept = planted.records("dense", 2)
    failed = replace(kept[0], outcome=oc.Outcome.WRONG, seconds=None, spread=None)

    made = training_set([*kept, failed], planted.cases("dense").problem.origins, FEATURES)
    assert (len(made.rows), made.left) == (4, {})


def left(records: list[oc.Record], origins: tuple[Origin, ...]) -> dict[str, int]:
    made = training_set(records, origins, FEATURES)
    assert len(made.rows) == 0
    return dict(made.left)


def test_what_cannot_be_planned_again_is_counted_by_its_reason() -> None:
    kept = planted.records("dense", 2)
    program, place = planted.cases("dense").problem.origins
    assert isinstance(program, ProgramText)
    assert isinstance(place, Place)

    assert left(kept, (place,)) == {"the text of the program was not kept": 2}
    assert left(kept, (program,)) == {"the description of the machine was not kept": 2}
    lent = replace(place, microkernels=("theirs",))
    assert left(kept, (program, lent)) == {"microkernels were handed over": 2}
    other = replace(place, threads=7)
    changed = "this version reads the program or the machine otherwise"
    assert left(kept, (program, other)) == {changed: 2}
    assert left(kept, (replace(program, text="program C\n"), place)) == {changed: 2}
    nowhere = replace(place, target="nowhere")
    assert left(kept, (program, nowhere)) == {"target: cannot plan for 'nowhere'": 2}
    odd = [replace(one, schedule="schedule\n") for one in kept[:1]]
    (reason,) = left(odd, (program, place))
    assert reason.startswith("parse: ")


def test_loops_of_their_own_are_counted_as_nests_are() -> None:
    request, options, target = planted.spaces.problem("loops")
    problem = planted.Problem(request, options, target, planted.SIZES)
    schedule = str(planted.spaces.space("loops").first)
    kept = planted.records("dense", 2)
    loops = replace(kept[0], program=problem.program, machine=problem.machine, schedule=schedule)

    made = training_set([loops], problem.origins, FEATURES)
    assert (len(made.rows), made.left) == (1, {})
    origins = (*problem.origins, *planted.cases("dense").problem.origins)
    both = training_set([loops, *kept], origins, FEATURES)
    assert (len(both.rows), both.left) == (9, {})
    assert both.rows.names == made.rows.names


def test_of_predicted_times_nothing_is_learned() -> None:
    kept = [replace(one, source=Source.PREDICTED) for one in planted.records("dense", 2)]

    assert left(kept, planted.cases("dense").problem.origins) == {
        "its seconds were predicted, and nothing ran": 2
    }


@pytest.mark.slow
def test_the_command_writes_both_files_and_the_table(tmp_path: Path) -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    file, text = oc.Records(tmp_path / "all.sqlite"), tmp_path / "all.jsonl"
    for name, machine in (("dense", "cascade-lake"), ("dense", "zen4"), ("elementwise", "zen4")):
        planted.keep(file, name, 5, machine)
    file.export(text)
    model, rows = tmp_path / "new" / "model.json", tmp_path / "new" / "model.npz"
    done = run(app, ["learn", str(text), "-o", str(model)])

    assert done.exit_code == 0, done.output
    for word in ("shape", "operator", "machine", "closed form", "learned alone", "pair"):
        assert word in done.output
    assert "60 rows" in done.output
    made = training_set(file, file.origins, FEATURES).rows
    agree(Dataset.load(rows).features, made.features.astype("float64"))
    assert CorrectedModel.load(model).names == made.names
    again = learn([file.path], tmp_path / "again.json", tmp_path / "again.npz")
    one, other = (
        pair.corrected_seconds(made.features, made.closed, made.centre)
        for pair in (again.model, CorrectedModel.load(model))
    )
    np.testing.assert_array_equal(one.seconds, other.seconds)


def test_records_without_text_are_refused_by_the_command(tmp_path: Path) -> None:
    records = oc.Records(tmp_path / "r.sqlite")
    records.add(planted.records("dense", 8))
    for given in ([str(records.path)], ["--records", str(records.path)]):
        done = run(app, ["learn", *given, "-o", str(tmp_path / "m.json")])

        assert done.exit_code == 2
        assert "8 schedules left out: the text of the program was not kept" in done.output


@pytest.mark.slow
def test_what_was_left_out_is_judged_as_new(file: oc.Records) -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    rows = training_set(file, file.origins, FEATURES).rows
    lines = held_out(rows, 0, Settings(rounds=20, depth=3, rate=0.3, members=2))
    found = {(one.by, one.model): one for one in lines}

    assert list(found) == [
        (by, model)
        for by in ("shape", "operator", "machine")
        for model in ("closed form", "learned alone", "pair")
    ]
    assert all(one.rows == len(rows) for one in lines)
    shape = {model: found["shape", model] for model in ("closed form", "learned alone", "pair")}
    assert shape["pair"].pairwise > shape["closed form"].pairwise
    assert found["shape", "closed form"].covered is None
    machine = found["machine", "pair"]
    assert machine.fell == 1
    assert machine.pairwise == found["machine", "closed form"].pairwise


def test_where_too_few_rows_stay_a_line_is_empty_and_says_why() -> None:
    rows = training_set(
        planted.records("dense", 2), planted.cases("dense").problem.origins, FEATURES
    ).rows
    closed, alone, pair = held_out(rows)
    few = "there are 6 rows of 2 schedules, and 8 of 2 are the least"

    assert (closed.because, alone.because, pair.because) == ("", few, few)
    console = Console(width=160, record=True, file=StringIO())
    console.print(table([closed, alone, pair]))
    assert console.export_text().count(few) == 2


def test_without_xgboost_nothing_is_judged(
    file: oc.Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = training_set(file, file.origins, FEATURES).rows
    monkeypatch.setattr(xgboost_loader, "import_error", lambda: xgboost_loader.ABSENT)
    with pytest.raises(TargetError, match="xgboost is not installed"):
        held_out(rows)


def test_one_machine_is_never_left_out() -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    rows = training_set(
        planted.records("dense", 12), planted.cases("dense").problem.origins, FEATURES
    ).rows
    lines = held_out(rows, 0, Settings(rounds=5, depth=2, members=2))

    assert {one.by for one in lines} == {"shape"}
