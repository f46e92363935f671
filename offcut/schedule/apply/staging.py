"""The primitives on stages: cache_read, cache_write, compute_inline, rfactor.

They change the program that is scheduled, each by an equation of its own; loops come after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.dtypes import ITEM_BYTES, identity, reduction_start
from offcut.core.expr import (
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    children,
    dtype_of,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.intervals import ends
from offcut.core.program import Buffer, For, If, Kind, Stmt, Store, map_expressions
from offcut.core.text.expressions import parse_expr
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr, format_stmt
from offcut.describe.computation import Names
from offcut.errors import DescribeError, ParseError, PartitionError
from offcut.schedule.apply.axes import Target, check_new, find_stage
from offcut.schedule.apply.placing import reads
from offcut.schedule.apply.reading import loads_of, read_nest
from offcut.schedule.apply.staged_form import Nest, Nests, Rewrite, Root, point_of
from offcut.schedule.decisions import RFactor, SplitPair, Staging, primitive_of
from offcut.schedule.refusing import split_advice


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


def check_layout(op: str, buffer: Buffer) -> None:
    """Theorem: each element of an array has a place of its own in its layout."""
    if buffer.layout is None:
        return
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
    named = [nest.name for nest in nests.nests if reads(nests, nest.name, buffer)]
    for name in readers:
        if name not in named:
            raise PartitionError(
                "cache_read",
                f"cannot let {name} read a copy of {buffer}",
                at=f"stage {name}",
                because=f"it does not read {buffer}",
                help=(f"{buffer} is read by {', '.join(named) or 'nothing'}",),
            )
    if not readers:
        raise PartitionError(
            "cache_read",
            f"cannot cache {buffer} for nobody",
            because=f"readers is empty, and {', '.join(named) or 'nothing'} reads {buffer}",
        )
    places = [k for k, nest in enumerate(nests.nests) if nest.name in readers]
    for late in nests.nests[min(places) : max(places) + 1]:
        if buffer in late.written:
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
    copy = read_nest(_copy(name, original, buffer, names), name, copies=True)

    def moved(node: Expr) -> Expr | None:
        match node:
            case Load(found, index, dtype) if found == buffer:
                return Load(name, index, dtype)
            case _:
                return None

    changed = tuple(
        with_expressions(n, lambda e: rewrite(e, moved)) if n.name in readers else n
        for n in nests.nests
    )
    local = local_buffer(step, original.dtype, original.shape)
    listed = (*changed[:first], copy, *changed[first:])
    made = replace(nests, buffers=(*nests.buffers, local), nests=listed)
    alike = None if _is_gathered(nests, buffer) else (nests.source, made.source)
    return made.rewritten(Rewrite(f"cache_read({buffer})", f"{name} = {buffer}", alike))


def stage_value(nests: Nests, step: Staging) -> Nests:
    """Return the schedule with the values of an expression in an array of their own, which `readers` read instead.

    ``C[i] = sum of where(2*i + r >= 1, X[2*i + r - 1], 0) * W[r]`` reads ``X_in[2*i + r]`` after
    ``X_in[u] = where(u >= 1, X[u - 1], 0)`` for all u that are read.
    """
    check_scope("stage_value", step.name, step.memory)
    at = f"stage {step.readers[0]}" if step.readers else ""
    axes = tuple(axis for axis, _ in step.axes)
    check_new("stage_value", at, nests.names(), step.name)
    taken = {*(size.name for size in nests.sizes), *(b.name for b in nests.buffers), step.name}
    check_new("stage_value", at, Names(taken), *axes)
    readers = [find_stage(nests, reader).nest for reader in step.readers]
    value = _staged_value(nests, step, at)
    shape = tuple(_extent_along(nests, readers[0], step, axis, at) for axis, _ in step.axes)
    check_unwritten(nests, step, value, [nest.name for nest in readers])
    return build_stage_value(nests, step, value, shape)


def _staged_value(nests: Nests, step: Staging, at: str) -> Expr:
    """Return the expression of a staging, over the axes of its array.

    Raises PartitionError for what is no expression of these.
    """
    names = (*(axis for axis, _ in step.axes), *(size.name for size in nests.sizes))
    try:
        return parse_expr(step.what, buffers=nests.buffers, names=names)
    except ParseError as refused:
        raise PartitionError(
            "stage_value",
            f"cannot stage {step.what}",
            at=at,
            because=f"{refused.refused}: {refused.because}",
            help=refused.help,
        ) from None


def _extent_along(nests: Nests, reader: Nest, step: Staging, axis: str, at: str) -> Expr:
    """Return how many values an axis of a staged array has: those that its reader's loops give it, from 0."""
    value = dict(step.axes)[axis]
    ranges = {root.name: (root.lo, ix.sub(root.hi, 1)) for root in reader.roots}
    found = ends(value, ranges)
    if found is None or (ix.literal_value(found[0]) or 0) < 0 or set(ranges) & variables(found[1]):
        raise PartitionError(
            "stage_value",
            f"cannot stage {step.what} along {axis} = {format_expr(value)}",
            at=at,
            because="that is no sum of loops that begins at 0 or above, and ends at one place at each size",
            help=(f"loops of {reader.name}: {', '.join(ranges)}",),
        )
    return ix.add(found[1], 1)


def check_unwritten(nests: Nests, step: Staging, value: Expr, readers: Sequence[str]) -> None:
    """Theorem: no statement from the array on, up to the last reader, writes what its values are made of."""
    used = {node.buffer for node in walk(value) if isinstance(node, Load)}
    places = [k for k, nest in enumerate(nests.nests) if nest.name in readers]
    for late in nests.nests[min(places) : max(places) + 1]:
        written = used & set(late.written)
        if written and late.name not in used:
            raise PartitionError(
                "stage_value",
                f"cannot stage {step.what}",
                at=f"stage {late.name}",
                because=f"{late.name} writes {', '.join(sorted(written))}, and the values would be of what was before",
            )


def build_stage_value(nests: Nests, step: Staging, value: Expr, shape: tuple[Expr, ...]) -> Nests:
    """Return the schedule with the array before its first reader, which reads it where it had the expression.

    Raises PartitionError if a reader has no such expression.
    """
    names, at = [axis for axis, _ in step.axes], dict(step.axes)
    like = _normal_form(substitute(value, at))
    point = tuple(value for _, value in step.axes)
    dtype, replaced = dtype_of(value), set[str]()
    changed = []
    for nest in nests.nests:
        if nest.name not in step.readers and not set(step.readers) & set(nest.written):
            changed.append(nest)
            continue

        def moved(node: Expr, nest: Nest = nest) -> Expr | None:
            if dtype_of(node) != dtype or _normal_form(node) != like:
                return None
            replaced.add(nest.name)
            return Load(step.name, point, dtype)

        changed.append(with_expressions(nest, partial(_rewritten, moved)))
    for reader in step.readers:
        if find_stage(nests, reader).name not in replaced:
            raise PartitionError(
                "stage_value",
                f"cannot stage {step.what} for {reader}",
                at=f"stage {reader}",
                because=f"it computes no {format_expr(ix.fold_indices(substitute(value, at)))}",
                help=tuple(
                    format_stmt(store)
                    for part in find_stage(nests, reader).nest.parts
                    for store in part.stores
                    if not isinstance(store.value, Const)
                ),
            )
    first = min(k for k, nest in enumerate(changed) if nest.name in replaced)
    vars_ = tuple(Var(name) for name in names)
    body: tuple[Stmt, ...] = (Store(step.name, vars_, value),)
    for name, extent in reversed(tuple(zip(names, shape, strict=True))):
        body = (For(name, ix.const(0), extent, body),)
    made = read_nest(body, step.name, copies=True)
    local = local_buffer(step, dtype, shape)
    listed = (*changed[:first], made, *changed[first:])
    done = replace(nests, buffers=(*nests.buffers, local), nests=listed)
    alike = nests.source, done.source
    return done.rewritten(Rewrite(f"stage_value({step.name})", f"{step.name} = {step.what}", alike))


def _rewritten(rule: Callable[[Expr], Expr | None], expr: Expr) -> Expr:
    return rewrite(expr, rule)


def _normal_form(expr: Expr) -> object:
    """Return what two expressions have in common that are equal but for the order of sums of indices."""
    match expr:
        case Compare(op, a, b) if dtype_of(a) == "index":
            left = ix.to_linear(ix.sub(a, b))
            if op in (">", ">="):
                left, op = ix.to_linear(ix.sub(b, a)), {">": "<", ">=": "<="}[op]
            if op == "<=":
                left, op = ix.to_linear(ix.sub(left.expr(), 1)), "<"
            return op, left.const, frozenset((repr(atom), k) for atom, k in left.terms)
        case Load(buffer, index, _):
            return buffer, tuple(map(_normal_form, index))
        case Logic("and"):
            return "and", frozenset(map(_normal_form, conjuncts(expr)))
    if dtype_of(expr) == "index":
        form = ix.to_linear(expr)
        return form.const, frozenset((repr(atom), k) for atom, k in form.terms)
    inner = children(expr)
    if not inner:
        return repr(expr)
    own = type(expr).__name__, getattr(expr, "op", getattr(expr, "dtype", ""))
    return own, tuple(map(_normal_form, inner))


def _is_gathered(nests: Nests, buffer: str) -> bool:
    """Return whether the values of an array say which elements of `buffer` are read: no set knows these."""
    return any(
        isinstance(node, Load)
        for nest in nests.nests
        for load in loads_of(nest.plain)
        if load.buffer == buffer
        for part in load.index
        for node in walk(part)
    )


def _copy(to: str, original: Buffer, source: str, names: Sequence[str]) -> tuple[Stmt, ...]:
    point = tuple(Var(name) for name in names)
    body: tuple[Stmt, ...] = (Store(to, point, Load(source, point, original.dtype)),)
    for name, extent in reversed(tuple(zip(names, original.shape, strict=True))):
        body = (For(name, ix.const(0), extent, body),)
    return body


def _axis_names(nest: Nest, buffer: str, rank: int) -> list[str]:
    """Names for the axes of a copy: those with which it is read, where they are such."""
    for part in nest.parts:
        for store in part.stores:
            for node in walk(store.value):
                if isinstance(node, Load) and node.buffer == buffer:
                    found = [p.name for p in node.index if isinstance(p, Var)]
                    if len(set(found)) == rank:
                        return found
    return [f"a{k}" for k in range(rank)]


def cache_write(target: Target, step: Staging) -> Nests:
    """Return the schedule with the stage computed in a buffer of its own in `memory`, then copied out.

    ``C[y, x] = …`` becomes ``CL[y, x] = …``, and after it ``C[y, x] = CL[y, x]`` for all elements.
    """
    check_scope("cache_write", target.buffer, step.memory)
    check_new("cache_write", f"stage {target.buffer}", target.nests.names(), step.name)
    check_cache_write(target)
    return build_cache_write(target, step)


def check_cache_write(target: Target) -> None:
    """Theorem: the nest writes every element of the buffer before it reads it, and is the only one
    that writes it, so that nothing but the copy was in it.
    """
    nests, nest, buffer = target.nests, target.nest, target.buffer
    because, help_ = "", tuple[str, ...]()
    others = [n.name for n in nests.nests if n.name != nest.name and buffer in n.written]
    if not nest.untouched:
        because = "its loops are scheduled already"
        help_ = ("caches come first, then loops",)
    elif nest.written != (buffer,):
        because = f"its nest writes {' and '.join(nest.written)}"
    elif others:
        because = f"{', '.join(others)} writes it too"
    elif nests.buffer(buffer).kind is Kind.INOUT:
        because = "it is updated in place: what was in it before is read"
    elif point_of(nest, buffer) is None:
        because = "a store does not name its element by loops alone"
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
    computes = replace(_stored_in(nest, buffer, name), name=name)
    copy = read_nest(_copy(buffer, original, name, point), nest.name, copies=True)
    local = local_buffer(step, original.dtype, original.shape)
    listed = tuple(
        new for n in nests.nests for new in ((computes, copy) if n.name == nest.name else (n,))
    )
    made = replace(nests, buffers=(*nests.buffers, local), nests=listed)
    alike = nests.source, made.source
    return made.rewritten(Rewrite(f"cache_write({buffer})", f"{buffer} = {name}", alike))


def _stored_in(nest: Nest, old: str, new: str) -> Nest:
    """Return `nest` with the buffer `old` called `new`, where it is stored and where it is read."""

    def moved(node: Expr) -> Expr | None:
        match node:
            case Load(found, index, dtype) if found == old:
                return Load(new, index, dtype)
            case _:
                return None

    def renamed(stmt: Stmt) -> Stmt:
        return replace(stmt, buffer=new) if isinstance(stmt, Store) and stmt.buffer == old else stmt

    return with_statements(with_expressions(nest, lambda e: rewrite(e, moved)), renamed)


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
        plain=_changed(nest.plain, change),
        parts=tuple(replace(part, body=_changed(part.body, change)) for part in nest.parts),
    )


def _changed(body: tuple[Stmt, ...], change: Callable[[Stmt], Stmt]) -> tuple[Stmt, ...]:
    made: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                stmt = replace(stmt, body=_changed(stmt.body, change))
            case If():
                then, other = _changed(stmt.then, change), _changed(stmt.other, change)
                stmt = replace(stmt, then=then, other=other)
            case _:
                pass
        made.append(change(stmt))
    return tuple(made)


def compute_inline(target: Target) -> Nests:
    """Return the schedule with the stage computed wherever it is read, and nowhere else."""
    check_compute_inline(target)
    return build_compute_inline(target)


def check_compute_inline(target: Target) -> None:
    """Theorem: the stage is one equation ``P[i, j] = e(i, j)`` over elements that are written before
    it and not after, so ``P[a, b]`` is ``e(a, b)`` wherever it is read.
    """
    nests, nest, buffer = target.nests, target.nest, target.buffer
    stores = [store for part in nest.parts for store in part.stores]
    because, help_ = "", tuple[str, ...]()
    after = nests.nests[nests.nests.index(nest) + 1 :]
    sources = {n.buffer for s in stores for n in walk(s.value) if isinstance(n, Load)}
    changed = [n.name for n in after if sources & set(n.written)]
    kind = nests.buffer(buffer).kind
    if kind is not Kind.LOCAL:
        because = f"{buffer} is {kind.value}: all of it is wanted"
    elif len(stores) != 1 or stores[0].reduce is not None:
        because = "it is a reduction, which takes more than one store"
        help_ = (f"{buffer} computed at a loop of its reader",)
    elif any(part.body != (store,) for part in nest.parts for store in part.stores):
        because = "its store is under a condition"
    elif point_of(nest, buffer) is None:
        because = "its store does not name its element by loops alone"
    elif buffer in sources:
        because = "it reads itself"
    elif changed:
        because = f"{changed[0]} writes what it reads"
    elif not nest.untouched:
        because = "its loops are scheduled already"
    if because:
        raise PartitionError(
            "compute_inline",
            f"cannot inline {buffer}",
            at=f"stage {buffer}",
            because=because,
            help=help_,
        )


def build_compute_inline(target: Target) -> Nests:
    """Return the schedule with the equation put in at every read, and the stage and its buffer gone."""
    nests, nest, buffer = target.nests, target.nest, target.buffer
    point = point_of(nest, buffer)
    (store,) = (store for part in nest.parts for store in part.stores)
    assert point is not None
    names = point

    def put_in(node: Expr) -> Expr | None:
        match node:
            case Load(found, index, _) if found == buffer:
                values: Mapping[str, Expr] = dict(zip(names, index, strict=True))
                return ix.fold_indices(substitute(store.value, values))
            case _:
                return None

    made = replace(
        nests,
        buffers=tuple(b for b in nests.buffers if b.name != buffer),
        nests=tuple(
            with_expressions(n, lambda e: rewrite(e, put_in))
            for n in nests.nests
            if n.name != nest.name
        ),
    )
    # What computes the stage besides is seen through.
    alike = None if _is_gathered(nests, buffer) else (made.source, nests.source)
    return made.rewritten(Rewrite(f"compute_inline({buffer})", format_stmt(store), alike))


def rfactor(target: Target, step: RFactor) -> Nests:
    """Return the schedule with a reduction in two: over what is inside `axis`, for each value of it; then over `axis`.

    With ``k = 8*ko + ki`` and ``axis = ko``: ``CF[ko, i] = sum over ki``, ``C[i] = sum over ko``.
    """
    step = replace(step, axis=target.axis("rfactor", step.axis))
    check_new("rfactor", f"stage {target.buffer}", target.nests.names(), step.name)
    check_rfactor(target, step.axis)
    return build_rfactor(target, step)


def _reduction(target: Target) -> tuple[Store, Store, tuple[str, ...]] | None:
    """Start and update of a stage that is one reduction, and its reduction axes."""
    nest = target.nest
    stores = [store for part in nest.parts for store in part.stores]
    point = point_of(nest, target.buffer)
    if len(stores) != 2 or point is None or any(len(part.body) != 1 for part in nest.parts):
        return None
    start, update = stores
    if start.reduce is not None or update.reduce is None:
        return None
    return start, update, tuple(r.name for r in nest.roots if r.name not in point)


def check_rfactor(target: Target, axis: str) -> None:
    """Theorem: the reduction is declared (``sum``, ``max``, ``min``), so its terms may be grouped;
    `axis` is one of its own, and groups them.
    """
    nest, found = target.nest, _reduction(target)
    because, help_ = "", tuple[str, ...]()
    made = nest.made_by(axis)
    if found is None:
        because = f"{target.buffer} is not one reduction with its start"
    elif not set(nest.origins(axis)) <= set(found[2]):
        because = f"{axis} is not a reduction axis of {target.buffer}"
        help_ = (f"reduction axes: {', '.join(found[2])}",)
    elif made is None and len(found[2]) == 1:
        because = f"nothing is reduced inside {axis}"
        help_ = (split_advice(target.stage, axis, 8),)
    elif (
        (made is not None and (not isinstance(made, SplitPair) or len(nest.relations) > 1))
        or nest.at is not None
        or nest.covered is not None
        or nest.marks
    ):
        because = "its loops are scheduled already"
        help_ = ("split the reduction axis, then rfactor, then the rest",)
    if because:
        raise PartitionError(
            "rfactor",
            f"cannot factor {axis} out of {target.buffer}",
            at=f"stage {target.buffer}",
            because=because,
            help=help_,
        )


def build_rfactor(target: Target, step: RFactor) -> Nests:
    """Return the schedule with two stages where there was one, their loops as described."""
    nests, nest, buffer = target.nests, target.nest, target.buffer
    axis, name = step.axis, step.name
    found, original = _reduction(target), nests.buffer(target.buffer)
    point = point_of(nest, buffer)
    assert found is not None
    assert point is not None
    start, update, reduced = found
    made = nest.made_by(axis)
    value, inner = update.value, [nest.root(r) for r in reduced if r != axis]
    loops = [r for r in inner if r is not None]
    mine = nest.root(axis)
    extent = ix.sub(mine.hi, mine.lo) if mine is not None else ix.const(0)
    if mine is not None:
        value = substitute(value, {axis: ix.add(Var(axis), mine.lo)})
    if isinstance(made, SplitPair):
        root = nest.root(made.axis)
        assert root is not None
        length = ix.sub(root.hi, root.lo)
        blocks = ix.ceildiv(length, made.factor)
        offset = ix.add(ix.mul(made.factor, Var(made.outer)), Var(made.inner))
        value = ix.fold_indices(substitute(value, {root.name: ix.add(root.lo, offset)}))
        if ix.literal_value(ix.mod(length, made.factor)) != 0:
            dtype = dtype_of(value)
            nothing = Const(identity(str(update.reduce), dtype), dtype)
            value = Select(Compare("<", offset, length), value, nothing)
        other = made.inner if axis == made.outer else made.outer
        extent = blocks if axis == made.outer else ix.const(made.factor)
        reach = ix.const(made.factor) if axis == made.outer else blocks
        loops = [
            Root(other, other, ix.const(0), reach) if r.name == root.name else r for r in loops
        ]
    point_vars = tuple(Var(p) for p in point)
    wide = (Var(axis), *point_vars)
    dtype = original.dtype
    begin = Const(reduction_start(str(update.reduce), dtype), dtype)
    body: tuple[Stmt, ...] = (Store(name, wide, value, update.reduce),)
    for loop in reversed(loops):
        body = (For(loop.name, loop.lo, loop.hi, body),)
    body = (Store(name, wide, begin), *body)
    outer = [nest.root(p) for p in point]
    around = [r for r in outer if r is not None]

    def nested(inside: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        for loop in reversed(around):
            inside = (For(loop.name, loop.lo, loop.hi, inside),)
        return inside

    factored = (For(axis, ix.const(0), extent, nested(body)),)
    last = Store(buffer, point_vars, Load(name, wide, dtype), update.reduce)
    finish = nested((start, For(axis, ix.const(0), extent, (last,))))
    local = Buffer(name, dtype, (extent, *original.shape), Kind.LOCAL)
    two = read_nest(factored, name), replace(read_nest(finish, nest.name))
    listed = tuple(new for n in nests.nests for new in (two if n.name == nest.name else (n,)))
    done = replace(nests, buffers=(*nests.buffers, local), nests=listed)
    of, equation = f"rfactor({target.buffer}, {axis})", f"{format_stmt(update)}, grouped by {axis}"
    return done.rewritten(Rewrite(of, equation, None, groups=update.reduce == "sum"))
