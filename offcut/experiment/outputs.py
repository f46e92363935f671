"""What a measurement is written to: the screen, and files, which are refused before it is taken, not after."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rich.console import Console

from offcut.errors import OffcutError

WIDTH = 200
"""Columns of printed tables where there is no terminal that has a width of its own."""


def wide_console(stderr: bool = False) -> Console:
    """Return the screen, or a file that is wide enough for tables."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(width=WIDTH, stderr=stderr)


def check_writable(file: Path, op: str) -> None:
    """Make the folder of `file`, and see that the file can be written; what it holds is kept.

    op   the command, for the refusal

    Raises OffcutError when it cannot.
    """
    existed = file.exists()
    try:
        with suppress(FileExistsError):  # a file, of which opening says that it is no folder
            file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab"):
            pass
        if not existed:
            file.unlink()
    except OSError as failed:
        because, help = (
            failed.strerror or str(failed),
            "another path, in a folder that can be written",
        )
        what = f"cannot write {file.name}"
        raise OffcutError(op, what, at=str(file), because=because, help=(help,)) from failed
