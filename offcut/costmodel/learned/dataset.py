"""A training set: of each schedule at each vector of sizes its features, what was measured, and what the closed form says."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from offcut.costmodel.arrays import Values
from offcut.errors import OffcutError

_KINDS: Mapping[str, type[Any]] = dict.fromkeys(("features", "seconds", "spread", "closed"), float)
"""The fields that hold numbers; others hold texts."""


@dataclass(frozen=True)
class Dataset:
    """Rows of a training set; each array has an entry for each row.

    names     of the features
    features  ``(rows, features)``
    program, place, sizes, schedule  what a row is of: digests, and the sizes as text
    machine   a digest of the description of the machine alone: places of one machine may differ in threads
    seconds   measured, of a call
    spread    distance of the quartiles over the median
    closed    seconds by the closed form, or by whatever else is corrected
    """

    names: tuple[str, ...]
    features: Values
    program: Values
    place: Values
    machine: Values
    sizes: Values
    schedule: Values
    seconds: Values
    spread: Values
    closed: Values

    @staticmethod
    def of(names: Sequence[str], entries: Sequence[Mapping[str, Any]]) -> Dataset:
        """Return rows from what each of them is, by the fields' names: numbers of `features`, texts, and seconds."""
        columns = {
            one.name: np.array([entry[one.name] for entry in entries], _KINDS.get(one.name, str))
            for one in fields(Dataset)[1:]
        }
        columns["features"] = columns["features"].reshape(len(entries), len(names))
        return Dataset(tuple(names), **columns)

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def groups(self) -> list[Values]:
        """The positions of rows that are comparable: of one program, in one place, at the same sizes."""
        if not len(self):
            return []
        keys = np.stack([self.program, self.place, self.sizes])
        _, codes = np.unique(keys, axis=1, return_inverse=True)
        return [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]

    @property
    def centre(self) -> Values:
        """Of each row the features in the middle of its group: the median of each."""
        medians = np.array(self.features, float)
        for group in self.groups:
            medians[group] = np.median(medians[group], axis=0)
        return medians

    def with_distances(self) -> Dataset:
        """The same rows with twice the features: how far each is from the middle of its group stands beside it."""
        names = (*self.names, *(f"{name}.apart" for name in self.names))
        return replace(self, names=names, features=centered_features(self.features, self.centre))

    @property
    def log_ratio(self) -> Values:
        """``log(measured / closed)``: what is learned."""
        ratios: Values = np.log(self.seconds / self.closed)
        return ratios

    def at(self, where: Values | Sequence[int]) -> Dataset:
        """Some of the rows, by position or by a mask."""
        parts = {
            one.name: getattr(self, one.name)[where] for one in fields(self) if one.name != "names"
        }
        return Dataset(self.names, **parts)

    def only(self, keep: Sequence[str]) -> Dataset:
        """The same rows with these features."""
        columns = [self.names.index(name) for name in keep]
        return replace(self, names=tuple(keep), features=self.features[:, columns])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write them as arrays of numpy, one for each field; ``numpy.load`` reads them."""
        arrays: dict[str, Any] = {
            one.name: np.asarray(getattr(self, one.name)) for one in fields(self)
        }
        with Path(path).open("wb") as out:
            np.savez_compressed(out, **arrays)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Dataset:
        """The rows that `save` wrote.

        Raises OffcutError for a file that holds no rows.
        """
        file = Path(path)
        try:
            with np.load(file, allow_pickle=False) as archive:
                parts = {one.name: archive[one.name] for one in fields(Dataset)}
        except (OSError, KeyError, ValueError, BadZipFile, AttributeError) as error:
            because = f"it holds no rows: {error}"
            raise OffcutError(
                "learn", f"cannot read {file.name}", at=str(file), because=because
            ) from None
        return Dataset(**{**parts, "names": tuple(map(str, parts["names"]))})


def centered_features(features: Values, centre: Values) -> Values:
    """Features, and how far each is from `centre`: what makes a schedule faster than another one of the same program at
    the same sizes is how they differ, whatever the program and the sizes are.
    """
    result: Values = np.hstack([features, features - centre])
    return result
