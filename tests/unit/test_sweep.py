"""The sizes of a sweep, and the command's arguments, table and files."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import rejection
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from offcut.cli import take_extents
from offcut.core.extras import is_installed
from offcut.errors import DescribeError
from offcut.experiment import outputs
from offcut.experiment.sizes import sample
from offcut.studies.contraction import parse_contraction
from offcut.studies.errors import Place
from offcut.studies.peers import load_peers
from offcut.studies.sizes import read_values
from offcut.studies.sweep import sizes_of_texts
from tests.facade import app
from tests.problems import draw, make_problem


def extents(texts: list[str], points: int | None) -> dict[str, tuple[int, ...]]:
    """Return the extents that a study takes of what texts spell."""
    spelt = sizes_of_texts(texts, points)
    return {
        key: tuple(read_values(given, Place("sweep") / key, Path()).weights)
        for key, given in spelt.items()
    }


def test_sizes_are_a_range_or_a_list_and_several_share_the_points() -> None:
    for text, letters, values in (
        ("m=1:4", "m", (1, 2, 3, 4)),
        ("m = 2:9:3", "m", (2, 5, 8)),
        ("m=100,7,1,7", "m", (1, 7, 100)),
        ("m=5", "m", (5,)),
        ("ik=1:2", "i,k", (1, 2)),
    ):
        assert extents([text], 24) == {letters: values}
    assert extents(["m=1,2", "ik=3,4"], 24) == {"m": (1, 2), "i,k": (3, 4)}
    assert [len(values) for values in extents(["m=1:99", "n=1:99"], 25).values()] == [5, 5]


def test_a_long_range_is_sampled() -> None:
    values = extents(["m=1:512"], 24)["m"]

    assert values[:2] == (1, 3)
    assert (len(values), values[-1]) == (24, 512)
    assert sum(value % 2 for value in values) >= 12
    assert extents(["m=1:512"], None) == {"m": tuple(range(1, 513))}
    assert len(extents([f"m={','.join(map(str, range(1, 99)))}"], 24)["m"]) == 98


@given(st.integers(1, 100), st.integers(2, 1000), st.integers(1, 8), st.integers(2, 30))
def test_a_sample_ascends_has_both_ends_and_the_asked_length(
    first: int, count: int, step: int, points: int
) -> None:
    values = range(first, first + count * step, step)
    taken = sample(values, min(points, count))

    assert len(taken) == min(points, count)
    assert all(a < b for a, b in itertools.pairwise(taken))
    assert (taken[0], taken[-1]) == (values[0], values[-1])
    assert set(taken) <= set(values)


def test_sizes_that_cannot_be_read_are_refused() -> None:
    for text in ("1:512", "m=a", "m", "m=1,", "=7", "m=-1"):
        with rejection(
            "DescribeError: study: cannot read the sizes\n"
            f"  at       --sizes {text}\n"
            "  because  it is not an axis with a range or a list of whole numbers\n"
            "  help     m=1:512 or m=1:512:8 for a range, both ends included\n"
            "  help     m=1,7,100 for a list"
        ):
            sizes_of_texts([text], 24)


def swept(*more: str) -> Result:
    return CliRunner().invoke(app, ["sweep", "mk,kn->mn", *more])


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("m=1:512:", "'1:512:' is neither a range nor the name of a CSV file"),
        ("m=9:1", "'9:1' is empty: a range begins at its least size and advances"),
        ("m=1:9:0", "'1:9:0' is empty: a range begins at its least size and advances"),
        ("m=0:9", "0 is not a size: sizes are whole numbers from 1 to 2**31 - 1"),
        ("m=0", "0 is not a size: sizes are whole numbers from 1 to 2**31 - 1"),
    ],
)
def test_sizes_that_are_none_are_refused_as_a_study_refuses_them(text: str, because: str) -> None:
    first, at, reason, *_ = swept("--sizes", text, "--k", "3", "--n", "3").stderr.splitlines()

    assert first == "study: cannot read the study"
    assert at == "  at       sweep, operator 'float32 mk,kn->mn at k=3, n=3', sizes.m"
    assert reason == f"  because  {because}"


@pytest.mark.parametrize("second", ["m=3", "mn=3"])
def test_an_axis_swept_twice_is_refused(second: str) -> None:
    told = swept("--sizes", "m=1,2", "--sizes", second, "--k", "3").stderr
    assert "  because  the axis 'm' has sizes twice\n" in told


def test_a_sweep_of_strategies_that_are_none_is_refused() -> None:
    sizes = ["--sizes", "m=1", "--k", "3", "--n", "3"]
    done = swept(*sizes, "--strategies", ",")
    assert (done.exit_code, done.stderr) == (
        2,
        "sweep: cannot measure nothing\n  at       --strategies\n  because  it names none\n"
        "  help     --strategies auto,cut,ladder\n",
    )
    first, at, because, *help = swept(*sizes, "--strategies", "auto,best").stderr.splitlines()
    assert first == "study: cannot read the study"
    assert at == "  at       sweep, contender 2, strategy"
    assert because.startswith("  because  there is no 'best'; offcut has auto, balance, ")
    assert help == ['  help     "module:function", a file beside the study']


def test_the_picture_is_a_png_with_the_machine_in_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    path = tmp_path / "new" / "sweep.png"

    outputs.plot_lines(path, {"auto": [(1, 2), (4, 3)]}, title="t", x_label="m", footer="a machine")

    assert path.read_bytes().startswith(b"\x89PNG")
    assert b"a machine" in path.read_bytes()


def test_a_peer_that_is_not_installed_is_named_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "torch" else find(n))

    loaded = load_peers(["numpy", "torch", "torch.mm"])

    assert [peer.name for peer in loaded.available] == ["numpy"]
    assert loaded.missing == ("torch", "torch.mm")


@pytest.mark.parametrize("name", ["tvm", "torch.matmul", ""])
def test_an_unknown_peer_is_refused(name: str) -> None:
    with pytest.raises(DescribeError, match=f"there is no peer '{name}'"):
        load_peers([name])


@pytest.mark.parametrize("text", ["mk,nk->mn", "bij,bkj->bik", "mk,kn,nj->mj"])
def test_every_way_of_torch_computes_the_reference(text: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    contraction = parse_contraction(text)
    sizes = dict(zip("mknbij", (5, 48, 32, 2, 4, 3), strict=True))
    rng = np.random.default_rng(1)
    constants = {"B": draw(contraction.operands[1], sizes, rng)}
    loaded = load_peers(["torch"])
    problem = make_problem(contraction, sizes, constants)
    with loaded.session():
        ways = loaded.available[0].ways(problem)
        assert ways
        for way in ways:
            assert problem.reference().mismatch(way.read(way.run())) == "", way.name


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--k", "x"],
            "sweep: cannot read --k x\n  because  'x' is not a whole number from 0 on\n"
            "  help     --k 768",
        ),
        (
            ["--k"],
            "sweep: cannot read --k\n  because  there is no number\n  help     --k 768",
        ),
        (
            ["--k", "1", "--k=2"],
            "sweep: the axis 'k' has two sizes\n  at       --k 2\n  because  --k 1 came before\n"
            "  help     --sizes k=1,2 sweeps both",
        ),
    ],
)
def test_an_axis_needs_one_whole_number(arguments: list[str], text: str) -> None:
    assert take_extents(["a", "--k", "1", "--kind", "2"]) == ({"k": 1}, ["a", "--kind", "2"])

    with rejection(f"DescribeError: {text}"):
        take_extents(arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mk,kn", "--sizes", "m=1"], "it has no '->'"),
        (
            ["mk kn->mn", "--sizes", "m=1"],
            "'k k' has a blank between two axes: it could be a comma, or",
        ),
        (["mk,kn->mn", "--sizes", "m=1", "--k", "2"], "the axis 'n' has no size"),
        (["m,n->mn", "--sizes", "m=1", "--m", "2"], "the axis 'm' is fixed to 2 and swept as well"),
        (["mk,kn->mn", "--sizes", "m=1", "--k", "two"], "'two' is not a whole number from 0 on"),
    ],
)
def test_the_command_prints_a_refusal_and_exits_with_2(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["sweep", *arguments])

    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output


def run_command(tmp_path: Path, against: str = "numpy", *more: str) -> Result:
    options = ["--k", "6", "--n=4", "--points", "4", "--budget", "0.001", "--strategies", "cut"]
    options += ["--against", against, "--out", str(tmp_path / "out"), *more]
    return CliRunner().invoke(app, ["sweep", "mk,kn->mn", "--sizes", "m=1:40", *options])


def test_the_command_prints_rows_and_writes_a_study_s_folder_which_it_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the time is over, no size is begun; the same command goes on with what is measured."""
    monkeypatch.setattr("offcut.studies.progress.LINE_SECONDS", 3600.0)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "torch" else find(n))
    csv = tmp_path / "out" / "cells.csv"

    first = run_command(tmp_path, "numpy,torch", "--seconds", "0")
    assert first.exit_code == 0, first.output
    assert "3 of 4 rows are not measured: the seconds are over" in first.stdout
    assert "2 cells measured, 0 kept" in first.stdout
    assert csv.read_text().count(",numpy,") == 1

    result = run_command(tmp_path, "numpy,torch")
    assert result.exit_code == 0, result.output
    assert "float32 mk,kn->mn at k=6, n=4" in result.stdout
    assert "cut over the best peer: geometric mean" in result.stdout
    assert "missing: torch is not installed" in result.stdout
    assert "6 cells measured, 2 kept" in result.stdout
    written = csv.read_text()
    assert written.startswith("# study sweep\n# machine: ")
    assert written.count(",numpy,") == written.count(",cut,") == 4
    assert (tmp_path / "out" / "speed_0.png").exists() == is_installed("matplotlib")
    told = [
        re.sub(r"(cut|numpy) [\d.]+", r"\1 #", line)
        for line in (first.stderr + result.stderr).splitlines()
    ]
    assert told == [
        f"offcut: sweep: m={m}, k=6, n=4: cut #, numpy # GFLOP/s" for m in (1, 3, 11, 40)
    ]


def test_the_command_reports_wrong_values_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "def wrong(inputs, sizes):\n    return lambda: inputs['A'] @ inputs['B'] + 1\n"
    )
    monkeypatch.chdir(tmp_path)

    result = run_command(tmp_path, "numpy,mine:wrong")

    assert result.exit_code == 1
    said = r"m=1, k=6, n=4 mine:wrong.*: wrong values: \d of 4 elements are off; "
    assert re.search(said, result.stdout)
