"""The binding of a call: a signature and arguments go in; views and sizes that fit it come out.

Every check of a call has its message here. Nothing is copied, and nothing computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from offcut.backends.abi import AffineFact, Argument, Signature
from offcut.backends.host import arrays, fast_entry
from offcut.backends.host.arrays import ArrayView
from offcut.core.expr import Expr
from offcut.core.extents import factor_of, names_of, number_at
from offcut.core.integers import whole
from offcut.core.program import MAX_SIZE, Size
from offcut.core.text.printer import format_expr
from offcut.errors import CallError

_ELSEWHERE = "leave out= away, or give it memory of its own"
_KEYWORD = "the keyword"


@dataclass(frozen=True, slots=True)
class _Axis:
    """The axis of an input that determines a size: ``extent`` there is `actual` elements."""

    argument: str
    axis: int
    extent: Expr
    actual: int

    def __str__(self) -> str:
        text = format_expr(self.extent)
        formula = "" if text in names_of(self.extent) else f" ({text} = {self.actual})"
        return f"axis {self.axis} of {self.argument}{formula}"


_Sources: TypeAlias = Mapping[str, _Axis | str]  # of each size, where its value comes from


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments that fit a signature.

    arrays   the inputs as the caller gave them, in the order of the signature
    sizes    value of every symbolic size
    shapes   of the results
    outs     where the results go, as the caller gave them; empty where they are to be allocated
    """

    arrays: tuple[object, ...]
    inputs: tuple[ArrayView, ...]
    sizes: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]
    outs: tuple[ArrayView, ...]


def _split_arguments(
    signature: Signature, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the input arrays in the order of the signature, and the other keywords: ``out`` and sizes.

    An input is given by position or by its name. Raises CallError for an unknown keyword, and for
    an input that is missing, given twice, or too many.
    """
    others = {"out", *(facts.name for facts in signature.sizes)}
    named = [each.name for each in signature.inputs if each.name not in others]
    _check_keywords(signature, kwargs, named)
    by_name = {name: kwargs[name] for name in named if name in kwargs}
    rest = {name: value for name, value in kwargs.items() if name not in by_name}
    twice = [each.name for each in signature.inputs[: len(args)] if each.name in by_name]
    if twice:
        raise CallError(
            signature.name,
            f"takes {twice[0]} once, got it twice",
            at=twice[0],
            because=f"argument {[each.name for each in signature.inputs].index(twice[0]) + 1} is {twice[0]}, and so is a keyword",
            help=(_usage(signature),),
        )
    if not by_name:
        _check_count(signature, args)
        return tuple(args), rest
    if len(args) > len(signature.inputs):
        _check_count(signature, args)
    missing = [each.name for each in signature.inputs[len(args) :] if each.name not in by_name]
    if missing:
        raise CallError(
            signature.name,
            f"takes {_count_text(len(signature.inputs), 'array')}, got {len(args) + len(by_name)}",
            at=missing[0],
            because=f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} given neither by position nor by name",
            help=(_usage(signature),),
        )
    return (*args, *(by_name[each.name] for each in signature.inputs[len(args) :])), rest


def bind(
    signature: Signature, args: Sequence[object], kwargs: Mapping[str, object], cuda: bool = False
) -> Call:
    """Check a call against the signature, and solve its sizes.

    cuda  whether arrays may lie in the memory of a CUDA device

    Nothing is copied, nothing computed. Raises CallError, naming the argument and the fact.
    """
    name = signature.name
    args, kwargs = _split_arguments(signature, args, kwargs)
    inputs = tuple(
        _check_array(
            argument, arrays.view(array, argument.name, op=name, cuda=cuda), argument.name, name
        )
        for argument, array in zip(signature.inputs, args, strict=True)
    )
    sizes, sources = _solve(signature, inputs, kwargs)
    _check_extents(signature, inputs, sizes, sources)
    _check_facts(signature, sizes, sources)
    for relation in signature.relations:
        _check_relation(signature, relation, sizes, sources)
    shapes = tuple(_result_shape(signature, output, sizes) for output in signature.outputs)
    outs = _bind_outs(signature, kwargs.get("out"), shapes, sizes, inputs, cuda)
    return Call(args, inputs, sizes, shapes, outs)


def _check_count(signature: Signature, args: Sequence[object]) -> None:
    if len(args) == len(signature.inputs):
        return
    takes = len(signature.inputs)
    described = ", ".join(f"{each.name} {_argument_text(each)}" for each in signature.inputs)
    extra = ("out= takes the result's array; sizes go by keyword",) if len(args) > takes else ()
    raise CallError(
        signature.name,
        f"takes {_count_text(takes, 'array')}, got {len(args)}",
        at=signature.inputs[len(args)].name if len(args) < takes else f"argument {takes + 1}",
        because=f"its inputs are {described}" if described else "it has no inputs",
        help=(_usage(signature), *extra),
    )


def _check_keywords(
    signature: Signature, kwargs: Mapping[str, object], inputs: Sequence[str]
) -> None:
    known = (*inputs, "out", *(facts.name for facts in signature.sizes))
    for keyword in kwargs:
        if keyword not in known:
            raise CallError(
                signature.name,
                f"has no keyword {keyword}",
                at=keyword,
                because=f"its keywords are {', '.join(known)}",
                help=(_usage(signature),),
            )


def _check_array(argument: Argument, view: ArrayView, at: str, op: str) -> ArrayView:
    """`view` when its element type and rank are the argument's."""
    if view.dtype != argument.dtype:
        to = f"torch.{argument.dtype}" if view.kind == "torch" else f'"{argument.dtype}"'
        convert = f"{at}.to({to})" if view.kind == "torch" else f"{at}.astype({to})"
        raise CallError(
            op,
            f"{at} has the wrong element type",
            at=at,
            because=f"{at} is {view.dtype}, the kernel was compiled for {argument.dtype}",
            help=(convert,) if not at.startswith("out") else (),
        )
    if len(view.shape) != len(argument.shape):
        raise CallError(
            op,
            f"{at} has the wrong rank",
            at=at,
            because=f"{at} has shape {tuple_text(view.shape)}, the kernel takes {tuple_text(argument.extents)}",
        )
    return view


def _solve(
    signature: Signature, inputs: tuple[ArrayView, ...], kwargs: Mapping[str, object]
) -> tuple[dict[str, int], dict[str, _Axis | str]]:
    """Value of every size, in the order of the signature, and where it came from."""
    sizes: dict[str, int] = {}
    sources: dict[str, _Axis | str] = {}
    for facts in signature.sizes:
        if facts.name in kwargs:
            sizes[facts.name] = _integer(signature, facts.name, kwargs[facts.name])
            sources[facts.name] = _KEYWORD
    for name, number, axis in fast_entry.solving_order(signature, sizes):
        argument = signature.inputs[number]
        extent, actual = argument.shape[axis], inputs[number].shape[axis]
        sizes[name] = _solve_size(signature, argument, axis, extent, actual, name, sizes)
        sources[name] = _Axis(argument.name, axis, extent, actual)
    missing = [facts.name for facts in signature.sizes if facts.name not in sizes]
    if missing:
        names = " and ".join(missing)
        raise CallError(
            signature.name,
            f"cannot know {names}",
            at=missing[0],
            because=f"no shape of the inputs determines {names}",
            help=(_usage(signature, missing),),
        )
    return {facts.name: sizes[facts.name] for facts in signature.sizes}, sources


def _solve_size(
    signature: Signature,
    argument: Argument,
    axis: int,
    extent: Expr,
    actual: int,
    name: str,
    sizes: Mapping[str, int],
) -> int:
    """Return the value of the one unknown size of an extent."""
    coef, rest = factor_of(extent, name), number_at(extent, {**sizes, name: 0})
    value, over = divmod(actual - rest, coef)
    if not over:
        return value
    near = sorted((value + step) * coef + rest for step in (0, 1))
    legal = [f"{each} ({name} = {(each - rest) // coef})" for each in near if each >= 0]
    nearest = "the nearest extents are" if len(legal) > 1 else "the nearest extent is"
    raise CallError(
        signature.name,
        f"{argument.name} has an extent that no {name} gives",
        at=argument.name,
        because=f"axis {axis} of {argument.name} is {actual}, and {format_expr(extent)} = {actual} "
        f"has no integer solution{_where(sizes, extent)}",
        help=(f"{nearest} {' and '.join(legal)}",),
    )


def _check_extents(
    signature: Signature,
    inputs: tuple[ArrayView, ...],
    sizes: Mapping[str, int],
    sources: _Sources,
) -> None:
    for argument, view in zip(signature.inputs, inputs, strict=True):
        for axis, (extent, actual) in enumerate(zip(argument.shape, view.shape, strict=True)):
            expected = number_at(extent, sizes)
            if actual == expected:
                continue
            at, names, text = argument.name, names_of(extent), format_expr(extent)
            if not names:
                raise CallError(
                    signature.name,
                    f"{at} has the wrong shape",
                    at=at,
                    because=f"axis {axis} of {at} is {actual}, the kernel was compiled for "
                    f"{expected} in {tuple_text(argument.extents)}",
                )
            origin = ", ".join(f"{name} = {sizes[name]} by {sources[name]}" for name in names)
            formula = "" if text in names else f"{text} = "
            needs = f"{formula}{expected} with {origin}" if formula else origin
            raise CallError(
                signature.name,
                f"{at} disagrees on {' and '.join(names)}",
                at=at,
                because=f"axis {axis} of {at} is {actual}, but {needs}",
            )


def _check_facts(signature: Signature, sizes: Mapping[str, int], sources: _Sources) -> None:
    for facts in signature.sizes:
        name, value = facts.name, sizes[facts.name]
        if value < facts.min:
            fact, help_ = f"{name} >= {facts.min}", f'dim("{name}", min={value})'
        elif value > facts.max:
            fact, help_ = f"{name} <= {facts.max}", f'dim("{name}", max={value})'
        elif value % facts.multiple_of:
            fact = f"{name} % {facts.multiple_of} == 0"
            help_ = f'dim("{name}") without multiple_of={facts.multiple_of}'
        else:
            continue
        raise CallError(
            signature.name,
            f"{name} = {value} is outside the facts",
            at=name,
            because=f"{name} = {value} by {sources[name]}, and the kernel was compiled for {fact}",
            help=(
                f"{help_}, compiled again"
                if 0 <= value <= MAX_SIZE
                else _accepted_values(facts, sources[name], sizes),
            ),
        )


def _accepted_values(facts: Size, source: _Axis | str, sizes: Mapping[str, int]) -> str:
    """What would have been taken in place of a value that no `dim` allows."""
    name, step = facts.name, facts.multiple_of
    first, last = facts.at_or_above(0), facts.last
    if isinstance(source, str):
        multiple = f", a multiple of {step}" if step > 1 else ""
        return f"{name}={first} to {name}={last}{multiple}"
    nearest = first if sizes[name] < first else last
    return f"the nearest extent is {number_at(source.extent, {**sizes, name: nearest})} ({name} = {nearest})"


def _check_relation(
    signature: Signature,
    relation: AffineFact,
    sizes: Mapping[str, int],
    sources: _Sources,
) -> None:
    if relation.holds(sizes):
        return
    names = [name for name, _ in relation.terms]
    origin = ", ".join(f"{name} = {sizes[name]} by {sources[name]}" for name in names)
    raise CallError(
        signature.name,
        f"{' and '.join(names)} {'breaks' if len(names) == 1 else 'break'} an assumption",
        at=names[0] if names else "",
        because=f"{origin}, and the kernel was compiled under assume({relation.text})",
    )


def _result_shape(
    signature: Signature, output: Argument, sizes: Mapping[str, int]
) -> tuple[int, ...]:
    shape = tuple(number_at(extent, sizes) for extent in output.shape)
    for axis, (extent, value) in enumerate(zip(output.shape, shape, strict=True)):
        if value < 0:
            raise CallError(
                signature.name,
                f"{output.name} would have a negative extent",
                at=output.name,
                because=f"axis {axis} of {output.name} is {format_expr(extent)} = {value}"
                f"{_where(sizes, extent)}",
            )
    return shape


def _bind_outs(
    signature: Signature,
    out: object,
    shapes: tuple[tuple[int, ...], ...],
    sizes: Mapping[str, int],
    inputs: tuple[ArrayView, ...],
    cuda: bool,
) -> tuple[ArrayView, ...]:
    """Return the arrays given as `out=`, checked; none where it is None."""
    if out is None:
        return ()
    name, labels = signature.name, out_names(signature)
    out_arrays = (out,)
    if len(labels) > 1:
        if not isinstance(out, tuple) or len(out) != len(labels):
            got = f"a tuple of {len(out)}" if isinstance(out, tuple) else f"a {type(out).__name__}"
            raise CallError(
                name,
                "out does not match the results",
                at="out",
                because=f"the kernel has {len(labels)} results, out is {got}",
                help=(f"out=({', '.join(each.name for each in signature.outputs)})",),
            )
        out_arrays = out
    views: list[ArrayView] = []
    for array, label, output, shape in zip(
        out_arrays, labels, signature.outputs, shapes, strict=True
    ):
        view = _check_array(output, arrays.view(array, label, op=name, cuda=cuda), label, name)
        if view.shape != shape:
            raise CallError(
                name,
                f"{label} has the wrong shape",
                at=label,
                because=f"{label} has shape {tuple_text(view.shape)}, the result is "
                f"{tuple_text(output.extents)} = {tuple_text(shape)}{_where(sizes, *output.shape)}",
            )
        _check_target(name, view, label)
        number = len(views)
        others = tuple(
            (argument.name, source)
            for k, (argument, source) in enumerate(zip(signature.inputs, inputs, strict=True))
            if (k, number) not in signature.updated or not _same_memory(view, source)
        )
        for other, source in (*others, *zip(labels, views, strict=False)):
            if arrays.may_overlap(view, source):
                _refuse_overlap(name, label, view, other, source)
        views.append(view)
    return tuple(views)


def _same_memory(one: ArrayView, other: ArrayView) -> bool:
    """Return whether two views are of the same elements, each at the same index."""
    steps, others = (arrays.window(each).strides for each in (one, other))
    return (one.address, one.shape, steps) == (other.address, other.shape, others)


def _check_target(op: str, view: ArrayView, label: str) -> None:
    """Whether a result can be written there: read-only, or one place for two elements."""
    if not view.writeable:
        raise CallError(
            op,
            f"{label} is read-only",
            at=label,
            because="the result is written into it",
            help=(_ELSEWHERE,),
        )
    if arrays.has_internal_overlap(view):
        steps = arrays.window(view).strides
        zero = [axis for axis, step in enumerate(steps) if not step and view.shape[axis] > 1]
        why = (
            f"axis {zero[0]} has extent {view.shape[zero[0]]} and stride 0"
            if zero
            else f"shape {tuple_text(view.shape)} with strides {tuple_text(steps)} bytes may reach "
            "one place twice"
        )
        raise CallError(op, f"{label} overlaps itself", at=label, because=why, help=(_ELSEWHERE,))


def _refuse_overlap(
    op: str, label: str, view: ArrayView, other: str, source: ArrayView
) -> NoReturn:
    distance = view.address - source.address
    if not distance:
        how = "start at the same byte"
    else:
        how = f"share memory: {label} starts {abs(distance)} bytes {'after' if distance > 0 else 'before'} {other}"
    raise CallError(
        op,
        f"{label} overlaps {other}",
        at=label,
        because=f"{label} and {other} {how}",
        help=(_ELSEWHERE,),
    )


def _integer(signature: Signature, name: str, value: object) -> int:
    integer = whole(value)
    if integer is None:
        raise CallError(
            signature.name,
            f"{name} is not an integer",
            at=name,
            because=f"got {value!r}, a {type(value).__name__}",
            help=(f"{name}=12",),
        )
    return integer


def out_names(signature: Signature) -> tuple[str, ...]:
    """What messages call the results: ``out``, or ``out[0]``, ``out[1]``, …"""
    if len(signature.outputs) == 1:
        return ("out",)
    return tuple(f"out[{number}]" for number in range(len(signature.outputs)))


def _usage(signature: Signature, sizes: Sequence[str] = ()) -> str:
    """Return a call that would be accepted."""
    parts = [*(each.name for each in signature.inputs), *(f"{name}=..." for name in sizes)]
    return f"{signature.name}({', '.join(parts)})"


def _argument_text(argument: Argument) -> str:
    return f"{tuple_text(argument.extents)} {argument.dtype}"


def _count_text(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def tuple_text(items: Sequence[object]) -> str:
    """``(m, k)``, as Python writes a tuple of such names or numbers."""
    return f"({', '.join(map(str, items))}{',' * (len(items) == 1)})"


def _where(sizes: Mapping[str, int], *extents: Expr) -> str:
    """`` with n = 3``: the sizes in these extents as far as they are known."""
    every = dict.fromkeys(name for each in extents for name in names_of(each))
    names = [name for name in every if name in sizes]
    return " with " + ", ".join(f"{name} = {sizes[name]}" for name in names) if names else ""
