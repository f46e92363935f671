"""`python -m examples.sentences`: run the demo and print its report."""

import argparse
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from offcut.experiment.timing import restart_single_threaded

EXTRA = ("scipy", "matplotlib")
KINDS = ("float32", "bfloat16")


def main(arguments: list[str] | None = None) -> int:
    """Run the demo as the command line asks; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.sentences",
        description="A sentence encoder over the language reference, wholly in offcut.",
    )
    parser.add_argument("--all", action="store_true", help="the whole text, not a sample")
    parser.add_argument("--sentences", type=int, default=600, metavar="N", help="sample size (600)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of demo.png (out)")
    parser.add_argument("--query", metavar="TEXT", help="show the sentences nearest to TEXT")
    parser.add_argument("--rounds", type=int, default=5, help="how often everybody encodes (5)")
    parser.add_argument(
        "--compared",
        type=int,
        default=60,
        metavar="N",
        help="sentences that everybody encodes (60)",
    )
    parser.add_argument("--alone", action="store_true", help="no library but numpy beside offcut")
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=KINDS,
        default=KINDS,
        help="element types of the encoder (both)",
    )
    parser.add_argument("--quick", action="store_true", help="some 40 sentences, a rough picture")
    chosen = parser.parse_args(arguments)

    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        parser.exit(
            1,
            f'demo: {", ".join(missing)} missing: pip install ".[demo]" in the folder of offcut\n',
        )

    from rich.console import Console

    from examples.sentences.report import report
    from examples.sentences.run import QUERY, Options, run
    from offcut.errors import OffcutError

    options = Options(
        everything=chosen.all,
        count=chosen.sentences,
        seed=chosen.seed,
        out=chosen.out,
        query=chosen.query or QUERY,
        rounds=max(1, chosen.rounds),
        compared=max(1, chosen.compared),
        libraries=not chosen.alone,
        kinds=tuple(chosen.kinds),
    )
    if chosen.quick:
        options = replace(
            options,
            count=40,
            every_length=False,
            compared=8,
            rounds=3,
            picture_seconds=4.0,
            picture_lengths=24,
        )
    console = Console()
    try:
        result = run(options, console)
    except OffcutError as refused:
        Console(stderr=True).print(str(refused), markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        Console(stderr=True).print("demo: stopped; no picture was written")
        return 130
    report(result, console, threads="one thread")
    return 0


if __name__ == "__main__":
    restart_single_threaded()
    sys.exit(main())
