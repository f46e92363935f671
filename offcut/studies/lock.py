"""Lock the folder of a study: one process measures into it at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from offcut.errors import OffcutError

FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[str]:
    """Hold the lock of a folder, created if needed; yield the number of the process that held it and was killed, "" if none was.

    The system releases the lock when the process ends, however it does; if it is killed, its number stays in the file.

    Raises OffcutError if another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            because = f"the process {file.read().strip() or 'of another study'} measures into it"
            help = ("wait for it to end", "--out another folder")
            raise OffcutError(
                "study", "cannot measure", at=str(folder), because=because, help=help
            ) from error
        file.seek(0)
        killed_process = file.read().strip()
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield killed_process
        finally:
            file.truncate(0)
