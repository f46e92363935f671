"""The target ``cuda``: GPUs of NVIDIA, of which the emulated one runs programs of units on arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar

from offcut.backends import generic
from offcut.backends.abi import Signature
from offcut.backends.choices import Price, with_priced_options
from offcut.backends.compile_request import CompileRequest
from offcut.backends.decide import attempt
from offcut.backends.gpu.block_limits import check_registers, check_room
from offcut.backends.gpu.boxes import check_boxes, check_cells
from offcut.backends.gpu.calls import load_on_device, lowered_kernels
from offcut.backends.gpu.driver import DeviceMemory
from offcut.backends.gpu.emulation import MEMORY, EmulatedCode
from offcut.backends.gpu.executor import Limits
from offcut.backends.gpu.instructions import MMA, PRODUCTS, UNITS, rows
from offcut.backends.gpu.policy import GridPlans
from offcut.backends.gpu.text import cuda_text
from offcut.backends.gpu.units import AGENTS, SHARED, check_units, check_words
from offcut.backends.memory import Memory
from offcut.backends.options import Loaded, Options, TargetPlan
from offcut.backends.plan import Plan, PlanAlternative, PlannedPiece
from offcut.backends.predict import cost_at
from offcut.backends.target import Strategies, Target
from offcut.backends.verify import unproved_step
from offcut.core.analysis import analysis
from offcut.core.program import Program, Tile
from offcut.core.text.parser import parse
from offcut.core.text.printer import format_head
from offcut.costmodel import Cost, Device, Formulas, load
from offcut.costmodel.arrays import Calls
from offcut.costmodel.closed.counts import OptionNumber
from offcut.costmodel.closed.prediction import SampledPrediction
from offcut.costmodel.grid import grid_cost, grid_of, grid_prediction, option_cost
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError, TargetError
from offcut.partition import LoopCut, Users
from offcut.polyhedral.sync import Agents, synchronized
from offcut.proof.normal_forms.condition_hoisting import unswitch
from offcut.proof.normal_forms.loop_fusion import separate_launches
from offcut.proof.normal_forms.narrowed_stages import narrowing_steps, synchronized_stages
from offcut.schedule import HandSchedule, Schedule, create_schedule
from offcut.search import ScheduleSpace

EMULATED = "emulated"
"""The device that runs programs without a GPU: units side by side, on numpy arrays."""
DEFAULT = "h200"
GPU_MEMORY = DeviceMemory()
"""The memory of the first GPU."""
FEATURES = {"sm_90": frozenset({"sm_90a"})}
"""What an architecture has beside compute capability 8.0: warpgroups, and copies by tensor maps."""


@dataclass(frozen=True, repr=False)
class Cuda(Target):
    """Runs programs on a grid of blocks.

    machine  with a table [grid]
    device   None: a GPU; `EMULATED`: numpy arrays
    """

    machine: Device
    device: str | None = None

    name: ClassVar[str] = "cuda"  # type: ignore[misc]
    agents: ClassVar[Agents] = AGENTS  # type: ignore[misc]
    is_simulator: ClassVar[bool] = True  # type: ignore[misc]
    is_predicted: ClassVar[bool] = True  # type: ignore[misc]
    takes_strategies: ClassVar[bool] = True  # type: ignore[misc]
    takes_strides: ClassVar[bool] = False  # type: ignore[misc]
    source_forms: ClassVar[tuple[str, ...]] = ("cuda",)  # type: ignore[misc]

    @property
    def memory(self) -> Memory:  # type: ignore[override]
        """The memory of the device."""
        return MEMORY if self.device == EMULATED else GPU_MEMORY

    def microkernels(self, options: Options | None = None) -> tuple[Microkernel, ...]:
        """Return products of tiles in shared memory, then copies, then single instructions; some want `features`."""
        return _microkernels()

    @property
    def features(self) -> frozenset[str]:
        """Return what the machine has beside compute capability 8.0."""
        return FEATURES.get(self.machine.architecture, frozenset())

    def options(
        self,
        op: str,
        strategy: Strategies = "auto",
        reassociate: bool = True,
        microkernels: Sequence[Microkernel] = (),
        threads: int | None = None,
        schedule: Schedule | None = None,
    ) -> Options:
        """Return the options; the words of a schedule about units and memories are those of a GPU."""
        if schedule is not None:
            check_words(schedule)
        return super().options(op, strategy, reassociate, microkernels, threads, schedule)

    def policy(self, program: Program, users: Users, options: Options) -> Iterator[TargetPlan]:
        """Yield plans on a grid of blocks, then the program as it stands, each with its synchronization.

        Raises PartitionError, the first one, if no plan can be synchronized.
        """
        price = self.price(options)
        return generic.policy(self, program, users, options, GridPlans, self.synchronize, price)

    def price(self, options: Options) -> Price:
        """Return the function from a program without choices to its predicted seconds, over its sizes."""
        return partial(option_cost, machine=self.machine, microkernels=self.microkernels(options))

    def with_options(self, schedule: Schedule, program: Program, options: Options) -> Schedule:
        """Return a schedule with options of whole programs: the host chooses among launches, and a block among none."""

        def by_hand(one: Schedule) -> HandSchedule:
            kernels = self.microkernels(options)
            source = create_schedule(program).with_microkernels(kernels)
            return source.apply(one, options.microkernels)

        def plan(one: Schedule) -> TargetPlan:
            return self.synchronize(TargetPlan(by_hand(one).emitted))

        def is_proved(one: Schedule, made: TargetPlan) -> bool:
            lowered = attempt(lambda: by_hand(one).lower(options.reassociate))
            steps = (*made.through, made.program)
            unproved = unproved_step(steps, options.reassociate)
            return isinstance(lowered, Program) and unproved is None

        return with_priced_options(
            schedule, lambda one: by_hand(one).emitted, plan, is_proved, self.price(options)
        )

    def cut(
        self, program: Program, users: Users, cuts: Mapping[str, LoopCut], options: Options
    ) -> TargetPlan | None:
        """Return the plan of `program` in which tiles of blocks have these sizes and tails; None, too, where no synchronization keeps their
        order: a tail that is cut from the columns runs in other loops over blocks than the tiles beside it, in one launch.
        """
        plan = generic.cut(self, program, users, cuts, options, GridPlans)
        ordered = None if plan is None else attempt(partial(self.synchronize, plan))
        return ordered if isinstance(ordered, TargetPlan) else None

    def space(
        self, planned: TargetPlan, request: CompileRequest, options: Options, most: int
    ) -> ScheduleSpace:
        """Return the tiles of blocks and their strategies."""
        return generic.space(self, planned, request, options, GridPlans)

    def synchronize(self, plan: TargetPlan) -> TargetPlan:
        """Return a plan with synchronization in its program; where that has none, of a program whose blocks are launches of their own.

        Raises PartitionError if no synchronization of the machine keeps the order of the text, and if the windows of a block
        do not fit in its shared memory.
        """
        try:
            return self.synchronize_launches(plan, plan.program)
        except PartitionError:
            launches = separate_launches(plan.program)
            if launches == plan.program:
                raise
            return self.synchronize_launches(plan, launches)

    def synchronize_launches(self, plan: TargetPlan, launches: Program) -> TargetPlan:
        """Return a plan with synchronization in `launches`, which compute what its program does.

        Raises PartitionError as `synchronize`.
        """
        before, launches = launches, unswitch(launches)
        steps = tuple(dict.fromkeys((plan.program, before, launches, *narrowing_steps(launches))))
        narrowed = steps[-1]
        check_units(narrowed)
        self.check_features(narrowed)
        check_cells(narrowed, self.microkernels())
        program = synchronized_stages(launches, narrowed, lambda form: synchronized(form, AGENTS))
        check_room(program, _bytes_of(self.machine, SHARED))
        check_boxes(program, self.microkernels())
        check_registers(program, grid_of(self.machine)[1].registers)
        return replace(plan, program=program, through=(*plan.through, *steps))

    def check_features(self, program: Program) -> None:
        """Check that the machine has what the microkernels of a program want.

        Raises PartitionError for the first tile whose microkernel wants more.
        """
        missing_features = {one.name: one.features - self.features for one in self.microkernels()}
        for tile in analysis(program).of(Tile):
            if missing := missing_features.get(tile.microkernel or ""):
                raise PartitionError(
                    "compile",
                    f"cannot run {tile.microkernel} on {self.machine.name}",
                    at=format_head(tile),
                    because=f"it wants {', '.join(sorted(missing))}, and {self.machine.name} is {self.machine.architecture}",
                    help=("a schedule that the policy of this machine writes",),
                )

    def lower(self, planned: TargetPlan, signature: Signature, options: Options) -> bytes:
        """Return the program's text; for a GPU, the text of its kernels and how they are launched.

        Raises TargetError for a GPU, if a statement has no text in CUDA C++ so far.
        """
        if self.device == EMULATED:
            return str(planned.program).encode()
        return lowered_kernels(planned.program)

    def render_form(
        self, planned: TargetPlan, signature: Signature, options: Options, form: str
    ) -> str:
        """Return a plan as CUDA C++.

        Raises DescribeError for a statement that has no text in CUDA C++ so far.
        """
        return cuda_text(planned.program)

    def load(self, lowered: bytes, signature: Signature, options: Options) -> Loaded:
        """Return the program: on the emulated device, it runs on arrays of the host and by addresses in `memory`; on a GPU, as `load_on_device` says."""
        if self.device != EMULATED:
            return load_on_device(lowered, signature, self.machine.architecture)
        limits = Limits(shared_bytes=_bytes_of(self.machine, SHARED))
        return EmulatedCode(parse(lowered.decode()), signature, self.microkernels(options), limits)

    def simulated_seconds(
        self,
        planned: TargetPlan,
        request: CompileRequest,
        options: Options,
        sizes: Mapping[str, int],
    ) -> float:
        """Return the predicted seconds of a call."""
        cost = self.predict_cost(planned, request, options, sizes)
        assert isinstance(cost, Cost)
        return cost.seconds

    def describe_plan(
        self,
        planned: TargetPlan,
        request: CompileRequest,
        options: Options,
        sizes: Mapping[str, int],
    ) -> Plan:
        """Return each launch of a call with its predicted seconds: those of `predict_cost`."""
        plan = super().describe_plan(planned, request, options, sizes)
        cost = self.predict_cost(planned, request, options, plan.sizes)
        assert isinstance(cost, Cost)
        names = request.users.names
        launches = (
            PlannedPiece(
                stage=names.get(piece.stage, piece.stage),
                role=piece.role,
                roles={},
                ranges={},
                tile={},
                microkernel=piece.microkernel or "lanes",
                instances=piece.runs,
                seconds=piece.cycles / cost.hertz,
            )
            for piece in cost.pieces
        )
        prediction = grid_prediction(planned.program, self.machine, self.microkernels(options))
        call = Calls.of_vectors([plan.sizes], dict(request.users.sizes))
        alternatives = (
            replace(one, stage=names.get(one.stage, one.stage))
            for one in _alternatives(SampledPrediction(prediction, call), cost.hertz)
        )
        return replace(
            plan,
            pieces=tuple(launches),
            considered=tuple(alternatives),
            beside=cost.call / cost.hertz,
        )

    def predict_cost(
        self,
        planned: TargetPlan,
        request: CompileRequest,
        options: Options,
        sizes: Mapping[str, int] | None = None,
    ) -> Cost | Formulas:
        """Return the predicted cost of a call: at `sizes`; None: as formulas in the sizes.

        Raises CallError for a size that is missing or not allowed.
        """
        source, machine = request.program, self.machine
        planned_on = planned.program, machine, self.microkernels(options)
        return cost_at(
            request,
            sizes,
            lambda users: Formulas(source, grid_prediction(*planned_on), machine, users),
            lambda user_sizes, values: grid_cost(source, *planned_on, user_sizes, values),
        )

    def predict_seconds(
        self, request: CompileRequest, options: Options, vectors: Sequence[Mapping[str, int]]
    ) -> Callable[[Schedule], Sequence[float]]:
        """Return a function from a schedule to its predicted seconds at each of `vectors`, as `predict_cost` has them; nothing is proved."""
        plans = GridPlans.of(self, request.program, request.users, options)
        kernels = self.microkernels(options)
        calls = Calls.of_vectors(vectors, dict(request.users.sizes))

        def predict(schedule: Schedule) -> Sequence[float]:
            assert plans is not None  # schedules come from plans
            program = plans.plan(schedule).program
            prediction = grid_prediction(program, self.machine, kernels)
            cycles = SampledPrediction(prediction, calls).cycles
            seconds: list[float] = (cycles / self.machine.hertz).tolist()
            return seconds

        return predict


@cache
def _microkernels() -> tuple[Microkernel, ...]:
    """Return the microkernels of all machines: products of tiles, copies, then single instructions."""
    products = tuple(one.kernel for one in PRODUCTS)
    types = dict.fromkeys(dtype for one in PRODUCTS for dtype in (one.a, one.b))
    copies = tuple(rows(dtype, background) for dtype in types for background in (True, False))
    return (*products, *copies, *MMA, *UNITS)


def _alternatives(sampled: SampledPrediction, hertz: float) -> Iterator[PlanAlternative]:
    """Yield each stage that runs in a call and is in no choice, then each option of each choice: all its stages, by the last one's name.

    sampled  at the one call; the seconds are without those of the call itself
    """
    seconds: dict[OptionNumber, dict[str, float]] = {}
    for (option, stage), resources in sampled.stages.items():
        seconds.setdefault(option, {})[stage] = float(sampled.stage_cycles(resources)[0]) / hertz
    for stage, own in seconds.get(None, {}).items():
        if own:
            yield PlanAlternative(stage, "grid", own, True)
    for number, options in enumerate(sampled.prediction.choices):
        for at, offered in enumerate(options):
            stages = seconds.get((number, at), {})
            last, is_chosen = next(reversed(stages), ""), sampled.is_cheapest((number, at))[0]
            yield PlanAlternative(last, offered.label, sum(stages.values()), bool(is_chosen))


def _bytes_of(machine: Device, memory: str) -> int:
    """Return the bytes of a memory by name; the default limit if the machine does not describe it."""
    return next(
        (entry.bytes for entry in machine.memory if entry.name == memory), Limits().shared_bytes
    )


def target(machine: Device | None, device: str | None = None) -> Cuda:
    """Return the target for a machine; None: `DEFAULT`.

    Raises TargetError for a machine without a table [grid], and for an unknown `device`.
    """
    if device not in (None, EMULATED):
        raise TargetError(
            "target",
            f"cannot take device={device!r}",
            because="a device is the GPU that is there, or emulated",
            help=("device=None", f'device="{EMULATED}"'),
        )
    described = machine or load(DEFAULT)
    grid_of(described)
    return Cuda(described, device)
