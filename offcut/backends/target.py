"""Targets: a planner, a code generator, a runtime, and the resources that cost counts.

`offcut.compile` asks these four, in this order (`offcut.pipeline.PASSES`)::

    Planner    options, policy       plans of a program, in order of preference: the first that is proved is taken
    Codegen    lower                 its code, which the cache keeps
    Runtime    load                  a call
    Resources  describe_plan, predict_cost   what a call takes, predicted

One object may be all four (`Target`). What is common to all targets is not here: requests and texts are checked in
`compile_request` and `verify`, plans are chosen and proved in `decide`, and priced in `predict`. Nothing here says how a machine is built:
a processor, a scratchpad with one unit, and a device with memory of its own answer the same questions.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from offcut.backends import decide, predict
from offcut.backends.abi import Exported, PortableCode, Signature
from offcut.backends.compile_request import CompileRequest, request_by_names
from offcut.backends.covers import unstaged_covers
from offcut.backends.host.call import python_callable
from offcut.backends.memory import HOST, Memory
from offcut.backends.options import (
    DEFAULT,
    KernelPart,
    Loaded,
    Options,
    Strategies,
    TargetPlan,
    check_result,
    check_type,
)
from offcut.backends.plan import Plan
from offcut.backends.planner import Planner, TargetPart, target_name
from offcut.backends.signature import signature_of
from offcut.core.names import warn_renamed
from offcut.core.program import Program
from offcut.costmodel import Cost, Device, Formulas, Hardware
from offcut.describe.request import Array
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError, TargetError
from offcut.schedule import Schedule
from offcut.search import place_of
from offcut.search.trials import machine_kind


class Codegen(TargetPart, ABC):
    """The code generator of a target: code, texts, and the microkernels that the code calls.

    source_forms  what `render_form` can show of a plan, beside its loops
    """

    source_forms: tuple[str, ...] = ()

    def cache_key_parts(self, options: Options) -> tuple[str, ...]:
        """Return the parts of the cache key: all that code depends on beside the program and its signature.

        The class by its name, it and those it inherits from by the texts of their modules, and what the target holds.
        """
        kinds = [
            kind
            for kind in type(self).__mro__
            if kind.__module__ not in (__name__, Planner.__module__, "abc")
        ]
        texts = dict.fromkeys(_text_of(kind) for kind in kinds if kind is not object)
        state = repr(sorted(vars(self).items()))
        if " at 0x" in state:  # an object that does not say what it is: no other process has it
            state = uuid4().hex
        machine = repr(getattr(self, "machine", None))
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, state, *texts, machine, repr(options)

    @abstractmethod
    def lower(self, planned: TargetPlan, signature: Signature, options: Options) -> bytes:
        """Return the code of a plan, which `Runtime.load` takes, in this process or a later one."""

    def called_microkernels(
        self, planned: TargetPlan, signature: Signature, options: Options
    ) -> frozenset[str] | None:
        """Return the microkernels that the code of a plan calls; None if unknown."""
        return None

    def render_form(
        self, planned: TargetPlan, signature: Signature, options: Options, form: str
    ) -> str:
        """Return a plan in one of `source_forms`; by default its loops."""
        return str(planned.program)

    def render_form_at(
        self,
        planned: TargetPlan,
        signature: Signature,
        options: Options,
        form: str,
        sizes: Mapping[str, int],
    ) -> str:
        """Return one of `source_forms` as a call of these sizes has it, by the program's names of them.

        Raises DescribeError where it is the same at every size.
        """
        raise DescribeError(
            "source",
            f"cannot show {form!r} at sizes",
            because=f"{target_name(self)} has one for every size",
            help=(f'source("{form}")',),
        )

    def code_bytes(self, program: Program) -> int | None:
        """Return the size of the instructions of a cut program, in bytes; None if unknown."""
        return None

    def export(
        self,
        planned: TargetPlan,
        signature: Signature,
        constants: Mapping[str, Array],
        options: Options,
        folder: str | os.PathLike[str],
        name: str,
    ) -> Exported:
        """Return code for programs without Python.

        Raises TargetError where the target has none.
        """
        raise TargetError(
            "export",
            f"cannot export for target={target_name(self)!r}",
            because="it makes no code that runs without Python",
        )

    def portable_code(
        self,
        parts: Sequence[KernelPart],
        glue: Sequence[str],
        symbols: Mapping[str, str],
        options: Options,
        from_python: bool = False,
        threads: int = 1,
    ) -> PortableCode:
        """Return an object file of kernels and of LLVM IR that calls them: it needs no compiler where it runs.

        parts    plans of this target; the functions of each begin with its symbol
        glue     modules of LLVM IR that call ``SYMBOL_entry`` and ``SYMBOL_workspace`` of these
        symbols  those that are exported, by their names in these modules
        from_python  whether the call from Python of each kernel is in it
        threads  that a call may use, at most

        Raises TargetError where the target has none.
        """
        raise TargetError(
            "save",
            f"cannot save a kernel for target={target_name(self)!r}",
            because=f"{target_name(self)} makes no machine code that a file holds",
            help=('target="cpu"',),
        )


class Runtime(TargetPart, ABC):
    """The runtime of a target: it loads and runs code, and decides in which memory the arrays of a call may lie.

    is_simulator  whether the machine is simulated: `simulated_seconds` says what a call takes, and nothing is timed
    is_predicted  whether these seconds are of a closed form, so that nothing ran
    takes_strides whether kernels take arrays of any strides but that of the last axis, which is 1; else they lie row by row, from a multiple of 16 bytes on
    memory        that the arrays of its kernels lie in; of a device, loaded code is `HasDeviceEntry`
    """

    is_simulator: bool = False
    is_predicted: bool = False
    takes_strides: bool = True
    memory: Memory = HOST

    @abstractmethod
    def load(self, lowered: bytes, signature: Signature, options: Options) -> Loaded:
        """Return code that can be called: a function of the constants, which returns what a user calls.

        `python_callable` makes one that takes arrays of the host.

        Raises TargetError where this machine cannot run it.
        """

    def notes(
        self, planned: TargetPlan, sizes: Mapping[str, int], options: Options
    ) -> tuple[str, ...]:
        """Return notes on a call at these sizes, by the program's names."""
        return ()

    def simulated_seconds(
        self,
        planned: TargetPlan,
        request: CompileRequest,
        options: Options,
        sizes: Mapping[str, int],
    ) -> float:
        """Return the seconds of a call at `sizes`, if the machine is simulated.

        Raises TargetError where it is not.
        """
        raise TargetError(
            "tune", f"cannot simulate {target_name(self)}", because="calls of it are timed"
        )

    def timeline(
        self, planned: TargetPlan, signature: Signature, options: Options, sizes: Mapping[str, int]
    ) -> Any:
        """Return how a call runs in time, at sizes by the program's names.

        Raises TargetError where the target has no clock of its own.
        """
        raise TargetError(
            "timeline",
            f"cannot time {planned.program.name} for target={target_name(self)!r}",
            because="it has no simulator with a clock"
            if self.is_simulator
            else "it has no simulator: a call is timed by calling it",
            help=("kernel.cost(n=…) predicts",),
        )


class Resources(TargetPart):
    """The resources of a machine, as cost counts them.

    machine  its description
    """

    machine: Device

    def hardware(self, options: Options) -> Hardware:
        """Return the hardware that the closed form counts by; by default elements are computed one by one beside the microkernels.

        Raises TargetError where the description says nothing of loops.
        """
        return predict.hardware_of(self, options)

    def describe_plan(
        self,
        planned: TargetPlan,
        request: CompileRequest,
        options: Options,
        sizes: Mapping[str, int],
    ) -> Plan:
        """Return the plan of a call at these sizes, and its predicted seconds, by the user's names."""
        return predict.plan_of(self, planned, request, options, sizes)

    def predict_cost(
        self,
        planned: TargetPlan,
        request: CompileRequest,
        options: Options,
        sizes: Mapping[str, int] | None = None,
    ) -> Cost | Formulas:
        """Return the cost of a call, on one engine: at `sizes`, or as formulas in them.

        Raises CallError for a size that is missing or not allowed, TargetError where the machine's description says
        nothing of loops.
        """
        return predict.cost_of(self, planned, request, options, sizes)

    def predict_seconds(
        self, request: CompileRequest, options: Options, vectors: Sequence[Mapping[str, int]]
    ) -> Callable[[Schedule], Sequence[float]] | None:
        """Return predicted seconds of schedules at vectors of sizes, in their order, of what a target prices by itself;
        None: by `Planner.variant_resolver`, or of the loops that are cut.

        The function raises PartitionError for a schedule that is not legal; it proves nothing.
        """
        return None

    def predict_costs(
        self, request: CompileRequest, options: Options, vectors: Sequence[Mapping[str, int]]
    ) -> Callable[[Schedule], Sequence[Cost]] | None:
        """Return what `predict_cost` says of schedules at vectors of sizes, where the target says it without proof; None: of their plans."""
        return None


class Target(Planner, Codegen, Runtime, Resources):
    """A kind of hardware that programs are compiled for; a plug-in derives its own from it.

    name  as ``target=`` takes it
    """

    name: str

    def rejected_covers(self, program: Program, options: Options) -> Mapping[int, str]:
        """Return the reasons why tiles run without the microkernel that they name, by position, parents first."""
        own = self.microkernels(options)
        return unstaged_covers(
            program, lambda tile: [one for one in own if one.name == tile.microkernel]
        )

    def __repr__(self) -> str:
        return f"<target {self.name} for {self.machine.name}>"

    def record_key(self, options: Options) -> str:
        """Return the key of records for these options: all that times depend on and no schedule says."""
        lent = [kernel.name for kernel in options.microkernels]
        return place_of(self.name, self.machine, options.threads, options.reassociate, lent)

    def machine_kind(self, options: Options) -> str:
        """Return the kind of machine in shipped records, the same for all such machines; they use no external microkernels."""
        lent: list[str] = []
        return machine_kind(self.name, self.machine, options.threads, options.reassociate, lent)

    def plan(
        self,
        output: Any,
        inputs: Sequence[Tensor] | None = None,
        constants: Sequence[str] | Mapping[str, Any] = (),
        options: Options | None = None,
        **sizes: int,
    ) -> Plan:
        """Return the plan of a call of these sizes, with reasons; nothing is lowered, nothing has to run here.

        output, inputs  as `offcut.compile` takes them
        constants       the names of inputs that are known before any call, or arrays by name
        options         what `options` gives; None: what `offcut.compile` takes where nothing is said

        Raises CallError for a size that is missing or not allowed.
        """
        requested = options or DEFAULT
        request, notes = request_by_names(self, output, inputs, constants, requested, "plan")
        planned = decide.proved_plan(self, request, requested)
        return predict.explain_plan(self, planned, request, requested, sizes, notes)

    def source(
        self,
        output: Any,
        inputs: Sequence[Tensor] | None = None,
        constants: Sequence[str] | Mapping[str, Any] = (),
        options: Options | None = None,
        form: str = "loops",
    ) -> str:
        """Return the source of a kernel: its loop program (``loops``), or one of `source_forms`."""
        requested = options or DEFAULT
        request, _ = request_by_names(self, output, inputs, constants, requested, "plan")
        planned = decide.proved_plan(self, request, requested)
        return render(self, planned, signature_of(request.program, request.users), requested, form)


def render(
    target: Target,
    planned: TargetPlan,
    signature: Signature,
    options: Options,
    form: str,
    sizes: Mapping[str, int] | None = None,
) -> str:
    """Return a plan as its loop program (``loops``), or in one of the target's forms, for a call if sizes are given."""
    if form == "loops" and sizes is None:
        return str(planned.program)
    forms = (
        "loops",
        *check_type(target, "source_forms", target.source_forms, (tuple, list), "a tuple of names"),
    )
    if form not in forms:
        raise DescribeError(
            "source",
            f"cannot show {form!r}",
            because="there is no such form",
            help=tuple(f'"{one}"' for one in forms),
        )
    if sizes is not None:
        text = target.render_form_at(planned, signature, options, form, sizes)
        return check_result(target, "render_form_at", text)
    return check_result(
        target, "render_form", target.render_form(planned, signature, options, form)
    )


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "Planned":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warn_renamed("offcut.backends.target.Planned", "TargetPlan")
        return TargetPlan


def _text_of(kind: type) -> str:
    """Return the module that a class is from, as text; of one that has none, what no other process has."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    try:
        return Path(file or "").read_text(encoding="utf-8")
    except OSError:  # a script from standard input, say
        return f"{os.getpid()} {id(kind)}"


__all__ = [
    "DEFAULT",
    "Codegen",
    "Loaded",
    "Options",
    "Planner",
    "Resources",
    "Runtime",
    "Strategies",
    "Target",
    "TargetPlan",
    "python_callable",
    "render",
]
