"""The interval of a mean over two folders, on samples that are drawn: the same code under load, and a loss on a quiet machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offcut.experiment.timing import Ratio
from offcut.studies import compare
from offcut.studies.resampling import Pair, allowed_shift, mean_ratio, stray_under_load
from offcut.studies.samples import FILE, Sample, append_samples
from offcut.studies.statistics import geometric_mean, is_loaded, ratio, share_of
from tests.agree import nearly

ROUNDS = 21
TRIALS = 40


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
        rounds = np.array(steps(rng, ROUNDS, 0.8, drift))
        share = load * float(rng.uniform(0.8, 1.2))
        for name in ("auto", "mask", "numpy"):
            peer = name == "numpy"
            noise = rng.normal(size=ROUNDS) * 0.01
            seconds = tuple(1e-5 * (1.0 if peer else loss) * np.exp(common + rounds + noise))
            one = Sample(f"{group} {name}", "dense", {"m": group}, name, seconds, 1, peer=peer)
            used = {"share": 1 - share, "steal": 0.0, "others": share}
            samples.append(replace(one, turns=f"{group}", load=used))
    return samples


def pairs(first: list[Sample], second: list[Sample], peer: bool) -> list[Pair]:
    return [pair for pair in zip(first, second, strict=True) if pair[0].peer == peer]


def without_peers(first: list[Sample], second: list[Sample]) -> Ratio:
    ours = pairs(first, second, False)
    mean = mean_ratio(ours, allowed=allowed_shift(ours))
    assert mean is not None
    return mean.ratio


def with_peers(first: list[Sample], second: list[Sample]) -> Ratio:
    mean = mean_ratio(pairs(first, second, False), pairs(first, second, True))
    assert mean is not None
    return mean.ratio


def independent(first: list[Sample], second: list[Sample]) -> Ratio:
    """Return the mean as of cells that share nothing."""
    ratios = [ratio(*pair) for pair in pairs(first, second, False)]
    mean = geometric_mean(ratios, [1.0] * len(ratios))
    assert mean is not None
    return mean.ratio


def alarms(
    interval: Callable[[list[Sample], list[Sample]], Ratio],
    groups: int,
    drift: float,
    load: float,
    loss: float = 1.0,
) -> float:
    """Return the part of trials whose interval leaves out 1."""
    rng = np.random.default_rng(groups)
    count = 0
    for _ in range(TRIALS):
        first = folder(rng, groups, drift, load)
        one = interval(first, folder(rng, groups, drift, load, loss))
        assert one.low <= one.value <= one.high
        count += not one.low <= 1 <= one.high
    return count / TRIALS


@pytest.mark.parametrize("groups", [3, 8])
def test_the_same_code_on_a_loaded_machine_is_no_alarm(groups: int) -> None:
    assert alarms(without_peers, groups, drift=0.05, load=0.3) <= 0.15
    assert alarms(with_peers, groups, drift=0.05, load=0.3) <= 0.15
    assert alarms(independent, groups, drift=0.05, load=0.3) > 0.4, "as of independent cells"


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("interval", [without_peers, with_peers])
def test_a_loss_of_five_in_a_hundred_on_a_quiet_machine_is_seen(
    groups: int, interval: Callable[[list[Sample], list[Sample]], Ratio]
) -> None:
    assert alarms(interval, groups, drift=0.003, load=0.0, loss=1.05) == 1.0
    assert alarms(interval, groups, drift=0.003, load=0.0) <= 0.15


def test_cells_that_share_rounds_are_no_more_than_one() -> None:
    rng = np.random.default_rng(0)
    rounds = [np.exp(rng.normal(size=ROUNDS) * 0.05) for _ in range(2)]

    def widths(cells: int, shared: bool) -> float:
        sides = [
            [
                Sample(f"{k}", "d", {}, "c", tuple(seconds), 1, turns="t" if shared else f"{k}")
                for k in range(cells)
            ]
            for seconds in rounds
        ]
        mean = mean_ratio(list(zip(*sides, strict=True)))
        assert mean is not None
        return mean.ratio.high / mean.ratio.low - 1

    assert widths(1, True) == nearly(widths(16, True))
    assert widths(16, False) < widths(16, True) / 3


def test_what_the_loads_of_two_folders_differ_by_is_allowed_for() -> None:
    quiet = Sample("a", "d", {}, "c", (1.0,) * 9, 1, load={"share": 1.0, "others": 0.0})
    busy = replace(quiet, load={"share": 0.8, "steal": 0.0, "others": 0.5})

    assert (share_of(quiet), share_of(busy)) == (1.0, 0.4)
    assert (is_loaded(quiet), is_loaded(busy)) == (False, True)
    assert is_loaded(replace(quiet, load={"share": 1.0, "others": 0.2}))
    assert allowed_shift([(quiet, quiet)]) == nearly(math.log(1.02))
    assert allowed_shift([(quiet, busy)]) == nearly(math.log(1.02) + math.log(1.6))
    assert allowed_shift([(replace(quiet, clock="predicted"),) * 2]) == 0.0


def test_two_folders_of_one_code_are_the_same_under_load_and_it_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for name, load in (("a", 0.0), ("b", 0.4)):
        (tmp_path / name).mkdir()
        slower = math.exp(0.3 * load)
        for one in folder(rng, 4, 0.01, load):
            if not one.peer:
                times = tuple(slower * seconds for seconds in one.seconds)
                append_samples(tmp_path / name / FILE, [replace(one, seconds=times)])
    text = str(comparison := compare(tmp_path / "a", tmp_path / "b"))

    assert (comparison.slower, comparison.faster) == ((), ())
    assert "by their loads, and by what cells stray, " in text
    assert "LOADED: others used the processor in 8 measurements" in text
    assert " either way is for the machine: same\n" in text
    assert {name: one.count for name, one in comparison.means.items()} == {"auto": 4, "mask": 4}


def test_cells_stray_under_load_by_what_most_of_them_do() -> None:
    quiet = [
        (Sample("a", "d", {}, "c", (x,), 1), Sample("a", "d", {}, "c", (1.0,), 1))
        for x in (0.9, 1.0, 1.0, 1.1, 5.0)
    ]
    loaded = [(replace(a, load={"others": 0.5}), b) for a, b in quiet]

    assert stray_under_load(quiet) == 0.0
    assert stray_under_load(loaded) == nearly(1.96 * 1.4826 * math.log(1.1), 0.1)


def test_a_predicted_time_that_changes_by_little_has_changed(tmp_path: Path) -> None:
    for name, seconds in (("a", 1.0), ("b", 1.001)):
        (tmp_path / name).mkdir()
        one = Sample("c", "d", {"m": 1}, "auto", (seconds,), 1, clock="predicted")
        append_samples(tmp_path / name / FILE, [one])

    assert [one.label for one in compare(tmp_path / "a", tmp_path / "b").slower] == ["d m=1 auto"]
