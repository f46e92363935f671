"""`offcut cut` and `offcut check`: loop programs in files, cut, proved, drawn, compared, made small."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offcut.cli.app import app, refusal, refusals


@app.command()
def cut(
    program: Annotated[Path, typer.Argument(help="A loop program, as `parse` reads it.")],
    tile: Annotated[
        list[str] | None, typer.Option(help="i=14, or i=64,16 for two levels; once a loop.")
    ] = None,
    tail: Annotated[
        list[str] | None, typer.Option(help="A strategy for all loops, or i=balance for one.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what was cut and what was left, and why.")
    ] = False,
    png: Annotated[Path | None, typer.Option(help="Where a picture of the tiles goes.")] = None,
    at: Annotated[
        list[str] | None, typer.Option(help="n=29: the value of a size in the picture.")
    ] = None,
) -> None:
    """Separate the conditions of a loop program, cut its loops, prove the result, and print it.

    Example: offcut cut gemm.offcut --tile i=14 --tile j=32 --tail mask --tail i=balance --explain
    """
    from offcut.cli.files import cut_file, sizes_at

    with refusals():
        if at and png is None:
            because = "it is a size of the picture, and none is drawn"
            help = f"--png cut.png --at {' --at '.join(at)}"
            raise refusal("cut", f"cannot take --at {at[0]}", because, help)
        partition = cut_file(program, tile or (), tail or ())
        if png is not None:
            partition.plot(png, axes=None, **sizes_at(at or (), partition.source))
    typer.echo(str(partition))
    if explain:
        typer.echo(partition.explain(), err=True)


@app.command()
def check(
    source: Annotated[Path, typer.Argument(help="What must be computed.")],
    emitted: Annotated[
        Path | None,
        typer.Argument(
            help="What another program makes of it; without one, SOURCE itself is tried."
        ),
    ] = None,
    reassociate: Annotated[
        bool, typer.Option("--reassociate", help="Sums may be added in any order.")
    ] = False,
    tile: Annotated[
        list[str] | None, typer.Option(help="How SOURCE is cut where it is tried: i=14.")
    ] = None,
    tail: Annotated[list[str] | None, typer.Option(help="By which strategies: mask.")] = None,
    reduce: Annotated[
        bool,
        typer.Option("--reduce", help="Print a smaller program that fails in the same way."),
    ] = False,
) -> None:
    """Prove for all sizes that EMITTED computes what SOURCE does; or cut, compile and call SOURCE alone.

    A program that is tried is read back, cut as the options say, compiled, and called at small sizes; what
    it computes is compared with the reference interpreter.

    Example: offcut check gemm.offcut --tile i=14 --tail mask --reduce
    """
    from offcut.cli.files import check_files, request_of

    with refusals():
        if emitted is not None:
            options = {"--tile": tile, "--tail": tail, "--reduce": reduce}
            typer.echo(str(check_files(source, emitted, reassociate, options)))
            return
        request = request_of(source, tile or (), tail or (), reassociate)
    from offcut.reduce import failure, smaller

    failing = failure(request)
    if failing is None:
        typer.echo(f"{request.program.name} is read back, compiled, and computes what it means")
        return
    typer.echo(f"{failing.step}: {failing.told}", err=True)
    if reduce:
        typer.echo(str(smaller(request, failing)))
    raise typer.Exit(2 if failing.refused else 1)
