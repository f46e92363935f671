"""Boosted trees, several times: each member has left a part of the rows out, by which all of them are judged.

Where members differ, the closed form stays (`consensus`). Of an operator that was not seen, members that have seen others say different things, and their mean is as good as any of them:
worse than no correction. Of what all of them have seen the like of, they say the same, and all of it is taken. With m the mean over
the members and v their variance,

    consensus = m * m^2 / (m^2 + v)

which is the part of m that is not noise where each member is the truth and an error of its own. It is taken twice: of what is said of
the middle of the rows that are compared, which moves all of them, and of how far a row is said to be from that, which orders them.

Source: James and Stein, "Estimation with quadratic loss", Berkeley Symposium 1961, of each number by itself and by the variance
that is seen.

Trees are arrays (`Trees`): all are asked of all rows at once, one question after the other. A search asks for a few rows at a time, and a booster of XGBoost takes some tenth of a millisecond to be called at all; of eight members
this is a few calls of numpy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from offcut.core.memo import lazy_property
from offcut.costmodel.arrays import Values
from offcut.costmodel.learned import xgboost_loader
from offcut.costmodel.learned.dataset import Dataset
from offcut.costmodel.learned.metrics import LEVEL, TEMPERATURE, gradient


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
    def of_plain(data: Mapping[str, Any]) -> Ensemble:
        """The ensemble that `plain` was made of.

        Raises TargetError where XGBoost is not installed.
        """
        xgboost = xgboost_loader.load_xgboost("learn")
        members = []
        for text in data["members"]:
            member = xgboost.Booster({"nthread": 1})
            member.load_model(bytearray(json.dumps(text).encode()))
            members.append(member)
        return Ensemble(tuple(members), tuple(map(float, data["levels"])))


@dataclass(frozen=True)
class Fitted:
    """An ensemble, and what its members say of the rows that they have not seen.

    part     of each row, by which it was left out
    unseen   correction of each row, by the member that has not seen it
    """

    ensemble: Ensemble
    part: Values
    unseen: Values


def fit_ensemble(rows: Dataset, whole: Values, seed: int, settings: Settings) -> Fitted:
    """Members that correct `rows.closed`; the same rows and seed give the same, on one thread.

    whole  of each row a key: rows of one are left out together

    Raises TargetError where XGBoost is not installed.
    """
    xgboost = xgboost_loader.load_xgboost("learn")
    part = parts(whole, settings.members, seed)
    members, levels = [], []
    unseen = np.zeros(len(rows))
    for number in range(settings.members):
        training = rows.at(part != number)
        level = float(np.median(training.log_ratio))
        member = _grow(xgboost, training, level, seed + number, settings)
        members.append(member)
        levels.append(level)
        predictions = Ensemble((member,), (level,))(rows.features)[0]
        unseen = np.where(part == number, predictions, unseen)
    return Fitted(Ensemble(tuple(members), tuple(levels)), part, unseen)


def parts(whole: Values, count: int, seed: int) -> Values:
    """Which part each row is in, by its key."""
    names, codes = np.unique(whole, return_inverse=True)
    places = np.random.default_rng(seed).permutation(len(names)) % count
    result: Values = places[codes]
    return result


def _grow(xgboost: Any, rows: Dataset, level: float, seed: int, settings: Settings) -> Any:
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
    matrix = xgboost.DMatrix(np.asarray(rows.features, np.float32), label=rows.log_ratio, nthread=1)

    def objective(correction: Values, _: Any) -> tuple[Values, Values]:
        return derivatives(np.asarray(correction, float).reshape(-1))

    return xgboost.train(options, matrix, settings.rounds, obj=objective, verbose_eval=False)


_TINY = 1e-12


def consensus(predictions: Values, middle: Values) -> Values:
    """Return the consensus of the members: log corrections, ``(rows,)``, shrunk to 0 where members disagree.

    predictions  of each member for each row: ``(members, rows)``
    middle       predictions for the middle of the rows that each row is compared with: ``(members, rows)`` or ``(members, 1)``
    """
    corrections: Values = _shrink(middle) + _shrink(predictions - middle)
    return corrections


def _shrink(predictions: Values) -> Values:
    """Return the mean over the members, ``(rows,)``, shrunk to 0 by the ratio of variance to squared mean."""
    mean = predictions.mean(axis=0)
    variance = predictions.var(axis=0, ddof=1) if len(predictions) > 1 else np.zeros_like(mean)
    shrunk: Values = mean**3 / (mean**2 + variance + _TINY)
    return shrunk


@dataclass(frozen=True)
class Trees:
    """The trees of several boosters as arrays over all nodes.

    feature    the feature that a node compares
    below      its threshold: go left if the feature is below it
    left       the left child; of a leaf, the leaf itself; right: the right child
    value      of a leaf; 0 of other nodes
    roots      the root of each tree, ``(trees,)``
    first      the first tree of each booster, ``(boosters,)``
    questions  maximum depth of a tree, in comparisons
    """

    feature: npt.NDArray[np.int64]
    below: npt.NDArray[np.float32]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    value: Values
    roots: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    questions: int

    @staticmethod
    def of(boosters: Sequence[Any]) -> Trees:
        """Return the trees of trained boosters."""
        parts: dict[str, list[Any]] = {name: [] for name in ("feature", "below", "left", "right")}
        roots, first, nodes = list[int](), list[int](), 0
        for booster in boosters:
            first.append(len(roots))
            model = json.loads(bytes(booster.save_raw("json")))
            for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
                left = np.array(tree["left_children"], np.int64)
                right, own = np.array(tree["right_children"], np.int64), np.arange(len(left))
                parts["left"].append(nodes + np.where(left < 0, own, left))
                parts["right"].append(nodes + np.where(left < 0, own, right))
                parts["feature"].append(np.array(tree["split_indices"], np.int64))
                parts["below"].append(np.array(tree["split_conditions"], np.float32))
                roots.append(nodes)
                nodes += len(left)
        kinds = {"below": np.float32}
        arrays_by_name: dict[str, Any] = {
            name: np.concatenate([np.empty(0, kinds.get(name, np.int64)), *arrays])
            for name, arrays in parts.items()
        }
        leaf = arrays_by_name["left"] == np.arange(nodes)
        value = np.where(leaf, arrays_by_name["below"], 0.0).astype(float)
        ends = np.array(roots, np.int64), np.array(first, np.int64)
        return Trees(
            **arrays_by_name,
            value=value,
            roots=ends[0],
            first=ends[1],
            questions=_deepest(arrays_by_name),
        )

    def __call__(self, features: Values) -> Values:
        """Return the prediction of each booster for each row: ``(boosters, rows)``."""
        inputs = np.asarray(features, np.float32)
        rows = np.arange(len(inputs))
        node = np.repeat(self.roots[:, None], len(inputs), axis=1)
        for _ in range(self.questions):
            lower = inputs[rows, self.feature[node]] < self.below[node]
            node = np.where(lower, self.left[node], self.right[node])
        ends = np.append(self.first[1:], len(self.roots))
        totals: Values = np.zeros((len(self.first), len(inputs)))
        some = self.first < ends  # one that has learned nothing has no trees
        if some.any():
            totals[some] = np.add.reduceat(self.value[node], self.first[some], axis=0)
        return totals


def _deepest(nodes: dict[str, Any]) -> int:
    """Return the maximum depth in comparisons; children have larger numbers than their parents."""
    depth = np.zeros(len(nodes["left"]), np.int64)
    for node, (left, right) in enumerate(zip(nodes["left"], nodes["right"], strict=True)):
        if left != node:
            depth[left] = depth[right] = depth[node] + 1
    return int(depth.max(initial=0))
