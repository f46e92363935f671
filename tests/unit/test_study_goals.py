"""The goals of a study, its limits, its lock, what is left out for its pace; and models and functions of one's own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut.errors import DescribeError, OffcutError
from offcut.experiment.limits import Bound
from offcut.studies.definition import Definition, read_definition
from offcut.studies.errors import Place
from offcut.studies.folder import locked
from offcut.studies.goals import Goal
from offcut.studies.groups import measure_group
from offcut.studies.models import TorchWorkload
from offcut.studies.peers.onnx_reference import exact_results
from offcut.studies.results import results_of
from offcut.studies.rows import Row
from offcut.studies.run import missing_groups, run_study
from offcut.studies.samples import Sample
from offcut.studies.sizes import axes_of, points_of, read_values
from offcut.studies.tables import rows_table, tables
from offcut.studies.tasks import at_page_offset
from tests.agree import agree

BENCHES = Path(__file__).parents[2] / "studies" / "bench"
HEAD = '[study]\nname = "small"\nseconds_per_cell = 0.002\nrounds = 3\nprocesses = 1\n'
DENSE = '[[operators]]\neinsum = "mk,kn->mn"\nsizes = {m = [1, 3, 5, 9], k = 8, n = 16}\n'
AUTO = '[[contenders]]\nstrategy = "auto"\n'


def defined(folder: Path, text: str) -> Definition:
    (folder / "study.toml").write_text(text)
    return read_definition(folder / "study.toml")


def row(operator: str, m: int, **seconds: float) -> Row:
    """A row of offcut's contenders, and of peers, whose names begin with p; 1000 operations, a limit of a second."""
    blank = Sample("", operator, {"m": m}, "", (), 1, flop=1000 * m, limit=1.0, limit_by="fma")
    samples = {
        name: replace(blank, contender=name, seconds=(one,) * 7, turns="t", peer=name[0] == "p")
        for name, one in seconds.items()
    }
    return Row(operator, f"m={m}", samples, {"m": m})


ROWS = (row("x", 1, a=2.0, b=1.6, p=6.0, p2=4.0), row("x", 4, a=8.0, b=9.0, p=4.0, p2=5.0))


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
        (Goal(("a",), operators="y", mean=1.0), []),
    ],
)
def test_a_goal_is_compared_with_measured_rows(
    goal: Goal, lines: list[tuple[str, str, str, str]]
) -> None:
    found = [tuple(part.split(" (")[0] for part in line) for line in goal.lines(ROWS)]

    assert found == lines


def test_many_contenders_stand_one_below_the_other(tmp_path: Path) -> None:
    names = ("guard", "cut", "mask", "pad", "shift", "ladder", "balance", "even", "residue")
    for count in (8, 9):
        each = f"[[contenders]]\neach = {{strategy = {[*names[:count]]}}}\n"
        results = results_of(defined(tmp_path, HEAD + DENSE + AUTO + each), {})
        speed = next(one for one in tables(results) if one.name == "speed")
        if count == 8:
            assert speed.columns == ("operator", *names[:8])
            assert [row[0] for row in speed.rows] == ["mk,kn->mn"]
        else:
            assert speed.columns == ("contender", "mk,kn->mn")
            assert [row[0] for row in speed.rows] == [*names]


def test_a_contender_that_a_file_keeps_out_of_an_operator_is_missed_nowhere(tmp_path: Path) -> None:
    wide = DENSE.replace("[[operators]]", '[[operators]]\nname = "wide"')
    other = '[[contenders]]\npeer = "numpy"\nonly = "^wide$"\n'
    definition = defined(tmp_path, HEAD + DENSE + wide + AUTO.rstrip() + '\nonly = "->"\n' + other)
    (goal,) = definition.goals

    rows = results_of(definition, {}).rows
    assert {row.operator: row.cells for row in rows} == {"mk,kn->mn": ("auto",), "wide": ("numpy",)}
    assert [line[2:] for line in goal.lines(rows)] == [
        ("4", "; ".join(f"mk,kn->mn m={m}, k=8, n=16" for m in (1, 3, 5, 9)))
    ]


def test_an_operator_is_compared_with_another_at_the_same_sizes() -> None:
    rows = (row("all", 1, a=4.0), row("causal", 1, a=1.0), row("causal", 2, a=1.0))
    (line,) = Goal(("a",), operators="causal", reference="all", worst=1.6).lines(rows)

    assert line == (
        "a over all, causal: the least",
        "≥ 1.6",
        "4.000 (4.000–4.000)",
        "causal m=1, all m=1",
    )


def test_rows_have_rates_limits_and_the_ratio_to_the_best_peer() -> None:
    table = rows_table(ROWS[:1], "a", ("a", "b", "p", "none"))
    (line,) = table.rows

    assert table.columns[-5:] == ("a over the best peer", "limit", "by", "of it", "spread")
    assert line[:3] == ("x", "m=1", "GFLOP/s")
    assert line[3:7] == ("5e-07", "6.25e-07", "1.67e-07", "–")
    assert line[7:] == ("2.000 (2.000–2.000)", "1e-06", "fma", "50%", "0%")


def test_axes_that_are_named_together_have_one_extent() -> None:
    at = Place("s.toml") / "sizes"
    values = {key: read_values(x, at, Path()) for key, x in {"i, j": [5, 9], "d": 64}.items()}

    assert list(axes_of(values, at)) == ["i", "j", "d"]
    assert [point.sizes for point in points_of(values)] == [
        {"i": 5, "j": 5, "d": 64},
        {"i": 9, "j": 9, "d": 64},
    ]


def test_a_short_form_that_no_file_describes_takes_three_rows_and_names_choose(
    tmp_path: Path,
) -> None:
    definition = defined(tmp_path, HEAD + DENSE + AUTO)
    short = read_definition(definition.file, short=True)

    assert [point.sizes["m"] for _, point, *_ in short.cells()] == [1, 5, 9]
    assert short.seconds <= 0.04
    assert len(list(definition.select_rows("m=(3|5),").cells())) == 2
    with pytest.raises(DescribeError) as refused:
        definition.select_rows("m=4,")
    assert str(refused.value) == (
        "study: cannot measure nothing\n"
        "  because  no row matches 'm=4,'; the first is mk,kn->mn m=1, k=8, n=16"
    )


def test_a_folder_is_measured_into_by_one_at_a_time(tmp_path: Path) -> None:
    import os

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
    monkeypatch.setattr("offcut.studies.progress.LINE_SECONDS", 3600.0)
    out = tmp_path / "out"
    code = (
        "import os, signal, sys, pathlib\nfrom offcut.studies.folder import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(out)])
    assert process.wait() == -signal.SIGKILL
    definition = defined(tmp_path, HEAD + DENSE.replace("[1, 3, 5, 9]", "[3]") + AUTO)
    capfd.readouterr()
    for said in (
        f"offcut: study: the process {process.pid}, which measured into {out}, was killed: its samples are kept\n",
        "",
    ):
        run_study(definition, out, report=False)
        assert capfd.readouterr().err == said


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
    text = HEAD + "limits = true\n" + DENSE.replace("[1, 3, 5, 9]", "[3]") + AUTO
    definition = defined(tmp_path, text)
    (group,) = missing_groups(definition, {}, retry=False)
    (sample,) = measure_group(definition, group, Known(1))  # type: ignore[arg-type]
    rows: list[Row] = []
    out = tmp_path / "out"
    outcome = run_study(definition, out, tell=rows.append, report=False)
    again = run_study(definition, out, again=True, report=False)

    assert (sample.limit, sample.limit_by) == (2.0, "fma")
    (sample,) = rows[0].samples.values()
    assert sample.limit > 0
    assert [outcome.measured, again.measured, again.kept] == [1, 1, 0]
    assert outcome.tables["rows"].columns[-4:] == ("limit", "by", "of it", "spread")


def test_no_row_is_begun_once_the_time_is_over(tmp_path: Path) -> None:
    outcome = run_study(
        defined(tmp_path, HEAD + DENSE + AUTO), tmp_path / "out", seconds=0.0, report=False
    )

    assert (outcome.measured, outcome.left) == (1, 3)


def test_a_contender_whose_call_would_last_too_long_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def never(inputs, sizes):\n    raise KeyError('it was called')\n"
    )
    own = '[[contenders]]\nfunction = "mine:never"\n'
    definition = defined(tmp_path, HEAD + "patience = 0.5\n" + DENSE + own)
    (group, *_) = missing_groups(definition, {}, retry=False)
    (sample,) = measure_group(definition, group, rates={"mine:never": 100.0})

    assert (
        sample.failed
        == "a call is expected to last longer than 0.5 s, by its rate in the rows before"
    )
    assert not sample.peer


def test_arrays_lie_apart_in_their_pages() -> None:
    made = [at_page_offset(np.arange(5, dtype="f4"), number) for number in range(4)]

    assert [one.ctypes.data % 4096 for one in made] == [0, 832, 1664, 2496]
    agree(made[3], np.arange(5.0))


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


def test_a_file_that_is_no_model_is_refused_as_the_study_is_read(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
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


@pytest.mark.slow
def test_a_machine_that_is_simulated_is_timed_by_its_simulator(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import offcut as oc\n"
        "def dense(n):\n"
        "    x, w = oc.placeholder((n, 16), 'int8', 'X'), oc.placeholder((16, 16), 'int8', 'W')\n"
        "    return oc.ops.requantize(oc.ops.dense(x, w, name='S'), 6, name='Y'), [x, w]\n"
    )
    dense = '[[operators]]\ndescribe = "mine:dense"\nsizes = {n = [3]}\n'
    rows: list[Row] = []
    definition = defined(tmp_path, HEAD + dense + '[[contenders]]\ntarget = "vta"\n')
    run_study(definition, tmp_path / "out", tell=rows.append, report=False)

    (sample,) = rows[0].samples.values()
    assert (sample.failed, sample.clock, len(sample.seconds)) == ("", "simulated", 1)
    kernel = definition.operators[0].workload.compiled({"target": "vta"}).kernel  # type: ignore[attr-defined]
    agree(np.array(sample.seconds[0]), np.array(kernel.timeline(n=3).seconds))
    assert oc.target("vta").is_simulator


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

    for file in BENCHES.glob("*.py"):
        assert f'"{file.stem}:' in texts
