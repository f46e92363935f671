"""Lines that say how far a study is, where standard error is no terminal."""

from __future__ import annotations

import time

import pytest

from offcut.studies import progress
from offcut.studies.progress import StudyProgress


def test_lines_say_how_far_a_study_is_while_a_row_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    text = ""

    with StudyProgress("layers", 3) as study:
        study.begin_row("dense m=1")
        study.advance(1)
        end = time.monotonic() + 60
        while "dense" not in text and time.monotonic() < end:
            time.sleep(0.01)
            text += capsys.readouterr().err
    capsys.readouterr()
    time.sleep(0.05)

    assert "offcut: study: 1 of 3 cells, now dense m=1\n" in text
    assert capsys.readouterr().err == ""
