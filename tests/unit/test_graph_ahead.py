"""Other processes compile kernels of a model ahead; what they make, or fail to make, changes no result."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import rejection

from offcut.graph.models.compiling.compile_pool import (
    Compilation,
    CompilePool,
    _waiting,
    helper_in_advance,
)
from tests.agree import agree, of_peer
from tests.compiled import floats
from tests.facade import Bound, Builder, Cpu, compile_graph, interpret_graph
from tests.graphs import arrays

WIDTHS = (8, 12, 20, 24)


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No code is kept, and two processes may compile."""
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path))
    monkeypatch.setenv("OFFCUT_PROCESSES", "2")


def layers() -> Bound:
    made = Builder("layers")
    x = made.input("x", "float32", (made.size("n", 0, 9), WIDTHS[-1]))
    for number, (depth, width) in enumerate(zip((WIDTHS[-1], *WIDTHS), WIDTHS, strict=False)):
        x = made.node("dense", x, made.constant(f"w{number}", floats(f"w{number}", depth, width)))
    made.output(x)
    return made.bound


def check(bound: Bound) -> None:
    given = arrays(bound, 1, n=3)
    (name,) = bound.graph.outputs
    wanted = interpret_graph(bound, given)[name]
    agree(compile_graph(bound, 1)(given)[name], of_peer(wanted))


@pytest.mark.usefixtures("cold")
def test_what_a_helper_made_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[CompilePool]()

    class Waited(CompilePool):
        def __init__(self, jobs: list[Compilation], count: int) -> None:
            super().__init__(jobs, count)
            started.append(self)
            end = time.monotonic() + 600
            while self._left or not all(one.is_set() for one in self._begun.values()):
                assert time.monotonic() < end, "the helper has not answered"
                time.sleep(0.01)

    def refuse(*_: object) -> bytes:
        raise AssertionError("it is compiled here")

    monkeypatch.setattr("offcut.graph.models.compiling.kernels.CompilePool", Waited)
    monkeypatch.setattr(Cpu, "lower", refuse)
    check(layers())
    assert len(started[0]._begun) == len(WIDTHS)


@pytest.mark.every(4)
@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("instead", ["false", "true", "nothing that is there"])
def test_a_helper_that_fails_costs_time_alone(
    instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", instead)
    check(layers())


@pytest.mark.usefixtures("cold")
def test_a_helper_that_does_not_answer_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(silent))
    monkeypatch.setattr("offcut.graph.models.compiling.compile_pool.LONGEST", 0.1)
    check(layers())


@pytest.mark.usefixtures("cold")
def test_none_is_started_for_what_is_kept_or_little_or_where_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = list[object]()
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **named: started.append(args) or popen(*args, **named)
    )
    compile_graph(layers(), 1)
    assert len(started) == 1
    compile_graph(layers(), 1)
    assert len(started) == 1
    small = Builder("small")
    x = small.input("x", "float32", (small.size("n", 0, 9), 4))
    small.output(small.node("dense", x, small.constant("w", floats("w", 4, 4))))
    compile_graph(small.bound, 1)
    assert len(started) == 1
    monkeypatch.setenv("OFFCUT_PROCESSES", "1")
    compile_graph(layers(), 2)
    assert len(started) == 1


@pytest.mark.usefixtures("cold")
def test_one_that_is_expected_is_taken_or_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[subprocess.Popen[bytes]]()
    popen = subprocess.Popen

    def noted(*args: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    with helper_in_advance(3):
        (helper,) = started
        compile_graph(layers(), 1)
    assert started == [helper]
    assert helper not in _waiting
    with helper_in_advance(3):
        idle = started[-1]
        compile_graph(layers(), 1)
    assert started == [helper, idle]
    assert idle.poll() is not None
    assert not _waiting
    with helper_in_advance(2):
        assert started == [helper, idle]
    monkeypatch.setenv("OFFCUT_PROCESSES", "1")
    with helper_in_advance(3):
        assert started == [helper, idle]


@pytest.mark.parametrize("asked", ["0", "-1", "many", "1.5"])
def test_what_is_no_number_of_processes_is_refused(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_PROCESSES", asked)
    with rejection(
        f"TargetError: OFFCUT_PROCESSES: cannot compile in {asked!r} processes\n"
        "  because  it is not a number from 1 on\n"
        "  help     OFFCUT_PROCESSES=1 starts none"
    ):
        compile_graph(layers(), 1)
