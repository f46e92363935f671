"""Raise a loop program to a computation: a sequence of whole arrays, each computed from earlier ones.

A pasted nest of a matrix product is then cut, packed and run as a described one. Statements are
compared by what they access, never by names::

    for i in 0:m                               C_sum[i, j] = sum(A[i, k] * B[k, j], k)
      for j in 0:n                             C[i, j] = 1.2 * C_given[i, j] + C_sum[i, j]
        C[i, j] = 1.2 * C[i, j]         ->
        for k in 0:p
          C[i, j] += A[i, k] * B[k, j]

The theorem: a statement may run for all its instances before the next statement begins, if every
dependence that a loop carries leads from a statement to one further down, or is the update of a sum
by the next term of it. Then each statement writes a whole array, and what reads it reads that.

A sum that begins with more than its neutral element is summed by itself first and added to it, which
is another order of the same terms; it starts from what changes nothing, -0.0, so that a sum of no terms
leaves a -0.0 that is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import copysign

from offcut.core import index as ix
from offcut.core.conditions import conditional_term, conjunction, conjuncts, read_only_element
from offcut.core.dtypes import identity, reduction_start
from offcut.core.expr import (
    COMBINED,
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Var,
    all_loads,
    dtype_of,
    reads_memory,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.intervals import ends
from offcut.core.program import Buffer, For, If, Kind, Program, Stmt, Store
from offcut.describe.computation import (
    Computation,
    Names,
    Stage,
    StageAxis,
    group_stages,
    read_by_other_groups,
    source,
)
from offcut.polyhedral import Dependence, Facts, Space, dependences
from offcut.proof.normal_forms.condition_hoisting import bound

Path = tuple[int, ...]

_OWN = (Kind.LOCAL, Kind.PRIVATE)

_FEW_TERMS = 64
"""A loop of fewer terms keeps the conditions on these, which leave the loops around it instead: of a window that is padded, all rows
of a tile but those at a border have all terms.
"""


def raise_to_computation(
    program: Program, scopes: Mapping[str, Path], narrows: bool = False
) -> Computation | None:
    """Return the computation of `program`, its sums in an order of their own; None if there is none.

    scopes   the blocks that private scalars live in, by their paths
    narrows  whether conditions on terms may end the loops over these: such stages are narrowed; and a loop whose bounds move with
             others, or a condition around a statement, is one on its terms. A local array is whole then, also where only some of
             its elements are stored and read

    An array that is updated is an input and an output of one label. It may be one array at a call:
    it is read at the point alone that is written next.
    """
    raising = _Raising(program, scopes, narrows)
    if not raising.read(program.body, (), (), ()):
        return None
    if not all(_allows_whole_statements(one, scopes) for one in dependences(program)):
        return None
    return raising.computation()


def _allows_whole_statements(dependence: Dependence, scopes: Mapping[str, Path]) -> bool:
    """Return whether a dependence holds if statements run one after the other, each for all its instances."""
    source, target = dependence.source, dependence.target
    if dependence.reduction or source.path < target.path:
        return True
    buffer = target.store.buffer if dependence.kind == "anti" else source.store.buffer
    scope = scopes.get(buffer)
    return scope is not None and scope[: len(dependence.path)] == dependence.path


@dataclass(frozen=True, slots=True)
class _Loop:
    name: str
    extent: Expr
    path: Path


class _Raising:
    """The state of raising: the stages so far.

    current  the array that a buffer is at this point of the text
    """

    def __init__(self, program: Program, scopes: Mapping[str, Path], narrows: bool) -> None:
        self.program, self.scopes, self.narrows = program, scopes, narrows
        self.read_only_arrays = program.read_only_arrays
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.names = Names([*self.buffers, *(size.name for size in program.sizes)])
        self.current: dict[str, str] = {}
        self.shapes: dict[str, tuple[str, tuple[Expr, ...]]] = {}
        self.scalars: dict[str, tuple[_Loop, ...]] = {}
        self.stages: list[Stage] = []
        self.sizes = {size.name for size in program.sizes}
        self.facts = Facts(Space(program.sizes, program.assumptions))
        for buffer in program.buffers:
            if buffer.kind in (Kind.INPUT, Kind.CONSTANT, Kind.INOUT):
                self.current[buffer.name] = buffer.name

    def read(
        self,
        body: Sequence[Stmt],
        loops: tuple[_Loop, ...],
        path: Path,
        conditions: tuple[Expr, ...],
    ) -> bool:
        """Add the statements of a block; return False if one has no place in a computation.

        conditions  under which it runs
        """
        for name, scope in self.scopes.items():
            if scope == path:
                self.scalars[name] = loops
        for position, stmt in enumerate(body):
            statement_path = (*path, position)
            match stmt:
                case For():
                    whole = self.whole_loop(stmt, loops)
                    if whole is None:
                        return False
                    extent, limits = whole
                    loop = _Loop(stmt.iter, extent, statement_path)
                    inside = (*conditions, *limits)
                    if not self.read(stmt.body, (*loops, loop), statement_path, inside):
                        return False
                case Store():
                    if not self.store(stmt, loops, conditions):
                        return False
                case If(_, then, other) if not then and not other:
                    pass
                case If(condition, then, ()) if self.narrows and not reads_memory(condition):
                    inside = (*conditions, *self.limits(condition, loops))
                    if not self.read(then, loops, statement_path, inside):
                        return False
                case _:
                    return False
        return True

    def limits(self, condition: Expr, loops: tuple[_Loop, ...]) -> tuple[Expr, ...]:
        """Return conditions that hold together where `condition` does, without those that hold in all of these loops."""
        facts = self.facts
        for loop in loops:
            facts = facts.loop(loop.name, ix.const(0), loop.extent)
        every: tuple[Expr, ...] = ()
        for atom in conjuncts(condition):
            match atom:
                case Compare(">=" | "<" as op, Var() as name, end):
                    every += _limits(name, op, end)
                case _:
                    every += (atom,)
        return tuple(one for one in every if not facts.holds(one))

    def whole_loop(
        self, loop: For, loops: tuple[_Loop, ...]
    ) -> tuple[Expr, tuple[Expr, ...]] | None:
        """Return the extent of a loop from 0, and the conditions under which its iterations are those of `loop`, whose bounds may move
        with those around; None where it has none.
        """
        if ix.literal_value(loop.lo) == 0 and _is_size(loop.hi, self.sizes):
            return ix.simplify(loop.hi), ()
        if not self.narrows or loop.unit is not None:
            return None
        ranges = {one.name: (ix.const(0), ix.sub(one.extent, 1)) for one in loops}
        lows, highs = ends(loop.lo, ranges), ends(loop.hi, ranges)
        if lows is None or highs is None or not _is_size(highs[1], self.sizes):
            return None
        least, most = ix.simplify(lows[0]), ix.simplify(highs[1])
        if not self.facts.holds(Compare(">=", least, ix.const(0))):
            return None
        name = Var(loop.iter)
        limits = (*_limits(name, ">=", loop.lo), *_limits(name, "<", loop.hi))
        facts = self.facts.loop(loop.iter, ix.const(0), most)
        return most, tuple(one for one in limits if not facts.holds(one))

    def store(self, stmt: Store, loops: tuple[_Loop, ...], conditions: tuple[Expr, ...]) -> bool:
        point = self.point(stmt.buffer, stmt.index)
        value = self.with_current_arrays(stmt.value)
        if point is None or value is None:
            return False
        loop_of = {loop.name: loop for loop in loops}
        names = [part.name for part in point if isinstance(part, Var)]
        if (
            len(names) != len(point)
            or len(set(names)) != len(names)
            or not set(names) <= set(loop_of)
        ):
            return False
        axes = tuple(StageAxis(name, loop_of[name].extent, name) for name in names)
        rest = tuple(
            StageAxis(loop.name, loop.extent, loop.name) for loop in loops if loop.name not in names
        )
        if tuple(axis.extent for axis in axes) != self.extents(stmt.buffer):
            return False
        terms = {axis.name for axis in rest}
        of_terms = tuple(one for one in conditions if variables(one) & terms)
        if len(of_terms) < len(conditions) and self.buffers[stmt.buffer].kind not in _OWN:
            return False
        if of_terms:
            if stmt.reduce is None:
                return False
            dtype = dtype_of(value)
            nothing = Const(identity(stmt.reduce, dtype), dtype)
            value = Select(conjunction(of_terms), value, nothing)
        if stmt.reduce is None:
            if rest:
                return False
            self.stage(stmt.buffer, axes, (), value)
            return True
        return bool(rest) and self.update(stmt, axes, rest, value)

    def update(
        self, stmt: Store, axes: tuple[StageAxis, ...], rest: tuple[StageAxis, ...], value: Expr
    ) -> bool:
        """Add a reduction that starts from the present value of the buffer."""
        assert stmt.reduce is not None
        before = self.current.get(stmt.buffer)
        if before is None or any(isinstance(n, Load) and n.buffer == before for n in walk(value)):
            return False
        start_stage = self.stages[-1] if self.stages and self.stages[-1].buffer == before else None
        if start_stage is not None and start_stage.reduce_axes:
            start_stage = None
        point = tuple(Var(axis.name) for axis in axes)
        dtype = self.buffers[stmt.buffer].dtype
        start: Expr = Load(before, point, dtype)
        if start_stage is not None:
            # What the sum begins with is read by nothing else.
            self.stages.pop()
            renaming: dict[str, Expr] = {
                old.name: new for old, new in zip(start_stage.axes, point, strict=True)
            }
            start = substitute(start_stage.value, renaming)
        body = Reduce(stmt.reduce, value, tuple(axis.name for axis in rest))
        if _is_neutral(start, stmt.reduce):
            self.stage(stmt.buffer, axes, rest, body)
            return True
        total = self.array(f"{stmt.buffer}_sum", dtype, tuple(axis.extent for axis in axes))
        self.stages.append(Stage(total, total, axes, rest, body, added=True))
        self.stage(
            stmt.buffer, axes, (), Binary(COMBINED[stmt.reduce], start, Load(total, point, dtype))
        )
        return True

    def stage(
        self,
        buffer: str,
        axes: tuple[StageAxis, ...],
        rest: tuple[StageAxis, ...],
        body: Expr,
    ) -> None:
        """Add a stage that gives `buffer` a new array."""
        dtype = self.buffers[buffer].dtype
        name = self.array(buffer, dtype, tuple(axis.extent for axis in axes))
        narrowed = self.narrows and _ends_with_condition(body, rest, self.read_only_arrays)
        self.stages.append(Stage(name, buffer, axes, rest, body, narrowed=narrowed))
        self.current[buffer] = name

    def array(self, wish: str, dtype: str, shape: tuple[Expr, ...]) -> str:
        name = self.names.fresh(wish)
        self.shapes[name] = dtype, shape
        return name

    def extents(self, buffer: str) -> tuple[Expr, ...]:
        if buffer in self.scalars:
            return tuple(loop.extent for loop in self.scalars[buffer])
        return tuple(map(ix.simplify, self.buffers[buffer].shape))

    def point(self, buffer: str, index: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
        """Return the element of an index; of a scalar of a block, the one of the loops around."""
        if buffer in self.scalars:
            return tuple(Var(loop.name) for loop in self.scalars[buffer])
        if self.buffers[buffer].layout is not None:
            return None
        return tuple(map(ix.simplify, index))

    def with_current_arrays(self, value: Expr) -> Expr | None:
        """Return `value` with loads from the current arrays of its buffers; None if one has no value yet."""
        unknown = False

        def rule(node: Expr) -> Expr | None:
            nonlocal unknown
            if not isinstance(node, Load):
                return None
            point = self.point(node.buffer, node.index)
            if point is None or node.buffer not in self.current:
                unknown = True
                return None
            return Load(self.current[node.buffer], point, node.dtype)

        renamed_value = rewrite(value, rule)
        return None if unknown else renamed_value

    def rename(self, old: str, new: str) -> None:
        """Rename the array `old` to the program's name of its last value."""

        def rule(node: Expr) -> Expr | None:
            match node:
                case Load(buffer, index, dtype) if buffer == old:
                    return Load(new, index, dtype)
                case _:
                    return None

        self.shapes[new] = self.shapes.pop(old)
        self.stages = [
            replace(s, buffer=new if s.buffer == old else s.buffer, body=rewrite(s.body, rule))
            for s in self.stages
        ]

    def with_own_terms(self, stages: Sequence[Stage]) -> list[Stage]:
        """Return the stages, terms under names that no stage has for an axis: a nest that several stages share is then read by names alone."""
        axes = {axis.name for stage in stages for axis in stage.axes}
        terms = {axis.name: None for stage in stages for axis in stage.reduce_axes}
        self.names.taken |= {*axes, *terms}
        names = {name: self.names.fresh(name) for name in terms if name in axes}
        renamed_stages = list[Stage]()
        for stage in stages:
            body = stage.body
            if isinstance(body, Reduce) and any(axis in names for axis in body.axes):
                own = tuple(names.get(axis, axis) for axis in body.axes)
                renaming: dict[str, Expr] = {
                    name: Var(names[name]) for name in body.axes if name in names
                }  # an axis of this stage may have the name of another one's terms
                body = replace(body, value=substitute(body.value, renaming), axes=own)
                reduce_axes = tuple(
                    replace(axis, name=names.get(axis.name, axis.name))
                    for axis in stage.reduce_axes
                )
                stage = replace(stage, body=body, reduce_axes=reduce_axes)
            renamed_stages.append(stage)
        return renamed_stages

    def computation(self) -> Computation | None:
        """Return all stages as one computation; None if an update in place would read what it wrote."""
        results = [b for b in self.program.buffers if b.kind in (Kind.OUTPUT, Kind.INOUT)]
        last = {b.name: self.current.get(b.name, b.name) for b in results}
        if any(name not in self.shapes for name in last.values()):
            return None
        for buffer in self.program.buffers:
            of_program = buffer.kind in (Kind.OUTPUT, Kind.LOCAL, Kind.PRIVATE)
            if of_program and (name := self.current.get(buffer.name)) is not None:
                self.rename(name, buffer.name)
        last |= {b.name: b.name for b in results if b.kind is Kind.OUTPUT}
        live_buffers = set(last.values())
        for stage in reversed(self.stages):
            if stage.buffer in live_buffers:
                live_buffers |= {n.buffer for n in walk(stage.value) if isinstance(n, Load)}
        stages = self.with_own_terms(
            [stage for stage in self.stages if stage.buffer in live_buffers]
        )
        groups = group_stages(stages)
        shared_buffers = read_by_other_groups(groups)
        for buffer in results:
            if buffer.kind is Kind.INOUT and not _is_read_before_write(
                groups, buffer.name, last[buffer.name]
            ):
                return None
        buffers, labels = list[Buffer](), list[tuple[str, str]]()
        for buffer in self.program.buffers:
            if buffer.kind in (Kind.INPUT, Kind.CONSTANT, Kind.INOUT):
                kind = Kind.CONSTANT if buffer.kind is Kind.CONSTANT else Kind.INPUT
                shape = tuple(map(ix.simplify, buffer.shape))
                buffers.append(replace(buffer, kind=kind, shape=shape))
                labels.append((buffer.name, buffer.name))
        outputs = {name: user for user, name in last.items()}
        for stage in stages:
            if stage.buffer not in outputs:
                dtype, shape = self.shapes[stage.buffer]
                kind = Kind.LOCAL if stage.buffer in shared_buffers else Kind.PRIVATE
                buffers.append(Buffer(stage.buffer, dtype, shape, kind))
                labels.append((stage.buffer, stage.buffer))
        for user, name in last.items():
            dtype, shape = self.shapes[name]
            buffers.append(Buffer(name, dtype, shape, Kind.OUTPUT))
            labels.append((user, name))
        program = self.program
        buffers = in_order_of(program.buffers, buffers)
        return Computation(
            program.name,
            program.sizes,
            tuple((size.name, size.name) for size in program.sizes),
            program.assumptions,
            tuple(buffers),
            tuple(labels),
            groups,
        )


def in_order_of(declared: Sequence[Buffer], buffers: Sequence[Buffer]) -> list[Buffer]:
    """Return `buffers` with those that are declared in the order in which they are; all others stay at their places."""
    places = {buffer.name: place for place, buffer in enumerate(declared)}
    known = iter(sorted((b for b in buffers if b.name in places), key=lambda b: places[b.name]))
    return [next(known) if buffer.name in places else buffer for buffer in buffers]


def _limits(name: Var, op: str, end: Expr) -> tuple[Compare, ...]:
    """Return ``name >= end`` or ``name < end`` as conditions that hold together, none of a maximum or a minimum."""
    match op, end:
        case (">=", Binary("max", a, b)) | ("<", Binary("min", a, b)):
            return (*_limits(name, op, a), *_limits(name, op, b))
    return (Compare(op, name, end),)


def _ends_with_condition(body: Expr, axes: Sequence[StageAxis], given: Collection[str]) -> bool:
    """Return whether the loop over the terms of a reduction is to end where a condition on these does: one loop over `axes`, of any
    number of terms, or of so many that few tiles lie across the border.
    """
    if not isinstance(body, Reduce) or len(axes) != 1:
        return False
    terms, term = ix.literal_value(axes[0].extent), conditional_term(body.value, body.op)
    if term is None or (terms is not None and terms < _FEW_TERMS):
        return False
    if reads_memory(term[0]) and not _is_known_outside(*term, axes[0].name, given):
        return False
    return all(bound(atom, axes[0].name) is not None for atom in conjuncts(term[0]))


def _is_known_outside(condition: Expr, term: Expr, name: str, given: Collection[str]) -> bool:
    """Return whether the elements that a condition reads are the same for all terms along `name` and for the whole tile.

    They are of arrays in `given`, at places along axes that all operands of the term have.
    """
    reads = [frozenset(variables(load)) for load in all_loads(term)]
    shared = frozenset.intersection(*reads) - {name} if reads else frozenset[str]()
    elements = [
        one for part in walk(condition) if (one := read_only_element(part, given)) is not None
    ]
    return {*elements} == {*all_loads(condition)} and all(
        variables(one) <= shared for one in elements
    )


def _is_size(extent: Expr, sizes: set[str]) -> bool:
    return variables(extent) <= sizes and not any(isinstance(n, Load) for n in walk(extent))


def _is_neutral(body: Expr, op: str) -> bool:
    if not isinstance(body, Const):
        return False
    start = reduction_start(op, body.dtype)
    return body.value == start and copysign(1.0, body.value) == copysign(1.0, start)


def _is_read_before_write(
    groups: Sequence[Sequence[Stage]], input_buffer: str, result: str
) -> bool:
    """Return whether `input_buffer` is read before `result` is written: earlier, or at the point that is written next."""
    first_group = next(
        k for k, group in enumerate(groups) if any(s.buffer == result for s in group)
    )
    for number, group in enumerate(groups[first_group:]):
        for stage in group:
            point = tuple(Var(axis.name) for axis in stage.axes)
            legal = not number and not stage.reduce_axes
            for node in walk(stage.value):
                reads_input = isinstance(node, Load) and node.buffer == input_buffer
                if reads_input and not (
                    legal and node == Load(input_buffer, point, dtype_of(node))
                ):
                    return False
    return True


def unfuse_stages(computation: Computation) -> Program:
    """Return the program of `computation` with a nest for each stage: a step towards single operations."""
    groups = tuple((stage,) for group in computation.groups for stage in group)
    buffers = tuple(
        replace(buffer, kind=Kind.LOCAL) if buffer.kind is Kind.PRIVATE else buffer
        for buffer in computation.buffers
    )
    return source(replace(computation, groups=groups, buffers=buffers))
