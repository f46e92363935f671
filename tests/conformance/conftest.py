"""The targets that conform: ``pytest tests/conformance --target NAME`` asks it of one that a plug-in brings."""

from __future__ import annotations

from pathlib import Path

import pytest

import offcut as oc
from offcut import Target

TARGETS = ("cpu", "interpret", "toy", "vta", "vta-osdi18", "gemmini", "cuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--target", action="append", help="a target that is to conform")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        names = metafunc.config.getoption("--target") or TARGETS
        metafunc.parametrize("target", names, indirect=True)


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    """The target of a test, as a user names it."""
    if request.param == "toy":
        request.getfixturevalue("plugged")
    return oc.target(request.param, device="emulated" if request.param == "cuda" else None)


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy target as installing it would leave it: a module, and metadata that names its entry point."""
    metadata = tmp_path / "offcut_toy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: offcut-toy\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[offcut.targets]\ntoy = toy_target:target\n")
    monkeypatch.syspath_prepend(str(tmp_path))
