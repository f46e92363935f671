"""Arrays of their own for what stages read, compute and write: cache_read, stage_value, cache_write, prepack.

They change the program that is scheduled, each by an equation of its own; loops come after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.analysis import read_arrays
from offcut.core.dtypes import ITEM_BYTES, reduction_start
from offcut.core.expr import (
    Const,
    Expr,
    Load,
    Select,
    Var,
    dtype_of,
    rewrite,
    walk,
)
from offcut.core.panels import as_panels
from offcut.core.program import Buffer, For, If, Kind, Size, Stmt, Store
from offcut.core.text.expressions import parse_expr
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr, format_stmt
from offcut.core.traversal import map_expressions
from offcut.describe.computation import Names
from offcut.errors import DescribeError, ParseError, PartitionError
from offcut.partition import StagedValue, check_narrow
from offcut.proof import with_constants_of
from offcut.schedule.apply.axes import Target, check_new, find_stage
from offcut.schedule.apply.placing import reads
from offcut.schedule.apply.reading import loads_of, read_nest
from offcut.schedule.apply.staged_form import Nest, Nests, Rewrite, Root, in_loops, point_of
from offcut.schedule.decisions import Staging, primitive_of


def cache_read(nests: Nests, step: Staging) -> Nests:
    """Return the schedule with a copy of `buffer` in `memory`, which `readers` read instead.

    ``A[k, y]`` becomes ``AL[k, y]`` after ``AL[k, y] = A[k, y]`` for all elements.
    """
    check_scope("cache_read", step.what, step.memory)
    check_new("cache_read", f"buffer {step.what}", nests.names(), step.name)
    readers = [find_stage(nests, reader).name for reader in step.readers]
    check_cache_read(nests, step.what, readers)
    return build_cache_read(nests, step, readers)


def check_scope(op: str, buffer: str, scope: object) -> None:
    """Refuse what is no name of a memory; None is main memory."""
    if scope is not None and not (
        isinstance(scope, str) and scope.isidentifier() and scope.isascii()
    ):
        raise PartitionError(
            op,
            f"cannot cache {buffer} in {scope!r}",
            because="a memory is known by its name, an identifier",
            help=('"acc_buffer"', '"shared"'),
        )


def local_buffer(step: Staging, dtype: str, shape: tuple[Expr, ...]) -> Buffer:
    """Return the array that a staging makes.

    Raises PartitionError where its layout has no place for each element.
    """
    buffer = Buffer(step.name, dtype, shape, Kind.LOCAL, step.layout, step.memory)
    check_layout(primitive_of(step), buffer)
    return buffer


def whole_panels(
    step: Staging, axes: Sequence[str], shape: tuple[Expr, ...], value: Expr
) -> tuple[tuple[Expr, ...], Expr]:
    """Return the extents and the values of an array in main memory whose layout is in panels: zeros up to a whole multiple of their rows.

    What reads panels multiplies such rows by zeros, so that they must be no NaN.
    """
    panel = as_panels(step.layout) if step.memory is None else None
    if panel is None or (ix.literal_value(shape[panel.rows]) or 1) % panel.multiple == 0:
        return shape, value
    rows, dtype = shape[panel.rows], dtype_of(value)
    inside = ix.compare("<", Var(axes[panel.rows]), rows)
    whole = ix.mul(ix.ceildiv(rows, panel.multiple), panel.multiple)
    shape = (*shape[: panel.rows], whole, *shape[panel.rows + 1 :])
    return shape, Select(inside, value, Const(reduction_start("sum", dtype), dtype))


def check_layout(op: str, buffer: Buffer) -> None:
    """Theorem: each element of an array has a place of its own in its layout."""
    if buffer.layout is None:
        return
    check_narrow(op, buffer, f"buffer {buffer.name}")
    try:
        extents = [ix.literal_value(extent) for extent in buffer.shape]
        buffer.layout.check(extents, ITEM_BYTES[buffer.dtype])
    except DescribeError as refused:
        raise PartitionError(
            op,
            f"cannot lay {buffer.name} out in {format_layout(buffer.layout)}",
            at=f"buffer {buffer.name}",
            because=f"{refused.at}: {refused.because}",
            help=(f"{buffer.name} has {len(buffer.shape)} axes",),
        ) from None


def prepack(nests: Nests, step: Staging) -> Nests:
    """Return the schedule in which a constant lies in the layout of `step` before any call.

    Theorem: the layout is a bijection, and nothing writes a constant.
    """
    constants = {b.name: b for b in nests.buffers if b.kind is Kind.CONSTANT}
    buffer = constants.get(step.what)
    if buffer is None or buffer.layout is not None:
        known = ", ".join(constants) or "none"
        raise PartitionError(
            "prepack",
            f"cannot pack {step.what} before a call",
            at=f"buffer {step.what}",
            because=f"the constants are {known}" if buffer is None else "it has a layout already",
            help=("a constant is an array that compile gets as constants={…}",)
            if buffer is None
            else (),
        )
    packed = replace(buffer, layout=step.layout)
    check_layout("prepack", packed)
    return replace(nests, buffers=tuple(packed if b is buffer else b for b in nests.buffers))


def check_cache_read(nests: Nests, buffer: str, readers: Sequence[str]) -> None:
    """Theorem: no statement from the copy on writes `buffer`, so the copy holds what it holds."""
    reading = [nest.name for nest in nests.nests if reads(nests, nest.name, buffer)]
    for name in readers:
        if name not in reading:
            raise PartitionError(
                "cache_read",
                f"cannot let {name} read a copy of {buffer}",
                at=f"stage {name}",
                because=f"it does not read {buffer}",
                help=(f"{buffer} is read by {', '.join(reading) or 'nothing'}",),
            )
    if not readers:
        raise PartitionError(
            "cache_read",
            f"cannot cache {buffer} for nobody",
            because=f"readers is empty, and {', '.join(reading) or 'nothing'} reads {buffer}",
        )
    places = [k for k, nest in enumerate(nests.nests) if nest.name in readers]
    for late in nests.nests[min(places) : max(places) + 1]:
        if buffer in late.stored_buffers:
            raise PartitionError(
                "cache_read",
                f"cannot read a copy of {buffer}",
                at=f"stage {late.name}",
                because=f"{late.name} writes {buffer}, and the copy would be of what was before",
                help=("a buffer that a stage reads and writes is updated in place",),
            )


def build_cache_read(nests: Nests, step: Staging, readers: Sequence[str]) -> Nests:
    """Return the schedule with the copy before its first reader."""
    buffer, name = step.what, step.name
    original = nests.buffer(buffer)
    first = min(k for k, nest in enumerate(nests.nests) if nest.name in readers)
    names = _axis_names(nests.nests[first], buffer, len(original.shape))
    point = tuple(map(Var, names))
    shape, value = whole_panels(step, names, original.shape, Load(buffer, point, original.dtype))
    copy = read_nest(_copy(name, names, shape, value), name, copies=True)

    def redirect(node: Expr) -> Expr | None:
        match node:
            case Load(own, index, dtype) if own == buffer:
                return Load(name, index, dtype)
            case _:
                return None

    rewritten = tuple(
        with_expressions(n, lambda e: rewrite(e, redirect)) if n.name in readers else n
        for n in nests.nests
    )
    local = local_buffer(step, original.dtype, shape)
    new_nests = (*rewritten[:first], copy, *rewritten[first:])
    result = replace(nests, buffers=(*nests.buffers, local), nests=new_nests)
    alike = None if is_gathered(nests, buffer) else (nests.source, result.source)
    return result.rewritten(Rewrite(f"cache_read({buffer})", f"{name} = {buffer}", alike))


def stage_value(nests: Nests, step: Staging) -> Nests:
    """Return the schedule with the values of an expression in an array of their own, which `readers` read instead.

    ``C[i] = sum of where(2*i + r >= 1, X[2*i + r - 1], 0) * W[r]`` reads ``X_in[2*i + r]`` after
    ``X_in[u] = where(u >= 1, X[u - 1], 0)`` for all u that are read.
    """
    check_scope("stage_value", step.name, step.memory)
    at = f"stage {step.readers[0]}" if step.readers else ""
    axes = tuple(axis for axis, _ in step.axes)
    converted = any(buffer.name == step.name for buffer in nests.buffers)
    if not converted:
        check_new("stage_value", at, nests.names(), step.name)
    used_names = {*(size.name for size in nests.sizes), *(b.name for b in nests.buffers), step.name}
    check_new("stage_value", at, Names(used_names), *axes)
    readers = [find_stage(nests, reader).nest for reader in step.readers]
    try:
        staged = parse_value(step, nests.buffers, nests.sizes)
    except ParseError as refused:
        raise PartitionError(
            "stage_value",
            f"cannot stage {step.what}",
            at=at,
            because=f"{refused.refused}: {refused.because}",
            help=refused.help,
        ) from None
    if converted:
        check_converted_constant(nests, step, staged, [nest.name for nest in readers])
        return build_converted_constant(nests, step, staged)
    ranges = {root.name: (root.lo, ix.sub(root.hi, 1)) for root in readers[0].roots}
    shape = staged.shape(readers[0].name, ranges)
    check_unwritten(nests, step, staged.value, [nest.name for nest in readers])
    return build_stage_value(nests, step, staged, shape)


def parse_value(step: Staging, buffers: Sequence[Buffer], sizes: Sequence[Size]) -> StagedValue:
    """Return the values of a staging, over the axes of its array.

    Raises ParseError for what is no expression of these.
    """
    axes, point = tuple(axis for axis, _ in step.axes), tuple(value for _, value in step.axes)
    names = (*axes, *(size.name for size in sizes))
    return StagedValue(step.name, axes, point, parse_expr(step.what, buffers=buffers, names=names))


def check_unwritten(nests: Nests, step: Staging, value: Expr, readers: Sequence[str]) -> None:
    """Theorem: no statement from the array on, up to the last reader, writes what its values are made of."""
    used = read_arrays((value,))
    places = [k for k, nest in enumerate(nests.nests) if nest.name in readers]
    for late in nests.nests[min(places) : max(places) + 1]:
        written = used & set(late.stored_buffers)
        if written and late.name not in used:
            raise PartitionError(
                "stage_value",
                f"cannot stage {step.what}",
                at=f"stage {late.name}",
                because=f"{late.name} writes {', '.join(sorted(written))}, and the values would be of what was before",
            )


def check_converted_constant(
    nests: Nests, step: Staging, staged: StagedValue, readers: Sequence[str]
) -> None:
    """Theorem: an array that is there already is a constant, of which each element is converted in its place, for all that read it."""
    buffer = nests.buffer(step.name)
    others = [n.name for n in nests.nests if reads(nests, n.name, step.name)]
    others = [name for name in others if name not in readers]
    because = ""
    if staged.converted_array != step.name:
        because = "something has that name"
    elif buffer.kind is not Kind.CONSTANT:
        because = f"{step.name} is not a constant, which could be converted when it is bound"
    elif others:
        because = f"{others[0]} reads {step.name} as it is"
    elif step.memory is not None or step.layout is not None:
        because = f"the memory and the layout of {step.name} are those of the constant"
    if because:
        free = nests.names().fresh(f"{step.name}_{dtype_of(staged.value)}")
        raise PartitionError(
            "stage_value",
            f"cannot stage {step.what} in {step.name}",
            at=f"stage {step.readers[0]}",
            because=because,
            help=(f"an array of a name of its own, {free}",),
        )


def build_converted_constant(nests: Nests, step: Staging, staged: StagedValue) -> Nests:
    """Return the schedule with a constant of the type of `staged`, whose readers do not convert it.

    Raises PartitionError if a reader has no such conversion.
    """
    rewritten = replace(nests, nests=tuple(_reading(nests, step, staged)))
    dtype = dtype_of(staged.value)
    buffers = (replace(b, dtype=dtype) if b.name == step.name else b for b in nests.buffers)
    done = replace(rewritten, buffers=tuple(buffers))
    before = nests.source
    alike = before, with_constants_of(before, done.source)
    return done.rewritten(Rewrite(f"stage_value({step.name})", f"{step.name} = {step.what}", alike))


def build_stage_value(
    nests: Nests, step: Staging, staged: StagedValue, shape: tuple[Expr, ...]
) -> Nests:
    """Return the schedule with the array before its first reader, which reads it where it had the expression.

    Raises PartitionError if a reader has no such expression.
    """
    rewritten = _reading(nests, step, staged)
    pairs = zip(nests.nests, rewritten, strict=True)
    first = next(k for k, (before, after) in enumerate(pairs) if before != after)
    shape, value = whole_panels(step, staged.axes, shape, staged.value)
    copy_nest = read_nest(_copy(step.name, staged.axes, shape, value), step.name, copies=True)
    local = local_buffer(step, dtype_of(staged.value), shape)
    new_nests = (*rewritten[:first], copy_nest, *rewritten[first:])
    done = replace(nests, buffers=(*nests.buffers, local), nests=new_nests)
    alike = nests.source, done.source
    return done.rewritten(Rewrite(f"stage_value({step.name})", f"{step.name} = {step.what}", alike))


def _reading(nests: Nests, step: Staging, staged: StagedValue) -> list[Nest]:
    """Return the nests, of which the readers of `step` read its array where they had the expression.

    Raises PartitionError if a reader has no such expression.
    """
    replaced, new_nests = set[str](), list[Nest]()
    for nest in nests.nests:
        if nest.name in step.readers or set(step.readers) & set(nest.stored_buffers):
            before, nest = nest, with_expressions(nest, staged.read_in)
            replaced |= {nest.name} if nest != before else set()
        new_nests.append(nest)
    for reader in step.readers:
        if find_stage(nests, reader).name not in replaced:
            raise PartitionError(
                "stage_value",
                f"cannot stage {step.what} for {reader}",
                at=f"stage {reader}",
                because=f"it computes no {format_expr(ix.fold_indices(staged.expression))}",
                help=tuple(
                    format_stmt(store)
                    for part in find_stage(nests, reader).nest.parts
                    for store in part.stores
                    if not isinstance(store.value, Const)
                ),
            )
    return new_nests


def is_gathered(nests: Nests, buffer: str) -> bool:
    """Return whether the values of an array say which elements of `buffer` are read: no set knows these."""
    return any(
        isinstance(node, Load)
        for nest in nests.nests
        for load in loads_of(nest.plain)
        if load.buffer == buffer
        for part in load.index
        for node in walk(part)
    )


def _copy(to: str, names: Sequence[str], shape: Sequence[Expr], value: Expr) -> tuple[Stmt, ...]:
    """Return loops of these names that store `value` at each element of an array of this shape."""
    return in_loops(_roots(names, shape), (Store(to, tuple(map(Var, names)), value),))


def _roots(names: Sequence[str], shape: Sequence[Expr]) -> list[Root]:
    return [Root(name, name, ix.const(0), part) for name, part in zip(names, shape, strict=True)]


def _axis_names(nest: Nest, buffer: str, rank: int) -> list[str]:
    """Names for the axes of a copy: those with which it is read, where they are such."""
    for part in nest.parts:
        for store in part.stores:
            for node in walk(store.value):
                if isinstance(node, Load) and node.buffer == buffer:
                    names = [p.name for p in node.index if isinstance(p, Var)]
                    if len(set(names)) == rank:
                        return names
    return [f"a{k}" for k in range(rank)]


def cache_write(target: Target, step: Staging) -> Nests:
    """Return the schedule with the stage computed in a buffer of its own in `memory`, then copied out.

    ``C[y, x] = …`` becomes ``CL[y, x] = …``, and after it ``C[y, x] = CL[y, x]`` for all elements.
    """
    check_scope("cache_write", target.buffer, step.memory)
    check_new("cache_write", f"stage {target.buffer}", target.nests.names(), step.name)
    check_cache_write(target, step)
    return build_cache_write(target, step)


def check_cache_write(target: Target, step: Staging) -> None:
    """Theorem: the nest writes every element of the buffer before it reads it, and is the only one
    that writes it, so that nothing but the copy was in it; what is said of the array's axes is an order of those of the buffer.
    """
    nests, nest, buffer = target.nests, target.nest, target.buffer
    because, help_ = "", tuple[str, ...]()
    others = [n.name for n in nests.nests if n.name != nest.name and buffer in n.stored_buffers]
    point, axes = point_of(nest, buffer), _named_axes(target, step)
    if not nest.is_untouched:
        because = "its loops are scheduled already"
        help_ = ("caches come first, then loops",)
    elif nest.stored_buffers != (buffer,):
        because = f"its nest writes {' and '.join(nest.stored_buffers)}"
    elif others:
        because = f"{', '.join(others)} writes it too"
    elif nests.buffer(buffer).kind is Kind.INOUT:
        because = "it is updated in place: what was in it before is read"
    elif point is None:
        because = "a store does not name its element by loops alone"
    elif axes and sorted(axes) != sorted(point):
        because = f"its axes are {', '.join(point)}"
    if because:
        raise PartitionError(
            "cache_write",
            f"cannot compute {buffer} in a buffer of its own",
            at=f"stage {buffer}",
            because=because,
            help=help_,
        )


def build_cache_write(target: Target, step: Staging) -> Nests:
    """Return the schedule with the stage renamed, and the copy after it."""
    nests, nest, buffer, name = target.nests, target.nest, target.buffer, step.name
    original = nests.buffer(buffer)
    point = point_of(nest, buffer)
    assert point is not None
    order = tuple(map(point.index, _named_axes(target, step)))
    computes = replace(_stored_in(nest, buffer, name, order), name=name)
    element = Load(name, in_order(tuple(map(Var, point)), order), original.dtype)
    copy = read_nest(_copy(buffer, point, original.shape, element), nest.name, copies=True)
    local = local_buffer(step, original.dtype, in_order(original.shape, order))
    new_nests = tuple(
        new for n in nests.nests for new in ((computes, copy) if n.name == nest.name else (n,))
    )
    result = replace(nests, buffers=(*nests.buffers, local), nests=new_nests)
    alike = nests.source, result.source
    return result.rewritten(Rewrite(f"cache_write({buffer})", f"{buffer} = {name}", alike))


def _named_axes(target: Target, step: Staging) -> tuple[str, ...]:
    return target.axes("cache_write", *(axis for axis, _ in step.axes))


def in_order(parts: tuple[Expr, ...], order: Sequence[int]) -> tuple[Expr, ...]:
    """Return what an array has for each axis, by the places of `order`; none: as it is."""
    return tuple(parts[place] for place in order) if order else parts


def _stored_in(nest: Nest, old: str, new: str, order: Sequence[int]) -> Nest:
    """Return `nest` with the buffer `old` called `new`, its axes in this order, where it is stored and where it is read."""

    def redirect(node: Expr) -> Expr | None:
        match node:
            case Load(own, index, dtype) if own == old:
                return Load(new, in_order(index, order), dtype)
            case _:
                return None

    def renamed(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Store) or stmt.buffer != old:
            return stmt
        return replace(stmt, buffer=new, index=in_order(stmt.index, order))

    return with_statements(with_expressions(nest, lambda e: rewrite(e, redirect)), renamed)


def with_expressions(nest: Nest, change: Callable[[Expr], Expr]) -> Nest:
    """Return `nest` with `change` applied to the expressions of its statements."""
    return replace(
        nest,
        plain=tuple(map_expressions(stmt, change) for stmt in nest.plain),
        parts=tuple(
            replace(part, body=tuple(map_expressions(stmt, change) for stmt in part.body))
            for part in nest.parts
        ),
    )


def with_statements(nest: Nest, change: Callable[[Stmt], Stmt]) -> Nest:
    """Return `nest` with `change` applied to each of its statements, from the leaves up."""
    return replace(
        nest,
        plain=_change_statements(nest.plain, change),
        parts=tuple(
            replace(part, body=_change_statements(part.body, change)) for part in nest.parts
        ),
    )


def _change_statements(body: tuple[Stmt, ...], change: Callable[[Stmt], Stmt]) -> tuple[Stmt, ...]:
    statements: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                stmt = replace(stmt, body=_change_statements(stmt.body, change))
            case If():
                then, other = (
                    _change_statements(stmt.then, change),
                    _change_statements(stmt.other, change),
                )
                stmt = replace(stmt, then=then, other=other)
            case _:
                pass
        statements.append(change(stmt))
    return tuple(statements)
