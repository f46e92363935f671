"""Verdicts written where `compile` finds them beside the user's own: what makes the first use good."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import geometric_mean

import offcut
from offcut.backends.target import Options, Target
from offcut.costmodel import processor
from offcut.search import Record, Records
from offcut.search import trials as verdicts
from offcut.search.record import read_file, write_file
from offcut.search.trials import (
    BEST,
    DEFAULT,
    Verdict,
    by_place,
    has_same_planner,
    latest_verdict,
    verdicts_of,
)


def ship(records: Records, target: Target, options: Options, folder: Path | None = None) -> Path:
    """Write the verdicts of `records` that gain what a way has to gain by the machine's policy, for calls with these options on a machine of the kind of
    the target's; those that the file held of other programs stay.

    folder  None: that of the package
    """
    kind = target.machine_kind(options)
    file = (folder or verdicts.SHIPPED) / f"{_name(target.machine.title)}-{kind}.jsonl"
    gain = processor(target.machine).policy.gain
    made = _settled(records, target.record_key(options), 1 + gain)
    told = {record.program for record in records if record.explorer == BEST}
    before = read_file(file)[0] if file.exists() else []
    file.parent.mkdir(exist_ok=True)
    write_file([*(one for one in before if one.program not in told), *made], file)
    return file


def _settled(records: Records, machine: str, least: float) -> list[Record]:
    """Of each program the records of its last word, where that is `least` times as fast as the default, in the geometric
    mean over the sizes.
    """
    found: list[Record] = []
    for (_, place, version), trials in by_place(records).items():
        if place != machine or not has_same_planner(version, offcut.__version__):
            continue
        kept = [record for trial in trials for record in trial.records]
        word = latest_verdict(verdicts_of(sorted(kept, key=lambda record: record.created)))
        if word is not None and word.changes and _gain(word) >= least:
            found += (
                record
                for record in kept
                if record.explorer in (BEST, DEFAULT) and record.created == word.created
            )
    return found


def _gain(word: Verdict) -> float:
    return geometric_mean(word.gains) if word.gains else 1.0


def _name(title: str) -> str:
    """The first words of a machine's title, as a file may be called."""
    words = re.findall(r"[a-z0-9]+", title.partition("(")[0].partition(":")[0].lower())
    return "-".join(words) or "machine"
