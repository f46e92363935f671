"""Parts of a program of torch, which is asked for them in names of its own, as parts of its regions.

A line is of the region whose kernels give both of its values; a size is called by argument and axis, ``x_0``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offcut.errors import PartitionError
from offcut.graph import Model
from offcut.graph.models.batches.parts import Part, Parts, parse_parts, said_by
from offcut.plugins.torch.program_cost import ProgramCost

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
