"""The measures of a study other than calls, its entries, its short form, and published results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import offcut as oc
from offcut.cli import app
from offcut.costmodel import load
from offcut.errors import DescribeError, OffcutError
from offcut.studies import compile_options
from offcut.studies.compile_options import change_fields
from offcut.studies.definition import Definition, read_definition
from offcut.studies.entries import expand_table
from offcut.studies.errors import Place
from offcut.studies.folder import keep_results, machine_name
from offcut.studies.results import Results, results_of
from offcut.studies.rows import Row
from offcut.studies.samples import FILE, Sample, append_samples, read_samples
from offcut.studies.target_tables import order_table, program_size, target_tables
from tests.agree import agree

HEAD = '[study]\nname = "small"\nseconds_per_cell = 0.002\nrounds = 2\nprocesses = 1\n'
DENSE = (
    '[[operators]]\nname = "dense"\neinsum = "mk,kn->mn"\nsizes = {m = [1, 3, 9], k = 8, n = 16}\n'
)
LAYER = """
import offcut as oc

def layer(n, k, m):
    a, w = oc.placeholder((n, k), "int8", name="A"), oc.placeholder((k, m), "int8", name="W")
    return oc.ops.requantize(oc.ops.dense(a, w, name="S"), 8, name="Y"), [a, w]
"""
OF_VTA = """
[[operators]]
name = "layer"
describe = "layer:layer"
sizes = {n = [37], k = 64, m = 64}
bounds = {n = 64}
"""


def defined(folder: Path, text: str, **more: Any) -> Definition:
    file = folder / "study.toml"
    file.write_text(text)
    (folder / "layer.py").write_text(LAYER)
    return read_definition(file, **more)


def measured(folder: Path, text: str) -> dict[str, Sample]:
    """Return the samples of a study of this text by contender and sizes."""
    definition = defined(folder, text)
    oc.study(definition.file, folder / "out")
    found = read_samples(folder / "out" / FILE).values()
    return {f"{one.contender} {next(iter(one.sizes.values()))}": one for one in found}


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the pictures of reports, which take a second each."""
    monkeypatch.setattr("offcut.studies.report.is_installed", lambda name: False)


def test_a_table_stands_for_all_combinations_of_what_it_lists(tmp_path: Path) -> None:
    each = (
        '[[contenders]]\nname = "by"\neach = {strategy = ["cut", "mask"], "tune.x" = [1]}\n',
        '[[contenders]]\neach = {strategy = ["cut", ["mask", "pad"]], threads = [1, 2]}\n',
    )
    definition = defined(tmp_path, HEAD + DENSE + each[1])

    names = [one.name for one in definition.contenders]
    assert names == ["cut 1", "cut 2", "mask+pad 1", "mask+pad 2"]
    assert [one.identity["threads"] for one in definition.contenders] == [1, 2, 1, 2]
    with pytest.raises(DescribeError, match="there is no key 'x'"):
        defined(tmp_path, HEAD + DENSE + each[0])


def test_a_contender_computes_the_operators_that_it_names(tmp_path: Path) -> None:
    other = DENSE.replace('"dense"', '"wide"')
    only = '[[contenders]]\nstrategy = "auto"\n[[contenders]]\npeer = "numpy"\nonly = "^wide$"\n'
    definition = defined(tmp_path, HEAD + DENSE + other + only)

    cells = [(operator.name, one.name) for operator, _, one, _ in definition.cells()]
    assert sorted(set(cells)) == [("dense", "auto"), ("wide", "auto"), ("wide", "numpy")]


def test_the_short_form_has_less_of_everything_and_the_same_cells(tmp_path: Path) -> None:
    text = HEAD + DENSE + DENSE.replace('"dense"', '"wide"')
    text += '[[contenders]]\neach = {strategy = ["auto", "cut", "mask"]}\n'
    long = defined(tmp_path, text)
    short = '[short]\noperators = "^dense$"\ncontenders = "mask"\npoints = 2\n'
    made = defined(tmp_path, text + short, short=True)
    quick = defined(tmp_path, text + short + "seconds_per_cell = 0.5\n", short=True, seconds=0.1)

    assert [one.name for one in made.operators] == ["dense"]
    assert [one.name for one in made.contenders] == ["auto", "mask"], "the baseline stays"
    assert [point.sizes["m"] for point in made.operators[0].points] == [1, 9]
    assert {cell for *_, cell in made.cells()} < {cell for *_, cell in long.cells()}
    assert (made.seconds, quick.seconds) == (0.002, 0.1)


@pytest.mark.slow
def test_what_is_predicted_is_the_cost_and_runs_nowhere(tmp_path: Path) -> None:
    text = HEAD + 'measure = "predicted"\n' + DENSE
    text += '[[contenders]]\nname = "here"\ntarget = "cpu"\nmachine = "cascade-lake"\n'
    text += '[[contenders]]\nname = "there"\ntarget = "cpu"\nmachine = "zen5"\n'
    text += '[[contenders]]\npeer = "numpy"\n'
    found = measured(tmp_path, text)

    m = oc.dim("m", min=1, max=2**16)
    a, b = oc.placeholder((m, 8), name="A"), oc.placeholder((8, 16), name="B")
    k = oc.reduce_axis(8, name="k")
    c = oc.compute((m, 16), lambda i, j: oc.sum(a[i, k] * b[k, j], axis=k), name="C")
    weights = {"B": np.ones((8, 16), "f4")}
    kernel = oc.compile(c, [a, b], weights, oc.target("cpu", machine="zen5"), records=False)
    for size in (1, 3, 9):
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


@pytest.mark.slow
def test_what_is_not_timed_by_calls_has_one_process(tmp_path: Path) -> None:
    text = HEAD.replace("processes = 1", "processes = 3") + DENSE
    text += '[[contenders]]\nstrategy = "auto"\n'
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
        assert said.stdout.splitlines()[-1] == f"6 of 6 cells to measure: {line}"
    assert definition.processes == 1


def test_what_is_simulated_is_the_time_of_the_simulator_with_and_without_hiding(
    tmp_path: Path,
) -> None:
    text = HEAD + 'measure = "simulated"\n' + OF_VTA
    text += '[[contenders]]\nname = "alone"\ntarget = "vta"\nhiding = false\n'
    text += '[[contenders]]\nname = "hidden"\ntarget = "vta"\n'
    text += '[[contenders]]\nname = "slow bus"\ntarget = "vta"\n'
    text += "machine_fields = {dram = {bytes_per_cycle = 1.0}}\n"
    text += '[[contenders]]\nname = "same tiles"\ntarget = "vta"\nreplan = false\n'
    text += "machine_fields = {dram = {bytes_per_cycle = 1.0}}\n"
    text += '[[contenders]]\nname = "processor"\nstrategy = "auto"\n'
    found = measured(tmp_path, text)

    hidden = found["hidden 37"]
    kernel_text = (tmp_path / "layer.py").read_text()
    names: dict[str, Any] = {}
    exec(kernel_text, names)
    n = oc.dim("n", min=1, max=64)
    output, inputs = names["layer"](n, 64, 64)
    constants = {"W": np.zeros((64, 64), np.int8)}
    kernel = oc.compile(output, inputs, constants, "vta", records=False)
    cycles = kernel.timeline(n=37).cycles
    agree(np.array(hidden.seconds), np.array([cycles / kernel.machine.hertz]))
    assert hidden.seconds[0] < found["alone 37"].seconds[0]
    slow, same = (found[f"{name} 37"].seconds[0] for name in ("slow bus", "same tiles"))
    assert hidden.seconds[0] < slow <= same, "tiles that are planned for a bus are no worse on it"
    assert "no simulator" in found["processor 37"].failed
    assert hidden.peak == 2 * 256 * 100e6
    csv = (tmp_path / "out" / "use.csv").read_text()
    assert f"{hidden.flop / (hidden.seconds[0] * hidden.peak):.1%}" in csv


@pytest.mark.slow
def test_compiles_and_proofs_are_measured_in_fresh_processes(tmp_path: Path) -> None:
    text = HEAD + DENSE.replace("[1, 3, 9]", "[3]")
    text += '[[contenders]]\nname = "compile"\nstrategy = "auto"\nmeasure = "compile"\n'
    text += '[[contenders]]\nname = "proof"\nstrategy = "auto"\nmeasure = "proof"\n'
    text += '[[contenders]]\nname = "cached"\nstrategy = "auto"\nmeasure = "cached compile"\n'
    found = measured(tmp_path, text)

    names = ("compile", "proof", "cached")
    assert [len(found[f"{name} 3"].seconds) for name in names] == [2, 2, 2]
    assert all(second > 0 for name in names for second in found[f"{name} 3"].seconds)
    assert found["proof 3"].clock == "time of the proof"
    assert found["compile 3"].clock == "processor time of a compile"
    assert found["cached 3"].clock == "processor time of a cached compile"
    assert max(found["cached 3"].seconds) < min(found["compile 3"].seconds)
    rows = (tmp_path / "out" / "compile.csv").read_text().splitlines()[-3:]
    assert all(",3,2,1," in row for row in rows), "loops, stores and sizes of a product"


@pytest.mark.slow
def test_a_first_call_is_at_a_size_that_the_process_has_not_met(tmp_path: Path) -> None:
    text = HEAD + 'measure = "first call"\n' + DENSE + '[[contenders]]\nstrategy = "auto"\n'
    text += '[[contenders]]\npeer = "numpy"\n'
    found = measured(tmp_path, text)

    assert sorted(found) == ["auto 3", "auto 9", "numpy 3", "numpy 9"], "the first size is met"
    assert all(len(found[f"auto {size}"].seconds) == 2 for size in (3, 9))
    assert "first call is measured of models alone" in found["numpy 3"].failed


@pytest.mark.slow
def test_onnxruntime_takes_part_in_first_calls_of_a_module(tmp_path: Path) -> None:
    for package in ("torch", "onnx", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is an extra")
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "def dense():\n"
        "    return torch.nn.Linear(8, 4), lambda m: (torch.randn(m, 8),)\n"
    )
    text = HEAD + 'measure = "first call"\n[[operators]]\nmodel = "net:dense"\n'
    text += 'sizes = {m = [2, 3]}\n[[contenders]]\npeer = "onnxruntime"\n'
    found = measured(tmp_path, text)

    assert found["onnxruntime 3"].failed == ""
    assert len(found["onnxruntime 3"].seconds) == 2


@pytest.mark.slow
def test_a_tuned_contender_runs_what_its_explorer_found(tmp_path: Path) -> None:
    text = HEAD + OF_VTA + '[[contenders]]\nname = "auto"\ntarget = "vta"\nmeasure = "simulated"\n'
    text += '[[contenders]]\ntarget = "vta"\nmeasure = "simulated"\ntune = {explorer = "random"}\n'
    text += 'each = {"tune.trials" = [1, 6]}\nname = "random"\n'
    found = measured(tmp_path, text)

    seconds = [found[f"{name} 37"].seconds[0] for name in ("auto", "random 1", "random 6")]
    assert seconds == sorted(seconds, reverse=True), "more trials are never worse, by the clock"


def test_a_tuned_contender_times_each_candidate_within_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HEAD + DENSE + '[[contenders]]\nname = "tuned"\ntune = {trials = 3, budget = 0.05}\n'
    definition = defined(tmp_path, text)
    (operator,) = definition.operators
    budgets = []
    monkeypatch.setattr(oc, "tune", lambda *_, limits, **__: budgets.append(limits.budget))
    definition.contenders[0].make(operator)  # type: ignore[attr-defined]

    assert budgets == [0.05]


def test_a_tuned_contender_learns_from_features_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("def calls(case):\n    return {'calls': case.call}\n")
    text = HEAD + DENSE + '[[contenders]]\ntune = {trials = 3, features = ["mine:calls"]}\n'
    definition = defined(tmp_path, text)
    names = []
    monkeypatch.setattr(oc, "tune", lambda *_, features, **__: names.extend(features))
    definition.contenders[0].make(definition.operators[0])  # type: ignore[attr-defined]
    digests = definition.contenders[0].identity["feature_digests"]

    assert [one.__name__ for one in names] == ["calls"]
    (tmp_path / "mine.py").write_text("def calls(case):\n    return {'calls': 2 * case.call}\n")
    assert defined(tmp_path, text).contenders[0].identity["feature_digests"] != digests


def test_schedules_that_are_drawn_are_of_the_space_and_differ(tmp_path: Path) -> None:
    text = HEAD + DENSE + '[[contenders]]\nname = "drawn"\neach = {draw = [0, 1, 2]}\n'
    definition = defined(tmp_path, text)
    (operator,) = definition.operators
    schedules = [one.make(operator)["schedule"] for one in definition.contenders]  # type: ignore[attr-defined]
    again = defined(tmp_path, text).contenders[2].make(operator)["schedule"]  # type: ignore[attr-defined]

    assert len({str(one) for one in schedules}) == 3
    assert str(again) == str(schedules[2])
    assert {one.name for one in schedules} == {schedules[0].name}


def test_a_space_that_has_no_so_many_schedules_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_options, "_new_schedules", lambda *_: iter("ab"))
    text = HEAD + DENSE.replace("n = 16", "n = 17") + "[[contenders]]\ndraw = 2\n"
    definition = defined(tmp_path, text)
    with pytest.raises(DescribeError) as error:
        definition.contenders[0].make(definition.operators[0])  # type: ignore[attr-defined]

    assert str(error.value) == (
        "study: cannot draw\n"
        "  at       dense\n"
        "  because  of its space, 64 draws in a row gave none but the 2 before\n"
        "  help     draw = 1"
    )


def test_order_is_of_the_contenders_of_one_target(tmp_path: Path) -> None:
    text = HEAD + DENSE + '[[contenders]]\nname = "x"\neach = {strategy = ["auto", "cut"]}\n'
    text += '[[contenders]]\nname = "elsewhere"\nstrategy = "cut"\nmachine = "zen4"\n'
    definition = defined(tmp_path, text)
    operator = definition.operators[0].name
    times = {"x auto": (1.0, 1.0), "x cut": (2.0, 3.0), "elsewhere": (9.0, 0.1)}
    samples = {
        name: Sample("", operator, {"m": 3}, name, (t, t), predicted=p)
        for name, (p, t) in times.items()
    }
    rows = (Row(operator, "m=3", samples, {"m": 3}),)
    table = order_table(
        Results(definition, rows, tuple(times)),
        {**dict.fromkeys(times, "cpu"), "elsewhere": "cpu, zen4"},
    )

    assert table.columns == ("target", "operator", "contenders", "pairs", "in order")
    assert table.rows == (("cpu", operator, "2", "1", "1.000"), ("cpu", "all", "–", "1", "1.000"))


def test_a_table_among_the_values_of_each_is_in_the_name_by_its_values() -> None:
    key, units = "machine_fields.unit.0", [{"rows": 1, "columns": 32}, {"rows": 2, "columns": 16}]
    found = list(expand_table({"name": "vta", "each": {key: units}}, Place("here")))

    assert [one["name"] for one in found] == ["vta 1×32", "vta 2×16"]
    assert found[1]["machine_fields"] == {"unit": {"0": units[1]}}


def test_fields_of_a_machine_are_changed_by_name_and_by_number() -> None:
    base = load("vta")
    changes = {"dram": {"latency_cycles": 5.0}, "memory": {"inputs": {"bytes": 65536}}}
    made = change_fields(base, {**changes, "unit": {"0": {"rows": 2}}})

    assert made.dram == replace(base.dram, latency_cycles=5.0)
    assert [one.bytes for one in made.memory if one.name == "inputs"] == [65536]
    assert (made.unit[0].rows, made.unit[0].columns) == (2, base.unit[0].columns)
    assert change_fields(base, {}) == base
    with pytest.raises(OffcutError, match="latency"):
        change_fields(base, {"dram": {"latencies": 5.0}})
    with pytest.raises(DescribeError) as error:
        change_fields(base, {"unit": {"fma": {"rows": 2}}})
    assert str(error.value) == (
        "study: cannot change the machine\n"
        "  at       machine_fields\n"
        "  because  the description has no 'fma' there, but gemm"
    )


REJECTED = {
    "measure": (
        'measure = "speed"\n',
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, measure\n"
        "  because  nothing called 'speed' is measured\n"
        "  help     call, predicted, simulated, compile, cached compile, proof, first call",
    ),
    "only": (
        'only = "("\n',
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, only\n"
        "  because  '(' is not a regular expression: missing ), unterminated subpattern at position 0\n"
        "  help     only = '\\('",
    ),
    "each": (
        "each = {strategy = []}\n",
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, each.strategy\n"
        "  because  [] is not a list of values\n"
        '  help     each = {strategy = ["cut", "mask"]}',
    ),
    "tune": (
        "tune = {trails = 3}\n",
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, tune\n"
        "  because  there is no key 'trails'\n"
        "  help     trials = …",
    ),
    "tune, a number": (
        "tune = 3\n",
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, tune\n"
        "  because  3 is not a table\n"
        '  help     tune = {explorer = "anneal", trials = 64}',
    ),
    "tune, budget": (
        "tune = {budget = 0}\n",
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, tune.budget\n"
        "  because  0 is not a number from 0.0001 to 86400\n"
        "  help     budget = 0.3",
    ),
    "draw with a strategy": (
        'strategy = "cut"\ndraw = 3\n',
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, strategy\n"
        "  because  a schedule is drawn\n"
        "  help     draw = 0",
    ),
    "draw": (
        "draw = -1\n",
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, draw\n"
        "  because  -1 is not a whole number from 0 on\n"
        "  help     draw = 0",
    ),
    "hiding": (
        "hiding = 1\n",
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, hiding\n"
        "  because  1 is neither true nor false\n"
        "  help     hiding = false",
    ),
    "tune with a strategy": (
        'strategy = "cut"\ntune = {trials = 3}\n',
        "study: cannot read the study\n"
        "  at       study.toml, contender 1, strategy\n"
        "  because  what is tuned decides that itself\n"
        "  help     tune = {…}",
    ),
    "short": (
        'strategy = "cut"\n[short]\noperators = "sparse"\n',
        "study: cannot read the study\n"
        "  at       study.toml, short.operators\n"
        "  because  no operator has 'sparse' in its name\n"
        "  help     dense",
    ),
}


@pytest.mark.parametrize("case", list(REJECTED))
def test_what_means_nothing_is_an_error_with_its_place(case: str, tmp_path: Path) -> None:
    text, expected = REJECTED[case]
    with pytest.raises(DescribeError) as error:
        defined(tmp_path, HEAD + DENSE + "[[contenders]]\n" + text, short=True)

    assert str(error.value) == expected


def test_results_are_kept_by_machine_date_and_commit_and_never_of_a_changed_one(
    tmp_path: Path,
) -> None:
    definition = defined(tmp_path, HEAD + DENSE + '[[contenders]]\nstrategy = "auto"\n')
    out, results = tmp_path / "out", tmp_path / "results"
    (out / "environments").mkdir(parents=True)
    facts = {"machine": "m", "cpu": "A(R) B(TM) CPU @ 2.0GHz", "libraries": {}}
    for name, commit, dirty in (("a", "0123456789ab", False), ("b", "0123456789ab", True)):
        text = json.dumps({**facts, "commit": commit, "dirty": dirty})
        (out / "environments" / f"{name}.json").write_text(text)
    sample = Sample(
        "cell", "dense", {"m": 1}, "auto", (1.0,), 1, environment="a", date="2026-01-02T03"
    )
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


def test_the_size_of_a_program_is_its_loops_stores_and_sizes(tmp_path: Path) -> None:
    definition = defined(tmp_path, HEAD + DENSE + '[[contenders]]\nstrategy = "auto"\n')

    assert program_size(definition.operators[0].workload) == ("3", "2", "1")
    assert program_size(object()) == ("–", "–", "–")
    assert isinstance(results_of(definition, {}), Results)
