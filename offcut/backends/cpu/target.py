"""The target ``cpu``: what the processor has for the protocol of targets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from offcut.backends.abi import Exported, PortableCode, Signature
from offcut.backends.compile_request import CompileRequest
from offcut.backends.cpu import build
from offcut.backends.cpu.build import lower_kernel, microkernel_ir
from offcut.backends.cpu.lowering.lower import Lowered
from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels import amx
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.microkernels.external import PREFIX, check_external, time_kernels
from offcut.backends.cpu.packed_constants import pack
from offcut.backends.cpu.planning import planner
from offcut.backends.cpu.planning.competing_plans import first_schedule
from offcut.backends.cpu.planning.cover_report import check_covers, external_kernels, report_covers
from offcut.backends.cpu.planning.cpu_plan import CpuPlan, threads_note
from offcut.backends.cpu.planning.cpu_plan import CpuPlan as CpuPlanned
from offcut.backends.cpu.planning.nest_plan import computation_of, variant_cost_model
from offcut.backends.cpu.planning.schedule_words import check_machine_words
from offcut.backends.cpu.planning.search_space import OpenDecisions
from offcut.backends.cpu.threads import pool
from offcut.backends.host.export import C_SUFFIXES, c_functions, check_name, export
from offcut.backends.host.shared_library import FORGET, OPEN
from offcut.backends.options import KernelPart
from offcut.backends.predict import hardware_of
from offcut.backends.target import Loaded, Options, Strategies, Target, TargetPlan
from offcut.core.analysis import analysis
from offcut.core.memo import lazy_property
from offcut.core.program import THREAD, Program, Tile
from offcut.core.text.c_expressions import LIBRARY, is_word
from offcut.costmodel import Device, Hardware, Machine, processor
from offcut.describe.computation import Computation
from offcut.describe.external import unverified_notes
from offcut.describe.microkernel import Microkernel
from offcut.describe.request import Array
from offcut.errors import DescribeError, TargetError
from offcut.partition import Users
from offcut.polyhedral.sync import Agents, Unit
from offcut.schedule import Schedule, VariantResolver, parts_of
from offcut.search import ScheduleSpace


@dataclass(frozen=True, repr=False)
class Cpu(Target):
    """A processor that LLVM makes code for.

    described  the machine to plan for; None: the one that this process runs on
    """

    described: Machine | None = None
    name = "cpu"
    source_forms = ("llvm", "asm")
    applies_schedules = True
    judges = True
    agents = Agents((Unit(THREAD, fixed=False),), THREAD)

    def host(self, options: Options | None = None) -> isa.Host:
        """Return the machine as a kernel may use it."""
        requested, host = Options() if options is None else options, self._host_machine
        external = tuple(kernel for kernel in requested.microkernels if kernel.unit == "core")
        return replace(host, external=external, threads=requested.threads)

    @lazy_property
    def _host_machine(self) -> isa.Host:
        """Return the machine as it was when it was first asked for: a kernel stays what it was made for."""
        return isa.host() if self.described is None else isa.host_for_machine(self.described)

    def __reduce__(self) -> tuple[type[Cpu], tuple[Machine | None]]:
        return type(self), (self.described,)

    @property
    def machine(self) -> Machine:  # type: ignore[override]
        """Return the machine that it plans for."""
        return self.host().machine

    def microkernels(self, options: Options | None = None) -> tuple[Microkernel, ...]:
        """Return the processor's own, and those that are lent."""
        return tuple(family.microkernel for family in families(self.host(options)))

    def options(
        self,
        op: str,
        strategy: Strategies = "auto",
        reassociate: bool = True,
        microkernels: Sequence[Microkernel] = (),
        threads: int | None = None,
        schedule: Schedule | None = None,
    ) -> Options:
        """What a call asks for: external microkernels, and threads as the environment says them."""
        most = pool.resolve_threads(threads)
        lent: tuple[Microkernel, ...] = ()
        if microkernels != ():  # to declare the processor's own takes a while
            lent = check_external(microkernels, self.microkernels(), op, declared=op == "partition")
        called = tuple(kernel for kernel in lent if kernel.unit == "core")
        if called and not reassociate:
            raise TargetError(
                op,
                "cannot take microkernels= with reassociate=False",
                because="in which order an external function adds is not known",
                help=("microkernels=() leaves sums to functions that add in ascending order",),
            )
        rest = tuple(kernel for kernel in lent if kernel.unit != "core")
        lent = (*time_kernels(called, self.host()), *rest)
        return Options(strategy, reassociate, lent, most, schedule)

    def cache_key_parts(self, options: Options) -> tuple[str, ...]:
        """Return the host's, whether it lets this process use tile registers, and what is asked of the plan."""
        host = self.host(options)
        tiles = "tiles" if _has_tiles(host) else "no tiles"
        return (*host.facts, tiles, repr(replace(options, microkernels=())))

    def policy(self, program: Program, users: Users, options: Options) -> Iterator[TargetPlan]:
        """Return the cuts of a computation by its microkernels, and the loops of a program as vectors."""
        return planner.plans(program, users, self.host(options), options)

    def space(
        self, planned: TargetPlan, request: CompileRequest, options: Options, most: int
    ) -> ScheduleSpace:
        """Return the variants of nests, or the cuts of loops as they stand; of schedules that compete, the variants of the first one's."""
        first = first_schedule(_own(planned).unnamed)
        computation = self.computation(request, options) if parts_of(first) else None
        kernels, machine = self.microkernels(options), self.machine
        return OpenDecisions(first, request.program, kernels, machine, computation, most).space

    def computation(self, request: CompileRequest, options: Options) -> Computation | None:
        """Return the program raised to whole arrays, each from those before."""
        return computation_of(request.program, request.users, options.reassociate)[0]

    def variant_resolver(self, computation: Computation, options: Options) -> VariantResolver:
        """By the microkernels of the host, each variant at the price by which variants compete."""
        host = self.host(options)
        lent = families(host)
        price = variant_cost_model(lent, host.isa, legible=False)
        return VariantResolver(computation, [one.microkernel for one in lent], price)

    def lower(self, planned: TargetPlan, signature: Signature, options: Options) -> bytes:
        """Object files, and how the constants lie."""
        return build.compile_kernel(_own(planned), signature, self.host(options))

    def load(self, lowered: bytes, signature: Signature, options: Options) -> Loaded:
        """Return machine code in this process; of another machine, what refuses to be called."""
        host = self.host(options)
        lacking = host.lacking
        tiles = _has_tiles(host)  # asked here, too: kept code was planned elsewhere
        if not host.here and "amx-tile" in host.features and not tiles:
            lacking = (*lacking, "the permission to use tile registers")
        return build.load_kernel(lowered, signature, host, lacking)

    def check_text(self, program: Program, options: Options, op: str) -> tuple[str, ...]:
        """Check units and memories, names of microkernels, and tiles of declared instructions; those of its own where a text is
        cut further: a plan asks them itself.
        """
        notes = super().check_text(program, options, op)
        if op != "partition":
            notes = (*notes, *check_machine_words(program, self.machine, op))
        if op == "partition" and any(tile.cover for tile in analysis(program).of(Tile)):
            host = self.host(options)
            check_covers(program, report_covers(program, host, options.reassociate), host, op)
        return notes

    def rejected_covers(self, program: Program, options: Options) -> Mapping[int, str]:
        """What the lowering finds of the tiles that name a microkernel."""
        return report_covers(program, self.host(options), options.reassociate).refused

    def called_microkernels(
        self, planned: TargetPlan, signature: Signature, options: Options
    ) -> frozenset[str]:
        """Return the microkernels whose functions the entry calls."""
        low = build.lower_kernel(_own(planned), signature, self.host(options))
        return frozenset(name for name, _, _ in low.tiles)

    def notes(
        self, planned: TargetPlan, sizes: Mapping[str, int], options: Options
    ) -> tuple[str, ...]:
        """Return how many threads a call takes, and what they share; which functions were not compared with what they claim."""
        plan, host = _own(planned), self.host(options)
        foreign = external_kernels(plan.program, host)
        notes = threads_note(plan.seconds, plan.shares, host.threads, sizes, host.machine, foreign)
        return (*notes, *unverified_notes(host.external, foreign))

    def render_form(
        self, planned: TargetPlan, signature: Signature, options: Options, form: str
    ) -> str:
        """LLVM IR (``llvm``) or assembly (``asm``)."""
        plan, host = _own(planned), self.host(options)
        low = build.lower_kernel(plan, signature, host)
        modules = build.microkernel_ir([low], host)
        if form == "llvm":
            parts = [("the entry", low.text), ("loops that it calls", low.loops)]
            parts += [("the call from Python", low.fastcall)]
            parts += (("a microkernel", text) for text in modules)
            return "\n\n".join(f"; module of {name}\n{text}" for name, text in parts if text)
        own = {"loops": low.loops, "fastcall": low.fastcall}
        entry = jit.assembly(low.text, host, passes=True, **own)
        return "\n\n".join([entry, *(jit.assembly(text, host, passes=False) for text in modules)])

    def hardware(self, options: Options) -> Hardware:
        """Return what the closed form counts by, with the vector registers of the instruction set."""
        isa = self.host(options).isa
        return hardware_of(self, options, isa.register_bytes, isa.registers)

    def code_bytes(self, program: Program) -> int:
        """Bytes of the instructions of a cut program, microkernels not counted."""
        return build.code_bytes(program, self.host())

    def export(
        self,
        planned: TargetPlan,
        signature: Signature,
        constants: Mapping[str, Array],
        options: Options,
        folder: str | os.PathLike[str],
        name: str,
    ) -> Exported:
        """Return an object file and a C header; a call runs on the thread that makes it."""
        check_name(name)
        packed = [
            pack(constants[b.name], b.layout, b.dtype) for b in build.constants(_own(planned))
        ]
        glue = c_functions(signature, [bytes(one.memory) for one in packed])
        symbols = {symbol: name + suffix for symbol, suffix in C_SUFFIXES.items()}
        part = KernelPart("offcut", planned, signature)
        code = self.portable_code([part], [glue], symbols, options)
        return export(signature, code, len(packed), folder, name)

    def portable_code(
        self,
        parts: Sequence[KernelPart],
        glue: Sequence[str],
        symbols: Mapping[str, str],
        options: Options,
        from_python: bool = False,
        threads: int = 1,
    ) -> PortableCode:
        """Return an object file."""
        return portable_code(parts, glue, symbols, self.host(options), from_python, threads)


def target(machine: Device | None) -> Cpu:
    """Return the processor that this process runs on, or another.

    Raises TargetError where the machine is no processor.
    """
    return Cpu(None if machine is None else processor(machine))


def _own(planned: TargetPlan) -> CpuPlanned:
    """Return a plan of this target's space."""
    assert isinstance(planned, CpuPlanned)
    return planned


def _has_tiles(host: isa.Host) -> bool:
    """Return whether code for `host` may use tile registers in this process; asks the system for them."""
    return "amx-tile" in host.features and amx.is_amx_permitted()


# The modules of kernels, and what calls them, as one position-independent object file.
#
# The microkernels that several kernels call are in it once. What nothing exported calls is dropped, and all but the exported
# symbols gets internal linkage under a name that C does not have, so that several such files link into one program.

_OWN = "offcut_"
"""How the functions begin that each kernel has: its entry, its workspace, its work, the call from Python."""
_SUPPORTED = "offcut_supported"


def portable_code(
    parts: Sequence[KernelPart],
    glue: Sequence[str],
    symbols: Mapping[str, str],
    host: Host,
    from_python: bool = False,
    threads: int = 1,
) -> PortableCode:
    """Return an object file of kernels and of what calls them.

    parts    plans of this target; the functions of each begin with its symbol in place of ``offcut``; none: code for `host` is called
    glue     modules of LLVM IR that call these functions
    symbols  those that are exported, by their names in these modules; beside them is ``offcut_supported``
    from_python  whether ``offcut_fastcall`` of each kernel is in it
    threads  that a call may use: more than 1 are a pool of the object, which `offcut.backends.host.shared_library` opens; 1: a call runs on
             the thread that makes it

    Raises DescribeError for external microkernels whose names the program cannot define.
    """
    has_pool = threads > 1 and host.machine.architecture == "x86_64"
    host = replace(host, threads=threads if has_pool else 1)
    lowered, texts = list[Lowered](), list[str]()
    with jit.parse_ir(f'target triple = "{host.triple}"') as module:
        for part in parts:
            assert isinstance(part.planned, CpuPlan)
            low = lower_kernel(part.planned, part.signature, host)
            lowered.append(low)
            fastcall = low.fastcall if from_python else ""
            own = {"loops": low.loops, "fastcall": fastcall}
            with jit.optimize(low.text, host, passes=True, **own) as optimized:
                texts.append(str(optimized))
            jit.link(module, texts[-1], partial(_prefix_symbols, part.symbol))
        texts += microkernel_ir(lowered, host)
        features = isa.required_features(host, texts) if parts else isa.all_features(host)
        supported = isa.emit_feature_test(_SUPPORTED, features, host.triple)
        pools = [pool.text(host.machine.threads)] if has_pool else []
        for text in (*texts[len(parts) :], *pools, *glue, supported):
            jit.link(module, text)
        if has_pool:
            symbols = {**symbols, OPEN: OPEN, FORGET: FORGET}
        provided = _rename_exported(module, symbols)
        code = jit.position_independent(module, host.triple, features)
    return PortableCode(code, host.triple, features, provided, host.threads)


def _prefix_symbols(prefix: str, module: Any) -> None:
    """Give the functions of a kernel its prefix, and hide those that only it calls."""
    for function in module.functions:
        if function.is_declaration:
            continue
        if function.name.startswith(_OWN):
            function.name = f"{prefix}_{function.name.removeprefix(_OWN)}"
        else:
            function.linkage = "internal"


def _rename_exported(module: Any, symbols: Mapping[str, str]) -> tuple[str, ...]:
    """Give what is exported its name and hide the rest; return the symbols that are left to the program."""
    name = symbols.get(_SUPPORTED, _SUPPORTED).removesuffix("_supported")
    everything = [*module.functions, *module.global_variables]
    defined = [value for value in everything if not value.is_declaration]
    for value in defined:
        if value.name not in symbols:
            value.linkage = "internal"
            value.name = f"{name}.{value.name}"  # no name of C: it can meet no other
    for value in defined:
        if value.name in symbols:
            value.name = symbols[value.name]
    jit.strip_unused(module)
    left = [value for value in module.functions if value.is_declaration]
    external = [value for value in left if value.name.startswith(PREFIX)]
    for value in external:
        plain = value.name.removeprefix(PREFIX)
        if plain in symbols.values() or plain in LIBRARY or is_word(plain):
            raise DescribeError(
                "export",
                f"cannot leave the microkernel {plain} to the program",
                because="a function of this name is in the header, or in the C library, or C keeps "
                "the word for itself",
                help=("another name for the kernel, or for the microkernel",),
            )
        value.name = plain
    return tuple(sorted(value.name for value in external))
