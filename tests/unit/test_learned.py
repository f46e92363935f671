"""A correction that is learned: what it finds, what it says of itself, when it stays out, and its file."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import cache
from itertools import combinations
from math import exp, hypot, isnan
from pathlib import Path
from random import Random

import numpy as np
import pytest

from offcut.costmodel.learned import Settings, pair_accuracy, train
from offcut.costmodel.learned.corrected_model import fit_domain
from offcut.costmodel.learned.dataset import centered_features
from offcut.costmodel.learned.ensemble import Trees, consensus, parts
from offcut.costmodel.learned.metrics import (
    LEVEL,
    TEMPERATURE,
    coverage,
    gradient,
    kendall_tau,
    pairs,
    pairwise_accuracy,
    recall_at,
    regret,
)
from tests.agree import agree, nearly, of_peer
from tests.facade import CorrectedModel, Dataset

QUICK = Settings(rounds=40, depth=3)


def rows(seed: int = 0, programs: int = 5, schedules: int = 24) -> Dataset:
    """Programs whose closed form misses a factor that one feature tells, and a little that none does."""
    rng = np.random.default_rng(seed)
    count = programs * schedules * 2
    features = rng.uniform(0, 1, (count, 4))
    closed = np.exp(rng.normal(0, 0.3, count))
    missed = 0.6 * (features[:, 0] > 0.5) + 0.4 * features[:, 1] + 0.2
    program = np.repeat([f"p{one}" for one in range(programs)], schedules * 2)
    return Dataset(
        ("step", "slope", "odd", "other"),
        features,
        program,
        place=np.full(count, "m"),
        machine=np.full(count, "m"),
        sizes=np.tile(["n=1", "n=9"], count // 2),
        schedule=np.repeat([f"s{one}" for one in range(count // 2)], 2),
        seconds=closed * np.exp(missed + rng.normal(0, 0.02, count)),
        spread=np.full(count, 0.03),
        closed=closed,
    )


@cache
def pair() -> CorrectedModel:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    return train(rows(), 0, QUICK, "1.0")


def test_the_loss_has_the_gradient_of_its_formula_and_is_least_at_what_was_measured() -> None:
    rng = np.random.default_rng(1)
    seconds, base = rng.normal(0, 0.3, 9), rng.normal(0, 0.3, 9)
    groups = [np.arange(5), np.arange(5, 9)]

    def loss(correction: np.ndarray) -> float:
        total = 0.0
        for group in groups:
            wanted, found = (x[group] for x in (seconds, base + correction))
            d, e = (x[:, None] - x[None, :] for x in (wanted, found))
            target, said = (1 / (1 + np.exp(-x / TEMPERATURE)) for x in (d, e))
            entropy = -target * np.log(said) - (1 - target) * np.log(1 - said)
            total += TEMPERATURE * entropy.sum() / len(group) / 2
            total += LEVEL * ((found - wanted) ** 2).sum() / 2
        return total

    derivatives, at, step = gradient(groups, seconds, base, 0), rng.normal(0, 0.2, 9), 1e-6
    first, second = derivatives(at)
    by_hand = [(loss(at + step * unit) - loss(at - step * unit)) / (2 * step) for unit in np.eye(9)]
    assert first == nearly(np.array(by_hand), abs=1e-6)
    assert (second >= LEVEL).all()
    assert derivatives(seconds - base)[0] == nearly(np.zeros(9), abs=1e-12)
    alone = gradient([np.array([0])], np.zeros(1), np.ones(1), 0)(np.zeros(1))
    assert (alone[0][0], alone[1][0]) == (LEVEL, LEVEL)
    many = rng.normal(0, 1, 600)  # of which some are partners, the same each time
    one, again = (gradient([np.arange(600)], many, np.zeros(600), 3) for _ in range(2))
    np.testing.assert_array_equal(one(np.zeros(600))[0], again(np.zeros(600))[0])
    assert one(many)[0] == nearly(np.zeros(600), abs=1e-12)


def test_the_pair_orders_new_rows_better_than_the_closed_form() -> None:
    new = rows(seed=1)
    found = pair().predict(new.features, new.closed)

    assert set(found.because) == {""}
    assert pair_accuracy(new, found.seconds) > 0.9 > 0.8 > pair_accuracy(new, new.closed)
    assert 0.8 < coverage(new.seconds, found.seconds, found.spread) <= 1
    assert np.median(found.spread) < 0.3
    assert abs(np.log(new.seconds / found.seconds).mean()) < 0.1
    assert pair().learned["pairs ordered"]["pair"] > pair().learned["pairs ordered"]["closed form"]


def test_what_is_learned_of_one_program_orders_another_that_is_larger() -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")

    def made(program: str, size: float, seed: int) -> Dataset:
        """Schedules whose seconds go by how much of them is slow, beside a size that says nothing of their order."""
        rng = np.random.default_rng(seed)
        slow = rng.random(24)
        features = np.stack([slow + size, np.full(24, size)], axis=1)
        texts = {name: np.full(24, program) for name in ("program", "place", "machine", "sizes")}
        return Dataset(
            ("slow", "size"),
            features,
            **texts,
            schedule=np.array([f"{program}{k}" for k in range(24)]),
            seconds=np.exp(size + slow),
            spread=np.full(24, 0.001),
            closed=np.full(24, np.exp(size)),
        )

    seen = [made(f"p{k}", float(size), k) for k, size in enumerate((0, 2, 5, 7))]
    joined = Dataset(
        seen[0].names,
        *(
            np.concatenate([getattr(one, field.name) for one in seen])
            for field in fields(Dataset)
            if field.name != "names"
        ),
    )
    new = made("other", 3.5, 9)
    found = train(joined, 0, QUICK).corrected_seconds(new.features, new.closed, new.centre)
    assert pairwise_accuracy(new.seconds, found.seconds, new.spread) > 0.9


def test_trees_as_arrays_give_what_the_boosters_do() -> None:
    members = pair().ensemble.members
    asked = centered_features(rows(seed=3).features, rows().centre).astype(np.float32)
    wanted = [one.inplace_predict(asked, predict_type="margin") for one in members]

    agree(Trees.of(members)(asked), of_peer(np.array(wanted)), sums="float32")


def test_a_feature_past_what_was_seen_is_named_and_the_closed_form_stays() -> None:
    new = rows(seed=1).at(np.arange(6))
    far = new.features.copy()
    far[:4, 2] = 3.0
    found = pair().predict(far, new.closed)

    np.testing.assert_array_equal(found.seconds, new.closed)
    assert set(found.because) == {"odd is 3, and 0.00382 … 1 is what was learned from"}
    np.testing.assert_array_equal(found.spread, pair().closed)
    few = new.features.copy()
    few[:3, 2] = 3.0
    assert set(pair().predict(few, new.closed).because) == {""}


def test_what_is_far_from_every_row_is_said_to_be() -> None:
    corners = replace(rows(), features=np.round(rows().features))
    near = corners.features[:, 0] == corners.features[:, 1]
    seen = corners.at(near)
    known = fit_domain(seen, parts(seen.schedule, 4, 0), 0)
    middle = np.array([[1.0, 0.0, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0]])

    assert known.reasons_outside(middle) == [
        f"the nearest of what was learned from is 0.62 away, and {known.limit:.2g} is the most",
        "",
    ]


def test_what_orders_no_better_than_the_closed_form_is_never_used() -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    rng = np.random.default_rng(9)
    odd = replace(rows(), features=rng.uniform(0, 1, rows().features.shape))
    made = train(odd, 0, QUICK)
    assert made.useless.startswith("of schedules that it had not seen it orders ")
    found = made.predict(odd.features, odd.closed)

    np.testing.assert_array_equal(found.seconds, odd.closed)
    assert set(found.because) == {made.useless}


def test_the_spread_covers_programs_that_it_has_not_seen() -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    made = rows()
    other = (made.program == "p1") | (made.program == "p3")
    odd = replace(made, seconds=made.seconds * np.where(other, 2.0, 1.0))

    assert train(odd, 0, QUICK).doubt > 0.5 > 0.3 > pair().doubt


def test_a_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    pair().save(tmp_path / "model.json")
    new = rows(seed=1)
    again = CorrectedModel.load(tmp_path / "model.json")
    one, other = (made.predict(new.features, new.closed) for made in (pair(), again))

    np.testing.assert_array_equal(one.seconds, other.seconds)
    np.testing.assert_array_equal(one.spread, other.spread)
    assert again.learned == json.loads(json.dumps(pair().learned))
    assert (again.learned["rows"], again.learned["programs"]) == (240, 5)
    assert [file.name for file in tmp_path.iterdir()] == ["model.json"]
    taught, other = (
        train(rows(), seed, QUICK).predict(new.features, new.closed) for seed in (0, 1)
    )
    np.testing.assert_array_equal(taught.seconds, one.seconds)
    assert (other.seconds != one.seconds).any()


def test_rows_are_read_as_they_were_written_grouped_and_left_out_by_program(tmp_path: Path) -> None:
    made = rows(programs=3)
    made.save(tmp_path / "rows.npz")
    again = Dataset.load(tmp_path / "rows.npz")
    assert again.names == made.names
    np.testing.assert_array_equal(again.features, made.features)
    np.testing.assert_array_equal(again.schedule, made.schedule)
    assert len(made.groups) == 6
    assert sorted(np.concatenate(made.groups)) == list(range(len(made)))
    part = parts(rows().program, 4, 0)
    assert set(part) == {0, 1, 2, 3}
    assert all(len(set(part[rows().program == one])) == 1 for one in np.unique(rows().program))


@pytest.mark.parametrize(
    ("said", "levels", "taken"),
    [
        ([[0.3, -0.2, 0.0]] * 4, [[0.0]] * 4, [0.3, -0.2, 0.0]),
        ([[0.25]], [[0.0]], [0.25]),  # one member is taken at its word
        ([[0.5, 0.5], [-0.5, -0.5], [0.5, 0.5], [-0.49, -0.51]], [[0.0]] * 4, [0.0, 0.0]),
        (  # the order of rows is kept where members differ in the level alone
            [[level, 0.2 + level, -0.4 + level] for level in (1.0, -1.0, 0.9, -0.9)],
            [[1.0], [-1.0], [0.9], [-0.9]],
            [0.0, 0.2, -0.4],
        ),
    ],
    ids=["all agree", "one", "they contradict each other", "levels"],
)
def test_what_members_agree_on_is_taken_and_where_they_differ_the_closed_form_stays(
    said: list[list[float]], levels: list[list[float]], taken: list[float]
) -> None:
    assert consensus(np.array(said), np.array(levels)) == nearly(np.array(taken), abs=1e-4)
    mixed = np.random.default_rng(0).normal(0.1, 0.3, (4, 200))
    found, mean = consensus(mixed, np.zeros((4, 1))), mixed.mean(axis=0)
    assert (np.abs(found) <= np.abs(mean)).all()
    assert (found * mean >= 0).all()


# How well predictions order what was measured, against counts one by one.


Drawn = tuple[list[float], list[float], list[float]]


def drawn(seed: int, count: int = 23) -> Drawn:
    """Measured and predicted seconds, some of them equal, and spreads."""
    rng = Random(seed)
    seconds = [rng.choice([1.0, 1.1, 2.0, 3.0, 4.5]) * rng.choice([1, 1.01]) for _ in range(count)]
    predicted = [one * rng.choice([0.5, 1.0, 1.0, 2.0]) for one in seconds]
    return seconds, predicted, [rng.choice([0.0, 0.05, 0.3]) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_those_whose_order_is_known(seed: int) -> None:
    seconds, predicted, spread = drawn(seed)
    right = count = 0.0
    for a, b in combinations(range(len(seconds)), 2):
        fast, slow = (a, b) if seconds[a] < seconds[b] else (b, a)
        noise = hypot(seconds[a] * spread[a] / 2, seconds[b] * spread[b] / 2)
        if seconds[slow] - seconds[fast] <= noise:
            continue
        count += 1
        right += (
            1 if predicted[fast] < predicted[slow] else 0.5 * (predicted[fast] == predicted[slow])
        )

    assert pairwise_accuracy(seconds, predicted, spread) == nearly(right / count)
    from scipy.stats import kendalltau  # a second, of which the other tests need nothing

    assert kendall_tau(seconds, predicted) == nearly(kendalltau(seconds, predicted)[0])


def test_ties_alone_have_no_order_and_what_lies_within_the_spread_is_covered() -> None:
    assert pairwise_accuracy([1.0, 2.0, 3.0, 4.0], [1.0] * 4) == 0.5
    assert pairs([1.0, 1.15], [2.0, 1.0], apart_by=0.15) == (0.0, 0)
    assert isnan(pairwise_accuracy([1.0, 1.01], [1.0, 2.0], 0.1))
    assert isnan(kendall_tau([1.0, 1.0], [1.0, 2.0]))
    seconds = [exp(0.09), exp(-0.11), exp(0.49), exp(-0.49)]
    assert coverage(seconds, [1.0, 1.0, 1.0, 1.0], [0.1, 0.1, 0.5, 0.5]) == 0.75


@pytest.mark.parametrize("k", [1, 4, 23, 30])
def test_recall_and_regret_count_the_chosen(k: int) -> None:
    seconds, predicted, _ = drawn(7)
    order = sorted(range(len(seconds)), key=lambda one: (seconds[one], one))
    chosen = sorted(range(len(seconds)), key=lambda one: (predicted[one], one))[:k]
    most = min(k, len(seconds))

    assert recall_at(k, seconds, predicted) == len({*order[:most]} & {*chosen}) / most
    assert regret(seconds, predicted, k) == nearly(
        min(seconds[one] for one in chosen) / min(seconds) - 1
    )
