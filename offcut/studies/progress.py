"""How far a study is: a bar on a terminal, else lines on standard error."""

from __future__ import annotations

import contextvars
import threading
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from offcut import debug
from offcut.experiment.outputs import wide_console

LINE_SECONDS = 20.0
"""Seconds from one line to the next, if standard error is no terminal."""
MAX_BAR_LETTERS = 48
"""Maximum length of the name of a row beside a bar."""


class StudyProgress:
    """The cells of a study that are measured; a context manager.

    Where standard error is no terminal, a thread writes a line each `LINE_SECONDS`, also while one row takes longer.

    name   of the study
    count  cells that are to be measured
    """

    def __init__(self, name: str, count: int) -> None:
        console = wide_console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(name, total=count)
        self._count, self._done, self._row = count, 0.0, ""
        self._ended = threading.Event()
        context = contextvars.copy_context()
        self._lines = threading.Thread(target=context.run, args=(self._write_lines,), daemon=True)

    def __enter__(self) -> StudyProgress:
        self._bar.start()
        if self._bar.disable:
            self._lines.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        self._ended.set()
        if self._bar.disable:
            self._lines.join()

    def begin_row(self, row: str, process: int = 0, processes: int = 1) -> None:
        """Say which row is measured from now on, and in which one of several processes, by its number from 0 on."""
        self._row = row if processes == 1 else f"{row} in process {process + 1} of {processes}"
        self._bar.update(self._task, description=row[:MAX_BAR_LETTERS])

    def advance(self, cells: float) -> None:
        """Count cells that were measured, those parts of them that were."""
        self._done += cells
        self._bar.advance(self._task, cells)

    def _write_lines(self) -> None:
        while not self._ended.wait(LINE_SECONDS):
            row = f", now {self._row}" if self._row else ""
            text = f"study: {int(self._done + 1e-9)} of {self._count} cells{row}"
            debug.note(0, text, logger="experiment")
