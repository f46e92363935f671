"""`offcut build` and `offcut run`: a model of a file, compiled into a file that needs no compiler, or run once.

`offcut run`: a model of a file, run once.

`offcut build`: a model of a file, compiled into a file that needs no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from offcut.cli.app import app, refusal, refusals
from offcut.errors import DescribeError


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


@app.command()
def run(
    model: Annotated[
        Path, typer.Argument(help="A file that onnx reads, or that `offcut build` wrote.")
    ],
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="x=x.npy: an array; inputs.npz: all that are there, by name. Others are drawn.",
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            help="batch=3: a size of what is drawn, 1 by default; and of the model, where it cannot be read without.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="A folder that each output goes to, as name.npy.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 0,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            "--constant",
            help="to=to.npy: an input that is known before any call, as shapes and axes have to be.",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="That a call may use.")] = None,
    target: Annotated[
        str, typer.Option(help="What runs the kernels; by comma several: the first that takes one.")
    ] = "cpu",
    distributive: Annotated[
        bool,
        typer.Option(
            help="Let products be distributed over sums, which rounds otherwise: batch norms go into weights, and windows of three take fewer multiplications."
        ),
    ] = True,
    parts: Annotated[
        bool,
        typer.Option(help="Let kernels run for a part of the batch at a time, with the same bits."),
    ] = True,
    graph: Annotated[bool, typer.Option("--graph", help="Print the graph of operators.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print the kernels of the call.")] = False,
    cost: Annotated[
        bool, typer.Option("--cost", help="Print what they are predicted to cost.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print what they take, measured.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="A file that a measured call goes to, as a trace for Chrome or Perfetto."
        ),
    ] = None,
) -> None:
    """Run an ONNX model, or one that `offcut build` saved, once, and print the names, element types and shapes of its outputs.

    Example: offcut run model.onnx --input x=x.npy --size batch=3 --output results
    """
    from offcut.cli import models
    from offcut.plugins.onnx import from_onnx

    with refusals():
        models.check_readable(model)
        arrays, asked = models.arrays_of(given or ()), models.numbers_of(size or ())
        pages = {"--graph": graph, "--plan": plan, "--cost": cost, "--profile": profile}
        loaded = models.load_saved(model, {**pages, "--trace": trace is not None})
        if loaded is not None:
            call = models.call_of(loaded)
            sizes = models.sizes_of(call, arrays, asked)
            models.echo_default_sizes(call, arrays, asked, sizes)
            results = loaded(models.draw_inputs(call, arrays, sizes, seed))
        else:
            imported = partial(
                from_onnx,
                model,
                threads=threads,
                target=models.targets_of(target),
                constants=models.arrays_of(constant or (), "--constant"),
                distributive=distributive,
                parts=parts,
            )
            try:
                onnx_model = imported()
            except DescribeError:
                if not asked:
                    raise
                onnx_model, asked = imported(asked), {}
            if graph:
                typer.echo(str(onnx_model.graph))
            call = models.call_of(onnx_model)
            sizes = models.sizes_of(call, arrays, asked)
            models.echo_default_sizes(call, arrays, asked, sizes)
            if plan:
                typer.echo(str(onnx_model.plan(**sizes)))
            if cost:
                typer.echo(str(onnx_model.cost(**sizes)))
            feed = models.draw_inputs(call, arrays, sizes, seed)
            if profile or trace is not None:
                profiled = onnx_model.profile(feed)
                if profile:
                    typer.echo(str(profiled))
                if trace is not None:
                    models.write_text(trace, profiled.chrome_trace(), "--trace")
            results = onnx_model(feed)
        if output is not None:
            models.save_outputs(results, output)
    for name, array in results.items():
        typer.echo(f"{name}: {array.dtype}[{', '.join(map(str, array.shape))}]")
