"""An emitted loop program checked against the computation, by reading it back into sets.

Independent of how the program was cut: only its statements, and what the computation says must be
run, are compared. `Partition.prove` does it; ``OFFCUT_VERIFY=1`` does it for everything compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core.computation import Computation, Stage
from offcut.core.printer import format_stmt
from offcut.core.program import Choose, For, Form, If, Let, Program, Stmt, Store, Tile, blocks
from offcut.errors import PartitionError
from offcut.partition.prove import Theorem
from offcut.polyhedral import Map, Run, Set, Space, project_last, runs, smallest, space_of, stage_sets


def check_program(computation: Computation, program: Program) -> tuple[Theorem, ...]:
    """Prove that `program` runs exactly the instances of `computation`; every option by itself.

    covering   every instance of every stage is run, and its result kept
    in bounds  nothing else is kept
    disjoint   no point is computed in two tiles, but for tiles that are shifted
    in order   a reduction is initialised, then meets its terms in ascending order

    Raises PartitionError with the smallest witness.
    """
    space = space_of(computation)
    theorems = []
    for label, body in _alternatives(program.body):
        of = f"{program.name}, {label}" if label else program.name
        for group in computation.groups:
            for stage in group:
                _Check(computation, space, stage, of).body(body)
        theorems.append(Theorem("emitted", "every instance once, in bounds, in order", of))
    return tuple(theorems)


def _alternatives(body: tuple[Stmt, ...]) -> list[tuple[str, tuple[Stmt, ...]]]:
    """The program once for every option of its outermost `Choose` statements."""
    found: list[tuple[str, tuple[Stmt, ...]]] = [("", ())]
    for stmt in body:
        if isinstance(stmt, Choose):
            found = [
                (f"{label} {option.label}".strip(), (*done, *option.body))
                for label, done in found
                for option in stmt.options
            ]
        else:
            found = [(label, (*done, stmt)) for label, done in found]
    return found


class _Check:
    def __init__(self, computation: Computation, space: Space, stage: Stage, of: str) -> None:
        self.computation, self.space, self.stage, self.of = computation, space, stage, of
        self.points = [axis.name for axis in stage.axes]
        self.instances = [*self.points, *(axis.name for axis in stage.reduce_axes)]

    def body(self, body: Sequence[Stmt]) -> None:
        mine = _only(tuple(body), self.stage.buffer)
        depth = 2 * _nesting(mine) + 2
        found = runs(self.space, mine, self.axes_of, depth)
        domain = stage_sets(self.space, self.stage).domain
        reduced = len(self.stage.reduce_axes)
        if self.stage.reducer is None:
            self.check_set(found, domain, "")
            self.check_once(found, 0)
            return
        starts = [run for run in found if run.store.reduce is None]
        updates = [run for run in found if run.store.reduce is not None]
        unreduced = replace(self.stage, reduce_axes=(), body=self.stage.value)
        self.check_set(starts, stage_sets(self.space, unreduced).domain, "the start of ")
        self.check_set(updates, domain, "")
        self.check_once(updates, reduced)
        self.check_order(starts, updates)

    def axes_of(self, store: Store) -> list[str]:
        return self.points if store.reduce is None else self.instances

    def check_set(self, found: Sequence[Run], domain: Set, what: str) -> None:
        kept = None
        for run in found:
            kept = run.owned if kept is None else kept | run.owned
        missing = domain if kept is None else domain - kept
        self.refuse(missing, f"{what}%s is never run")
        if kept is not None:
            self.refuse(kept - domain, f"{what}%s is run and is not in the domain")

    def check_once(self, found: Sequence[Run], reduced: int) -> None:
        """Every point lies in one tile."""
        tiles: dict[int, Map] = {}
        for run in found:
            if run.tile is not None and run.tile.form is Form.SHIFT:
                continue
            times = run.times.intersect_domain(run.owned)
            if run.outer:
                times = project_last(times, times_left=run.outer)
            times = project_last(times, points_left=len(self.points))
            key = run.outer
            tiles[key] = tiles[key] | times if key in tiles else times
        seen = None
        for times in tiles.values():
            self.refuse((times - times.lexmin()).domain(), "%s is in two tiles", points=True)
            here = times.domain()
            if seen is not None:
                self.refuse(seen & here, "%s is in two tiles", points=True)
            seen = here if seen is None else seen | here

    def check_order(self, starts: Sequence[Run], updates: Sequence[Run]) -> None:
        rank, reduced = len(self.points), len(self.instances) - len(self.points)
        xs = [f"x{k}" for k in range(rank)]
        first = [f"k{k}" for k in range(reduced)]
        second = [f"l{k}" for k in range(reduced)]
        earlier = " or ".join(
            "(" + " and ".join([*(f"k{m} = l{m}" for m in range(k)), f"k{k} < l{k}"]) + ")"
            for k in range(reduced)
        )
        head = self.space.parameters
        ascending = Map(f"{head}{{ [{', '.join(xs + first)}] -> [{', '.join(xs + second)}] : {earlier} }}")
        begins = Map(f"{head}{{ [{', '.join(xs)}] -> [{', '.join(xs + second)}] }}")
        groups: dict[tuple[int, object], Map] = {}
        for run in updates:
            key = (id(run.tile), run.case)
            groups[key] = groups[key] | run.times if key in groups else run.times
        for key, times in groups.items():
            late = times.lex_gt_map(times) & ascending
            self.refuse(late.domain(), "%s meets a later term first")
            mine = [run.times for run in starts if (id(run.tile), run.case) == key]
            if not mine:
                self.refuse(times.domain(), "%s is added to what was never set")
            for start in mine:
                late = start.lex_gt_map(times) & begins
                self.refuse(late.domain(), "%s is set after it was added to", points=True)

    def refuse(self, broken: Set, what: str, points: bool = False) -> None:
        found = smallest(broken)
        if found is None:
            return
        sizes, point = found
        users = [user for user, _ in self.computation.size_names]
        given = ", ".join(f"{user} = {size}" for user, size in zip(users, sizes, strict=True))
        names = self.points if points or len(point) == len(self.points) else self.instances
        where = ", ".join(f"{name} = {x}" for name, x in zip(names, point, strict=True))
        instance = f"the instance {where or '()'} of {self.stage.label}"
        raise PartitionError(
            "prove",
            "the emitted program does not run what was described",
            at=self.of,
            because=(f"with {given}, " if given else "") + what % instance,
        )


def _only(body: tuple[Stmt, ...], buffer: str) -> tuple[Stmt, ...]:
    """`body` without the stores of other buffers, positions kept by what is left."""
    kept: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Store():
                if stmt.buffer == buffer:
                    kept.append(stmt)
                continue
            case If():
                new: Stmt = replace(
                    stmt, then=_only(stmt.then, buffer), other=_only(stmt.other, buffer)
                )
                empty = not new.then and not new.other
            case For() | Let() | Tile():
                new = replace(stmt, body=_only(stmt.body, buffer))
                empty = not new.body
            case Choose():
                raise PartitionError(
                    "prove",
                    "cannot read a choice inside a loop",
                    because=f"options are read one by one: {format_stmt(stmt).splitlines()[0]}",
                )
        if not empty:
            kept.append(new)
    return tuple(kept)


def _nesting(body: tuple[Stmt, ...]) -> int:
    return max((1 + max((_nesting(b) for b in blocks(s)), default=0) for s in body), default=0)
