"""What a study says of times: intervals on samples that are drawn, means, figures, and two folders that are compared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offcut.experiment.timing import Ratio, Timing, median_interval, paired_ratio
from offcut.studies.compare import Change, Comparison
from offcut.studies.resampling import Pair, allowed_shift, mean_ratio, stray_under_load
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
    is_loaded,
    is_of_one_process,
    mean_interval,
    percentiles,
    processes_needed,
    profile,
    quantile,
    ratio,
    regret,
    share_of,
    tail,
)
from offcut.studies.tasks import Exact
from tests.agree import nearly
from tests.studies import compared

BLANK = Sample("cell", "dense", {"m": 1}, "auto", (1.0,), 1)
TRIALS, ROUNDS, FOLDERS = 600, 3, 25

Draw = tuple[str, float, float]
"""How processes differ, by which deviation, and how the rounds of one do."""


def drawn(rng: np.random.Generator, draw: Draw, processes: int, loss: float = 1.0) -> Sample:
    """Return a sample of 1 second times `loss` in so many processes; logarithms have mean 0 over all of them."""
    kind, between, within = draw
    if kind == "layouts":  # of three, each as likely
        level = rng.choice(np.array([-1.0, 0.0, 1.0]) * math.sqrt(1.5), processes)
    elif kind == "skewed":
        level = (rng.gamma(4.0, 1.0, processes) - 4.0) / 2.0
    else:
        level = rng.normal(size=processes)
    rounds = between * level[:, None] + within * rng.normal(size=(processes, ROUNDS))
    numbers = tuple(int(x) for x in np.repeat(np.arange(processes), ROUNDS))
    return replace(BLANK, seconds=tuple((loss * np.exp(rounds)).ravel()), process=numbers)


@pytest.mark.parametrize(
    ("draw", "processes"),
    [
        (("normal", 0.01, 0.01), 5),
        (("normal", 0.03, 0.005), 7),
        (("normal", 0.002, 0.03), 12),
        (("layouts", 0.03, 0.005), 7),
        (("skewed", 0.02, 0.01), 12),
    ],
)
def test_an_interval_of_processes_holds_the_value_in_95_of_100(draw: Draw, processes: int) -> None:
    rng, held, held_ratio = np.random.default_rng(processes), 0, 0
    for _ in range(TRIALS):
        first, second = (drawn(rng, draw, processes) for _ in range(2))
        low, high = call_interval(first)
        between = ratio(first, second)
        held += low <= 1 <= high
        held_ratio += between.low <= 1 <= between.high

    assert 0.92 <= held / TRIALS <= 0.98
    assert 0.92 <= held_ratio / TRIALS <= 0.98


def test_an_interval_of_rounds_alone_is_too_narrow() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        one = replace(drawn(rng, ("normal", 0.03, 0.005), 1), process=())
        low, high = call_interval(one)
        held += low <= 1 <= high

    assert held / 200 < 0.3


@pytest.mark.parametrize("between", [0.01, 0.03])
def test_a_loss_of_five_in_a_hundred_is_found_with_the_processes_that_are_recommended(
    between: float,
) -> None:
    """At least 85 of 100 times, where 90 are promised; and where there is none, at most 2 of 100."""
    rng, draw = np.random.default_rng(1), ("normal", between, 0.002)
    count = processes_needed(lambda count: math.sqrt(2) * between, math.log(1.05) - math.log(1.02))
    verdicts = {1.0: 0, 1.05: 0}
    for loss in verdicts:
        for _ in range(200):
            change = ratio(drawn(rng, draw, count), drawn(rng, draw, count, loss))
            verdicts[loss] += Change("", change, processes=count).verdict != "same"

    assert verdicts[1.05] >= 0.85 * 200
    assert verdicts[1.0] <= 0.02 * 200


def test_the_distribution_is_students_and_of_many_cells_a_change_has_to_be_surer() -> None:
    quantiles = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 30: 2.042, 500: 1.960}

    assert {n: round(quantile(n), 3) for n in quantiles} == quantiles
    assert tail(2.0, 1) == nearly(0.295167, 1e-5)
    assert tail(2.0, 4) == nearly(0.116117, 1e-5)
    assert (tail(0.0, 1), tail(0.0, 2)) == (1.0, 1.0)
    assert false_discovery_limit([0.01, 0.02, 0.03, 0.2]) == 0.03
    assert false_discovery_limit([0.02, 0.3, 0.5, 0.9]) == 0.0
    assert false_discovery_limit([]) == 0.0


def test_the_interval_of_a_median_is_that_of_paired_ratios_and_wider_under_load() -> None:
    values = [float(k) for k in range(1, 22)]
    paired = paired_ratio(Timing(tuple(values), 1), Timing((1.0,) * 21, 1))
    widths = [high - low for low, high in (median_interval(values, x) for x in (1.0, 0.6, 0.2))]

    assert median_interval(values) == (paired.low, paired.high)
    assert median_interval(values[:5]) == (1.0, 5.0)
    assert widths == sorted(widths)
    assert widths[0] < widths[2] == 20.0


def test_ratios_pair_rounds_only_of_those_that_took_turns() -> None:
    rising = replace(BLANK, seconds=tuple(float(k) for k in range(1, 12)), turns="t")
    twice = replace(rising, seconds=tuple(2 * one for one in rising.seconds))
    together, apart = ratio(twice, rising), ratio(twice, replace(rising, turns="u"))

    assert (together.value, together.low, together.high) == (2.0, 2.0, 2.0)
    assert apart.low < apart.value == 2.0 < apart.high


def test_figures_are_those_of_their_definitions() -> None:
    mean = geometric_mean([Ratio(2, 1, 4), Ratio(8, 4, 16)], [1, 1])
    assert mean is not None
    half = math.log(2) / math.sqrt(2)
    assert (mean.ratio.value, mean.ratio.high) == nearly((4.0, 4.0 * math.exp(half)))
    assert percentiles([(1.0, 0.5), (2.0, 0.4), (3.0, 0.1)]) == {50: 1.0, 90: 2.0, 95: 3.0, 99: 3.0}
    found = regret({"a": 2.0, "b": 3.0}, {"a": 1.0, "b": 3.0}, {"a": 1.0, "b": 3.0})
    assert found is not None
    assert (found.mean, found.worst, found.at) == (0.25, 1.0, "a")
    curves = profile({"x": {"a": 1.0, "b": 4.0}, "y": {"a": 2.0, "b": 2.0}})
    assert curves["x"] == curves["y"] == [(1.0, 0.5), (2.0, 1.0), (16.0, 1.0)]

    exact = Exact((np.array([1.0, -4.0]),), 0.1, "hand")
    results = ([1.0, -4.0], [1.0, -3.0], [np.nan, -4.0], [0.0, 0.0, 0.0])
    assert [exact.error((np.array(one),)) for one in results] == [0.0, 0.25, math.inf, math.inf]


# Lines of a file: one sample of several processes.


def line(process: int, second: float, **more: object) -> Sample:
    """Return the line of a process."""
    one = replace(BLANK, seconds=(second,) * 2, calls=4 + process, round=(0, 1), order=(1, 0))
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


def test_a_folder_that_is_measured_has_a_line_a_cell_and_keeps_it_to_the_letter(
    tmp_path: Path,
) -> None:
    file = tmp_path / FILE
    lines = [line(p, 1.0 + p, cell=cell) for p, cell in itertools.product((0, 1), "ab")]
    append_samples(file, lines)
    before = read_samples(file)
    merge_lines(file)
    texts = file.read_text().splitlines()
    assert len(texts) == 2
    assert read_samples(file) == before
    append_samples(file, [line(2, 9.0, cell="a")])
    merge_lines(file)
    again = read_samples(file)["a"]
    assert (again.process, again.turns) == ((0, 0, 1, 1, 2, 2), "t0 t1 t2")
    assert again.seconds == (1.0, 1.0, 2.0, 2.0, 9.0, 9.0)
    assert file.read_text().splitlines()[1] == texts[1]


def test_a_line_that_was_cut_short_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / FILE
    append_samples(file, [replace(BLANK, cell=cell) for cell in "ab"])
    whole = file.read_bytes()
    end = whole.index(b"\n")
    for cut in (0, 1, end // 2, end, end + 1, end + 2, len(whole) - 1, len(whole)):
        file.write_bytes(whole[:cut])
        known = read_samples(file)
        append_samples(file, [replace(BLANK, cell="c")])
        assert set(read_samples(file)) == {*known, "c"}
        assert ("a" in known, "b" in known) == (cut > end, cut == len(whole))
        assert all(line.startswith(b"{") for line in file.read_bytes().splitlines())


# Means over cells, of two folders that are drawn: the same code under load, and a loss on a quiet machine.

SHIFTS = [1.0, 1.02, 0.97, 1.01, 1.04]
SHIFTED, STEADY = (
    merge_processes([line(p, x) for p, x in enumerate(seconds)]) for seconds in (SHIFTS, [1.0] * 5)
)


def test_a_mean_over_cells_is_a_number_for_each_process_by_their_weights() -> None:
    """Cells that a process shifts together are no more than one: independent ones would have a quarter of its interval."""
    alone = mean_interval([*map(math.log, SHIFTS)])
    pairs = [(SHIFTED, STEADY)] * 16
    found = mean_ratio(pairs), mean_ratio(pairs, pairs[:3])
    table = geometric_mean_of_pairs(pairs, [1.0] * 16)
    weighted = geometric_mean_of_pairs([(SHIFTED, STEADY), (STEADY, STEADY)], [3.0, 1.0])
    mean, over_peers = (one.ratio for one in found if one is not None)
    assert table is not None
    assert weighted is not None
    assert (mean.low, mean.high) == nearly((alone.low, alone.high))
    assert (over_peers.low, over_peers.high) == nearly((1.0, 1.0))
    assert (table.ratio.low, table.ratio.high) == nearly((alone.low, alone.high))
    assert table.count == 16
    assert math.log(weighted.ratio.high) == nearly(0.75 * math.log(alone.high))

    other = replace(STEADY, process=(0, 1, 2, 3, 5))  # in other processes: as of independent cells
    apart = geometric_mean_of_pairs([(SHIFTED, STEADY), (SHIFTED, other)], [1.0, 1.0])
    assert apart == geometric_mean([ratio(SHIFTED, STEADY), ratio(SHIFTED, other)], [1.0, 1.0])
    assert geometric_mean_of_pairs([], []) is None


def steps(rng: np.random.Generator, count: int, stay: float, size: float) -> list[float]:
    """Return normal values of a deviation of `size`, each `stay` times the one before and the rest anew."""
    values = [float(rng.normal()) * size]
    while len(values) < count:
        values.append(stay * values[-1] + math.sqrt(1 - stay**2) * size * float(rng.normal()))
    return values


def folder(
    rng: np.random.Generator, groups: int, drift: float, load: float, loss: float = 1.0
) -> list[Sample]:
    """Return samples of two contenders and a peer in some groups.

    drift  deviation of a group, and of a round, which all of it share; load: of the machine; loss: of the contenders
    """
    samples = []
    for group, common in enumerate(steps(rng, groups, 0.7, drift)):
        rounds = np.array(steps(rng, 21, 0.8, drift))
        share = load * float(rng.uniform(0.8, 1.2))
        for name in ("auto", "mask", "numpy"):
            peer = name == "numpy"
            noise = rng.normal(size=21) * 0.01
            seconds = tuple(1e-5 * (1.0 if peer else loss) * np.exp(common + rounds + noise))
            one = Sample(f"{group} {name}", "dense", {"m": group}, name, seconds, 1, peer=peer)
            used = {"share": 1 - share, "steal": 0.0, "others": share}
            samples.append(replace(one, turns=f"{group}", load=used))
    return samples


Interval = Callable[[list[Pair], list[Pair]], Ratio]


def without_peers(ours: list[Pair], peers: list[Pair]) -> Ratio:
    mean = mean_ratio(ours, allowed=allowed_shift(ours))
    assert mean is not None
    return mean.ratio


def with_peers(ours: list[Pair], peers: list[Pair]) -> Ratio:
    mean = mean_ratio(ours, peers)
    assert mean is not None
    return mean.ratio


def independent(ours: list[Pair], peers: list[Pair]) -> Ratio:
    """Return the mean as of cells that share nothing."""
    mean = geometric_mean([ratio(*pair) for pair in ours], [1.0] * len(ours))
    assert mean is not None
    return mean.ratio


def alarms(interval: Interval, groups: int, drift: float, load: float, loss: float = 1.0) -> float:
    """Return the part of trials whose interval leaves out 1."""
    rng, count = np.random.default_rng(groups), 0
    for _ in range(FOLDERS):
        first = folder(rng, groups, drift, load)
        pairs = list(zip(first, folder(rng, groups, drift, load, loss), strict=True))
        ours, peers = ([pair for pair in pairs if pair[0].peer is peer] for peer in (False, True))
        one = interval(ours, peers)
        assert one.low <= one.value <= one.high
        count += not one.low <= 1 <= one.high
    return count / FOLDERS


@pytest.mark.parametrize("groups", [3, 8])
def test_the_same_code_on_a_loaded_machine_is_no_alarm(groups: int) -> None:
    assert alarms(without_peers, groups, drift=0.05, load=0.3) <= 0.15
    assert alarms(with_peers, groups, drift=0.05, load=0.3) <= 0.15
    assert alarms(independent, groups, drift=0.05, load=0.3) > 0.4, "as of independent cells"


@pytest.mark.parametrize(
    ("interval", "groups"), [(without_peers, 1), (with_peers, 1), (with_peers, 4)]
)
def test_a_loss_of_five_in_a_hundred_on_a_quiet_machine_is_seen(
    interval: Interval, groups: int
) -> None:
    assert alarms(interval, groups, drift=0.003, load=0.0, loss=1.05) == 1.0
    assert alarms(interval, groups, drift=0.003, load=0.0) <= 0.15


def test_cells_that_share_rounds_are_no_more_than_one() -> None:
    rng = np.random.default_rng(0)
    rounds = [tuple(np.exp(rng.normal(size=21) * 0.05)) for _ in range(2)]

    def width(cells: int, shared: bool) -> float:
        sides = [
            [replace(BLANK, seconds=one, turns="t" if shared else f"{k}") for k in range(cells)]
            for one in rounds
        ]
        mean = mean_ratio(list(zip(*sides, strict=True)))
        assert mean is not None
        return mean.ratio.high / mean.ratio.low - 1

    assert width(1, True) == nearly(width(16, True))
    assert width(16, False) < width(16, True) / 3


def test_what_the_loads_of_two_folders_differ_by_and_cells_stray_by_is_allowed_for() -> None:
    quiet = replace(BLANK, seconds=(1.0,) * 9, load={"share": 1.0, "others": 0.0})
    busy = replace(quiet, load={"share": 0.8, "steal": 0.0, "others": 0.5})

    assert (share_of(quiet), share_of(busy)) == (1.0, 0.4)
    assert (is_loaded(quiet), is_loaded(busy)) == (False, True)
    assert is_loaded(replace(quiet, load={"share": 1.0, "others": 0.2}))
    assert allowed_shift([(quiet, quiet)]) == nearly(math.log(1.02))
    assert allowed_shift([(quiet, busy)]) == nearly(math.log(1.02) + math.log(1.6))
    assert allowed_shift([(replace(quiet, clock="predicted"),) * 2]) == 0.0

    still = [(replace(BLANK, seconds=(x,)), BLANK) for x in (0.9, 1.0, 1.0, 1.1, 5.0)]
    loaded = [(replace(a, load={"others": 0.5}), b) for a, b in still]
    assert stray_under_load(still) == 0.0
    assert stray_under_load(loaded) == nearly(1.96 * 1.4826 * math.log(1.1), 0.1)


# Two folders that are compared.


@pytest.mark.parametrize(("loss", "verdict"), [(1.05, "slower"), (1.0, "same"), (0.9, "faster")])
def test_two_folders_are_compared_beyond_noise(tmp_path: Path, loss: float, verdict: str) -> None:
    rng = np.random.default_rng(0)

    def side(factor: float) -> list[Sample]:
        own = {f"{cell}": (factor * 1e-5, False) for cell in range(6)}
        peers = {f"peer {cell}": (2e-5, True) for cell in range(6)}
        return [
            replace(
                BLANK,
                cell=cell,
                peer=peer,
                seconds=tuple(second * (1 + 0.01 * rng.random(21))),
                predicted=1e-5,
            )
            for cell, (second, peer) in (own | peers).items()
        ]

    comparison = compared(tmp_path, side(1.0), side(loss))
    assert [one.verdict for one in comparison.changes] == [verdict] * 6
    assert comparison.drift is not None


def test_what_peers_stray_is_noise(tmp_path: Path) -> None:
    def side(strayed: float) -> list[Sample]:
        peers = [
            replace(BLANK, cell=f"{k}", seconds=(strayed ** (1 if k % 2 else -1),) * 9, peer=True)
            for k in range(10)
        ]
        own = {"few": strayed**0.5, "more": strayed**3}
        return [*peers, *(replace(BLANK, cell=k, seconds=(x,) * 9) for k, x in own.items())]

    comparison = compared(tmp_path, side(1.0), side(1.1))
    assert comparison.margin == nearly(0.1)
    assert [one.verdict for one in comparison.changes] == ["same", "slower"]
    assert "changed by up to 10% without a cause" in str(comparison)


def test_cells_that_fail_or_change_with_a_file_are_named(tmp_path: Path) -> None:
    mine = Sample("before", "dense", {"m": 3}, "mine", (1.0,) * 9, 1)
    after = replace(mine, cell="after", seconds=(2.0,) * 9)
    gone = replace(mine, cell="gone", sizes={"m": 4})
    broken = replace(mine, cell="broken", contender="auto")
    comparison = compared(
        tmp_path, (mine, gone, broken), (after, replace(broken, seconds=(), failed="wrong values"))
    )
    (change,) = comparison.changes
    assert (change.label, change.verdict) == ("dense m=3 mine", "slower")
    assert (comparison.by_name, comparison.alone) == (("dense m=3 mine",), (1, 0))
    assert comparison.failed == ("dense m=3 auto: wrong values",)
    lines = str(comparison).splitlines()
    assert "compared by name, since what they measure differs (1): dense m=3 mine" in lines
    assert "cells of the first alone (1): dense m=4 mine" in lines
    assert "failed in the second  dense m=3 auto: wrong values" in str(comparison)


def test_the_mean_of_each_contender_is_said(tmp_path: Path) -> None:
    def side(name: str, seconds: float) -> list[Sample]:
        times = {"mine": seconds, "auto": 1.0}
        return [
            Sample(f"{who}{m}", "dense", {"m": m}, who, (time,) * 21, 1, turns=f"{name}{m}")
            for m in range(3, 7)
            for who, time in times.items()
        ]

    comparison = compared(tmp_path, side("a", 1.0), side("b", 1.5))
    assert {name: one.count for name, one in comparison.means.items()} == {"mine": 4, "auto": 4}
    mine, auto = str(comparison).splitlines()[-2:]
    assert mine.startswith("  mine, 4 cells: 0.667 (")
    assert mine.endswith("): slower")
    assert auto.startswith("  auto, 4 cells: 1.000 (")
    assert auto.endswith("): same")


def test_a_comparison_says_in_which_cells_a_change_would_be_missed(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    sides = [
        [
            replace(drawn(rng, ("normal", between, 0.002), 7), cell=name, contender=name)
            for name, between in (("sure", 0.002), ("vague", 0.05))
        ]
        for _ in range(2)
    ]
    comparison = compared(tmp_path, *sides)

    sure, vague = comparison.changes
    assert (sure.processes, sure.more_processes, sure.verdict) == (7, 0, "same")
    more = vague.more_processes
    assert more > 10
    lines = str(comparison).splitlines()
    missed = "in which 5% would be missed more than 1 time in 10 (1): "
    assert f"{missed}dense m=1 vague ({more} processes more)" in lines
    assert f"  processes = {7 + more} in both studies finds it in all of them" in lines

    change = Change("dense m=1 auto", Ratio(1.0, 1 / 1.0205, 1.0205), processes=7)
    text = str(Comparison("a", "b", (change,), (), (), Ratio(1.0, 1.0, 1.0)))
    assert change.more_processes == 1
    assert f"{missed}dense m=1 auto (1 process more)" in text


@pytest.mark.parametrize("peers", [(), ("peer",)], ids=["alone", "beside a peer"])
def test_processes_that_are_advised_allow_for_their_fewer_rounds(
    peers: tuple[str, ...], tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)

    def side(turns: str) -> list[Sample]:
        one = replace(drawn(rng, ("normal", 0.0, 0.0), 7), round=tuple(range(3)) * 7, turns=turns)
        return [
            replace(
                one,
                cell=name,
                contender=name,
                peer=name == "peer",
                seconds=tuple(np.exp(rng.exponential(0.2, 21))),
            )
            for name in ("mine", *peers)
        ]

    (change,) = compared(tmp_path, side("a"), side("b")).changes
    assert change.growth[-1] == 1.0
    assert change.growth[0] > 1.3, "the shortest of three exponential ones differs by a third"
    assert change.more_processes > replace(change, growth=(1.0,)).more_processes


def test_peers_that_took_turns_take_out_what_disturbed_a_process(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)

    def rows(loss: float, contenders: tuple[str, ...]) -> list[Sample]:
        """Eight rows in 12 processes, each of which something disturbs by some 10 %."""
        found = []
        for m, process in itertools.product(range(8), range(12)):
            disturbed = math.exp(abs(float(rng.normal())) * 0.1)
            for name in contenders:
                peer = name == "numpy"
                second = disturbed * math.exp(0.01 * float(rng.normal())) * (1 if peer else loss)
                one = line(process, second, cell=f"{m} {name}", contender=name, peer=peer)
                found.append(replace(one, sizes={"m": m}, load={}))
        return found

    both = ("auto", "numpy")
    first, again, slower = rows(1.0, both), rows(1.0, both), rows(1.05, both)
    comparison = compared(tmp_path / "slower", first, slower)
    assert (len(comparison.slower), comparison.faster, comparison.margin) == (8, (), 0.01)
    same = compared(tmp_path / "again", first, again)
    assert same.slower == same.faster == ()
    alone = compared(tmp_path / "alone", rows(1.0, ("auto",)), rows(1.05, ("auto",)))
    assert alone.slower == ()


def test_a_comparison_with_a_folder_of_one_process_says_so(tmp_path: Path) -> None:
    several = [line(process, 1.0) for process in range(3)]
    text = str(compared(tmp_path, [replace(line(0, 1.0), process=())], several))

    what = "measured in one process, whose layout of memory may look like a change"
    assert f"{what} (1): dense m=1 auto" in text.splitlines()


def test_what_is_predicted_changes_by_little_and_without_the_machine(tmp_path: Path) -> None:
    predicted = replace(line(0, 1.0), process=(), clock=PREDICTED)
    text = str(compared(tmp_path, [predicted], [predicted]))
    assert "machine" not in text
    assert "no peers" not in text
    assert "0 slower, 0 faster, 1 the same to 0% and their 95 % intervals" in text.splitlines()
    more = replace(predicted, seconds=(1.001,) * 2)
    changed = compared(tmp_path / "more", [predicted], [more]).slower
    assert [one.label for one in changed] == ["dense m=1 auto"]


def test_two_folders_of_one_code_are_the_same_under_load_and_it_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)

    def side(load: float) -> list[Sample]:
        slower = math.exp(0.3 * load)
        return [
            replace(one, seconds=tuple(slower * second for second in one.seconds))
            for one in folder(rng, 4, 0.01, load)
            if not one.peer
        ]

    comparison = compared(tmp_path, side(0.0), side(0.4))
    text = str(comparison)
    assert (comparison.slower, comparison.faster) == ((), ())
    assert "by their loads, and by what cells stray, " in text
    assert "LOADED: others used the processor in 8 measurements" in text
    assert " either way is for the machine: same\n" in text
    assert {name: one.count for name, one in comparison.means.items()} == {"auto": 4, "mask": 4}
