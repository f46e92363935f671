"""The command `offcut` as a whole: what its commands share.

A refusal is printed as it stands and the exit status is 2; a result with wrong values gives 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from offcut import __version__
from offcut.errors import OffcutError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def main() -> None:
    """Run the command; a sweep runs with one thread per mathematics library."""
    if sys.argv[1:2] == ["sweep"]:
        from offcut.experiment.timing import restart_single_threaded

        restart_single_threaded()
    app()


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"offcut {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print it, and end."
        ),
    ] = False,
) -> None:
    """Loop partitioning for dynamic shapes."""


@contextmanager
def refusals() -> Iterator[None]:
    """What offcut refuses is printed without a traceback, and ends the command with status 2."""
    try:
        yield
    except OffcutError as refused:
        typer.echo(str(refused), err=True)
        raise typer.Exit(2) from None


@app.command()
def machine() -> None:
    """Print the machine in one line, as measurements carry it."""
    from offcut.experiment.machine import describe

    typer.echo(str(describe()))
