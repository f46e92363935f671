"""Boosted trees as arrays: all trees are asked of all rows at once, one question after the other.

A search asks for a few rows at a time, and a booster of XGBoost takes some tenth of a millisecond to be called at all; of eight members
this is a few calls of numpy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from offcut.costmodel.learned.values import Values


@dataclass(frozen=True)
class Trees:
    """The trees of several boosters, their nodes one after the other.

    feature    that a node asks for
    below      the node goes left where the feature is below this
    left       the node there; of a leaf itself
    right      likewise
    value      of a leaf
    roots      of each tree
    first      of each booster, its first tree
    questions  from a root to a leaf, at most
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
        """Those of boosters that have learned."""
        parts: dict[str, list[Any]] = {name: [] for name in ("feature", "below", "left", "right")}
        roots, first, nodes = list[int](), list[int](), 0
        for booster in boosters:
            first.append(len(roots))
            said = json.loads(bytes(booster.save_raw("json")))
            for tree in said["learner"]["gradient_booster"]["model"]["trees"]:
                left = np.array(tree["left_children"], np.int64)
                right, own = np.array(tree["right_children"], np.int64), np.arange(len(left))
                parts["left"].append(nodes + np.where(left < 0, own, left))
                parts["right"].append(nodes + np.where(left < 0, own, right))
                parts["feature"].append(np.array(tree["split_indices"], np.int64))
                parts["below"].append(np.array(tree["split_conditions"], np.float32))
                roots.append(nodes)
                nodes += len(left)
        kinds = {"below": np.float32}
        made: dict[str, Any] = {
            name: np.concatenate([np.empty(0, kinds.get(name, np.int64)), *arrays])
            for name, arrays in parts.items()
        }
        leaf = made["left"] == np.arange(nodes)
        value = np.where(leaf, made["below"], 0.0).astype(float)
        ends = np.array(roots, np.int64), np.array(first, np.int64)
        return Trees(**made, value=value, roots=ends[0], first=ends[1], questions=_deepest(made))

    def __call__(self, features: Values) -> Values:
        """What each booster gives for each row: ``(boosters, rows)``."""
        given = np.asarray(features, np.float32)
        rows = np.arange(len(given))
        node = np.repeat(self.roots[:, None], len(given), axis=1)
        for _ in range(self.questions):
            lower = given[rows, self.feature[node]] < self.below[node]
            node = np.where(lower, self.left[node], self.right[node])
        ends = np.append(self.first[1:], len(self.roots))
        found: Values = np.zeros((len(self.first), len(given)))
        some = self.first < ends  # one that has learned nothing has no trees
        if some.any():
            found[some] = np.add.reduceat(self.value[node], self.first[some], axis=0)
        return found


def _deepest(nodes: dict[str, Any]) -> int:
    """Questions from a root to a leaf, at most: children stand behind their parents."""
    depth = np.zeros(len(nodes["left"]), np.int64)
    for node, (left, right) in enumerate(zip(nodes["left"], nodes["right"], strict=True)):
        if left != node:
            depth[left] = depth[right] = depth[node] + 1
    return int(depth.max(initial=0))
