"""Files of records -> a file of rows, and a file of the model that they teach."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path

import offcut
from offcut.costmodel.learned import Feature, Pair, Rows, features_found, learned
from offcut.errors import OffcutError
from offcut.search import Origin, Place
from offcut.tuning.learning.heldout import APART, PROGRAM, HeldOut, held_out, useless_of
from offcut.tuning.learning.training import read_records, training_set


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of records.

    left  how many schedules were left out, by why
    held  how well the model, and the closed form, do on programs that were left out whole
    """

    rows: Rows
    model: Pair
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
    chosen = features_found() if features is None else tuple(features)
    records, origins = read_records(files)
    target_name = target_of(origins, target)
    places = {one.digest for one in origins if isinstance(one, Place) and one.target != target_name}
    training = training_set([r for r in records if r.machine not in places], origins, chosen, tell)
    try:
        pair = learned(training.rows, seed, version=offcut.__version__)
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


def target_of(origins: Iterable[Origin], named: str | None) -> str | None:
    """Return the target that a model is learned for; None where no record says of which it is.

    named  by the user; None: the only one

    Raises OffcutError where there are several, and where none is the one that is named.
    """
    there = sorted({one.target for one in origins if isinstance(one, Place)})
    if named is None and len(there) > 1:
        raise OffcutError(
            "learn",
            f"cannot learn one correction of {', '.join(there)}",
            because="what is counted of one target is not what is counted of another",
            help=tuple(f"offcut learn --target {name}" for name in there),
        )
    if named is not None and there and named not in there:
        raise OffcutError(
            "learn",
            f"cannot learn for target={named!r}",
            because=f"the records are of {', '.join(there)}",
            help=(f"offcut learn --random --target {named}",),
        )
    return named or next(iter(there), None)


def _number(value: float) -> float | None:
    """Return a number as JSON has it."""
    return None if isnan(value) else value
