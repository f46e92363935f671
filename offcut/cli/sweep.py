"""`offcut sweep`: a contraction measured over a range of sizes, as a table, numbers and a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from offcut.cli.app import app, refusals
from offcut.errors import DescribeError


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
        with refusals():
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

    with refusals():
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
