"""The command `offcut` as a whole: what its commands share.

A refusal is printed as it stands and the exit status is 2; a result with wrong values gives 1, an
interrupt (Ctrl-C) 130, after a line that says what is kept and how to go on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from offcut import __version__
from offcut.errors import DescribeError, OffcutError


class _ExplainedInterrupt(KeyboardInterrupt):
    """An interrupt whose command has said what is kept."""


class _Commands(TyperGroup):
    """The commands, each of which says what an interrupt leaves behind."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _ExplainedInterrupt:
            raise
        except KeyboardInterrupt:
            name = ctx.invoked_subcommand
            typer.echo(f"{name}: interrupted; nothing is kept, so run it again", err=True)
            raise


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def main() -> None:
    """Run the command; a sweep, a study and a worker of a pool run with one thread per mathematics library."""
    if sys.argv[1:2] in (["sweep"], ["study"], ["worker"]):
        from offcut.experiment.timing import restart_single_threaded

        restart_single_threaded()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or not _is_output_broken():
            raise
        typer.echo(f"offcut: cannot write to the standard output: {error.strerror}", err=True)
        sys.exit(2)


def _is_output_broken() -> bool:
    """Check whether the standard output takes no more; if so, later output is discarded.

    A flush that failed has dropped its data, so a line is written: it shows before a traceback if it can.
    """
    try:
        number = sys.stdout.fileno()
    except OSError:  # it is no file
        return False
    try:
        os.write(number, b"\n")
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        return True
    return False


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


def refusal(command: str, refused: str, because: str, *help: str, at: str = "") -> DescribeError:
    """Return the error for what a command is given and cannot take.

    help  what would be accepted
    """
    return DescribeError(command, refused, at=at, because=because, help=help)


@contextmanager
def refusals() -> Iterator[None]:
    """What offcut refuses is printed without a traceback, and ends the command with status 2."""
    try:
        yield
    except OffcutError as refused:
        typer.echo(str(refused), err=True)
        raise typer.Exit(2) from None


@contextmanager
def interruptible(command: str, state: Callable[[], str]) -> Iterator[None]:
    """On an interrupt inside, print what is kept and how to go on.

    state  called on an interrupt; returns that, as the rest of a line
    """
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"{command}: interrupted; {state()}", err=True)
        raise _ExplainedInterrupt from None


@app.command()
def machine() -> None:
    """Print the machine in one line, as measurements carry it."""
    from offcut.experiment.machine import describe

    typer.echo(str(describe()))
