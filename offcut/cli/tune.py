"""`offcut tune`: the schedule of a program in a file that is measured to be the best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offcut.cli.app import app, interruptible, refusal, refusals
from offcut.cli.files import Certificates
from offcut.cli.records import In, kept_trials
from offcut.errors import OffcutError


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
    from offcut.cli.files import read_program
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
