"""Tunes the judged programs and ships what was settled, so that `compile` finds it on machines of this kind.

    python bench/shipped.py            # twelve programs, about ten minutes on an idle machine
    python bench/shipped.py --quick    # a few trials of each, into out/ alone: two minutes

Trials go to out/shipped.sqlite; begun again, it goes on where it was. The verdicts that change something are
written to offcut/records/, a file for each kind of machine, which is part of the package. Figures are from the
last run of each program, in which the default and the chosen schedule take turns; one thread.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

from harness import read_options
from programs import Judged, programs
from rich.table import Table
from shipping import ship

import offcut as oc
from offcut.backends.compile_request import make_request, zero_constants
from offcut.experiment.machine import describe
from offcut.experiment.outputs import wide_console
from offcut.search.trials import Verdict, latest_verdict, verdicts_of
from offcut.tuning.problem import Limits

TRIALS, QUICK = 48, 8
SECONDS = 45.0
"""Of each program, after which no trial begins."""

KEPT, KEPT_QUICK = Path("out/shipped.sqlite"), Path("out/shipped_quick.sqlite")


TARGET = oc.target("cpu")
OPTIONS = TARGET.options("tune", threads=1)


def settled(judged: Judged, records: oc.Records, trials: int, budget: float) -> tuple[Verdict, int]:
    """What tuning a program settles on, and how many schedules were tried."""
    oc.tune(
        *(judged.output, judged.inputs, judged.constants, judged.tuned),
        trials=trials,
        seconds=SECONDS,
        records=records,
        threads=1,
        limits=Limits(budget=budget),
    )
    known = zero_constants(judged.constants, judged.output, judged.inputs, "tune")
    program = make_request(judged.output, judged.inputs, known, "tune").program
    tried = records.trials(program.digest, TARGET.record_key(OPTIONS), oc.__version__)
    word = latest_verdict(
        verdicts_of(record for record in records if record.program == program.digest)
    )
    assert word is not None
    return word, len(tried)


def main() -> None:
    """Tune each program, print what was gained, and write it."""
    options = read_options(__doc__ or "", ("cells", "budget"))
    console, records = wide_console(), oc.Records(KEPT_QUICK if options.quick else KEPT)
    trials = QUICK if options.quick else TRIALS
    grid = Table("program", "gain", "what was settled", "trials", title="tuned over the default")
    for name, make in programs().items():
        if not re.search(options.cells, name):
            continue
        try:
            word, tried = settled(make(), records, trials, options.budget)
        except oc.OffcutError as refused:
            grid.add_row(name, "", refused.because, "")
            continue
        gain = f"{fmean(word.gains):.2f}×" if word.gains else ""
        grid.add_row(name, gain, str(word), f"{tried}")
    console.print(grid)
    file = ship(records, TARGET, OPTIONS, Path("out") if options.quick else None)
    console.print(f"wrote {file}", highlight=False)
    console.print(f"machine: {describe()}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
