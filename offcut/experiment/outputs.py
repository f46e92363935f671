"""Files that a measurement will write: refused before it is taken, not after."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from offcut.errors import OffcutError


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
        raise OffcutError(
            op, f"cannot write {file.name}", at=str(file), because=failed.strerror or str(failed)
        ) from failed
