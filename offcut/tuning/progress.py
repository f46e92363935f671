"""A bar that shows how far tuning is: the best so far, against the default, and the regret that is expected."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite

from offcut.tuning.campaign import Progress

Tell = Callable[[Progress], None]


@contextmanager
def shown(asked: bool | Tell | None, name: str, trials: int | None) -> Iterator[Tell]:
    """What to tell of each trial.

    asked   a function of `Progress`; whether a bar is drawn on standard error; None: where that is a terminal
    trials  that there will be, at most; None: nobody knows
    """
    if callable(asked):
        yield asked
        return
    if asked is False or (asked is None and not sys.stderr.isatty()):
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    said = (TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with Bar(*columns, *said, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"tune {name}", total=trials, said="")
        yield lambda progress: bar.update(task, completed=progress.trial, said=line(progress))


def line(progress: Progress) -> str:
    """In words: the best so far, how much faster than the default it is, the regret that the model expects, and which."""
    if not isfinite(progress.best):
        return f"{progress.latest.outcome.value}"
    words = [f"best {progress.best * 1e6:.4g} µs"]
    if isfinite(progress.default) and progress.best > 0:
        words.append(f"{progress.default / progress.best:.2f}× the default")
    if progress.regret is not None:
        words.append(f"regret expected {progress.regret:.0%}")
    if progress.price:
        words.append(f"by {progress.price}")
    return ", ".join(words)
