"""Rows, tables and files of the benches, from tasks that numpy and others compute."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from offcut.experiment import cells
from offcut.experiment.cells import Asked, Group, Options, Row, group_table, run, summary_table
from offcut.experiment.contraction import make_problem, parse_contraction
from offcut.experiment.limits import Bound
from offcut.experiment.peers import Peers
from offcut.experiment.peers.with_numpy import Numpy
from offcut.experiment.sweep import Cell
from offcut.experiment.timing import Timing

DENSE = parse_contraction("mk,kn->mn")


def row(label: str, *seconds: float | None) -> Row:
    """A row of offcut and two peers: 2e9 flop, a limit of one second."""
    measured = tuple(
        Cell({"m": 1}, name, 2 * 10**9, f"{name}.way", None if t is None else Timing((t,) * 7, 1))
        for name, t in zip(("offcut", "a", "b"), seconds, strict=True)
    )
    return Row("group", label, {"m": 1}, 2 * 10**9, 8, measured, Bound(1.0, "fma"))


def shown(table: object) -> str:
    text = StringIO()
    Console(file=text, width=200).print(table)
    return text.getvalue()


def test_a_ratio_is_against_the_best_peer_of_the_cell() -> None:
    found = row("x", 2.0, 6.0, 4.0)

    assert found.best_peer is not None
    assert found.best_peer.contender == "b"
    assert found.ratio is not None
    assert found.ratio.value == 2.0
    assert found.share == 0.5


@pytest.mark.parametrize("seconds", [(None, 1.0, 2.0), (1.0, None, None)])
def test_without_either_side_there_is_no_ratio(seconds: tuple[float | None, ...]) -> None:
    assert row("x", *seconds).ratio is None


def test_the_summary_has_the_mean_the_worst_cell_and_the_share() -> None:
    rows = [row("x", 2.0, 6.0, 4.0), row("y", 4.0, 2.0, None), row("z", None, 1.0, 1.0)]

    text = shown(summary_table(rows, Asked(mean=1.4, worst=0.95, share=0.5)))

    assert "1.000" in text, "of 2 and 0.5"
    assert "2 of 3 cells" in text
    assert "0.500 (0.500–0.500)" in text
    assert "group: y, a.way" in text
    assert "35%" in text, "of 50 and 25 per cent"
    assert "≥ 50%" in text


def test_a_table_has_rates_and_what_is_missing() -> None:
    text = shown(group_table("group", [row("x", 2.0, None, 4.0)], ["a", "b"]))

    assert "group, GFLOP/s" in text
    assert [part.strip() for part in text.splitlines()[-2].split("│")[1:5]] == [
        *("x", "1.0", "–", "0.5")
    ]


def test_a_bench_measures_checks_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = Peers((Numpy(),), ("torch",), ("numpy 0",), nullcontext)
    monkeypatch.setattr(cells, "load_peers", lambda names, threads: peers)
    constants = {"B": np.ones((4, 5), np.float32)}
    tasks = {
        f"M={m}": partial(make_problem, DENSE, {"m": m, "k": 4, "n": 5}, constants) for m in (1, 3)
    }
    group = Group("layer", tasks, {"m": (1, 8)})
    file = tmp_path / "figures.json"

    status = run("test", [group], Asked(), Options(cells="M=3", budget=1e-3, json=file))

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
    assert run("test", [], Asked(), Options(budget=1e-3)) == 1
    assert "no cell was measured" in capsys.readouterr().out
