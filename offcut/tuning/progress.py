"""How far tuning is, on standard error: the best so far, against the default, and the regret that is expected.

On a terminal it is a bar; elsewhere a line from time to time, as a log of some hours is read too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING

from offcut import debug
from offcut.search import Source
from offcut.tuning.campaign import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import Task

Tell = Callable[[Progress], None]

EVERY = 10.0
"""Seconds between two lines: as often as one looks at a log."""


@dataclass
class Lines:
    """Logs a line of the first trial, of the last, of one that is told twice, and of one every `EVERY` seconds between.

    name    of what is tuned
    trials  that there will be, at most; None: nobody knows
    clock   seconds that have passed
    """

    name: str
    trials: int | None
    clock: Callable[[], float] = time.monotonic
    last: float = field(default=-inf, init=False)
    trial: int = field(default=0, init=False)

    def __call__(self, progress: Progress) -> None:
        """Log it, where its time has come."""
        now = self.clock()
        new, self.trial = progress.trial != self.trial, progress.trial
        if new and now - self.last < EVERY and progress.trial != self.trials:
            return
        self.last = now
        of = "" if self.trials is None else f" of {self.trials}"
        text = f"tune {self.name}: trial {progress.trial}{of}, {line(progress)}"
        debug.note(0, text, logger="tune")


@contextmanager
def show_progress(report: bool | Tell | None, name: str, trials: int | None) -> Iterator[Tell]:
    """What to tell of each trial.

    report  a function of `Progress`; whether anything is shown; None: it is
    trials  that there will be, at most; None: nobody knows
    """
    if callable(report):
        yield report
        return
    if report is False:
        yield lambda progress: None
        return
    if not sys.stderr.isatty():
        yield Lines(name, trials)
        return
    from rich.console import Console

    with bar_on(Console(stderr=True)) as bar:
        task = bar.add_task(f"tune {name}", total=trials, said="")
        yield lambda progress: bar.update(task, completed=progress.trial, said=line(progress))


def bar_on(console: Console) -> Bar:
    """Return a bar of what is done, how many of how many, since when, and `said` in words: of a console that is too narrow
    for all, the words and the bar are cut, never the numbers.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column
    from rich.text import Text

    class Words(TextColumn):
        def render(self, task: Task) -> Text:
            text = super().render(task)
            text.no_wrap, text.overflow = True, "ellipsis"
            return text

    return Bar(
        Words("{task.description}", table_column=Column(max_width=30)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        BarColumn(table_column=Column(max_width=20)),
        Words("{task.fields[said]}", table_column=Column()),
        console=console,
    )


def line(progress: Progress) -> str:
    """In words: the best so far, how much faster than the default it is, the regret that the model expects, and which."""
    if not isfinite(progress.best):
        return f"{progress.latest.outcome.value}"
    words = [f"best {progress.best * 1e6:.4g} µs"]
    if progress.source is not Source.MEASURED:
        words[0] += f" {progress.source.value}"
    if isfinite(progress.default) and progress.best > 0:
        words.append(f"{progress.default / progress.best:.2f}× the default")
    if progress.regret is not None:
        words.append(f"regret expected {progress.regret:.0%}")
    if progress.price:
        words.append(f"by {progress.price}")
    if progress.left_out:
        words.append(f"{progress.left_out} not predicted for want of time")
    return ", ".join(words)
