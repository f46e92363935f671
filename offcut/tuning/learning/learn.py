"""Files of records -> a training set, each schedule planned again for the place where it was measured, in numbers; and a file of the model
that it teaches.

What cannot be planned again is left out, and counted by its reason: a program or a place of which no text was kept, microkernels that
were handed over, a schedule that is no longer legal.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

import offcut
from offcut.backends.compile_request import CompileRequest
from offcut.backends.options import check_result
from offcut.core.text.parser import parse
from offcut.costmodel import of_plain
from offcut.costmodel.learned import (
    CorrectedModel,
    Dataset,
    Feature,
    check_names,
    compute_features,
    load_features,
    train,
)
from offcut.errors import OffcutError
from offcut.partition import Users
from offcut.pipeline import target as target_named
from offcut.schedule import Schedule
from offcut.search import Origin, Outcome, Place, ProgramText, Record, Records, Source
from offcut.search.record import digest_of, read_file
from offcut.tuning.learning.heldout import APART, PROGRAM, HeldOut, held_out, useless_of
from offcut.tuning.learning.online_model import Cases
from offcut.tuning.problem import Problem

PREDICTED = "its seconds were predicted, and nothing ran"
"""Why nothing is learned of a record."""


@dataclass(frozen=True, slots=True)
class Training:
    """A training set.

    left   how many schedules were left out, by why
    """

    rows: Dataset
    left: Mapping[str, int]


def read_records(files: Sequence[str | os.PathLike[str]]) -> tuple[list[Record], list[Origin]]:
    """All records of some files, SQLite's or JSON lines, and what their digests stand for.

    Raises OffcutError for a file that is not there, or holds no records.
    """
    records: list[Record] = []
    origins: list[Origin] = []
    for file in map(Path, files):
        if not file.exists():
            raise OffcutError(
                "learn",
                f"cannot read {file.name}",
                at=str(file),
                because="it is not there",
                help=(f"offcut tune … --records {file}",),
            )
        if file.suffix in (".jsonl", ".csv"):
            entries, own_origins = read_file(file)
        else:
            store = Records(file)
            entries, own_origins = list(store), list(store.origins)
        records += entries
        origins += own_origins
    return records, origins


def training_set(
    records: Iterable[Record],
    origins: Iterable[Origin],
    features: Sequence[Feature],
    tell: Callable[[int, int], None] = lambda done, all: None,
) -> Training:
    """Return of each schedule that is ok its rows; at the same sizes what was written last counts.

    tell  how many schedules are done, and how many there are
    """
    programs = {one.digest: one for one in origins if isinstance(one, ProgramText)}
    places = {one.digest: one for one in origins if isinstance(one, Place)}
    grouped: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        grouped[record.program, record.machine, record.schedule].append(record)
    skips = Counter[str]()
    entries, feature_names = list[dict[str, Any]](), tuple[str, ...]()
    cases_by_problem: dict[tuple[str, str, tuple[str, ...]], Cases | str] = {}
    for number, ((program, place, text), group) in enumerate(grouped.items(), 1):
        tell(number, len(grouped))
        if any(record.outcome is not Outcome.OK for record in group):
            continue
        if any(record.source is Source.PREDICTED for record in group):
            skips[PREDICTED] += 1
            continue
        last = {sizes_text(record.sizes): record for record in group}
        key = program, place, tuple(last)
        if key not in cases_by_problem:
            vectors = [record.sizes for record in last.values()]
            cases_by_problem[key] = _cases(programs.get(program), places.get(place), vectors)
        cases = cases_by_problem[key]
        if isinstance(cases, str):
            skips[cases] += 1
            continue
        try:
            schedule = Schedule.parse(text)
            names, values = compute_features(cases(schedule), features)
            closed = cases.seconds(schedule)
            check_names(feature_names, names)
        except OffcutError as refused:
            skips[f"{refused.op}: {refused.refused}"] += 1
            continue
        feature_names = names
        machine = json.dumps(places[place].machine, sort_keys=True)
        entries += _entries(values, closed, last, digest_of(machine))
    return Training(Dataset.of(feature_names, entries), dict(skips))


def _cases(
    program: ProgramText | None, place: Place | None, vectors: Sequence[Mapping[str, int]]
) -> Cases | str:
    """Return the cases of schedules of a program in a place, at vectors of sizes; or why there are none."""
    if program is None:
        return "the text of the program was not kept"
    if place is None:
        return "the description of the machine was not kept"
    if place.microkernels:
        return "microkernels were handed over"
    try:
        target = target_named(place.target, of_plain(place.machine))
        requested_options = target.options("learn", reassociate=place.reassociate)
        options = replace(check_result(target, "options", requested_options), threads=place.threads)
        parsed = parse(program.text)
        users = Users(tuple(program.sizes.items()), Users.of(parsed).buffers)
        problem = Problem(
            CompileRequest(parsed, users, {}), options, target, tuple((at, 1.0) for at in vectors)
        )
        computation = target.computation(problem.request, options)
    except OffcutError as refused:
        return f"{refused.op}: {refused.refused}"
    if problem.program != program.digest or problem.machine != place.digest:
        return "this version reads the program or the machine otherwise"
    return Cases(problem, computation)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes by name as rows have them."""
    return ", ".join(f"{name}={value}" for name, value in sorted(sizes.items()))


def _entries(
    features: Any, closed: Any, last: Mapping[str, Record], machine: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a schedule: an entry for each vector of sizes, but those at which a call takes no time, which has no ratio."""
    for (key, record), row, seconds in zip(last.items(), features, closed, strict=True):
        if record.seconds and seconds > 0:
            yield {
                "features": row,
                "program": record.program,
                "place": record.machine,
                "machine": machine,
                "sizes": key,
                "schedule": digest_of(record.schedule),
                "seconds": record.seconds,
                "spread": record.spread or 0.0,
                "closed": float(seconds),
            }


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of records.

    left  how many schedules were left out, by why
    held  how well the model, and the closed form, do on programs that were left out whole
    """

    rows: Dataset
    model: CorrectedModel
    left: Mapping[str, int]
    held: tuple[HeldOut, ...]


def learn(
    files: Sequence[str | os.PathLike[str]],
    model: Path,
    rows: Path,
    seed: int = 0,
    features: Sequence[Feature] | None = None,
    tell: Callable[[int, int], None] = lambda done, all: None,
    target: str | None = None,
) -> Learned:
    """Write the training set and the model of some records of a target; the same files and seed give the same.

    The model is used where, of programs that were left out whole, it orders no fewer pairs than the closed form, and misses the
    best by no more; else it says why it is not.

    files     of records: SQLite's, or JSON lines
    model     where the model goes, a JSON file
    rows      where the training set goes, arrays of numpy
    features  instead of those of this package and of plug-ins
    target    whose records count; None: the one that all are of

    Raises OffcutError for records that teach nothing, or files that cannot be used; TargetError where XGBoost is not
    installed.
    """
    all_features = load_features() if features is None else tuple(features)
    records, origins = read_records(files)
    target_name = target_of(origins, target)
    places = {one.digest for one in origins if isinstance(one, Place) and one.target != target_name}
    training = training_set(
        [r for r in records if r.machine not in places], origins, all_features, tell
    )
    try:
        pair = train(training.rows, seed, version=offcut.__version__)
        left_out = held_out(training.rows, seed, splits=(PROGRAM,), alone=False)
    except OffcutError as refused:
        refused.at = "; ".join(
            f"{count} schedules left out: {why}" for why, count in training.left.items()
        )
        raise
    pair = replace(
        pair,
        useless=useless_of(left_out) or pair.useless,
        learned={
            **pair.learned,
            "target": target_name,
            "apart": APART,
            "programs left out": {
                one.model: {
                    "pairs": _number(one.pairwise),
                    "regret": _number(one.regret),
                    "off": _number(one.off),
                }
                for one in left_out
            },
        },
    )
    for file, save in ((rows, training.rows.save), (model, pair.save)):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            save(file)
        except OSError as error:
            because = error.strerror or str(error)
            raise OffcutError(
                "learn", f"cannot write {file.name}", at=str(file), because=because
            ) from None
    return Learned(training.rows, pair, training.left, left_out)


def target_of(origins: Iterable[Origin], requested: str | None) -> str | None:
    """Return the target that a model is learned for; None where no record says of which it is.

    requested  by the user; None: the only one

    Raises OffcutError where there are several, and where none is the one that is named.
    """
    there = sorted({one.target for one in origins if isinstance(one, Place)})
    if requested is None and len(there) > 1:
        raise OffcutError(
            "learn",
            f"cannot learn one correction of {', '.join(there)}",
            because="what is counted of one target is not what is counted of another",
            help=tuple(f"offcut learn --target {name}" for name in there),
        )
    if requested is not None and there and requested not in there:
        raise OffcutError(
            "learn",
            f"cannot learn for target={requested!r}",
            because=f"the records are of {', '.join(there)}",
            help=(f"offcut learn --random --target {requested}",),
        )
    return requested or next(iter(there), None)


def _number(value: float) -> float | None:
    """Return a number as JSON has it."""
    return None if isnan(value) else value
