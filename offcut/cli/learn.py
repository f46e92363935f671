"""`offcut learn`: records in; a training set, a model, and how well it holds on what was left out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offcut.cli.app import app, refusals


@app.command("learn")
def learn_command(
    records: Annotated[
        list[Path] | None,
        typer.Argument(help="SQLite files or JSON lines; none: the default records."),
    ] = None,
    more: Annotated[
        list[Path] | None, typer.Option("--records", help="The same, as of the other commands.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Where the model goes; else where `oc.tune` looks for it."
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(help="Where the training set goes; else beside the model, as .npz."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    quick: Annotated[bool, typer.Option(help="Leave out the table of what was left out.")] = False,
) -> None:
    """Learn a correction of the closed form from records, and print how well it holds on what was left out.

    Example: offcut learn one.sqlite other.jsonl -o model.json
    """
    from rich.console import Console

    from offcut.errors import OffcutError
    from offcut.experiment.outputs import check_writable
    from offcut.search import Records
    from offcut.search.default_file import OFF
    from offcut.tuning.learning.heldout import held_out, table
    from offcut.tuning.learning.learn import learn
    from offcut.tuning.pricing.prices import model_path

    with refusals():
        model = out or model_path()
        if model is None:
            raise OffcutError(
                "learn",
                "cannot keep a model",
                because=f"OFFCUT_RECORDS is {OFF}",
                help=("offcut learn records.sqlite -o model.json",),
            )
        set_ = rows or model.with_suffix(".npz")
        for file in (model, set_):
            check_writable(file, "learn")
        done = learn([*(records or ()), *(more or ())] or [Records().path], model, set_, seed)
        for reason, count in done.left.items():
            typer.echo(f"left out: {count} schedules, {reason}", err=True)
        if not quick:
            Console().print(table(held_out(done.rows, seed)))
        typer.echo(f"{len(done.rows)} rows in {set_}, the model in {model}")
        if done.model.useless:
            typer.echo(f"the model is not used: {done.model.useless}")
