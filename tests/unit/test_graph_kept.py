"""The steps of a model lie in the cache: another process, or another model, binds them to its constants and plans nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offcut.backends.host import cache
from offcut.graph.models import compile_graph as compiling
from tests.compiled import floats
from tests.facade import Bound, Builder, Cpu, compile_graph, interpret_graph
from tests.graphs import arrays
from tests.operators import near
from tests.unit.test_graph_minimal import is_minimal, windows


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is kept yet."""
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path))
    monkeypatch.setenv("OFFCUT_PROCESSES", "1")
    return tmp_path


def normed(label: str) -> Bound:
    """A product whose weights a norm scales, and one more."""
    made = Builder("normed")
    x = made.input("x", "float32", (made.size("n", 0, 99), 24))
    weights = [made.constant(f"w{k}", floats(f"{label}{k}", 24, 24)) for k in range(2)]
    rows = [made.constant(name, abs(floats(label + name, 24)) + 1) for name in "mvgb"]
    y = made.node("batchnorm", made.node("dense", x, weights[0]), *rows)
    made.output(made.node("dense", made.node("relu", y), weights[1]))
    return made.bound


def planned_anew(*_: Any, **__: Any) -> Any:
    raise AssertionError("it is planned again")


def check(bound: Bound, expected: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """The results of a model are those of the interpreter, and bit for bit those of the one before."""
    given = arrays(bound, 3, n=7)
    found: dict[str, Any] = compile_graph(bound, 1, **options)(given)
    for name, one in interpret_graph(bound, given).items():
        near(found[name], one)
    for name, one in (expected or {}).items():
        np.testing.assert_array_equal(found[name], one)
    return found


def test_a_model_is_planned_once_and_runs_with_the_same_bits_and_with_other_constants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = check(normed("a"))
    monkeypatch.setattr(compiling, "steps_of_bound", planned_anew)
    check(normed("a"), first)
    check(normed("other"))
    monkeypatch.setenv("OFFCUT_VERIFY", "1")  # proofs are asked for again
    with pytest.raises(AssertionError, match="planned again"):
        check(normed("a"))


def test_a_convolution_by_fewer_products_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = windows(2, padding=1)
    given = arrays(bound, 3, n=2, h=9, w=9)
    first = compile_graph(bound, 1)
    assert is_minimal(first)
    monkeypatch.setattr(compiling, "steps_of_bound", planned_anew)
    for name, one in first(given).items():
        np.testing.assert_array_equal(compile_graph(bound, 1)(given)[name], one)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "options", [{"distributive": False}, {"orders": {"out": (1, 0)}}, {"least_filled": 0.5}]
)
def test_what_is_asked_for_otherwise_is_planned_by_itself(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = normed("a")
    if "orders" in options:
        options = {"orders": {bound.graph.outputs[0]: (1, 0)}}
    check(bound)
    monkeypatch.setattr(compiling, "steps_of_bound", planned_anew)
    with pytest.raises(AssertionError, match="planned again"):
        check(bound, **options)


@pytest.mark.parametrize("first", [True, False])
def test_an_infinity_in_a_constant_changes_nothing_for_finite_ones(first: bool) -> None:
    bound = normed("a")
    weights = bound.arrays["w0"].copy()
    weights[3, 5] = np.inf
    infinite = replace(bound, arrays={**bound.arrays, "w0": weights})
    for one in (infinite, bound) if first else (bound, infinite):
        given = arrays(one, 3, n=7)
        (found,) = compile_graph(one, 1)(given).values()
        (wanted,) = interpret_graph(one, given).values()
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    assert next(step.distributed for step in compile_graph(bound, 1).steps)


def test_a_damaged_entry_or_a_kernel_that_is_gone_is_made_again(kept: Path) -> None:
    first = check(normed("a"))
    for path in kept.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    check(normed("a"), first)
    for path in kept.iterdir():
        if b"offcut.graph.models.compiling.plan_cache" not in path.read_bytes():
            path.unlink()
    check(normed("a"), first)


def test_names_depend_on_the_sources_of_the_rooms_that_are_named() -> None:
    assert cache.key("x") != cache.key("x", rooms=frozenset({"graph"}))


def test_weights_that_overflow_with_a_norm_are_not_distributed_wherever_steps_come_from() -> None:
    """A norm scales large weights by a large number, and data by 0: what is described is finite."""
    bound = normed("a")
    check(bound)
    large = {"w0": 1e30 * bound.arrays["w0"], "g": np.full(24, 1e10, "f")}
    other = replace(bound, arrays={**bound.arrays, **large})
    given = {"x": np.zeros((3, 24), "f")}
    model = compile_graph(other, 1)
    assert not model.steps[0].distributed
    (found,), (wanted,) = model(given).values(), interpret_graph(other, given).values()
    near(found, wanted)


def test_a_target_that_no_other_process_knows_is_compiled_for_each_time() -> None:
    class Own(Cpu):
        """A class that a function made."""

    bound, given = normed("a"), arrays(normed("a"), 3, n=7)
    for _ in range(2):
        (found,) = compile_graph(bound, 1, target=Own())(given).values()
        (wanted,) = interpret_graph(bound, given).values()
        near(found, wanted)


def test_what_is_kept_runs_on_the_target_that_was_handed_over() -> None:
    class Noting(Cpu):
        """What it holds, its name does not say."""

        def __init__(self) -> None:
            super().__init__()
            vars(self)["seen"] = _Unsaid()

        def load(self, *given: Any) -> Any:
            vars(self)["seen"].append(len(given))
            return super().load(*given)

    bound, given = normed("a"), arrays(normed("a"), 3, n=7)
    for target in (Noting(), Noting()):
        (found,) = compile_graph(bound, 1, target=target)(given).values()
        (wanted,) = interpret_graph(bound, given).values()
        near(found, wanted)
        assert vars(target)["seen"]


class _Unsaid(list[int]):
    """A list that says nothing of what is in it."""

    def __repr__(self) -> str:
        return "unsaid"
