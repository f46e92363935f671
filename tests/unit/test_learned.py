"""A correction that is learned: what it finds, what it says of itself, when it stays out, and its file. Features of schedules: by hand, own ones, refused ones."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from itertools import combinations
from math import exp, hypot, isnan, log, log1p
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import rejection, slow

from offcut import Schedule
from offcut.costmodel.learned import (
    FEATURES,
    Case,
    Settings,
    check_names,
    compute_features,
    load_features,
    pair_accuracy,
    train,
)
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
from offcut.errors import DescribeError
from tests import spaces
from tests.agree import agree, nearly, of_peer
from tests.facade import Cases, CorrectedModel, Dataset, Nest, Problem, parts_of, with_parts

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


# Features: numbers of a schedule by hand, what they depend on, own ones, and what is refused.


SIZES = (1, 20, 64)


@cache
def cases(name: str = "dense", machine: str = "cascade-lake") -> Cases:
    request, options, target = spaces.problem(name, machine)
    vectors = tuple(({"n": n}, 1.0) for n in SIZES)
    computation = spaces.space(name, 3, machine).computation
    return Cases(Problem(request, options, target, vectors), computation)


def first(name: str = "dense") -> Schedule:
    return spaces.space(name).first


def numbers(case: Case) -> Mapping[str, Any]:
    names, found = compute_features(case, FEATURES)
    return dict(zip(names, found.T, strict=True))


def with_strategy(name: str) -> Schedule:
    return Schedule.parse(re.sub(r"(split \S+\.i) .* as", rf"\1 {name} 14 as", str(first())))


def test_the_numbers_of_a_dense_layer_are_those_by_hand() -> None:
    found = numbers(cases()(with_strategy("cut")))
    flop = [2 * n * 96 * 80 for n in SIZES]

    assert found["counts.flop"] == nearly(np.log1p(flop), rel=1e-2)
    assert found["counts.flop_by_run"] == nearly(found["counts.flop"] - found["counts.runs"], abs=1)
    assert found["counts.least_size"] == nearly(np.log1p(SIZES))
    assert found["counts.stages"] == nearly(log1p(1))
    assert found["counts.threads"] == nearly(0)
    assert found["machine.hertz"] == nearly(log(2.1e9))
    assert found["machine.L1.bytes"] == nearly(log(32 * 1024))
    assert found["machine.issue.rate"] == nearly(log(4))
    assert found["memories.main"] == nearly(0)
    tails = found["counts.tails"]
    assert tails[0] > tails[1] > tails[2] > 0
    assert (numbers(cases()(with_strategy("guard")))["counts.tails"] != tails).any()


@pytest.mark.parametrize("name", ["dense", "softmax"])
def test_nests_are_counted_as_the_cost_that_is_printed(name: str) -> None:
    """Names are the same, and so are counts that no cache decides."""
    priced = numbers(cases(name)(first(name)))
    costs = cases(name).costs(first(name))
    names, found = compute_features(
        Case.of_costs(costs, cases(name)(first(name)).machine), FEATURES
    )
    printed = dict(zip(names, found.T, strict=True))

    assert list(printed) == list(priced)
    for key in ("flop", "runs", "flop_by_run", "instructions_by_run", "stages", "least_size"):
        assert printed[f"counts.{key}"] == nearly(priced[f"counts.{key}"], rel=1e-2)
    for key in ("compute", "issue", "call"):
        assert printed[f"resources.{key}"] == nearly(priced[f"resources.{key}"], abs=0.02)


def test_the_closed_form_is_among_them() -> None:
    found, case = numbers(cases()(first())), cases()(first())

    assert np.exp(found["resources.seconds"]) == nearly(case.seconds)
    binds = sum(found[name] for name in found if name.endswith(".binds"))
    assert binds + found["resources.call"] == nearly(1, abs=0.05)


@pytest.mark.parametrize(
    "name", [name if name == "dense" else slow(name) for name in spaces.PROGRAMS]
)
def test_every_schedule_of_a_program_has_the_same_finite_features(name: str) -> None:
    space, rng, names = spaces.space(name), Random(3), set[tuple[str, ...]]()
    for _ in range(12):
        named, found = compute_features(cases(name)(space.sample(rng)), FEATURES)
        names.add(named)
        assert found.shape == (len(SIZES), len(named))
        assert np.isfinite(found).all()
    assert len(names) == 1
    if name == "dense":
        there, found = compute_features(
            cases(name, "zen4")(spaces.space(name, 3, "zen4").first), FEATURES
        )
        here, one = compute_features(cases(name)(first()), FEATURES)
        assert here == there
        assert (one != found)[:, [name.startswith("machine.") for name in here]].any()


def test_variants_that_no_call_takes_count_as_variants_and_take_the_time_of_a_choice() -> None:
    (nest,) = parts_of(first())
    assert isinstance(nest, Nest)
    (variant,) = nest.variants
    slow = replace(variant, label="slow", cost=None)
    both = with_parts(first(), (replace(nest, variants=(variant, slow)),))
    alone, found = numbers(cases()(first())), numbers(cases()(both))

    changed = {name for name in found if found[name] != nearly(alone[name], rel=1e-9)}
    assert {"resources.call", "resources.seconds"} <= changed
    assert not {name for name in changed if name.startswith(("counts.f", "counts.r", "memories."))}


def mine(case: Case) -> Any:
    return case.flop


def of_sizes(case: Case) -> Any:
    return {"n": case.sizes["n"], "one": 1}


def test_own_features_are_called_after_their_functions() -> None:
    names, found = compute_features(cases()(first()), (mine, of_sizes))

    assert names == ("mine", "of_sizes.n", "of_sizes.one")
    np.testing.assert_array_equal(found[:, 1:], [[n, 1] for n in SIZES])
    assert load_features()[: len(FEATURES)] == FEATURES


@pytest.mark.parametrize(
    ("feature", "because"),
    [
        (lambda case: 1 / 0, "it raised ZeroDivisionError: division by zero"),
        (lambda case: "much", "it gave 'much'"),
        (lambda case: {"x": float("nan")}, "it gave nan"),
        (lambda case: [1, 2], "it gave [1, 2]"),
    ],
)
def test_what_gives_no_number_is_refused(feature: Any, because: str) -> None:
    with rejection(
        f"DescribeError: learn: cannot take the feature <lambda>\n  because  {because}\n"
        "  help     a number, a number for each vector of sizes, or several of these by name"
    ):
        compute_features(cases()(first()), (feature,))


def test_two_features_of_one_name_are_refused() -> None:
    with rejection("""\
DescribeError: learn: cannot take the feature <lambda>
  because  <lambda> is given twice
  help     each function once
  help     def a_name_of_its_own(case): …"""):
        compute_features(
            cases()(first()), (lambda case: case.flop, mine, lambda case: case.seconds)
        )
    with pytest.raises(DescribeError, match=r"of_sizes\.n is given twice"):
        compute_features(cases()(first()), (of_sizes, of_sizes))


def test_features_that_are_others_for_another_schedule_are_refused() -> None:
    check_names((), ("a",))
    check_names(("a", "b"), ("a", "b"))
    with rejection("""\
DescribeError: learn: cannot take the feature mine
  because  mine.x is there for some schedules only
  help     the same names for every schedule"""):
        check_names(("a", "mine.x"), ("a", "mine.y"))
