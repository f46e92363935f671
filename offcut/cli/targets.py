"""`offcut target list`, `show` and `probe`: which targets and machines there are, what one is, what this one is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offcut.cli.app import app, refusals

target = typer.Typer(no_args_is_help=True)
app.add_typer(target, name="target", help="Targets, and the machines that they plan for.")


@target.command("list")
def list_command() -> None:
    """List the targets that are registered, and the machines that are shipped."""
    from rich.markup import escape
    from rich.table import Table

    from offcut.costmodel import Machine, load, shipped_machines
    from offcut.experiment.outputs import wide_console
    from offcut.pipeline import targets

    typer.echo(f"targets   {', '.join(targets())}")
    table = Table(box=None, padding=(0, 1), show_header=False)
    for machine in map(load, shipped_machines()):
        kind = "processor" if isinstance(machine, Machine) else "accelerator"
        table.add_row(escape(machine.name), kind, escape(machine.title))
    typer.echo("machines")
    wide_console().print(table)


@target.command()
def show(
    machine: Annotated[
        str | None,
        typer.Argument(metavar="[NAME|FILE]", help="A machine that is shipped, or a TOML file."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Where a picture of the roofline goes, as PNG.")
    ] = None,
) -> None:
    """Print a machine's description, and from where on each of its memories no longer binds.

    Without a name it is the machine that this process runs on.

    Example: offcut target show zen4 --plot zen4.png
    """
    with refusals():
        from offcut.costmodel import load
        from offcut.experiment.outputs import wide_console
        from offcut.experiment.sheet import draw, sheet
        from offcut.pipeline import target as target_for

        machine_shown = target_for("cpu").machine if machine is None else load(machine)
        wide_console().print(sheet(machine_shown))
        if plot is not None:
            draw(machine_shown, plot)


@target.command()
def probe(
    out: Annotated[Path | None, typer.Option(help="Where the description goes, as TOML.")] = None,
    loaded: Annotated[
        bool, typer.Option("--loaded", help="Take what is measured on a machine with other work.")
    ] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Measure the first GPU, and not the processor.")
    ] = False,
) -> None:
    """Measure this machine, in under 30 seconds, and write its description; with --gpu, of its first GPU.

    Clock, peaks of its units, bandwidths of its memories, throughputs of its microkernels; without --out
    the description is printed. On a machine that is too loaded to be measured, nothing is written and the
    status is 2, unless --loaded is given.

    Example: offcut target probe --out mine.toml
    """
    with refusals():
        from offcut.experiment import machine_file
        from offcut.experiment.outputs import check_writable, wide_console

        if out is not None:
            machine_file.check_path(out)
            check_writable(out, "probe")
        name, complaints = out.stem if out else "gpu" if gpu else "host", tuple[str, ...]()
        if gpu:
            from offcut.experiment import gpu_probe

            device = gpu_probe.measured_device()
            text, table = gpu_probe.described_device(device, name), gpu_probe.table(device)
        else:
            from offcut.experiment.probe import measured

            reading = measured()
            if not loaded:
                machine_file.check_idle(reading)
            text, table = machine_file.machine_text(reading, name), reading.table()
            complaints = machine_file.complaints(reading)
        if out is None:
            typer.echo(text)
        else:
            machine_file.write_machine(text, out)
        wide_console(stderr=out is None).print(table)
        for line in complaints:
            typer.echo(line, err=True)
