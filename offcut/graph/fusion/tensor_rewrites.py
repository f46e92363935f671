"""Descriptions changed so that kernels are fast: what is point by point is written into its readers, arrays are taken in
the order in which their axes lie in memory, and axes that lie together and are used together become one.

Each change keeps what is computed for each element, and the order in which the terms of a sum are written: a result is bitwise the same,
but for sums along several axes that become one, whose lanes are of the long one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from sympy import sympify

from offcut.core import index as ix
from offcut.core.dtypes import ANY_ORDER
from offcut.core.expr import (
    Expr,
    Load,
    Reduce,
    Var,
    children,
    loads,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.sizes import Dim, with_sizes
from offcut.describe.tensor import Compute, Tensor, sizes_of, tensors_of
from offcut.describe.value import Axis, size_var
from offcut.graph.sizes import extents
from offcut.graph.tensor_semantics import SymbolTable

Changed = Callable[[Tensor, Mapping[str, Tensor]], Tensor]
LARGEST = 400
"""Nodes of an expression that is still written into others."""


def rebuilt(results: Sequence[Tensor], change: Changed) -> dict[str, Tensor]:
    """All tensors by name, each changed after those that it reads.

    change  from a tensor and those that it reads, changed, to what stands for it
    """
    rewritten: dict[str, Tensor] = {}
    for tensor in tensors_of(results):
        rewritten[tensor.name] = change(tensor, rewritten)
    return rewritten


def written_in(results: Sequence[Tensor], names: Collection[str]) -> tuple[Tensor, ...]:
    """The results, where those tensors that compute point by point from operands alone are written into their readers.

    names  of tensors that may be; what they are made of may be too

    Before: ``a[i] = x[i] + y[i]``, ``s[] = sum of a[i]``. After: ``s[] = sum of x[i] + y[i]``.
    """
    inner = tensors_of([tensor for tensor in tensors_of(results) if tensor.name in names])
    allowed = {tensor.name for tensor in inner} - {tensor.name for tensor in results}

    def plain(name: str, definition: Compute) -> bool:
        if (
            name not in allowed
            or definition.reduce_axes
            or any(one.definition for one in definition.reads)
        ):
            return False
        return sum(1 for _ in walk(definition.body)) <= LARGEST

    return written_where(results, plain)


def written_where(
    results: Sequence[Tensor], may: Callable[[str, Compute], bool]
) -> tuple[Tensor, ...]:
    """The results, where some tensors that compute point by point are written into their readers.

    may  whether a tensor is one of these, by its name and what it computes then
    """
    written: dict[str, Compute] = {}

    def change(tensor: Tensor, rewritten: Mapping[str, Tensor]) -> Tensor:
        definition = tensor.definition
        if definition is None:
            return tensor

        def rule(expr: Expr) -> Expr | None:
            if not isinstance(expr, Load) or expr.buffer not in written:
                return None
            own = (axis.name for axis in written[expr.buffer].axes)
            values = dict(zip(own, expr.index, strict=True))
            return substitute(written[expr.buffer].body, values)

        read, sizes = list[Tensor](), [*definition.sizes]
        for one in definition.reads:
            inlined = written.get(one.name)
            read += (rewritten[one.name],) if inlined is None else inlined.reads
            sizes += () if inlined is None else inlined.sizes
        reads, known = tuple(dict.fromkeys(read)), tuple(dict.fromkeys(sizes))
        body = rewrite(definition.body, rule)
        new_definition = replace(definition, body=body, reads=reads, sizes=known)
        if may(tensor.name, new_definition):
            written[tensor.name] = new_definition
        return replace(tensor, definition=new_definition)

    rewritten = rebuilt(results, change)
    return tuple(rewritten[tensor.name] for tensor in results)


def with_known(
    results: Sequence[Tensor], constants: Collection[str]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The results, where what depends on constants alone is a placeholder; and the tensors that these stand for.

    Before: ``s[c] = 1 / sqrt(v[c] + e)``, ``y[n, c] = x[n, c] * s[c]`` with a constant v. After: ``y`` with an operand s.
    """
    order = tensors_of(results)
    fixed = {tensor.name for tensor in order if tensor.name in constants}
    for tensor in order:
        definition = tensor.definition
        if definition is not None and tensor not in results:
            reads = {one.name for one in definition.reads}
            if reads and reads <= fixed and all(extent.is_Integer for extent in tensor.shape):
                fixed.add(tensor.name)
    stand_for: dict[str, Tensor] = {}

    def change(tensor: Tensor, rewritten: Mapping[str, Tensor]) -> Tensor:
        definition = tensor.definition
        if definition is None:
            return tensor
        if tensor.name in fixed:
            return replace(tensor, definition=None)
        for one in definition.reads:
            if one.name in fixed and one.definition is not None:
                stand_for[one.name] = one
        reads = tuple(rewritten[one.name] for one in definition.reads)
        return replace(tensor, definition=replace(definition, reads=reads))

    rewritten = rebuilt(results, change)
    return tuple(rewritten[tensor.name] for tensor in results), tuple(stand_for.values())


def without_single_terms(results: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results, where no sum runs along an axis of a single term: a window of one by one is no window, and a sum of one term
    is that term.

    Before: ``sum over c, r of x[y + r, c]`` with one ``r``. After: ``sum over c of x[y, c]``; with one ``c`` as well, ``x[y, 0]``.
    """

    def change(tensor: Tensor, rewritten: Mapping[str, Tensor]) -> Tensor:
        definition = tensor.definition
        if definition is None:
            return tensor
        reads = tuple(rewritten[one.name] for one in definition.reads)
        single = [axis for axis in definition.reduce_axes if axis.extent == 1]
        body, remaining = definition.body, definition.reduce_axes
        if single and isinstance(body, Reduce):
            names = dict.fromkeys((axis.name for axis in single), cast("Expr", ix.const(0)))
            remaining = tuple(axis for axis in remaining if axis not in single)
            value = rewrite(substitute(body.value, names), simpler)
            body = (
                Reduce(body.op, value, tuple(axis.name for axis in remaining))
                if remaining
                else value
            )
        new_definition = replace(definition, reads=reads, reduce_axes=remaining, body=body)
        return replace(tensor, definition=new_definition)

    rewritten = rebuilt(results, change)
    return tuple(rewritten[tensor.name] for tensor in results)


def simpler(expr: Expr) -> Expr | None:
    """A rule: what is read, by simple indices."""
    if not isinstance(expr, Load):
        return None
    return replace(expr, index=tuple(map(ix.simplify, expr.index)))


def permute_axes(
    results: Sequence[Tensor], orders: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """All tensors by name, the axes of some in another order: axis n of the new is axis ``order[n]`` of the old.

    What a tensor reads axis by axis, and is computed as well, takes the tensor's order. A largest or least one is sought in
    the order in which the axes are read.
    """
    orders_of_all = with_followers(results, orders)

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or expr.buffer not in orders_of_all:
            return None
        return replace(expr, index=tuple(expr.index[axis] for axis in orders_of_all[expr.buffer]))

    def change(tensor: Tensor, rewritten: Mapping[str, Tensor]) -> Tensor:
        order = orders_of_all.get(tensor.name, tuple(range(len(tensor.shape))))
        shape = tuple(tensor.shape[axis] for axis in order)
        if tensor.definition is None:
            return replace(tensor, shape=shape)
        axes = tuple(tensor.definition.axes[axis] for axis in order)
        body = rewrite(tensor.definition.body, rule)
        reads = tuple(rewritten[one.name] for one in tensor.definition.reads)
        new_definition = replace(tensor.definition, axes=axes, body=body, reads=reads)
        return replace(tensor, shape=shape, definition=_as_read(new_definition))

    return rebuilt(results, change)


def with_followers(
    results: Sequence[Tensor], orders: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Orders of the axes of tensors, and of those that these read axis by axis and that are computed as well."""
    followed = dict(orders)
    for tensor in reversed(tensors_of(results)):
        definition, order = tensor.definition, followed.get(tensor.name)
        if definition is None or order is None:
            continue
        own = [axis.name for axis in definition.axes]
        computed = {one.name for one in definition.reads if one.definition is not None}
        for load, _ in loads(definition.body):
            if load.buffer in computed and _axis_by_axis(load.index, own):
                followed.setdefault(load.buffer, order)
    return followed


def _axis_by_axis(index: Sequence[Expr], own: Sequence[str]) -> bool:
    """Whether each index depends on the axis of that number alone, among these, or on nothing."""
    names = [variables(part) for part in index]
    return len(index) == len(own) and all(
        axis_names & {*own} == {axis} or not axis_names
        for axis, axis_names in zip(own, names, strict=True)
    )


def _in_any_order(body: Expr) -> Reduce | None:
    """The reduction that `body` is, where its result is the same in every order."""
    return body if isinstance(body, Reduce) and body.op in ANY_ORDER else None


def _as_read(definition: Compute) -> Compute:
    """The definition, the axes along which it seeks the largest or the least one in the order in which the first array has them."""
    body, axes = _in_any_order(definition.body), {a.name: a for a in definition.reduce_axes}
    if body is None:
        return definition
    read = (part.name for load, _ in loads(body) for part in load.index if isinstance(part, Var))
    order = tuple(dict.fromkeys((*(name for name in read if name in axes), *axes)))
    reduce_axes = tuple(axes[name] for name in order)
    return replace(definition, reduce_axes=reduce_axes, body=replace(body, axes=order))


Pair = tuple[str, int]
"""Axes number n and n + 1 of the tensor of that name."""


def joined_rows(
    results: Sequence[Tensor], dims: SymbolTable, apart: Collection[Pair]
) -> tuple[dict[str, Tensor], dict[str, tuple[int, ...]]]:
    """All tensors by name, with axes that are side by side in all that uses them made one; and how many of the old axes each
    axis of a tensor is.

    apart  pairs of axes of operands and results that do not lie side by side in memory

    Before: ``y[b, n, j] = x[b, n, j] + v[j]``. After: ``y[bn, j] = x[bn, j] + v[j]``, with as many ``bn`` as the product.
    """
    tensors = tensors_of(results)
    pairs = _Pairs(tensors, apart)
    counts = {tensor.name: pairs.runs(tensor.name, len(tensor.shape)) for tensor in tensors}

    def long(extents_of: Sequence[Any]) -> Any:
        """The extent of axes that become one."""
        if len(extents_of) == 1:
            return sympify(extents_of[0])
        return sympify(dims.of(extents.product(map(dims.extent, extents_of))))

    def sought(definition: Compute, name: str) -> Compute:
        """Return the definition, the axes that it reduces over joined likewise."""
        axes, rearranged, at, reduction = definition.reduce_axes, list[Axis](), 0, definition.body
        if not isinstance(reduction, Reduce):
            return definition
        for count in pairs.runs(name, len(axes), len(definition.axes) + 1):
            parts = axes[at : at + count]
            rearranged.append(replace(parts[0], extent=long([axis.extent for axis in parts])))
            at += count
        body = replace(reduction, axes=tuple(axis.name for axis in rearranged))
        return replace(definition, reduce_axes=tuple(rearranged), body=body)

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load):
            return None
        return replace(expr, index=tuple(_first(expr.index, counts[expr.buffer])))

    def change(tensor: Tensor, rewritten: Mapping[str, Tensor]) -> Tensor:
        runs = counts[tensor.name]
        shape, axes, at = list[Any](), list[Axis](), 0
        for count in runs:
            shape.append(long(tensor.shape[at : at + count]))
            if tensor.definition is not None:
                axes.append(replace(tensor.definition.axes[at], extent=shape[-1]))
            at += count
        if tensor.definition is None:
            return replace(tensor, shape=tuple(shape))
        body = rewrite(tensor.definition.body, rule)
        reads = tuple(rewritten[one.name] for one in tensor.definition.reads)
        new_definition = replace(tensor.definition, body=body, reads=reads)
        new_definition = replace(sought(new_definition, tensor.name), axes=tuple(axes))
        return replace(tensor, shape=tuple(shape), definition=new_definition)

    return rebuilt(results, change), counts


def _first(index: tuple[Expr, ...], runs: Sequence[int]) -> Iterator[Expr]:
    at = 0
    for count in runs:
        yield index[at]
        at += count


class _Pairs:
    """Which neighbouring axes can be one: classes of pairs that stand or fall together."""

    def __init__(self, tensors: Sequence[Tensor], apart: Collection[Pair]) -> None:
        self.shapes = {tensor.name: tensor.shape for tensor in tensors}
        self.parent: dict[Pair, Pair] = {}
        self.broken: set[Pair] = set()
        for tensor in tensors:
            if tensor.definition is not None:
                self.read(tensor, tensor.definition)
        for pair in apart:
            self.broken.add(self.root(pair))

    def join(self, pair: Pair) -> bool:
        """Whether the two axes become one."""
        return self.root(pair) not in self.broken

    def runs(self, tensor: str, rank: int, first: int = 0) -> tuple[int, ...]:
        """How many axes, of so many from the first on, become one each time."""
        lengths = [1] if rank else []
        for axis in range(first, first + rank - 1):
            if self.join((tensor, axis)):
                lengths[-1] += 1
            else:
                lengths.append(1)
        return tuple(lengths)

    def root(self, pair: Pair) -> Pair:
        """The pair that stands for its class."""
        while pair in self.parent:
            pair = self.parent[pair]
        return pair

    def same(self, one: Pair, other: Pair) -> None:
        """Two pairs stand or fall together."""
        a, b = self.root(one), self.root(other)
        if a != b:
            self.parent[a] = b
            if a in self.broken:
                self.broken.add(b)

    def read(self, tensor: Tensor, definition: Compute) -> None:
        """Take account of what one tensor reads."""
        place = {axis.name: number for number, axis in enumerate(definition.axes)}
        extents_of = dict(enumerate(tensor.shape))
        body = definition.body
        if isinstance(body, Reduce):
            # Behind the tensor's own, with a number between that is no axis.
            behind = [*enumerate(definition.reduce_axes, len(tensor.shape) + 1)]
            place |= {axis.name: number for number, axis in behind}
            extents_of |= {number: axis.extent for number, axis in behind}
            body = body.value
        beside = _outside_of_loads(body)
        split = {number for name, number in place.items() if name in beside}
        for load, _ in loads(body):
            self.load(tensor.name, place, extents_of, load, split)
        for number in split:
            self.broken |= {self.root((tensor.name, at)) for at in (number - 1, number)}

    def load(
        self,
        reader: str,
        place: Mapping[str, int],
        extents_of: Mapping[int, Any],
        load: Load,
        split: set[int],
    ) -> None:
        """Pairs of what is read are pairs of the reader, or none."""
        shape = self.shapes[load.buffer]
        positions = [place.get(part.name) if isinstance(part, Var) else None for part in load.index]
        for axis, part in enumerate(load.index):
            if positions[axis] is None:
                split |= {place[name] for name in variables(part) if name in place}
        used = {number for number in positions if number is not None}
        paired = set[int]()
        for axis in range(len(load.index) - 1):
            one, other = positions[axis], positions[axis + 1]
            inner = (load.buffer, axis)
            alike = one is not None and other == one + 1
            if (
                alike
                and one is not None
                and all(shape[axis + n] == extents_of[one + n] for n in range(2))
            ):
                self.same(inner, (reader, one))
                paired.add(one)
            else:
                self.broken.add(self.root(inner))
        for number in used:
            for at in (number - 1, number):
                if at not in paired:
                    self.broken.add(self.root((reader, at)))


def _outside_of_loads(expr: Expr) -> set[str]:
    """Names that an expression uses elsewhere than as a whole index of an array."""
    if isinstance(expr, Var):
        return {expr.name}
    if isinstance(expr, Load):
        return set().union(*(variables(p) for p in expr.index if not isinstance(p, Var)))
    return set().union(*map(_outside_of_loads, children(expr)))


def with_own_sizes(
    tensors: Mapping[str, Tensor], results: Sequence[Tensor], operands: Sequence[Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors by name, their sizes called ``s0, s1, …`` by first appearance, their axes ``a0, a1, …``; and what each
    size was called.

    operands  operands, which may be read by nothing
    """
    order = [*operands, *(tensors[tensor.name] for tensor in tensors_of(results))]
    sizes = sizes_of(order)
    names = {size.name: f"s{number}" for number, size in enumerate(sizes)}
    now = {size: Dim(names[size.name], size.min, size.max, size.multiple_of) for size in sizes}
    variables_by_name: dict[str, Expr] = {
        size_var(old): Var(size_var(new)) for old, new in names.items()
    }

    def change(tensor: Tensor, rewritten: Mapping[str, Tensor]) -> Tensor:
        shape = tuple(with_sizes(extent, now) for extent in tensor.shape)
        if tensor.definition is None:
            return replace(tensor, shape=shape)
        definition = tensor.definition
        letters = dict[str, Expr](variables_by_name)
        axes, reduce_axes = list[Axis](), list[Axis]()
        for prefix, part, made_axes in (
            ("a", definition.axes, axes),
            ("r", definition.reduce_axes, reduce_axes),
        ):
            for number, axis in enumerate(part):
                letters[axis.name] = Var(f"{prefix}{number}")
                made_axes.append(Axis(f"{prefix}{number}", with_sizes(axis.extent, now)))
        reads = tuple(rewritten[one.name] for one in definition.reads)
        own = tuple(now[size] for size in definition.sizes)
        body = substitute(definition.body, letters)
        if isinstance(body, Reduce):
            body = replace(body, axes=tuple(axis.name for axis in reduce_axes))
        new_definition = Compute(tuple(axes), tuple(reduce_axes), body, reads, own)
        return replace(tensor, shape=shape, definition=new_definition)

    rewritten = rebuilt(results, change)
    rewritten |= {
        tensor.name: change(tensor, rewritten)
        for tensor in operands
        if tensor.name not in rewritten
    }
    return rewritten, {new: old for old, new in names.items()}
