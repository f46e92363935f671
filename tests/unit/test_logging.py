"""What offcut says goes to `logging`, by loggers of the package; `OFFCUT_DEBUG` writes it to standard error; nothing is said unasked."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import offcut as oc
from offcut import debug
from tests.facade import forget_plans

SOURCES = Path(oc.__file__).parent
TEXT = """\
program scaled
size n in 0:{most}
input A: float32[n]
output B: float32[n]
for i in 0:n
  B[i] = A[i] * 2.0
"""


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A cache that is empty, and loggers as a program finds them."""
    forget_plans()
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OFFCUT_DEBUG", raising=False)
    yield
    for name in ("offcut", "offcut.cache", "offcut.compile", "offcut.call", "offcut.tune"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def run(most: int) -> None:
    kernel = oc.compile(oc.parse(TEXT.format(most=most)))
    np.testing.assert_array_equal(kernel(np.arange(6, dtype="f")[::2]), [0, 4, 8])


def test_nothing_is_said_unasked(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    run(100)
    assert not caplog.records
    assert capsys.readouterr().err == ""


def test_a_program_hears_what_it_asks_loggers_for(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("offcut").setLevel(logging.INFO)
    run(100)
    assert not caplog.records
    logging.getLogger("offcut").setLevel(logging.DEBUG)
    run(101)
    assert {record.name for record in caplog.records} == {"offcut.compile"}
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert any(record.getMessage().startswith("lower: ") for record in caplog.records)
    logging.getLogger("offcut").setLevel(9)
    run(102)
    names = {record.name for record in caplog.records}
    assert names == {"offcut.compile", "offcut.cache", "offcut.call"}
    caplog.clear()
    logging.getLogger("offcut").setLevel(logging.NOTSET)
    logging.getLogger("offcut.cache").setLevel(9)
    run(103)
    assert {record.name for record in caplog.records} == {"offcut.cache"}
    caplog.clear()
    logging.getLogger("offcut.compile").setLevel(8)
    run(104)
    assert any("after cut" in record.getMessage() for record in caplog.records)
    assert capsys.readouterr().err == ""


def test_the_environment_writes_to_standard_error_and_reaches_handlers_too(
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OFFCUT_DEBUG", "2")
    run(105)
    said = capsys.readouterr().err.splitlines()
    assert [f"offcut: {record.getMessage()}" for record in caplog.records] == said
    assert any(line.startswith("offcut: cache: ") for line in said)
    copied = (
        "offcut: scaled: A (shape (3,), strides (8,) bytes) is copied to a contiguous temporary"
    )
    assert copied in said


def test_a_line_is_not_written_twice_to_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_DEBUG", "1")
    handler = logging.StreamHandler(sys.stderr)
    logging.root.addHandler(handler)
    try:
        debug.note(1, "once")
        handler.setLevel(logging.ERROR)
        debug.note(1, "by us")
    finally:
        logging.root.removeHandler(handler)
    assert capsys.readouterr().err == "once\noffcut: by us\n"


def test_what_is_always_said_is_silent_where_a_program_sets_a_level(
    capsys: pytest.CaptureFixture[str],
) -> None:
    debug.note(0, "trial 1", logger="tune")
    logging.getLogger("offcut.tune").setLevel(logging.WARNING)
    debug.note(0, "trial 2", logger="tune")
    assert capsys.readouterr().err == "offcut: trial 1\n"


def test_a_process_that_asks_for_nothing_does_not_import_logging() -> None:
    code = f"""import sys
sys.path.append({str(SOURCES.parent)!r})
from offcut import debug
debug.note(1, "nobody hears it")
assert "logging" not in sys.modules"""
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_nothing_but_the_command_line_writes_to_standard_streams() -> None:
    """What a command prints is its output (`experiment` measures for it); all else is said by `debug.note`."""
    words = {"print", "sys.stderr.write", "sys.stdout.write", "typer.echo"}
    for path in SOURCES.rglob("*.py"):
        at = path.relative_to(SOURCES).as_posix()
        if at.startswith(("cli/", "experiment/")) or at in (
            *("__main__.py", "report.py", "debug.py"),
        ):
            continue
        text = path.read_text(encoding="utf-8")
        if not any(f"{word}(" in text for word in words):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in words, f"{at}:{node.lineno}"
