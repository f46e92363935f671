"""Where records lie that nobody named a file for."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

OFF = "off"


def default_file() -> Path | None:
    """What the environment variable ``OFFCUT_RECORDS`` names, else ``records.sqlite`` in the user's data folder; None
    where it says ``off``: nothing is looked up.
    """
    named = os.environ.get("OFFCUT_RECORDS")
    if named == OFF:
        return None
    if named:
        return Path(named).expanduser()
    return Path(platformdirs.user_data_dir("offcut")) / "records.sqlite"
