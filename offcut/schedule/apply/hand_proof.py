"""Decisions by hand, and what they make of a program; the theorems that it computes what was described.

Decisions that change stages have an equation each, and come first where they can. What the others make of a program is compared with
its stages in their own loops: all at once where isl answers that soon, else each half of them with what the half before makes, down to
the decisions about the loops of one stage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

from offcut.core.memo import forget, lazy_property
from offcut.core.program import Alloc, Kind, Program, walk
from offcut.errors import PartitionError
from offcut.partition import EmittedTile
from offcut.polyhedral import PASS
from offcut.proof import UNDECIDED, Certificate, Theorem
from offcut.schedule.apply import covering
from offcut.schedule.apply.apply_decision import apply_decision, without_stages
from offcut.schedule.apply.emit import lower_with_tiles
from offcut.schedule.apply.prove import lowering_budget, prove
from offcut.schedule.apply.staged_form import Nests
from offcut.schedule.apply.without_windows import join_tiles
from offcut.schedule.decisions import (
    VECTORS,
    At,
    Cover,
    Inline,
    Primitive,
    RFactor,
    Staging,
    each_decision,
    stages_in,
)

Proof = tuple[Program, Certificate]


@dataclass(frozen=True)
class HandProof:
    """Decisions by hand.

    first  the nests before any decision
    steps  the decisions
    nests  what they make of these
    """

    first: Nests
    steps: tuple[Primitive, ...]
    nests: Nests

    def proved(self, reassociate: bool) -> Proof:
        """Return the program that the decisions make, proved.

        Raises PartitionError where a result would change; where isl answers no question, with the decision behind which it does not.
        """
        forget()
        steps = (_Step(self._with_converted_constants(), None), *self._steps())
        theorems = _theorems(steps, reassociate)
        return steps[-1].program, Certificate(tuple(dict.fromkeys(theorems)))

    def _converts_constant(self, step: Primitive) -> bool:
        """Return whether a decision declares a constant as its converted elements: it is converted when it is bound."""
        constants = {b.name for b in self.first.buffers if b.kind is Kind.CONSTANT}
        return isinstance(step, Staging) and step.how == "value" and step.name in constants

    def _with_converted_constants(self) -> Nests:
        """Return the nests before any decision, which declare constants as the decisions do, where that can be decided first."""
        conversions = filter(self._converts_constant, self.steps)
        try:
            return reduce(apply_decision, conversions, self.first)
        except PartitionError:
            return self.first

    def _steps(self) -> Iterator[_Step]:
        """Yield what decisions make, those about the loops of a stage together: behind all that change stages, where they can be made there."""
        changes = tuple(step for step in self.steps if _changes_stages(step))
        others = tuple(step for step in self.steps if not _changes_stages(step))
        try:
            reduce(apply_decision, (*changes, *others), self.first)
        except PartitionError:
            changes, others = (), self.steps
        nests = reduce(apply_decision, changes, self.first)
        if not others:
            yield _Step(nests, (*changes, None)[-1])
        for _, steps in groupby(others, _decided_loops):
            for step in steps:
                nests = apply_decision(nests, step)
            yield _Step(nests, step)

    def forms(
        self, small: bool, always: Collection[str]
    ) -> tuple[tuple[Program, ...], tuple[EmittedTile, ...]]:
        """Return the programs from one without staged arrays to the whole, each of one more, and the tiles of the whole; nothing is proved."""
        return _programs(self.with_arrays(small, always), small)

    def with_arrays(self, small: bool = True, always: Collection[str] = ()) -> tuple[Nests, ...]:
        """Return what the decisions make without any staged array, then, in small steps of a proof, with one more each."""
        staged = [
            s.name
            for s in each_decision(self.steps)
            if isinstance(s, Staging) and s.how != "write" and s.name not in always
            if not self._converts_constant(s)
        ]
        forms = []
        for number in range(len(staged) if small else min(len(staged), 1)):
            absent = set(staged[number:])
            if self._is_covered_in_memory(absent):
                continue
            forms.append(reduce(apply_decision, without_stages(self.steps, absent), self.first))
        return (*forms, self.nests)

    def _is_covered_in_memory(self, absent: AbstractSet[str]) -> bool:
        """Return whether a declared instruction asks in which memory a stage finds one of these arrays."""
        steps = tuple(each_decision(self.steps))
        readers = {
            reader
            for step in steps
            if isinstance(step, Staging) and step.name in absent
            for reader in step.readers
        }
        own = {VECTORS, *(kernel.name for kernel in self.nests.microkernels)}
        covers = (s for s in steps if isinstance(s, Cover) and s.stage in readers)
        names = {cover.microkernel for cover in covers} - own
        return any(
            place.memories
            for name in names
            for place in covering.find_intrinsic(name, self.nests.intrinsics, "").operands.values()
        )


def _changes_stages(step: Primitive) -> bool:
    """Return whether a decision makes or removes stages."""
    return isinstance(step, Staging | Inline | RFactor)


def _decided_loops(step: Primitive) -> object:
    """Return whose loops a decision is about; of one where a stage is computed, the decision itself."""
    return step if isinstance(step, At) else stages_in(step)


@dataclass(frozen=True)
class _Step:
    """What some decisions make of a program; `decision` is the last of them, None before the first."""

    nests: Nests
    decision: Primitive | None

    @lazy_property
    def program(self) -> Program:
        """Return the program: before the first decision, every stage in its own loops."""
        if self.decision is None:
            return self.nests.source
        with lowering_budget():
            return lower_with_tiles(self.nests)[0]


def _theorems(steps: Sequence[_Step], reassociate: bool) -> tuple[Theorem, ...]:
    """Return the theorems by which the last program of some steps computes what the first does: of all at once, where isl tells it soon, else
    of each half; of one step with all the work of a request.

    Raises PartitionError, with the last decision of the step that is refused.
    """
    first, last = steps[0], steps[-1]
    inside = first.decision is not None and first.nests.source == last.nests.source
    undecided: PartitionError | None = None
    for most in (PASS, None) if len(steps) <= 2 else (PASS,):
        for source in dict.fromkeys((first.program, last.nests.source)):
            try:
                return prove(
                    last.nests, source, (last.program,), reassociate, most, inside
                ).theorems
            except PartitionError as refused:
                if len(steps) <= 2:
                    refused.decision = last.decision
                if refused.refused != UNDECIDED:
                    raise
                undecided = undecided or refused
    assert undecided is not None
    if len(steps) <= 2:
        raise undecided
    middle = len(steps) // 2
    return (
        *_theorems(steps[: middle + 1], reassociate),
        *_theorems(steps[middle:], reassociate),
    )


def _programs(
    steps: Sequence[Nests], small: bool = True
) -> tuple[tuple[Program, ...], tuple[EmittedTile, ...]]:
    """Return the programs of some nests, before them the first one without its windows, if it has any; and the tiles of the last.

    small  whether the first one with its windows is a step, too, where others follow
    """
    emitted = [lower_with_tiles(nests) for nests in steps]
    programs = tuple(program for program, _ in emitted)
    if any(isinstance(stmt, Alloc) for stmt in walk(programs[0].body)):
        programs = (join_tiles(programs[0]), *programs[0 if small or len(programs) == 1 else 1 :])
    return programs, tuple(emitted[-1][1])
