"""The pieces of a call: the tiles of the text that compute results, each with its share of what its stream is predicted to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from offcut.backends.accelerator.host_device_split import HostDeviceProgram
from offcut.backends.accelerator.lowering.instruction_selection import Result
from offcut.backends.accelerator.microkernels import microkernels
from offcut.backends.accelerator.nest_run import Ran, run_of
from offcut.backends.accelerator.planning.planner import LABEL
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.backends.plan import PlanAlternative, PlannedPiece
from offcut.core.analysis import stored_arrays
from offcut.core.interpret.values import evaluate
from offcut.core.program import Alloc, Choose, For, If, Let, Program, Stmt, Tile, walk


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a call.

    ran      the option of it that is taken
    options  all that there are, in predicted seconds
    """

    ran: Ran
    options: tuple[PlanAlternative, ...]

    @property
    def chosen_option(self) -> PlanAlternative:
        """Return the option that is taken."""
        return next(one for one in self.options if one.chosen)

    @property
    def stored_arrays(self) -> frozenset[str]:
        """Return the arrays that it leaves in main memory."""
        work = self.ran.nest.work
        return frozenset(one.leaf.store.buffer for one in work if isinstance(one.does, Result))


def streams_of(phases: HostDeviceProgram, sizes: Mapping[str, int]) -> list[Stream]:
    """Return the streams of a call of these sizes, by the program's names, in order.

    Raises TargetError where windows do not fit.
    """
    streams: list[Stream] = []
    for phase in phases.nests:
        costs = [evaluate(option.cost, sizes) for option in phase.options]
        runs = [run_of(option.nest, sizes) for option in phase.options]
        best = min(range(len(runs)), key=lambda k: (costs[k], runs[k].timed.cycles))
        options = (
            PlanAlternative(
                one.nest.stage,
                option.label or LABEL,
                one.timed.cycles / phases.spec.hertz,
                one is runs[best],
            )
            for option, one in zip(phase.options, runs, strict=True)
        )
        streams.append(Stream(runs[best], tuple(options)))
    return streams


def pieces_of(
    program: Program, streams: Sequence[Stream], spec: AcceleratorSpec, sizes: Mapping[str, int]
) -> list[PlannedPiece]:
    """Return a piece for each tile that computes results and has an instance: of products, and of what no product makes.

    sizes  by the program's names
    """
    pieces: list[PlannedPiece] = []
    products = {one.name for one in microkernels(spec) if one.reduce_axes}
    for top in program.body:
        stored = stored_arrays((top,))
        stream = next((one for one in streams if one.stored_arrays & stored), None)
        if stream is None:
            continue
        body: tuple[Stmt, ...] = (top,)
        if isinstance(top, Choose):
            label = stream.chosen_option.label
            body = next((o.body for o in top.options if o.label == label), top.options[0].body)
        tiles = [stmt for stmt in walk(body) if isinstance(stmt, Tile)]
        of = [tile for tile in tiles if tile.microkernel in products] or [
            tile for tile in tiles if stored_arrays((tile,)) & stream.stored_arrays
        ]
        runs: dict[int, _Run] = {id(tile): _Run() for tile in of}
        _visit(body, dict(sizes), runs)
        total = sum(run.instances for run in runs.values())
        for tile in of:
            run = runs[id(tile)]
            if run.instances:
                pieces.append(
                    PlannedPiece(
                        stage="".join(sorted(stream.stored_arrays)[:1]),
                        role=tile.role.value,
                        roles={},
                        ranges=dict(run.ranges),
                        tile=dict(run.tile),
                        microkernel=tile.microkernel or "vector unit",
                        instances=run.instances,
                        seconds=stream.chosen_option.seconds * run.instances / total,
                    )
                )
    return pieces


@dataclass
class _Run:
    """What a tile of the text is at the sizes of a call: instances, extents at most, and the coordinates that it covers."""

    instances: int = 0
    tile: dict[str, int] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, axes: Sequence[tuple[str, int, int]]) -> None:
        """Count a tile of these (axis, start, extent), those of its terms too."""
        count = prod(extent for _, _, extent in axes)
        if not count:
            return
        self.instances += count
        for axis, start, extent in axes:
            lo, hi = self.ranges.get(axis, (start, start + extent))
            self.ranges[axis] = min(lo, start), max(hi, start + extent)
            self.tile[axis] = max(extent, self.tile.get(axis, 0))


def _visit(body: Sequence[Stmt], at: dict[str, int], runs: Mapping[int, _Run]) -> None:
    """Count the tiles of `runs` in statements, with these values of sizes and iterators."""
    for stmt in body:
        match stmt:
            case Tile() if id(stmt) in runs:
                axes = [(a.iter, evaluate(a.start, at), evaluate(a.extent, at)) for a in stmt.axes]
                axes += [
                    (s.iter, evaluate(s.lo, at), int(evaluate(s.hi, at)) - int(evaluate(s.lo, at)))
                    for s in walk(stmt.body)
                    if isinstance(s, For)
                ]
                runs[id(stmt)].add([(n, int(lo), max(int(w), 0)) for n, lo, w in axes])
            case For(name, lo, hi, inner) if any(id(s) in runs for s in walk(inner)):
                for value in range(int(evaluate(lo, at)), int(evaluate(hi, at))):
                    _visit(inner, {**at, name: value}, runs)
            case Let(name, _, _, value, inner):
                _visit(inner, {**at, name: int(evaluate(value, at))}, runs)
            case If(condition, then, other):
                _visit(then if evaluate(condition, at) else other, at, runs)
            case Alloc(_, _, inner):
                _visit(inner, at, runs)
            case _:
                pass
