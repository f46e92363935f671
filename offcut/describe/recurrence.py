"""Programs that update tensors in place, step by step: stencils over time, factorisations.

`recurrence` runs its updates one after another for each step; an `update` writes the elements of a
tensor in ascending order and reads what is there at that moment. So a tensor that an update both
reads and writes is swept as Gauss and Seidel do, and two tensors in turn are swept as Jacobi does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.dtypes import FLOATS, in_range, reduction_start
from offcut.core.expr import (
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Var,
    children,
    dtype_of,
    reads_memory,
    rewrite,
    substitute,
    walk,
)
from offcut.core.program import Buffer, For, Kind, Program, Size, Stmt, Store
from offcut.core.scan import Range, ScanContext, scan_rectangle
from offcut.core.sizes import condition_of, facts_about, index_of, size_expr
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Names, rename
from offcut.describe.tensor import Compute, Tensor, axis_names, sizes_of
from offcut.describe.value import Axis, Value, cast, size_var
from offcut.errors import DescribeError, trim_traceback

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """``tensor[axes] = body`` where `condition` holds, in ascending order of the axes.

    definition   its body may reduce at any place, but not inside a reduction
    condition    None: everywhere
    free         the coordinates that it names besides its own axes: the steps around it
    """

    tensor: Tensor
    definition: Compute
    condition: Expr | None
    free: tuple[Axis, ...]

    def __repr__(self) -> str:
        return f"an update of {self.tensor.name}"


@trim_traceback
def update(
    tensor: Tensor,
    fn: Callable[..., Any],
    where: Callable[..., Any] | None = None,
    axes: Sequence[str] | None = None,
) -> Update:
    """Write ``fn(i, j, …)`` into ``tensor[i, j, …]`` wherever ``where(i, j, …)`` holds.

    tensor   a placeholder; the shape of it gives the ranges of the axes
    fn       called once with one axis per parameter; the parameters name the axes
    where    a condition over the axes, sizes, steps and tensors; None: everywhere
    axes     the names, for ``lambda *ix``

    The elements are written in lexicographic order of the axes, and a read sees what is written
    before it. Comparisons joined by ``&`` that are affine in an axis become bounds of its loop. A
    reduction is added up in a private element of its own, in ascending order of its axes; one of
    ``where(c, x, neutral)``, such as ``sum(where(k < i, x, 0.0), axis=k)``, runs only where c holds.

    Raises DescribeError when ranks, names or element types do not fit.
    """
    if not isinstance(tensor, Tensor) or tensor.definition is not None:
        raise DescribeError(
            "update",
            f"cannot write {tensor!r}",
            because="it is computed already"
            if isinstance(tensor, Tensor)
            else "it is not a tensor",
            help=('B = placeholder((n,), name="B"); update(B, lambda i: B[i] + 1.0)',),
        )
    names = axis_names(fn, tensor.name, axes, len(tensor.shape), "update")
    own = tuple(Axis(name, extent) for name, extent in zip(names, tensor.shape, strict=True))
    points = tuple(Value(Var(axis.name), (), (axis,)) for axis in own)
    value = _element(tensor, fn(*points))
    condition = None if where is None else _condition(tensor, where, points)
    parts = (value,) if condition is None else (value, condition)
    known: dict[str, Axis] = {axis.name: axis for axis in own}
    for axis in (axis for part in parts for axis in part.axes):
        if known.setdefault(axis.name, axis) != axis:
            raise _refusal(
                tensor,
                f"cannot tell two axes named {axis.name} apart",
                f"one has {known[axis.name].extent} values, the other {axis.extent}",
            )
    reduced = dict.fromkeys(name for node in _reductions(tensor, value) for name in node.axes)
    clash = sorted(set(names) & set(reduced))
    if clash:
        raise _refusal(
            tensor,
            f"cannot use {', '.join(clash)} as an axis and as a reduction axis",
            "an axis is known by its name",
            'reduce_axis(extent, name="r")',
        )
    used = {name for part in parts for name in _free(part.node)}
    return Update(
        tensor,
        Compute(
            own,
            tuple(known[name] for name in reduced),
            value.node,
            tuple(dict.fromkeys(read for part in parts for read in part.tensors)),
            tuple(dict.fromkeys(size for part in parts for size in part.sizes)),
        ),
        None if condition is None else condition.node,
        tuple(axis for axis in known.values() if axis.name in used and axis not in own),
    )


@trim_traceback
def recurrence(
    steps: Any, body: Callable[[Value], Update | Sequence[Update]], name: str = "recurrence"
) -> Program:
    """The program that runs the updates of ``body(t)`` one after another, for t in 0 … steps - 1.

    steps   how many: an int or an expression in sizes
    body    called once; its parameter names the steps, and it gives an update or a list of them

    Tensors that are updated are in place (`Kind.INOUT`), the others are inputs; both are in the
    order in which the updates name them, an update its own tensor first. The compiled kernel takes
    arrays by name too (``kernel(A=a, B=b, steps=9)``): tensors of one shape are easily swapped.

    >>> from offcut import dim, placeholder, recurrence, update
    >>> n, steps = dim("n", max=64), dim("steps", max=9)
    >>> A = placeholder((n,), "float64", "A")
    >>> print(
    ...     recurrence(
    ...         steps,
    ...         lambda t: update(
    ...             A,
    ...             lambda i: (A[i - 1] + A[i + 1]) / 2.0,
    ...             where=lambda i: (i >= 1) & (i < n - 1),
    ...         ),
    ...         name="relax",
    ...     )
    ... )
    program relax
    size steps in 0:10
    size n in 0:65
    inout A: float64[n]
    for t in 0:steps
      for i in 1:n - 1
        A[i] = (A[i - 1] + A[i + 1]) / 2.0

    Raises DescribeError where steps or updates are none, or an update names a foreign axis.
    """
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise DescribeError(
            "recurrence",
            f"cannot take the name {name!r}",
            because="names are ASCII identifiers",
        )
    time = Axis(_step_name(body), size_expr(steps, "recurrence"))
    if time.extent.is_Integer and time.extent < 0:
        raise DescribeError(
            "recurrence",
            f"cannot run {time.extent} steps",
            because="a number of steps is at least 0",
        )
    step_updates = body(Value(Var(time.name), (), (time,)))
    updates = (step_updates,) if isinstance(step_updates, Update) else step_updates
    if not (
        isinstance(updates, Sequence) and updates and all(isinstance(u, Update) for u in updates)
    ):
        raise DescribeError(
            "recurrence",
            f"cannot run {step_updates!r} in each step",
            because="a step is an update or a list of updates, at least one",
            help=("lambda t: [update(B, lambda i: A[i]), update(A, lambda i: B[i])]",),
        )
    for each in updates:
        _check_axes(each, time)
    return _program(name, time, updates)


def _step_name(body: Any) -> str:
    parameters = list(inspect.signature(body).parameters.values()) if callable(body) else []
    if len(parameters) != 1 or parameters[0].kind not in _POSITIONAL:
        listed = ", ".join(map(str, parameters)) or "nothing"
        raise DescribeError(
            "recurrence",
            f"cannot run a function of {listed} in each step"
            if callable(body)
            else f"cannot run {body!r} in each step",
            because="its one parameter names the steps"
            if callable(body)
            else "it is not a function of the step",
            help=("recurrence(steps, lambda t: [update(B, lambda i: B[i] + 1.0)])",),
        )
    return parameters[0].name


def _element(tensor: Tensor, value: Any) -> Value:
    """`value` as an element of `tensor`; a Python number takes its type."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if tensor.dtype in FLOATS or (isinstance(value, int) and in_range(value, tensor.dtype)):
            return cast(value, tensor.dtype)
        raise _refusal(tensor, f"cannot store {value}", f"its elements are {tensor.dtype}")
    if not isinstance(value, Value):
        raise _refusal(tensor, f"cannot store {value!r}", "the function gives no expression")
    if value.dtype != tensor.dtype:
        raise _refusal(
            tensor,
            f"cannot store {value} of type {value.dtype}",
            f"its elements are {tensor.dtype}",
            f'cast(x, "{tensor.dtype}") converts, explicitly'
            if value.dtype != "bool"
            else "where(condition, a, b)",
        )
    return value


def _condition(tensor: Tensor, where: Any, points: tuple[Value, ...]) -> Value:
    if not callable(where):
        raise _refusal(
            tensor,
            f"cannot restrict it by {where!r}",
            "it is not a function of the axes",
            "where=lambda i: (i >= 1) & (i < n - 1)",
        )
    parameters = inspect.signature(where)
    try:
        parameters.bind(*points)
    except TypeError as error:
        listed = ", ".join(map(str, parameters.parameters.values())) or "nothing"
        raise _refusal(
            tensor,
            f"cannot restrict it by a function of {listed}",
            f"the tensor has {len(points)} axes: {error}",
            "where=lambda i: (i >= 1) & (i < n - 1)",
        ) from None
    condition = where(*points)
    if not (isinstance(condition, Value) and condition.dtype == "bool"):
        raise _refusal(
            tensor,
            f"cannot restrict it to where {condition}",
            "it is not a comparison of axes, sizes or elements",
            "where=lambda i: (i >= 1) & (i < n - 1)",
        )
    if any(isinstance(node, Reduce) for node in walk(condition.node)):
        raise _refusal(
            tensor,
            f"cannot restrict it to where {condition}",
            "a condition does not reduce",
            "compute the reduction by an update before, and read it",
        )
    return condition


def _refusal(tensor: Tensor, refused: str, because: str, *help: str) -> DescribeError:
    return DescribeError("update", refused, at=f"tensor {tensor.name}", because=because, help=help)


def _reductions(tensor: Tensor, value: Value) -> tuple[Reduce, ...]:
    """The different reductions of `value`, in order."""
    reductions = tuple(dict.fromkeys(n for n in walk(value.node) if isinstance(n, Reduce)))
    for node in reductions:
        if any(isinstance(inner, Reduce) for inner in walk(node.value)):
            raise _refusal(
                tensor,
                f"cannot reduce inside a reduction: {format_expr(node).replace('$', '')}",
                "each reduction is a value of its own",
                "compute the inner one by an update before, and read it",
            )
    return reductions


def _free(expr: Expr) -> Iterator[str]:
    """The coordinates that `expr` names, without those that a reduction around them binds."""
    if isinstance(expr, Var):
        yield expr.name
    bound = expr.axes if isinstance(expr, Reduce) else ()
    for child in children(expr):
        yield from (name for name in _free(child) if name not in bound)


def _check_axes(each: Update, time: Axis) -> None:
    named = {axis.name for axis in (*each.definition.axes, *each.definition.reduce_axes)}
    if time.name in named:
        raise _refusal(
            each.tensor,
            f"cannot use {time.name} as an axis",
            "it names the steps",
        )
    foreign = [axis for axis in each.free if axis != time]
    if foreign:
        raise _refusal(
            each.tensor,
            f"cannot use the axis {foreign[0].name} here",
            "it is neither an axis of the tensor, nor the steps, nor reduced by this sum, max or min",
            f"sum(…, axis={foreign[0].name})",
        )
    computed = [read for read in each.definition.reads if read.definition is not None]
    if computed:
        raise _refusal(
            each.tensor,
            f"cannot read {computed[0].name}",
            "it is computed, and an update reads placeholders",
            f"update({computed[0].name}, …) of a placeholder in the same step",
        )


def _program(name: str, time: Axis, updates: Sequence[Update]) -> Program:
    tensors = _tensors(updates)
    defined = [replace(each.tensor, definition=each.definition) for each in updates]
    dims = sizes_of([Tensor(time.name, (time.extent,), "index"), *tensors, *defined])
    names = Names()
    size_names = {dim.name: names.fresh(dim.name) for dim in dims}
    values: dict[str, Expr] = {dim.name: Var(size_names[dim.name]) for dim in dims}

    def extent(size: Any) -> Expr:
        expr = index_of(size)
        assert expr is not None
        return ix.simplify(substitute(expr, values))

    called = {tensor.name: names.fresh(tensor.name) for tensor in tensors}
    written = {each.tensor for each in updates}
    sizes = tuple(Size(size_names[d.name], d.min, d.max, d.multiple_of) for d in dims)
    sums = [_partial(each, names, extent) for each in updates]
    buffers = [
        Buffer(
            called[tensor.name],
            tensor.dtype,
            tuple(map(extent, tensor.shape)),
            Kind.INOUT if tensor in written else Kind.INPUT,
        )
        for tensor in tensors
    ]
    buffers += [buffer for each in sums for buffer in each.values()]
    step = names.fresh(time.name)
    known = ScanContext.of(sizes)
    known = known.within(Range(step, (ix.const(0),), (ix.sub(extent(time.extent), 1),)))
    coordinates = {size_var(size): value for size, value in values.items()}
    coordinates[time.name] = Var(step)
    body: tuple[Stmt, ...] = ()
    for each, partial in zip(updates, sums, strict=True):
        body += _Lowering(each, partial, called, coordinates, Names(names.taken), extent).nest(
            known
        )
    conditions = [condition_of(fact) for fact in facts_about(dims)]
    return Program(
        name,
        sizes,
        tuple(substitute(c, values) for c in conditions if c is not None),
        tuple(buffers),
        (For(step, ix.const(0), extent(time.extent), body),),
    )


def _tensors(updates: Sequence[Update]) -> tuple[Tensor, ...]:
    """Every tensor that is written or read, by first appearance."""
    tensors: dict[str, Tensor] = {}
    for each in updates:
        for tensor in (each.tensor, *each.definition.reads):
            if tensors.setdefault(tensor.name, tensor) is not tensor:
                raise DescribeError(
                    "recurrence",
                    f"cannot tell two tensors named {tensor.name} apart",
                    because=f"one is {tensors[tensor.name]!r}, the other {tensor!r}",
                    help=("give each tensor a name of its own",),
                )
    return tuple(tensors.values())


def _partial(each: Update, names: Names, extent: Callable[[Any], Expr]) -> dict[Reduce, Buffer]:
    """A private buffer for each reduction; none for one that the tensor itself can add up."""
    body, shape = each.definition.body, tuple(map(extent, each.tensor.shape))
    if isinstance(body, Reduce) and each.tensor not in each.definition.reads:
        return {}
    reductions = dict.fromkeys(node for node in walk(body) if isinstance(node, Reduce))
    return {
        node: Buffer(
            names.fresh(f"{each.tensor.name}_{node.op}"), dtype_of(node), shape, Kind.PRIVATE
        )
        for node in reductions
    }


class _Lowering:
    """One update as loops; `names` hands out its axes."""

    def __init__(
        self,
        each: Update,
        partial: dict[Reduce, Buffer],
        called: dict[str, str],
        coordinates: dict[str, Expr],
        names: Names,
        extent: Callable[[Any], Expr],
    ) -> None:
        definition = each.definition
        fresh = {a.name: names.fresh(a.name) for a in (*definition.axes, *definition.reduce_axes)}
        self.extents = {a.name: extent(a.extent) for a in definition.reduce_axes}
        self.axes = [(fresh[a.name], extent(a.extent)) for a in definition.axes]
        self.point = tuple(Var(axis) for axis, _ in self.axes)
        self.values = coordinates | {old: Var(new) for old, new in fresh.items()}
        self.fresh, self.called = fresh, called
        self.each, self.partial, self.buffer = each, partial, called[each.tensor.name]

    def in_program_names(self, expr: Expr) -> Expr:
        """`expr` in the names of the program."""
        return ix.fold_indices(rename(expr, self.values, self.called))

    def nest(self, known: ScanContext) -> tuple[Stmt, ...]:
        """The loops of the update."""
        conditions = tuple(self.in_program_names(part) for part in _parts(self.each.condition))
        return scan_rectangle(self.axes, conditions, known, self.instance)

    def instance(self, known: ScanContext) -> tuple[Stmt, ...]:
        """What one point runs: its reductions, then the store."""
        body = self.each.definition.body
        if isinstance(body, Reduce) and not self.partial:
            return self.total(body, self.buffer, known)
        stmts: tuple[Stmt, ...] = ()
        totals: dict[Expr, Expr] = {}
        for node, buffer in self.partial.items():
            stmts += self.total(node, buffer.name, known)
            totals[self.in_program_names(node)] = Load(buffer.name, self.point, buffer.dtype)
        value = rewrite(self.in_program_names(body), lambda node: totals.get(node))
        return (*stmts, Store(self.buffer, self.point, value))

    def total(self, node: Reduce, buffer: str, known: ScanContext) -> tuple[Stmt, ...]:
        """``buffer[point]`` initialised, and each term added where its condition holds."""
        dtype = dtype_of(node)
        start = Const(reduction_start(node.op, dtype), dtype)
        conditions, term = _condition_and_term(node.value, start)
        add = Store(buffer, self.point, self.in_program_names(term), node.op)
        loops = scan_rectangle(
            [(self.fresh[axis], self.extents[axis]) for axis in node.axes],
            [self.in_program_names(condition) for condition in conditions],
            known,
            lambda _: (add,),
        )
        return (Store(buffer, self.point, start), *loops)


def _condition_and_term(term: Expr, start: Const) -> tuple[tuple[Expr, ...], Expr]:
    """The conditions outside which `term` is the neutral element `start`, and the term inside.

    Those that read a tensor stay in the term: which terms there are is then known from the sizes.
    """
    conditions: tuple[Expr, ...] = ()
    while isinstance(term, Select) and term.other == start:
        parts = _parts(term.condition)
        outside = tuple(part for part in parts if not reads_memory(part))
        late = tuple(part for part in parts if reads_memory(part))
        if not outside:
            break
        conditions += outside
        if late:
            condition = conjunction(late)
            return conditions, Select(condition, term.then, term.other)
        term = term.then
    return conditions, term


def _parts(condition: Expr | None) -> tuple[Expr, ...]:
    """The conditions that all must hold; none where there is none."""
    return () if condition is None else conjuncts(condition)
