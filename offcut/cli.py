"""The command `offcut`: parses, calls, prints.

A refusal is printed as it stands and the exit status is 2; a result with wrong values gives 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from offcut import __version__
from offcut.errors import DescribeError, OffcutError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def main() -> None:
    """Run the command; a sweep runs with one thread per mathematics library."""
    if sys.argv[1:2] == ["sweep"]:
        from offcut.experiment.timing import restart_single_threaded

        restart_single_threaded()
    app()


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"offcut {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print it, and end."
        ),
    ] = False,
) -> None:
    """Loop partitioning for dynamic shapes."""


@contextmanager
def _refusals() -> Iterator[None]:
    """What offcut refuses is printed without a traceback, and ends the command with status 2."""
    try:
        yield
    except OffcutError as refused:
        typer.echo(str(refused), err=True)
        raise typer.Exit(2) from None


def take_extents(arguments: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """The axes' fixed extents among command-line arguments, and the other arguments.

    >>> take_extents(["mk,kn->mn", "--k", "768", "--n=3072", "--points", "9"])
    ({'k': 768, 'n': 3072}, ['mk,kn->mn', '--points', '9'])

    Raises DescribeError when a letter is given twice or without a whole number.
    """
    extents: dict[str, int] = {}
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        match = re.fullmatch(r"--([A-Za-z])(?:=(.*))?", argument)
        if match is None:
            others.append(argument)
            continue
        letter = match[1]
        value = next(rest, "") if match[2] is None else match[2]
        if not re.fullmatch(r"\d+", value):
            raise DescribeError(
                "sweep",
                f"cannot read the size of the axis {letter!r}",
                at=f"--{letter} {value}".rstrip(),
                because=f"{value!r} is not a whole number" if value else "there is no number",
                help=(f"--{letter} 768",),
            )
        if letter in extents:
            raise DescribeError(
                "sweep",
                f"the axis {letter!r} has two sizes",
                at=f"--{letter} {value}",
                because=f"--{letter} {extents[letter]} came before",
                help=(f"--sizes {letter}={extents[letter]},{value} sweeps both",),
            )
        extents[letter] = int(value)
    return extents, others


class _SweepCommand(TyperCommand):
    """A command whose options ``--<letter> <extent>`` are as many as there are letters."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _refusals():
            ctx.meta["extents"], others = take_extents(args)
        return super().parse_args(ctx, others)


@app.command("sweep", cls=_SweepCommand)
def sweep_command(
    context: typer.Context,
    text: Annotated[str, typer.Argument(metavar="CONTRACTION", help='As in einsum: "mk,kn->mn".')],
    sizes: Annotated[
        list[str],
        typer.Option(
            help="m=1:512 (both ends), m=1:512:8 or m=1,7,100; ik=1:99 sweeps i and k together; "
            "given twice, every combination."
        ),
    ],
    strategies: Annotated[
        str, typer.Option(help="By comma; ratios are of the first.")
    ] = "auto,cut,ladder,balance",
    against: Annotated[
        str, typer.Option(help="Peers, by comma: numpy, torch, or one way such as torch.mm.")
    ] = "numpy",
    points: Annotated[
        int, typer.Option(min=2, help="Sizes taken of a range: both ends, geometric between.")
    ] = 24,
    every: Annotated[bool, typer.Option("--every", help="Take every size of a range.")] = False,
    budget: Annotated[float, typer.Option(min=0.001, help="Seconds per cell.")] = 0.3,
    pack: Annotated[
        bool,
        typer.Option(help="Operands after the first without swept sizes are packed constants."),
    ] = True,
    csv: Annotated[Path, typer.Option(help="Where the numbers go.")] = Path("out/sweep.csv"),
    png: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("out/sweep.png"),
) -> None:
    """Measure a contraction over a range of sizes: strategies against each other and peers.

    Every other axis is fixed by an option of its own name: --k 768 --n 3072.

    Example: offcut sweep "mk,kn->mn" --sizes m=1:512 --k 768 --n 3072
    --strategies guard,cut,ladder,balance,auto --against numpy,torch
    """

    from offcut.experiment.sweep import sweep

    with _refusals():
        status = sweep(
            text,
            context.meta["extents"],
            sizes,
            names=_names(strategies, "--strategies", some=True),
            against=_names(against, "--against", some=False),
            points=None if every else points,
            budget=budget,
            pack=pack,
            csv=csv,
            png=png,
        )
    if status:
        raise typer.Exit(status)


def _names(text: str, option: str, some: bool) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if some and not names:
        raise DescribeError("sweep", "cannot measure nothing", at=option, because="it names none")
    return names


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
    from offcut.cut_command import cut_file, sizes_at

    with _refusals():
        made = cut_file(program, tile or (), tail or ())
        if png is not None:
            made.plot(png, axes=None, **sizes_at(at or ()))
    typer.echo(str(made))
    if explain:
        typer.echo(made.explain(), err=True)


@app.command()
def check(
    source: Annotated[Path, typer.Argument(help="What must be computed.")],
    emitted: Annotated[Path, typer.Argument(help="What another program makes of it.")],
    reassociate: Annotated[
        bool, typer.Option("--reassociate", help="Sums may be added in any order.")
    ] = False,
) -> None:
    """Prove for all sizes that one loop program computes what another one does."""
    from offcut.cut_command import check_files

    with _refusals():
        typer.echo(str(check_files(source, emitted, reassociate)))


@app.command()
def machine() -> None:
    """Print the machine in one line, as measurements carry it."""
    from offcut.experiment.machine import describe

    typer.echo(str(describe()))


if __name__ == "__main__":
    main()
