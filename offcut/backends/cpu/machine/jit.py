"""From LLVM IR to machine code in this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from offcut.backends.cpu.machine.isa import Host
from offcut.backends.llvm.loader import JitModule, initialize_native, load_objects
from offcut.errors import InternalError, TargetError

_MOST_LINES = 30_000  # of LLVM IR that loop passes are given: some seconds


@cache
def _initialize() -> None:
    # LLVM's two-address pass moves instructions past the end of a block in rare programs, and aborts.
    llvm.set_option("", "-twoaddr-reschedule=0")
    # Addresses are written as they are to be: to search for cheaper ones takes up to half of emission, and gains nothing.
    llvm.set_option("", "-disable-lsr")
    initialize_native()
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
    target_machine = target.create_target_machine(
        features=host.feature_string, opt=effort, jit=True
    )
    if found := re.search(r"-p:(?!64)(\d+)", str(target_machine.target_data)):
        raise TargetError(
            "compile",
            f"cannot make code for {host.machine.name}",
            because=f"its addresses have {found[1]} bits, and offcut's have 64",
        )
    return target_machine


@lru_cache(maxsize=8)
def _emitting(host: Host) -> _Builders:
    """`_machine`, which makes one module after the other into code; a module that is loaded takes its machine over."""
    return _Builders(_machine(host))


def _parse(text: str, context: Any) -> Any:
    """Return the module of some LLVM IR, verified."""
    module = None
    try:
        module = llvm.parse_assembly(text, context)
        module.verify()
    except RuntimeError as error:
        if module is not None:
            module.close()
        raise InternalError(f"the generated code is not valid: {str(error)[:2000]}") from error
    return module


@contextmanager
def parse_ir(text: str) -> Iterator[Any]:
    """The module of some LLVM IR, verified, as long as the context lasts.

    It has an LLVM context of its own, which keeps every type, constant and name of its modules: the global one of LLVM lives as long as
    the process. Both are freed at the end, the module first; left to Python's collector, they would be freed in any order.
    """
    context = llvm.create_context()
    try:
        module = _parse(text, context)
        try:
            yield module
        finally:
            module.close()
    finally:
        context.close()


def link(module: Any, text: str, prepare: Callable[[Any], None] = lambda theirs: None) -> None:
    """Make some LLVM IR part of a module that `parse_ir` gave.

    prepare  what is done first to the module of that IR
    """
    theirs = _parse(text, module._context)
    try:
        prepare(theirs)
        module.link_in(theirs)
    finally:
        theirs.close()  # nothing, where it is part of the other


@contextmanager
def optimize(
    text: str, host: Host, *, passes: bool, loops: str = "", fastcall: str = ""
) -> Iterator[Any]:
    """A module after its passes, as long as the context lasts.

    passes    whether it gets the scalar passes; else its functions stay as they are written
    loops     a module of functions that it calls, which become part of it
    fastcall  a module of functions that call it, which become part of it as they are written

    Loops around microkernels come as they are to be: nothing is left for loop passes, which cost
    more than they gain. The functions of `loops` get them: what does not change in a loop leaves it. They
    take longer by the line the more lines there are, so a module of very many does without them.
    """
    builders, called = _emitting(host), list[str]()

    def prepare(theirs: Any) -> None:
        _loop_passes(theirs, loops, builders.get(loops))
        called.extend(
            f.name
            for f in theirs.functions
            if f.linkage == llvm.Linkage.external and not f.is_declaration
        )

    with parse_ir(text) as module:
        if passes:
            _scalar_passes(module, builders.get(text))
        if loops:
            link(module, loops, prepare)
            for name in called:  # by this module, and by no other
                module.get_function(name).linkage = llvm.Linkage.internal
        if fastcall:
            link(module, fastcall)
        yield module


_CHECKED_LLVM = range(20, 23)
"""The versions of LLVM of which it is known what a builder of passes keeps of a run: one callback, which reads what was on the stack of
the run, and that for functions marked ``optnone`` alone."""

_MAX_RUNS = 32
"""Times that a builder is used. llvmlite frees the builder but not its list of callbacks, 1.5 KiB, to which each run adds one."""


class _Builders:
    """LLVM's builders of passes for a machine: one for `_MAX_RUNS` modules."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self._builder: Any = None
        self._runs_left = 0

    def get(self, text: str) -> Any:
        """Return the builder for one run of passes on a module with this text."""
        if llvm.llvm_version_info[0] not in _CHECKED_LLVM or "optnone" in text:
            return self._make()
        if self._runs_left <= 0:
            self._builder, self._runs_left = self._make(), _MAX_RUNS
        self._runs_left -= 1
        return self._builder

    def _make(self) -> Any:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = False
        return llvm.create_pass_builder(self.machine, options)


def _run(manager: Any, module: Any, builder: Any) -> None:
    """Run passes on a module, then free them: llvmlite leaves that to a base class, which frees nothing (86 KiB)."""
    try:
        manager.run(module, builder)
    finally:
        NewPassManager._dispose(manager)
        manager.detach()


def _scalar_passes(module: Any, builder: Any) -> None:
    manager = llvm.create_new_module_pass_manager()
    manager.add_always_inliner_pass()  # functions of elements
    manager.add_sroa_pass()  # stack slots to registers
    manager.add_simplify_cfg_pass()
    manager.add_instruction_combine_pass()
    manager.add_new_gvn_pass()  # the same address computed for every tile
    manager.add_dead_code_elimination_pass()
    manager.add_global_dead_code_eliminate_pass()  # functions that the other module has, too
    _run(manager, module, builder)


def _loop_passes(module: Any, text: str, builder: Any) -> None:
    """Run the passes for functions of loops; text  of the module."""
    if text.count("\n") > _MOST_LINES:
        _scalar_passes(module, builder)
    else:
        _run(builder.getModulePassManager(), module, builder)


def object_code(
    text: str, host: Host, *, passes: bool, loops: str = "", fastcall: str = ""
) -> bytes:
    """The object file of a module, as `optimize` has it."""
    with optimize(text, host, passes=passes, loops=loops, fastcall=fastcall) as module:
        return bytes(_emitting(host).machine.emit_object(module))


def assembly(text: str, host: Host, *, passes: bool, loops: str = "", fastcall: str = "") -> str:
    """The assembly of a module, likewise."""
    with optimize(text, host, passes=passes, loops=loops, fastcall=fastcall) as module:
        return str(_emitting(host).machine.emit_assembly(module))


def strip_unused(module: Any) -> None:
    """Drop internal functions and data of `module` that nothing uses."""
    _initialize()
    manager = llvm.create_new_module_pass_manager()
    manager.add_global_dead_code_eliminate_pass()
    machine = llvm.Target.from_default_triple().create_target_machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    _run(manager, module, builder)


def position_independent(module: Any, triple: str, features: Sequence[str]) -> bytes:
    """The object file of `module`, to be linked anywhere, for a base processor with `features`."""
    _initialize()
    _initialize_all()
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


def load(
    objects: Sequence[bytes], host: Host, functions: Mapping[str, int] | None = None
) -> JitModule:
    """Return object files, linked to each other, as callable code, as `load_objects` does."""
    _initialize()
    return load_objects(objects, host.triple, functions)
