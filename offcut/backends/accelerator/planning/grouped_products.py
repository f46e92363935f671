"""Products of groups, whose channels lie side by side in main memory, as products with an axis of groups.

Words run along an index that is an axis by itself. In a grouped convolution none is: channels are read at
``k*g + c`` of the inputs and at ``m*g + o`` of the weights, sums at ``o // m`` and ``o % m``. The host takes
such indices apart before, and joins them behind::

    S[g, o] = sum(X[k*g + c] * W[c, m*g + o], c)     X_groups[g, c] = X[k*g + c]
    Y[o] = int8(S[o // m, o % m] // 64)              W_groups[c, g, o] = W[c, m*g + o]
                                               ->    S[g, o] = sum(X_groups[g, c] * W_groups[c, g, o], c)
                                                     Y_groups[g, o] = int8(S[g, o] // 64)
                                                     Y[o] = Y_groups[o // m, o % m]

so that a group is a product of its own, and what is done to its sums point by point is done before they are stored: a
bias, whose elements the host lays by groups, a shift, a clip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Var,
    all_loads,
    rewrite,
    substitute,
    variables,
)
from offcut.core.program import Buffer, Kind
from offcut.describe.computation import Computation, Stage, StageAxis, read_by_other_groups

Group = tuple[Stage, ...]


def split_groups(computation: Computation) -> tuple[Computation, ...]:
    """The computation with an axis for groups, behind a step on the way to it; itself alone where nothing is grouped."""
    read = _with_groups(computation, list(map(_without_names(computation), computation.groups)), ())
    regrouped = _Regrouped(read)
    groups: list[Group] = []
    for group in read.groups:
        groups += regrouped.split_channels(group)
    groups = regrouped.join_channels(groups)
    if not regrouped.added:
        return (computation,)
    return read, _with_groups(read, groups, regrouped.added)


def _without_names(computation: Computation) -> Callable[[Group], Group]:
    """What leaves out stages of a group that are an element by another name, which the others then read."""
    kinds = {buffer.name: buffer.kind for buffer in computation.buffers}

    def without(group: Group) -> Group:
        named: dict[str, Expr] = {}
        stages: list[Stage] = []

        def rule(node: Expr) -> Expr | None:
            return named.get(node.buffer) if isinstance(node, Load) else None

        for stage in group:
            body = rewrite(stage.body, rule)
            if isinstance(body, Load) and kinds[stage.buffer] is Kind.PRIVATE:
                named[stage.buffer] = body
            else:
                stages.append(replace(stage, body=body))
        return tuple(stages)

    return without


def _with_groups(
    computation: Computation, groups: Sequence[Group], added: Sequence[Buffer]
) -> Computation:
    """The computation of these groups, with the arrays that they need."""
    shared = read_by_other_groups(tuple(groups))
    shapes = {s.buffer: tuple(a.extent for a in s.axes) for group in groups for s in group}
    inner = (Kind.LOCAL, Kind.PRIVATE)
    buffers = [
        replace(
            one, shape=shapes[one.name], kind=Kind.LOCAL if one.name in shared else Kind.PRIVATE
        )
        if one.kind in inner
        else one
        for one in (*computation.buffers, *added)
        if one.name in shapes or one.kind not in inner
    ]
    return replace(computation, groups=tuple(groups), buffers=tuple(buffers))


def is_regrouping(group: Group, computation: Computation) -> bool:
    """Whether a group takes indices of an array apart, or joins them, and does no more: the host does that."""
    stage = group[0]
    if len(group) > 1 or not isinstance(stage.body, Load):
        return False
    kinds = {computation.buffer(name).kind for name in (stage.buffer, stage.body.buffer)}
    index = stage.body.index
    apart = any(_of_two(part, stage.axes) is not None for part in index)
    return Kind.LOCAL in kinds and (apart or _in_parts(index, stage.axes) is not None)


class _Regrouped:
    """Groups of a computation, and the arrays in main memory that they need beside its own."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.kinds = {buffer.name: buffer.kind for buffer in computation.buffers}
        self.dtypes = {buffer.name: buffer.dtype for buffer in computation.buffers}
        self.names = computation.names()
        self.added: list[Buffer] = []

    def array(self, of: str, axes: Sequence[StageAxis]) -> str:
        """A new one with an axis for groups."""
        name = self.names.fresh(f"{of}_groups")
        shape = tuple(axis.extent for axis in axes)
        self.added.append(Buffer(name, self.dtypes[of], shape, Kind.LOCAL))
        return name

    def split_channels(self, group: Group) -> list[Group]:
        """The group, behind copies of the factors of its sum that have an axis for groups."""
        lead, *rest = group
        factors = all_loads(lead.value)
        if lead.reducer != "sum" or len(factors) != 2:
            return [group]
        both = {axis.name for axis in lead.axes}
        for factor in factors:
            both &= {name for part in factor.index for name in variables(part)}
        every = (*lead.axes, *lead.reduce_axes)
        copies: dict[Load, Load] = {}
        parts: list[Group] = []
        for factor in factors:
            pairs = [_of_two(part, every) for part in factor.index]
            pairs = [pair if pair is not None and pair[0].name in both else None for pair in pairs]
            if factor not in copies and any(pairs) and self.is_whole(factor, pairs):
                copy, copies[factor] = self.copy_of_factor(factor, pairs)
                parts.append((copy,))

        def rule(node: Expr) -> Expr | None:
            return copies.get(node) if isinstance(node, Load) else None

        return [*parts, (replace(lead, body=rewrite(lead.body, rule)), *rest)]

    def is_whole(self, factor: Load, pairs: Sequence[tuple[StageAxis, StageAxis] | None]) -> bool:
        """Whether the parts of an index are all that there is along its axis."""
        shape = self.computation.buffer(factor.buffer).shape
        return all(
            pair is None
            or ix.literal_value(extent) == ix.literal_value(ix.mul(*(a.extent for a in pair)))
            for pair, extent in zip(pairs, shape, strict=True)
        )

    def copy_of_factor(
        self, factor: Load, pairs: Sequence[tuple[StageAxis, StageAxis] | None]
    ) -> tuple[Stage, Load]:
        """The copy of an array with two axes for each index of two parts, and how it is read."""
        axes: list[StageAxis] = []
        index: list[Expr] = []
        read: list[Expr] = []
        shape = self.computation.buffer(factor.buffer).shape
        for part, pair, extent in zip(factor.index, pairs, shape, strict=True):
            extents = [extent] if pair is None else [axis.extent for axis in pair]
            names = [self.names.fresh("at") for _ in extents]
            axes += [StageAxis(name, one, name) for name, one in zip(names, extents, strict=True)]
            read += [part] if pair is None else [Var(axis.name) for axis in pair]
            here: Expr = Var(names[-1])
            if pair is not None:
                here = ix.add(ix.mul(extents[-1], Var(names[0])), here)
            index.append(here)
        name = self.array(factor.buffer, axes)
        body = Load(factor.buffer, tuple(index), factor.dtype)
        return Stage(name, name, tuple(axes), (), body), Load(name, tuple(read), factor.dtype)

    def join_channels(self, groups: Sequence[Group]) -> list[Group]:
        """Groups, where one that reads sums at parts of its indices runs along these parts, and is joined behind."""
        joined_groups: list[Group] = []
        for group in groups:
            for sums in joined_groups:
                read = self.read_in_parts(group, sums, groups)
                if read is not None:
                    joined_groups.remove(sums)
                    joined_groups += self.along_parts(group, sums, read)
                    break
            else:
                joined_groups.append(group)
        return joined_groups

    def read_in_parts(self, group: Group, sums: Group, groups: Sequence[Group]) -> Load | None:
        """The element that `group`, point by point, reads of sums, where it reads one alone, nobody else reads any, and
        its parts are those of its own point; None where it is not so.
        """
        own = {stage.buffer for stage in sums}
        reads = {node for node in _loads(group) if node.buffer in own}
        others = (one for one in groups if one is not group and own.isdisjoint(_stored_arrays(one)))
        crossing = any(node.buffer in own for one in others for node in _loads(one))
        *inner, last = (self.kinds.get(stage.buffer) for stage in group)
        has_private_stages = last in (Kind.OUTPUT, Kind.LOCAL) and all(
            one is Kind.PRIVATE for one in inner
        )
        plain = has_private_stages and all(
            s.reducer is None and _bounds(s) == _bounds(group[0]) for s in group
        )
        if sums[0].reducer is None or len(reads) != 1 or crossing or not plain:
            return None
        (read,) = reads
        values = _in_parts(read.index, group[0].axes, sums[0].axes)
        return None if values is None else read

    def along_parts(self, group: Group, sums: Group, read: Load) -> list[Group]:
        """Sums with what `group` does to them, and the copy that joins its results."""
        axes = sums[0].axes
        point = tuple(Var(axis.name) for axis in axes)
        values = _in_parts(read.index, group[0].axes, axes)
        assert values is not None
        named = {read.buffer: read.buffer, **{s.buffer: self.array(s.buffer, axes) for s in group}}

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Load):
                return None
            if node.buffer in named:
                return Load(named[node.buffer], point, node.dtype)
            return Load(node.buffer, tuple(map(ix.simplify, node.index)), node.dtype)

        inside = (
            Stage(named[s.buffer], s.label, axes, (), rewrite(substitute(s.body, values), rule))
            for s in group
        )
        last = group[-1]
        whole = Load(named[last.buffer], read.index, self.dtypes[last.buffer])
        return [(*sums, *inside), (replace(last, body=whole),)]


def _loads(group: Group) -> list[Load]:
    return [load for stage in group for load in all_loads(stage.value)]


def _bounds(stage: Stage) -> tuple[tuple[str, Expr], ...]:
    """Return the axes of a stage and their extents, whatever the user calls each."""
    return tuple((axis.name, axis.extent) for axis in stage.axes)


def _stored_arrays(group: Group) -> set[str]:
    return {stage.buffer for stage in group}


def _of_two(part: Expr, axes: Sequence[StageAxis]) -> tuple[StageAxis, StageAxis] | None:
    """The axes ``(a, b)`` of an index ``k*a + b`` with b in 0:k; None of any other."""
    form, named = ix.to_linear(part), {axis.name: axis for axis in axes}
    match sorted(form.terms, key=lambda term: -term[1]):
        case [(Var(a), k), (Var(b), 1)] if form.const == 0 and a in named and b in named and k > 1:
            return (named[a], named[b]) if ix.literal_value(named[b].extent) == k else None
    return None


def _in_parts(
    index: Sequence[Expr], axes: Sequence[StageAxis], of: Sequence[StageAxis] | None = None
) -> dict[str, Expr] | None:
    """Each axis by those that an array has, where the array is read at all of them: an axis alone, or ``a // k`` and
    ``a % k``, one at least; None where it is read otherwise.

    of  the axes of the array; None: any of its shape
    """
    values: dict[str, Expr] = {}
    used: list[int] = []
    for axis in axes:
        here = Var(axis.name)
        alone = [at for at, part in enumerate(index) if part == here]
        parts = [
            (at, part.op, part.b)
            for at, part in enumerate(index)
            if isinstance(part, Binary) and part.a == here and isinstance(part.b, Const)
        ]
        match alone, sorted(parts, key=lambda one: one[1] == "%"):
            case [at], []:
                used.append(at)
                values[axis.name] = here if of is None else Var(of[at].name)
            case [], [(a, "//", Const(k) as m), (b, "%", same)] if m == same:
                used += [a, b]
                if of is not None:
                    inner, outer = ix.literal_value(of[b].extent), ix.literal_value(of[a].extent)
                    if (
                        inner != k
                        or outer is None
                        or ix.literal_value(axis.extent) != outer * int(k)
                    ):
                        return None
                    values[axis.name] = ix.add(ix.mul(int(k), Var(of[a].name)), Var(of[b].name))
                else:
                    values[axis.name] = here
            case _:
                return None
    whole = sorted(used) == list(range(len(index))) and len(index) > len(axes)
    return values if whole else None
