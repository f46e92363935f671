"""The command `offcut`: parses, calls, prints.

A refusal is printed as it stands and the exit status is 2; a result with wrong values gives 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from offcut import __version__
from offcut.errors import DescribeError, OffcutError

if TYPE_CHECKING:
    from offcut.experiment.sweep import Cell, Sweep

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
    strategies: Annotated[str, typer.Option(help="By comma.")] = "cut,ladder,balance,auto",
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
    from offcut.experiment.outputs import check_writable

    with _refusals():
        for file in (csv, png):
            check_writable(file, "sweep")
        result = _measure(
            text,
            context.meta["extents"],
            sizes,
            strategies=_names(strategies, "--strategies", some=True),
            against=_names(against, "--against", some=False),
            points=None if every else points,
            budget=budget,
            pack=pack,
        )
        _report(result, csv, png)
    if result.mismatches:
        raise typer.Exit(1)


def _names(text: str, option: str, some: bool) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if some and not names:
        raise DescribeError("sweep", "cannot measure nothing", at=option, because="it names none")
    return names


def _measure(
    text: str,
    fixed: dict[str, int],
    sizes: Sequence[str],
    *,
    strategies: Sequence[str],
    against: Sequence[str],
    points: int | None,
    budget: float,
    pack: bool,
) -> Sweep:
    import numpy as np

    from offcut.experiment import contraction as notation
    from offcut.experiment import sweep as sweeps
    from offcut.experiment.machine import describe
    from offcut.experiment.peers import load_peers

    screen = Console(stderr=True)
    contraction = notation.parse_contraction(text)
    swept = sweeps.read_axes(sizes, points)
    ranges = {
        letter: (axis.values[0], axis.values[-1]) for axis in swept for letter in axis.letters
    }
    computation = notation.build(contraction, fixed, ranges)
    rng = np.random.default_rng(0)
    constants = {
        name: notation.draw(letters, fixed, rng)
        for name, letters in zip(contraction.names, contraction.operands, strict=True)
        if pack and name in notation.constant_operands(contraction, ranges)
    }
    peers = load_peers(against)
    ours = sweeps.compile_strategies(strategies, computation, constants)
    for axis in swept:
        screen.print(str(axis), highlight=False, style="dim")
    for name in peers.missing:
        screen.print(f"missing: {name} is not installed", style="yellow")
    for name, refusal in ours.refused.items():
        screen.print(f"left out: {name}\n{refusal}", style="yellow", highlight=False, markup=False)
    visited = tuple(fixed | point for point in sweeps.points_of(swept))
    contenders = (*ours.compiled, *peers.found)
    measured = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with peers.session(), Progress(*columns, TimeRemainingColumn(), console=screen) as progress:
        task = progress.add_task("sizes", total=len(visited))
        for cells in sweeps.sweep(contraction, contenders, visited, constants, budget=budget):
            measured.append(cells)
            progress.advance(task)
    packed = f"packed constants: {', '.join(constants) or 'none'}"
    extents = ", ".join(f"{letter}={extent}" for letter, extent in fixed.items())
    return sweeps.Sweep(
        contraction,
        letters=tuple(ranges),
        ours=tuple(contender.name for contender in ours.compiled),
        peers=tuple(contender.name for contender in peers.found),
        machine=str(describe()),
        facts=(
            f"float32 {contraction}" + (f" at {extents}" if extents else ""),
            f"{packed}; one thread, processor time; {budget:g} s per cell; "
            f"against {', '.join(peers.versions) or 'nobody'}",
            *(f"missing: {name} is not installed" for name in peers.missing),
        ),
        points=tuple(measured),
    )


def _report(result: Sweep, csv: Path, png: Path) -> None:
    from offcut.experiment.plots import have_matplotlib, plot_lines
    from offcut.experiment.sweep import OVER_BUDGET

    out = Console()
    if not out.is_terminal:
        out = Console(width=max(out.width, 16 * (len(result.ours) + len(result.peers) + 1)))
    out.print(f"{result.facts[0]}: GFLOP/s (medians), × over the best peer", highlight=False)
    out.print(_table(result))
    if any(cell.note == OVER_BUDGET for cell in result.cells):
        out.print(f"{OVER_BUDGET}: one call takes longer; --budget allows more", style="dim")
    if result.spread is not None:
        out.print(f"quartiles lie {result.spread:.1%} apart in the middle cell", style="dim")
    out.print(f"machine: {result.machine}", style="dim", highlight=False, soft_wrap=True)
    csv.write_text(result.to_csv())
    out.print(f"wrote {csv}", highlight=False, markup=False)
    if have_matplotlib():
        plot_lines(
            png,
            result.lines(),
            title=result.facts[0],
            x_label=result.x_label,
            footer=f"{result.machine}\n{result.facts[1]}",
            dashed=result.peers,
            bold=("auto",),
        )
        out.print(f"wrote {png}", highlight=False, markup=False)
    else:
        out.print(
            "no picture: matplotlib is not installed (pip install 'offcut[plot]')", markup=False
        )
    for cell in result.mismatches:
        at = ", ".join(f"{letter}={extent}" for letter, extent in cell.sizes.items())
        message = f"WRONG VALUES: {cell.way} at {at}: {cell.wrong}"
        Console(stderr=True).print(message, style="bold red", highlight=False, markup=False)


def _table(result: Sweep) -> Table:
    table = Table()
    for letter in result.letters:
        table.add_column(letter, justify="right")
    for name in (*result.ours, *result.peers):
        table.add_column(name, justify="right", no_wrap=True)
    for point in result.points:
        best = max((cell.gflops or 0.0 for cell in point), default=0.0)
        table.add_row(
            *(str(point[0].sizes[letter]) for letter in result.letters),
            *(_entry(result, cell, point, best) for cell in point),
        )
    table.add_section()
    means = [result.mean_ratio(name) for name in (*result.ours, *result.peers)]
    table.add_row(
        "mean",
        *("",) * (len(result.letters) - 1),
        *("–" if mean is None else f"{mean:.2f}×" for mean in means),
    )
    return table


def _entry(result: Sweep, cell: Cell, point: Sequence[Cell], best: float) -> Text:
    if cell.gflops is None:
        return Text(cell.note, style="bold red" if cell.wrong else "dim")
    ratio = result.ratio(cell, point) if cell.contender in result.ours else None
    digits = 1 if cell.gflops >= 0.1 else 3
    text = f"{cell.gflops:.{digits}f}" + ("" if ratio is None else f" {ratio:.2f}×")
    return Text(text, style="bold" if cell.gflops == best else "")


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
