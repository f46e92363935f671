"""From records to a model: what becomes a row, what is left out and why, the files, and the table of what was left out."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from io import StringIO
from math import inf
from pathlib import Path
from random import Random

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import offcut as oc
from offcut.costmodel.learned import (
    FEATURES,
    Case,
    Settings,
    compute_features,
    train,
    xgboost_loader,
)
from offcut.errors import TargetError
from offcut.search import Origin, Place, ProgramText, Source, key_of
from offcut.search.trials import BEST, DEFAULT, recorded_verdict
from offcut.tuning.learning import random_programs
from offcut.tuning.learning.heldout import HeldOut, held_out, table, useless_of
from offcut.tuning.learning.learn import learn, training_set
from offcut.tuning.learning.random_programs import KINDS, drawn, sample
from tests import planted_times as planted
from tests.agree import agree, nearly
from tests.facade import CorrectedModel, Dataset, app, requested

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


def test_of_what_was_measured_twice_the_last_counts_and_what_failed_teaches_nothing() -> None:
    kept, origins = planted.records("dense", 2), planted.cases("dense").problem.origins
    again = replace(kept[0], seconds=1.0, explorer="confirm")
    made = training_set([*kept, again], origins, FEATURES)
    assert (len(made.rows), made.rows.seconds[0]) == (8, 1.0)
    failed = replace(kept[0], outcome=oc.Outcome.WRONG, seconds=None, spread=None)
    made = training_set([*kept, failed], origins, FEATURES)
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
    predicted = [replace(one, source=Source.PREDICTED) for one in kept]
    nothing_ran = "its seconds were predicted, and nothing ran"
    assert left(predicted, (program, place)) == {nothing_ran: 2}


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


def dense_rows(schedules: int) -> Dataset:
    origins = planted.cases("dense").problem.origins
    return training_set(planted.records("dense", schedules), origins, FEATURES).rows


def test_where_too_few_rows_stay_a_line_is_empty_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed, alone, pair = held_out(dense_rows(2))
    few = "there are 6 rows of 2 schedules, and 8 of 2 are the least"

    assert (closed.because, alone.because, pair.because) == ("", few, few)
    console = Console(width=160, record=True, file=StringIO())
    console.print(table([closed, alone, pair]))
    assert console.export_text().count(few) == 2
    monkeypatch.setattr(xgboost_loader, "import_error", lambda: xgboost_loader.ABSENT)
    with pytest.raises(TargetError, match="xgboost is not installed"):
        held_out(dense_rows(12))


def test_one_machine_is_never_left_out() -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    lines = held_out(dense_rows(12), 0, Settings(rounds=5, depth=2, members=2))
    assert {one.by for one in lines} == {"shape"}


# Random programs: drawn alike by a seed, measured and recorded by the target's door, and a model that is used where
# it helps.


WIDE = {"COLUMNS": "200"}


def test_a_program_is_the_same_for_a_seed_and_another_for_another() -> None:
    def text(kind: str, seed: int) -> str:
        made = drawn(Random(seed), kind)
        assert all(1 <= size <= 128 for size in made.sizes["n"])
        return requested(made.output, list(made.inputs), {}, "test").program.digest

    for kind in KINDS:
        assert text(kind, 3) == text(kind, 3)
        assert len({text(kind, seed) for seed in range(3)}) > 1


def test_what_a_simulator_says_is_recorded_as_that_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_programs, "KINDS", ("chain float32", "chain int8"))
    monkeypatch.setattr(random_programs, "LARGEST", 2)
    kept, told = oc.Records(tmp_path / "r.sqlite"), list[str]()
    done = sample(
        oc.target("vta"), kept, 1, schedules=2, tell=lambda number, kind: told.append(kind)
    )

    assert told == ["chain int8"]
    assert (done.programs, done.outcomes, done.known) == (1, {oc.Outcome.OK: 2}, 0)
    assert {one.source for one in kept} == {Source.SIMULATED}
    assert all(one.predicted is not None for one in kept)
    again = sample(oc.target("vta"), kept, 1, schedules=2)
    assert (again.outcomes, again.known) == ({}, 2)
    shown = CliRunner().invoke(app, ["records", "list", "--records", str(kept.path)], env=WIDE)
    assert "simulated" in shown.output


def line(model: str, pairwise: float, regret: float, by: str = "operator") -> HeldOut:
    return HeldOut(by, model, 8, pairwise, 0.0, 0.0, regret, None, 0.0)


def test_a_correction_is_used_where_neither_order_nor_regret_is_below_the_closed_form() -> None:
    closed = line("closed form", 0.9, 0.02)
    better = line("pair", 0.95, 0.01)

    assert useless_of([closed, better]) == ""
    assert useless_of([closed, line("pair", 0.95, 0.03)]) == (
        "of programs that were left out whole, the closed form orders 90.0% of the pairs, at a regret of 2.0%, "
        "and with it, 95.0%, at 3.0%"
    )
    assert useless_of([closed, line("pair", 0.89, 0.0)]).endswith("with it, 89.0%, at 0.0%")
    assert useless_of([closed, replace(closed, model="pair")]).endswith(": it changes nothing")
    nearer = replace(closed, model="pair", off=0.1)
    assert useless_of([replace(closed, off=0.3), nearer]) == ""
    assert useless_of([line("closed form", 0.9, 0.1, by="shape")]) == (
        "all rows are of one program, and none can be left out whole"
    )
    few = replace(better, because="there are 6 rows")
    assert useless_of([closed, few]) == "there are 6 rows"
    assert useless_of([line("closed form", np.nan, np.nan), better]) == (
        "no two schedules of a program are 15% apart"
    )


OK = oc.Record("p", "schedule C", "m", oc.__version__, {"n": 7}, oc.Outcome.OK, 2e-6, 0.1)


def test_records_of_before_there_was_a_source_were_measured(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    oc.Records(file).add(replace(one, explorer=by) for one in (OK,) for by in (BEST, DEFAULT))
    with sqlite3.connect(file) as old:
        old.execute("ALTER TABLE record DROP COLUMN source")
        old.execute("PRAGMA user_version = 1")

    before = recorded_verdict(file, "p", "m").verdict
    assert before is not None
    assert [one.source for one in oc.Records(file)] == [Source.MEASURED] * 2
    text = tmp_path / "old.jsonl"
    oc.Records(file).export(text)
    assert '"source": "measured"' in text.read_text(encoding="utf-8")
    text.write_text(text.read_text(encoding="utf-8").replace(', "source": "measured"', ""))
    assert oc.Records(tmp_path / "new.sqlite").import_(text) == 2


def test_a_verdict_by_simulated_or_predicted_times_says_so(tmp_path: Path) -> None:
    for source in (Source.SIMULATED, Source.PREDICTED):
        file = tmp_path / f"{source.value}.sqlite"
        oc.Records(file).add(
            replace(OK, explorer=by, source=source, created=1.0) for by in (BEST, DEFAULT)
        )
        assert f" by {source.value} times, " in str(recorded_verdict(file, "p", "m").verdict)


def test_the_target_says_what_its_schedules_cost() -> None:
    n = oc.dim("n", min=1, max=64)
    x = oc.placeholder((n, 32), "int8", name="X")
    y = oc.compute((n, 32), lambda i, j: oc.maximum(x[i, j], 0), name="Y")
    target = oc.target("gemmini")
    from offcut.tuning.learning.online_model import Cases
    from offcut.tuning.problem import make_problem

    problem = make_problem("learn", y, [x], (), {"n": [3, 40]}, target, target.options("learn"))
    planned = oc.compile(y, inputs=[x], target="gemmini")
    assert planned.schedule is not None
    case = Cases(problem)(planned.schedule)
    assert list(case.seconds) == [planned.cost(n=3).seconds, planned.cost(n=40).seconds]
    assert [key_of(at) for at, _ in problem.sizes] == [(("n", 3),), (("n", 40),)]
    assert inf > case.seconds.max() > 0


def relu_on_gemmini() -> tuple[oc.Kernel, list[oc.Cost]]:
    n = oc.dim("n", min=1, max=512)
    x = oc.placeholder((n, 32), "int8", name="X")
    y = oc.compute((n, 32), lambda i, j: oc.maximum(x[i, j], 0), name="Y")
    kernel = oc.compile(y, inputs=[x], target="gemmini")
    return kernel, [kernel.cost(n=n) for n in (1, 2, 3, 5, 8, 13, 21, 34, 55, 64)]


def test_a_model_corrects_cost_and_plan_once_within_what_it_was_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    file = tmp_path / "model.json"
    monkeypatch.setenv("OFFCUT_MODEL", str(file))
    kernel, costs = relu_on_gemmini()
    closed = np.array([one.seconds for one in costs])
    names, features = compute_features(Case.of_costs(costs, oc.target("gemmini").machine), FEATURES)
    each = np.arange(len(costs)).astype(str)
    rows = Dataset(
        *(names, features, np.full(len(costs), "p"), np.full(len(costs), "here")),
        *(np.full(len(costs), "here"), np.full(len(costs), "n"), each, 2 * closed),
        *(np.zeros(len(costs)), closed),
    )
    pair = replace(train(rows, settings=Settings(rounds=3, members=2)), useless="")
    pair.save(file)

    cost, plan = kernel.cost(n=13), kernel.plan(n=13)
    assert cost.seconds == nearly(2 * closed[5], rel=0.02)
    assert plan.seconds == nearly(cost.seconds)
    said = f"model.json: the closed form × {cost.factor:.3f}"
    assert str(cost).endswith(said)
    assert said in plan.notes
    far = kernel.cost(n=512)
    assert (far.factor, far.correction[:15]) == (1.0, "not by model.js")
    assert " is what was learned from" in far.correction

    replace(pair, useless="it helps nobody").save(tmp_path / "new.json")
    monkeypatch.setenv("OFFCUT_MODEL", str(tmp_path / "new.json"))
    assert kernel.cost(n=13).seconds == closed[5]
    assert "not by new.json: it helps nobody" in kernel.plan(n=13).notes
    (tmp_path / "bad.json").write_text("{}")
    monkeypatch.setenv("OFFCUT_MODEL", str(tmp_path / "bad.json"))
    assert kernel.cost(n=13).correction == "not by bad.json: it is not an offcut model 2"
    replace(pair, names=("mine", *names[1:])).save(tmp_path / "other.json")
    monkeypatch.setenv("OFFCUT_MODEL", str(tmp_path / "other.json"))
    assert kernel.cost(n=13).factor == 1.0
    assert "mine, which no feature gives here" in kernel.cost(n=13).correction


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(oc.OffcutError) as refused:
        replace(OK, source="guessed")  # type: ignore[arg-type]
    assert refused.value.because == ("source is 'guessed', none of measured, simulated, predicted")
    file = tmp_path / "r.jsonl"
    oc.Records(tmp_path / "r.sqlite").add(OK)
    oc.Records(tmp_path / "r.sqlite").export(file)
    file.write_text(file.read_text(encoding="utf-8").replace('"measured"', '"guessed"'))
    with pytest.raises(oc.OffcutError) as refused:
        oc.Records(tmp_path / "new.sqlite").import_(file)
    assert refused.value.because == (
        "its source is 'guessed', none of measured, simulated, predicted"
    )
