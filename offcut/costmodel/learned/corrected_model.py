"""The closed form and what corrects it: ``seconds = closed * exp(correction)``, with a spread, or the closed form and why.

A row outside of the region of the training rows is not corrected (`TrainingDomain`), by two questions. Is a feature beyond the range that was seen, by more than a quarter of the range? And is the nearest of what was seen farther
than the rows were from each other on which the model was judged: those that its members had not seen from those that they had?
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from offcut.costmodel.arrays import Values
from offcut.costmodel.learned.dataset import Dataset, centered_features
from offcut.costmodel.learned.ensemble import Ensemble, Settings, consensus, fit_ensemble
from offcut.costmodel.learned.metrics import pairwise_accuracy
from offcut.errors import OffcutError

_KEPT = 256
"""Maximum number of kept rows. Docs/design/0022 compares other values of this constant and of the next two."""

_BEYOND = 0.25
"""How far a feature may lie outside of its range, as a fraction of the range."""

_LEAST = 0.1
"""Minimum width of a range: features are logarithms and shares."""


@dataclass(frozen=True)
class TrainingDomain:
    """The region of the feature space that the training rows cover.

    names      of the features
    low, high  minimum and maximum of each feature, ``(features,)``
    width      scale of each feature in distances: twice its standard deviation, ``(features,)``
    kept       a sample of the training rows, ``(rows, features)``
    limit      maximum distance from the nearest kept row inside the region
    """

    names: tuple[str, ...]
    low: Values
    high: Values
    width: Values
    kept: Values
    limit: float

    def distance(self, features: Values) -> Values:
        """Return the distance of each row from the nearest kept row: root mean square over the scaled features, ``(rows,)``."""
        one, other = features / self.width, self.kept / self.width
        squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2 * one @ other.T
        distances: Values = np.sqrt(np.maximum(squares.min(axis=1), 0) / len(self.names))
        return distances

    def reasons_outside(self, features: Values) -> list[str]:
        """Return for each row the reason why it is outside of the region; "" if it is inside."""
        tolerance = np.maximum(self.high - self.low, _LEAST) * _BEYOND
        beyond = np.maximum(self.low - features, features - self.high) / tolerance
        distances = self.distance(features)
        return [
            self._reason(row, int(np.argmax(over)), float(over.max()), float(distance))
            for row, over, distance in zip(features, beyond, distances, strict=True)
        ]

    def _reason(self, row: Values, worst: int, over: float, distance: float) -> str:
        if over > 1:
            bounds = f"{self.low[worst]:.3g} … {self.high[worst]:.3g}"
            return f"{self.names[worst]} is {row[worst]:.3g}, and {bounds} is what was learned from"
        if distance > self.limit:
            return f"the nearest of what was learned from is {distance:.2g} away, and {self.limit:.2g} is the most"
        return ""

    def plain(self) -> dict[str, Any]:
        """Return the fields as JSON values, arrays in single precision."""
        arrays = {name: getattr(self, name) for name in ("low", "high", "width", "kept")}
        lists = {name: np.asarray(one, np.float32).tolist() for name, one in arrays.items()}
        return {"names": list(self.names), "limit": self.limit, **lists}

    @staticmethod
    def of_plain(data: Mapping[str, Any]) -> TrainingDomain:
        """Return the region from the JSON values that `plain` returned."""
        arrays = {name: np.asarray(data[name], float) for name in ("low", "high", "width", "kept")}
        return TrainingDomain(tuple(data["names"]), limit=float(data["limit"]), **arrays)


def fit_domain(rows: Dataset, part: Values, seed: int) -> TrainingDomain:
    """Return the region that rows cover.

    part  the cross-validation part of each row, ``(rows,)``: `limit` is the largest distance of a part from the other ones
    """
    features = np.asarray(rows.features, float)
    width = np.maximum(2 * features.std(axis=0), _LEAST)
    sample = np.random.default_rng(seed).permutation(len(rows))[:_KEPT]
    ranges = features.min(axis=0), features.max(axis=0)
    limit = 0.0
    for number in np.unique(part):
        others = sample[part[sample] != number]
        if len(others):
            domain = TrainingDomain(rows.names, *ranges, width, features[others], 0.0)
            limit = max(limit, float(domain.distance(features[part == number]).max()))
    return TrainingDomain(rows.names, *ranges, width, features[sample], limit)


COVERED = 0.9
"""The share of measured seconds that is to lie within the spread."""

LEAST = 8
"""Rows that a correction is learned from, at least."""

_FORMAT = "offcut model 2"


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Predicted seconds, an entry for each row.

    spread   measured seconds lie within ``seconds * exp(-spread) … seconds * exp(spread)``, nine times in ten
    because  why it is the closed form that stands there; "" where it was corrected
    """

    seconds: Values
    spread: Values
    because: tuple[str, ...]


@dataclass(frozen=True)
class CorrectedModel:
    """A learned correction of the closed form.

    names     of the features, in order
    ensemble  predicts log corrections from features and from features relative to the middle of the compared rows
    familiar  the region of the training rows; rows outside are not corrected
    doubt     added to the spread of the members, so that it covers unseen rows
    closed    the same for the closed form alone
    useless   why the model is never used; "" if it is better than the closed form on unseen rows
    learned   facts of the training: numbers of rows, programs and places, the seed, the version
    """

    names: tuple[str, ...]
    ensemble: Ensemble
    familiar: TrainingDomain
    doubt: float
    closed: float
    useless: str = ""
    learned: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, features: Values, closed: Values) -> Foreseen:
        """Return seconds of rows that are compared with each other: all are corrected, or none.

        None is corrected if more than half of the rows are outside of the region of the training rows: corrected and
        uncorrected seconds do not compare.

        features  ``(rows, features)``, by `names`
        closed    seconds by the closed form
        """
        because = (
            [self.useless] * len(closed)
            if self.useless
            else self.familiar.reasons_outside(features)
        )
        unlike = [one for one in because if one]
        if 2 * len(unlike) <= len(closed):
            return self.corrected_seconds(features, closed, np.median(features, axis=0))
        because = [one or unlike[0] for one in because]
        return Foreseen(closed, np.full(len(closed), self.closed), tuple(because))

    def corrected_seconds(self, features: Values, closed: Values, centre: Values) -> Foreseen:
        """Return seconds of rows, inside of the region or not: the closed form times the consensus of the members.

        centre  the features in the middle of what each row is compared with
        """
        middle = np.atleast_2d(centre)
        inputs = np.concatenate(
            [centered_features(features, centre), centered_features(middle, middle)]
        )
        corrections, centre_corrections = np.split(self.ensemble(inputs), [len(features)], axis=1)
        seconds = closed * np.exp(consensus(corrections, centre_corrections))
        return Foreseen(seconds, corrections.std(axis=0) + self.doubt, ("",) * len(closed))

    def _check(self) -> None:
        """Predict one row; raise if the parts do not fit each other."""
        nothing = np.zeros((1, len(self.names)))
        self.familiar.reasons_outside(nothing)
        prediction = self.corrected_seconds(nothing, np.ones(1), nothing)
        numbers = np.array([*prediction.seconds, *prediction.spread, self.closed], float)
        if len(numbers) != 3 or not np.isfinite(numbers).all():
            raise ValueError("it gives no number")
        if not isinstance(self.useless, str):
            raise TypeError(f"useless is {self.useless!r}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON; the file appears whole or not at all."""
        file = Path(path)
        data = {
            "format": _FORMAT,
            "learned": dict(self.learned),
            "useless": self.useless,
            "doubt": self.doubt,
            "closed": self.closed,
            "names": list(self.names),
            "familiar": self.familiar.plain(),
            "ensemble": self.ensemble.plain(),
        }
        half = file.with_name(f".{os.getpid()}-{file.name}")
        try:
            half.write_text(json.dumps(data), encoding="utf-8")
            half.replace(file)
        except OSError as error:
            raise OffcutError(
                "learn",
                f"cannot write {file.name}",
                at=str(file),
                because=error.strerror or str(error),
            ) from None
        finally:
            half.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> CorrectedModel:
        """The model that `save` wrote.

        Raises OffcutError for a file that holds none, or one that gives no correction; TargetError where XGBoost is not
        installed.
        """
        file = Path(path)
        data = _read_model(file)
        try:
            pair = CorrectedModel(
                ensemble=Ensemble.of_plain(data["ensemble"]),
                familiar=TrainingDomain.of_plain(data["familiar"]),
                names=tuple(data["names"]),
                **{name: data[name] for name in ("doubt", "closed", "useless", "learned")},
            )
            pair._check()
        except KeyError as error:
            raise _unread(file, f"it lacks {error}") from None
        except OffcutError:
            raise
        except Exception as error:  # what XGBoost, numpy and Python say of values that are none
            message = str(error).strip().partition("\n")[0]
            raise _unread(
                file, f"what it holds is damaged: {type(error).__name__}: {message}"
            ) from None
        return pair


def useless_in(path: Path) -> str:
    """Return why the model in a file is not used; "" where it is. XGBoost is not needed for that.

    Raises OffcutError for a file that holds none.
    """
    return str(_read_model(path).get("useless", ""))


def _read_model(file: Path) -> dict[str, Any]:
    """Return what the file of a model says.

    Raises OffcutError for a file that holds none.
    """
    try:
        model = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise _unread(file, error.strerror or str(error)) from None
    except ValueError:
        raise _unread(file, "it is not JSON") from None
    if not isinstance(model, dict) or model.get("format") != _FORMAT:
        raise _unread(file, f"it is not an {_FORMAT}")
    return model


def too_few(rows: Dataset) -> str:
    """Return the reason why rows are too few to learn from; "" if they suffice."""
    count = len(np.unique(rows.schedule))
    if len(rows) >= LEAST and count >= 2:
        return ""
    return f"there are {len(rows)} rows of {count} schedules, and {LEAST} of 2 are the least"


def train(
    rows: Dataset, seed: int = 0, settings: Settings | None = None, version: str = ""
) -> CorrectedModel:
    """Train a pair on rows; the same rows and seed give the same pair.

    version  of offcut, which the model says that it is from

    Raises OffcutError for too few rows, TargetError where XGBoost is not installed.
    """
    because = too_few(rows)
    if because:
        raise OffcutError(
            "learn",
            "cannot learn a correction",
            because=because,
            help=("offcut tune … --records FILE measures more",),
        )
    options = settings or Settings()
    wide = rows.with_distances()
    many = len(np.unique(rows.program)) >= options.members
    ensemble_fit = fit_ensemble(wide, rows.program if many else rows.schedule, seed, options)
    judged = fit_ensemble(wide, rows.schedule, seed, options) if many else ensemble_fit
    errors = np.abs(rows.log_ratio - ensemble_fit.unseen)
    member_spread = ensemble_fit.ensemble(wide.features).std(axis=0)
    doubt = float(np.quantile(np.maximum(errors - member_spread, 0), COVERED))
    corrected = rows.closed * np.exp(judged.unseen)
    before, after = pair_accuracy(rows, rows.closed), pair_accuracy(rows, corrected)
    useless = ""
    if after < before:
        useless = f"of schedules that it had not seen it orders {after:.1%} of the pairs rightly, and the closed form {before:.1%}"
    facts = {
        "rows": len(rows),
        "programs": len(np.unique(rows.program)),
        "places": len(np.unique(rows.place)),
        "seed": seed,
        "settings": asdict(options),
        "version": version,
        "pairs ordered": {"closed form": before, "pair": after},
    }
    domain = fit_domain(rows, ensemble_fit.part, seed)
    closed = float(np.quantile(np.abs(rows.log_ratio), COVERED))
    members = ensemble_fit.ensemble + judged.ensemble if many else ensemble_fit.ensemble
    return CorrectedModel(rows.names, members, domain, doubt, closed, useless, facts)


def pair_accuracy(rows: Dataset, seconds: Values) -> float:
    """Return the share of comparable pairs that predicted seconds order correctly, from 0 to 1; 1 without pairs."""
    share = pairwise_accuracy(rows.seconds, seconds, rows.spread, groups=rows.groups)
    return 1.0 if isnan(share) else share


def columns(names: Sequence[str], required_names: Sequence[str], at: str) -> list[int]:
    """The positions of the features of a model among those that there are.

    at  the model, as it is to be called

    Raises OffcutError for one that is not there.
    """
    missing = [name for name in required_names if name not in names]
    if missing:
        raise OffcutError(
            "learn",
            "cannot use the model",
            at=at,
            because=f"it was learned from {', '.join(missing[:3])}, which no feature gives here",
            help=("offcut learn makes a model of the features that there are",),
        )
    return [list(names).index(name) for name in required_names]


def _unread(file: Path, because: str) -> OffcutError:
    help = ("offcut learn RECORDS -o MODEL makes one",)
    return OffcutError(
        "learn", f"cannot read {file.name}", at=str(file), because=because, help=help
    )
