"""Predicted seconds over a size, and what binds at each: as numbers, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from offcut.core.program import Size
from offcut.costmodel.arrays import Array, Calls
from offcut.costmodel.closed.prediction import Prediction, SampledPrediction
from offcut.errors import CallError
from offcut.partition.show.figure_io import check_drawable, new_figure, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_POINTS = 512  # of a curve, at most
_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve over a size.

    values    of the size, ascending
    seconds   of a call
    bound_by  the resource that binds for most of the cycles
    """

    values: npt.NDArray[np.int64]
    seconds: Array
    bound_by: tuple[str, ...]


def curve(
    prediction: Prediction, along: str, others: Mapping[str, int], over: range, hertz: float
) -> Curve:
    """What a prediction says where a size takes its values.

    along, others   sizes by the program's names
    """
    values = np.array(over[:: max(1, len(over) // _POINTS)], np.int64)
    fixed = {name: np.full(len(values), value) for name, value in others.items()}
    sampled = SampledPrediction(prediction, Calls({along: values, **fixed}, len(values)))
    return Curve(values, sampled.cycles / hertz, sampled.bound_by)


def draw(title: str, label: str, found: Curve, path: str | Path | None) -> Figure:
    """A curve, each point in the colour of the resource that binds.

    Raises TargetError without matplotlib, CallError where the picture cannot be written.
    """
    check_drawable("the cost")

    figure = new_figure(7.0, 4.2)
    axes: Any = figure.subplots()
    axes.plot(found.values, found.seconds * 1e6, color="0.7", linewidth=1.0, zorder=1)
    for colour, name in zip(_COLOURS, dict.fromkeys(found.bound_by), strict=False):
        there = np.array([one == name for one in found.bound_by])
        axes.scatter(
            found.values[there],
            found.seconds[there] * 1e6,
            s=6.0,
            color=colour,
            label=f"bound by {name}",
            zorder=2,
        )
    axes.set_xlabel(label)
    axes.set_ylabel("predicted µs (lower is better)")
    axes.set_title(title)
    axes.legend()
    write(figure, path, 'kernel.cost().plot("cost.png")')
    return figure


def along(
    sizes: Sequence[Size],
    users: Mapping[str, str],
    size: str | None,
    over: tuple[int, int] | None,
    others: Mapping[str, int],
) -> tuple[Size, range]:
    """The size that a curve runs along, and its values.

    users  the user's names, by the program's

    Raises CallError for a size that is not there, is missing, or has no such values.
    """
    known = {users.get(one.name, one.name): one for one in sizes}
    free = [name for name in known if name not in others]
    name = free[0] if size is None and len(free) == 1 else size
    unknown = [one for one in others if one not in known]
    if name is None or name not in known or unknown or set(free) - {name}:
        raise CallError(
            "plot",
            "cannot draw a curve",
            at=", ".join([*unknown, *([size] if size is not None else [])]) or "no size",
            because=f"it runs along one of {', '.join(known) or 'no sizes'}, and the others have values",
            help=("kernel.cost().plot(size=…, others=…)",),
        )
    found = known[name]
    first, last = over or (max(found.min, 1), min(found.max, max(found.min, 1) + _POINTS))
    if not found.min <= first <= last <= found.max:
        raise CallError(
            "plot",
            f"cannot draw {name} in {first}…{last}",
            because=f"{name} is in {found.min}…{found.max}",
        )
    start = -(-first // found.multiple_of) * found.multiple_of
    return found, range(start, last + 1, found.multiple_of)
