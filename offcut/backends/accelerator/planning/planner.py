"""From a computation to the program of a machine of queues, and to the schedule that says what was decided.

Where words may lie along one axis or another, and sizes say which is better, a nest has a way for each layout: options of a choice
that cost nothing in the text, because a call counts what each takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offcut.backends.accelerator.isa import Place
from offcut.backends.accelerator.microkernels import name_of, product_name
from offcut.backends.accelerator.planning.elementary import Operations, layouts_of, operations
from offcut.backends.accelerator.planning.loops import CoverOf, Level, Loops, Tiling, over
from offcut.backends.accelerator.planning.policy import chosen
from offcut.backends.accelerator.planning.regrouped import is_regrouping, regrouped
from offcut.backends.accelerator.planning.written import (
    labels,
    nests_of,
    roles_of,
    tiling_of,
    way_of,
)
from offcut.backends.accelerator.spec import Spec
from offcut.backends.target import Planned
from offcut.core.accesses import stored_arrays
from offcut.core.expr import Var, real
from offcut.core.program import Buffer, Choose, Cover, Kind, Option, Program, Stmt, Store
from offcut.describe.computation import Computation, Stage
from offcut.describe.source import source
from offcut.schedule import Nest, Schedule, Way

COMBINATIONS = 16
"""Of the ways of all nests, at most: each is proved, so that this bounds what a compile takes, to as many proofs of a program
without ways. Nests behind those that have several have one.
"""


def planned(
    program: Program,
    computation: Computation,
    spec: Spec,
    schedule: Schedule | None,
    turns: bool = True,
) -> Planned:
    """The program on the chip; `schedule` decides where there is one, else the policy.

    turns  whether the policy may let windows take turns

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
    left = COMBINATIONS
    for group in computation.groups:
        if is_regrouping(group, computation):
            for _, body in written.values():
                body += copied_by_host(group[0])
            continue
        nest = decided.get(group[0].buffer)
        ways: list[tuple[Way, Operations, Tiling]] = []
        if schedule is None or nest is None:
            laid = layouts_of(computation, group, spec)
            laid = laid if len(laid) <= left else laid[:1]
            for label, roles in zip(labels(laid), laid, strict=True):
                made = operations(computation, group, spec, names, roles)
                tiling = chosen(known, made, spec, turns=turns)
                ways.append((way_of(made, tiling, spec, label), made, tiling))
        else:
            for way in nest.ways:
                made = operations(computation, group, spec, names, roles_of(way))
                tiling = tiling_of(schedule, way, made, spec)
                ways.append((way_of(made, tiling, spec, way.label), made, tiling))
        left //= len(ways)
        nests.append(Nest(group[0].buffer, tuple(way for way, _, _ in ways)))
        options = {
            way.label: Loops(made, tiling, scopes, covering(made, spec), names)
            for way, made, tiling in ways
        }
        for level, (buffers, body) in written.items():
            for loops in options.values():
                buffers += _missing(list(loops.buffers(level)), buffers)
            body += chosen_of({label: one.statements(level) for label, one in options.items()})
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


def covering(made: Operations, spec: Spec) -> CoverOf:
    """What says which microkernel runs a statement of a nest on the chip, on the axes that its words lie along."""
    on_chip = {buffer.name for buffer in made.buffers}
    lanes = zip("ijp", (made.roles.rows, made.roles.columns, made.roles.depth), strict=True)
    axes = tuple((name, axis) for name, axis in lanes if axis is not None)

    def cover(store: Store) -> Cover | None:
        if store.buffer not in on_chip:
            return None
        name = name_of(store, spec)
        within = axes if name == product_name(spec) else (one for one in axes if one[0] != "p")
        return Cover(name, tuple(within))

    return cover


def chosen_of(options: Mapping[str, tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """One option as it is; of several a choice that is left to the call."""
    if len(options) == 1:
        return next(iter(options.values()))
    return (Choose(tuple(Option(label, real(0.0), body) for label, body in options.items())),)


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
    return name in stored_arrays(tuple(body))


def apart(computation: Computation) -> Program:
    """The program of `computation` with a nest for each stage: a step on the way to operations one by one."""
    groups = tuple((stage,) for group in computation.groups for stage in group)
    buffers = tuple(
        replace(buffer, kind=Kind.LOCAL) if buffer.kind is Kind.PRIVATE else buffer
        for buffer in computation.buffers
    )
    return source(replace(computation, groups=groups, buffers=buffers))
