"""`offcut tune`, `offcut records` and `offcut learn`: schedules measured, what was measured, and what is learned of it.

`offcut tune`: the schedule of a program in a file that is measured to be the best.

`offcut records`: what was measured, in tables, as text, as a picture.

`offcut learn`: records in; a training set, a model, and how well it holds on what was left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offcut.cli.app import app, interruptible, refusal, refusals
from offcut.cli.programs import Certificates
from offcut.errors import OffcutError

if TYPE_CHECKING:
    from rich.console import Console

    from offcut.search import Records

records_app = typer.Typer(no_args_is_help=True, help="What was measured of schedules.")
app.add_typer(records_app, name="records")

In = Annotated[
    Path | None,
    typer.Option("--records", help="The file; else OFFCUT_RECORDS, else the user's data folder."),
]
Text = Annotated[Path, typer.Argument(help="A file of JSON lines (.jsonl) or a table (.csv).")]


PIPE_COLUMNS = 200
"""Columns of a table that goes to no terminal: digests in it are copied whole."""


def console() -> Console:
    """Return where tables are printed: as wide as the terminal, or as COLUMNS says; else `PIPE_COLUMNS`."""
    from rich.console import Console

    has_width = Console().is_terminal or "COLUMNS" in os.environ
    return Console() if has_width else Console(width=PIPE_COLUMNS)


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
    from offcut.search import Records
    from offcut.tuning.recorded_trials import list_records

    with refusals():
        console().print(list_records(Records(records)))


@records_app.command()
def show(
    digest: Annotated[str, typer.Argument(help="Of a program or a schedule, or how it begins.")],
    records: In = None,
) -> None:
    """All records of a program, or of a schedule behind its text."""
    from rich.table import Table

    from offcut.search import Records
    from offcut.tuning.recorded_trials import show_records

    with refusals():
        for part in show_records(Records(records), digest):
            if isinstance(part, Table):
                console().print(part)
            else:
                typer.echo(part)


@records_app.command()
def compare(
    one: Annotated[str, typer.Argument(help="The digest of a schedule, or how it begins.")],
    other: Annotated[str, typer.Argument(help="Of another.")],
    records: In = None,
) -> None:
    """Two schedules at each size."""
    from offcut.search import Records
    from offcut.tuning.recorded_trials import compare_records

    with refusals():
        for table in compare_records(Records(records), one, other):
            console().print(table)


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
    from offcut.tuning.recorded_trials import curve

    with refusals():
        curve(Records(records), program, png)


@app.command("tune")
def tune_command(
    program: Annotated[Path, typer.Argument(help="A loop program, as `parse` reads it.")],
    sizes: Annotated[
        list[str] | None,
        typer.Option(help="n=1,7,33, n=1:512 or n=1:512:8 (both ends); once for each size."),
    ] = None,
    constants: Annotated[
        list[str] | None, typer.Option(help="An input that is known before any call.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="At most; 64 where --seconds is not given.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="After which no trial begins.")] = None,
    explorer: Annotated[
        str,
        typer.Option(
            help="anneal, beam, evolution, exhaustive, gradient, random, tree, or a plug-in's."
        ),
    ] = "anneal",
    price: Annotated[
        str | None,
        typer.Option(help="closed, learned, a model (.json), or a plug-in's; else learned."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    records: In = None,
    threads: Annotated[int | None, typer.Option(min=1, help="That a call may use.")] = None,
    pool: Annotated[
        str | None,
        typer.Option(help="tls://host:port of a dask scheduler whose workers measure; or local."),
    ] = None,
    certificates: Certificates = None,
    out: Annotated[Path | None, typer.Option(help="Where the schedule goes, too.")] = None,
) -> None:
    """Search, measure and record schedules of a program, and print the best for these sizes.

    Example: offcut tune gemm.offcut --sizes n=1,7,33 --constants W --trials 64 --records gemm.sqlite
    """
    from offcut.cli.programs import read_program
    from offcut.experiment.outputs import check_writable
    from offcut.search.pool import Pool
    from offcut.tuning.problem import read_sizes
    from offcut.tuning.tune import tune

    with refusals(), interruptible("tune", lambda: kept_trials(records)):
        source = read_program(program, "tune")
        if source.sizes and not sizes:
            names = [size.name for size in source.sizes]
            because = f"nothing says which values {', '.join(names)} take"
            help = tuple(" ".join(f"--sizes {n}={v}" for n in names) for v in ("1,7,33", "1:512"))
            raise refusal("tune", f"cannot tune {source.name} for no sizes", because, *help)
        if out is not None:
            check_writable(out, "tune")
        outcome = tune(
            source,
            constants=tuple(constants or ()),
            sizes=read_sizes(sizes) if sizes else None,
            trials=trials,
            seconds=seconds,
            explorer=explorer,
            price=price,
            seed=seed,
            records=records,
            threads=threads,
            pool=None if pool is None else Pool(pool, certificates=certificates),
        )
    typer.echo(str(outcome))
    if out is not None:
        with refusals():
            _keep(outcome, out)


def _keep(outcome: object, out: Path) -> None:
    try:
        out.write_text(f"{outcome}\n", encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise OffcutError("tune", f"cannot write {out}", because=reason) from error


@app.command()
def worker(
    address: Annotated[str, typer.Argument(help="Of a dask scheduler: tls://host:8786.")],
    device: Annotated[
        str | None, typer.Option(help="Its name in the pool; else the name of this machine.")
    ] = None,
    certificates: Certificates = None,
) -> None:
    """Measure candidates for those who tune with --pool ADDRESS, until a signal ends it or the scheduler goes.

    Example: offcut worker tls://10.0.0.1:8786 --certificates ~/pool --device rack-3
    """
    import platform

    from offcut.search.pool import LOCAL, Pool, pool_of
    from offcut.search.pool.connection import serve

    with refusals():
        pool = pool_of(Pool(address, certificates=certificates), "worker")
        if pool.address == LOCAL:
            because = "whoever tunes with that measures by himself"
            help = "offcut worker tls://host:8786"
            raise refusal("worker", f"cannot be a device of pool={LOCAL!r}", because, help)
        named = device or platform.node()
        serve(pool, named, lambda: typer.echo(f"device {named} waits for candidates at {address}"))


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
    from offcut.backends.predict import model_path
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
        console().print(table(lines))
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
