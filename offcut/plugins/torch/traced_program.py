"""A program that torch exported for all sizes, with what it knows of its arguments and sizes.

The exported program of a module, for all sizes, and the conditions on these that held.
"""

from __future__ import annotations

import ast
import copy
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import not_
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._sympy import functions as sf

from offcut.core.program import MAX_SIZE
from offcut.errors import CallError, DescribeError, InternalError
from offcut.graph import Model
from offcut.plugins.torch.module_copy import place_of
from offcut.plugins.torch.opaque_recurrences import trace_recurrences_whole
from offcut.plugins.torch.options import DEFAULT, Options
from offcut.plugins.torch.program import Program
from offcut.plugins.torch.rule_table import Unsupported
from offcut.plugins.torch.size_facts import Facts, equalities, multiples
from offcut.plugins.torch.sizes import sympy_of
from offcut.plugins.torch.trace_guards import Conditions, record_branches
from offcut.plugins.torch.trace_settings import dynamic_trace, is_number

HELD = object()
"""In place of a weight that a call reads in kernels alone."""


class FixedSizeError(CallError):
    """A size is a number in a program that was traced: the module, or torch's tracing of it, takes no other.

    size  which, and the number
    """

    size = ""


class Traced:
    """A program of ``torch.export``, compiled.

    branches  the conditions on sizes that held when a module of ours was traced; None for a program of others, whose weights are
              copied
    known     the weights that torch reads, and None for arguments; `HELD` for a weight that kernels hold
    again     what makes those, by where the program had them

    Raises DescribeError for a program that writes to its arguments, or to what it holds.
    """

    def __init__(
        self, exported: Any, branches: Sequence[Any] | None = None, how: Options = DEFAULT
    ) -> None:
        signature = exported.graph_signature
        if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
            raise DescribeError(
                "from_torch",
                "cannot take a module that writes to its buffers or arguments",
                because=f"it writes to {', '.join([*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()])}",
                help=(
                    "model.eval(), where layers count batches",
                    'torch.compile(model, backend="offcut", dynamic=True), which lets it write',
                ),
            )
        state = {**exported.state_dict, **exported.constants}
        names = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        nodes = [node for node in exported.graph.nodes if node.op == "placeholder"]
        weights = [node for node in nodes if node.name in names]
        rest = [node for node in nodes if node.name not in names]
        self._weights = {node: state[names[node.name]] for node in weights}
        known = {node: one.detach() for node, one in self._weights.items()}
        shape_env = _shape_env(exported)
        facts = _facts(exported, shape_env)
        conditions = None if branches is None else Conditions(rest, branches, shape_env)
        try:
            self.program = Program(exported.graph_module, known, facts, how, conditions)
        except Unsupported as refused:
            raise DescribeError(
                "from_torch", "cannot take the program", because=str(refused)
            ) from None
        self.spec, self._out = exported.call_spec  # a property that is slow
        self._single = self._out == pytree.tree_structure(0)
        self.given = [ArgumentSpec.of(node, facts, stated=branches is None) for node in rest]
        codes = () if branches is not None else getattr(exported, "_guards_code", ())
        self.guards = tuple(filter(None, (Guard.of(code, rest) for code in codes)))
        self.again = {place_of(known[node]): one for node, one in self.program.again.items()}
        self._nodes = nodes
        if branches is None:  # all at once: what shares memory does so in the copies
            read = {node for _, node in self.program.read}
            buffers = [node for node in weights if node in read]
            copies = copy.deepcopy([known[node] for node in buffers])
            self._weights |= zip(buffers, copies, strict=True)
            self.settle()

    def settle(self) -> None:
        """Hold the weights that torch reads, as they lie from now on, and no other."""
        read = {node for _, node in self.program.read}
        weights, self._weights = self._weights, {}
        self.known = [
            None if node not in weights else weights[node].detach() if node in read else HELD
            for node in self._nodes
        ]
        self._places = [place for place, one in enumerate(self.known) if one is None]
        known = self.program.at_known_sizes
        self._at_known_sizes = None if known is None else known.among(self._places)

    def whole_region(self, op: str) -> tuple[Model, dict[str, str], dict[str, str]]:
        """Return the model that is all of it, with the views that torch makes otherwise, as `Program.whole_region` says."""
        program, again = self.program, self.program.again
        if program.has_views:
            pairs = zip(self._nodes, self.known, strict=True)
            views = {
                node: again[node]() if one is HELD else one
                for node, one in pairs
                if one is not HELD or node in again
            }
            program = program.with_views(
                {node: one for node, one in views.items() if one is not None}
            )
        return program.whole_region(op)

    def takes(self, flat: Sequence[Any]) -> bool:
        """Whether arguments are like those that it was exported with."""
        try:
            self.check(flat)
        except CallError:
            return False
        return True

    def check(self, flat: Sequence[Any]) -> None:
        """Raises CallError where arguments are not like those that it was exported with."""
        for argument, one in zip(self.given, flat, strict=True):
            argument.check(one)
        for guard in self.guards:
            guard.check(flat)

    def at_known_sizes(self, flat: Sequence[Any]) -> Any:
        """Return the results of the module if an earlier call had arguments of the same sizes; None if that is not certain."""
        known = self._at_known_sizes
        results = None if known is None else known(flat)
        if results is None:
            return None
        return results[0] if self._single else pytree.tree_unflatten(results, self._out)

    def __call__(self, flat: Sequence[Any]) -> Any:
        """What the module gives.

        Raises Unlike for sizes that it was not traced for.
        """
        arguments = self.known[:]
        for place, one in zip(self._places, flat, strict=True):
            arguments[place] = one
        results = self.program(arguments)
        return results[0] if self._single else pytree.tree_unflatten(results, self._out)


def _shape_env(exported: Any) -> Any:
    """Where its sizes were traced; None where all are numbers."""
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


def _facts(exported: Any, shape_env: Any) -> Facts:
    """What is known of its sizes: the bounds that it states, and what it was traced under; the latter is checked by shapes.

    A lower bound of 2 is how torch writes that it does not know of 0 and 1, and its own programs take both.
    """

    def known(symbol: Any) -> tuple[Any, Any]:
        bounds = exported.range_constraints.get(symbol)
        if bounds is None:
            return 0, None
        return 0 if bounds.lower == 2 else bounds.lower, bounds.upper

    if shape_env is None:
        return Facts(known)
    factors = multiples(shape_env)
    return Facts(known, tuple(filter(_is_refuted, equalities(shape_env, factors))), factors)


def _is_refuted(equality: tuple[Any, Any]) -> bool:
    """Whether bounds or shapes show that an equality does not hold."""
    one, other = equality
    return bool((one.is_Symbol and other.is_Integer) or isinstance(one, sf.Min))


_ARITHMETIC = (
    *(ast.Expression, ast.Lambda, ast.arguments, ast.arg, ast.Name, ast.Load, ast.Subscript),
    *(ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Compare, ast.cmpop),
    *(ast.BoolOp, ast.boolop, ast.Call, ast.Pow),
)
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "sym_float": float,
    "sym_int": int,
    "sym_not": not_,
    "_sym_sqrt": math.sqrt,
    **{one.__name__: one for one in (math.trunc, math.floor, math.ceil, math.sqrt)},
    "max": max,
    "min": min,
    "sym_max": max,
    "sym_min": min,
    "round": round,
}
"""What guards call, by the last part of its name."""
_CALLED = re.compile(rf"\b(?:torch\.|math\.)?({'|'.join(_FUNCTIONS)})(?=\()")
_SIZE = re.compile(r"L\['(\w+)'\]\.size\(\)\[(\d+)\]")


def _is_arithmetic(node: ast.AST) -> bool:
    """Whether a part of a guard is arithmetic whose numbers stay small: no integer to a power, no shift to the left."""
    match node:
        case ast.LShift():
            return False
        case ast.Call(ast.Name(name), _, []):
            return name in _FUNCTIONS
        case ast.Call():
            return False
        case ast.BinOp(_, ast.Pow(), exponent):
            return isinstance(exponent, ast.Constant) and isinstance(exponent.value, float)
        case _:
            return isinstance(node, _ARITHMETIC)


@dataclass(frozen=True)
class Guard:
    """A condition on sizes that a program of others was traced under, as torch wrote it down.

    text    of it, sizes as ``x.shape[1]``
    names   of the sizes in it, in order
    sizes   the argument and the axis of each; holds: whether it is true of such extents
    """

    text: str
    names: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    holds: Callable[[Sequence[int]], bool]

    @classmethod
    def of(cls, code: str, nodes: Sequence[Any]) -> Guard | None:
        """A guard of torch; None for one on other things than sizes of arguments."""
        places = {node.name: place for place, node in enumerate(nodes)}
        sizes = list(dict.fromkeys(_SIZE.findall(code)))
        numbered = {size: f"s[{number}]" for number, size in enumerate(sizes)}
        own = _CALLED.sub(r"\1", _SIZE.sub(lambda at: numbered[at.groups()], code))
        if not sizes or "L[" in own or any(name not in places for name, _ in sizes):
            return None
        try:
            tree = ast.parse(f"lambda s: {own.strip()}", mode="eval")
        except SyntaxError:
            return None
        if not all(map(_is_arithmetic, ast.walk(tree))):
            return None
        # It is arithmetic of extents, and no more: a file may say anything.
        holds = eval(compile(tree, "guard", "eval"), {"__builtins__": {}, **_FUNCTIONS})
        text = " ".join(_SIZE.sub(r"\1.shape[\2]", code).split())
        names = tuple(f"{name}.shape[{axis}]" for name, axis in sizes)
        return cls(text, names, tuple((places[name], int(axis)) for name, axis in sizes), holds)

    def check(self, flat: Sequence[Any]) -> None:
        """Raises CallError where it does not hold."""
        extents = [int(flat[place].shape[axis]) for place, axis in self.sizes]
        try:
            holds = self.holds(extents)
        except (ArithmeticError, TypeError, ValueError):  # it has no value for these extents
            holds = False
        if not holds:
            pairs = zip(self.names, extents, strict=True)
            raise CallError(
                "call",
                f"cannot take {', '.join(f'{name} = {extent}' for name, extent in pairs)}",
                because=f"the program was traced for {self.text}",
                help=("from_torch(module, args), which is traced for other sizes, too",),
            )


@dataclass(frozen=True)
class ArgumentSpec:
    """What an argument is like in every call: a tensor, or a number that does not change.

    fixed   extents that do not change, by axis
    bounded the least and the greatest extent that a program states, by axis
    other   what takes other extents than the fixed ones, where it may be had
    """

    name: str
    value: Any
    fixed: tuple[tuple[int, int], ...] = ()
    bounded: tuple[tuple[int, int, int], ...] = ()
    other: tuple[str, ...] = ()

    @classmethod
    def of(cls, node: Any, facts: Facts, stated: bool) -> ArgumentSpec:
        """As a program was exported with.

        stated  whether calls keep to the bounds that it states; else it is known otherwise which sizes it is for
        """
        value = node.meta["val"]
        shape = value.shape if isinstance(value, torch.Tensor) else ()
        sizes = [(axis, facts.simplify(sympy_of(one))) for axis, one in enumerate(shape)]
        fixed = tuple((axis, int(one)) for axis, one in sizes if one.is_Integer)
        bounded = tuple(
            (axis, *facts.range(one)) for axis, one in sizes if stated and one.is_Symbol
        )
        other = ("from_torch(module, args), where the module takes it",) if stated else ()
        return cls(node.name, value, fixed, bounded, other)

    def check(self, value: Any) -> None:
        """Raises CallError where an argument is not such a one."""
        if isinstance(self.value, torch.Tensor):
            if not isinstance(value, torch.Tensor):
                kind = type(value).__name__
                raise self._refusal(
                    f"= {kind}",
                    "the program was exported with a tensor there",
                    f"torch.from_numpy({self.name})" if kind == "ndarray" else "a tensor of torch",
                )
            if value.dtype != self.value.dtype or value.dim() != self.value.dim():
                raise self._refusal(
                    f"of {value.dtype} and shape {tuple(value.shape)}",
                    f"the program was exported with {self.value.dtype} and {self.value.dim()} axes",
                    *(
                        (f"{self.name}.to({self.value.dtype})",)
                        if value.dim() == self.value.dim()
                        else ()
                    ),
                )
            if value.requires_grad and torch.is_grad_enabled():
                raise self._refusal(
                    "that asks for a gradient",
                    "results carry none",
                    "with torch.no_grad(): …",
                    'torch.compile(model, backend="offcut", dynamic=True), whose backward graph torch runs',
                )
            for axis, extent in self.fixed:
                if value.shape[axis] != extent:
                    refused = FixedSizeError(
                        "call",
                        f"cannot take {self.name} of shape {tuple(value.shape)}",
                        because=f"axis {axis} is {extent} in every call",
                        help=self.other,
                    )
                    refused.size = f"axis {axis} of {self.name} is {extent}"
                    raise refused
            for axis, least, most in self.bounded:
                if not least <= value.shape[axis] <= most:
                    ends = f"{least} to {most}" if most < MAX_SIZE else f"{least} at least"
                    raise self._refusal(
                        f"of shape {tuple(value.shape)}",
                        f"the program was exported for {ends} along axis {axis}",
                        "from_torch(module, args), which is traced for other sizes, too",
                    )
        elif not isinstance(self.value, torch.SymInt) and value != self.value:
            raise self._refusal(f"= {value!r}", f"the program was exported with {self.value!r}")

    def _refusal(self, what: str, because: str, *help: str) -> CallError:
        return CallError("call", f"cannot take {self.name} {what}", because=because, help=help)


def export_with_conditions(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    again: bool = False,
) -> tuple[Any, list[Any]]:
    """Return the program, and the conditions on sizes that held.

    again  for a call of other sizes: those of 0 and 1 are numbers as dynamo takes them
    """
    args, kwargs = _distinct_tensors(args, kwargs)
    try:
        arguments = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        if dynamic_shapes is None:
            free = partial(_dimensions_of, numbers=again)
            dynamic_shapes = {name: pytree.tree_map(free, one) for name, one in arguments.items()}
        elif again:
            dynamic_shapes = _with_static_numbers(arguments, dynamic_shapes)
        with (
            torch.no_grad(),
            dynamic_trace(),
            trace_recurrences_whole(),
            record_branches() as conditions,
        ):
            exported = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
        return exported, conditions
    except InternalError:
        raise
    except Exception as failed:
        first = str(failed).strip().splitlines()
        raise DescribeError(
            "from_torch",
            f"cannot export {type(model).__name__}",
            because=f"{type(failed).__name__}: {first[0] if first else ''}",
            help=("torch.from_numpy(x) makes a tensor of an array",)
            if any(isinstance(one, np.ndarray) for one in pytree.tree_leaves((args, kwargs)))
            else (),
        ) from failed


def _distinct_tensors(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments of which no tensor is another one: torch takes one that is given twice for one argument, whatever calls give."""
    numbers = set[int]()

    def alone(one: torch.Tensor) -> torch.Tensor:
        if id(one) in numbers:
            return one.detach().clone()
        numbers.add(id(one))
        return one

    distinct: tuple[tuple[Any, ...], dict[str, Any]]
    distinct = pytree.tree_map_only(torch.Tensor, alone, (args, kwargs))
    return distinct


def _dimensions_of(argument: Any, numbers: bool) -> Any:
    """Return a dimension for each size of a tensor, which may vary where the module allows it; but for numbers."""
    if not isinstance(argument, torch.Tensor):
        return None
    return [
        torch.export.Dim.STATIC if numbers and is_number(axis, size) else torch.export.Dim.AUTO
        for axis, size in enumerate(argument.shape)
    ]


def _with_static_numbers(arguments: dict[str, Any], dynamic_shapes: Any) -> Any:
    """Return shapes as a user gave them, where a size that torch may settle is settled if it is a number."""

    def of(one: Any, shape: Any) -> Any:
        if not isinstance(one, torch.Tensor) or not isinstance(shape, dict | list | tuple):
            return shape
        axes = dict(shape) if isinstance(shape, dict) else dict(enumerate(shape))
        return {
            axis: torch.export.Dim.STATIC
            if free is torch.export.Dim.AUTO and is_number(axis, one.shape[axis])
            else free
            for axis, free in axes.items()
        }

    is_by_name = isinstance(dynamic_shapes, dict)
    shapes = dynamic_shapes.values() if is_by_name else dynamic_shapes
    names = dynamic_shapes if is_by_name else arguments
    try:
        return {
            name: pytree.tree_map(of, arguments[name], shape)
            for name, shape in zip(names, shapes, strict=True)
        }
    except (KeyError, TypeError, ValueError):  # not shaped as the arguments are: torch says so
        return dynamic_shapes
