"""`python -m offcut.report`: complete where all is well, and still a report where it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import offcut
from offcut import report
from offcut.backends.cpu.machine import isa
from offcut.backends.host import cache

SOURCES = Path(offcut.__file__).parent


def section(text: str, title: str) -> dict[str, str]:
    """The facts of one section of a report, by name."""
    lines = text.splitlines()
    facts = {}
    for line in lines[lines.index(title) + 1 :]:
        if not line.startswith("  "):
            break
        name, _, fact = line.strip().partition("  ")
        facts[name] = fact.strip()
    return facts


def test_the_command_tells_versions_machine_target_environment_and_cache(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "offcut.report"],
        env={**os.environ, "OFFCUT_CACHE": str(tmp_path), "PYTHONPATH": str(SOURCES.parent)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stderr == ""
    assert "unknown" not in section(run.stdout, "target")
    assert section(run.stdout, "versions")["offcut"] == offcut.__version__
    assert f"offcut {offcut.__version__}" in section(run.stdout, "machine")["machine"]
    assert section(run.stdout, "target")["instruction set"].startswith(isa.host().isa.name)
    assert section(run.stdout, "environment")["OFFCUT_CACHE"] == str(tmp_path)
    cached = section(run.stdout, "cache")
    assert (cached["folder"], cached["writable"]) == (str(tmp_path), "yes")


def test_a_folder_of_the_cache_is_said_or_why_it_is_none_and_entries_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(folder: object) -> dict[str, str]:
        monkeypatch.setenv("OFFCUT_CACHE", str(folder))
        return section(report.report(), "cache")

    assert told("off") == {"folder": "off"}
    (tmp_path / "file").touch()
    assert told(tmp_path / "file" / "under")["folder"].startswith("refused: it is not a folder")
    (tmp_path / "open").mkdir(mode=0o700)
    (tmp_path / "open").chmod(0o777)
    open_folder = told(tmp_path / "open")["folder"]
    assert open_folder.startswith("refused: others may write there (its mode is 777)")

    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path / "mine"))
    cache.write("a" * 64, bytes(4096))
    assert told(tmp_path / "mine")["entries"] == "1, 4 KiB"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert told(tmp_path / "mine")["folder"] == "~/mine", "a home names nobody"


def test_hidden_features_and_a_misspelt_variable_are_seen_and_a_section_may_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "avx512f,avx2")
    monkeypatch.setenv("OFFCUT_DEBGU", "1")
    text = report.report()
    assert section(text, "target")["instruction set"].startswith("portable")
    assert section(text, "environment")["OFFCUT_DEBGU"] == "1  (offcut does not read it)"

    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "no-such-feature")
    text = report.report()
    assert section(text, "target")["unknown"].startswith("TargetError: OFFCUT_HIDE_FEATURES")
    assert "folder" in section(text, "cache")


def test_the_variables_known_are_those_that_the_sources_read() -> None:
    reads = re.compile(r"environ(?:\.get\(|\[)\s*\"(OFFCUT_\w+)\"")
    found = {name for path in SOURCES.rglob("*.py") for name in reads.findall(path.read_text())}

    assert set(report.VARIABLES) == found
