"""`offcut learn`: records in; a training set, a model, and how well it holds on what was left out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offcut.cli.app import app, refusals

if TYPE_CHECKING:
    from offcut.search import Records


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
    random: Annotated[
        bool, typer.Option("--random", help="Measure random schedules of random programs first.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(help="That the model is for; else the one that all records are of."),
    ] = None,
    programs: Annotated[
        int | None,
        typer.Option(min=1, help="Random programs; else as many as --seconds allow, or 32."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="After which no random program is begun.")
    ] = None,
    schedules: Annotated[int, typer.Option(min=2, help="Of each random program.")] = 8,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    quick: Annotated[bool, typer.Option(help="Leave out the table of what was left out.")] = False,
) -> None:
    """Learn a correction of the closed form from records, and print how well it holds on what was left out.

    Example: offcut learn one.sqlite other.jsonl -o model.json

    Example: offcut learn --random --target vta --programs 40 --records vta.sqlite
    """
    from rich.console import Console

    from offcut.backends.correction import model_path
    from offcut.core.records_path import OFF
    from offcut.errors import OffcutError
    from offcut.experiment.outputs import check_writable
    from offcut.search import Records
    from offcut.tuning.learning.heldout import held_out, table
    from offcut.tuning.learning.learn import learn, read_records, target_of

    with refusals():
        files = [*(records or ()), *(more or ())]
        if out is None and model_path("") is None:
            raise OffcutError(
                "learn",
                "cannot keep a model",
                because=f"OFFCUT_RECORDS is {OFF}",
                help=("offcut learn records.sqlite -o model.json",),
            )
        if random:
            target = target or "cpu"
            records_file = Records(files[0] if files else None)
            typer.echo(_sample_programs(target, records_file, programs, seconds, seed, schedules))
        files = files or [Records().path]
        target_name = target_of(read_records(files)[1], target)
        model = out or model_path(target_name or "cpu") or Path()
        set_ = rows or model.with_suffix(".npz")
        for file in (model, set_):
            check_writable(file, "learn")
        done = learn(files, model, set_, seed, target=target_name)
        for reason, count in done.left.items():
            typer.echo(f"left out: {count} schedules, {reason}", err=True)
        lines = done.held if quick else held_out(done.rows, seed)
        Console().print(table(lines))
        typer.echo(f"{len(done.rows)} rows in {set_}, the model in {model}")
        verdict = f"not used: {done.model.useless}" if done.model.useless else "used"
        typer.echo(f"the model is {verdict}")


def _sample_programs(
    target: str,
    records: Records,
    programs: int | None,
    seconds: float | None,
    seed: int,
    schedules: int,
) -> str:
    """Measure random programs, and return what came of them in a line."""
    from math import inf

    from offcut.pipeline import target as target_named
    from offcut.tuning.learning.random_programs import sample

    target_of_run = target_named(target)
    count = 32 if programs is None and seconds is None else programs
    done = sample(
        *(target_of_run, records, count, inf if seconds is None else seconds, seed, schedules),
        tell=lambda number, kind: typer.echo(f"program {number}: {kind}", err=True),
    )
    counts = [f"{many} {outcome.value}" for outcome, many in done.outcomes.items()]
    counts += [f"{done.known} known before"] if done.known else []
    simulated = "predicted" if target_of_run.is_predicted else "simulated"
    times = simulated if target_of_run.is_simulator else "measured"
    return f"{done.programs} random programs, seed {seed}: {', '.join(counts)}; times are {times}"
