"""The operators of aten that we take, one function of a translation for each; and why others stay with torch.

What is not ours: why an operator stays with torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch

from offcut.debug import verifies
from offcut.errors import OffcutError

if TYPE_CHECKING:
    from offcut.plugins.torch.translation import Translation


class Unsupported(Exception):
    """An operator stays with torch; the text is the reason."""


def unsupported_reason(failed: Exception) -> str:
    """Why operators stay with torch, in one line; what is no refusal is an error of ours, and is named so.

    Raises what is no refusal, where ``OFFCUT_VERIFY=1``.
    """
    text = " ".join(str(failed).split())
    if isinstance(failed, OffcutError):
        return text
    if verifies():
        raise failed
    return f"internal error: {type(failed).__name__}: {text}"


Rule: TypeAlias = Callable[..., Any]
"""``rule(translation, *arguments, **options)`` with values of the graph for tensors: its result, or several."""

F = TypeVar("F", bound=Rule)

TABLE: dict[Any, Rule] = {}
"""By operator of torch, with its overload."""

_OTHERS: dict[str, Rule] = {}
"""Rules for operators of packages that may be loaded later, by their names."""

ROUND_EACH: set[Rule] = set()
"""Rules whose operators round to 16 bits one by one, as torch's own do; every other is rounded once."""


def rule_for(operator: Any) -> Rule | None:
    """The rule for an operator; None where there is none."""
    rule = TABLE.get(operator)
    if rule is None and isinstance(operator, torch._ops.OpOverload):
        rule = _OTHERS.get(operator.name())
    return rule


def check_taken(rule: Rule, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Raises Left where an operator is called with what its rule does not take."""
    try:
        _signature(rule).bind(None, *arguments, **options)
    except TypeError as refused:
        raise Unsupported(f"its rule does not take what it is called with: {refused}") from None


@cache
def _signature(rule: Rule) -> inspect.Signature:
    return inspect.signature(rule)


def register_rule(*names: str, rounds_each: bool = False, **options: Any) -> Callable[[F], F]:
    """Enter a rule for operators of aten, ``"add.Tensor"``; those that this torch lacks are passed over.

    rounds_each  whether torch rounds what one operator of the rule gives the next to 16 bits; by default, the last rounds
    options      arguments of the rule by name: one function is the rule of several operators
    """

    def enter(rule: F) -> F:
        _enter(torch.ops.aten, names, _with_options(rule, rounds_each, options))
        return rule

    return enter


def takes_prim(*names: str) -> Callable[[F], F]:
    """The same for torch's primitive operators, which its decompositions are written in."""

    def enter(rule: F) -> F:
        _enter(torch.ops.prims, names, rule)
        return rule

    return enter


def takes_of_others(*names: str, rounds_each: bool = False, **options: Any) -> Callable[[F], F]:
    """The same for operators that a package registers with torch, ``"package::name"``."""

    def enter(rule: F) -> F:
        _OTHERS.update(dict.fromkeys(names, _with_options(rule, rounds_each, options)))
        return rule

    return enter


def _with_options(rule: Rule, rounds_each: bool, options: Mapping[str, Any]) -> Rule:
    rule_of_operator = _partial(rule, tuple(options.items())) if options else rule
    if rounds_each:
        ROUND_EACH.add(rule_of_operator)
    return rule_of_operator


@cache
def _partial(rule: Rule, options: tuple[tuple[str, Any], ...]) -> Rule:
    """Return a rule with arguments by name, one object for all operators that it stands for."""
    return partial(rule, **dict(options))


def _enter(namespace: Any, names: tuple[str, ...], rule: Rule) -> None:
    for name in names:
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(namespace, packet, None), overload or "default", None)
        if operator is not None:
            TABLE[operator] = rule


def same(t: Translation, x: Any, *, op: str) -> Any:
    """Translate an operator of floats that has ours of the same meaning."""
    return t.node(op, t.as_result(x))
