"""A decision applied to nests: each by the function of its kind, those of options one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from offcut.core.expr import real
from offcut.errors import PartitionError
from offcut.schedule.apply import covering, inlining, loops, placing, staging
from offcut.schedule.apply import rfactor as factoring
from offcut.schedule.apply.axes import find_stage
from offcut.schedule.apply.staged_form import Alternatives, Nests
from offcut.schedule.decisions import (
    Alternative,
    At,
    Bind,
    Choose,
    Cover,
    Fuse,
    Inline,
    Order,
    Primitive,
    RFactor,
    Split,
    Staging,
    primitive_of,
    stages_in,
)


def apply_decision(nests: Nests, step: Primitive) -> Nests:
    """Return `nests` after one primitive.

    Raises PartitionError if it names what is not there, if its theorem fails, if it changes loops
    that an instruction runs, or if it is about a stage that options were chosen for before.
    """
    stages = {stage for one in nests.alternatives for stage in one.stages}
    late = "" if isinstance(step, Choose) else min(stages_in(step) & stages, default="")
    if late:
        raise PartitionError(
            primitive_of(step),
            f"cannot decide about {late} behind its options",
            at=f"stage {late}",
            because="each option says already how it runs, and this would be of none of them",
            help=("the same line in each option", "the line before choose"),
        )
    try:
        result = _apply_step(nests, step)
        if not isinstance(step, Cover):
            covering.check_covers_stand(nests, result, step)
    except PartitionError as refused:
        refused.decision = refused.decision or step
        raise
    return result


def _apply_step(nests: Nests, step: Primitive) -> Nests:
    match step:
        case Staging("read"):
            return staging.cache_read(nests, step)
        case Staging("prepack"):
            return staging.prepack(nests, step)
        case Staging("write", stage):
            return staging.cache_write(find_stage(nests, stage), step)
        case Staging():
            return staging.stage_value(nests, step)
        case Inline(stage):
            return inlining.compute_inline(find_stage(nests, stage))
        case RFactor(stage):
            return factoring.rfactor(find_stage(nests, stage), step)
        case Split(stage):
            return loops.split(find_stage(nests, stage), step)
        case Fuse(stage):
            return loops.fuse(find_stage(nests, stage), step)
        case Order(stage):
            return loops.reorder(find_stage(nests, stage), step)
        case Bind(stage):
            return loops.bind(find_stage(nests, stage), step)
        case At(stage):
            return placing.compute_at(find_stage(nests, stage), step)
        case Cover(stage):
            return covering.tensorize(find_stage(nests, stage), step)
        case Choose(options):
            return _with_options(nests, options)
        case _:
            assert_never(step)


def without_stages(steps: Iterable[Primitive], absent: set[str]) -> Iterator[Primitive]:
    """Yield the decisions that are not about stages that are absent.

    absent  those that nothing makes; what is made of one, where its turn comes, is added
    """
    for step in steps:
        match step:
            case Choose(options):
                new_options = (
                    replace(one, steps=tuple(without_stages(one.steps, absent))) for one in options
                )
                step = Choose(tuple(new_options))
                if any(one.steps for one in step.options):
                    yield step
            case Staging(_, what, name) if absent & {what, *stages_in(step)}:
                absent.add(name)
            case RFactor(stage, _, name) if stage in absent:
                absent.add(name)
            case Cover(_, _, _, _, operands) if absent & {buffer for _, buffer in operands}:
                pass  # whose tile reads what the absent stage would copy
            case _ if not absent & stages_in(step):
                yield step


def _with_options(nests: Nests, options: Sequence[Alternative]) -> Nests:
    """Return `nests` of which the stages that `options` are about have several variants to run.

    A stage of which one option says nothing runs there in its own loops.

    Raises PartitionError where an option is not legal, or nothing is chosen, or is chosen twice.
    """
    results = []
    about = [frozenset().union(*map(stages_in, option.steps)) for option in options]
    all_stages = {nest.name for nest in nests.nests}
    stages = frozenset().union(*about) & all_stages
    stages_with_choice = {stage for one in nests.alternatives for stage in one.stages}
    for option in options:
        one = nests
        for step in option.steps:
            one = apply_decision(one, step)
        results.append((option.label, option.cost or real(0.0), one))
    labels = [label for label, _, _ in results]
    because = ""
    if not results or not stages:
        because = "it has no option that says how a stage runs"
    elif len(set(labels)) < len(labels):
        because = f"two options have one name: {', '.join(labels)}"
    elif stages & stages_with_choice:
        because = f"{', '.join(sorted(stages & stages_with_choice))} is chosen already"
    if because:
        raise PartitionError("choose", "cannot choose so", because=because)
    rewrites = dict.fromkeys(r for _, _, one in results for r in one.rewrites)
    alternatives = (*nests.alternatives, Alternatives(stages, tuple(results)))
    return replace(nests, alternatives=alternatives, rewrites=tuple(rewrites))
