"""How well predictions hold on what was left out: by shape, by operator, by machine; three models in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from offcut.costmodel.arrays import Values
from offcut.costmodel.learned import CLOSED, Dataset, Settings, metrics, train
from offcut.costmodel.learned.corrected_model import too_few

if TYPE_CHECKING:
    from rich.table import Table

PROGRAM = "operator"
SPLITS = {"shape": "sizes", PROGRAM: "program", "machine": "machine"}
"""What is left out, and the field of rows that says so."""

RECALL = 30
"""The k of recall@k; half of a group where that is less."""

APART = 0.15
"""Pairs whose times differ by less than this share are no pairs."""

CHANGE = 1e-3
"""Predictions that are off by less than this less than the closed form are not better."""

_FOLDS = 5

Predicted: TypeAlias = tuple[Values, Values, float]
"""Seconds, their spread, and the share of rows of which the model says nothing of its own."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well a model does on rows that it has not seen.

    by        what was left out: a shape, an operator, a machine
    model     closed form, learned alone, or pair
    rows      that were predicted
    pairwise  the share of pairs in the right order: of those that are further apart than `APART` and their noise
    tau       Kendall's, the mean over the groups, as are recall and regret
    recall    at `RECALL`
    regret    of the one that is predicted to be the fastest
    covered   the share that lies within the spread; None: the model states none
    fell      the share of rows where the pair fell back to the closed form
    because   why there are no figures; "" where there are
    off       the median of what predictions are off by, of the logarithm of seconds
    """

    by: str
    model: str
    rows: int
    pairwise: float
    tau: float
    recall: float
    regret: float
    covered: float | None
    fell: float
    because: str = ""
    off: float = nan


def useless_of(lines: Sequence[HeldOut]) -> str:
    """Return why a correction is not used: of programs that were left out whole it orders fewer pairs than the closed form, or
    misses the best by more, or is no better in either and no nearer to what was measured; "" where none is so.

    lines  of what `held_out` gives; those by operator count
    """
    by_model = {one.model: one for one in lines if one.by == PROGRAM}
    if not by_model:
        return "all rows are of one program, and none can be left out whole"
    closed, pair = by_model["closed form"], by_model["pair"]
    if pair.because:
        return pair.because
    if isnan(closed.pairwise):
        return f"no two schedules of a program are {APART:.0%} apart"
    scores = f"of programs that were left out whole, the closed form orders {closed.pairwise:.1%} of the pairs, at a regret of {closed.regret:.1%}"
    with_it = f"and with it, {pair.pairwise:.1%}, at {pair.regret:.1%}"
    if pair.pairwise < closed.pairwise or pair.regret > closed.regret:
        return f"{scores}, {with_it}"
    same = (pair.pairwise, pair.regret) == (closed.pairwise, closed.regret)
    if same and not pair.off < closed.off - CHANGE:
        return f"{scores}, {with_it}: it changes nothing"
    return ""


def held_out(
    rows: Dataset,
    seed: int = 0,
    settings: Settings | None = None,
    splits: Sequence[str] = tuple(SPLITS),
    alone: bool = True,
) -> tuple[HeldOut, ...]:
    """A line for each way to leave out and each model; none of a way where there is nothing to leave.

    Where too few rows stay to learn from, a line has no figures, and says why.

    Raises TargetError where XGBoost is not installed.
    """
    models: dict[str, Callable[[Dataset, Dataset], Predicted]] = {
        "closed form": _closed,
        "learned alone": lambda seen, new: _alone(seen, new, seed, settings),
        "pair": lambda seen, new: _pair(seen, new, seed, settings),
    }
    if not alone:
        del models["learned alone"]
    lines = []
    for by, field in ((by, SPLITS[by]) for by in splits):
        folds = tuple(_folds(getattr(rows, field), seed))
        few = next(filter(None, (too_few(rows.at(~new)) for new in folds)), "")
        for model, predict in models.items() if folds else ():
            if few and predict is not _closed:
                lines.append(HeldOut(by, model, len(rows), *(nan,) * 4, None, nan, few))
                continue
            parts = [(new, predict(rows.at(~new), rows.at(new))) for new in folds]
            lines.append(_line(by, model, rows, parts))
    return tuple(lines)


def table(lines: Sequence[HeldOut]) -> Table:
    """The lines as they are printed."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Rich

    count = lines[0].rows if lines else 0
    heads = ("pairs", "τ", "recall", "regret", "off", "covered", "fell")
    caption = (
        f"pairs in order, Kendall's τ, recall@{RECALL}, regret of the first; median error; what lies within the spread, "
        "what the closed form alone decides"
    )
    result = Rich(title=f"{count} rows", caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("left out", "model", *heads):
        result.add_column(head, no_wrap=True)
    if any(one.because for one in lines):
        result.add_column("because")
    before = ""
    for one in lines:
        covered = "" if one.covered is None else f"{one.covered:.0%}"
        fell = f"{one.fell:.0%}" if one.model == "pair" else ""
        by, before = ("" if one.by == before else one.by), one.by
        if one.because:
            result.add_row(by, one.model, *("",) * len(heads), one.because)
            continue
        numbers = (f"{one.pairwise:.3f}", f"{one.tau:.3f}", f"{one.recall:.3f}")
        result.add_row(
            by, one.model, *numbers, f"{one.regret:.1%}", f"{one.off:.1%}", covered, fell
        )
    return result


def _folds(keys: Values, seed: int) -> Iterator[Values]:
    """Masks of what is left out: each key once, in five parts at most; none of a single key."""
    groups, codes = np.unique(keys, return_inverse=True)
    if len(groups) < 2:
        return
    part = np.random.default_rng(seed).permutation(len(groups)) % min(_FOLDS, len(groups))
    for number in range(part.max() + 1):
        yield part[codes] == number


def _closed(training: Dataset, new: Dataset) -> Predicted:
    return new.closed, np.full(len(new), np.nan), 0.0


def _alone(training: Dataset, new: Dataset, seed: int, settings: Settings | None) -> Predicted:
    """Without the closed form: neither corrected nor among the features."""
    own = tuple(f"{feature.__name__}." for feature in CLOSED)
    names = [name for name in training.names if not name.startswith(own)]
    flat = replace(
        training.only(names),
        closed=np.full(len(training), float(np.exp(np.log(training.seconds).mean()))),
    )
    model = train(flat, seed, settings)
    tested = new.only(names)
    prediction = model.corrected_seconds(
        tested.features, np.full(len(new), flat.closed[0]), tested.centre
    )
    return prediction.seconds, prediction.spread, 0.0


def _pair(training: Dataset, new: Dataset, seed: int, settings: Settings | None) -> Predicted:
    model = train(training, seed, settings)
    seconds, spread, fell = np.empty(len(new)), np.empty(len(new)), 0
    for group in new.groups:
        prediction = model.predict(new.features[group], new.closed[group])
        seconds[group], spread[group] = prediction.seconds, prediction.spread
        fell += sum(map(bool, prediction.because))
    return seconds, spread, fell / len(new)


def _line(by: str, model: str, rows: Dataset, parts: Sequence[tuple[Values, Predicted]]) -> HeldOut:
    seconds, spread = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    fell = 0.0
    for new, (predicted, own, share) in parts:
        seconds[new], spread[new] = predicted, own
        fell += share * new.sum() / len(rows)
    groups = [group for group in rows.groups if len(group) > 1]
    each = [
        (
            metrics.kendall_tau(rows.seconds[g], seconds[g]),
            metrics.recall_at(max(1, min(RECALL, len(g) // 2)), rows.seconds[g], seconds[g]),
            metrics.regret(rows.seconds[g], seconds[g]),
        )
        for g in groups
    ]
    tau, recall, regret = (
        (_mean(column) for column in zip(*each, strict=True)) if each else (nan,) * 3
    )
    covered = None if np.isnan(spread).all() else metrics.coverage(rows.seconds, seconds, spread)
    pairwise = metrics.pairwise_accuracy(rows.seconds, seconds, rows.spread, APART, groups)
    off = float(np.median(np.abs(np.log(seconds / rows.seconds))))
    return HeldOut(by, model, len(rows), pairwise, tau, recall, regret, covered, fell, "", off)


def _mean(values: Sequence[float]) -> float:
    """Of those that there are."""
    known = [value for value in values if not isnan(value)]
    return fmean(known) if known else nan
