"""Features: numbers of a schedule by hand, what they depend on, own ones, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import log, log1p
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import rejection

from offcut import Schedule
from offcut.costmodel.learned import (
    FEATURES,
    Case,
    check_names,
    compute_features,
    load_features,
)
from offcut.errors import DescribeError
from tests import spaces
from tests.agree import nearly
from tests.facade import Cases, Nest, Problem, parts_of, with_parts

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


def test_tails_are_the_cycles_of_tiles_that_are_not_whole() -> None:
    tails = numbers(cases()(with_strategy("cut")))["counts.tails"]
    even = numbers(cases()(with_strategy("guard")))["counts.tails"]

    assert tails[0] > tails[1] > tails[2] > 0
    assert (even != tails).any()


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


@pytest.mark.every(6)
@pytest.mark.parametrize("name", spaces.PROGRAMS)
def test_every_schedule_of_a_program_has_the_same_finite_features(name: str) -> None:
    space, rng, names = spaces.space(name), Random(3), set[tuple[str, ...]]()
    for _ in range(12):
        named, found = compute_features(cases(name)(space.sample(rng)), FEATURES)
        names.add(named)
        assert found.shape == (len(SIZES), len(named))
        assert np.isfinite(found).all()
    assert len(names) == 1


def test_another_machine_has_other_ratios_and_the_same_names() -> None:
    here = cases()(first())
    there = cases("dense", "zen4")(spaces.space("dense", 3, "zen4").first)
    (names, one), (others, other) = (
        compute_features(here, FEATURES),
        compute_features(there, FEATURES),
    )

    assert names == others
    assert (one != other)[:, [name.startswith("machine.") for name in names]].any()


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


def raises(case: Case) -> Any:
    return 1 / 0


def says(case: Case) -> Any:
    return "much"


def is_no_number(case: Case) -> Any:
    return {"x": float("nan")}


def too_many(case: Case) -> Any:
    return [1, 2]


REFUSED = {
    raises: "it raised ZeroDivisionError: division by zero",
    says: "it gave 'much'",
    is_no_number: "it gave nan",
    too_many: "it gave [1, 2]",
}


@pytest.mark.parametrize("feature", REFUSED, ids=lambda one: one.__name__)
def test_what_gives_no_number_is_refused(feature: Any) -> None:
    with rejection(
        f"DescribeError: learn: cannot take the feature {feature.__name__}\n"
        f"  because  {REFUSED[feature]}\n"
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
