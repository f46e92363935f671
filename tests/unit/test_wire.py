"""A problem sent to a worker: what comes back from it is the same, or why it cannot be measured there."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import offcut as oc
from offcut import Target
from offcut.errors import OffcutError
from offcut.tuning import pooled_bench
from tests import spaces
from tests.facade import Cpu, Limits, Problem, proved_plan, requested, stand_ins
from tests.spaces import SIZES

LIMITS = Limits(budget=0.5)


def problem(name: str) -> Problem:
    return Problem(*spaces.problem(name), SIZES, seed=7)


@pytest.mark.parametrize("name", ["dense", "mixed", "softmax", "loops"])
def test_a_problem_comes_back_as_it_was(name: str) -> None:
    asked = problem(name)
    found = pooled_bench.deserialize(pooled_bench.serialize(asked, LIMITS))

    assert not isinstance(found, str)
    there, limits = found
    assert limits == LIMITS
    assert there.request.program == asked.request.program
    assert (there.program, there.machine) == (asked.program, asked.machine)
    assert (there.sizes, there.seed, there.options) == (asked.sizes, asked.seed, asked.options)
    assert proved_plan(there.target, there.request, there.options).schedule == (
        proved_plan(asked.target, asked.request, asked.options).schedule
    )


def test_constants_of_which_only_the_name_is_known_weigh_nothing() -> None:
    k, big = oc.reduce_axis(1024, name="k"), oc.placeholder((1024, 1024), name="W")
    a = oc.placeholder((4, 1024), name="A")
    result = oc.compute((4, 1024), lambda i, j: oc.sum(a[i, k] * big[k, j], axis=k), name="C")
    target = oc.target("cpu", machine="zen4")
    request = requested(result, [a, big], stand_ins(["W"], result, [a, big], "tune"), "tune")
    asked = Problem(request, target.options("tune"), target, SIZES)

    assert len(pooled_bench.serialize(asked, LIMITS).rest) < 100_000


def test_another_version_is_refused_before_anything_is_loaded() -> None:
    sent = replace(
        pooled_bench.serialize(problem("loops"), LIMITS), version="0.0.1", rest=b"never read"
    )

    assert pooled_bench.deserialize(sent) == f"offcut is {oc.__version__} there, and 0.0.1 here"


def test_another_machine_is_refused_by_what_differs() -> None:
    request, _, _ = spaces.problem("loops")
    target = Cpu(None)
    own = target.machine
    # As a campaign on a machine of other cores would send it: the worker makes its own target.
    isa = replace(target.host().isa, machine=replace(own, core=replace(own.core, count=999)))
    target.__dict__["_host_machine"] = replace(target.host(), isa=isa)
    asked = Problem(request, target.options("tune", threads=1), target, SIZES)

    assert pooled_bench.deserialize(pooled_bench.serialize(asked, LIMITS)) == (
        f"it is another machine: core.count is {own.core.count} there, and 999 here"
    )


MINE = """
from offcut.backends.cpu.target import Cpu

class Mine(Cpu):
    pass
"""


def test_a_target_of_a_module_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_mine.py").write_text(MINE, encoding="utf-8")
    with monkeypatch.context() as here:
        here.syspath_prepend(tmp_path)
        import planted_mine

        request, options, _ = spaces.problem("loops")
        sent = pooled_bench.serialize(Problem(request, options, planted_mine.Mine(), SIZES), LIMITS)
        assert not isinstance(pooled_bench.deserialize(sent), str)
    del sys.modules["planted_mine"]

    assert pooled_bench.deserialize(sent) == (
        "what is sent cannot be loaded there: ModuleNotFoundError: No module named 'planted_mine'"
    )


def test_a_target_of_no_module_is_refused_here() -> None:
    class Local(Cpu):
        """A class that no other process finds."""

        def __reduce__(self) -> tuple[type[Target], tuple[None]]:
            return Local, (None,)

    request, options, _ = spaces.problem("loops")
    with pytest.raises(OffcutError) as refused:
        pooled_bench.serialize(Problem(request, options, Local(), SIZES), LIMITS)

    text = str(refused.value)
    assert text.startswith("tune: cannot send scan to a pool\n  because  ")
    assert "Local" in text
    assert text.endswith("help     functions and classes of an importable module can be sent")
