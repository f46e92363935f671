"""From a computation to the program of a machine of queues, and to the schedule that says what was decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offcut.backends.accelerator.isa import Place
from offcut.backends.accelerator.microkernels import name_of
from offcut.backends.accelerator.planning.apart import apart
from offcut.backends.accelerator.planning.elementary import operations
from offcut.backends.accelerator.planning.loops import Level, Loops, over
from offcut.backends.accelerator.planning.policy import chosen
from offcut.backends.accelerator.planning.regrouped import is_regrouping, regrouped
from offcut.backends.accelerator.planning.written import nest_of, nests_of, roles_of, tiling_of
from offcut.backends.accelerator.spec import Spec
from offcut.backends.target import Planned
from offcut.core.accesses import stored
from offcut.core.expr import Var
from offcut.core.program import Buffer, Kind, Program, Stmt, Store
from offcut.describe.computation import Computation, Stage
from offcut.schedule import Nest, Schedule


def planned(
    program: Program,
    computation: Computation,
    spec: Spec,
    schedule: Schedule | None,
    virtual: bool = True,
) -> Planned:
    """The program on the chip; `schedule` decides where there is one, else the policy.

    virtual  whether the policy may take virtual threads

    Raises TargetError for what no instruction does, PartitionError for a schedule that is none of it.
    """
    steps = regrouped(computation)
    computation = steps[-1]
    names = computation.names()
    scopes = scopes_of(spec)
    written: dict[Level, tuple[list[Buffer], list[Stmt]]] = {level: ([], []) for level in Level}
    nests: list[Nest] = []
    inner = _missing(list(computation.buffers), list(program.buffers))
    known = replace(program, buffers=(*program.buffers, *inner))
    decided = {} if schedule is None else nests_of(schedule, computation)

    def cover(store: Store) -> str | None:
        on_chip = store.buffer in on_chip_of
        return name_of(store, spec) if on_chip else None

    for group in computation.groups:
        if is_regrouping(group, computation):
            for _, body in written.values():
                body += copied_by_host(group[0])
            continue
        nest = decided.get(group[0].buffer)
        made = operations(computation, group, spec, names, roles_of(nest))
        if schedule is None or nest is None:
            tiling = chosen(known, made, spec, virtual=virtual)
            nest = nest_of(made, tiling, spec)
        else:
            tiling = tiling_of(schedule, nest, made, spec)
            nest = nest_of(made, tiling, spec, nest.ways[0].label)
        nests.append(nest)
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
        through=(*map(apart, steps), *through),
    )


def copied_by_host(stage: Stage) -> tuple[Stmt, ...]:
    """The loops of a copy from main memory to main memory."""
    point = tuple(Var(axis.name) for axis in stage.axes)
    return over(stage.axes, (Store(stage.buffer, point, stage.body),))


def scopes_of(spec: Spec) -> Mapping[Place, str]:
    """The memory that keeps each place."""
    return {place: words.memory for place, words in spec.words.items()}


def _missing(buffers: list[Buffer], known: list[Buffer]) -> list[Buffer]:
    names = {buffer.name for buffer in known}
    return [buffer for buffer in buffers if buffer.name not in names]


def _stores(body: list[Stmt], name: str) -> bool:
    return name in stored(tuple(body))
