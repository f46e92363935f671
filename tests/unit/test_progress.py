"""How far a long command is, on a terminal of any width."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from offcut.tuning.progress import bar_on

WORDS = "best 123.4 µs, 1.23× the default, regret expected 12%, by the learned model"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_narrow_terminal_cuts_the_bar_and_the_words_and_no_numbers(width: int) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system=None)
    with bar_on(console) as bar:
        task = bar.add_task("tune a_kernel_with_a_long_name", total=1000, said=WORDS)
        bar.update(task, completed=123)
        bar.refresh()
    lines = [line for line in out.getvalue().split("\r") if "tune" in line]
    assert lines
    for line in lines:
        assert len(line.splitlines()) <= 2  # and the end of the line
        assert "/1000" in line
        assert "0:00:00" in line
    assert "123/1000" in lines[-1]
