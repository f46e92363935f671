"""Schedules of one program on one target as cases: planned, counted in closed form, and evaluated; nothing is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from offcut.backends.target import Options, Target
from offcut.core.interpret.values import evaluate_all
from offcut.core.program import Program
from offcut.costmodel.closed.predicted import Prediction, predicted
from offcut.costmodel.learned import Case, ran
from offcut.costmodel.learned.case import Values
from offcut.errors import PartitionError
from offcut.partition import Users
from offcut.schedule import Schedule


@dataclass(frozen=True)
class Cases:
    """What schedules are at vectors of sizes, by the user's names.

    program, users  as they were asked for
    """

    target: Target
    options: Options
    program: Program
    users: Users

    def __call__(self, schedule: Schedule, vectors: Sequence[Mapping[str, int]]) -> Case:
        """A schedule at each vector of sizes.

        Raises PartitionError for one that is not legal, TargetError where the machine is no processor.
        """
        options = replace(self.options, schedule=schedule)
        planned = next(iter(self.target.space(self.program, self.users, options)), None)
        if planned is None:
            raise PartitionError(
                "tune", f"cannot plan {schedule.name}", because="the target's space holds no plan of it"
            )
        hardware = self.target.hardware(options)
        made = predicted(planned.program, hardware, {})
        sizes = {
            inner: np.array([at[user] for at in vectors], np.int64) for user, inner in self.users.sizes
        }
        named = _with_values(made, sizes, len(vectors))
        return Case(
            schedule,
            hardware.machine,
            hardware.microkernels,
            sizes,
            ran(made.pieces, named, len(vectors), _taken(made, named, len(vectors))),
            self.options.threads,
            len(vectors),
        )


def _with_values(made: Prediction, sizes: Mapping[str, Values], count: int) -> dict[str, Values]:
    """The sizes, and whatever else is named in counts."""
    found = dict(sizes)
    for name, value in made.values.items():
        found[name] = evaluate_all(value, found, count)
    return found


def _taken(
    made: Prediction, sizes: Mapping[str, Values], count: int
) -> dict[tuple[int, int], Values]:
    """Whether a call takes a way, at each vector of sizes: the one that is predicted to be the cheapest."""
    found: dict[tuple[int, int], Values] = {}
    for number, ways in enumerate(made.choices):
        costs = np.stack([evaluate_all(way.cost, sizes, count) for way in ways])
        best = np.argmin(costs, axis=0)
        found |= {(number, place): best == place for place in range(len(ways))}
    return found
