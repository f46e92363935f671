"""The command `offcut`: parses, calls, prints; a file for each kind of command."""

from offcut.cli import programs as programs
from offcut.cli import run as run
from offcut.cli import study as study
from offcut.cli import sweep as sweep
from offcut.cli import targets as targets
from offcut.cli import tune as tune
from offcut.cli.app import app, main
from offcut.cli.sweep import take_extents

__all__ = ["app", "main", "take_extents"]
