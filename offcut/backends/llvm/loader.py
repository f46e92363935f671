"""Object files as code that this process can call: LLVM's loader alone, without a compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from offcut.core import process
from offcut.errors import InternalError

# llvmlite's own: what it lets others register is called when a thread has it already, and a fork may come between.
process.hold_across_fork(llvm.ffi.lib._lock)


@cache
def initialize_native() -> None:
    """Make LLVM know the processor of this process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@dataclass(frozen=True)
class JitModule:
    """Machine code in memory, as long as this object lives."""

    engine: Any

    def address(self, symbol: str) -> int:
        """Return the address of a function or of data.

        Raises InternalError where the code has no such symbol.
        """
        address = int(self.engine.get_function_address(symbol))
        if not address:
            raise InternalError(f"the compiled code has no {symbol}")
        return address


def load_objects(
    objects: Sequence[bytes], triple: str, functions: Mapping[str, int] | None = None
) -> JitModule:
    """Return object files, linked to each other, as callable code.

    triple      of the processor of this process
    functions   addresses of what they call besides, by symbol, for this code alone

    Raises RuntimeError when the bytes are no object file of this machine.
    """
    initialize_native()
    # It makes code of a module without functions; what is loaded is code already.
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=0, jit=True)
    everywhere = llvm.get_global_context()  # what has no content leaves nothing there
    empty = llvm.parse_assembly(f'target triple = "{triple}"', everywhere)
    engine = llvm.create_mcjit_compiler(empty, machine)
    for symbol, address in (functions or {}).items():
        declared = llvm.parse_assembly(f"declare void @{symbol}()", everywhere)
        engine.add_global_mapping(declared.get_function(symbol), address)
    for code in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return JitModule(engine)
