"""From LLVM IR to machine code in this process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm

from offcut.backends.cpu.machine.isa import Host
from offcut.core import forks
from offcut.errors import InternalError, TargetError

_MOST_LINES = 30_000  # of LLVM IR that loop passes are given: some seconds


# llvmlite's own: what it lets others register is called when a thread has it already, and a fork may come between.
forks.wait_for(llvm.ffi.lib._lock)


@cache
def _initialize() -> None:
    # LLVM's two-address pass moves instructions past the end of a block in rare programs, and aborts.
    llvm.set_option("", "-twoaddr-reschedule=0")
    # Addresses are written as they are to be: to search for cheaper ones takes up to half of emission, and gains nothing.
    llvm.set_option("", "-disable-lsr")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # microkernels in assembly


@cache
def _initialize_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _machine(host: Host, effort: int = 1) -> Any:
    """LLVM's machine; effort  what it spends on every function, from 0 to 3."""
    _initialize()
    if not host.here:
        _initialize_all()
    try:
        target = llvm.Target.from_triple(host.triple)
    except RuntimeError:
        raise TargetError(
            "compile",
            f"cannot make code for {host.machine.name}",
            because=f"this LLVM has no architecture {host.machine.architecture}",
        ) from None
    made = target.create_target_machine(features=host.feature_string, opt=effort, jit=True)
    if found := re.search(r"-p:(?!64)(\d+)", str(made.target_data)):
        raise TargetError(
            "compile",
            f"cannot make code for {host.machine.name}",
            because=f"its addresses have {found[1]} bits, and offcut's have 64",
        )
    return made


@lru_cache(maxsize=8)
def _emitting(host: Host) -> Any:
    """`_machine`, which makes one module after the other into code; a module that is loaded takes its machine over."""
    return _machine(host)


def parsed(text: str) -> Any:
    """The module of LLVM IR, verified."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"the generated code is not valid: {str(error)[:2000]}") from error
    return module


def _module(text: str, host: Host, passes: bool, loops: str) -> tuple[Any, Any]:
    """A module and the machine that it is for, after the scalar passes where they are wanted.

    Loops around microkernels come as they are to be: nothing is left for loop passes, which cost
    more than they gain. The functions of `loops` get them: what does not change in a loop leaves it. They
    take longer by the line the more lines there are, so a module of very many does without them.
    """
    module, machine = parsed(text), _emitting(host)
    if passes:
        _scalar_passes(module, machine)
    if loops:
        theirs = _of_loops(loops, machine)
        called = [
            f.name
            for f in theirs.functions
            if f.linkage == llvm.Linkage.external and not f.is_declaration
        ]
        module.link_in(theirs)
        for name in called:  # by this module, and by no other
            module.get_function(name).linkage = llvm.Linkage.internal
    return module, machine


def _scalar_passes(module: Any, machine: Any) -> None:
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    manager = llvm.create_new_module_pass_manager()
    manager.add_always_inliner_pass()  # exp, tanh, erf
    manager.add_sroa_pass()  # stack slots to registers
    manager.add_simplify_cfg_pass()
    manager.add_instruction_combine_pass()
    manager.add_new_gvn_pass()  # the same address computed for every tile
    manager.add_dead_code_elimination_pass()
    manager.add_global_dead_code_eliminate_pass()  # functions that the other module has, too
    manager.run(module, builder)


def _of_loops(text: str, machine: Any) -> Any:
    """The module of functions of loops, after the passes for these."""
    module = parsed(text)
    if text.count("\n") > _MOST_LINES:
        _scalar_passes(module, machine)
        return module
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def object_code(text: str, host: Host, *, passes: bool, loops: str = "") -> bytes:
    """The object file of a module; without `passes` its functions stay as they were written.

    loops   a module of functions that it calls, which become part of it
    """
    module, machine = _module(text, host, passes, loops)
    return bytes(machine.emit_object(module))


def optimized(text: str, host: Host, *, passes: bool, loops: str = "") -> Any:
    """A module after its passes, to be linked with others."""
    return _module(text, host, passes, loops)[0]


def without_unused(module: Any) -> None:
    """Drop internal functions and data of `module` that nothing uses."""
    _initialize()
    manager = llvm.create_new_module_pass_manager()
    manager.add_global_dead_code_eliminate_pass()
    machine = llvm.Target.from_default_triple().create_target_machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    manager.run(module, builder)


def position_independent(module: Any, triple: str, features: Sequence[str]) -> bytes:
    """The object file of `module`, to be linked anywhere, for a base processor with `features`."""
    _initialize()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        features=",".join(f"+{name}" for name in features),
        opt=1,
        reloc="pic",
        codemodel="default",
    )
    module.triple = triple
    return bytes(machine.emit_object(module))


def text_bytes(code: bytes) -> int:
    """Bytes of the instructions in an object file."""
    sections = llvm.ObjectFileRef.from_data(code).sections()
    return sum(section.size() for section in sections if section.is_text())


def assembly(text: str, host: Host, *, passes: bool, loops: str = "") -> str:
    """The assembly of a module, likewise."""
    module, machine = _module(text, host, passes, loops)
    return str(machine.emit_assembly(module))


@dataclass(frozen=True)
class Loaded:
    """Machine code in memory, as long as this object lives."""

    engine: Any

    def address(self, symbol: str) -> int:
        """The address of a function."""
        found = int(self.engine.get_function_address(symbol))
        if not found:
            raise InternalError(f"the compiled code has no {symbol}")
        return found


def load(
    objects: Sequence[bytes], host: Host, functions: Mapping[str, int] | None = None
) -> Loaded:
    """Object files, linked to each other, as callable code.

    functions   addresses of what they call besides, by symbol, for this code alone

    Raises RuntimeError when the bytes are no object file of this machine.
    """
    # It makes code of a module without functions; what is loaded is code already.
    machine = _machine(host, effort=0)
    empty = llvm.parse_assembly(f'target triple = "{host.triple}"')
    engine = llvm.create_mcjit_compiler(empty, machine)
    for symbol, address in (functions or {}).items():
        declared = parsed(f"declare void @{symbol}()").get_function(symbol)
        engine.add_global_mapping(declared, address)
    for code in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Loaded(engine)
