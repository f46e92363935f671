"""Files of records -> a file of rows, and a file of the model that they teach."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import offcut
from offcut.costmodel.learned import Feature, Pair, Rows, features_found, learned
from offcut.errors import OffcutError
from offcut.tuning.learning.training import read_records, training_set


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of records.

    left  how many schedules were left out, by why
    """

    rows: Rows
    model: Pair
    left: Mapping[str, int]


def learn(
    files: Sequence[str | os.PathLike[str]],
    model: Path,
    rows: Path,
    seed: int = 0,
    features: Sequence[Feature] | None = None,
    tell: Callable[[int, int], None] = lambda done, all: None,
) -> Learned:
    """Write the training set and the model of some records; the same files and seed give the same.

    files     of records: SQLite's, or JSON lines
    model     where the model goes, a JSON file
    rows      where the training set goes, arrays of numpy
    features  instead of those of this package and of plug-ins

    Raises OffcutError for records that teach nothing, or files that cannot be used; TargetError where XGBoost is not
    installed.
    """
    chosen = features_found() if features is None else tuple(features)
    made = training_set(*read_records(files), chosen, tell)
    try:
        pair = learned(made.rows, seed, version=offcut.__version__)
    except OffcutError as refused:
        refused.at = "; ".join(
            f"{count} schedules left out: {why}" for why, count in made.left.items()
        )
        raise
    for file, save in ((rows, made.rows.save), (model, pair.save)):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            save(file)
        except OSError as error:
            because = error.strerror or str(error)
            raise OffcutError(
                "learn", f"cannot write {file.name}", at=str(file), because=because
            ) from None
    return Learned(made.rows, pair, made.left)
