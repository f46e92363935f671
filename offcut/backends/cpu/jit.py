"""From LLVM IR to machine code in this process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from offcut.backends.cpu.isa import Host
from offcut.errors import InternalError


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine(host: Host) -> Any:
    _initialize()
    target = llvm.Target.from_triple(host.triple)
    return target.create_target_machine(features=host.feature_string, opt=1, jit=True)


def _parsed(text: str) -> Any:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"the generated code is not valid: {str(error)[:2000]}") from error
    return module


def _optimized(text: str, host: Host) -> tuple[Any, Any]:
    """The module after the scalar passes; microkernels are left as they were written."""
    module, machine = _parsed(text), _machine(host)
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def object_code(text: str, host: Host) -> bytes:
    """The object file of a module for this host."""
    module, machine = _optimized(text, host)
    return bytes(machine.emit_object(module))


def assembly(text: str, host: Host) -> str:
    """The assembly of a module for this host."""
    module, machine = _optimized(text, host)
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


def load(code: bytes, host: Host) -> Loaded:
    """An object file as callable code.

    Raises RuntimeError when the bytes are no object file of this machine.
    """
    machine = _machine(host)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(f'target triple = "{host.triple}"'), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Loaded(engine)
