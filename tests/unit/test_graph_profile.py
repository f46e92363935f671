"""Profiles of models: each kernel of a call by name, with what it took; a call that is watched gives the same bits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut.graph.models.kernel_step import Observed, Step, observed_by
from tests.agree import nearly
from tests.facade import Builder, Model, compile_graph
from tests.graphs import arrays, drawn
from tests.unit.test_graph_microbatches import in_parts, runs_of
from tests.unit.test_graph_minimal import windows


class Names:
    """Notes the names of what is called."""

    def __init__(self) -> None:
        self.models, self.kernels = list[dict[str, int]](), list[str]()

    def model(self, model: Observed, sizes: Mapping[str, int]) -> AbstractContextManager[Any]:
        self.models.append(dict(sizes))
        return nullcontext()

    def kernel(self, step: Step) -> AbstractContextManager[Any]:
        self.kernels.append(step.name)
        return nullcontext()


def layers(target: str = "cpu") -> Model:
    made = Builder("layers")
    x = made.input("x", "float32", (made.size("n", 1, 64), 32))
    w, v = (made.constant(name, np.ones((32, 32), "float32")) for name in "wv")
    made.output(
        made.node("softmax", made.node("dense", made.node("relu", made.node("dense", x, w)), v))
    )
    return compile_graph(made.bound, threads=1, target=target)


@pytest.mark.parametrize("seed", [0, 301])
def test_a_watched_call_gives_the_same_bits_and_names_each_kernel(seed: int) -> None:
    bound = drawn(seed)
    model, names = compile_graph(bound, threads=1), Names()
    for sizes in ({"b": 1, "n": 1}, {"b": 4, "n": 3}):
        given = arrays(bound, seed, **sizes)
        wanted = model(given)
        with observed_by(names):
            results = model(given)
        assert names.models.pop() == sizes
        assert names.kernels == [step.name for step in model.steps]
        names.kernels.clear()
        for name, array in wanted.items():
            np.testing.assert_array_equal(results[name], array)
        np.testing.assert_array_equal(model(given)[name], array)
    assert names.kernels == []


def test_kernels_that_run_for_a_part_of_the_batch_are_watched_part_by_part() -> None:
    bound = drawn(300, 9)
    model, names = compile_graph(bound, threads=1), Names()
    given = arrays(bound, 300, b=2, n=5)
    wanted = model(given)
    (first, end), *_ = runs_of(model, "n", 300)
    in_parts(model, "n", [((first, end), 3)])
    with observed_by(names):
        results = model(given)
    every = [step.name for step in model.steps]
    assert names.kernels == every[:first] + 2 * every[first:end] + every[end:]
    for name, array in wanted.items():
        np.testing.assert_array_equal(results[name], array)
    assert [one.times for one in model.profile(given, calls=2).kernels][first] == 2


def test_a_profile_says_what_each_kernel_took_and_what_limits_it(tmp_path: Path) -> None:
    model = layers()
    profile = model.profile(np.ones((7, 32), "float32"), calls=3)
    assert (profile.name, profile.sizes, profile.calls) == ("layers", {"n": 7}, 3)
    assert [one.value for one in profile.kernels] == [step.name for step in model.steps]
    assert [one.operators for one in profile.kernels] == ["dense relu", "dense", "softmax"]
    predicted = {one.value: (one.seconds, one.bound_by) for one in model.cost(n=7).kernels}
    for one in profile.kernels:
        assert one.seconds > 0
        assert (one.predicted, one.bound_by) == predicted[one.value]
    assert sum(map(profile.share, profile.kernels)) == nearly(1.0)
    lines = str(profile).splitlines()
    assert lines[0].startswith("layers(n = 7): a call takes ")
    assert lines[1].split() == [
        *("value", "operators", "measured", "share", "predicted", "bound", "by")
    ]
    assert len(lines) == 5
    assert profile._repr_html_().startswith("<pre>layers")
    events = json.loads(profile.chrome_trace())["traceEvents"]
    assert [one["name"] for one in events] == [one.value for one in profile.kernels]
    ends = [one["ts"] + one["dur"] for one in events]
    assert events[0]["ts"] == 0
    assert all(begin["ts"] >= end for begin, end in zip(events[1:], ends, strict=False))
    profile.plot(tmp_path / "profile.svg")
    assert "<svg" in (tmp_path / "profile.svg").read_text()


def test_sums_as_they_are_written_are_profiled_where_they_run() -> None:
    model = compile_graph(windows(2, padding=1), threads=1)
    given = arrays(model.asked, 3, n=2, h=5, w=4)
    data = {name: array * np.float32(1e36) for name, array in given.items()}
    both = [one.value for one in model.profile(data, calls=1).kernels]
    assert both == [step.name for one in (model, model._plain()) for step in one.steps]


def test_a_target_without_prices_is_measured_all_the_same() -> None:
    (*_, last) = layers("interpret").profile(np.ones((2, 32), "float32"), calls=1).kernels
    assert (last.target, last.value) == ("interpret", "softmax")
    assert last.seconds > 0


def test_what_no_call_takes_is_refused() -> None:
    model = layers()
    with rejection(
        "CallError: profile: cannot time 0 calls\n"
        "  because  a median is of one at least\n"
        "  help     model.profile(…, calls=20)"
    ):
        model.profile(np.ones((7, 32), "float32"), calls=0)
    with pytest.raises(oc.CallError, match="axis 1 is 32, not 31"):
        model.profile(np.ones((7, 31), "float32"))
