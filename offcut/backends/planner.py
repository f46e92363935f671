"""The planner of a target: its microkernels, its policy, and the space of other decisions."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from offcut.backends import generic
from offcut.backends.compile_request import CompileRequest
from offcut.backends.options import Options, Strategies, TargetPlan, checked_options
from offcut.backends.verify import check_covers, without_synchronization
from offcut.core.names import RenamedAttribute, warn_renamed
from offcut.core.program import Program
from offcut.describe.computation import Computation
from offcut.describe.microkernel import Microkernel
from offcut.partition import LoopCut, Users
from offcut.polyhedral.sync import Agents
from offcut.schedule import Schedule, VariantResolver
from offcut.search import ScheduleSpace

_RENAMED = {
    "any_cover": "accepts_any_cover",
    "resolving": "variant_resolver",
    "forms": "source_forms",
    "facts": "cache_key_parts",
    "called": "called_microkernels",
    "show": "render_form",
    "show_at": "render_form_at",
    "simulates": "is_simulator",
    "simulated": "simulated_seconds",
    "plan_of": "describe_plan",
    "cost_of": "predict_cost",
    "prices": "predict_seconds",
    "costs": "predict_costs",
    "refused": "rejected_covers",
    "place": "record_key",
    "kind": "machine_kind",
}
"""Members of a target by their names before 0.2: a class may still define them, and a caller use them."""


class TargetPart:
    """A part of a target, whose renamed members are still known by their old names, with a warning."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for old, new in _RENAMED.items():
            if old in vars(cls):
                level = 4 if isinstance(cls, ABCMeta) else 3  # `ABCMeta.__new__` is a frame
                warn_renamed(f"{cls.__name__}.{old}", new, level)
                setattr(cls, new, vars(cls)[old])
                delattr(cls, old)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _RENAMED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warn_renamed(f"{type(self).__name__}.{name}", _RENAMED[name])
            return getattr(self, _RENAMED[name])


class Planner(TargetPart):
    """The planner of a target: its microkernels, its policy, and the space of other decisions.

    accepts_any_cover  whether tiles may name microkernels that nobody knows, since it runs them by their meaning
    applies_schedules  whether `policy` applies the schedule of its options; else its plans are of what decisions by hand make
    takes_strategies   whether a strategy other than "auto" decides its cuts; None: where `policy` is the one by default
    judges     whether its lowering asks the judge of its own microkernels, with what it knows of them
    agents     the units for which it checks a program's own synchronization; None: it runs that as it stands
    """

    accepts_any_cover: bool = False
    applies_schedules: bool = False
    takes_strategies: bool | None = None
    judges: bool = False
    agents: Agents | None = None

    def microkernels(self, options: Options | None = None) -> tuple[Microkernel, ...]:
        """Return the microkernels that may cover tiles, the one that prices tiles first."""
        return ()

    def options(
        self,
        op: str,
        strategy: Strategies = "auto",
        reassociate: bool = True,
        microkernels: Sequence[Microkernel] = (),
        threads: int | None = None,
        schedule: Schedule | None = None,
    ) -> Options:
        """Return the checked options of a call of `op`; by default one thread, and decisions by hand only.

        Raises TargetError for what the target does not do.
        """
        takes = self.takes_strategies
        one_way = type(self).policy is not Planner.policy if takes is None else not takes
        return checked_options(
            target_name(self), one_way, op, strategy, reassociate, microkernels, schedule
        )

    def policy(self, program: Program, users: Users, options: Options) -> Iterator[TargetPlan]:
        """Return the plans of a program in order of preference: the first that is proved is taken.

        users  what the user calls what is in `program`

        What a ``yield`` of it gives is why that plan is not taken (`decide.Plans`).

        A target that says nothing else covers what its microkernels compute, as `generic` says.

        Raises PartitionError where an option is not legal for it.
        """
        return generic.policy(self, program, users, options)

    def with_options(self, schedule: Schedule, program: Program, options: Options) -> Schedule:
        """Return a schedule as it is applied to a program: with an option of all decisions for each strategy that a split chooses among, where
        the target chooses among whole programs.

        Raises PartitionError for a decision that is not legal.
        """
        return schedule

    def cut(
        self, program: Program, users: Users, cuts: Mapping[str, LoopCut], options: Options
    ) -> TargetPlan | None:
        """Return the plan of `program` in which these axes have these tiles and tails; None where the loops of a program are cut
        as they stand, and what runs them is found when they are compiled.

        cuts  by axis, as the user calls it

        Raises PartitionError for a cut that the machine does not run.
        """
        return generic.cut(self, program, users, cuts, options)

    def space(
        self, planned: TargetPlan, request: CompileRequest, options: Options, most: int
    ) -> ScheduleSpace:
        """Return the search space of a program: all that can be decided.

        planned  what the policy decides
        most     variants of a nest that may compete

        Raises TargetError for a program of which a schedule says nothing.
        """
        return generic.space(self, planned, request, options)

    def computation(self, request: CompileRequest, options: Options) -> Computation | None:
        """Return the computation that the nests of a schedule refer to; None if the target cuts no computation."""
        return None

    def variant_resolver(
        self, computation: Computation, options: Options
    ) -> VariantResolver | None:
        """Return the function that gives the loops of variants in schedules with nests, without cutting; None: there are no such schedules."""
        return None

    def check_text(self, program: Program, options: Options, op: str) -> tuple[str, ...]:
        """Check the parts of a text that concern the machine; return a line for each word that is not used.

        Raises PartitionError, in the name of `op`, with the first question that a tile fails, TargetError for a unit or a
        memory that the machine does not have.
        """
        return check_covers(self, program, options, op)

    unsynchronized = RenamedAttribute("without_synchronization")

    def without_synchronization(self, output: Any, op: str) -> Any:
        """Return `output`; of a program, check its synchronization for `agents`, and remove it.

        Raises PartitionError, in the name of `sync`, where the order of its text would not be kept.
        """
        return without_synchronization(output, self.agents, op)


def target_name(part: object) -> str:
    """Return the name of the target that a part is of; of a part alone, that of its class."""
    return str(getattr(part, "name", type(part).__name__))
