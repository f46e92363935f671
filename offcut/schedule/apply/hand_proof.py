"""Decisions by hand, and what they make of a program; the theorems that it computes what was described.

Decisions that change stages come first, each with an equation of its own. Those about loops are proved at once where isl answers that soon,
else in steps: of each the two programs differ in one stage, which is compared alone. The programs after each step are the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby

from offcut.core.memo import forget
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
        """Return the program that the decisions make, proved: at once, else in steps; where decisions that change stages stand behind others,
        or isl answers neither, with one staged array after the other, at last with values in whole arrays in all steps.

        Raises PartitionError where a result would change; where isl answers no question, with the decision behind which it does not.
        """
        questions: list[Callable[[bool], Proof]] = [partial(self.by_array, ())]
        if self.changes_stages_first:
            questions = [self.at_once, self.in_steps, *questions]
        values = self.whole_values()
        if values:
            questions.append(partial(self.by_array, values))
        undecided: PartitionError | None = None
        for question in questions:
            try:
                return question(reassociate)
            except PartitionError as refused:
                if refused.refused != UNDECIDED:
                    raise
                if undecided is None or undecided.decision is None:
                    undecided = refused
        assert undecided is not None
        raise undecided

    @property
    def changes_stages_first(self) -> bool:
        """Return whether all decisions about loops can be made behind those that change stages."""
        try:
            reduce(apply_decision, self.of_loops, self.staged)
        except PartitionError:
            return False
        return True

    @property
    def staged(self) -> Nests:
        """Return the nests after the decisions that change stages."""
        return reduce(apply_decision, filter(_changes_stages, self.steps), self.first)

    @property
    def of_loops(self) -> tuple[Primitive, ...]:
        """Return the decisions about loops."""
        return tuple(step for step in self.steps if not _changes_stages(step))

    def at_once(self, reassociate: bool) -> Proof:
        """Return the program, proved in one step from the stages in their own loops."""
        forget()
        with lowering_budget():
            program = lower_with_tiles(self.nests)[0]
        return program, prove(self.nests, self.staged.source, (program,), reassociate, PASS)

    def in_steps(self, reassociate: bool) -> Proof:
        """Return the program, proved in steps of which each decides about the loops of one stage more, or where one more is computed.

        Raises PartitionError, with the last decision of the step that is refused.
        """
        forget()
        nests = self.staged
        first = program = nests.source
        theorems: list[Theorem] = []
        for _, steps in groupby(self.of_loops, _decided_loops):
            for step in steps:
                nests = apply_decision(nests, step)
            with lowering_budget():
                before, program = program, lower_with_tiles(nests)[0]
            try:
                known = before is not first
                theorems += _step_theorems(nests, (before, first), program, reassociate, known)
            except PartitionError as refused:
                refused.decision = step
                raise
        return program, Certificate(tuple(dict.fromkeys(theorems)))

    def by_array(self, always: Collection[str], reassociate: bool) -> Proof:
        """Return the program, proved in steps of which each has one staged array more, with all the work of a request.

        always  staged arrays that are there in all steps
        """
        forget()
        with lowering_budget():
            steps = self.with_arrays(always=always)
            programs, _ = _programs(steps)
        certificate = prove(self.nests, steps[0].source, programs, reassociate)
        return programs[-1], certificate

    def whole_values(self) -> tuple[str, ...]:
        """Return the arrays of staged values that lie in no window: they are stages, computed before their readers."""
        steps = tuple(each_decision(self.steps))
        windows = {step.stage for step in steps if isinstance(step, At)}
        values = (s.name for s in steps if isinstance(s, Staging) and s.how == "value")
        return tuple(name for name in values if name not in windows)

    def forms(
        self, small: bool, always: Collection[str]
    ) -> tuple[tuple[Program, ...], tuple[EmittedTile, ...]]:
        """Return the programs from one without staged arrays to the whole, each of one more, and the tiles of the whole; nothing is proved."""
        return _programs(self.with_arrays(small, always), small)

    def with_arrays(self, small: bool = True, always: Collection[str] = ()) -> tuple[Nests, ...]:
        """Return what the decisions make without any staged array, then, in small steps of a proof, with one more each."""
        constants = {b.name for b in self.first.buffers if b.kind is Kind.CONSTANT}
        staged = [
            s.name
            for s in each_decision(self.steps)
            if isinstance(s, Staging) and s.how != "write" and s.name not in always
            if not (s.how == "value" and s.name in constants)  # converted when it is bound
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


def _step_theorems(
    nests: Nests, before: Sequence[Program], program: Program, reassociate: bool, inside: bool
) -> Iterator[Theorem]:
    """Yield the theorems by which a program computes what the first of those before it does of which isl tells it soon.

    inside  whether every access of those before is known to lie inside

    Raises PartitionError, of the first, where it tells that of none.
    """
    undecided: PartitionError | None = None
    for one in dict.fromkeys(before):
        try:
            yield from prove(nests, one, (program,), reassociate, PASS, inside).theorems
            return
        except PartitionError as refused:
            if refused.refused != UNDECIDED:
                raise
            undecided = undecided or refused
    assert undecided is not None
    raise undecided


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
