"""From a computation to the program of a machine of queues, and to the schedule that says what was decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offcut.backends.accelerator.isa import Place
from offcut.backends.accelerator.microkernels import name_of, product_name
from offcut.backends.accelerator.planning.apart import apart
from offcut.backends.accelerator.planning.elementary import Operations, operations
from offcut.backends.accelerator.planning.loops import Level, Loops, Tiling
from offcut.backends.accelerator.planning.policy import chosen
from offcut.backends.accelerator.planning.windows import lanes
from offcut.backends.accelerator.spec import Spec
from offcut.backends.target import Planned
from offcut.core.program import Buffer, Kind, Program, Stmt, Store
from offcut.describe.computation import Computation
from offcut.errors import PartitionError
from offcut.partition import LADDER, PAD, AxisCut
from offcut.schedule import Cover, Nest, Schedule, Way

LABEL = "chip"


def planned(
    program: Program, computation: Computation, spec: Spec, schedule: Schedule | None
) -> Planned:
    """The program on the chip; `schedule` decides where there is one, else the policy.

    Raises TargetError for what no instruction does, PartitionError for a schedule that is none of it.
    """
    names = computation.names()
    scopes = scopes_of(spec)
    written: dict[Level, tuple[list[Buffer], list[Stmt]]] = {level: ([], []) for level in Level}
    nests: list[Nest] = []
    decided = {} if schedule is None else _nests(schedule, computation)

    def cover(store: Store) -> str | None:
        on_chip = store.buffer in on_chip_of
        return name_of(store, spec) if on_chip else None

    for group in computation.groups:
        made = operations(computation, group, spec, names)
        label = made.label
        tiling = (
            tiling_of(decided[label], made, spec)
            if label in decided
            else chosen(program, made, spec)
        )
        nests.append(nest_of(made, tiling, spec))
        on_chip_of = {buffer.name for buffer in made.buffers}
        loops = Loops(made, tiling, scopes, cover, names)
        for level, (buffers, body) in written.items():
            buffers += loops.buffers(level)
            body += loops.statements(level)
    local = {name for buffers, _ in written.values() for name in (b.name for b in buffers)}
    local |= {stage.buffer for group in computation.groups for stage in group}
    crossing = [b for b in program.buffers if b.kind not in (Kind.LOCAL, Kind.PRIVATE)]
    between = [
        replace(b, kind=Kind.LOCAL)
        for b in computation.buffers
        if b.kind is Kind.LOCAL and any(_stores(body, b.name) for _, body in written.values())
    ]
    forms = {
        level: replace(
            program,
            buffers=(*crossing, *_missing(between, buffers), *buffers),
            body=tuple(body),
        )
        for level, (buffers, body) in written.items()
    }
    *through, last = forms.values()
    return Planned(
        last,
        Schedule(program.name, tuple(nests)),
        through=(apart(computation), *through),
    )


def scopes_of(spec: Spec) -> Mapping[Place, str]:
    """The memory that keeps each place."""
    return {place: words.memory for place, words in spec.words.items()}


def _missing(buffers: list[Buffer], known: list[Buffer]) -> list[Buffer]:
    names = {buffer.name for buffer in known}
    return [buffer for buffer in buffers if buffer.name not in names]


def _stores(body: list[Stmt], name: str) -> bool:
    from offcut.core.accesses import stored

    return name in stored(tuple(body))


def nest_of(made: Operations, tiling: Tiling, spec: Spec) -> Nest:
    """What a schedule says of a nest."""
    return Nest(made.label, (_way(made, tiling, spec),))


def _way(made: Operations, tiling: Tiling, spec: Spec) -> Way:
    """What was decided of a nest."""
    roles, words = made.roles, lanes(made, spec)
    cover = None
    if roles.depth is not None:
        cover = Cover(product_name(spec), roles.rows, roles.columns, roles.depth)
    splits = tuple(
        AxisCut(axis, PAD if axis in words else LADDER, size) for axis, size in tiling.tiles
    )
    return Way(LABEL, None, cover, None, splits, tiling.order, virtual=tiling.virtual)


def _nests(schedule: Schedule, computation: Computation) -> dict[str, Way]:
    """The ways of a schedule by stage."""
    known = [group[0].buffer for group in computation.groups]
    found: dict[str, Way] = {}
    for step in schedule.steps:
        if not isinstance(step, Nest) or len(step.ways) != 1:
            raise _refused(
                str(type(step).__name__).lower(), "a nest in one way is all that it takes here"
            )
        if step.stage not in known:
            raise _refused(f"nest {step.stage}", f"the nests are {', '.join(known)}")
        found[step.stage] = step.ways[0]
    return found


def tiling_of(way: Way, made: Operations, spec: Spec) -> Tiling:
    """What a way says of the loops of a nest.

    Raises PartitionError for one that is none of it.
    """
    axes = {axis.name for axis in (*made.axes, *made.terms)}
    tiles = {cut.axis: cut.tile for cut in way.splits}
    words = lanes(made, spec)
    named = [*tiles, *way.loops, *([way.virtual[0]] if way.virtual else [])]
    for axis in named:
        if axis not in axes:
            raise _refused(f"axis {axis}", f"the axes are {', '.join(sorted(axes))}")
    for axis, size in tiles.items():
        if size % words.get(axis, 1):
            raise _refused(
                f"split {axis} {size}",
                f"{axis} runs along words of {words[axis]}",
                f"a multiple of {words[axis]}",
            )
    for axis in way.loops:
        tiles.setdefault(axis, words.get(axis, 1))
    if set(tiles) != set(way.loops):
        lost = sorted(set(tiles) - set(way.loops))
        raise _refused(f"split {lost[0]}", f"no loop runs over its tiles: loops {lost[0]}")
    terms = {axis.name for axis in made.terms}
    ends = [axis in terms for axis in way.loops]
    if ends != sorted(ends):
        raise _refused(
            f"loops {' '.join(way.loops)}",
            "loops over terms stand inside of those over results: accumulators keep the sums",
        )
    if way.virtual is not None and (
        way.virtual[0] not in way.loops or way.virtual[0] in terms or way.virtual[1] < 2
    ):
        raise _refused(
            f"virtual {way.virtual[0]} {way.virtual[1]}",
            "virtual threads run tiles of results, two or more",
        )
    order = tuple(way.loops)
    return Tiling(tuple((axis, tiles[axis]) for axis in order), order, way.virtual)


def _refused(at: str, because: str, *help: str) -> PartitionError:
    return PartitionError("schedule", "cannot cut a nest so", at=at, because=because, help=help)
