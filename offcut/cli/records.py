"""`offcut records`: what was measured, in tables, as text, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offcut.cli.app import app, refusals

records_app = typer.Typer(no_args_is_help=True, help="What was measured of schedules.")
app.add_typer(records_app, name="records")

In = Annotated[
    Path | None,
    typer.Option("--records", help="The file; else OFFCUT_RECORDS, else the user's data folder."),
]
Text = Annotated[Path, typer.Argument(help="A file of JSON lines (.jsonl) or a table (.csv).")]


def kept_trials(records: Path | None) -> str:
    """Return what an interrupted campaign leaves in `records`, and how to go on, for `interruptible`.

    records  a file; None: the default one. It is not opened: whoever wrote to it was just interrupted
    """
    from offcut.core.records_path import default_file

    path = records or default_file()
    if path is None:
        return "no records are kept, so run it again (--records FILE keeps them)"
    return f"each measured trial is in {path}, and the same command goes on from there"


@records_app.command("list")
def list_command(records: In = None) -> None:
    """A row for each program, machine and version."""
    from rich.console import Console

    from offcut.search import Records
    from offcut.tuning.record_tables import list_records

    with refusals():
        Console().print(list_records(Records(records)))


@records_app.command()
def show(
    digest: Annotated[str, typer.Argument(help="Of a program or a schedule, or how it begins.")],
    records: In = None,
) -> None:
    """All records of a program, or of a schedule behind its text."""
    from rich.console import Console
    from rich.table import Table

    from offcut.search import Records
    from offcut.tuning.record_tables import show_records

    with refusals():
        for part in show_records(Records(records), digest):
            if isinstance(part, Table):
                Console().print(part)
            else:
                typer.echo(part)


@records_app.command()
def compare(
    one: Annotated[str, typer.Argument(help="The digest of a schedule, or how it begins.")],
    other: Annotated[str, typer.Argument(help="Of another.")],
    records: In = None,
) -> None:
    """Two schedules at each size."""
    from rich.console import Console

    from offcut.search import Records
    from offcut.tuning.record_tables import compare_records

    with refusals():
        for table in compare_records(Records(records), one, other):
            Console().print(table)


@records_app.command()
def prune(
    keep: Annotated[int, typer.Option(help="Trials that stay, the fastest of each.")],
    version: Annotated[str | None, typer.Option(help="Of offcut: records of any other go.")] = None,
    records: In = None,
) -> None:
    """Remove all but the fastest trials of each program, machine and version."""
    from offcut.search import Records

    with refusals():
        typer.echo(f"{Records(records).prune(keep, version)} records removed")


@records_app.command("export")
def export_command(file: Text, records: In = None) -> None:
    """Write all records as text."""
    from offcut.search import Records

    with refusals():
        typer.echo(f"{Records(records).export(file)} records written")


@records_app.command("import")
def import_command(file: Text, records: In = None) -> None:
    """Add the records of a file that are not here yet."""
    from offcut.search import Records

    with refusals():
        typer.echo(f"{Records(records).import_(file)} records added")


@records_app.command()
def plot(
    program: Annotated[str, typer.Argument(help="The digest of a program, or how it begins.")],
    png: Annotated[Path, typer.Argument(help="Where the picture goes.")],
    records: In = None,
) -> None:
    """Draw the best so far over the trials of a program."""
    from offcut.search import Records
    from offcut.tuning.record_tables import curve

    with refusals():
        curve(Records(records), program, png)
