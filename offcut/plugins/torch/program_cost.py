"""What a call of a program of torch runs in kernels of ours, and what that is predicted to cost: its regions, one after the other.

A size has the name of an argument and its axis, ``x_0``, or of an argument that is a number; torch's own names are of a trace alone.

Parts of a program of torch, which is asked for them in names of its own, as parts of its regions.

A line is of the region whose kernels give both of its values; a size is called by argument and axis, ``x_0``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from offcut.core.interpret.run_arguments import given_sizes
from offcut.core.program import Size
from offcut.errors import PartitionError
from offcut.graph import Model, ModelCost, ModelPlan
from offcut.graph.models.batches.microbatches import Part, Parts, parse_parts, said_by

Quotients = Sequence[tuple[str, str, int]]
"""Of symbols that are multiples: the name of the quotient, that of the symbol, and the divisor."""


class ProgramCost:
    """The regions of a program as what they cost.

    models  that run them, in order
    called  what a user calls each symbol of torch
    left    what torch runs beside them, in words
    """

    def __init__(
        self,
        models: Sequence[Model],
        called: Mapping[str, str],
        quotients: Quotients,
        left: Sequence[str],
    ) -> None:
        self.models, self.called, self.quotients, self.left = models, called, quotients, left
        own = {size.name: size for model in models for size in model.bound.graph.sizes}
        self.sizes = tuple(
            own_size for symbol in called if (own_size := self._size(symbol, own)) is not None
        )

    def _size(self, symbol: str, own: Mapping[str, Size]) -> Size | None:
        """A symbol as a user knows it; None for one that no kernel asks for."""
        name = self.called[symbol]
        for quotient, whole, by in self.quotients:
            if whole == symbol and quotient in own:
                return Size(name, own[quotient].min * by, own[quotient].max * by, by)
        size = own.get(symbol)
        return None if size is None else Size(name, size.min, size.max)

    def plan(self, sizes: Mapping[str, int]) -> ModelPlan:
        """The kernels of a call; in formulas where no size is given.

        Raises CallError for a size that is missing, unknown, or not allowed.
        """
        at = given_sizes("plan", "the model", self.sizes, sizes) if sizes else {}
        plans = [model.plan(**one) for model, one in self._each(at)]
        rows = (row for plan in plans for row in plan.rows)
        return ModelPlan(
            "torch",
            at,
            rows=tuple((*row[:3], self.formula_for_user(row[3]), row[4]) for row in rows),
            kernels=sum(plan.kernels for plan in plans),
            arena=tuple(self.formula_for_user(slot) for plan in plans for slot in plan.arena),
            parts=tuple(
                replace(part, size=self.formula_for_user(part.size))
                for plan in plans
                for part in plan.parts
            ),
            split=tuple(line for plan in plans for line in plan.split),
            distributed=tuple(name for plan in plans for name in plan.distributed),
            notes=(
                *(self.formula_for_user(line) for plan in plans for line in plan.notes),
                *self.left,
            ),
        )

    def cost(self, sizes: Mapping[str, int]) -> ModelCost:
        """What the kernels of a call cost, without what torch runs.

        Raises CallError for a size that is missing, unknown, or not allowed.
        """
        at = given_sizes("cost", "the model", self.sizes, sizes)
        costs = (model.cost(**one) for model, one in self._each(at))
        return ModelCost("torch", at, tuple(kernel for cost in costs for kernel in cost.kernels))

    def _each(self, at: Mapping[str, int]) -> list[tuple[Model, dict[str, int]]]:
        """The models, with the sizes of each by its own names; none where none are given."""
        own = {symbol: at[name] for symbol, name in self.called.items() if name in at}
        own |= {name: own[whole] // by for name, whole, by in self.quotients if whole in own}
        return [
            (model, {s.name: own[s.name] for s in model.bound.graph.sizes} if own else {})
            for model in self.models
        ]

    def user_name(self, symbol: str) -> tuple[str, int]:
        """What a user calls a size of a region, and of which number of it that is a multiple."""
        for quotient, whole, by in self.quotients:
            if quotient == symbol:
                return self.called[whole], by
        return self.called.get(symbol, symbol), 1

    def formula_for_user(self, formula: str) -> str:
        """A formula in the names of the user."""
        names: dict[str, Any] = dict(self.called)
        names |= {name: f"({self.called[whole]}//{by})" for name, whole, by in self.quotients}
        return re.sub(r"\b\w+\b", lambda word: names.get(word[0], word[0]), formula)


Rule = Callable[[Mapping[str, int]], str]


def in_parts(predicted: ProgramCost, parts: Parts) -> list[Model]:
    """The models of a program's regions, in the parts that are asked for.

    Raises what `offcut.graph.compile_graph` does of `parts`.
    """
    if isinstance(parts, bool):
        return [model.in_parts(parts) for model in predicted.models]
    if isinstance(parts, str):
        return [_of(model, parts, predicted) for model in predicted.models]
    return [model.in_parts(_rule(model, parts, predicted)) for model in predicted.models]


def _of(model: Model, text: str, predicted: ProgramCost) -> Model:
    """A model in the parts of a text that are its own."""
    try:
        return model.in_parts(_own(model, text, predicted))
    except PartitionError as refused:
        texts = (refused.refused, refused.at, refused.because, *refused.help)
        what, at, because, *help = map(predicted.formula_for_user, texts)
        raise PartitionError("parts", what, at=at, because=because, help=tuple(help)) from None


def _rule(model: Model, rule_of_sizes: Rule, predicted: ProgramCost) -> Rule:
    """What is asked for, of sizes by the names that the model has for them."""

    def rule(sizes: Mapping[str, int]) -> str:
        sizes_by_name = {}
        for name, value in sizes.items():
            called, factor = predicted.user_name(name)
            sizes_by_name[called] = factor * value
        return _own(model, said_by(rule_of_sizes, sizes_by_name), predicted)

    return rule


def _own(model: Model, text: str, predicted: ProgramCost) -> str:
    """The lines of a text that are of a model, in its names.

    Raises PartitionError for a line that is of none, or of a size that the model has not.
    """
    kernels = [{step.name for step in each.steps} for each in predicted.models]
    mine = {step.name for step in model.steps}
    lines: list[Part] = []
    for part in parse_parts(text):
        ends = {part.first, part.last}
        if not any(ends <= names for names in kernels):
            raise PartitionError(
                "parts",
                f"cannot run {part}",
                because=f"no region has a kernel that gives {part.first}, and one that gives {part.last}",
                help=("model.plan() lists what kernels give",),
            )
        if not ends <= mine:
            continue
        sizes = {predicted.user_name(size.name): size.name for size in model.bound.graph.sizes}
        matches = [
            Part(part.first, part.last, part.count // factor, own)
            for (called, factor), own in sizes.items()
            if called == part.size and part.count % factor == 0
        ]
        if not matches:
            raise PartitionError(
                "parts",
                f"cannot run {part}",
                at=part.size,
                because="the region has no such size, of which that is a multiple",
                help=tuple(f"{n} of {called}" for called, n in sizes),
            )
        lines.append(matches[0])
    return "\n".join(map(str, lines))
