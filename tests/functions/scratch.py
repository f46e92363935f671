"""A copy of offcut whose table of functions has rows more, and what a process says that runs with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import offcut

PAGE = Path(__file__).parents[2] / "docs" / "extending" / "function.md"
ROWS = """
hypot = _row(
    "hypot",
    "The length of (`{x}`, `{y}`), within {ulp} ULP (float32).",
    arity=2,
)
"""
"""A function of two elements that offcut has not; `of_page` has one of one element, which plugins compose of others."""


def of_page() -> str:
    """Return the row that the page shows, without prompts."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(">>> asinh = ")
    body, _, _ = rest.partition("\n... )\n")
    return f"asinh = {body}\n)\n".replace("\n... ", "\n")


def copied(folder: Path) -> Path:
    """Return a folder to import offcut from: every file is this package's, but its table, which has `ROWS`."""
    package = Path(offcut.__file__).parent
    for inside in ("", "core"):
        (folder / "offcut" / inside).mkdir(parents=True)
        for one in (package / inside).iterdir():
            if one.name not in ("core", "functions.py", "__pycache__"):
                (folder / "offcut" / inside / one.name).symlink_to(one.resolve())
    rows = (package / "core" / "functions.py").read_text() + of_page() + ROWS
    (folder / "offcut" / "core" / "functions.py").write_text(rows)
    return folder


def said(folder: Path, module: str, *arguments: str) -> str:
    """Return what ``python -m module`` prints with the offcut of `folder`; AssertionError where it fails."""
    root = Path(__file__).parents[2]
    made = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{root}", "OFFCUT_CACHE": ""},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout
