"""`offcut study`: an experiment out of a file, two of its folders compared, a new one begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offcut.cli.app import app, interruptible, refusal, refusals
from offcut.cli.programs import Certificates
from offcut.errors import DescribeError

if TYPE_CHECKING:
    from offcut.studies.run import Outcome

GOES_ON = "the cells that were measured are in its folder; the same command goes on"
"""The sentence for a study that is interrupted."""


@app.command("study")
def study_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE | compare A B | new FOLDER", help="A study's file; see the examples."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of samples, tables and figures.")
    ] = None,
    seconds_per_cell: Annotated[
        float | None, typer.Option(min=1e-4, help="In place of the file's.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which cells are missing, and how long they take.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try cells that failed again.")] = False,
    cells: Annotated[
        str, typer.Option(help="A regular expression: only rows whose operator and sizes have it.")
    ] = "",
    short: Annotated[
        bool,
        typer.Option(
            "--short",
            "--quick",
            help="The short form, which the file's table \\[short] describes; without one, three rows of each operator, 0.04 s a cell.",
        ),
    ] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Print the rows, too.")] = False,
    pool: Annotated[
        str | None,
        typer.Option(help="tls://host:port of a dask scheduler whose workers measure; or local."),
    ] = None,
    certificates: Certificates = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Copy samples and tables into FOLDER/machine/date-commit/study, to be kept.",
        ),
    ] = None,
    list_suites: Annotated[
        bool, typer.Option("--list-suites", help="Say which suites there are, with their sources.")
    ] = False,
) -> None:
    """Measure what a study's file asks for, and write samples, tables, figures and a report into one folder.

    What the folder has already is kept: a study that was interrupted, or whose file has changed, measures what is new.
    ``compare`` says which cells changed by more than noise between two folders. The exit status is 1 where values were wrong.

    Example: offcut study layers.toml --out layers

    Example: offcut study layers.toml --pool tls://rack:8786 --certificates pool

    Example: offcut study compare before after

    Example: offcut study new my-study
    """
    how = {"seconds_per_cell": seconds_per_cell, "cells": cells, "short": short, "retry": retry}
    with refusals():
        if list_suites:
            _print_suites()
            return
        match words:
            case ["compare", first, second]:
                from offcut.studies import compare

                typer.echo(str(compare(first, second)))
            case ["new", folder]:
                from offcut.studies.template import write_template

                typer.echo(
                    f"wrote {write_template(Path(folder))}: offcut study {folder}/study.toml"
                )
            case ["new" | "compare" as word] if not Path(word).exists():
                raise _arguments_error(words)
            case [file] if dry_run:
                _print_missing(Path(file), out, how)
            case [file]:
                from offcut.search.pool import Pool

                workers = None if pool is None else Pool(pool, certificates=certificates)
                _measure(Path(file), out, {**how, "pool": workers}, rows, keep)
            case _:
                raise _arguments_error(words or ())


def _arguments_error(words: Sequence[str]) -> DescribeError:
    text = " ".join(words) or "nothing"
    because = f"{text} is neither a file, nor compare with two folders, nor new with one"
    return refusal("study", "cannot tell what to do", because, "offcut study --help")


def _measure(
    file: Path, out: Path | None, how: Mapping[str, Any], rows: bool, keep: Path | None
) -> None:
    import faulthandler

    from offcut.studies import study

    if not faulthandler.is_enabled():  # names a module of the user's that crashes while it is read
        faulthandler.enable(2)
    with interruptible("study", lambda: GOES_ON):
        outcome = study(file, out, **how)
    print_outcome(outcome, rows)
    if keep is not None:
        from offcut.studies.folder import keep_results

        typer.echo(f"kept in {keep_results(file, outcome.folder, keep)}")
    if outcome.wrong:
        raise typer.Exit(1)


def print_outcome(outcome: Outcome, rows: bool) -> None:
    """Print the tables of a study: speeds, goals, failures.

    rows  whether the table of rows is printed, too
    """
    from offcut.experiment.outputs import wide_console
    from offcut.studies.table import as_rich
    from offcut.studies.tables import failure_lines

    console = wide_console()
    for name in (("rows",) if rows else ()) + ("speed", "goals"):
        if name in outcome.tables:
            console.print(as_rich(outcome.tables[name]))
    for line in failure_lines(outcome.tables["failed"].rows if "failed" in outcome.tables else ()):
        typer.echo(line)
    if outcome.left:
        count = len(outcome.tables["rows"].rows)
        typer.echo(f"{outcome.left} of {count} rows are not measured: the seconds are over")
    typer.echo(str(outcome))


def _print_missing(file: Path, out: Path | None, how: Mapping[str, Any]) -> None:
    from offcut.studies.definition import read_definition
    from offcut.studies.entries import CALL
    from offcut.studies.environment import digest, environment
    from offcut.studies.run import folder_of, missing_groups, processes_to_measure
    from offcut.studies.samples import FILE, read_samples
    from offcut.studies.user_objects import absent_lines

    definition = read_definition(file, how["seconds_per_cell"], how["short"])
    definition, retry = definition.select_rows(how["cells"]), how["retry"]
    samples = read_samples(folder_of(definition, file, out) / FILE)
    groups = missing_groups(definition, samples, retry)
    missing = processes_to_measure(definition, groups, samples, digest(environment()))
    for line in absent_lines(definition.absent):
        typer.echo(line)
    for group in groups:
        names = ", ".join(one.name for one in group.cells.values())
        typer.echo(f"{group.operator.name} {group.point}: {names}")
    count, every = sum(len(group.cells) for group in groups), sum(1 for _ in definition.cells())
    timed = [
        missing[cell]
        for group in groups
        for cell, one in group.cells.items()
        if definition.entry(one.name).measure == CALL
    ]
    processes = set[int]().union(*timed)
    rounds = sum(definition.rounds_of(number) for each in timed for number in each)
    seconds = f"{definition.seconds * rounds / definition.rounds:.3g} s, and " if timed else ""
    several = f", in {len(processes)} processes one after the other"
    typer.echo(
        f"{count} of {every} cells to measure: {seconds}what compiling and checking take"
        + several * (len(processes) > 1)
    )


def _print_suites() -> None:
    from offcut.studies.suites import suites
    from offcut.studies.table import plural

    for suite in suites():
        count = plural(len(suite.operators), "operator")
        typer.echo(f"{suite.name}: {suite.about} ({count})\n  source: {suite.source}")
