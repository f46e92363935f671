"""Rows, tables and files of the benches, from tasks that fakes, numpy and others compute."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from offcut.experiment import bench
from offcut.experiment.bench import Group, Options, cell_of, fresh, in_turns, run
from offcut.experiment.contraction import Array, Problem, make_problem, parse_contraction
from offcut.experiment.limits import Bound, Limits
from offcut.experiment.peers import Contender, Peers, Way
from offcut.experiment.peers.with_numpy import Numpy
from offcut.experiment.table import (
    GFLOPS,
    MS,
    OVER_BUDGET,
    Asked,
    Cell,
    Row,
    lines,
    summary,
    table,
    to_csv,
)
from offcut.experiment.timing import Timing
from tests.agree import nearly

DENSE = parse_contraction("mk,kn->mn")
CONSTANTS = {"B": np.ones((4, 5), np.float32)}


def timed(name: str, seconds: float | None) -> Cell:
    timing = None if seconds is None else Timing((seconds,) * 7, 1)
    return Cell(name, f"{name}.way", timing)


def row(label: str, *seconds: float | None) -> Row:
    """A row of offcut and two peers: 2e9 flop, a limit of one second."""
    cells = tuple(timed(name, t) for name, t in zip(("offcut", "a", "b"), seconds, strict=True))
    bound = Bound(1.0, "fma")
    return Row("group", label, cells, GFLOPS, 2 * 10**9, bound=bound, sizes={"m": len(label)})


def shown(printed: object) -> str:
    text = StringIO()
    Console(file=text, width=200).print(printed)
    return text.getvalue()


@dataclass
class World:
    """A clock that only the contenders advance."""

    now: float = 0.0

    def clock(self) -> float:
        return self.now


@dataclass
class Fake:
    """numpy's values at a made-up speed."""

    name: str
    world: World
    flops: float
    wrong: bool = False
    called: list[int] = field(default_factory=list)

    def ways(self, problem: Problem) -> tuple[Way, ...]:
        a, b = problem.arrays["A"], problem.arrays["B"]
        self.called.append(problem.sizes["m"])

        def run() -> Array:
            self.world.now += problem.flop / self.flops
            return a @ b + self.wrong

        return (Way(f"{self.name}.only", run, lambda value: np.asarray(value)),)


@dataclass
class Idle:
    """It computes nothing."""

    name: str = "idle"

    def ways(self, problem: Problem) -> tuple[Way, ...]:
        return ()


def problem(m: int) -> Problem:
    return make_problem(DENSE, {"m": m, "k": 4, "n": 5}, CONSTANTS)


def measured(contenders: Sequence[Contender], world: World, *late: str) -> tuple[Cell, ...]:
    return in_turns(problem(3), contenders, late, budget=1e-3, clock=world.clock)


def test_every_contender_has_a_cell_with_its_time() -> None:
    world = World()
    cells = measured([Fake("x", world, 3e9), Idle(), Fake("y", world, 2e9)], world)

    assert [cell.contender for cell in cells] == ["x", "idle", "y"]
    assert cells[0].timing is not None
    assert problem(3).flop / cells[0].timing.seconds == nearly(3e9)
    assert (cells[1].timing, cells[1].note) == (None, "no way to compute it")


def test_a_contender_that_takes_too_long_is_left_out_without_a_call() -> None:
    world = World()
    slow = Fake("guard", world, flops=1e6)

    cells = measured([slow, Fake("numpy", world, 1e9)], world, "guard")

    assert (cells[0].timing, cells[0].note, slow.called) == (None, OVER_BUDGET, [])
    assert cells[1].timing is not None


class Known(Limits):
    """A machine whose limit is a second a call."""

    def now(self, operations: int, moved: int, kind: str) -> Bound:
        return Bound(1.0, "fma")


def test_who_is_expected_to_take_longer_than_the_patience_is_not_called_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    monkeypatch.setattr(time, "process_time", world.clock)
    slow, fast = Fake("guard", world, flops=1e6), Fake("numpy", world, 1e9)
    group = Group("dense", {f"M={m}": partial(problem, m) for m in (1, 24, 26, 40)})
    options = Options(budget=1e-3, patience=1e-3)
    screen = Console(file=StringIO())

    rows = list(bench.measured(group, [slow], [fast], Known(), options, screen))

    assert [row.cells[0].note for row in rows] == ["", "", OVER_BUDGET, OVER_BUDGET]
    assert slow.called == [1, 24]
    assert [row.amount for row in rows] == [40, 960, 1040, 1600]
    assert all(row.bound == Bound(1.0, "fma") and row.own == 1 for row in rows)


def test_a_wrong_result_is_reported_and_not_timed() -> None:
    world = World()
    cell, _ = measured([Fake("x", world, 1e9, wrong=True), Fake("y", world, 1e9)], world)

    assert cell.wrong.startswith("15 of 15 elements are off; [")
    assert (cell.timing, cell.note) == (None, "wrong")


def test_a_ratio_is_against_the_best_peer_of_the_cell() -> None:
    found = row("x", 2.0, 6.0, 4.0)

    over, best = found.over(), found.best()
    assert best is not None
    assert best.contender == "b"
    assert over is not None
    assert (over.ratio.value, over.where) == (2.0, "group: x, b.way")
    assert found.share == 0.5


@pytest.mark.parametrize("seconds", [(None, 1.0, 2.0), (1.0, None, None)])
def test_without_either_side_there_is_no_ratio(seconds: tuple[float | None, ...]) -> None:
    assert row("x", *seconds).over() is None


def test_the_summary_has_the_mean_the_worst_cell_and_the_share() -> None:
    rows = [row("x", 2.0, 6.0, 4.0), row("y", 4.0, 2.0, None), row("z", None, 1.0, 1.0)]

    assert list(summary(rows, Asked(mean=1.4, worst=0.95, share=0.5))) == [
        ("geometric mean over the best peer", "≥ 1.4", "1.000", "2 of 3 cells"),
        ("worst cell", "≥ 0.95", "0.500 (0.500–0.500)", "group: y, a.way"),
        ("geometric mean of the limit", "≥ 50%", "35%", "least 25%, group: y, by fma"),
        ("cells without it", "0", "1", "z"),
    ]


def test_a_table_has_rates_and_what_is_missing() -> None:
    text = shown(table([row("x", 2.0, None, 4.0)]))

    assert "group, GFLOP/s" in text
    assert [part.strip() for part in text.splitlines()[-2].split("│")[1:5]] == [
        *("x", "1", "–", "0.5")
    ]


def test_seconds_without_a_limit_are_a_table_too_and_say_what_is_asked() -> None:
    cells = cell_of("cold", [0.3, 0.1, 0.2]), cell_of("warm", [])

    text = shown(table([Row("compile", "dense", cells, MS, asked="≤ 300 ms")], "warm over cold"))

    assert "compile, ms" in text
    assert [part.strip() for part in text.splitlines()[-2].split("│")[1:-1]] == [
        *("dense", "200", "–", "–", "50%", "≤ 300 ms")
    ]


def test_contenders_can_be_compared_by_name() -> None:
    over = row("x", 2.0, 6.0, 4.0).over("a")

    assert over is not None
    assert (over.ratio.value, over.ratio.inverse.value) == (3.0, 1 / 3)


def test_the_csv_says_where_it_was_measured_and_has_a_line_per_cell() -> None:
    text = to_csv([row("x", 2.0, None, 4.0), row("xyz", 1.0, 1.0, 1.0)], ("machine: one",))

    assert text.splitlines()[0] == "# machine: one"
    found = list(csv.DictReader(text.splitlines()[1:]))
    assert [(line["m"], line["contender"]) for line in found] == [
        *(("1", "offcut"), ("1", "a"), ("1", "b"), ("3", "offcut"), ("3", "a"), ("3", "b"))
    ]
    assert (found[0]["gflops"], found[0]["ratio_to_best_peer"]) == ("1", "2.0000")
    assert found[1]["gflops"] == ""


def test_a_picture_has_a_line_per_contender_over_a_size_or_flop() -> None:
    rows = [row("x", 2.0, None, 4.0), row("xyz", 1.0, 1.0, 1.0)]

    assert lines(rows, "m") == {"offcut": [(1, 1), (3, 2)], "a": [(3, 2)], "b": [(1, 0.5), (3, 2)]}
    assert lines(rows, "flop")["a"] == [(2e9, 2)]


def test_what_a_fresh_process_says_is_read_and_a_failure_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bench.py"
    file.write_text("import os, sys; print([float(sys.argv[2]), os.environ['X']].__len__() + 0.5)")

    assert fresh(str(file), "case", 1, X="y") == 2.5
    file.write_text("raise SystemExit('no such thing')")
    assert fresh(str(file), "case") is None
    assert capsys.readouterr().out == "case: not measured: no such thing\n"


def test_a_bench_measures_checks_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = Peers((Numpy(),), ("torch",), ("numpy 0",), nullcontext)
    monkeypatch.setattr(bench, "load_peers", lambda names, threads: peers)
    tasks = {f"M={m}": partial(problem, m) for m in (1, 3)}
    group = Group("layer", tasks, {"m": (1, 8)})
    file = tmp_path / "figures.json"

    status, _ = run("test", [group], Asked(), Options(cells="M=3", budget=1e-3, json=file))

    figures = json.loads(file.read_text())
    printed = capsys.readouterr().out
    assert status == 0
    assert [found["cell"] for found in figures["rows"]] == ["M=3"]
    assert figures["rows"][0]["contenders"]["offcut"]["seconds"] > 0
    assert figures["rows"][0]["best_peer"] == "numpy.matmul"
    assert "missing: torch is not installed" in printed


def test_no_cell_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("test", [], Asked(), Options(budget=1e-3)) == (1, [])
    assert "no cell was measured" in capsys.readouterr().out
