"""`offcut sweep`: a contraction measured over a range of sizes, as a study; and the oracle of a small program."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from offcut.cli.app import app, interruptible, refusal, refusals
from offcut.cli.programs import read_number
from offcut.cli.tune import In, kept_trials


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
        written = f"--{letter} {value}".rstrip()
        extent = read_number("sweep", written, value, f"--{letter} 768")
        if letter in extents:
            because = f"--{letter} {extents[letter]} came before"
            help = f"--sizes {letter}={extents[letter]},{value} sweeps both"
            raise refusal("sweep", f"the axis {letter!r} has two sizes", because, help, at=written)
        extents[letter] = extent
    return extents, others


class _SweepCommand(TyperCommand):
    """A command whose options ``--<letter> <extent>`` are as many as there are letters."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with refusals():
            ctx.meta["extents"], others = take_extents(args)
        return super().parse_args(ctx, others)


_OF_ORACLE = (
    *("constants", "limit", "most", "ways", "records", "seed", "seeds", "threads"),
    *("csv", "png"),
)
_OF_CONTRACTIONS = ("strategies", "against", "points", "every", "pack", "seconds", "out")


@app.command("sweep", cls=_SweepCommand)
def sweep_command(
    context: typer.Context,
    text: Annotated[
        str,
        typer.Argument(
            metavar="CONTRACTION",
            help='As in einsum: "mk,kn->mn"; with --oracle a program in a file.',
        ),
    ],
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
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="After which no size is begun but the first; what was measured is shown."
        ),
    ] = None,
    pack: Annotated[
        bool,
        typer.Option(help="Operands after the first without swept sizes are packed constants."),
    ] = True,
    out: Annotated[
        Path, typer.Option(help="The folder of samples, tables and figures, as a study's.")
    ] = Path("out/sweep"),
    oracle: Annotated[
        bool,
        typer.Option("--oracle", help="Measure every schedule of a small program; see above."),
    ] = False,
    csv: Annotated[Path, typer.Option(help="Where the numbers go.")] = Path("out/sweep.csv"),
    png: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("out/sweep.png"),
    constants: Annotated[
        list[str] | None, typer.Option(help="An input that is known before any call.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Schedules of a space that is taken whole.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(help="Take so many, those that are predicted best.")
    ] = None,
    ways: Annotated[int, typer.Option(help="Ways that a nest may have.")] = 1,
    records: In = None,
    seed: Annotated[int, typer.Option(help="Of arrays, and the first of the explorers'.")] = 0,
    seeds: Annotated[int | None, typer.Option(help="That explorers run with.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="That a call may use.")] = None,
) -> None:
    """Measure a contraction over a range of sizes, strategies against each other and peers: a study without a file.

    Every other axis is fixed by an option of its own name: --k 768 --n 3072. With --oracle, CONTRACTION is a
    loop program in a file; all of its schedules are measured, once, into the records, and the regret of the
    cost model and of each explorer after 16, 32, 64 and 128 trials is told.

    Example: offcut sweep "mk,kn->mn" --sizes m=1:512 --k 768 --n 3072
    --strategies guard,cut,ladder,balance,auto --against numpy,torch

    Example: offcut sweep gemm.offcut --oracle --sizes n=1,7,33 --constants W --most 500
    """
    with refusals():
        _check_mode(context, oracle)
        if oracle:
            from offcut.cli.programs import read_program
            from offcut.tuning.exhaustive import LIMIT, SEEDS
            from offcut.tuning.exhaustive.report import report
            from offcut.tuning.problem import Limits, read_sizes

            with interruptible("sweep", lambda: kept_trials(records)):
                report(
                    *(read_program(Path(text), "sweep"), tuple(constants or ()), read_sizes(sizes)),
                    *(csv, png),
                    limit=LIMIT if limit is None else limit,
                    most=most,
                    ways=ways,
                    records=records,
                    seed=seed,
                    seeds=SEEDS if seeds is None else seeds,
                    threads=threads,
                    limits=Limits(budget=budget),
                )
            return
    from offcut.cli.study import GOES_ON, print_outcome
    from offcut.studies.sweep import sweep

    with refusals(), interruptible("sweep", lambda: GOES_ON):
        outcome, missing = sweep(
            text,
            context.meta["extents"],
            sizes,
            out,
            strategies=_names(strategies, "--strategies", some=True),
            peers=_names(against, "--against", some=False),
            points=None if every else points,
            seconds_per_cell=budget,
            seconds=math.inf if seconds is None else seconds,
            packed=pack,
        )
        print_outcome(outcome, rows=True)
    for name in missing:
        typer.echo(f"missing: {name} is not installed")
    if outcome.wrong:
        raise typer.Exit(1)


def _check_mode(context: typer.Context, oracle: bool) -> None:
    """Refuse an option that only the other kind of sweep has."""
    odd = [f"--{name}" for name in _OF_ORACLE if not oracle and _is_given(context, name)]
    odd += [f"--{name}" for name in _OF_CONTRACTIONS if oracle and _is_given(context, name)]
    odd += [f"--{letter}" for letter in context.meta["extents"] if oracle]
    if odd:
        because = "a program in a file says all else" if oracle else "that is of --oracle"
        raise refusal("sweep", f"cannot take {', '.join(odd)}", because, "offcut sweep --help")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _names(text: str, option: str, some: bool) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if some and not names:
        help = "--strategies auto,cut,ladder"
        raise refusal("sweep", "cannot measure nothing", "it names none", help, at=option)
    return names
