"""The targets of machines of queues: `vta`, `vta-osdi18`, `gemmini`, or any that is described.

A kernel's code is its loop program with its covers. Streams are made from it for the sizes of a call, in
milliseconds, and run on the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from offcut.backends.abi import Signature
from offcut.backends.accelerator.costs import cost_of, formulas_of, run_streams
from offcut.backends.accelerator.executor import AcceleratorExecutor
from offcut.backends.accelerator.host_device_split import HostDeviceProgram
from offcut.backends.accelerator.isa import Stream
from offcut.backends.accelerator.isa.listing import listing
from offcut.backends.accelerator.lowering.annotations import with_memories
from offcut.backends.accelerator.lowering.queues import agents
from offcut.backends.accelerator.microkernels import instructions_of, microkernels
from offcut.backends.accelerator.planning.choices import Nests
from offcut.backends.accelerator.planning.deadlock_fallback import (
    annotated_plan,
    plan_without_deadlock,
)
from offcut.backends.accelerator.planning.pieces import pieces_of, streams_of
from offcut.backends.accelerator.planning.plan_request import first_stage, plan_request
from offcut.backends.accelerator.planning.planner import (
    check_units,
    plan_program,
    prepare_computation,
)
from offcut.backends.accelerator.planning.roles import typical_sizes
from offcut.backends.accelerator.simulator import SimulationResult, simulate_timing
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.backends.compile_request import CompileRequest
from offcut.backends.covers import unstaged_covers
from offcut.backends.host.call import python_callable
from offcut.backends.plan import Plan, PlanAlternative
from offcut.backends.predict import cost_at
from offcut.backends.raising import raise_to_computation
from offcut.backends.signature import run_by_name
from offcut.backends.target import Loaded, Options, Strategies, Target, TargetPlan
from offcut.core.analysis import analysis
from offcut.core.memo import lazy_property
from offcut.core.plain_loops import is_synchronized
from offcut.core.program import Program, Store, Sync, Tile, walk
from offcut.core.text.parser import parse, read_back
from offcut.core.text.printer import format_head
from offcut.costmodel import Cost, Device, Formulas, load
from offcut.describe.computation import Computation
from offcut.describe.microkernel import Microkernel
from offcut.describe.request import Array
from offcut.errors import PartitionError, TargetError
from offcut.partition import LoopCut, Users, axis_named, check_windows, rename_for_user
from offcut.polyhedral.isl_budget import try_isl
from offcut.polyhedral.sync import Agents
from offcut.schedule import (
    ANY,
    Primitive,
    RFactor,
    Schedule,
    Staging,
    each_decision,
    replay,
    stages_in,
)
from offcut.search import ScheduleSpace


@dataclass(frozen=True, repr=False)
class Accelerator(Target):
    """A machine of queues.

    called_as  the name of the target
    described  the machine
    """

    called_as: str
    described: Device
    accepts_any_cover = True
    applies_schedules = True
    judges = True
    is_simulator = True

    @property
    def name(self) -> str:  # type: ignore[override]
        """As ``target=`` takes it."""
        return self.called_as

    @property
    def machine(self) -> Device:  # type: ignore[override]
        """Return the machine that it plans for."""
        return self.described

    @property
    def source_forms(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the instructions, and where units give each other tokens, what they run in which order."""
        return ("listing", "order") if self.spec.tokens else ("listing",)

    @property
    def agents(self) -> Agents | None:  # type: ignore[override]
        """Its units, and the queues of tokens between them; None: the hardware keeps their order."""
        return agents(self.spec) if self.spec.tokens else None

    @lazy_property
    def spec(self) -> AcceleratorSpec:
        """Return the machine in numbers."""
        return AcceleratorSpec.of(self.described)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.called_as, self.described)

    def microkernels(self, options: Options | None = None) -> tuple[Microkernel, ...]:
        """What its units do with words."""
        return microkernels(self.spec)

    def options(
        self,
        op: str,
        strategy: Strategies = "auto",
        reassociate: bool = True,
        microkernels: Sequence[Microkernel] = (),
        threads: int | None = None,
        schedule: Schedule | None = None,
    ) -> Options:
        """Return the options: `strategy` is of tails, `schedule` decides everything; sums are of integers, in any order."""
        options_ = super().options(op, "auto", reassociate, microkernels, threads)
        return replace(options_, strategy=strategy, schedule=schedule)

    def cache_key_parts(self, options: Options) -> tuple[str, ...]:
        """Return the machine, and what is asked of the plan."""
        return type(self).__qualname__, self.called_as, repr(self.machine), repr(options)

    def policy(self, program: Program, users: Users, options: Options) -> Iterator[TargetPlan]:
        """Yield a program that says what lies on the chip, as it stands; any other by the schedule, or the policy."""
        schedule, program = options.schedule, with_memories(program)
        check_windows(program)
        if any(buffer.scope is not None for buffer in program.buffers):
            yield annotated_plan(TargetPlan(program), self.spec)
            return
        if schedule is not None and not self.applies(program, schedule):
            check_units(schedule, self.spec)
            _, by_hand = replay(program, schedule, of_target=self.microkernels(), users=users)
            yield annotated_plan(TargetPlan(by_hand, schedule, by_hand=by_hand), self.spec)
            return
        computation = rename_for_user(self.arrays(program), users)
        request = plan_request(computation, options.strategy)
        for one in (request, *request.in_smaller_tiles()):
            plan = plan_without_deadlock(program, computation, self.spec, schedule, one)
            yield plan
            for fewer in one.with_fewer_options(plan.schedule) if schedule is None else ():
                yield plan_without_deadlock(program, computation, self.spec, None, fewer)

    def cut(
        self, program: Program, users: Users, cuts: Mapping[str, LoopCut], options: Options
    ) -> TargetPlan | None:
        """Return the policy's plan in which the axes of `cuts` have these tiles and tails.

        Raises PartitionError for tiles of several levels, and for a cut that the machine does not run.
        """
        for axis, cut in cuts.items():
            if len(cut.tiles) > 1:
                raise PartitionError(
                    "partition",
                    f"cannot cut {axis} by {' and then by '.join(map(str, cut.tiles))}",
                    at=f"axis {axis}",
                    because=f"windows of {self.spec.name} are of one level of tiles",
                    help=(f'tile={{"{axis}": {cut.tiles[-1]}}}',),
                )
        program = with_memories(program)
        if any(buffer.scope is not None for buffer in program.buffers):
            return None
        computation = rename_for_user(self.arrays(program), users)
        request = plan_request(
            computation, tuple((axis, cut.strategy) for axis, cut in cuts.items())
        )
        homes = (axis_named(computation, axis) for axis in cuts)
        tiles = {
            (first_stage(computation, home), axis): cut.tiles[-1]
            for (home, axis), cut in zip(homes, cuts.values(), strict=True)
        }
        request = replace(request, tiles=tiles)
        return plan_without_deadlock(program, computation, self.spec, None, request)

    def rejected_covers(self, program: Program, options: Options) -> Mapping[int, str]:
        """Return why tiles of a program with memories run without the microkernel that they name, by position."""
        dtypes = {buffer.name: buffer.dtype for buffer in program.buffers}

        def issued(tile: Tile) -> Sequence[Microkernel]:
            store = [stmt for stmt in walk(tile.body) if isinstance(stmt, Store)][-1]
            name = tile.microkernel or ""
            return instructions_of(store, name, dtypes[store.buffer], self.spec)

        return unstaged_covers(program, issued)

    def applies(self, program: Program, schedule: Schedule) -> bool:
        """Return whether a schedule is about the nests that are decided here, and not about those of the program as it stands."""
        computation = try_isl(lambda: raise_to_computation(program, {}), None)
        steps = list(each_decision(schedule.steps))
        if computation is None or any(isinstance(step, RFactor) for step in steps):
            return False
        staged = {step.name for step in steps if isinstance(step, Staging)}
        nests = prepare_computation(computation)[-1].groups
        stages = {ANY} | staged | {stage.buffer for group in nests for stage in group}
        return all(stages_in(step) <= stages for step in steps)

    def without_synchronization(self, output: Any, op: str) -> Any:
        """`output`; a program with statements of synchronization is refused: what units run is found from its tiles."""
        if not isinstance(output, Program) or not is_synchronized(read_back(output, op)):
            return output
        because = f"the hardware of {self.spec.name} keeps the order of its units"
        if self.spec.tokens:
            because = (
                f"{self.spec.name} computes its tokens from what its units read and write, when tiles have become "
                "instructions of these"
            )
        tokens = (f"token {token.name}" for token in output.tokens)
        syncs = (format_head(stmt) for stmt in walk(output) if isinstance(stmt, Sync))
        raise TargetError(
            op,
            f"cannot take the synchronization of {output.name}",
            at=next(chain(syncs, tokens)),
            because=because,
            help=("the text without barrier, arrive, wait, fence and token",),
        )

    def arrays(self, program: Program) -> Computation:
        """Return a program as a sequence of whole arrays.

        Raises TargetError where it is none.
        """
        computation = try_isl(lambda: raise_to_computation(program, {}), None)
        if computation is None:
            raise TargetError(
                "compile",
                f"cannot run {program.name} on {self.spec.name}",
                because="it is not a sequence of whole arrays, each from those before",
                help=('target="cpu" runs it',),
            )
        return computation

    def lower(self, planned: TargetPlan, signature: Signature, options: Options) -> bytes:
        """Return the program's text: streams are made from it at each size."""
        return str(planned.program).encode()

    def load(self, lowered: bytes, signature: Signature, options: Options) -> Loaded:
        """Return the program on the simulator."""
        program = parse(lowered.decode())

        def bound(constants: Mapping[str, Array]) -> Callable[..., Any]:
            return python_callable(
                signature, _Run(AcceleratorExecutor(program, self.spec, constants))
            )

        return bound

    def called_microkernels(
        self, planned: TargetPlan, signature: Signature, options: Options
    ) -> frozenset[str] | None:
        """Return the microkernels that tiles name: each leaf was checked to be what it computes."""
        tiles = analysis(planned.program).of(Tile)
        return frozenset(tile.microkernel for tile in tiles if tile.microkernel is not None)

    def render_form(
        self, planned: TargetPlan, signature: Signature, options: Options, form: str
    ) -> str:
        """Return the instructions at sizes of a middle layer, as a listing, or the order of units."""
        return self.render_form_at(
            planned, signature, options, form, typical_sizes(planned.program)
        )

    def render_form_at(
        self,
        planned: TargetPlan,
        signature: Signature,
        options: Options,
        form: str,
        sizes: Mapping[str, int],
    ) -> str:
        """Return the instructions of a call; loops are the same at every size."""
        if form not in self.source_forms:
            return super().render_form_at(planned, signature, options, form, sizes)
        chip = AcceleratorExecutor(planned.program, self.spec)
        if form == "order":
            return "\n".join(map(str, chip.orders(sizes)))
        streams = chip.named_streams(sizes)
        return "\n".join(listing(stream, self.spec, names) for stream, names in streams)

    def notes(
        self, planned: TargetPlan, sizes: Mapping[str, int], options: Options
    ) -> tuple[str, ...]:
        """Of nests that have several options, which one a call takes."""
        labels = HostDeviceProgram(planned.program, self.spec, has_tokens=False).option_labels(
            sizes
        )
        return tuple(f"{stage} runs as {label}" for stage, label in labels.items())

    def describe_plan(
        self,
        planned: TargetPlan,
        request: CompileRequest,
        options: Options,
        sizes: Mapping[str, int],
    ) -> Plan:
        """Return each nest with its tiles, what its stream is predicted to take, and what competed with it."""
        plan = super().describe_plan(planned, request, options, sizes)
        names = dict(request.users.sizes)
        own_sizes = {names[user]: size for user, size in plan.sizes.items()}
        streams = streams_of(
            HostDeviceProgram(planned.program, self.spec, has_tokens=False), own_sizes
        )
        users, considered = request.users.names, list[PlanAlternative]()
        for stream in streams:
            considered += (replace(o, stage=users.get(o.stage, o.stage)) for o in stream.options)
        pieces = (
            replace(
                piece,
                stage=users.get(piece.stage, piece.stage),
                tile={users.get(axis, axis): extent for axis, extent in piece.tile.items()},
                ranges={users.get(axis, axis): ends for axis, ends in piece.ranges.items()},
            )
            for piece in pieces_of(planned.program, streams, self.spec, own_sizes)
        )
        return replace(plan, pieces=tuple(pieces), considered=tuple(considered))

    def predict_cost(
        self,
        planned: TargetPlan,
        request: CompileRequest,
        options: Options,
        sizes: Mapping[str, int] | None = None,
    ) -> Cost | Formulas:
        """In closed form: cycles of units, the bus and of what waits, bytes of the bus by operand, energy.

        Raises CallError for a size that is missing or not allowed.
        """
        source, program, machine = request.program, planned.program, self.machine
        return cost_at(
            request,
            sizes,
            lambda users: formulas_of(source, program, machine, users, typical_sizes(program)),
            lambda user_sizes, own_sizes: cost_of(
                source, run_streams(program, self.spec, own_sizes), machine, user_sizes, own_sizes
            ),
        )

    def space(
        self, planned: TargetPlan, request: CompileRequest, options: Options, most: int
    ) -> ScheduleSpace:
        """Return tiles, orders of loops and depths of each nest."""
        first = planned.schedule
        if first is None or not all(isinstance(step, Primitive) for step in first.steps):
            return super().space(planned, request, options, most)
        return Nests.of(request.program, self.arrays(request.program), self.spec, first).space

    def predict_seconds(
        self, request: CompileRequest, options: Options, vectors: Sequence[Mapping[str, int]]
    ) -> Callable[[Schedule], Sequence[float]]:
        """By the closed form."""
        costs = self.predict_costs(request, options, vectors)
        return lambda schedule: [one.seconds for one in costs(schedule)]

    def predict_costs(
        self, request: CompileRequest, options: Options, vectors: Sequence[Mapping[str, int]]
    ) -> Callable[[Schedule], Sequence[Cost]]:
        """Return what `predict_cost` says of schedules; nothing is proved."""
        program, names = request.program, dict(request.users.sizes)
        computation = self.arrays(program)
        sizes_at = [({names[user]: size for user, size in at.items()}, at) for at in vectors]

        def costs_of(schedule: Schedule) -> Sequence[Cost]:
            try:
                staged = with_memories(
                    plan_program(program, computation, self.spec, schedule).program
                )
                return [
                    cost_of(program, run_streams(staged, self.spec, at), self.machine, user, at)
                    for at, user in sizes_at
                ]
            except TargetError as refused:
                raise PartitionError(
                    "tune",
                    refused.refused,
                    at=refused.at,
                    because=refused.because,
                    help=refused.help,
                ) from refused

        return costs_of

    def simulated_seconds(
        self,
        planned: TargetPlan,
        request: CompileRequest,
        options: Options,
        sizes: Mapping[str, int],
    ) -> float:
        """Cycles of the streams at the machine's clock."""
        names = dict(request.users.sizes)
        own_sizes = {names[user]: size for user, size in sizes.items()}
        return sum(
            simulate_timing(one, self.spec).seconds for one in self.streams(planned, own_sizes)
        )

    def streams(self, planned: TargetPlan, sizes: Mapping[str, int]) -> tuple[Stream, ...]:
        """Return the instruction streams of a call in the order in which they run, for `Kernel.streams`."""
        return tuple(AcceleratorExecutor(planned.program, self.spec).streams(sizes))

    def timeline(
        self, planned: TargetPlan, signature: Signature, options: Options, sizes: Mapping[str, int]
    ) -> SimulationResult:
        """Cycles, events and stalls of a call."""
        return AcceleratorExecutor(planned.program, self.spec).timeline(sizes)


@dataclass(frozen=True)
class _Run:
    """A program on the chip, from inputs and sizes to results."""

    chip: AcceleratorExecutor

    def __call__(self, inputs: Sequence[Array], sizes: Mapping[str, int]) -> Sequence[Array]:
        return run_by_name(self.chip.program, self.chip.run, inputs, sizes)


def target(name: str) -> Callable[[Device | None], Accelerator]:
    """Return the factory of a target whose own machine is the description of that name."""

    def made(machine: Device | None) -> Accelerator:
        if machine is None and name == "accelerator":
            raise TargetError(
                "target",
                "cannot plan for 'accelerator' alone",
                because="it is of any machine of queues that is described",
                help=('oc.target("accelerator", machine="mine.toml")', 'oc.target("vta")'),
            )
        accelerator = Accelerator(name, load(name) if machine is None else machine)
        AcceleratorSpec.of(accelerator.described)  # a machine without queues is refused here
        return accelerator

    return made
