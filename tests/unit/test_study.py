"""What the file of a study says: cells, sizes, contenders, goals, tables; more errors of it are in tests/errors."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refusals
from typer.testing import CliRunner

import offcut as oc
from offcut.costmodel import load
from offcut.errors import DescribeError, OffcutError
from offcut.experiment.timing import Ratio
from offcut.studies import compile_options
from offcut.studies.compile_options import change_fields
from offcut.studies.definition import read_definition
from offcut.studies.entries import expand_table
from offcut.studies.environment import digest, read_environments, write_environment
from offcut.studies.errors import Place
from offcut.studies.goals import Goal
from offcut.studies.groups import reason
from offcut.studies.models import TorchWorkload
from offcut.studies.offcut_operators import Described
from offcut.studies.operators import read_operators
from offcut.studies.peers.loops import as_python, compile_loops, loops_call
from offcut.studies.peers.onnx_reference import exact_results
from offcut.studies.report import warnings
from offcut.studies.results import Results, results_of
from offcut.studies.rows import Row
from offcut.studies.run import missing_groups
from offcut.studies.samples import Sample
from offcut.studies.sizes import axes_of, points_of, read_values
from offcut.studies.suites import FOLDER as SUITES
from offcut.studies.suites import suites
from offcut.studies.table import Table, as_csv, as_latex
from offcut.studies.tables import failure_lines, rows_table, tables
from offcut.studies.target_tables import order_table, program_size
from offcut.studies.user_objects import AbsentOperator, absent_lines, load_named, missing_module
from tests.agree import agree
from tests.facade import app
from tests.studies import AUTO, DENSE, HEAD, NAMED, NUMPY, cells_of, defined

BENCHES = Path(__file__).parents[2] / "studies" / "bench"
AXIS = Place("s.toml") / "sizes" / "m"
BLANK = Sample("cell", "dense", {"m": 1}, "auto", (1.0,) * 7, 1)


# Cells: what is measured anew where a file says something else.


@pytest.mark.parametrize(
    "other", [DENSE.replace("k = 8", "k = [8, 9]"), DENSE + "bounds = {m = 4}\n"]
)
def test_a_kernel_of_other_sizes_has_other_cells(tmp_path: Path, other: str) -> None:
    cells = [cells_of(tmp_path, f"{HEAD}{one}constants = []\n{AUTO}") for one in (DENSE, other)]

    assert len(cells[0]) == 2 <= len(cells[1])
    assert {*cells[0]}.isdisjoint(cells[1])


def test_equal_operators_and_contenders_are_measured_each(tmp_path: Path) -> None:
    text = HEAD + DENSE + DENSE + 'name = "again"\n' + DENSE + 'name = "third"\n' + AUTO
    cells = cells_of(tmp_path, text + "".join(f'{AUTO}name = "{name}"\n' for name in ("b", "c")))

    assert len(cells) == len(set(cells)) == 3 * 2 * 3


def test_another_text_of_a_file_of_ones_own_or_of_what_it_imports_is_another_cell(
    tmp_path: Path,
) -> None:
    own = "import beside\ndef dot(inputs, sizes):\n    return {}\n"
    found = []
    for text, beside in (
        (own.format(1), "x = 1\n"),
        (own.format(2), "x = 1\n"),
        (own.format(1), "x = 2\n"),
    ):
        (tmp_path / "other.py").write_text(text)
        (tmp_path / "beside.py").write_text(beside)
        found.append(cells_of(tmp_path, HEAD + DENSE + '[[contenders]]\npeer = "other:dot"\n'))

    assert len({cell for cells in found for cell in cells}) == 6


def test_results_are_by_the_cells_of_the_file_and_two_clocks_are_warned_of(tmp_path: Path) -> None:
    definition = defined(tmp_path, HEAD + DENSE + AUTO + NUMPY)
    samples = {
        cell: Sample(
            *(cell, operator.name, point.sizes, one.name),
            *((2.0 if one.is_peer else 1.0,) * 7, 1),
            clock="wall" if one.is_peer else "processor time",
            process=tuple(range(7)),
        )
        for operator, point, one, cell in definition.cells()
    }
    results = results_of(definition, {**samples, "other": replace(BLANK, cell="other")})

    assert [row.over("numpy", "auto") for row in results.rows] == [Ratio(0.5, 0.5, 0.5)] * 2
    assert missing_groups(definition, samples, retry=False) == []
    cell = next(iter(samples))
    groups = missing_groups(definition, {cell: samples[cell]}, retry=False)
    assert sum(len(group.cells) for group in groups) == 3
    (said,) = warnings(results, samples)
    assert said.startswith("in 2 of 2 rows some were timed by the wall and others by processor")


def test_an_environment_is_of_its_content_and_whole_or_refused(tmp_path: Path) -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})
    facts = {"machine": "m", "cpu": "c", "commit": "", "dirty": False, "libraries": {}}
    write_environment(tmp_path, "one", facts)

    assert read_environments(tmp_path, ["one", "one", "none"]) == [facts]
    (tmp_path / "environments" / "one.json").write_text('{"machine": ')
    with pytest.raises(DescribeError, match="remove it: the samples stay"):
        read_environments(tmp_path, ["one"])


# Contenders: entries that stand for several, what they name, and what they are made of.


def test_a_table_stands_for_all_combinations_of_what_it_lists(tmp_path: Path) -> None:
    each = '[[contenders]]\neach = {strategy = ["cut", ["mask", "pad"]], threads = [1, 2]}\n'
    contenders = defined(tmp_path, HEAD + DENSE + each).contenders
    key, units = "machine_fields.unit.0", [{"rows": 1, "columns": 32}, {"rows": 2, "columns": 16}]
    found = list(expand_table({"name": "vta", "each": {key: units}}, Place("here")))

    assert [one.name for one in contenders] == ["cut 1", "cut 2", "mask+pad 1", "mask+pad 2"]
    assert [one.identity["threads"] for one in contenders] == [1, 2, 1, 2]
    assert [one["name"] for one in found] == ["vta 1×32", "vta 2×16"]
    assert found[1]["machine_fields"] == {"unit": {"0": units[1]}}
    with pytest.raises(DescribeError, match="there is no key 'x'"):
        defined(tmp_path, HEAD + DENSE + '[[contenders]]\nname = "by"\neach = {"tune.x" = [1]}\n')


def test_a_contender_computes_the_operators_that_it_names_and_is_missed_in_no_other(
    tmp_path: Path,
) -> None:
    wide = DENSE.replace("]]\n", ']]\nname = "wide"\n')
    only = AUTO + 'only = "->"\n' + NUMPY + 'only = "^wide$"\n'
    definition = defined(tmp_path, HEAD + DENSE + wide + only)
    (goal,) = definition.goals

    rows = results_of(definition, {}).rows
    assert {row.operator: row.cells for row in rows} == {"mk,kn->mn": ("auto",), "wide": ("numpy",)}
    missing = "mk,kn->mn m=1, k=8, n=16; mk,kn->mn m=3, k=8, n=16"
    assert [line[2:] for line in goal.lines(rows)] == [("2", missing)]


def test_the_short_form_has_less_of_everything_and_the_same_cells(tmp_path: Path) -> None:
    operators = NAMED.replace("[1, 3]", "[1, 3, 9]")
    text = HEAD + operators + operators.replace('"dense"', '"wide"')
    text += '[[contenders]]\neach = {strategy = ["auto", "cut", "mask"]}\n'
    long = defined(tmp_path, text)
    plain = read_definition(long.file, short=True)
    short = '[short]\noperators = "^dense$"\ncontenders = "mask"\npoints = 2\n'
    made = defined(tmp_path, text + short, short=True)
    quick = defined(tmp_path, text + short + "seconds_per_cell = 0.5\n", short=True, seconds=0.1)

    assert {point.sizes["m"] for _, point, *_ in plain.cells()} == {1, 3, 9}
    assert plain.seconds <= 0.04
    assert [one.name for one in made.operators] == ["dense"]
    assert [one.name for one in made.contenders] == ["auto", "mask"], "the baseline stays"
    assert [point.sizes["m"] for point in made.operators[0].points] == [1, 9]
    assert {cell for *_, cell in made.cells()} < {cell for *_, cell in long.cells()}
    assert (made.seconds, quick.seconds) == (0.002, 0.1)


def test_rows_are_chosen_by_name(tmp_path: Path) -> None:
    definition = defined(tmp_path, HEAD + DENSE.replace("[1, 3]", "[1, 3, 5]") + AUTO)

    assert len(list(definition.select_rows("m=(3|5),").cells())) == 2
    with pytest.raises(DescribeError) as refused:
        definition.select_rows("m=4,")
    assert str(refused.value) == (
        "study: cannot measure nothing\n"
        "  because  no row matches 'm=4,'; the first is mk,kn->mn m=1, k=8, n=16"
    )


def test_what_is_ones_own_competes(tmp_path: Path) -> None:
    from offcut.studies.template import write_template

    folder = write_template(tmp_path / "mine")
    definition = read_definition(folder / "study.toml", 0.001)
    (contender,) = (one for one in definition.contenders if one.name == "mine or ladder")
    task = definition.operators[0].workload.task({"m": 5, "k": 256, "n": 320}, 0)
    ready = contender.ready(definition.operators[0], task)

    assert task.exact().error(ready.read(ready.run())) < 1e-5
    assert [one.identity.get("strategy_digests") for one in definition.contenders][1]


def test_a_tuned_contender_has_its_budget_and_features_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, given = tmp_path / "mine.py", list[Any]()
    mine.write_text("def calls(case):\n    return {'calls': case.call}\n")
    text = HEAD + DENSE + '[[contenders]]\nname = "tuned"\n'
    text += 'tune = {trials = 3, budget = 0.05, features = ["mine:calls"]}\n'
    definition = defined(tmp_path, text)
    (contender,) = definition.contenders
    monkeypatch.setattr(
        oc, "tune", lambda *_, limits, features, **__: given.extend((limits.budget, *features))
    )
    contender.make(definition.operators[0])  # type: ignore[attr-defined]
    before = contender.identity["feature_digests"]

    assert (given[0], given[1].__name__) == (0.05, "calls")
    mine.write_text("def calls(case):\n    return {'calls': 2 * case.call}\n")
    assert defined(tmp_path, text).contenders[0].identity["feature_digests"] != before


def test_schedules_that_are_drawn_are_of_the_space_and_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HEAD + NAMED + '[[contenders]]\nname = "drawn"\neach = {draw = [0, 1, 2]}\n'

    def drawn(text: str) -> list[Any]:
        definition = defined(tmp_path, text)
        return [one.make(definition.operators[0])["schedule"] for one in definition.contenders]  # type: ignore[attr-defined]

    schedules, again = drawn(text), drawn(text)
    assert len({str(one) for one in schedules}) == 3
    assert list(map(str, again)) == list(map(str, schedules))
    assert len({one.name for one in schedules}) == 1

    monkeypatch.setattr(compile_options, "_new_schedules", lambda *_: iter("ab"))
    with pytest.raises(DescribeError) as error:
        drawn(HEAD + NAMED.replace("n = 16", "n = 17") + "[[contenders]]\ndraw = 2\n")
    assert str(error.value) == (
        "study: cannot draw\n"
        "  at       dense\n"
        "  because  of its space, 64 draws in a row gave none but the 2 before\n"
        "  help     draw = 1"
    )


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


REJECTED = refusals(
    r"""
given 'measure = "speed"\n'
measure
  because  nothing called 'speed' is measured
  help     call, predicted, simulated, compile, cached compile, proof, first call

given 'only = "("\n'
only
  because  '(' is not a regular expression: missing ), unterminated subpattern at position 0
  help     only = '\('

given 'each = {strategy = []}\n'
each.strategy
  because  [] is not a list of values
  help     each = {strategy = ["cut", "mask"]}

given 'tune = {trails = 3}\n'
tune
  because  there is no key 'trails'
  help     trials = …

given 'tune = 3\n'
tune
  because  3 is not a table
  help     tune = {explorer = "anneal", trials = 64}

given 'tune = {budget = 0}\n'
tune.budget
  because  0 is not a number from 0.0001 to 86400
  help     budget = 0.3

given 'strategy = "cut"\ndraw = 3\n'
strategy
  because  a schedule is drawn
  help     draw = 0

given 'draw = -1\n'
draw
  because  -1 is not a whole number from 0 on
  help     draw = 0

given 'hiding = 1\n'
hiding
  because  1 is neither true nor false
  help     hiding = false

given 'strategy = "cut"\ntune = {trials = 3}\n'
strategy
  because  what is tuned decides that itself
  help     tune = {…}""",
    {},
)


@pytest.mark.parametrize("case", REJECTED)
def test_a_contender_that_means_nothing_is_an_error_with_its_place(
    case: str, tmp_path: Path
) -> None:
    text, expected = REJECTED[case]
    with pytest.raises(DescribeError) as error:
        defined(tmp_path, HEAD + DENSE + "[[contenders]]\n" + text)

    place = "study: cannot read the study\n  at       study.toml, contender 1, "
    assert str(error.value) == place + expected


# Sizes: numbers, lists, ranges, weights, and lines of CSV files.


def test_sizes_are_numbers_lists_ranges_weights_and_files(tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text("# requests\nm,t\n3,9\n3,1\n17,1\n")
    given: dict[Any, dict[int, float]] = {
        5: {5: 1.0},
        (7, 1, 7, 9): {1: 1 / 4, 7: 1 / 2, 9: 1 / 4},
        "1:4": dict.fromkeys((1, 2, 3, 4), 1 / 4),
        (("3", 3), ("17", 1)): {3: 3 / 4, 17: 1 / 4},
        "lengths.csv": {3: 2 / 3, 17: 1 / 3},
        (("csv", "lengths.csv"), ("column", "t")): {1: 2 / 3, 9: 1 / 3},
    }
    for spelt, weights in given.items():
        pairs = isinstance(spelt, tuple) and isinstance(spelt[0], tuple)
        said = dict(spelt) if pairs else [*spelt] if isinstance(spelt, tuple) else spelt
        found = read_values(said, AXIS, tmp_path)
        assert [*found.weights] == [*weights]
        assert found.swept == (spelt != 5)
        if spelt not in (5, (7, 1, 7, 9), "1:4"):
            agree(np.array([*found.weights.values()]), np.array([*weights.values()]))
    sampled = read_values({"range": "1:512", "points": 9}, AXIS, Path()).weights
    assert len(sampled) == 9
    assert {1, 512} <= {*sampled}


def test_axes_that_are_named_together_have_one_extent() -> None:
    at = Place("s.toml") / "sizes"
    values = {key: read_values(x, at, Path()) for key, x in {"i, j": [5, 9], "d": 64}.items()}

    assert list(axes_of(values, at)) == ["i", "j", "d"]
    assert [tuple(point.sizes.values()) for point in points_of(values)] == [(5, 5, 64), (9, 9, 64)]


@pytest.mark.parametrize(("comma", "bom"), [(",", ""), (";", "\ufeff"), ("\t", "\ufeff")])
def test_a_table_out_of_a_paper_is_read_as_it_stands(tmp_path: Path, comma: str, bom: str) -> None:
    lines = ("# table 3", "", "layer,M, K ,N,calls", "a,1,64,80,3", ",,,,", "  ", "b,7,96,16,0.5")
    text = "\r\n".join((*lines, 'a again,1,64,80,"0.5"', "")).replace(",", comma)
    (tmp_path / "shapes.csv").write_text(bom + text, encoding="utf-8", newline="")
    table = {"einsum": "mk,kn->mn", "constants": []}
    sizes = {"csv": "shapes.csv", "columns": {"m": "M", "k": "K", "n": "N"}}
    shapes = [{"m": 1, "k": 64, "n": 80}, {"m": 7, "k": 96, "n": 16}]
    for more, weights in (({}, (2 / 3, 1 / 3)), ({"weights": "calls"}, (0.875, 0.125))):
        given = [{**table, "sizes": {**sizes, **more}}]
        (operator,), absent = read_operators(given, tmp_path / "study.toml")
        assert [dict(one.sizes) for one in operator.points] == shapes
        assert tuple(one.weight for one in operator.points) == weights
        assert absent == ()
    one = read_values({"csv": "shapes.csv", "column": "K", "weights": "calls"}, AXIS, tmp_path)
    assert one.weights == {64: 0.875, 96: 0.125}


def test_each_layer_that_a_column_names_is_an_operator(tmp_path: Path) -> None:
    lines = ("qkv,1,64,80,3", "out,5,80,64,1", "qkv,7,64,80,1", "again,5,80,64,1")
    (tmp_path / "layers.csv").write_text("\n".join(("layer,m,k,n,calls", *lines)))
    sizes = {"csv": "layers.csv", "names": "layer", "weights": "calls"}
    table = {"einsum": "mk,kn->mn", "sizes": sizes, "type": ["float32", "int8"]}
    file = tmp_path / "study.toml"

    operators, _ = read_operators([table], file)
    names = ["qkv", "qkv int8", "out", "out int8", "again", "again int8"]
    assert [one.name for one in operators] == names
    assert [(dict(one.sizes), one.weight) for one in operators[0].points] == [
        ({"m": 1, "k": 64, "n": 80}, 0.75),
        ({"m": 7, "k": 64, "n": 80}, 0.25),
    ]
    assert [name for name, axis in operators[0].axes.items() if axis.swept] == ["m"]
    assert not any(axis.swept for axis in operators[2].axes.values())
    (named, *_), _ = read_operators([{**table, "name": "bert"}], file)
    assert named.name == "bert qkv"


LAYERS = {"csv": "t.csv", "names": "name"}
WEIGHED = {"csv": "t.csv", "columns": {"m": "m"}}


@pytest.mark.parametrize(
    ("text", "sizes", "at", "because"),
    [
        ("layer,m\na,3\n", LAYERS, "names", "t.csv has no column 'name': its columns are layer, m"),
        ("name,m\na,3\n,4\n", LAYERS, "names", "t.csv, line 3: the layer has no name"),
        (
            *("m,w\n3,1\n", {**WEIGHED, "weights": "count"}, "weights"),
            "t.csv has no column 'count': its columns are m, w",
        ),
        (
            *("m,w\n3,1\n4,0\n", {**WEIGHED, "weights": "w"}, "weights"),
            "t.csv, line 3: the weight '0' is not a number above 0",
        ),
        ("m,m\n3,9\n", {"m": "t.csv"}, "m", "t.csv has 2 columns 'm': its columns are m, m"),
        ("name,m\n", LAYERS, "", "t.csv has no line with sizes"),
    ],
)
def test_a_csv_file_that_gives_no_sizes_is_refused(
    tmp_path: Path, text: str, sizes: Any, at: str, because: str
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DescribeError) as refused:
        read_operators([{"einsum": "m->m", "sizes": sizes}], tmp_path / "study.toml")

    assert str(refused.value.at).endswith(f"sizes.{at}" if at else "sizes")
    assert refused.value.because == because


def test_a_word_in_a_csv_file_is_refused_with_the_columns_that_may_be_meant(tmp_path: Path) -> None:
    (tmp_path / "shapes.csv").write_text("M,K,N,name\n1,64,80,a\n")
    with pytest.raises(DescribeError) as refused:
        read_operators(
            [{"einsum": "mk,kn->mn", "constants": [], "sizes": "shapes.csv"}],
            tmp_path / "study.toml",
        )
    assert str(refused.value) == (
        "study: cannot read the study\n"
        "  at       study.toml, operator 1, sizes\n"
        "  because  shapes.csv, line 2: 'a' in column 'name' is not a whole number from 1 to 2**31 - 1\n"
        "  help     a whole number in each line\n"
        '  help     {csv = "shapes.csv", columns = {M = "M", K = "K", N = "N"}}\n'
        '  help     {csv = "shapes.csv", names = "name"}, layers by name'
    )


# Goals, and tables of what was measured.


def row(operator: str, m: int, **seconds: float) -> Row:
    """A row of offcut's contenders, and of peers, whose names begin with p; 1000 operations, a limit of a second."""
    blank = Sample("", operator, {"m": m}, "", (), 1, flop=1000 * m, limit=1.0, limit_by="fma")
    samples = {
        name: replace(blank, contender=name, seconds=(one,) * 7, turns="t", peer=name[0] == "p")
        for name, one in seconds.items()
    }
    return Row(operator, f"m={m}", samples, {"m": m})


ROWS = (row("x", 1, a=2.0, b=1.6, p=6.0, p2=4.0), row("x", 4, a=8.0, b=9.0, p=4.0, p2=5.0))
CAUSAL = (row("all", 1, a=4.0), row("causal", 1, a=1.0), row("causal", 2, a=1.0))


@pytest.mark.parametrize(
    ("goal", "lines"),
    [
        (
            Goal(("a",), mean=1.4, worst=0.95),
            [
                ("a over the best peer: geometric mean", "≥ 1.4", "1.000", "2 rows"),
                ("a over the best peer: the least", "≥ 0.95", "0.500", "x m=4, p"),
            ],
        ),
        (
            Goal(("a", "b"), ("p2",), mean=1.0),
            [("a or b over p2: geometric mean", "≥ 1", "1.250", "2 rows")],
        ),
        (
            Goal(("a",), share=0.5),
            [("a: of the limit", "≥ 50%", "25%", "least 12%, x m=4, by fma")],
        ),
        (
            Goal(("a",), ("a", "b"), regret=0.1),
            [
                ("time of a over the best of 2: rows beyond 10%", "0", "1", "x m=1, 1.250"),
                ("time of a over the best of 2: the most", "–", "1.250", "x m=1"),
            ],
        ),
        (
            Goal(("a",), reference={"m": 1}, worst=0.9),
            [("a over m=1: the least", "≥ 0.9", "1.000", "x m=4, x m=1")],
        ),
        (
            Goal(("c",), mean=1.0),
            [("c: rows where it failed or is not measured yet", "0", "2", "x m=1; x m=4")],
        ),
        (
            Goal(("a",), operators="causal", reference="all", worst=1.6),
            [("a over all, causal: the least", "≥ 1.6", "4.000", "causal m=1, all m=1")],
        ),
        (Goal(("a",), operators="y", mean=1.0), []),
    ],
)
def test_a_goal_is_compared_with_measured_rows(
    goal: Goal, lines: list[tuple[str, str, str, str]]
) -> None:
    rows = CAUSAL if goal.operators == "causal" else ROWS
    assert [tuple(part.split(" (")[0] for part in line) for line in goal.lines(rows)] == lines


def test_many_contenders_stand_one_below_the_other(tmp_path: Path) -> None:
    names = ("guard", "cut", "mask", "pad", "shift", "ladder", "balance", "even", "residue")
    for count, columns, rows in (
        (8, ("operator", *names[:8]), ["mk,kn->mn"]),
        (9, ("contender", "mk,kn->mn"), [*names]),
    ):
        each = f"[[contenders]]\neach = {{strategy = {[*names[:count]]}}}\n"
        results = results_of(defined(tmp_path, HEAD + DENSE + AUTO + each), {})
        speed = next(one for one in tables(results) if one.name == "speed")
        assert speed.columns == columns
        assert [row[0] for row in speed.rows] == rows


def test_rows_have_rates_limits_and_the_ratio_to_the_best_peer() -> None:
    table = rows_table(ROWS[:1], "a", ("a", "b", "p", "none"))
    (line,) = table.rows

    assert table.columns[-5:] == ("a over the best peer", "limit", "by", "of it", "spread")
    assert line[:7] == ("x", "m=1", "GFLOP/s", "5e-07", "6.25e-07", "1.67e-07", "–")
    assert line[7:] == ("2.000 (2.000–2.000)", "1e-06", "fma", "50%", "0%")


def test_order_is_of_the_contenders_of_one_target(tmp_path: Path) -> None:
    text = HEAD + NAMED + '[[contenders]]\nname = "x"\neach = {strategy = ["auto", "cut"]}\n'
    text += '[[contenders]]\nname = "elsewhere"\nstrategy = "cut"\nmachine = "zen4"\n'
    definition = defined(tmp_path, text)
    times = {"x auto": (1.0, 1.0), "x cut": (2.0, 3.0), "elsewhere": (9.0, 0.1)}
    samples = {
        name: replace(BLANK, contender=name, seconds=(t, t), predicted=p)
        for name, (p, t) in times.items()
    }
    table = order_table(
        Results(definition, (Row("dense", "m=1", samples, {"m": 1}),), tuple(times)),
        {**dict.fromkeys(times, "cpu"), "elsewhere": "cpu, zen4"},
    )

    assert table.columns == ("target", "operator", "contenders", "pairs", "in order")
    assert table.rows == (("cpu", "dense", "2", "1", "1.000"), ("cpu", "all", "–", "1", "1.000"))
    assert program_size(definition.operators[0].workload) == ("3", "2", "1")
    assert program_size(object()) == ("–", "–", "–")


def test_tables_are_csv_and_latex_that_say_special_signs() -> None:
    table = Table("t", "A & b: 5 % of x_1", ("operator", "µs"), (("q·kᵀ {}", "1"), ("–", "–")))

    assert as_csv(table, ["machine"]).splitlines() == ["# machine", "operator,µs", "q·kᵀ {},1", ","]
    tex = as_latex(table)
    for text in (r"\caption{A \& b: 5 \% of x\_1}", r"\begin{tabular}{lr}", r"q·kᵀ \{\} & 1 \\"):
        assert text in tex


def test_a_reason_is_a_line_that_is_printed_once_for_all_its_rows() -> None:
    rows = [
        ("dense", "m=1", "p", "no such thing"),
        ("dense", "m=3", "p", "no such thing"),
        ("wide", "m=1", "p", "another thing"),
        ("wide", "m=1", "q", "study: cannot measure a peer, because q has no way to compute wide"),
        ("dense", "m=5", "p", "no such thing"),
    ]
    assert list(failure_lines(rows)) == [
        "dense m=1 p and 2 other rows: no such thing",
        "wide m=1 p: another thing",
    ]
    for error, text in (
        (KeyError("a\tb"), "KeyError: 'a\\tb'"),
        (ValueError("one \x1b[31m\tline\nand another"), "ValueError: one [31m line and another"),
        (ValueError("x" * 500), f"ValueError: {'x' * 400} …"),
        (oc.OffcutError("op", "no\nway", because="so\n\nit is"), "op: no way, because so it is"),
    ):
        assert reason(error) == text


# Suites, benches, and words of the command.


def test_every_suite_has_a_source_and_operators_that_are_described() -> None:
    for suite in suites():
        assert suite.source
        assert suite.about
        names = [one["name"] for one in suite.operators]
        assert len(set(names)) == len(names)
    said = CliRunner().invoke(app, ["study", "--list-suites"]).stdout
    assert "(1 operators)" not in said
    assert re.search(r"\(\d+ operators\)\n  source: ", said)


@pytest.mark.parametrize("word", ["new", "compare"])
def test_a_word_without_its_folder_is_no_file(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["study", word])
    assert refused.exit_code == 2
    assert f"{word} is neither a file, nor compare with two folders" in refused.output


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(BENCHES.glob("*.toml")), ids=lambda file: file.stem)
def test_the_studies_that_are_benches_are_read(file: Path) -> None:
    if file.stem in ("compile-models", "models", "single-ops", "stream", "zoo"):
        pytest.importorskip("torch", reason="torch is an extra")
    if file.stem == "zoo":
        pytest.importorskip("timm", reason="timm is no extra")
    definition = read_definition(file)

    assert definition.about
    assert definition.name == f"bench-{file.stem}"
    short = read_definition(file, short=True)
    assert len(list(short.cells())) <= len(list(definition.cells()))


def test_what_of_a_bench_is_in_python_is_described_in_one_of_its_files() -> None:
    texts = "".join(file.read_text(encoding="utf-8") for file in BENCHES.glob("*.toml"))
    assert all(f'"{file.stem}:' in texts for file in BENCHES.glob("*.py"))


# Operators: loops, models, and what they compute.


@pytest.mark.parametrize(
    ("peer", "name"),
    [("python", "correlation"), ("gcc", "durbin"), ("python", "floyd-warshall"), ("gcc", "gemm")],
)
def test_loops_mean_elsewhere_what_they_mean_here(name: str, peer: str) -> None:
    if peer == "gcc" and shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    program = oc.parse((SUITES / f"polybench/{name}.offcut").read_text())
    sizes = {size.name: 4 + k for k, size in enumerate(program.sizes)}
    task = Described(program, None, (), {"r": "small"}).task(sizes, 0)

    def plain(arrays: Sequence[Any], values: Mapping[str, int]) -> Callable[[], None]:
        scope: dict[str, Any] = {}
        exec(as_python(program), scope)
        return lambda: scope["run"](*arrays, *(values[size.name] for size in program.sizes))

    bound = plain if peer == "python" else compile_loops(peer, program)
    run, results = loops_call(bound, program, task.operands, sizes)
    for _ in range(2):
        run()

    for result, expected in zip(results, task.exact().values, strict=True):
        agree(result, expected, terms=64 * np.abs(expected).max())
    assert np.float64(2.0**-1060) * 1.0 == 2.0**-1060, "small numbers are not flushed to zero"


def test_inputs_that_are_called_as_parameters_are_these(tmp_path: Path) -> None:
    text = '[[operators]]\nop = "layernorm"\ninputs = {bias = "n", x = "m, n", gain = "n"}\nsizes = {m = [3], n = 8}\n'
    (operator,) = defined(tmp_path, HEAD + text + AUTO).operators
    task = operator.workload.task({"m": 3, "n": 8}, 0)
    arrays = {**task.operands, **task.constants}
    bias, x, gain = (arrays[name].astype("f8") for name in ("bias", "x", "gain"))
    assert [*task.operands] == ["x"]

    centred = x - x.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    (exact,) = task.exact().values
    agree(exact, centred / spread * gain + bias, terms=1.0)


def relu_of_product(onnx: Any, domain: str = "") -> bytes:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, kind, ["n", 8]) for name in "xy")
    weights = onnx.numpy_helper.from_array(np.full((8, 8), 1 / 3, np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Cast", ["z"], ["c"], to=kind),
        helper.make_node("Relu" if not domain else "NoSuch", ["c"], ["y"], domain=domain),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return model


def test_the_exact_result_of_a_file_is_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    found = exact_results(relu_of_product(onnx), {"x": x})
    assert found is not None
    (result,), by = found
    third = np.float64(np.float32(1 / 3))

    assert (result.dtype.name, by) == ("float64", "onnx's reference evaluator in float64")
    agree(result, np.maximum(x.astype(float).sum(1, keepdims=True) * third, 0) * np.ones((1, 8)))
    monkeypatch.setattr("offcut.studies.peers.onnx_reference.is_installed", lambda name: False)
    assert exact_results(relu_of_product(onnx, "own"), {"x": x}) is None


def test_a_function_gives_a_model_when_it_is_needed(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    (tmp_path / "model.onnx").write_bytes(relu_of_product(onnx))
    (tmp_path / "mine.py").write_text(
        "import onnx, pathlib\n"
        "def model(name):\n    return onnx.load(pathlib.Path(__file__).with_name(name))\n"
        "def number():\n    return 1\n"
    )
    text = '[[operators]]\nmodel = "mine:model"\narguments = {name = "model.onnx"}\nsizes = {n = [3]}\n'
    text += '[[operators]]\nmodel = "mine:number"\nsizes = {n = [3]}\n'
    good, bad = defined(tmp_path, HEAD + text + AUTO).operators

    task = good.workload.task({"n": 3}, 0)
    run, read = good.workload.compiled({"strategy": "auto"}).call(task)
    assert task.exact().mismatch(read(run())) == ""
    with pytest.raises(DescribeError) as refused:
        bad.workload.task({"n": 3}, 0)
    assert str(refused.value) == (
        "study: cannot take mine:number\n  because  it gave int\n"
        "  help     return an ONNX model\n  help     return module, inputs_of_sizes"
    )
    (tmp_path / "bad.onnx").write_text("no model\n")
    with pytest.raises(DescribeError) as refused:
        defined(tmp_path, HEAD + '[[operators]]\nmodel = "bad.onnx"\n' + AUTO)
    assert str(refused.value) == (
        "study: cannot read the study\n"
        "  at       study.toml, operator 1, model\n"
        "  because  bad.onnx is not an ONNX model\n"
        "  help     a file that onnx.save wrote, or another exporter"
    )


def test_rules_of_a_contender_rewrite_the_graph_of_a_model(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x, *results = (helper.make_tensor_value_info(name, kind, ["n", 32]) for name in "xyz")
    weights = [
        onnx.numpy_helper.from_array(np.full((32, 32), value, np.float32), name)
        for name, value in (("v", 0.5), ("w", 0.25))
    ]
    nodes = [helper.make_node("MatMul", ["x", weight], [result]) for weight, result in ("vy", "wz")]
    graph = helper.make_graph(nodes, "g", [x], results, weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "model.onnx")
    (tmp_path / "mine.py").write_text(
        "from offcut.graph import joined_products\nRULES = joined_products()[:2]\n"
    )
    operators = '[[operators]]\nmodel = "model.onnx"\nsizes = {n = [3]}\n'
    contenders = AUTO + '[[contenders]]\nrules = "mine:RULES"\n'
    definition = defined(tmp_path, HEAD + operators + contenders)
    task = definition.operators[0].workload.task({"n": 3}, 0)
    plain, ours = (one.ready(definition.operators[0], task) for one in definition.contenders)

    assert definition.contenders[1].name == "rules mine:RULES"
    assert set(definition.contenders[1].identity) == {"rules", "rule_digests", "threads"}
    assert task.exact().mismatch(ours.read(ours.run())) == ""
    assert plain.way == "offcut"
    assert re.fullmatch(r".+; predicted gain \d\.\d\d, \d+ graphs", ours.way)
    assert ours.predicted is not None


def test_rules_for_a_module_of_torch_need_its_graph() -> None:
    torch = pytest.importorskip("torch")
    workload = TorchWorkload(torch.nn.ReLU(), lambda n: (torch.ones(n, 8),), {})

    with pytest.raises(DescribeError) as refused:
        workload.compiled({"rules": []})
    assert str(refused.value) == (
        "study: cannot give rules= to a module of torch\n"
        "  because  torch runs what is not ours of a module, so that it has no graph of its own\n"
        '  help     frontend = "onnx"'
    )


# A module that is not installed is said once; the operators that need it are left out.

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
ABSENT = [
    "a_package_of_none is not installed (pip install a_package_of_none): 2 operators are left out: 0, 1",
    "another_of_none is not installed (pip install another_of_none): an operator is left out: 2",
]


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
    absent = operators(model, model, 'describe = "mine:described"\nsizes = {m = [1]}')
    definition = defined(folder, HEAD + absent + DENSE + AUTO)
    outcome = oc.study(definition.file, folder / "out")

    said = capfd.readouterr().err.splitlines()
    assert said == [f"offcut: study: {line}" for line in ABSENT]
    assert (outcome.measured, outcome.failed) == (2, 0)
    assert warnings(results_of(definition, {}), {})[:2] == ABSENT
    kept = defined(folder, HEAD + operators('model = "mine:optional"') + AUTO)
    assert ([one.name for one in kept.operators], kept.absent) == (["0"], ())


def test_a_study_none_of_whose_operators_stays_is_refused(folder: Path) -> None:
    described = 'describe = "mine:described"\nsizes = {m = [1]}'
    with pytest.raises(DescribeError) as refused:
        defined(folder, HEAD + operators(described) + AUTO)
    assert str(refused.value) == (
        "study: cannot read the study\n"
        "  at       study.toml\n"
        "  because  no operator can be measured\n"
        "  help     another_of_none is not installed (pip install another_of_none): an operator is left out: 0"
    )


@pytest.mark.parametrize("text", ["none:model", "mine:describes"])
def test_a_module_that_a_file_misspells_is_refused(folder: Path, text: str) -> None:
    own = f'describe = "{text}"\nsizes = {{m = [1]}}'
    with pytest.raises(DescribeError, match="ModuleNotFoundError: No module named"):
        defined(folder, HEAD + DENSE + operators(own) + AUTO)


def test_a_package_of_an_extra_is_installed_by_it(tmp_path: Path) -> None:
    (line,) = absent_lines([AbsentOperator("m", "onnx")])

    assert line == (
        'onnx is not installed (this needs the extra "onnx": pip install ".[onnx]" in the folder of offcut): '
        "an operator is left out: m"
    )
    assert missing_module(ModuleNotFoundError("x", name="offcut"), "mine:f") == ""
    assert missing_module(KeyError("x"), "mine:f") == ""
    if find_spec("openvino") is None:
        definition = defined(tmp_path, HEAD + DENSE + '[[contenders]]\npeer = "openvino"\n')
        task = definition.operators[0].workload.task({"m": 1, "k": 8, "n": 16}, 0)
        with pytest.raises(DescribeError, match="openvino is not installed"):
            definition.contenders[0].ready(definition.operators[0], task)


@pytest.mark.parametrize(
    ("package", "because", "help"),
    [
        (
            "openvino",
            "openvino is not installed",
            'this needs the extra "peers": pip install ".[peers]" in the folder of offcut',
        ),
        (
            "a_package_of_none",
            "ModuleNotFoundError: No module named 'a_package_of_none'",
            '"module:function", a file beside the study',
        ),
    ],
)
def test_a_file_of_ones_own_says_what_it_needs(
    tmp_path: Path, package: str, because: str, help: str
) -> None:
    if find_spec(package):
        pytest.skip(f"{package} is installed")
    (tmp_path / "own.py").write_text(f"import {package}\n")
    with pytest.raises(DescribeError) as refused:
        load_named("own:model", "offcut.operators", tmp_path, "study.toml, operator 1, model")

    assert str(refused.value) == (
        "study: cannot load 'own:model'\n"
        "  at       study.toml, operator 1, model\n"
        f"  because  {because}\n"
        f"  help     {help}"
    )
