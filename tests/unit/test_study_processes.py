"""Several processes: the interval of what they differ by, on samples that are drawn; lines of a file; studies that are measured in them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import offcut as oc
from offcut.cli import app
from offcut.experiment.timing import KERNELS, Ratio
from offcut.studies import compare
from offcut.studies.compare import Change, Comparison
from offcut.studies.definition import read_definition
from offcut.studies.resampling import mean_ratio
from offcut.studies.samples import (
    FILE,
    PREDICTED,
    Sample,
    append_samples,
    merge_lines,
    merge_processes,
    read_samples,
)
from offcut.studies.statistics import (
    call_interval,
    call_seconds,
    false_discovery_limit,
    geometric_mean,
    geometric_mean_of_pairs,
    is_of_one_process,
    mean_interval,
    processes_needed,
    quantile,
    ratio,
    tail,
)
from offcut.studies.tasks import LAYOUT, at_page_offset
from tests.agree import nearly

TRIALS = 1500
ROUNDS = 3

Draw = tuple[str, float, float]
"""How processes differ, by which deviation, and how the rounds of one do."""

DRAWS: list[Draw] = [
    ("normal", 0.01, 0.01),
    ("normal", 0.03, 0.005),
    ("normal", 0.002, 0.03),
    ("layouts", 0.03, 0.005),
    ("skewed", 0.02, 0.01),
]


def deviations(rng: np.random.Generator, draw: Draw, processes: int) -> np.ndarray:
    """Return the logarithms of what rounds differ by, a row for each process: of mean 0 over all processes."""
    kind, between, within = draw
    if kind == "layouts":  # of three, each as likely
        level = rng.choice(np.array([-1.0, 0.0, 1.0]) * math.sqrt(1.5), processes)
    elif kind == "skewed":
        level = (rng.gamma(4.0, 1.0, processes) - 4.0) / 2.0
    else:
        level = rng.normal(size=processes)
    rounds: np.ndarray = between * level[:, None] + within * rng.normal(size=(processes, ROUNDS))
    return rounds


def drawn(rng: np.random.Generator, draw: Draw, processes: int, loss: float = 1.0) -> Sample:
    """Return a sample of 1 second times `loss` in so many processes."""
    seconds = loss * np.exp(deviations(rng, draw, processes))
    numbers = tuple(int(x) for x in np.repeat(np.arange(processes), ROUNDS))
    return Sample("cell", "dense", {"m": 1}, "auto", tuple(seconds.ravel()), 1, process=numbers)


@pytest.mark.parametrize("processes", [5, 7, 12])
@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: f"{draw[0]} {draw[1]:g} {draw[2]:g}")
def test_an_interval_of_processes_holds_the_value_in_95_of_100(draw: Draw, processes: int) -> None:
    rng = np.random.default_rng(processes)
    held, held_ratio = 0, 0
    for _ in range(TRIALS):
        first, second = (drawn(rng, draw, processes) for _ in range(2))
        low, high = call_interval(first)
        held += low <= 1 <= high
        between = ratio(first, second)
        held_ratio += between.low <= 1 <= between.high

    assert 0.92 <= held / TRIALS <= 0.98
    assert 0.92 <= held_ratio / TRIALS <= 0.98


def test_an_interval_of_rounds_alone_is_too_narrow() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(TRIALS):
        one = replace(drawn(rng, DRAWS[1], 1), process=())
        low, high = call_interval(one)
        held += low <= 1 <= high

    assert held / TRIALS < 0.3


@pytest.mark.parametrize("between", [0.01, 0.02, 0.03])
def test_a_loss_of_five_in_a_hundred_is_found_with_the_processes_that_are_recommended(
    between: float,
) -> None:
    """At least 85 of 100 times, where 90 are promised; and where there is none, at most 2 of 100."""
    rng = np.random.default_rng(1)
    count = processes_needed(lambda count: math.sqrt(2) * between, math.log(1.05) - math.log(1.02))
    verdicts = {1.0: 0, 1.05: 0}
    for loss in verdicts:
        for _ in range(400):
            first = drawn(rng, ("normal", between, 0.002), count)
            second = drawn(rng, ("normal", between, 0.002), count, loss)
            change = Change("", ratio(first, second), processes=count)
            verdicts[loss] += change.verdict != "same"

    assert verdicts[1.05] >= 0.85 * 400
    assert verdicts[1.0] <= 0.02 * 400


def test_the_distribution_is_students() -> None:
    quantiles = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 30: 2.042, 500: 1.960}

    assert {n: round(quantile(n), 3) for n in quantiles} == quantiles
    assert tail(2.0, 1) == nearly(0.295167, 1e-5)
    assert tail(2.0, 4) == nearly(0.116117, 1e-5)
    assert (tail(0.0, 1), tail(0.0, 2)) == (1.0, 1.0)


def test_of_many_cells_a_change_has_to_be_surer() -> None:
    assert false_discovery_limit([0.01, 0.02, 0.03, 0.2]) == 0.03
    assert false_discovery_limit([0.02, 0.3, 0.5, 0.9]) == 0.0
    assert false_discovery_limit([]) == 0.0


def line(process: int, second: float, **more: object) -> Sample:
    """Return the line of a process."""
    one = Sample("cell", "dense", {"m": 1}, "auto", (second,) * 2, 4 + process, (0, 1), (1, 0))
    one = replace(one, process=(process,) * 2, turns=f"t{process}", environment="e", error=second)
    return replace(one, load={"share": 1 - second / 10}, **more)  # type: ignore[arg-type]


def test_lines_of_a_cell_are_one_sample_by_their_processes(tmp_path: Path) -> None:
    append_samples(tmp_path / FILE, [line(1, 3.0), line(0, 1.0), line(1, 4.0)])
    (one,) = read_samples(tmp_path / FILE).values()

    assert (one.seconds, one.process) == ((1.0, 1.0, 4.0, 4.0), (0, 0, 1, 1))
    assert (one.round, one.order) == ((0, 1, 0, 1), (1, 0, 1, 0))
    assert (one.turns, one.calls, one.error, one.load) == ("t0 t1", 4, 4.0, {"share": 0.75})
    assert call_seconds(one) == nearly(2.0)


def test_what_another_machine_or_commit_measured_is_not_mixed_in() -> None:
    old = line(0, 1.0, environment="other"), line(1, 1.0, device="rack")
    assert merge_processes([*old, line(2, 2.0)]).process == (2, 2)
    failed = replace(line(0, 1.0), seconds=(), process=(), failed="it ended")
    assert merge_processes([line(0, 1.0), failed]).failed == "it ended"
    assert merge_processes([failed, line(0, 1.0), line(1, 1.0)]).process == (0, 0, 1, 1)
    single = replace(line(0, 1.0), process=())
    assert merge_processes([line(0, 1.0), single]) == single
    assert (is_of_one_process(single), is_of_one_process(line(0, 1.0))) == (True, True)


def test_a_comparison_says_in_which_cells_a_change_would_be_missed(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    cells = {"sure": ("normal", 0.002, 0.002), "vague": ("normal", 0.05, 0.002)}
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name, draw in cells.items():
            one = replace(drawn(rng, draw, 7), cell=name, contender=name)
            append_samples(
                tmp_path / folder / FILE,
                [
                    replace(one, seconds=one.seconds[3 * p : 3 * p + 3], process=(p,) * 3)
                    for p in range(7)
                ],
            )
    comparison = compare(tmp_path / "a", tmp_path / "b")

    sure, vague = comparison.changes
    assert (sure.processes, sure.more_processes, sure.verdict) == (7, 0, "same")
    more = vague.more_processes
    assert more > 10
    lines = str(comparison).splitlines()
    assert (
        f"in which 5% would be missed more than 1 time in 10 (1): dense m=1 vague ({more} processes more)"
        in lines
    )
    assert f"  processes = {7 + more} in both studies finds it in all of them" in lines


def write_rows(
    folder: Path, rng: np.random.Generator, loss: float, contenders: tuple[str, ...]
) -> Path:
    """Write eight rows in 12 processes, each of which something disturbs by some 10 %; return the folder."""
    folder.mkdir()
    for m in range(8):
        for process in range(12):
            disturbed = math.exp(abs(float(rng.normal())) * 0.1)
            for name in contenders:
                peer = name == "numpy"
                second = disturbed * math.exp(0.01 * float(rng.normal())) * (1 if peer else loss)
                one = line(process, second, cell=f"{m} {name}", contender=name, peer=peer)
                append_samples(folder / FILE, [replace(one, sizes={"m": m}, load={})])
    return folder


def test_peers_that_took_turns_take_out_what_disturbed_a_process(tmp_path: Path) -> None:
    rng, both = np.random.default_rng(4), ("auto", "numpy")
    first, again, slower = (
        write_rows(tmp_path / name, rng, loss, both)
        for name, loss in (("first", 1.0), ("again", 1.0), ("slower", 1.05))
    )
    comparison = compare(first, slower)

    assert (len(comparison.slower), comparison.faster, comparison.margin) == (8, (), 0.01)
    assert compare(first, again).slower == compare(first, again).faster == ()
    alone = (
        write_rows(tmp_path / f"{name} alone", rng, loss, ("auto",))
        for name, loss in (("first", 1.0), ("slower", 1.05))
    )
    assert compare(*alone).slower == ()


def test_a_comparison_with_a_folder_of_one_process_says_so(tmp_path: Path) -> None:
    several = [line(0, 1.0), line(1, 1.0), line(2, 1.0)]
    for name, lines in (("old", [replace(line(0, 1.0), process=())]), ("new", several)):
        (tmp_path / name).mkdir()
        append_samples(tmp_path / name / FILE, lines)
    text = str(compare(tmp_path / "old", tmp_path / "new"))

    what = "measured in one process, whose layout of memory may look like a change"
    assert f"{what} (1): dense m=1 auto" in text.splitlines()


def test_the_mean_over_cells_is_a_number_for_each_process() -> None:
    """Cells that a process shifts together are no more than one."""
    shifts = [1.0, 1.02, 0.97, 1.01, 1.04]
    sides = [
        merge_processes([line(p, x) for p, x in enumerate(seconds)])
        for seconds in (shifts, [1.0] * 5)
    ]
    pairs = [(sides[0], sides[1])] * 16
    mean, over_peers = mean_ratio(pairs), mean_ratio(pairs, pairs[:3])

    assert mean is not None
    assert over_peers is not None
    alone = mean_interval([*map(math.log, shifts)])
    assert (mean.ratio.low, mean.ratio.high) == nearly((alone.low, alone.high))
    assert (over_peers.ratio.low, over_peers.ratio.high) == nearly((1.0, 1.0))


def test_a_mean_of_a_table_is_a_number_for_each_process_by_the_weights_of_its_cells() -> None:
    """Independent cells would have an interval of a quarter."""
    shifts = [1.0, 1.02, 0.97, 1.01, 1.04]
    shifted, steady = (
        merge_processes([line(p, x) for p, x in enumerate(seconds)])
        for seconds in (shifts, [1.0] * 5)
    )
    alone = mean_interval([*map(math.log, shifts)])
    mean = geometric_mean_of_pairs([(shifted, steady)] * 16, [1.0] * 16)
    assert mean is not None
    assert (mean.ratio.low, mean.ratio.high) == nearly((alone.low, alone.high))
    assert mean.count == 16
    weighted = geometric_mean_of_pairs([(shifted, steady), (steady, steady)], [3.0, 1.0])
    assert weighted is not None
    assert math.log(weighted.ratio.high) == nearly(0.75 * math.log(alone.high))

    other = replace(steady, process=(0, 1, 2, 3, 5))  # in other processes: as of independent cells
    apart = geometric_mean_of_pairs([(shifted, steady), (shifted, other)], [1.0, 1.0])
    assert apart == geometric_mean([ratio(shifted, steady), ratio(shifted, other)], [1.0, 1.0])
    assert geometric_mean_of_pairs([], []) is None


def test_a_comparison_of_what_is_predicted_does_not_speak_of_the_machine(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        predicted = replace(line(0, 1.0), process=(), clock=PREDICTED)
        append_samples(tmp_path / name / FILE, [predicted])
    text = str(compare(tmp_path / "a", tmp_path / "b"))

    assert "machine" not in text
    assert "no peers" not in text
    assert "0 slower, 0 faster, 1 the same to 0% and their 95 % intervals" in text.splitlines()


@pytest.mark.parametrize("peers", [(), ("peer",)], ids=["alone", "beside a peer"])
def test_processes_that_are_advised_allow_for_their_fewer_rounds(
    peers: tuple[str, ...], tmp_path: Path
) -> None:
    rng, processes, rounds = np.random.default_rng(5), 7, 3

    def write(folder: Path) -> Path:
        folder.mkdir(parents=True)
        for name in ("mine", *peers):
            seconds = tuple(np.exp(rng.exponential(0.2, processes * rounds)))
            one = Sample(name, "dense", {"m": 1}, name, seconds, 1, turns=folder.name)
            numbers = tuple(int(x) for x in np.repeat(np.arange(processes), rounds))
            places = tuple(range(rounds)) * processes
            append_samples(
                folder / FILE, [replace(one, process=numbers, round=places, peer=name == "peer")]
            )
        return folder

    (change,) = compare(*(write(tmp_path / x) for x in "ab")).changes
    assert change.growth[-1] == 1.0
    assert change.growth[0] > 1.3, (
        "of exponential disturbances the shortest of three differs by a third of one"
    )
    same = replace(change, growth=(1.0,))
    assert change.more_processes > same.more_processes


def test_one_process_more_is_one() -> None:
    label = "dense m=1 auto"
    change = Change(label, Ratio(1.0, 1 / 1.0205, 1.0205), processes=7)
    text = str(Comparison("a", "b", (change,), (), (), Ratio(1.0, 1.0, 1.0)))

    assert change.more_processes == 1
    assert (
        f"in which 5% would be missed more than 1 time in 10 (1): {label} (1 process more)" in text
    )


def test_a_process_lays_its_arrays_where_its_number_says() -> None:
    def places() -> list[int]:
        arrays = [at_page_offset(np.arange(5.0), number) for number in range(4)]
        return [array.ctypes.data % 4096 for array in arrays]

    fixed, several = places(), []
    try:
        for process in (1, 1, 2):
            LAYOUT.set(f"{process} dense m=3")
            several.append(places())
    finally:
        LAYOUT.set("")
    assert fixed == [0, 832, 1664, 2496]
    assert several[0] == several[1] != several[2]
    assert all(len({*some}) == 4 and not any(x % 64 for x in some) for some in several)


STUDY = """[study]
name = "small"
seconds_per_cell = 0.003
rounds = 5
processes = {processes}
[[operators]]
einsum = "mk,kn->mn"
sizes = {{m = [1, 3], k = 8, n = 16}}
[[contenders]]
strategy = "auto"
[[contenders]]
name = "mine"
peer = "mine:dot"
"""
MINE = """
import os, pathlib
import numpy as np
def dot(inputs, sizes):
    with open(pathlib.Path(__file__).parent / "processes", "a") as file:
        file.write(f"{os.getpid()} {len(os.environ.get('STUDY_PADDING', ''))}\\n")
    return lambda: np.dot(inputs["A"], inputs["B"])
"""


def test_a_study_is_measured_in_fresh_processes_and_goes_on_with_those_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offcut.studies.report.is_installed", lambda name: False)
    (tmp_path / "mine.py").write_text(MINE)
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text(STUDY.format(processes=2))
    with monkeypatch.context() as unmerged:
        unmerged.setattr("offcut.studies.run.merge_lines", lambda file: None)
        first = oc.study(file, out)
    lines = (out / FILE).read_text().splitlines(keepends=True)

    assert (first.measured, first.kept, first.failed, len(lines)) == (4, 0, 0, 8)
    samples = read_samples(out / FILE).values()
    assert {one.process for one in samples} == {(0, 0, 0, 1, 1)}
    assert {len(one.turns.split()) for one in samples} == {2}
    begun = (tmp_path / "processes").read_text().split("\n")[:-1]
    assert [begun.count(one) for one in dict.fromkeys(begun)] == [2, 2]

    (out / FILE).write_text("".join(lines[:5]))  # as if it was killed in its second process
    again = oc.study(file, out)
    assert (again.measured, again.kept) == (3, 1)
    assert len((out / FILE).read_text().splitlines()) == 4

    file.write_text(STUDY.format(processes=3))
    expected = CliRunner().invoke(app, ["study", str(file), "--out", str(out), "--dry-run"])
    assert expected.stdout.splitlines()[-1] == (  # 3 processes have 2, 2 and 1 of 5 rounds
        "4 of 4 cells to measure: 0.0024 s, and what compiling and checking take"
    )
    more = oc.study(file, out)
    assert (more.measured, more.kept) == (4, 0)
    assert {one.process for one in read_samples(out / FILE).values()} == {(0, 0, 0, 1, 1, 2)}
    assert read_definition(file).rounds_of(2) == 1


def test_a_report_names_variables_that_hold_libraries_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offcut.studies.report.is_installed", lambda name: False)
    for name in KERNELS:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "study.toml").write_text(STUDY.format(processes=1))
    oc.study(tmp_path / "study.toml", tmp_path / "free")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    oc.study(tmp_path / "study.toml", tmp_path / "forced")

    warning = "HELD BACK: OPENBLAS_CORETYPE=Haswell: libraries ran the kernels of another processor"
    assert warning in (tmp_path / "forced" / "cells.csv").read_text()
    assert warning in (tmp_path / "forced" / "report.html").read_text()
    assert "HELD BACK" not in (tmp_path / "free" / "cells.csv").read_text()


def test_a_folder_that_is_measured_has_a_line_a_cell_and_keeps_it_to_the_letter(
    tmp_path: Path,
) -> None:
    file = tmp_path / "samples.jsonl"
    lines = [
        Sample(
            cell,
            "dense",
            {"n": 1},
            "cut",
            (1.0 + number,),
            1,
            (0,),
            (0,),
            f"t{number}",
            process=(number,),
        )
        for number in (0, 1)
        for cell in ("a", "b")
    ]
    append_samples(file, lines)
    before = read_samples(file)
    merge_lines(file)
    texts = file.read_text().splitlines()
    assert len(texts) == 2
    assert read_samples(file) == before
    assert before["a"].process == (0, 1)
    append_samples(file, [replace(lines[0], seconds=(9.0,), process=(2,), turns="t2")])
    merge_lines(file)
    again = read_samples(file)
    assert (again["a"].process, again["a"].seconds) == ((0, 1, 2), (1.0, 2.0, 9.0))
    assert again["a"].turns == "t0 t1 t2"
    assert file.read_text().splitlines()[1] == texts[1]
