"""Boosted trees, several times: each member has left a part of the rows out, by which all of them are judged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.core.memo import lazy_property
from offcut.costmodel.learned import library
from offcut.costmodel.learned.objective import LEVEL, TEMPERATURE, gradient
from offcut.costmodel.learned.rows import Rows
from offcut.costmodel.learned.trees import Trees
from offcut.costmodel.learned.values import Values


@dataclass(frozen=True, slots=True)
class Settings:
    """How trees are grown: numbers of a model, not of a machine. docs/design/0022 has what other values give on rows that are held out.

    members  as many as parts that are left out
    rounds   trees of a member
    depth    questions from the root to a leaf, at most
    rate     share of a tree's step that is taken
    least    rows that a leaf stands for, at least
    columns  share of the features that a tree sees
    """

    members: int = 4
    rounds: int = 120
    depth: int = 4
    rate: float = 0.2
    least: int = 8
    columns: float = 0.5


@dataclass(frozen=True)
class Ensemble:
    """Members, each of which gives a correction: the logarithm of a ratio of seconds.

    levels  what each of them begins with: the median of the ratios that it has seen
    """

    members: tuple[Any, ...]
    levels: tuple[float, ...]

    def __call__(self, features: Values) -> Values:
        """Corrections, ``(members, rows)``."""
        corrections: Values = self._trees(features) + np.asarray(self.levels)[:, None]
        return corrections

    @lazy_property
    def _trees(self) -> Trees:
        return Trees.of(self.members)

    def __add__(self, other: Ensemble) -> Ensemble:
        """The members of both."""
        return Ensemble(self.members + other.members, self.levels + other.levels)

    def plain(self) -> dict[str, Any]:
        """It as JSON has it."""
        texts = [json.loads(bytes(one.save_raw("json"))) for one in self.members]
        return {"members": texts, "levels": list(self.levels)}

    @staticmethod
    def of_plain(found: Mapping[str, Any]) -> Ensemble:
        """The ensemble that `plain` was made of.

        Raises TargetError where XGBoost is not installed.
        """
        xgboost = library.loaded("learn")
        members = []
        for text in found["members"]:
            member = xgboost.Booster({"nthread": 1})
            member.load_model(bytearray(json.dumps(text).encode()))
            members.append(member)
        return Ensemble(tuple(members), tuple(map(float, found["levels"])))


@dataclass(frozen=True)
class Fitted:
    """An ensemble, and what its members say of the rows that they have not seen.

    part     of each row, by which it was left out
    unseen   correction of each row, by the member that has not seen it
    """

    ensemble: Ensemble
    part: Values
    unseen: Values


def fitted(rows: Rows, whole: Values, seed: int, settings: Settings) -> Fitted:
    """Members that correct `rows.closed`; the same rows and seed give the same, on one thread.

    whole  of each row a key: rows of one are left out together

    Raises TargetError where XGBoost is not installed.
    """
    xgboost = library.loaded("learn")
    part = parts(whole, settings.members, seed)
    members, levels = [], []
    unseen = np.zeros(len(rows))
    for number in range(settings.members):
        kept = rows.at(part != number)
        level = float(np.median(kept.log_ratio))
        member = _grown(xgboost, kept, level, seed + number, settings)
        members.append(member)
        levels.append(level)
        left = Ensemble((member,), (level,))(rows.features)[0]
        unseen = np.where(part == number, left, unseen)
    return Fitted(Ensemble(tuple(members), tuple(levels)), part, unseen)


def parts(whole: Values, count: int, seed: int) -> Values:
    """Which part each row is in, by its key."""
    named, codes = np.unique(whole, return_inverse=True)
    places = np.random.default_rng(seed).permutation(len(named)) % count
    found: Values = places[codes]
    return found


def _grown(xgboost: Any, rows: Rows, level: float, seed: int, settings: Settings) -> Any:
    derivatives = gradient(rows.groups, np.log(rows.seconds), np.log(rows.closed) + level, seed)
    options = {
        "max_depth": settings.depth,
        "eta": settings.rate,
        "colsample_bytree": settings.columns,
        "min_child_weight": settings.least * (LEVEL + 0.25 / TEMPERATURE),
        "base_score": 0.0,
        "tree_method": "exact",
        "nthread": 1,
        "seed": seed,
        "disable_default_eval_metric": True,
        "verbosity": 0,
    }
    held = xgboost.DMatrix(np.asarray(rows.features, np.float32), label=rows.log_ratio, nthread=1)

    def objective(correction: Values, _: Any) -> tuple[Values, Values]:
        return derivatives(np.asarray(correction, float).reshape(-1))

    return xgboost.train(options, held, settings.rounds, obj=objective, verbose_eval=False)
