"""A described computation, ready for sets: every name unique, every extent an index expression; and as a loop program.

A `Computation` is a sequence of `Stage`s in dependence order, collected into groups: a stage and
the element-wise stages that follow it at the same point share a group, and a group becomes one
loop nest, so that a result lives only as long as the tile that uses it.

A described computation as the loop program that a reader would write: what every cut must equal.

Each group of stages becomes one nest of loops over its axes, around a body that initialises,
reduces, and runs the stages that follow at the same point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from offcut.core import index as ix
from offcut.core.dtypes import NUMBERS, identity, reduction_start
from offcut.core.expr import (
    BITWISE,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Var,
    dtype_of,
    rewrite,
    substitute,
    walk,
)
from offcut.core.function_table import FUNCTIONS
from offcut.core.program import Buffer, For, Kind, Program, Size, Stmt, Store
from offcut.core.sizes import condition_of, facts_about, index_of
from offcut.describe.tensor import Tensor, sizes_of, tensors_of
from offcut.describe.value import Axis, size_var
from offcut.errors import DescribeError

# Words of the loop syntax; a size, an axis or a tensor of such a name gets an underscore.
RESERVED = frozenset(
    (
        *("program", "size", "assume", "multiple_of", "index", "bool"),
        *("input", "constant", "output", "inout", "local", "private"),
        *("for", "in", "if", "else", "let", "tile", "alloc", "where", "choose", "option", "costs"),
        *("and", "or", "not", "true", "false", "inf", "nan"),
        "sum",
        *FUNCTIONS,
        *BITWISE,
        *NUMBERS,
    )
)


class Names:
    """Hands out identifiers that are not reserved and not taken."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.taken = set(names) | RESERVED

    def fresh(self, wish: str) -> str:
        """`wish` itself, or with the first suffix that makes it new."""
        name, count = wish, 0
        while name in self.taken:
            name = f"{wish}_{count}" if count else f"{wish}_"
            count += 1
        self.taken.add(name)
        return name

    def release(self, name: str) -> None:
        """Let `name` be handed out again: its scope has ended."""
        self.taken.discard(name)


@dataclass(frozen=True, slots=True)
class StageAxis:
    """``0 <= name < extent``; `label` is what the user called it."""

    name: str
    extent: Expr
    label: str


@dataclass(frozen=True, slots=True)
class Stage:
    """``buffer[axes] = body``, reduced over `reduce_axes` where `body` is a `Reduce`.

    added   whether a reduction is added to a value by the stages that follow: it starts from what
            changes nothing then, so of no terms, or of terms -0.0, nothing is left of it
    narrowed  whether `body` reduces ``where(condition, value, neutral)`` and its loops end where the condition does: terms
            outside are none
    """

    buffer: str
    label: str
    axes: tuple[StageAxis, ...]
    reduce_axes: tuple[StageAxis, ...]
    body: Expr
    added: bool = False
    narrowed: bool = False

    @property
    def value(self) -> Expr:
        """Return what is stored, or reduced, by one instance; of a narrowed stage, by one inside of its condition."""
        term = self.term
        return term.then if self.narrowed and isinstance(term, Select) else term

    @property
    def term(self) -> Expr:
        """Return what is stored, or reduced, by one instance wherever it is: of a narrowed stage with its condition."""
        return self.body.value if isinstance(self.body, Reduce) else self.body

    @property
    def reducer(self) -> str | None:
        """``sum``, ``max``, ``min``, or None."""
        return self.body.op if isinstance(self.body, Reduce) else None

    @property
    def start(self) -> Const:
        """What a reduction starts from."""
        assert isinstance(self.body, Reduce)
        dtype = dtype_of(self.body)
        return Const((identity if self.added else reduction_start)(self.body.op, dtype), dtype)

    @property
    def instances(self) -> Expr:
        """How often its statement runs, as an index expression in the sizes."""
        one: Expr = ix.const(1)
        return reduce(ix.mul, (axis.extent for axis in (*self.axes, *self.reduce_axes)), one)


@dataclass(frozen=True, slots=True)
class Computation:
    """Sizes, promises, buffers and groups of stages; what the partitioner cuts.

    size_names   (the user's name, the name in loop programs), in the order of `sizes`
    """

    name: str
    sizes: tuple[Size, ...]
    size_names: tuple[tuple[str, str], ...]
    assumptions: tuple[Expr, ...]
    buffers: tuple[Buffer, ...]
    labels: tuple[tuple[str, str], ...]
    groups: tuple[tuple[Stage, ...], ...]

    @property
    def asks_memory(self) -> bool:
        """Whether an index is read from memory: only a call can tell whether it is in bounds."""
        nodes = (n for group in self.groups for stage in group for n in walk(stage.value))
        return any(isinstance(node, Load) and node.asks_memory for node in nodes)

    @property
    def instances(self) -> Expr:
        """How often all its statements run, as an index expression in the sizes."""
        return ix.add(*(stage.instances for group in self.groups for stage in group))

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name."""
        return next(buffer for buffer in self.buffers if buffer.name == name)

    def names(self) -> Names:
        """A supply of identifiers that are new to this computation."""
        stages = [stage for group in self.groups for stage in group]
        axes = [axis.name for s in stages for axis in (*s.axes, *s.reduce_axes)]
        return Names([*axes, *(s.name for s in self.sizes), *(b.name for b in self.buffers)])


def computation(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    constants: Iterable[str] = (),
    known_sizes: dict[str, int] | None = None,
) -> Computation:
    """The computation that gives `outputs` from `inputs`.

    inputs       placeholders in call order; None: by first appearance
    constants    names of those whose value is known when compiled
    known_sizes  sizes that the constants' shapes have fixed

    Raises DescribeError when an input is missing, is no placeholder, or two tensors share a name.
    """
    order = list(tensors_of(outputs))
    placeholders = [tensor for tensor in order if tensor.definition is None]
    inputs_in_order = list(placeholders if inputs is None else inputs)
    _check_inputs(order, placeholders, inputs_in_order)
    inner = [t for t in order if t.definition is not None and t not in outputs]
    tensors = [*inputs_in_order, *inner, *outputs]
    dims = sizes_of(tensors)
    names, fixed = Names(), known_sizes or {}
    size_names = {d.name: names.fresh(d.name) for d in dims}
    values: dict[str, Expr] = {d.name: Var(size_names[d.name]) for d in dims}
    values |= {name: ix.const(number) for name, number in fixed.items()}
    buffer_names = {t.name: names.fresh(t.name) for t in tensors}
    constant_names = set(constants)

    def extent(size: Any) -> Expr:
        expr = index_of(size)
        assert expr is not None
        return ix.simplify(substitute(expr, values))

    results = {t.name for t in outputs}
    stages = [_stage(t, extent, values, buffer_names, names) for t in order if t.definition]
    groups = group_stages(stages)
    shared_buffers = read_by_other_groups(groups)
    buffers = []
    for t in tensors:
        kind = Kind.CONSTANT if t.name in constant_names else Kind.INPUT
        if t.definition is not None:
            local = Kind.LOCAL if buffer_names[t.name] in shared_buffers else Kind.PRIVATE
            kind = Kind.OUTPUT if t.name in results else local
        shape = tuple(extent(size) for size in t.shape)
        buffers.append(Buffer(buffer_names[t.name], t.dtype, shape, kind))
    free = [d for d in dims if d.name not in fixed]
    conditions = [condition_of(fact) for fact in facts_about(dims)]
    return Computation(
        name=outputs[-1].name,
        sizes=tuple(Size(size_names[d.name], d.min, d.max, d.multiple_of) for d in free),
        size_names=tuple((d.name, size_names[d.name]) for d in free),
        assumptions=tuple(substitute(c, values) for c in conditions if c is not None),
        buffers=tuple(buffers),
        labels=tuple((t.name, buffer_names[t.name]) for t in tensors),
        groups=groups,
    )


def _check_inputs(order: list[Tensor], placeholders: list[Tensor], inputs: list[Tensor]) -> None:
    for position, tensor in enumerate(inputs):
        if tensor in inputs[:position]:
            raise DescribeError(
                "compile",
                f"cannot take {tensor.name} twice",
                because=f"inputs lists {', '.join(t.name for t in inputs)}",
            )
        if not isinstance(tensor, Tensor) or tensor.definition is not None:
            raise DescribeError(
                "compile",
                f"cannot take {tensor!r} as an input",
                because="an input is a placeholder",
            )
    missing = [t.name for t in placeholders if t not in inputs]
    if missing:
        raise DescribeError(
            "compile",
            f"cannot compute without {', '.join(missing)}",
            because=f"inputs lists {', '.join(t.name for t in inputs) or 'nothing'}",
            help=("inputs=[" + ", ".join(t.name for t in placeholders) + "]",),
        )
    named: dict[str, Tensor] = {}
    for tensor in [*order, *inputs]:
        if named.setdefault(tensor.name, tensor) is not tensor:
            raise DescribeError(
                "compile",
                f"cannot tell two tensors named {tensor.name} apart",
                because=f"one is {named[tensor.name]!r}, the other {tensor!r}",
                help=("give each tensor a name of its own",),
            )


def _stage(
    tensor: Tensor,
    extent: Any,
    sizes: dict[str, Expr],
    buffers: dict[str, str],
    names: Names,
) -> Stage:
    definition = tensor.definition
    assert definition is not None
    own = Names(names.taken)

    def axis(a: Axis) -> StageAxis:
        return StageAxis(own.fresh(a.name), extent(a.extent), a.name)

    axes = tuple(map(axis, definition.axes))
    reduced = tuple(map(axis, definition.reduce_axes))
    renamed: dict[str, Expr] = {a.label: Var(a.name) for a in (*axes, *reduced)}
    renamed |= {size_var(name): value for name, value in sizes.items()}
    body = rename(definition.body, renamed, buffers)
    if isinstance(body, Reduce):
        body = Reduce(body.op, body.value, tuple(a.name for a in reduced))
    return Stage(buffers[tensor.name], tensor.name, axes, reduced, body)


def rename(body: Expr, values: dict[str, Expr], buffers: dict[str, str]) -> Expr:
    """`body` with its coordinates and sizes replaced, and its buffers called as they are declared."""

    def rule(node: Expr) -> Expr | None:
        match node:
            case Var(name):
                return values.get(name)
            case Load(buffer, index, dtype):
                return Load(buffers[buffer], tuple(map(ix.simplify, index)), dtype)
            case _:
                return None

    return rewrite(body, rule)


def group_stages(stages: list[Stage]) -> tuple[tuple[Stage, ...], ...]:
    """Stages in order, an element-wise one joined to the group it follows point by point."""
    groups: list[list[Stage]] = []
    home: dict[str, int] = {}
    for stage in stages:
        sources = [
            home[n.buffer] for n in walk(stage.value) if isinstance(n, Load) and n.buffer in home
        ]
        last = max(sources, default=-1)
        if last >= 0 and _follows(stage, groups[last]):
            stage = _on_axes_of(stage, groups[last][0])
        else:
            last = len(groups)
            groups.append([])
        groups[last].append(stage)
        home[stage.buffer] = last
    return tuple(map(tuple, groups))


def _follows(stage: Stage, group: list[Stage]) -> bool:
    """Whether `stage` reads the group only at its own point, over the same axes."""
    lead, produced = group[0], {s.buffer for s in group}
    if stage.reduce_axes or [a.extent for a in stage.axes] != [a.extent for a in lead.axes]:
        return False
    own = tuple(Var(axis.name) for axis in stage.axes)
    reads = [n for n in walk(stage.value) if isinstance(n, Load) and n.buffer in produced]
    return all(read.index == own for read in reads)


def _on_axes_of(stage: Stage, lead: Stage) -> Stage:
    renamed: dict[str, Expr] = {
        old.name: Var(new.name) for old, new in zip(stage.axes, lead.axes, strict=True)
    }
    axes = tuple(
        StageAxis(new.name, new.extent, old.label)
        for old, new in zip(stage.axes, lead.axes, strict=True)
    )
    return Stage(stage.buffer, stage.label, axes, (), substitute(stage.body, renamed))


def read_by_other_groups(groups: tuple[tuple[Stage, ...], ...]) -> set[str]:
    """The buffers that a group other than the one that writes them reads."""
    shared: set[str] = set()
    for group in groups:
        own = {stage.buffer for stage in group}
        for stage in group:
            read = {n.buffer for n in walk(stage.value) if isinstance(n, Load)}
            shared |= read - own
    return shared


# (the reduction axis, the one update of its terms, what is inside it) -> its loops
Around = Callable[[StageAxis, tuple[Stmt, ...]], tuple[Stmt, ...]]


def source(computation: Computation) -> Program:
    """`computation` in plain loops, not cut; ``str`` of it is what `parse` could have read."""
    body: tuple[Stmt, ...] = ()
    for group in computation.groups:
        body += plain_loops(group[0].axes, instance(group))
    return Program(
        computation.name, computation.sizes, computation.assumptions, computation.buffers, body
    )


def plain_loop(axis: StageAxis, body: tuple[Stmt, ...]) -> For:
    """``for axis in 0:extent`` around `body`."""
    return For(axis.name, ix.const(0), axis.extent, body)


def plain_loops(axes: Sequence[StageAxis], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return loops over `axes`, the first outermost, around `body`."""
    for axis in reversed(axes):
        body = (plain_loop(axis, body),)
    return body


def instance(
    group: Sequence[Stage],
    around: Around = lambda axis, body: (plain_loop(axis, body),),
) -> tuple[Stmt, ...]:
    """What one point of a group runs: each reduction initialised and added up, then what follows.

    around   makes the loops of a reduction axis; plain ones by default
    """
    body: tuple[Stmt, ...] = ()
    for stage in group:
        point = tuple(Var(axis.name) for axis in stage.axes)
        if stage.reducer is None:
            body += (Store(stage.buffer, point, stage.term),)
            continue
        terms: tuple[Stmt, ...] = (Store(stage.buffer, point, stage.term, stage.reducer),)
        for axis in reversed(stage.reduce_axes):
            terms = around(axis, terms)
        body += (Store(stage.buffer, point, stage.start), *terms)
    return body
