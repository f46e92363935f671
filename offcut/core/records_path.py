"""The file of records that nobody named: where it lies, and in which state it is."""

from __future__ import annotations

import os
from pathlib import Path

OFF = "off"


def default_file() -> Path | None:
    """Return the path that the environment variable ``OFFCUT_RECORDS`` names, else ``records.sqlite`` in the user's data folder; None
    where it says ``off``: nothing is looked up.
    """
    path = os.environ.get("OFFCUT_RECORDS")
    if path == OFF:
        return None
    if path:
        return Path(path).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("offcut")) / "records.sqlite"


def records_fingerprint() -> str:
    """Return the state of the default file of records, as a text that changes with the file."""
    try:
        file = default_file()
        parts = () if file is None else (file, file.with_name(f"{file.name}-wal"))
        stats = [(one.stat().st_size, one.stat().st_mtime_ns) for one in parts if one.exists()]
    except (OSError, RuntimeError) as error:
        return str(error)
    return f"{file} {stats}"
