"""Studies: what a file says, what its folder holds, what is measured anew, what figures mean; errors are in tests/errors."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut.errors import DescribeError
from offcut.experiment.timing import Ratio, Timing, median_interval, paired_ratio
from offcut.studies import compare
from offcut.studies.definition import Definition, read_definition
from offcut.studies.environment import digest, read_environments, write_environment
from offcut.studies.offcut_operators import Described
from offcut.studies.peers.loops import as_python, compile_loops, loops_call
from offcut.studies.report import warnings
from offcut.studies.results import results_of
from offcut.studies.run import missing_groups
from offcut.studies.samples import FILE, Sample, append_samples, read_samples
from offcut.studies.statistics import geometric_mean, percentiles, profile, ratio, regret
from offcut.studies.suites import FOLDER as SUITES
from offcut.studies.suites import suites
from offcut.studies.tasks import Exact
from offcut.studies.user_objects import load_named
from tests.agree import agree

HEAD = '[study]\nname = "small"\nseconds_per_cell = 0.002\nrounds = 3\nprocesses = 1\n'
DENSE = '[[operators]]\neinsum = "mk,kn->mn"\nsizes = {m = [1, 3], k = 8, n = 16}\n'
AUTO = '[[contenders]]\nstrategy = "auto"\n'
NUMPY = '[[contenders]]\npeer = "numpy"\n'


SEVERAL = tuple(range(7))
"""The processes of seven rounds, one each."""


def written(folder: Path, text: str) -> Path:
    """Return the file of a study of this text."""
    file = folder / "study.toml"
    file.write_text(text)
    return file


def defined(folder: Path, text: str) -> Definition:
    """Return what a file of this text says."""
    return read_definition(written(folder, text))


def sampled(cell: str, seconds: tuple[float, ...], **more: object) -> Sample:
    """Return a sample of these seconds."""
    blank = Sample(cell, "dense", {"m": 1}, "auto", seconds, 1)
    return replace(blank, **more)  # type: ignore[arg-type]


def test_a_cell_that_fails_in_the_second_folder_is_named(tmp_path: Path) -> None:
    sample = Sample("cell", "dense", {"m": 3}, "auto", (1.0, 1.0, 1.0), 1)
    other = replace(sample, cell="other")
    for name, cell in (("a", sample), ("b", replace(sample, seconds=(), failed="wrong values"))):
        (tmp_path / name).mkdir()
        append_samples(tmp_path / name / FILE, [cell])
        append_samples(tmp_path / name / FILE, [other])

    comparison = compare(tmp_path / "a", tmp_path / "b")
    assert comparison.failed == ("dense m=3 auto: wrong values",)
    assert "failed in the second  dense m=3 auto: wrong values" in str(comparison)
    assert comparison.alone == (0, 0)


def test_the_mean_of_each_contender_is_said(tmp_path: Path) -> None:
    sizes = range(3, 7)
    for name, seconds in (("a", 1.0), ("b", 1.5)):
        (tmp_path / name).mkdir()
        samples = [
            Sample(f"{who}{m}", "dense", {"m": m}, who, (time,) * 21, 1, turns=f"{name}{m}")
            for m in sizes
            for who, time in (("mine", seconds), ("auto", 1.0))
        ]
        append_samples(tmp_path / name / FILE, samples)

    comparison = compare(tmp_path / "a", tmp_path / "b")
    assert {name: one.count for name, one in comparison.means.items()} == {"mine": 4, "auto": 4}
    lines = str(comparison).splitlines()
    assert lines[-2].startswith("  mine, 4 cells: 0.667 (")
    assert lines[-2].endswith("): slower")
    assert lines[-1].startswith("  auto, 4 cells: 1.000 (")
    assert lines[-1].endswith("): same")


def test_cells_that_changed_with_a_file_are_compared_by_their_names(tmp_path: Path) -> None:
    mine = Sample("before", "dense", {"m": 3}, "mine", (1.0,) * 9, 1)
    after = replace(mine, cell="after", seconds=(2.0,) * 9)
    gone = replace(mine, cell="gone", sizes={"m": 4})
    for name, samples in (("a", (mine, gone)), ("b", (after,))):
        (tmp_path / name).mkdir()
        append_samples(tmp_path / name / FILE, samples)

    comparison = compare(tmp_path / "a", tmp_path / "b")
    (change,) = comparison.changes
    assert (change.label, change.verdict) == ("dense m=3 mine", "slower")
    assert (comparison.by_name, comparison.alone) == (("dense m=3 mine",), (1, 0))
    lines = str(comparison).splitlines()
    assert "compared by name, since what they measure differs (1): dense m=3 mine" in lines
    assert "cells of the first alone (1): dense m=4 mine" in lines


def test_what_a_file_of_ones_own_imports_is_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import beside\nmodel = beside.model\n")
    digests = []
    for text in ("model = 1\n", "model = 2\n"):
        (tmp_path / "beside.py").write_text(text)
        digests.append(load_named("own:model", "offcut.operators", tmp_path, "at").digest)

    assert digests[0] != digests[1]


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the pictures of reports, which take a second each."""
    monkeypatch.setattr("offcut.studies.report.is_installed", lambda name: False)


@pytest.mark.usefixtures("no_pictures")
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
    assert {one.contender: one.predicted is None for one in samples} == {
        "auto": False,
        "numpy": True,
    }
    (environment,) = (out / "environments").glob("*.json")
    assert {one.environment for one in samples} == {environment.stem}
    facts = json.loads(environment.read_text())
    assert {
        "cpu",
        "commit",
        "dirty",
        "llvm",
        "libraries",
        "governor",
        "seed",
        "command",
    } <= facts.keys()
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


@pytest.mark.usefixtures("no_pictures")
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


def test_equal_contenders_are_measured_each(tmp_path: Path) -> None:
    again = AUTO.replace("strategy", 'name = "again"\nstrategy')
    cells = [cell for *_, cell in defined(tmp_path, HEAD + DENSE + AUTO + again).cells()]

    assert len(set(cells)) == 4


def test_what_is_ones_own_competes(tmp_path: Path) -> None:
    from offcut.studies.template import write_template

    folder = write_template(tmp_path / "mine")
    definition = read_definition(folder / "study.toml", 0.001)
    (contender,) = (one for one in definition.contenders if one.name == "mine or ladder")
    task = definition.operators[0].workload.task({"m": 5, "k": 256, "n": 320}, 0)
    ready = contender.ready(definition.operators[0], task)

    assert task.exact().error(ready.read(ready.run())) < 1e-5
    assert [one.identity.get("strategy_digests") for one in definition.contenders][1]


def test_another_text_of_a_file_of_ones_own_is_another_cell(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def dot(inputs, sizes):\n    return None\n")
    text = HEAD + DENSE + '[[contenders]]\npeer = "other:dot"\n'
    before = [cell for *_, cell in defined(tmp_path, text).cells()]
    (tmp_path / "other.py").write_text("def dot(inputs, sizes):\n    return 1\n")
    after = [cell for *_, cell in defined(tmp_path, text).cells()]

    assert not set(before) & set(after)


def test_a_line_that_was_cut_short_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / FILE
    append_samples(file, [sampled("a", (1.0,))])
    append_samples(file, [sampled("b", (2.0,))])
    whole = file.read_bytes()
    end = whole.index(b"\n")
    for cut in (0, 1, end // 2, end, end + 1, end + 2, len(whole) - 1, len(whole)):
        file.write_bytes(whole[:cut])
        known = read_samples(file)
        append_samples(file, [sampled("c", (3.0,))])
        after = read_samples(file)
        assert set(after) == {*known, "c"}
        assert ("a" in known, "b" in known) == (cut > end, cut == len(whole))
        assert all(line.startswith(b"{") for line in file.read_bytes().splitlines())


def test_the_interval_of_a_median_is_that_of_paired_ratios() -> None:
    values = [float(k) for k in range(1, 22)]
    one, other = Timing(tuple(values), 1), Timing((1.0,) * 21, 1)

    paired = paired_ratio(one, other)
    assert median_interval(values) == (paired.low, paired.high)
    assert median_interval(values[:5]) == (1.0, 5.0)


def test_a_loaded_machine_widens_intervals() -> None:
    values = [float(k) for k in range(1, 22)]
    widths = [
        high - low for low, high in (median_interval(values, share) for share in (1.0, 0.6, 0.2))
    ]

    assert widths == sorted(widths)
    assert widths[0] < widths[2] == 20.0


def test_ratios_pair_rounds_only_of_those_that_took_turns() -> None:
    rising = tuple(float(k) for k in range(1, 12))
    twice = tuple(2 * one for one in rising)
    together = ratio(sampled("a", twice, turns="t"), sampled("b", rising, turns="t"))
    apart = ratio(sampled("a", twice, turns="t"), sampled("b", rising, turns="u"))

    assert (together.value, together.low, together.high) == (2.0, 2.0, 2.0)
    assert apart.value == 2.0
    assert apart.low < 2.0 < apart.high


def test_figures_are_those_of_their_definitions() -> None:
    mean = geometric_mean([Ratio(2, 1, 4), Ratio(8, 4, 16)], [1, 1])
    assert mean is not None
    agree(np.array(mean.ratio.value), np.array(4.0))
    half = math.log(2) / math.sqrt(2)
    agree(np.array(math.log(mean.ratio.high / mean.ratio.value)), np.array(half))
    assert percentiles([(1.0, 0.5), (2.0, 0.4), (3.0, 0.1)]) == {50: 1.0, 90: 2.0, 95: 3.0, 99: 3.0}
    found = regret({"a": 2.0, "b": 3.0}, {"a": 1.0, "b": 3.0}, {"a": 1.0, "b": 3.0})
    assert found is not None
    assert (found.mean, found.worst, found.at) == (0.25, 1.0, "a")
    curves = profile({"x": {"a": 1.0, "b": 4.0}, "y": {"a": 2.0, "b": 2.0}})
    assert curves["x"] == [(1.0, 0.5), (2.0, 1.0), (16.0, 1.0)]
    assert curves["y"] == [(1.0, 0.5), (2.0, 1.0), (16.0, 1.0)]


def test_an_error_is_a_part_of_the_largest_element() -> None:
    exact = Exact((np.array([1.0, -4.0]),), 0.1, "hand")

    assert exact.error((np.array([1.0, -4.0]),)) == 0.0
    assert exact.error((np.array([1.0, -3.0]),)) == 0.25
    assert exact.error((np.array([np.nan, -4.0]),)) == math.inf
    assert exact.error((np.zeros(3),)) == math.inf


@pytest.mark.parametrize(("loss", "verdict"), [(1.05, "slower"), (1.0, "same"), (0.9, "faster")])
def test_two_folders_are_compared_beyond_noise(tmp_path: Path, loss: float, verdict: str) -> None:
    rng = np.random.default_rng(0)
    for folder, factor in (("a", 1.0), ("b", loss)):
        (tmp_path / folder).mkdir()
        for cell in range(6):
            seconds = tuple(factor * (1 + 0.01 * rng.random(21)) * 1e-5)
            append_samples(tmp_path / folder / FILE, [sampled(f"{cell}", seconds, predicted=1e-5)])
            peers = tuple((1 + 0.01 * rng.random(21)) * 2e-5)
            peer = sampled(f"peer {cell}", peers, contender="numpy", peer=True)
            append_samples(tmp_path / folder / FILE, [peer])
    comparison = compare(tmp_path / "a", tmp_path / "b")

    assert {one.verdict for one in comparison.changes} == {verdict}
    assert len(comparison.changes) == 6
    assert comparison.drift is not None


def test_what_peers_stray_is_noise(tmp_path: Path) -> None:
    for folder, strayed in (("a", 1.0), ("b", 1.1)):
        (tmp_path / folder).mkdir()
        for cell in range(10):
            factor = strayed if cell % 2 else 1 / strayed
            one = sampled(f"{cell}", (factor,) * 9, contender="numpy", peer=True)
            append_samples(tmp_path / folder / FILE, [one])
        for cell, loss in (("few", strayed**0.5), ("more", strayed**3)):
            append_samples(tmp_path / folder / FILE, [sampled(cell, (loss,) * 9)])
    comparison = compare(tmp_path / "a", tmp_path / "b")

    agree(np.array(comparison.margin), np.array(0.1))
    assert [one.verdict for one in comparison.changes] == ["same", "slower"]
    assert "changed by up to 10% without a cause" in str(comparison)


def test_an_environment_is_whole_or_refused(tmp_path: Path) -> None:
    facts = {"machine": "m", "cpu": "c", "commit": "", "dirty": False, "libraries": {}}
    write_environment(tmp_path, "one", facts)

    assert read_environments(tmp_path, ["one", "one", "none"]) == [facts]
    (tmp_path / "environments" / "one.json").write_text('{"machine": ')
    with pytest.raises(DescribeError, match="remove it: the samples stay"):
        read_environments(tmp_path, ["one"])


@pytest.mark.usefixtures("no_pictures")
def test_a_model_of_a_file_is_measured(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 8])
        for name in ("x", "y")
    )
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    models = (
        '[[operators]]\nmodel = "m.onnx"\nsizes = {batch = [1, 3]}\n'
        '[[operators]]\nname = "other"\nmodel = "m.onnx"\nsizes = {lines = [1]}\n'
    )
    oc.study(written(tmp_path, HEAD + models + AUTO), tmp_path / "out")

    good, same, bad = read_samples(tmp_path / "out" / FILE).values()
    assert [good.failed, same.failed, good.error] == ["", "", 0.0]
    assert good.predicted is not None
    assert bad.failed == "study: cannot measure m.onnx, because its size 'batch' has no value"


@pytest.mark.slow
def test_a_module_of_torch_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def model():\n    return torch.nn.Linear(8, 4), lambda n: (torch.randn(n, 8),)\n"
    )
    model = '[[operators]]\nmodel = "mine:model"\nsizes = {n = [1, 3]}\n'
    torch = '[[contenders]]\npeer = "torch"\n'
    oc.study(written(tmp_path, HEAD + model + AUTO + torch), tmp_path / "out")

    samples = read_samples(tmp_path / "out" / FILE).values()
    assert [one.failed for one in samples] == [""] * 4
    assert [one.predicted is None for one in samples] == [False, True] * 2


def test_a_peer_that_is_not_installed_is_named(tmp_path: Path) -> None:
    peer = '[[contenders]]\npeer = "openvino"\n'
    definition = defined(tmp_path, HEAD + DENSE + peer)
    if find_spec("openvino") is not None:
        pytest.skip("openvino is installed")
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


def test_every_suite_has_a_source_and_operators_that_are_described() -> None:
    for suite in suites():
        assert suite.source
        assert suite.about
        names = [one["name"] for one in suite.operators]
        assert len(set(names)) == len(names)


def test_results_are_by_the_cells_of_the_file(tmp_path: Path) -> None:
    definition = defined(tmp_path, HEAD + DENSE + AUTO + NUMPY)
    samples = {
        cell: Sample(
            cell, operator.name, point.sizes, one.name, (2.0 if one.is_peer else 1.0,) * 7, 1
        )
        for operator, point, one, cell in definition.cells()
    }
    results = results_of(definition, {**samples, "other": sampled("other", (1.0,))})

    assert len(results.rows) == 2
    assert [row.over("numpy", "auto") for row in results.rows] == [Ratio(0.5, 0.5, 0.5)] * 2
    assert missing_groups(definition, samples, retry=False) == []
    left = dict(itertools.islice(samples.items(), 1))
    assert sum(len(group.cells) for group in missing_groups(definition, left, retry=False)) == 3


def test_a_report_warns_of_two_clocks(tmp_path: Path) -> None:
    definition = defined(tmp_path, HEAD + DENSE + AUTO + NUMPY)
    samples = {
        cell: sampled(
            cell, (1.0,) * 7, clock="wall" if one.is_peer else "processor time", process=SEVERAL
        )
        for _, _, one, cell in definition.cells()
    }

    (said,) = warnings(results_of(definition, samples), samples)
    assert said.startswith("in 2 of 2 rows some were timed by the wall and others by processor")


OTHER_SIZES = [DENSE.replace("k = 8", "k = [8, 9]"), DENSE + "bounds = {m = 4}\n"]


@pytest.mark.parametrize("other", OTHER_SIZES)
def test_a_kernel_of_other_sizes_has_other_cells(tmp_path: Path, other: str) -> None:
    texts = DENSE + "constants = []\n", other + "constants = []\n"
    cells = [
        {cell for *_, cell in read_definition(written(tmp_path, HEAD + text + AUTO)).cells()}
        for text in texts
    ]

    assert len(cells[0]) == 2 <= len(cells[1])
    assert cells[0].isdisjoint(cells[1])


def test_equal_operators_are_measured_each(tmp_path: Path) -> None:
    text = HEAD + DENSE + DENSE + 'name = "again"\n' + DENSE + 'name = "third"\n' + AUTO
    text += "".join(f'{AUTO}name = "{name}"\n' for name in ("b", "c"))
    cells = [cell for *_, cell in read_definition(written(tmp_path, text)).cells()]

    assert len(cells) == len(set(cells)) == 3 * 2 * 3


def test_a_digest_is_of_the_content_alone() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})


@pytest.mark.parametrize("name", ["gemm", "correlation", "durbin", "floyd-warshall"])
@pytest.mark.parametrize("peer", ["python", "gcc"])
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
    assert (
        np.float64(2.0**-1060) * 1.0 == 2.0**-1060
    )  # small numbers are not flushed to zero from here on


def test_inputs_that_are_called_as_parameters_are_these(tmp_path: Path) -> None:
    text = '[[operators]]\nop = "layernorm"\ninputs = {bias = "n", x = "m, n", gain = "n"}\nsizes = {m = [3], n = 8}\n'
    definition = defined(tmp_path, HEAD + text + AUTO)
    (operator,) = definition.operators
    task = operator.workload.task({"m": 3, "n": 8}, 0)
    arrays = {**task.operands, **task.constants}
    bias, x, gain = (arrays[name].astype("f8") for name in ("bias", "x", "gain"))
    assert [*task.operands] == ["x"]

    centred = x - x.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    (exact,) = task.exact().values
    agree(exact, centred / spread * gain + bias, terms=1.0)
