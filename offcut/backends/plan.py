"""The plan of a call at given sizes, as a table: what runs, and why."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from offcut.backends.abi import Signature
from offcut.core.expr import Binary, Expr
from offcut.core.interpret.run_arguments import given_sizes
from offcut.core.interpret.values import evaluate
from offcut.core.text.expressions import count
from offcut.core.text.tables import html_table, quantity, table
from offcut.costmodel import CallCycles
from offcut.errors import CallError, DescribeError
from offcut.partition import Partition, Piece, Segment
from offcut.schedule import Applied, Choice


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    """A piece at fixed sizes.

    ranges     owned coordinates by axis, half open
    tile       extent of its tiles by axis
    instances  statement instances that it owns
    seconds    its share of its nest's predicted seconds, in proportion to what the pieces take alone, or to their instances
               if the cost model does not separate these pieces
    """

    stage: str
    role: str
    roles: dict[str, str]
    ranges: dict[str, tuple[int, int]]
    tile: dict[str, int]
    microkernel: str
    instances: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PlanAlternative:
    """A variant that competed for a stage, and its predicted seconds."""

    stage: str
    label: str
    seconds: float
    chosen: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The pieces that run at fixed sizes, and the variants that competed.

    partition  that the pieces are of; None where a target plans by other means, and of loops
    beside     predicted seconds of a call that belong to no piece: the call itself, and loops that have none
    notes      how the loops of a program run, and why; a program that is no computation has no pieces
    """

    kernel: str
    sizes: dict[str, int]
    pieces: tuple[PlannedPiece, ...]
    considered: tuple[PlanAlternative, ...]
    partition: Partition | None = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()
    beside: float = 0.0

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the tiles that run; needs the extra ``plot``. `path` is where to write a picture."""
        if self.partition is None:
            raise DescribeError(
                "plot",
                f"cannot draw {self.kernel}",
                because="its pieces are of no partition"
                if self.pieces
                else "it runs as loops, without pieces",
                help=("oc.partition(program, tile={…}).plot()",),
            )
        return self.partition.plot(path, axes=None, **self.sizes)

    @property
    def seconds(self) -> float:
        """Return the predicted seconds of the whole call, those of `Kernel.cost`; if the schedule gives costs, by these."""
        return self.beside + sum(one.seconds for one in self.considered if one.chosen)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {
            "kernel": self.kernel,
            "sizes": dict(self.sizes),
            "predicted_seconds": self.seconds,
            "call_seconds": self.beside,
            "pieces": [
                {
                    "stage": piece.stage,
                    "role": piece.role,
                    "roles": dict(piece.roles),
                    "ranges": {axis: list(bounds) for axis, bounds in piece.ranges.items()},
                    "tile": dict(piece.tile),
                    "microkernel": piece.microkernel,
                    "instances": piece.instances,
                    "predicted_seconds": piece.seconds,
                }
                for piece in self.pieces
            ],
            "considered": [
                {
                    "stage": one.stage,
                    "label": one.label,
                    "predicted_seconds": one.seconds,
                    "chosen": one.chosen,
                }
                for one in self.considered
            ],
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    @property
    def _is_table(self) -> bool:
        return self.partition is not None or bool(self.pieces)

    def rows(self) -> list[list[str]]:
        """Return the table of pieces, its head first."""
        head = ["stage", "role", "ranges", "tile", "microkernel", "instances", "predicted"]
        body = [
            [
                piece.stage,
                piece.role,
                " ".join(f"{a} {lo}:{hi}" for a, (lo, hi) in piece.ranges.items()),
                "×".join(str(extent) for extent in piece.tile.values()) or "1",
                piece.microkernel,
                f"{piece.instances:,}",
                quantity(piece.seconds, "s"),
            ]
            for piece in self.pieces
        ]
        return [head, *body]

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        lines = [f"{self.kernel}({sizes})"]
        if self._is_table:
            lines[0] += f", predicted {quantity(self.seconds, 's')}"
            lines += table(self.rows())
            if self.beside:
                lines.append(f"the call itself, predicted {quantity(self.beside, 's')}")
        lines += self.notes
        for one in self.considered:
            mark = "chosen" if one.chosen else "not chosen"
            lines.append(
                f"{one.stage}: {one.label}, predicted {quantity(one.seconds, 's')}, {mark}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<plan {str(self).splitlines()[0]}: {count(len(self.pieces), 'piece')}>"

    def _repr_html_(self) -> str:
        if not self._is_table:
            return f"<pre>{html.escape(str(self))}</pre>"
        title, *_ = str(self).splitlines()
        after = str(self).splitlines()[len(self.rows()) + 1 :]
        below = f"<pre>{html.escape(chr(10).join(after))}</pre>" if after else ""
        return f"<p>{html.escape(title)}</p>{html_table(self.rows())}{below}"


CallPredictor: TypeAlias = Callable[[Mapping[str, int], Mapping[int, int]], CallCycles]
"""A function from the sizes of a call, by the user's names, and the options of its choices, by number, to the predicted cycles of the call."""


def evaluate_plan(
    applied: Applied | None,
    signature: Signature,
    sizes: Mapping[str, int],
    pricing: CallPredictor | None = None,
) -> Plan:
    """Return the plan of a schedule at `sizes`, by the users' names; without one, there are no pieces.

    pricing  what predicts a call; None: nests take what they compete by

    Raises CallError for a size that is missing, unknown, or outside its facts.
    """
    sizes = check_sizes(signature, sizes)
    if applied is None:
        outside_seconds = 0.0
        if pricing is not None:
            outside_seconds = pricing(sizes, {}).seconds
        return Plan(signature.name, dict(sizes), (), (), None, beside=outside_seconds)
    names = dict(applied.partition.users.sizes)
    values = {names[user]: value for user, value in sizes.items()}
    pieces: list[PlannedPiece] = []
    running: list[Piece] = []
    alternatives: list[PlanAlternative] = []
    competing = [
        [float(evaluate(choice.cost, values)) for choice in choices] for choices in applied.choices
    ]
    chosen_ways = [costs.index(min(costs)) for costs in competing]
    outside_seconds, whole = 0.0, None
    if pricing is not None:
        whole, competing = _predicted_seconds(
            applied, competing, chosen_ways, partial(pricing, sizes)
        )
        outside_seconds = whole.call / whole.hertz
    for choices, costs, best in zip(applied.choices, competing, chosen_ways, strict=True):
        chosen = choices[best]
        alternatives += [
            PlanAlternative(choice.stage.label, choice.label, cost, position == best)
            for position, (choice, cost) in enumerate(zip(choices, costs, strict=True))
        ]
        running += chosen.pieces
        planned_pieces = [one for group in chosen.groups for one in _pieces_at(group, values)]
        pieces += _with_shares(planned_pieces, costs[best], whole)
    runs = replace(applied.partition, pieces=tuple(running))
    notes = applied.partition.notes
    return Plan(
        signature.name,
        dict(sizes),
        tuple(pieces),
        tuple(alternatives),
        runs,
        notes,
        outside_seconds,
    )


def _predicted_seconds(
    applied: Applied,
    competing: Sequence[Sequence[float]],
    chosen_ways: Sequence[int],
    pricing: Callable[[Mapping[int, int]], CallCycles],
) -> tuple[CallCycles, list[list[float]]]:
    """Return the predicted call, and the seconds of each variant of each nest, as if chosen.

    competing    seconds by which variants compete, by nest
    chosen_ways  the number of the variant that is chosen, by nest
    """
    numbers = [nest for nest, choices in enumerate(applied.choices) if len(choices) > 1]
    options = {number: chosen_ways[nest] for number, nest in enumerate(numbers)}
    whole = pricing(options)
    seconds = [list(costs) for costs in competing]
    for nest, own_seconds in enumerate(
        _by_nest(applied, competing, chosen_ways, whole.stage_seconds)
    ):
        choices = applied.choices[nest]
        if any(choice.given for choice in choices):
            continue
        seconds[nest] = [own_seconds] * len(choices)
        for way in range(len(choices)):
            if way != chosen_ways[nest]:
                other = pricing({**options, numbers.index(nest): way})
                seconds[nest][way] += other.seconds - whole.seconds
    return whole, seconds


def _by_nest(
    applied: Applied,
    competing: Sequence[Sequence[float]],
    chosen_ways: Sequence[int],
    stages: Mapping[str, float],
) -> list[float]:
    """Return the seconds of stages by nest; those of a stage in no nest are shared among the nests without a time, or among all.

    Where no nest takes any time, they are shared evenly.
    """
    unassigned, seconds = dict(stages), list[float]()
    for choices, way in zip(applied.choices, chosen_ways, strict=True):
        written_buffers = {
            choices[way].stage.buffer,
            *(one.store.buffer for one in choices[way].pieces),
        }
        seconds.append(sum(unassigned.pop(name) for name in written_buffers & unassigned.keys()))
    rest = sum(unassigned.values())
    if not rest:
        return seconds
    weights = [costs[way] for costs, way in zip(competing, chosen_ways, strict=True)]
    without = [0.0 if own else weight for own, weight in zip(seconds, weights, strict=True)]
    weights = without if sum(without) else weights
    weights = weights if sum(weights) else [1.0] * len(seconds)  # of an empty batch, none takes any
    every = sum(weights)
    return [own + rest * weight / every for own, weight in zip(seconds, weights, strict=True)]


def check_sizes(
    signature: Signature, arguments: Mapping[str, int], op: str = "plan"
) -> dict[str, int]:
    """Return the sizes of a call of `signature`, as Python ints.

    Raises CallError for a size that is missing, unknown, or outside its facts.
    """
    sizes = given_sizes(op, signature.name, signature.sizes, arguments)
    for relation in signature.relations:
        if not relation.holds(sizes):
            at = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise CallError(
                op, f"cannot take {at}", because=f"assume({relation.text}) does not hold"
            )
    return sizes


_TileKey: TypeAlias = tuple[str, frozenset[tuple[str, str]], str]
"""The key of a piece in the cost model: the array that it stores, the extents of its tile by axis, and its microkernel or ""."""


def _pieces_at(choice: Choice, values: Mapping[str, int]) -> list[tuple[PlannedPiece, _TileKey]]:
    """Return the pieces of a variant at fixed sizes, without empty ones."""
    stage, pieces = choice.stage, list[tuple[PlannedPiece, _TileKey]]()
    labels = {axis.name: axis.label for axis in (*stage.axes, *stage.reduce_axes)}
    for piece in {(p.segments, p.microkernel): p for p in choice.pieces}.values():
        segments = {labels[axis]: _segment_at(segment, values) for axis, segment in piece.segments}
        ranges = {axis: (lo, hi) for axis, (lo, hi, _) in segments.items()}
        instances = 1
        for axis in (*stage.axes, *stage.reduce_axes):
            lo, hi = ranges.get(axis.label, (0, int(evaluate(axis.extent, values))))
            instances *= max(hi - lo, 0)
        if instances:
            roles = {axis: role.value for axis, role in piece.roles.items()}
            tile = {axis: height for axis, (_, _, height) in segments.items()}
            kernel = piece.microkernel or "vector loops"
            planned = PlannedPiece(
                stage.label, piece.role, roles, ranges, tile, kernel, instances, 0.0
            )
            extents = ((axis, str(tile[labels[axis]])) for axis, _ in piece.segments)
            key = piece.store.buffer, frozenset(extents), piece.microkernel or ""
            pieces.append((planned, key))
    return pieces


def _segment_at(segment: Segment, values: Mapping[str, int]) -> tuple[int, int, int]:
    """Return the owned range and the height of a segment; empty if the segment does not exist."""
    environment = dict(values)
    for let in segment.lets:
        environment[let.name] = _value(let.value, environment)
    if segment.when is not None and not evaluate(segment.when, environment):
        return 0, 0, 0
    lo, hi, height = (int(evaluate(expr, environment)) for expr in (*segment.owned, segment.height))
    return lo, hi, height


def _value(expr: Expr, environment: Mapping[str, int]) -> int:
    """Return a bounded value; 0 where it divides by an empty count of tiles."""
    if isinstance(expr, Binary) and expr.op == "//" and not evaluate(expr.b, environment):
        return 0
    return int(evaluate(expr, environment))


def _with_shares(
    pieces: Sequence[tuple[PlannedPiece, _TileKey]], seconds: float, whole: CallCycles | None
) -> list[PlannedPiece]:
    """Return the pieces of a nest with their shares of its seconds.

    whole  the call: what pieces of the program take alone; those of one tile come in the order of the program
    """
    alone_by_key: dict[_TileKey, list[float]] = {}
    if whole is not None:
        for one in whole.pieces:
            key = one.stage, frozenset(one.tile.items()), one.microkernel
            alone_by_key.setdefault(key, []).append(whole.busiest(one.resources))
    keys = Counter(key for _, key in pieces)
    weights: list[float] = [piece.instances for piece, _ in pieces]
    if all(len(alone_by_key.get(key, ())) == count for key, count in keys.items()):
        weights = [alone_by_key[key].pop(0) for _, key in pieces]
    total = sum(weights) or 1.0
    return [
        replace(piece, seconds=seconds * weight / total)
        for (piece, _), weight in zip(pieces, weights, strict=True)
    ]
