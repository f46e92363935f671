"""An emitted loop program checked against the computation, by reading it back into sets.

Independent of how the program was cut: only its statements, and what the computation says must be
run, are compared. `Partition.prove` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from offcut.core import index as ix
from offcut.core.computation import Computation, Stage
from offcut.core.dtypes import is_identity
from offcut.core.expr import (
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Var,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.printer import format_expr, format_stmt
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    Form,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
)
from offcut.core.program import walk as statements
from offcut.errors import PartitionError
from offcut.partition.line import NotSeparable
from offcut.partition.product import check_product
from offcut.partition.prove import Theorem
from offcut.polyhedral import (
    Map,
    Run,
    Set,
    Space,
    bounded,
    over_points,
    runs,
    smallest,
    space_of,
    stage_sets,
    unbounded,
    up_to,
    where_equal,
)

_KEPT = 256  # checked programs
_FEW = 32  # literals of bounded values that the check of all axes at once can take in turn


def check_program(computation: Computation, program: Program) -> tuple[Theorem, ...]:
    """Prove that `program` runs exactly the instances of `computation`; every option by itself.

    values     every store computes what its stage says, at its own point
    bounded    every bounded value stays in its range, and divides by what is positive
    covering   every instance of every stage is run, and its result kept
    in bounds  nothing else is kept
    disjoint   no point is computed in two tiles, but for tiles that are shifted; no term added twice
    in order   a reduction is initialised, then meets its terms in ascending order; a stage runs
               after those it reads

    Raises PartitionError with the smallest witness.
    """
    what = "cannot tell whether the emitted program runs what was described"
    with bounded("prove", what, at=program.name):
        return _checked(computation, program)


@lru_cache(_KEPT)
def _checked(computation: Computation, program: Program) -> tuple[Theorem, ...]:
    _check_head(computation, program)
    space = space_of(computation)
    kinds = {buffer.name: buffer.kind for buffer in computation.buffers}
    theorems = []
    for label, body in _alternatives(program.body):
        of = f"{program.name}, {label}" if label else program.name
        used = _used(body)
        stages = [
            stage
            for group in computation.groups
            for stage in group
            if not _is_copy(computation, stage) or stage.buffer in used
        ]
        if not _is_product(computation, space, stages, kinds, body, of):
            _check_together(computation, space, stages, kinds, body, of)
        theorems.append(Theorem("emitted", "every instance once, in bounds, in order", of))
    return tuple(theorems)


def _check_head(computation: Computation, program: Program) -> None:
    """What a program says of its sizes and buffers is what the computation says."""
    by_name = {size.name: size for size in computation.sizes}
    buffers = {buffer.name: buffer for buffer in computation.buffers}
    stages = {stage.buffer for group in computation.groups for stage in group}
    because = ""
    if {size.name: size for size in program.sizes} != by_name:
        because = "its sizes are others"
    elif set(program.assumptions) != set(computation.assumptions):
        because = "it assumes other facts"
    elif {buffer.name: buffer for buffer in program.buffers} != buffers:
        because = "its buffers are others"
    for stmt in statements(program.body):
        if isinstance(stmt, Store) and stmt.buffer not in stages:
            because = f"no stage computes {format_stmt(stmt)}"
    if because:
        raise PartitionError(
            "prove",
            "the emitted program does not run what was described",
            at=program.name,
            because=because,
        )


def _is_product(
    computation: Computation,
    space: Space,
    stages: Sequence[Stage],
    kinds: dict[str, Kind],
    body: tuple[Stmt, ...],
    of: str,
) -> bool:
    """Whether the proof by axis succeeds; raises where it fails and the other one is out of reach."""

    def kept_where(stage: Stage) -> Callable[[Store], tuple[Expr, ...]]:
        return _Check(computation, space, stage, of).kept_where

    try:
        wrong = check_product(space, stages, kinds, body, kept_where)
    except NotSeparable:
        return False
    if wrong is None:
        return True
    if _literals(body) <= _FEW:
        return False  # `_check_together` finds the smallest instance
    users = {name: user for user, name in computation.size_names}
    given = ", ".join(f"{users[name]} = {size}" for name, size in wrong.broken.sizes)
    where = f"with {given}, " if given else ""
    axis = f"{wrong.axis.label} of {wrong.stage.label}"
    what = f"a bounded value around {axis} leaves its range"
    if wrong.broken.at is not None:
        what = f"{axis} = {wrong.broken.at} {_WRONG[wrong.broken.what]}"
    raise PartitionError(
        "prove",
        "the emitted program does not run what was described",
        at=of,
        because=where + what,
    )


_WRONG = {
    "missing": "is never run",
    "outside": "is run and is not in the domain",
    "twice": "is run twice",
    "late": "meets a later term first",
}


def _literals(body: tuple[Stmt, ...]) -> int:
    """How many combinations there are of the literals of bounded values."""
    values: dict[Expr, int] = {}
    for stmt in statements(body):
        if isinstance(stmt, Let):
            values[stmt.value] = max(values.get(stmt.value, 0), stmt.hi - stmt.lo)
    return prod(values.values())


def _check_together(
    computation: Computation,
    space: Space,
    stages: Sequence[Stage],
    kinds: dict[str, Kind],
    body: tuple[Stmt, ...],
    of: str,
) -> None:
    """The same for programs of any form, over all axes at once."""
    _check_bounded(computation, space, body, of)
    found: dict[str, list[Run]] = {}
    for stage in stages:
        check = _Check(computation, space, stage, of)
        found[stage.buffer] = check.body(_only(body, stage.buffer))
    _check_stages_in_order(computation, found, kinds, of)


def _alternatives(body: tuple[Stmt, ...]) -> list[tuple[str, tuple[Stmt, ...]]]:
    """The program with every option of every `Choose` in it once, beside the first options of the
    others: what a stage runs is said by its own choice, and what runs before what by where choices
    stand, whatever is chosen.
    """
    ways = [_ways(stmt) for stmt in body]
    first = tuple(stmt for way in ways for stmt in way[0][1])
    label = " ".join(filter(None, (way[0][0] for way in ways)))
    found = [(label, first)]
    for position, way in enumerate(ways):
        for other, inner in way[1:]:
            before = (stmt for one in ways[:position] for stmt in one[0][1])
            after = (stmt for one in ways[position + 1 :] for stmt in one[0][1])
            found.append((other, (*before, *inner, *after)))
    return found


def _ways(stmt: Stmt) -> list[tuple[str, tuple[Stmt, ...]]]:
    """The options of a statement; the statement itself where nothing is chosen."""
    match stmt:
        case Choose(options):
            return [
                (f"{option.label} {label}".strip(), inner)
                for option in options
                for label, inner in _alternatives(option.body)
            ]
        case For() | Alloc():
            inside = _alternatives(stmt.body)
            return [(label, (replace(stmt, body=inner),)) for label, inner in inside]
        case _:
            return [("", (stmt,))]


def _is_copy(computation: Computation, stage: Stage) -> bool:
    """Whether `stage` packs or converts an operand, and nobody described it: an option may do
    without it.
    """
    described = any(buffer == stage.buffer for _, buffer in computation.labels)
    value = stage.body
    if isinstance(value, Select) and isinstance(value.other, Const):
        value = value.then
    return isinstance(value.a if isinstance(value, Cast) else value, Load) and not described


def _used(body: tuple[Stmt, ...]) -> set[str]:
    """The buffers that some statement reads or writes."""
    stores = [stmt for stmt in statements(body) if isinstance(stmt, Store)]
    read = (node.buffer for s in stores for node in walk(s.value) if isinstance(node, Load))
    return {*(stmt.buffer for stmt in stores), *read}


def _check_bounded(computation: Computation, space: Space, body: tuple[Stmt, ...], of: str) -> None:
    for broken in unbounded(space, body):
        found = smallest(broken.sizes)
        assert found is not None
        let = broken.let
        raise PartitionError(
            "prove",
            f"the value of {let.name} is not in {let.lo}:{let.hi}",
            at=of,
            because=f"sets do not show that {format_expr(let.value)} is, nor express all around it"
            if broken.open
            else f"{format_expr(let.value)} leaves it{_given(computation, found[0])}",
        )


def _given(computation: Computation, sizes: Sequence[int]) -> str:
    users = [user for user, _ in computation.size_names]
    given = ", ".join(f"{user} = {size}" for user, size in zip(users, sizes, strict=True))
    return f" with {given}" if given else ""


def _check_stages_in_order(
    computation: Computation, found: dict[str, list[Run]], kinds: dict[str, Kind], of: str
) -> None:
    """A stage runs after the stages that it reads: in a later statement, or in its own tile, at its
    own point, further down. What is private to a tile is read there.
    """
    labels = {s.buffer: s.label for group in computation.groups for s in group}
    last = {source: max(map(_place, mine), default=-1) for source, mine in found.items()}
    for buffer, mine in found.items():
        for run in mine:
            reads = [n for n in walk(run.store.value) if isinstance(n, Load) and n.buffer in found]
            for read in reads:
                beside = [one for one in found[read.buffer] if _same_tile(one, run)]
                above = all(_position(one) < _position(run) for one in beside)
                own = bool(beside) and above and read.index == run.store.index
                private = kinds[read.buffer] is Kind.PRIVATE
                later = not beside and not private and _place(run) > last[read.buffer]
                if not own and not later:
                    raise PartitionError(
                        "prove",
                        "the emitted program does not run what was described",
                        at=of,
                        because=f"{labels[buffer]} reads {read.buffer} before it is complete: "
                        f"{format_stmt(run.store)}",
                    )


def _same_tile(one: Run, other: Run) -> bool:
    tiles = one.tile is not None and other.tile is not None
    return tiles and one.place[: one.outer] == other.place[: other.outer]


def _place(run: Run) -> int:
    """Which top-level statement a store is in."""
    return int(run.place[0])


def _position(run: Run) -> int:
    """Which statement of its tile a store is in."""
    return int(run.place[run.outer])


class _Check:
    def __init__(self, computation: Computation, space: Space, stage: Stage, of: str) -> None:
        self.computation, self.space, self.stage, self.of = computation, space, stage, of
        self.points = [axis.name for axis in stage.axes]
        self.instances = [*self.points, *(axis.name for axis in stage.reduce_axes)]
        axes = (*stage.axes, *stage.reduce_axes)
        self.extents = {ix.compare("<", Var(axis.name), axis.extent) for axis in axes}
        self.copies = {
            one.buffer: one
            for group in computation.groups
            for one in group
            if _is_copy(computation, one)
        }

    def body(self, mine: tuple[Stmt, ...]) -> list[Run]:
        depth = 2 * _nesting(mine) + 2
        found = runs(self.space, mine, self.axes_of, depth, self.kept_where)
        for sizes, here in self.cases(found, self.space.context, ()):
            self.check(here, sizes)
        return found

    def cases(
        self, found: Sequence[Run], sizes: Set, fixed: tuple[Expr, ...]
    ) -> Iterator[tuple[Set, list[Run]]]:
        """The runs literal by literal of their bounded values, each with the sizes that it is for."""
        values = [value for run in found for value, _ in run.case if value not in fixed]
        known = {size.name for size in self.space.sizes}
        value = next((v for v in values if variables(v) <= known), None)
        if value is None:
            yield sizes, [_restricted(run, sizes) for run in found] if fixed else list(found)
            return
        left = sizes
        literals = {q for run in found for v, q in run.case if v == value}
        for literal in sorted(literals):
            here = sizes & where_equal(self.space, value, literal)
            left = left - here
            mine = [run for run in found if dict(run.case).get(value, literal) == literal]
            if not here.is_empty():
                yield from self.cases(mine, here, (*fixed, value))
        if not left.is_empty():
            without = [run for run in found if value not in dict(run.case)]
            yield from self.cases(without, left, (*fixed, value))

    def check(self, found: Sequence[Run], sizes: Set) -> None:
        domain = stage_sets(self.space, self.stage).domain.intersect_params(sizes)
        if self.stage.reducer is None:
            self.check_set(found, domain, "")
            self.check_once(found)
            return
        starts = [run for run in found if run.store.reduce is None]
        updates = [run for run in found if run.store.reduce is not None]
        unreduced = replace(self.stage, reduce_axes=(), body=self.stage.value)
        points = stage_sets(self.space, unreduced).domain.intersect_params(sizes)
        self.check_set(starts, points, "the start of ")
        self.check_set(updates, domain, "")
        self.check_once(updates)
        self.check_once(starts)
        self.check_order(starts, updates)

    def axes_of(self, store: Store) -> list[str]:
        return self.points if store.reduce is None else self.instances

    def kept_where(self, store: Store) -> tuple[Expr, ...]:
        """Check what a store computes; the conditions outside of which its term is masked."""
        stage, value = self.stage, self.unpacked(store.value)
        described = self.unpacked(stage.value)
        point = tuple(Var(name) for name in self.points)
        conditions: list[Expr] = []
        if stage.reducer is not None and store.reduce is None:
            same = value == stage.start
        else:
            while value != described and isinstance(value, Select) and store.reduce is not None:
                if not self.is_neutral(value.other):
                    break
                conditions.append(value.condition)
                value = value.then
            same = value == described and store.reduce == stage.reducer
        if not same or store.index != point:
            raise PartitionError(
                "prove",
                "the emitted program does not run what was described",
                at=self.of,
                because=f"{format_stmt(store)} is not what {stage.label} computes, "
                f"{format_expr(stage.value)}",
            )
        return tuple(conditions)

    def is_neutral(self, value: Expr) -> bool:
        """Whether reducing with this literal changes nothing."""
        op = self.stage.reducer
        return (
            isinstance(value, Const)
            and op is not None
            and is_identity(op, value.value, value.dtype)
        )

    def unpacked(self, value: Expr) -> Expr:
        """`value` with reads of packed copies replaced by what they are copies of."""

        def original(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer not in self.copies:
                return None
            copy = self.copies[node.buffer]
            at = {a.name: part for a, part in zip(copy.axes, node.index, strict=True)}
            body = substitute(copy.body, at)
            inside = isinstance(body, Select) and body.condition in self.extents
            return self.unpacked(body.then if isinstance(body, Select) and inside else body)

        return rewrite(value, original)

    def check_set(self, found: Sequence[Run], domain: Set, what: str) -> None:
        kept = None
        for run in found:
            kept = run.owned if kept is None else kept | run.owned
        missing = domain if kept is None else domain - kept
        self.refuse(missing, f"{what}%s is never run")
        if kept is not None:
            self.refuse(kept - domain, f"{what}%s is run and is not in the domain")

    def check_once(self, found: Sequence[Run]) -> None:
        """Every point lies in one tile."""
        tiles: dict[int, Map] = {}
        for run in found:
            if run.tile is not None and run.tile.form is Form.SHIFT:
                continue
            times = run.times.intersect_domain(run.owned)
            if run.outer:
                times = up_to(times, run.outer)
            times = over_points(times, len(self.points))
            tiles[run.outer] = tiles[run.outer] | times if run.outer in tiles else times
        seen = None
        for times in tiles.values():
            self.refuse((times - times.lexmin()).domain(), "%s is in two tiles", points=True)
            here = times.domain()
            if seen is not None:
                self.refuse(seen & here, "%s is in two tiles", points=True)
            seen = here if seen is None else seen | here

    def check_order(self, starts: Sequence[Run], updates: Sequence[Run]) -> None:
        """Inside a tile: the start, then every term once, ascending (max and min take any order)."""
        idempotent = self.stage.reducer in ("max", "min")
        groups: dict[int, Map] = {}
        for run in updates:
            tile = id(run.tile)
            times = run.times.intersect_domain(run.owned)
            groups[tile] = groups[tile] | times if tile in groups else times
        for tile, times in groups.items():
            if not idempotent:
                self.refuse((times - times.lexmin()).domain(), "%s is added twice")
                late = times.lex_gt_map(times) & self.ascending()
                self.refuse(late.domain(), "%s meets a later term first")
            mine = [run.times for run in starts if id(run.tile) == tile]
            begun = self.nowhere()
            for start in mine:
                begun = begun | start.domain()
            updated = over_points(times, len(self.points)).domain()
            self.refuse(updated - begun, "%s is added to what was never set", points=True)
            for start in mine:
                late = start.lex_gt_map(times) & self.begins()
                self.refuse(late.domain(), "%s is set after it was added to", points=True)

    def nowhere(self) -> Set:
        """No point at all."""
        return Set(f"{self.space.parameters}{{ [{', '.join(self.xs())}] : false }}")

    def ascending(self) -> Map:
        """Terms of one point, the one with the lexicographically smaller coordinates first."""
        reduced = range(len(self.instances) - len(self.points))
        earlier = " or ".join(
            "(" + " and ".join([*(f"k{m} = l{m}" for m in range(k)), f"k{k} < l{k}"]) + ")"
            for k in reduced
        )
        first, second = ([*self.xs(), *(f"{c}{k}" for k in reduced)] for c in "kl")
        head = self.space.parameters
        return Map(f"{head}{{ [{', '.join(first)}] -> [{', '.join(second)}] : {earlier} }}")

    def begins(self) -> Map:
        """A point and all its terms."""
        terms = [f"k{k}" for k in range(len(self.instances) - len(self.points))]
        head = f"{self.space.parameters}{{ [{', '.join(self.xs())}]"
        return Map(f"{head} -> [{', '.join([*self.xs(), *terms])}] }}")

    def xs(self) -> list[str]:
        return [f"x{k}" for k in range(len(self.points))]

    def refuse(self, broken: Set, what: str, points: bool = False) -> None:
        found = smallest(broken)
        if found is None:
            return
        sizes, point = found
        names = self.points if points or len(point) == len(self.points) else self.instances
        where = ", ".join(f"{name} = {x}" for name, x in zip(names, point, strict=True))
        instance = f"the instance {where or '()'} of {self.stage.label}"
        given = _given(self.computation, sizes).removeprefix(" ")
        raise PartitionError(
            "prove",
            "the emitted program does not run what was described",
            at=self.of,
            because=(f"{given}, " if given else "") + what % instance,
        )


def _restricted(run: Run, sizes: Set) -> Run:
    times, owned = run.times.intersect_params(sizes), run.owned.intersect_params(sizes)
    return replace(run, times=times, owned=owned)


def _only(body: tuple[Stmt, ...], buffer: str) -> tuple[Stmt, ...]:
    """`body` with the stores of other buffers made empty loops, so that positions stay."""
    kept: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Store():
                kept.append(stmt if stmt.buffer == buffer else _NOTHING)
            case If():
                then, other = _only(stmt.then, buffer), _only(stmt.other, buffer)
                some = any(s is not _NOTHING for s in (*then, *other))
                kept.append(replace(stmt, then=then, other=other) if some else _NOTHING)
            case For() | Let() | Tile() | Alloc():
                inner = _only(stmt.body, buffer)
                some = any(s is not _NOTHING for s in inner)
                kept.append(replace(stmt, body=inner) if some else _NOTHING)
            case Choose():
                raise PartitionError(
                    "prove",
                    "cannot read a choice inside a loop",
                    because=f"options are read one by one: {format_stmt(stmt).splitlines()[0]}",
                )
    return tuple(kept)


_NOTHING = If(Const(0, "bool"), ())


def _nesting(body: tuple[Stmt, ...]) -> int:
    return max((1 + max((_nesting(b) for b in blocks(s)), default=0) for s in body), default=0)
