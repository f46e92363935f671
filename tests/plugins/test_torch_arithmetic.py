"""Each rule of the torch door that works by element, beside eager torch: on the ends of each element type, and all pairs of int8.

The rules are walked from the table of rules: an operator whose arguments are not known here fails, so that none is left out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from offcut.plugins.torch import rules  # noqa: F401  (fills the table)
from offcut.plugins.torch.program import Program
from offcut.plugins.torch.rule_table import TABLE
from offcut.plugins.torch.size_facts import Facts

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
ROOMS = ("arithmetic", "functions", "table")

DIVIDES = ("div", "floor_divide", "remainder", "fmod")

NUMBERS: dict[str, list[Any]] = {
    "float": [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 3, math.inf, -math.inf, 2, -3, 0.1],
    "int": [1, -2, 3, 7, 0, 127, -128, 2.5],
    "bool": [True, False],
}
"""Numbers beside a tensor, by the kind of its elements."""

OPTIONS: dict[str, list[Any]] = {
    "rounding_mode": ["trunc", "floor", None],
    "decimals": [0, 1, -1, 3],
    "approximate": ["none", "tanh"],
    "dtype": [*FLOATS, *INTEGERS, torch.bool],
    "device": [torch.device("cpu")],
    "p": [0.0],
    "train": [False],
    "stride": [(1,)],
    "min": [0, 1],
    "max": [2],
}
"""Arguments that are neither tensors nor operands, by name; others are at their defaults."""

NOT_BY_ELEMENT = ("aten::_assert_tensor_metadata", "aten::native_dropout")
"""Operators without a result, or of two."""

NEAR_0 = ("lgamma", "digamma", "gelu")
"""Functions that are 0 where their terms are not: bounded by these."""

FUSED = ("add", "sub", "subtract", "rsub", "addcmul", "addcdiv", "lerp")
"""Operators of which torch rounds a product once, together with a sum, where the processor does it: bounded by their terms."""

OURS_IS_EXACT = ("remainder", "fmod", "gelu", "ldexp", "erf", "pow")
"""Operators for which torch's vectors give NaN, inf or 0 where their quotient, or a product, leaves the type."""

CLOSE = 8
"""Units in the last place that functions may be apart."""


class Case(NamedTuple):
    """An operator with tensors by number, ``T(0)``, and other arguments."""

    arguments: tuple[Any, ...]
    options: dict[str, Any]


class T(NamedTuple):
    """The tensor of that number."""

    number: int


def by_element() -> list[Any]:
    """The operators of the table that work by element."""
    return [
        op
        for op, rule in TABLE.items()
        if (torch.Tag.pointwise in op.tags or rule.__module__.rsplit(".", 1)[-1] in ROOMS)
        and any("Tensor" in str(one.type) for one in op._schema.arguments)
        and op._schema.name not in NOT_BY_ELEMENT
    ]


def ends(dtype: torch.dtype) -> list[Any]:
    """The ends of an element type, and what lies between; all of 8 bits."""
    if dtype is torch.bool:
        return [False, True]
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        sizes = [0.0, info.smallest_normal * info.eps, info.smallest_normal, 0.5, 1.0, 1.5, 2.5]
        sizes += [3.0, 7.0, 0.1, 1 / 3, 20.5, 1e4, info.max / 2, info.max, math.inf]
        return [sign * size for size in sizes for sign in (1, -1)] + [math.nan]
    info = torch.iinfo(dtype)
    if info.bits == 8:
        return [*range(info.min, info.max + 1)]
    near = [-129, -128, -7, -3, -2, -1, 0, 1, 2, 3, 7, 31, 32, 63, 64, 127, 255]
    return sorted({info.min, info.min + 1, info.min // 2, *near, info.max // 2, info.max})


def cases(op: Any, dtype: torch.dtype) -> list[Case]:
    """An operator with each of the numbers and options that it takes beside tensors."""
    kind = "float" if dtype.is_floating_point else "bool" if dtype is torch.bool else "int"
    found, tensors = [Case((), {})], 0
    for one in op._schema.arguments:
        kinds = str(one.type)
        if "Tensor" in kinds:
            values: list[Any] = [T(tensors)]
            tensors += 1
        elif one.name in OPTIONS and (one.default_value is None or one.kwarg_only):
            values = OPTIONS[one.name]
        elif one.default_value is not None or "Optional" in kinds or one.kwarg_only:
            break
        else:
            assert kinds == "number", f"{op}: what is its argument {one.name}?"
            values = NUMBERS[kind]
        found = [
            Case(args, {**named, one.name: value})
            if one.kwarg_only
            else Case((*args, value), named)
            for args, named in found
            for value in values
        ]
    return found


def operands(op: Any, dtype: torch.dtype) -> list[torch.Tensor]:
    """Each of the ends with each other; of a third operand, in another order."""
    names = [one.name for one in op._schema.arguments if "Tensor" in str(one.type)]
    every = torch.tensor(ends(dtype), dtype=dtype)
    if len(names) == 1:
        return [every]
    x, y = (one.flatten() for one in torch.meshgrid(every, every, indexing="ij"))
    if any(word in str(op) for word in DIVIDES) and dtype in (torch.int32, torch.int64):
        kept = y != -1  # torch ends the process there, of the least integer
        x, y = x[kept], y[kept]
    third = x.flip(0)
    given = [x, y, third][: len(names)]
    for place, name in enumerate(names):
        if name in ("condition", "mask"):
            given[place] = torch.arange(len(x)) % 3 == 0
        if name == "value":
            given[place] = y[1]
    return given


def called(op: Any, case: Case, given: list[Any]) -> Any:
    """What torch gives of tensors, or of fakes of them."""
    arguments = [given[one.number] if isinstance(one, T) else one for one in case.arguments]
    return op(*arguments, **case.options)


def program(op: Any, all_cases: list[Case], given: list[torch.Tensor]) -> Program:
    """An operator with some arguments each, as a program."""
    mode, graph = FakeTensorMode(), torch.fx.Graph()
    nodes = [graph.placeholder(f"x{n}") for n in range(len(given))]
    for node, one in zip(nodes, given, strict=True):
        node.meta["val"] = mode.from_tensor(one)
    results = []
    for case in all_cases:
        own = tuple(nodes[one.number] if isinstance(one, T) else one for one in case.arguments)
        results.append(graph.call_function(op, own, case.options))
        with mode:
            results[-1].meta["val"] = called(op, case, [node.meta["val"] for node in nodes])
    graph.output(tuple(results))
    return Program(torch.fx.GraphModule({}, graph), {}, Facts(lambda _: (0, math.inf)))


def differs(op: Any, ours: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Where two results are not the same; of floats, by more than `CLOSE` units in the last place, or of what torch does not round so."""
    if not own.is_floating_point():
        return ours != own
    name = op._schema.name.removeprefix("aten::")
    nan = ours.isnan() != own.isnan()
    info, a, b = torch.finfo(own.dtype), ours.double(), own.double()
    near = (a - b).abs() <= CLOSE * info.eps * b.abs().clamp(
        min=1.0 if name in (*NEAR_0, *FUSED) else 1e-30
    )
    near |= (a - b).abs() <= CLOSE * info.smallest_normal  # torch takes some of these for 0
    found = nan | ~(near | (a == b) | own.isnan())
    if name in (*FUSED, *OURS_IS_EXACT):
        return found & ours.isfinite() & own.isfinite()
    return found


def check(op: Any, dtype: torch.dtype) -> int:
    """Compare an operator with torch's own, of each of its arguments; how many there were."""
    given, taken, zero = operands(op, dtype), list[tuple[Case, Any]](), list[Case]()
    for case in cases(op, dtype):
        if case.options.get("rounding_mode") and case.arguments[-1] == -1:
            continue
        try:
            own = called(op, case, given)
            with FakeTensorMode() as mode:
                called(op, case, [mode.from_tensor(one) for one in given])
        except (RuntimeError, TypeError, NotImplementedError) as refused:
            zero += [case] if "ZeroDivision" in str(refused) else []
            continue
        if own.numel() == given[0].numel() or len(given) > 1:  # else bits are seen as others
            taken.append((case, own))
    if taken:
        made = program(op, [case for case, _ in taken], given)
        for (case, own), ours in zip(taken, made(given), strict=True):
            if ours.dtype == own.dtype:  # of bool, torch's fakes may say another
                found = differs(op, ours, own)
                where = [one.expand(own.shape)[found][:3].tolist() for one in given]
                assert not found.any(), (op, case, where, ours[found][:3], own[found][:3])
    for case in zero:
        made = program(op, [case], given)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            made(given)
        if isinstance(case.arguments[-1], T):
            kept = given[case.arguments[-1].number] != 0
            rest = [one[kept] for one in given]
            (ours,) = program(op, [case], rest)(rest)
            assert torch.equal(ours, called(op, case, rest)), (op, case)
    return len(taken) + len(zero)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, torch.bool], ids=str)
def test_each_rule_by_element_gives_what_torch_gives(dtype: torch.dtype) -> None:
    assert sum(check(op, dtype) for op in by_element()) > 100


SOME = [
    (torch.ops.aten.div.Tensor_mode, torch.int8),
    (torch.ops.aten.fmod.Tensor, torch.int64),
    (torch.ops.aten.floor_divide.default, torch.float32),
    (torch.ops.aten.remainder.Scalar, torch.bfloat16),
    (torch.ops.aten.sub.Scalar, torch.bfloat16),
    (torch.ops.aten.to.dtype, torch.float32),
]


@pytest.mark.parametrize(("op", "dtype"), SOME, ids=lambda one: str(one))
def test_rules_of_division_and_conversion_give_what_torch_gives(op: Any, dtype: Any) -> None:
    assert check(op, dtype)


def test_the_walk_takes_every_operator_of_the_rooms_of_arithmetic() -> None:
    found = by_element()
    for op in found:
        assert cases(op, torch.float32), op
    assert len(found) > 130
