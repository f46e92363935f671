"""``python -m tests.differential``: cases by the thousand, in parallel, from where the last run stopped.

    python -m tests.differential --seeds :1000 --jobs 2 --state net.jsonl --found found/

draws a thousand fresh seeds, says which, and writes what fails, made small, into ``found/``. The same
line again goes on with the same seeds where it was stopped. ``--seeds A:B`` takes these.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .case import Case, Outcome
from .cuts import case_of
from .kinds import KINDS
from .pool import Pool
from .reducing import written

OUTCOMES = ("ok", "refused", "wrong", "error", "late", "crash", "skipped")


@dataclass
class Progress:
    """What was done of a range of seeds, kept in a file.

    seeds    all that are to be done
    counts   how many of each kind came out how
    """

    seeds: range
    file: Path | None = None
    done: set[int] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def of(cls, asked: str, file: Path | None) -> Progress:
        """``A:B`` are these; ``:N`` are N fresh ones, or those that the file began with."""
        lines = (
            [json.loads(x) for x in file.read_text().splitlines()] if file and file.exists() else []
        )
        begin, _, end = asked.partition(":")
        first = int(begin or (lines[0]["first"] if lines else secrets.randbelow(2**40)))
        progress = cls(range(first, int(end) if begin else first + int(end)), file)
        if not lines:
            progress.keep({"first": progress.seeds.start})
        for line in lines:
            if line.get("seed") in progress.seeds:
                progress.done.add(line["seed"])
                progress.counts[line["kind"], line["outcome"]] += 1
        return progress

    def keep(self, line: dict[str, object]) -> None:
        if self.file is not None:
            with self.file.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def add(self, case: Case, outcome: Outcome) -> None:
        self.counts[case.kind, outcome.kind] += 1
        said = {"seed": case.seed, "kind": case.kind, "outcome": outcome.kind}
        why = {
            "step": outcome.step,
            "symptom": outcome.symptom,
            "seconds": round(outcome.seconds, 3),
        }
        self.keep(said | why)

    def left(self) -> Iterator[int]:
        return (seed for seed in self.seeds if seed not in self.done)

    @property
    def failed(self) -> bool:
        return any(kind not in ("ok", "refused", "skipped") for _, kind in self.counts)

    def __str__(self) -> str:
        """How many of each kind came out how, and the share that was accepted."""
        head = f"{'kind':24}" + "".join(f"{name:>9}" for name in OUTCOMES) + f"{'accepted':>10}"
        return "\n".join([head, *map(self.row, [*sorted({k for k, _ in self.counts}), "all"])])

    def row(self, kind: str) -> str:
        found = [
            sum(n for (k, o), n in self.counts.items() if o == name and kind in (k, "all"))
            for name in OUTCOMES
        ]
        share = found[0] / max(1, sum(found[:-1]))
        return f"{kind:24}" + "".join(f"{n:9}" for n in found) + f"{share:10.1%}"


def main(arguments: list[str]) -> int:
    """Checks the cases of a range of seeds; 1 where one of them failed."""
    asked = _parser().parse_args(arguments)
    os.environ["OFFCUT_RECORDS"] = "off"  # what is compiled depends on the seeds alone
    progress = Progress.of(asked.seeds, Path(asked.state) if asked.state else None)
    print(f"seeds {progress.seeds.start}:{progress.seeds.stop}", flush=True)
    kinds = asked.kinds.split(",") if asked.kinds else [None]
    cases = (case_of(s, kinds[s % len(kinds)], quick=asked.quick) for s in progress.left())
    with Pool(asked.jobs) as pool:
        for case, outcome, finding in pool.outcomes(cases):
            progress.add(case, outcome)
            if outcome.failed:
                path = written(finding, Path(asked.found)) if finding else None
                told = f"{case.kind} {case.seed}: {outcome.symptom}"
                print(f"{outcome.kind}: {told}, {path or 'known'}", flush=True)
    print(progress)
    return int(progress.failed)


def _seeds(text: str) -> str:
    if re.fullmatch(r"\d*:\d+", text) is None:
        raise argparse.ArgumentTypeError(f"{text} is neither A:B nor :N")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.differential")
    parser.add_argument("--seeds", type=_seeds, default=":1000", help="A:B, or :N for N fresh ones")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--state", help="a file that keeps what was done; the next run goes on there"
    )
    parser.add_argument("--found", default="found", help="the folder of failures, made small")
    parser.add_argument("--kinds", help=f"in turn, some of {', '.join(KINDS)}; else drawn by seed")
    parser.add_argument("--quick", action="store_true", help="the small cases of make test")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
