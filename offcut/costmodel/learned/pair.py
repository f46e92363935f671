"""The closed form and what corrects it: ``seconds = closed * exp(correction)``, with a spread, or the closed form and why.

The closed form stands where a row is unlike those that the model was learned from (`Familiar`), by two questions. Is a feature beyond the range that was seen, by more than a quarter of the range? And is the nearest of what was seen farther
than the rows were from each other on which the model was judged: those that its members had not seen from those that they had?
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from offcut.costmodel.arrays import Values
from offcut.costmodel.learned.ensemble import Ensemble, Settings, consensus, fitted
from offcut.costmodel.learned.metrics import pairs
from offcut.costmodel.learned.rows import Rows, beside
from offcut.errors import OffcutError

_KEPT = 256
"""Rows that others are compared with, at most; what other numbers give is in docs/design/0022, as of the next two."""

_BEYOND = 0.25
"""Of its range, how far a feature may lie outside."""

_LEAST = 0.1
"""The least width of a range: features are logarithms and shares."""


@dataclass(frozen=True)
class Familiar:
    """What was seen.

    names      of the features
    low, high  the range of each
    width      of each, by which distances are measured: twice its standard deviation
    kept       some of the rows, ``(rows, features)``
    limit      the distance past which a row is like none of them
    """

    names: tuple[str, ...]
    low: Values
    high: Values
    width: Values
    kept: Values
    limit: float

    def distance(self, features: Values) -> Values:
        """From the nearest that is kept: the root of the mean square over the features."""
        one, other = features / self.width, self.kept / self.width
        squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2 * one @ other.T
        found: Values = np.sqrt(np.maximum(squares.min(axis=1), 0) / len(self.names))
        return found

    def because(self, features: Values) -> list[str]:
        """Why each row is unlike what was seen; "" where it is not."""
        room = np.maximum(self.high - self.low, _LEAST) * _BEYOND
        beyond = np.maximum(self.low - features, features - self.high) / room
        far = self.distance(features)
        return [
            self._said(row, int(np.argmax(over)), float(over.max()), float(apart))
            for row, over, apart in zip(features, beyond, far, strict=True)
        ]

    def _said(self, row: Values, worst: int, over: float, apart: float) -> str:
        if over > 1:
            seen = f"{self.low[worst]:.3g} … {self.high[worst]:.3g}"
            return f"{self.names[worst]} is {row[worst]:.3g}, and {seen} is what was learned from"
        if apart > self.limit:
            return f"the nearest of what was learned from is {apart:.2g} away, and {self.limit:.2g} is the most"
        return ""

    def plain(self) -> dict[str, Any]:
        """It as JSON has it, in single precision."""
        arrays = {name: getattr(self, name) for name in ("low", "high", "width", "kept")}
        lists = {name: np.asarray(one, np.float32).tolist() for name, one in arrays.items()}
        return {"names": list(self.names), "limit": self.limit, **lists}

    @staticmethod
    def of_plain(found: Mapping[str, Any]) -> Familiar:
        """What `plain` was made of."""
        arrays = {name: np.asarray(found[name], float) for name in ("low", "high", "width", "kept")}
        return Familiar(tuple(found["names"]), limit=float(found["limit"]), **arrays)


def familiar(rows: Rows, part: Values, seed: int) -> Familiar:
    """What rows are like.

    part  of each row, by which it was left out where the model was judged
    """
    features = np.asarray(rows.features, float)
    width = np.maximum(2 * features.std(axis=0), _LEAST)
    kept = np.random.default_rng(seed).permutation(len(rows))[:_KEPT]
    ranges = features.min(axis=0), features.max(axis=0)
    limit = 0.0
    for number in np.unique(part):
        there = kept[part[kept] != number]
        if len(there):
            seen = Familiar(rows.names, *ranges, width, features[there], 0.0)
            limit = max(limit, float(seen.distance(features[part == number]).max()))
    return Familiar(rows.names, *ranges, width, features[kept], limit)


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
class Pair:
    """A learned correction of the closed form.

    names     of the features, in order
    ensemble  says corrections, from them and from how far they are from the middle of what they are compared with
    familiar  what it was learned from
    doubt     what is added to the members' own spread, so that it covers what they had not seen
    closed    likewise of the closed form alone
    useless   why it is never used; "" where it is better than the closed form on what it had not seen
    learned   from what: numbers of rows, programs and places, the seed, the version
    """

    names: tuple[str, ...]
    ensemble: Ensemble
    familiar: Familiar
    doubt: float
    closed: float
    useless: str = ""
    learned: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, features: Values, closed: Values) -> Foreseen:
        """Seconds of rows that are compared with each other: all are corrected, or none.

        None is where more than half of them are unlike all that was learned from: seconds of which some are corrected and
        others not would not compare.

        features  ``(rows, features)``, by `names`
        closed    seconds by the closed form
        """
        because = [self.useless] * len(closed) if self.useless else self.familiar.because(features)
        unlike = [one for one in because if one]
        if 2 * len(unlike) <= len(closed):
            return self.corrected(features, closed, np.median(features, axis=0))
        because = [one or unlike[0] for one in because]
        return Foreseen(closed, np.full(len(closed), self.closed), tuple(because))

    def corrected(self, features: Values, closed: Values, centre: Values) -> Foreseen:
        """Seconds of rows, whatever they are like: the closed form, by what the members agree on.

        centre  the features in the middle of what each row is compared with
        """
        middle = np.atleast_2d(centre)
        asked = np.concatenate([beside(features, centre), beside(middle, middle)])
        found, own = np.split(self.ensemble(asked), [len(features)], axis=1)
        seconds = closed * np.exp(consensus(found, own))
        return Foreseen(seconds, found.std(axis=0) + self.doubt, ("",) * len(closed))

    def _check(self) -> None:
        """Ask it once: parts that do not fit each other raise."""
        nothing = np.zeros((1, len(self.names)))
        self.familiar.because(nothing)
        found = self.corrected(nothing, np.ones(1), nothing)
        numbers = np.array([*found.seconds, *found.spread, self.closed], float)
        if len(numbers) != 3 or not np.isfinite(numbers).all():
            raise ValueError("it gives no number")
        if not isinstance(self.useless, str):
            raise TypeError(f"useless is {self.useless!r}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON; the file appears whole or not at all."""
        file = Path(path)
        said = {
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
            half.write_text(json.dumps(said), encoding="utf-8")
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
    def load(path: str | os.PathLike[str]) -> Pair:
        """The model that `save` wrote.

        Raises OffcutError for a file that holds none, or one that gives no correction; TargetError where XGBoost is not
        installed.
        """
        file = Path(path)
        found = _read(file)
        try:
            made = Pair(
                ensemble=Ensemble.of_plain(found["ensemble"]),
                familiar=Familiar.of_plain(found["familiar"]),
                names=tuple(found["names"]),
                **{name: found[name] for name in ("doubt", "closed", "useless", "learned")},
            )
            made._check()
        except KeyError as error:
            raise _unread(file, f"it lacks {error}") from None
        except OffcutError:
            raise
        except Exception as error:  # what XGBoost, numpy and Python say of values that are none
            said = str(error).strip().partition("\n")[0]
            raise _unread(
                file, f"what it holds is damaged: {type(error).__name__}: {said}"
            ) from None
        return made


def useless_in(path: Path) -> str:
    """Return why the model in a file is not used; "" where it is. XGBoost is not needed for that.

    Raises OffcutError for a file that holds none.
    """
    return str(_read(path).get("useless", ""))


def _read(file: Path) -> dict[str, Any]:
    """Return what the file of a model says.

    Raises OffcutError for a file that holds none.
    """
    try:
        model = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise _unread(file, error.strerror or str(error)) from None
    except ValueError:
        raise _unread(file, "it is no JSON") from None
    if not isinstance(model, dict) or model.get("format") != _FORMAT:
        raise _unread(file, f"it is no {_FORMAT}")
    return model


def too_few(rows: Rows) -> str:
    """Why nothing is learned from rows; "" where they are enough."""
    count = len(np.unique(rows.schedule))
    if len(rows) >= LEAST and count >= 2:
        return ""
    return f"there are {len(rows)} rows of {count} schedules, and {LEAST} of 2 are the least"


def learned(rows: Rows, seed: int = 0, settings: Settings | None = None, version: str = "") -> Pair:
    """The pair that rows teach; the same rows and seed give the same.

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
    chosen = settings or Settings()
    wide = rows.centred()
    many = len(np.unique(rows.program)) >= chosen.members
    made = fitted(wide, rows.program if many else rows.schedule, seed, chosen)
    judged = fitted(wide, rows.schedule, seed, chosen) if many else made
    off = np.abs(rows.log_ratio - made.unseen)
    own = made.ensemble(wide.features).std(axis=0)
    doubt = float(np.quantile(np.maximum(off - own, 0), COVERED))
    corrected = rows.closed * np.exp(judged.unseen)
    before, after = ordered(rows, rows.closed), ordered(rows, corrected)
    useless = ""
    if after < before:
        useless = f"of schedules that it had not seen it orders {after:.1%} of the pairs rightly, and the closed form {before:.1%}"
    facts = {
        "rows": len(rows),
        "programs": len(np.unique(rows.program)),
        "places": len(np.unique(rows.place)),
        "seed": seed,
        "settings": asdict(chosen),
        "version": version,
        "pairs ordered": {"closed form": before, "pair": after},
    }
    known = familiar(rows, made.part, seed)
    closed = float(np.quantile(np.abs(rows.log_ratio), COVERED))
    members = made.ensemble + judged.ensemble if many else made.ensemble
    return Pair(rows.names, members, known, doubt, closed, useless, facts)


def ordered(rows: Rows, seconds: Values) -> float:
    """The share of comparable pairs that predicted seconds have in the right order; 1 where there are none."""
    found = [pairs(rows.seconds[g], seconds[g], rows.spread[g]) for g in rows.groups]
    count = sum(one for _, one in found)
    return sum(right for right, _ in found) / count if count else 1.0


def columns(names: Sequence[str], wanted: Sequence[str], at: str) -> list[int]:
    """The positions of the features of a model among those that there are.

    at  the model, as it is to be called

    Raises OffcutError for one that is not there.
    """
    missing = [name for name in wanted if name not in names]
    if missing:
        raise OffcutError(
            "learn",
            "cannot use the model",
            at=at,
            because=f"it was learned from {', '.join(missing[:3])}, which no feature gives here",
            help=("offcut learn makes a model of the features that there are",),
        )
    return [list(names).index(name) for name in wanted]


def _unread(file: Path, because: str) -> OffcutError:
    help = ("offcut learn RECORDS -o MODEL makes one",)
    return OffcutError(
        "learn", f"cannot read {file.name}", at=str(file), because=because, help=help
    )
