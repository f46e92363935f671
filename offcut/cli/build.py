"""`offcut build`: a model of a file, compiled into a file that needs no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from offcut.cli.app import app, refusal, refusals


@app.command()
def build(
    model: Annotated[Path, typer.Argument(help="A file that onnx reads.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; by default MODEL.offcut, here."),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", help="batch=1:64: bounds of a size; batch=8: its value."),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            "--constant",
            help="to=to.npy: an input that is known before any call, as shapes and axes have to be.",
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            help="A described machine, or the path of a description; by default this one."
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="That a call may use.")] = 1,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Write the machine code as a shared library beside the file, OUTPUT.so: it runs where numpy is the only package.",
        ),
    ] = False,
    distributive: Annotated[
        bool,
        typer.Option(
            help="Let products be distributed over sums, which rounds otherwise: batch norms go into weights, and windows of three take fewer multiplications."
        ),
    ] = True,
    export: Annotated[
        Path | None,
        typer.Option(
            help="A folder that an object file and a C header go to, in place of one file."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the C functions.")] = None,
) -> None:
    """Compile an ONNX model into a file that `offcut.load` and `offcut run` take, or for C.

    Example: offcut build encoder.onnx -o encoder.offcut --size batch=1:64
    """
    from offcut.cli.models import arrays_of, bounds_of, check_place, check_readable
    from offcut.pipeline import target
    from offcut.plugins.onnx import from_onnx

    with refusals():
        _check_alone(export, {"--shared": shared, "--output": output is not None})
        check_readable(model, "build")
        path = output or Path(f"{model.stem}.offcut")
        if export is None:
            check_place(path, "build")
        imported = from_onnx(
            model,
            sizes=bounds_of(size or ()),
            threads=threads,
            target=target("cpu", machine),
            constants=arrays_of(constant or (), "--constant"),
            distributive=distributive,
            parts=False,
        )
        if export is not None:
            files = imported.export(export, name)
            for path in (files.object, files.header):
                typer.echo(f"{path}: {path.stat().st_size:,} bytes")
            return
        imported.save(path, shared=shared)
        for one in (path, path.with_suffix(".so"))[: 1 + shared]:
            typer.echo(f"{one}: {one.stat().st_size:,} bytes")


def _check_alone(export: Path | None, options: Mapping[str, bool]) -> None:
    """Refuse options of one file where an object file and a header are written in its place."""
    for option in (option for option, is_given in options.items() if is_given and export):
        raise refusal(
            "build",
            f"cannot take {option} with --export {export}",
            "--export writes an object file and a header, and no file for offcut.load",
            "without --export",
            f"without {option}",
        )
