"""An oracle measured, printed, and written as numbers and a picture."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from offcut.core.extras import absent, is_installed
from offcut.core.program import Program
from offcut.experiment.machine import describe
from offcut.experiment.outputs import check_writable
from offcut.experiment.table import wide_console
from offcut.partition.show.picture import check_format
from offcut.tuning.oracle.run import Tell, oracle
from offcut.tuning.oracle.shown import facts, plot, tables, to_csv
from offcut.tuning.progress import bar_on


def report(
    program: Program,
    constants: Sequence[str],
    sizes: Mapping[str, Any] | None,
    csv: Path,
    png: Path,
    **options: Any,
) -> None:
    """Run `oracle` with these options, print its tables, write `csv` and `png`.

    Raises what `oracle` raises, and OffcutError where a file cannot be written.
    """
    for file in (csv, png):
        check_writable(file, "sweep")
    check_format("sweep", png)
    console = wide_console()
    with _shown(program.name) as tell:
        found = oracle(program, constants, sizes, tell=tell, **options)
    said = (f"machine: {describe()}", *facts(found))
    for line in said[1:]:
        console.print(line, highlight=False, soft_wrap=True)
    for grid in tables(found):
        console.print(grid)
    csv.write_text(to_csv(found, said), encoding="utf-8")
    console.print(f"wrote {csv}", highlight=False)
    if not is_installed("matplotlib"):
        console.print(f"no picture: {absent('matplotlib')}", markup=False, soft_wrap=True)
        return
    plot(found, png, said)
    console.print(f"wrote {png}", highlight=False)


@contextmanager
def _shown(name: str) -> Iterator[Tell]:
    """A bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, count: None
        return
    from rich.console import Console

    with bar_on(Console(stderr=True)) as bar:
        task = bar.add_task(name, said="")
        yield lambda what, done, count: bar.update(task, completed=done, total=count, said=what)
