"""What a target is: a machine, microkernels, a space of plans, a lowering and a loader.

`offcut.compile` asks a target, in this order::

    options -> space, whose first plan is its default policy -> lower -> load -> a call

and keeps what `lower` gives in the cache. Which targets there are says `offcut.backends.registry`.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import uuid4

from offcut.backends.base import Exported, Signature
from offcut.backends.covers import complete_covers, unknown_covers, unknown_microkernel_error
from offcut.backends.host.call import python_callable
from offcut.backends.plan import Plan, Pricing, checked_sizes, plan_at
from offcut.backends.proving import check_compiled, check_step
from offcut.backends.requested import Request, requested, stand_ins
from offcut.backends.signature import signature_of
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.memo import forget
from offcut.core.plain_loops import is_synchronized, unsynchronized
from offcut.core.program import Program
from offcut.core.text.read_back import read_back
from offcut.costmodel import (
    Cost,
    Device,
    Formulas,
    Hardware,
    Level,
    Machine,
    StageSeconds,
    cost,
    formulas,
    processor,
    sampled,
    stage_seconds,
)
from offcut.costmodel.nests import SchedulePrices
from offcut.costmodel.regret import choice_errors
from offcut.describe.computation import Computation
from offcut.describe.microkernel import Microkernel
from offcut.describe.request import Array
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError, PartitionError, TargetError
from offcut.partition import LoopCut, Made, Strategy, Users, check_layouts, check_windows
from offcut.polyhedral.sync import Agents, check
from offcut.schedule import (
    Applied,
    Resolving,
    Schedule,
    create_schedule,
    hand_steps,
    parts_of,
    replay,
)
from offcut.search import Points, Space, place_of
from offcut.search.settled import kind_of

# For all axes of rows, or by axis.
Strategies = Literal["auto"] | Strategy | tuple[tuple[str, Strategy], ...]
Loaded = Callable[[Mapping[str, Array]], Callable[..., Any]]
"""From the constants, by the program's names, to what a user calls."""


def gave(target: Target, method: str, found: Any, kind: Any, what: str) -> Any:
    """What a method of a target gives, or an attribute of it.

    kind  a type, or several: one of which it is

    Raises TargetError where it is not of the kind that is asked for.
    """
    if isinstance(found, kind):
        return found
    raise TargetError(
        "target",
        f"cannot use target={target.name!r}",
        at=f"{type(target).__name__}.{method}",
        because=f"it gives {found!r}, not {what}",
    )


@dataclass(frozen=True)
class Options:
    """How a kernel is asked for; `offcut.compile` says what the fields mean.

    schedule  what is decided already; None: the policy decides
    every     whether ways stay that the target's own prices leave out: others will price them
    padded    whether products that padding makes zero stay
    """

    strategy: Strategies = "auto"
    reassociate: bool = True
    microkernels: tuple[Microkernel, ...] = ()
    threads: int = 1
    schedule: Schedule | None = None
    every: bool = False
    padded: bool = False


DEFAULT = Options()


GIVES: Mapping[str, tuple[Any, str]] = {
    "options": (Options, "Options"),
    "space": (Iterable, "an iterator over plans"),
    "lower": (bytes, "bytes"),
    "load": (Callable, "a function of the constants"),
    "facts": ((tuple, list), "a tuple of texts"),
    "notes": ((tuple, list), "a tuple of lines"),
    "show": (str, "a text"),
    "show_at": (str, "a text"),
}
"""What methods of targets give: who calls one of them holds its answer to this, by `answer`."""

Given = TypeVar("Given")


def answer(target: Target, method: str, found: Given) -> Given:
    """What a target's method gave: ``answer(mine, "lower", mine.lower(…))``.

    Raises TargetError where it is not of the type in `GIVES`.
    """
    gave(target, method, found, *GIVES[method])
    return found


@dataclass(frozen=True)
class Planned:
    """A program as a target runs it.

    program   what is lowered, proved equal to what was asked for
    schedule  every decision that made it; None where the target decides by other means
    applied   its pieces, and the ways that compete at run time; None where it runs in its own loops
    notes     what became of its loops and tiles, and why
    through   programs on the way to it: a proof by small steps reaches further
    by_hand   what primitives of the schedule that was asked for made, each by a theorem of its own: the proof goes on
              from there; None: there are none
    tiles     its tiles by the loops that were cut around them, in the order of the text; none where `applied` has them
    """

    program: Program
    schedule: Schedule | None = None
    applied: Applied | None = None
    notes: tuple[str, ...] = ()
    through: tuple[Program, ...] = ()
    by_hand: Program | None = None
    tiles: tuple[Made, ...] = ()


class Target(ABC):
    """A kind of hardware that programs are compiled for; a plug-in derives its own from it.

    name       as ``target=`` takes it
    machine    the one that it plans for: of the class, or of each target
    forms      what `show` can show of a plan, beside its loops
    any_cover  whether tiles may name microkernels that nobody knows, since it runs them by their meaning
    applies_schedules  whether `space` applies the schedule of its options; else its plans are of what decisions by hand make
    judges     whether its lowering asks the judge of its own microkernels, with what it knows of them
    simulates  whether its machine is simulated: `simulated` says what a call takes, and nothing is timed
    agents     the units for which it checks a program's own synchronization; None: it runs that as it stands
    """

    name: str
    machine: Device
    forms: tuple[str, ...] = ()
    any_cover: bool = False
    applies_schedules: bool = False
    judges: bool = False
    simulates: bool = False
    agents: Agents | None = None

    def microkernels(self, options: Options | None = None) -> tuple[Microkernel, ...]:
        """Those that may cover tiles, the one that prices tiles first."""
        return ()

    def unsynchronized(self, output: Any, op: str) -> Any:
        """`output`; a program without its statements of synchronization, checked for `agents`: what is lowered gets its own.

        Raises PartitionError, in the name of `sync`, where the order of its text would not be kept.
        """
        if self.agents is None or not isinstance(output, Program):
            return output
        if not is_synchronized(read_back(output, op)):
            return output
        check(output, self.agents)
        return unsynchronized(output)

    def check_text(self, program: Program, options: Options, op: str) -> tuple[str, ...]:
        """Check what a text says of the machine; return a line for each word of it that is not used.

        Tiles are run by the microkernels that they name; a line is for a name that nobody knows.

        Memories, layouts and units of its own microkernels may be decided by `space`: these are asked of its plan.

        Raises PartitionError, in the name of `op`, with the first question that a tile fails, TargetError for a unit or a
        memory that the machine does not have.
        """
        own = self.microkernels(options)
        complete_covers(program, own, op, None if self.judges else False)
        unknown = unknown_covers(program, own)
        if unknown and not self.any_cover:
            raise unknown_microkernel_error(*next(iter(unknown.items())), own, op)
        if self.judges:
            return ()
        because = f"target={self.name!r} knows no microkernel of that name"
        return tuple(f"{name} stays a name, and is not checked: {because}" for name in unknown)

    def request(
        self, output: Any, inputs: Any, constants: Any, options: Options, op: str
    ) -> tuple[Request, tuple[str, ...]]:
        """Return what `op` is asked, checked, its text too, and a line for each word of that which is not used.

        Raises DescribeError, PartitionError or TargetError for what cannot be described or run.
        """
        output = self.unsynchronized(output, op)
        made, notes = requested(output, inputs, constants, op), tuple[str, ...]()
        if isinstance(output, Program):
            notes = self.check_text(output, options, op)
            check_layouts(output, op)
        return made, notes

    @abstractmethod
    def space(self, program: Program, users: Users, options: Options) -> Iterator[Planned]:
        """Return the plans of a program in the policy's order of preference: the first that is proved is taken.

        users  what the user calls what is in `program`

        Raises PartitionError where an option is not legal for it.
        """

    def cut(
        self, program: Program, users: Users, cuts: Mapping[str, LoopCut], options: Options
    ) -> Planned | None:
        """Return the plan of `program` in which these axes have these tiles and tails; None where the loops of a program are cut
        as they stand, and what runs them is found when they are compiled.

        cuts  by axis, as the user calls it

        Raises PartitionError for a cut that the machine does not run.
        """
        return None

    def computation(self, request: Request, options: Options) -> Computation | None:
        """What the nests of a schedule are of; None where the target cuts no computation of it."""
        return None

    def resolving(self, computation: Computation, options: Options) -> Resolving:
        """What gives the loops of the ways of schedules with nests; nothing is cut.

        Raises TargetError where the target cuts no computations.
        """
        raise TargetError(
            "tune",
            f"cannot price schedules for target={self.name!r}",
            because="it has no cost model",
        )

    @abstractmethod
    def lower(self, planned: Planned, signature: Signature, options: Options) -> bytes:
        """Code of a plan: what `load` takes, in this process or a later one."""

    @abstractmethod
    def load(self, lowered: bytes, signature: Signature, options: Options) -> Loaded:
        """Code that can be called.

        Raises TargetError where this machine cannot run it.
        """

    def options(
        self,
        op: str,
        strategy: Strategies = "auto",
        reassociate: bool = True,
        microkernels: Sequence[Microkernel] = (),
        threads: int | None = None,
        schedule: Schedule | None = None,
    ) -> Options:
        """What a call of `op` asks for, checked; a target that says nothing else has one thread.

        Raises TargetError for what the target does not do.
        """
        asked_for = {
            "strategy": strategy != "auto",
            "microkernels": microkernels,
            "schedule": schedule is not None and hand_steps(schedule) != schedule.steps,
        }
        for option, given in asked_for.items():
            if given:
                raise TargetError(
                    op,
                    f"cannot take {option}= for target={self.name!r}",
                    because="it has one way to run a program",
                )
        return Options(reassociate=reassociate, schedule=schedule)

    def facts(self, options: Options) -> tuple[str, ...]:
        """All that code depends on beside the program and its signature: what the cache knows it by.

        The class by its name, it and those it inherits from by the texts of their modules, and what the target holds.
        """
        kinds = [kind for kind in type(self).__mro__ if kind not in (Target, object)]
        texts = dict.fromkeys(_text_of(kind) for kind in kinds)
        state = repr(sorted(vars(self).items()))
        if " at 0x" in state:  # an object that does not say what it is: no other process has it
            state = uuid4().hex
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, state, *texts, repr(self.machine), repr(options)

    def place(self, options: Options) -> str:
        """What records call where kernels of these options run: all that times depend on and no schedule says."""
        lent = [kernel.name for kernel in options.microkernels]
        return place_of(self.name, self.machine, options.threads, options.reassociate, lent)

    def kind(self, options: Options) -> str:
        """What shipped records call it, on every machine of this kind; they are of no microkernels that were handed over."""
        lent: list[str] = []
        return kind_of(self.name, self.machine, options.threads, options.reassociate, lent)

    def __repr__(self) -> str:
        return f"<target {self.name} for {self.machine.name}>"

    def plan(
        self,
        output: Any,
        inputs: Sequence[Tensor] | None = None,
        constants: Sequence[str] | Mapping[str, Any] = (),
        options: Options | None = None,
        **sizes: int,
    ) -> Plan:
        """What a call of these sizes would run, and why; nothing is lowered, nothing has to run here.

        output, inputs  as `offcut.compile` takes them
        constants       the names of inputs that are known before any call, or arrays by name
        options         what `options` gives; None: what `offcut.compile` takes where nothing is said

        Raises CallError for a size that is missing or not allowed.
        """
        options = options or DEFAULT
        request, planned, said = self._planned(output, inputs, constants, options)
        made = self.plan_of(planned, request, options, sizes)
        chooses = self.choice_notes(planned, request, options)
        return replace(made, notes=(*said, *made.notes, *chooses))

    def source(
        self,
        output: Any,
        inputs: Sequence[Tensor] | None = None,
        constants: Sequence[str] | Mapping[str, Any] = (),
        options: Options | None = None,
        form: str = "loops",
    ) -> str:
        """What a kernel would run: its loop program (``loops``), or one of `forms`."""
        request, planned, _ = self._planned(output, inputs, constants, options or DEFAULT)
        return self.shown(planned, signature_of(*request.named), options or DEFAULT, form)

    def vectors(self, options: Options) -> tuple[int, int]:
        """Bytes of a vector register, and how many there are: by these, plain loops are priced.

        A target that says nothing else runs instances one by one.
        """
        return ITEM_BYTES["float64"], 1

    def hardware(self, options: Options) -> Hardware:
        """What the cost model counts by.

        Raises TargetError where the machine is no processor.
        """
        machine = processor(self.machine)
        register_bytes, registers = self.vectors(options)
        levels = (
            Level(registers * register_bytes, 1),
            *(Level(m.bytes, m.line, m.ways) for m in machine.memory),
        )
        kernels = {kernel.name: kernel for kernel in self.microkernels(options)}
        return Hardware(machine, kernels, register_bytes, levels)

    def pricing(self, planned: Planned, request: Request, options: Options) -> Pricing | None:
        """What predicts the calls of a plan; None where the machine is no processor."""
        if not isinstance(self.machine, Machine):
            return None
        hardware, users = self.hardware(options), dict(request.users.sizes)

        def priced(sizes: Mapping[str, int], taken: Mapping[int, int]) -> StageSeconds:
            given = {users[user]: size for user, size in sizes.items()}
            return stage_seconds(planned.program, hardware, given, taken)

        return priced

    def cost_of(
        self,
        planned: Planned,
        request: Request,
        options: Options,
        sizes: Mapping[str, int] | None = None,
    ) -> Cost | Formulas:
        """What a call of a plan costs by the cost model, on one core: at `sizes`, or as formulas in them.

        Raises CallError for a size that is missing or not allowed, TargetError where the machine is no
        processor.
        """
        hardware = self.hardware(options)
        users = dict(request.users.sizes)
        if sizes is None:
            own = {name: user for user, name in users.items()}
            return formulas(request.program, planned.program, hardware, own)
        sizes = checked_sizes(signature_of(*request.named), sizes, "cost")
        given = {users[user]: size for user, size in sizes.items()}
        return cost(request.program, planned.program, hardware, sizes, given)

    def simulated(
        self, planned: Planned, request: Request, options: Options, sizes: Mapping[str, int]
    ) -> float:
        """Seconds of a call at `sizes`, where the target simulates its machine.

        Raises TargetError where it does not.
        """
        raise TargetError(
            "tune", f"cannot simulate {self.machine.name}", because="calls of it are timed"
        )

    def prices(
        self, request: Request, options: Options, vectors: Sequence[Mapping[str, int]]
    ) -> Callable[[Schedule], Sequence[float]] | None:
        """Predicted seconds of schedules at vectors of sizes, in their order, of what a target prices by itself;
        None: by `resolving`, or of the loops that are cut.

        The function raises PartitionError for a schedule that is not legal; it proves nothing.
        """
        return None

    def schedules(self, request: Request, options: Options, most: int) -> Points:
        """What can be decided of a program, from what the policy decides.

        most   ways of a nest that may compete

        Raises TargetError for a program of which a schedule says nothing.
        """
        first = self.policy(request, options).schedule
        if first is None:
            raise TargetError(
                "tune",
                f"cannot tune {request.program.name} for target={self.name!r}",
                because="it decides nothing that a schedule says",
            )
        computation = self.computation(request, options) if parts_of(first) else None
        kernels, machine = self.microkernels(options), processor(self.machine)
        return Space(first, request.program, computation, kernels, machine, most=most)

    def _planned(
        self, output: Any, inputs: Any, constants: Any, options: Options
    ) -> tuple[Request, Planned, tuple[str, ...]]:
        known = constants
        if not isinstance(constants, Mapping | Sequence):
            raise DescribeError(
                "plan",
                f"cannot take constants={constants!r}",
                because="they are names of inputs, or arrays by name",
                help=('constants=["W"]',),
            )
        if not isinstance(constants, Mapping):
            known = stand_ins(constants, output, inputs, "plan")
        request, notes = self.request(output, inputs, known, options, "plan")
        return request, self.policy(request, options), notes

    def policy(self, request: Request, options: Options) -> Planned:
        """Return the first plan of the space, proved; the same one whatever was planned before.

        Raises PartitionError, with a witness, where it does not compute what was asked for.
        """
        forget()
        refused: PartitionError | None = None
        program, by_hand, left = request.program, None, options
        if options.schedule is not None and options.schedule.name != program.name:
            raise PartitionError(
                "schedule",
                f"cannot apply a schedule of {options.schedule.name} to {program.name}",
                at=f"line 1: schedule {options.schedule.name}",
                because="it was written for another program",
                help=(f"schedule {program.name}",),
            )
        if not self.judges:
            check_windows(program)
        if options.schedule is not None and not self.applies_schedules:
            check_step(program, create_schedule(program).source, options.reassociate)
            own, given = self.microkernels(options), (options.microkernels, options.reassociate)
            _, by_hand = replay(program, options.schedule, *given, own)
            program, left = by_hand, replace(options, schedule=None)
        for found in answer(self, "space", self.space(program, request.users, left)):
            plan: Planned = gave(self, "space", found, Planned, "Planned(program)")
            asked = options.schedule is not None and bool(hand_steps(options.schedule))
            if by_hand is not None:
                plan = replace(plan, schedule=options.schedule, by_hand=by_hand)
            source = plan.by_hand if asked and plan.by_hand is not None else request.program
            try:
                check_compiled((source, *plan.through, plan.program), options.reassociate)
            except PartitionError as error:
                refused = refused or error
            else:
                return plan if self.judges else self._covered(plan, options)
        if refused is None:
            raise TargetError(
                "compile",
                f"cannot plan {request.program.name} for target={self.name!r}",
                because="the target's space holds no plan of it",
            )
        raise refused

    def _covered(self, plan: Planned, options: Options) -> Planned:
        """Return a plan whose tiles say the whole of their covers.

        Raises PartitionError for a tile that the microkernel it names does not run.
        """
        own = self.microkernels(options)
        unknown = {} if self.any_cover else unknown_covers(plan.program, own)
        if unknown:
            raise unknown_microkernel_error(*next(iter(unknown.items())), own, "compile")
        program = complete_covers(plan.program, own, "compile")
        return plan if program == plan.program else replace(plan, program=program)

    def plan_of(
        self, planned: Planned, request: Request, options: Options, sizes: Mapping[str, int]
    ) -> Plan:
        """What is to be said of a plan at these sizes, by the users' names."""
        pricing = self.pricing(planned, request, options)
        made = plan_at(planned.applied, signature_of(*request.named), sizes, pricing)
        names = dict(request.users.sizes)
        given = {names[user]: n for user, n in made.sizes.items()}
        notes = answer(self, "notes", self.notes(planned, given, options))
        return replace(made, notes=(*made.notes, *planned.notes, *notes))

    def choice_notes(self, planned: Planned, request: Request, options: Options) -> tuple[str, ...]:
        """Return how far prices are off by which a call of a plan chooses, and what it takes longer for it; none where nothing competes."""
        competes = planned.applied is not None and any(
            len(ways) > 1 for ways in planned.applied.choices
        )
        if not competes or planned.schedule is None or not isinstance(self.machine, Machine):
            return ()
        computation = self.computation(request, options)
        if computation is None:
            return ()
        try:
            resolving = self.resolving(computation, options)
        except TargetError:  # it cuts by ways that nobody prices
            return ()
        calls = sampled(request.program.sizes, request.program.assumptions)
        prices = SchedulePrices(self.hardware(options), calls, resolving)
        return tuple(map(str, choice_errors(planned.schedule, prices)))

    def shown(
        self,
        planned: Planned,
        signature: Signature,
        options: Options,
        form: str,
        sizes: Mapping[str, int] | None = None,
    ) -> str:
        """Return a plan as its loop program (``loops``), or in one of `forms`, of a call where sizes are given."""
        if form == "loops" and sizes is None:
            return str(planned.program)
        forms = ("loops", *gave(self, "forms", self.forms, (tuple, list), "a tuple of names"))
        if form not in forms:
            raise DescribeError(
                "source",
                f"cannot show {form!r}",
                because="there is no such form",
                help=tuple(f'"{one}"' for one in forms),
            )
        if sizes is not None:
            text = self.show_at(planned, signature, options, form, sizes)
            return answer(self, "show_at", text)
        return answer(self, "show", self.show(planned, signature, options, form))

    def show_at(
        self,
        planned: Planned,
        signature: Signature,
        options: Options,
        form: str,
        sizes: Mapping[str, int],
    ) -> str:
        """Return one of `forms` as a call of these sizes has it, by the program's names of them.

        Raises DescribeError where it is the same at every size.
        """
        raise DescribeError(
            "source",
            f"cannot show {form!r} at sizes",
            because=f"{self.name} has one for every size",
            help=(f'source("{form}")',),
        )

    def refused(self, program: Program, options: Options) -> Mapping[int, str]:
        """Why tiles run without the microkernel that they name, by position, parents first."""
        return {}

    def called(
        self, planned: Planned, signature: Signature, options: Options
    ) -> frozenset[str] | None:
        """Return the microkernels that the code of a plan calls; None where it cannot say."""
        return None

    def notes(
        self, planned: Planned, sizes: Mapping[str, int], options: Options
    ) -> tuple[str, ...]:
        """What is to be said of a call at these sizes, by the program's names."""
        return ()

    def show(self, planned: Planned, signature: Signature, options: Options, form: str) -> str:
        """Return a plan in one of `forms`; who has none shows its loops."""
        return str(planned.program)

    def timeline(
        self, planned: Planned, signature: Signature, options: Options, sizes: Mapping[str, int]
    ) -> Any:
        """Return how a call runs in time, at sizes by the program's names.

        Raises TargetError where the target has no clock of its own.
        """
        raise TargetError(
            "timeline",
            f"cannot time {planned.program.name} for target={self.name!r}",
            because="it has no simulator: a call is timed by calling it",
            help=("kernel.cost(n=…) predicts",),
        )

    def code_bytes(self, program: Program) -> int | None:
        """Bytes of the instructions of a cut program; None where it does not know."""
        return None

    def export(
        self,
        planned: Planned,
        signature: Signature,
        constants: Mapping[str, Array],
        options: Options,
        folder: str | os.PathLike[str],
        name: str,
    ) -> Exported:
        """Code for programs without Python.

        Raises TargetError where the target has none.
        """
        raise TargetError(
            "export",
            f"cannot export for target={self.name!r}",
            because="it makes no code that runs without Python",
        )


def _text_of(kind: type) -> str:
    """Return the module that a class is from, as text; of one that has none, what no other process has."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    try:
        return Path(file or "").read_text(encoding="utf-8")
    except OSError:  # a script from standard input, say
        return f"{os.getpid()} {id(kind)}"


__all__ = [
    "DEFAULT",
    "Loaded",
    "Options",
    "Planned",
    "Strategies",
    "Target",
    "python_callable",
]
