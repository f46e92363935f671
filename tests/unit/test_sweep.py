"""The sizes of a sweep, and the command's arguments, table and files."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from offcut.cli import take_extents
from offcut.core.extras import is_installed
from offcut.errors import DescribeError
from offcut.experiment import plots
from offcut.experiment.contraction import parse_contraction
from offcut.experiment.peers import load_peers
from offcut.experiment.sizes import sample
from offcut.studies.sweep import read_sizes
from tests.facade import app
from tests.problems import draw, make_problem


@pytest.mark.parametrize(
    ("text", "letters", "values"),
    [
        ("m=1:4", "m", (1, 2, 3, 4)),
        ("m = 2:9:3", "m", (2, 5, 8)),
        ("m=100,7,1,7", "m", (1, 7, 100)),
        ("m=5", "m", (5,)),
        ("ik=1:2", "ik", (1, 2)),
    ],
)
def test_sizes_are_a_range_or_a_list(text: str, letters: str, values: tuple[int, ...]) -> None:
    assert read_sizes([text], 24) == {letters: values}


def test_a_long_range_is_sampled() -> None:
    values = read_sizes(["m=1:512"], 24)["m"]

    assert values[:2] == (1, 3)
    assert (len(values), values[-1]) == (24, 512)
    assert sum(value % 2 for value in values) >= 12
    assert read_sizes(["m=1:512"], None) == {"m": tuple(range(1, 513))}
    assert len(read_sizes([f"m={','.join(map(str, range(1, 99)))}"], 24)["m"]) == 98


@pytest.mark.parametrize("first", [1, 2, 7, 100])
@pytest.mark.parametrize("count", [2, 3, 30, 1000])
@pytest.mark.parametrize("step", [1, 2, 8])
@pytest.mark.parametrize("points", [2, 3, 24, 30])
def test_a_sample_ascends_has_both_ends_and_the_asked_length(
    first: int, count: int, step: int, points: int
) -> None:
    values = range(first, first + count * step, step)
    points = min(points, count)

    taken = sample(values, points)

    assert len(taken) == points
    assert all(a < b for a, b in itertools.pairwise(taken))
    assert (taken[0], taken[-1]) == (values[0], values[-1])
    assert set(taken) <= set(values)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("1:512", "it does not begin with an axis and '=', such as m="),
        ("m=1:512:", "'1:512:' is neither a range nor a list of whole numbers from 0 on"),
        ("m=a", "'a' is neither a range nor a list of whole numbers from 0 on"),
        ("m=9:1", "the range ends at 1, before its start 9"),
        ("m=1:9:0", "the range does not advance: its step is 0"),
        ("m=0:9", "size 0 has no work to time"),
    ],
)
def test_sizes_that_cannot_be_read_are_refused(text: str, because: str) -> None:
    with pytest.raises(DescribeError) as refused:
        read_sizes([text], 24)

    assert str(refused.value) == (
        "sweep: cannot read the sizes\n"
        f"  at       --sizes {text}\n"
        f"  because  {because}\n"
        "  help     m=1:512 or m=1:512:8 for a range, both ends included\n"
        "  help     m=1,7,100 for a list"
    )


def test_several_ranges_share_the_points() -> None:
    assert read_sizes(["m=1,2", "ik=3,4"], 24) == {"m": (1, 2), "ik": (3, 4)}
    assert [len(values) for values in read_sizes(["m=1:99", "n=1:99"], 25).values()] == [5, 5]


def test_an_axis_swept_twice_is_refused() -> None:
    with pytest.raises(DescribeError) as refused:
        read_sizes(["m=1,2", "mn=3"], 24)
    assert (
        str(refused.value)
        == """\
sweep: the axis 'm' is swept twice
  at       --sizes mn=3
  because  --sizes m=1,2 has it too
  help     --sizes m=1,7,100: all of its sizes at once"""
    )


def test_a_sweep_of_no_strategies_is_refused() -> None:
    sizes = ["--sizes", "m=1", "--k", "3", "--n", "3"]
    done = CliRunner().invoke(app, ["sweep", "mk,kn->mn", *sizes, "--strategies", ","])
    assert (done.exit_code, done.stderr) == (
        2,
        "sweep: cannot measure nothing\n  at       --strategies\n  because  it names none\n"
        "  help     --strategies auto,cut,ladder\n",
    )


def test_the_picture_is_a_png_with_the_machine_in_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    path = tmp_path / "new" / "sweep.png"

    plots.plot_lines(path, {"auto": [(1, 2), (4, 3)]}, title="t", x_label="m", footer="a machine")

    assert path.read_bytes().startswith(b"\x89PNG")
    assert b"a machine" in path.read_bytes()


def test_a_peer_that_is_not_installed_is_named_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "torch" else find(n))

    loaded = load_peers(["numpy", "torch", "torch.mm"])

    assert [peer.name for peer in loaded.found] == ["numpy"]
    assert loaded.missing == ("torch", "torch.mm")


def test_an_unknown_strategy_is_refused() -> None:
    sizes = ["--sizes", "m=1", "--k", "3", "--n", "3"]
    done = CliRunner().invoke(app, ["sweep", "mk,kn->mn", *sizes, "--strategies", "auto,best"])
    first, at, because, help = done.stderr.splitlines()
    assert (first, at) == ("sweep: there is no strategy 'best'", "  at       --strategies best")
    assert because.startswith("  because  the strategies are auto, mix, ")
    assert help == "  help     module:function, a generator of tiles of one's own"


@pytest.mark.parametrize("name", ["tvm", "torch.matmul", ""])
def test_an_unknown_peer_is_refused(name: str) -> None:
    with pytest.raises(DescribeError, match=f"there is no peer '{name}'"):
        load_peers([name])


@pytest.mark.parametrize("text", ["mk,kn->mn", "mk,nk->mn", "bij,bkj->bik", "mk,kn,nj->mj"])
def test_every_way_of_torch_computes_the_reference(text: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    contraction = parse_contraction(text)
    sizes = dict(zip("mknbij", (5, 48, 32, 2, 4, 3), strict=True))
    rng = np.random.default_rng(1)
    constants = {"B": draw(contraction.operands[1], sizes, rng)}
    loaded = load_peers(["torch"])
    problem = make_problem(contraction, sizes, constants)
    with loaded.session():
        ways = loaded.found[0].ways(problem)
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

    with pytest.raises(DescribeError) as refused:
        take_extents(arguments)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mk,kn", "--sizes", "m=1"], "it has no '->'"),
        (["mk,kn->mn", "--sizes", "m=0", "--k", "2", "--n", "2"], "size 0 has no work to time"),
        (["mk,kn->mn", "--sizes", "m=1", "--k", "2"], "the axis 'n' has no size"),
        (["mk,kn->mn", "--sizes", "m=1", "--k", "two"], "'two' is not a whole number from 0 on"),
    ],
)
def test_the_command_prints_a_refusal_and_exits_with_2(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["sweep", *arguments])

    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output


def run_command(tmp_path: Path, against: str = "numpy", *more: str) -> Result:
    files = ["--csv", str(tmp_path / "out" / "x.csv"), "--png", str(tmp_path / "out" / "x.png")]
    options = ["--k", "6", "--n=4", "--points", "4", "--budget", "0.001", "--strategies", "cut"]
    return CliRunner().invoke(
        app,
        ["sweep", "mk,kn->mn", "--sizes", "m=1:40", *options, "--against", against, *files, *more],
    )


def test_the_command_prints_the_table_and_writes_csv_and_png(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "torch" else find(n))

    result = run_command(tmp_path, "numpy,torch")

    assert result.exit_code == 0, result.output
    assert "float32 mk,kn->mn at k=6, n=4" in result.stdout
    assert "m: 4 of 40 sizes: 1, 3, 11, 40" in result.stdout
    assert "missing: torch is not installed" in result.stdout
    written = (tmp_path / "out" / "x.csv").read_text()
    assert written.startswith("# machine: ")
    assert written.count(",numpy,") == written.count(",cut,") == 4
    assert (tmp_path / "out" / "x.png").exists() == is_installed("matplotlib")


def test_the_command_reports_wrong_values_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "def wrong(inputs, sizes):\n    return lambda: inputs['A'] @ inputs['B'] + 1\n"
    )
    monkeypatch.chdir(tmp_path)

    result = run_command(tmp_path, "numpy,mine:wrong")

    assert result.exit_code == 1
    said = r"mine:wrong at m=1, k=6, n=4: wrong values: \d of 4 elements are off; "
    assert re.search(said, result.stdout)


def test_no_size_is_begun_once_the_time_is_over(tmp_path: Path) -> None:
    result = run_command(tmp_path, "numpy", "--seconds", "0")

    assert result.exit_code == 0, result.output
    assert "3 of 4 cells are not measured: the seconds are over" in result.stdout
    assert (tmp_path / "out" / "x.csv").read_text().count(",numpy,") == 1


@pytest.mark.slow
def test_each_size_is_told_and_written_as_soon_as_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        "def looks(inputs, sizes):\n"
        "    file = Path('out/x.csv')\n"
        "    count = file.read_text().count(',numpy,') if file.exists() else 0\n"
        "    with open('counts', 'a') as counts:\n        counts.write(str(count))\n"
        "    return lambda: inputs['A'] @ inputs['B']\n"
    )
    monkeypatch.chdir(tmp_path)

    result = run_command(tmp_path, "numpy,mine:looks")

    assert result.exit_code == 0, result.output
    assert (tmp_path / "counts").read_text() == "0123"
    names = r"(cut|numpy|mine:looks) [\d.]+"
    told = [re.sub(names, r"\1 #", line) for line in result.stderr.splitlines()]
    assert told == [
        f"offcut: sweep: {number} of 4, m={m}: cut #, numpy #, mine:looks # GFLOP/s"
        for number, m in ((1, 1), (2, 3), (3, 11), (4, 40))
    ]
