"""A kernel as an object file and a C header: what a program without Python links.

The modules of a kernel (its entry, its microkernels) become one, with the packed constants as data
and a function for dense arrays; everything that is not of the header gets internal linkage, and
what only the call from Python needs is dropped with it. So several kernels link into one program.
The code is position independent. It names the C library, and the functions of external
microkernels, which the program defines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offcut.backends.abi import Argument, Exported, Signature
from offcut.backends.cpu.c_keywords import LIBRARY, is_word
from offcut.backends.cpu.header import BROKEN_FACT, Facts, header
from offcut.backends.cpu.machine import cpuid, jit
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels.external import PREFIX
from offcut.backends.llvm import ir
from offcut.backends.llvm.extents import extent_of, holds
from offcut.backends.llvm.ir import FunctionWriter
from offcut.errors import DescribeError

# Symbol of the modules -> what follows the kernel's name in the object file.
_EXPORTED = {
    "offcut_entry": "_entry",
    "offcut_workspace": "_workspace",
    "offcut_dense": "",
    "offcut_supported": "_supported",
    "offcut_constants": "_constants",
}
_ESCAPED = np.frombuffer(b"".join(b"\\%02X" % byte for byte in range(256)), "S3")


def export(
    signature: Signature,
    entry: Any,
    tiles: Sequence[str],
    constants: Iterable[bytes],
    host: Host,
    folder: str | os.PathLike[str],
    name: str,
) -> Exported:
    """Write ``NAME.o`` and ``NAME.h`` into `folder`.

    entry      the module of `offcut_entry`, after its passes (`jit.optimized`); it is changed
    tiles      LLVM IR of the microkernels that it calls
    constants  as packed, in the order of the entry's pointers

    Raises DescribeError for a name that is no C identifier, or a folder that cannot be written to.
    """
    check_name(name)
    if not isinstance(folder, str | os.PathLike) or "\0" in os.fsdecode(folder):
        raise DescribeError(
            "export",
            f"cannot write into {folder!r}",
            because="it is no path of a folder",
            help=('kernel.export("build")',),
        )
    where = Path(os.fsdecode(folder))
    data = tuple(constants)
    features = cpuid.needed(host, (str(entry), *tiles))
    glue = [
        dense(signature, len(data)),
        cpuid.supported("offcut_supported", features, host.triple),
        *_embedded(data),
    ]
    declared = (
        "declare i32 @offcut_entry(ptr, ptr, ptr, ptr)\ndeclare i64 @llvm.smax.i64(i64, i64)\n"
    )
    for text in (*tiles, declared + "\n\n".join(glue)):
        jit.link(entry, text)
    provided = _only_exported(entry, name)
    code = jit.position_independent(entry, host.triple, features)
    facts = Facts(name, host.triple, features, len(data), provided)
    made = Exported(where / f"{name}.o", where / f"{name}.h")
    try:
        where.mkdir(parents=True, exist_ok=True)
        made.object.write_bytes(code)
        made.header.write_text(header(signature, facts), encoding="utf-8")
    except OSError as error:
        raise DescribeError(
            "export",
            f"cannot write into {where}",
            at=error.filename or "",
            because=error.strerror or "the system refuses",
            help=("a folder that is yours, or that can be made",),
        ) from None
    return made


def check_name(name: object) -> None:
    """Refuse what C does not take as the name of a function.

    Raises DescribeError.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        why = "a name is a letter and then letters, digits and _, as C has them"
    elif is_word(name):
        why = "C or C++ keeps this word for itself"
    elif name in LIBRARY:
        why = "the C library has a function of this name"
    else:
        return
    raise DescribeError(
        "export", f"cannot name a kernel {name!r}", because=why, help=('name="dense"',)
    )


def dense(signature: Signature, constants: int) -> str:
    """LLVM IR of ``offcut_dense(inputs…, outputs…, sizes…, workspace)``, for row-major arrays."""
    f = FunctionWriter()
    arrays = [*signature.inputs, *signature.outputs]
    pointers = [f"%array{k}" for k in range(len(arrays))]
    sizes = {facts.name: f"%size{k}" for k, facts in enumerate(signature.sizes)}
    _checked(f, signature, sizes)
    table = _filled(f, "ptr", [*pointers, *(f"@offcut_constant{k}" for k in range(constants))])
    values = _filled(f, "i64", list(sizes.values()))
    strides = _filled(f, "i64", [step for array in arrays for step in _row_major(f, array, sizes)])
    arguments = f"ptr {table}, ptr {values}, ptr {strides}, ptr %workspace"
    f.do(f"ret i32 {f.let(f'call i32 @offcut_entry({arguments})')}")
    parameters = [*(f"ptr {p}" for p in pointers), *(f"i64 {s}" for s in sizes.values())]
    head = f"define i32 @offcut_dense({', '.join([*parameters, 'ptr %workspace'])}) nounwind"
    return f"{head} {{\n{f.text()}\n}}"


def _checked(f: FunctionWriter, signature: Signature, sizes: dict[str, str]) -> None:
    """Return `BROKEN_FACT` where a size is not allowed."""
    good = "true"
    for facts in signature.sizes:
        size = sizes[facts.name]
        rest = ir.mod(f, size, str(facts.multiple_of))
        for test in (f"sge i64 {size}, {facts.min}", f"sle i64 {size}, {facts.max}"):
            good = f.let(f"and i1 {good}, {f.let(f'icmp {test}')}")
        good = f.let(f"and i1 {good}, {f.let(f'icmp eq i64 {rest}, 0')}")
    for relation in signature.relations:
        good = f.let(f"and i1 {good}, {holds(f, relation, sizes)}")
    go_on, stop = f.name("good"), f.name("broken")
    f.do(f"br i1 {good}, label {go_on}, label {stop}")
    f.start(stop)
    f.do(f"ret i32 {BROKEN_FACT}")
    f.start(go_on)


def _row_major(f: FunctionWriter, array: Argument, sizes: dict[str, str]) -> list[str]:
    """Strides of a dense array, in elements."""
    strides, step = [], "1"
    for extent in reversed(array.shape):
        strides.append(step)
        step = ir.mul(f, step, extent_of(f, extent, sizes))
    return strides[::-1]


def _filled(f: FunctionWriter, kind: str, values: Sequence[str]) -> str:
    """Return an array on the stack that holds `values`."""
    base = f.slot(f"[{max(len(values), 1)} x {kind}]")
    for position, value in enumerate(values):
        at = f.let(f"getelementptr {kind}, ptr {base}, i64 {position}")
        f.do(f"store {kind} {value}, ptr {at}")
    return base


def _embedded(constants: Sequence[bytes]) -> list[str]:
    """Data of the constants, at cache lines, and the table of where they are."""
    if not constants:
        return []
    lines = [
        f'@offcut_constant{k} = internal constant [{len(data)} x i8] c"{_escaped(data)}", align 64'
        for k, data in enumerate(constants)
    ]
    entries = ", ".join(f"ptr @offcut_constant{k}" for k in range(len(constants)))
    lines.append(f"@offcut_constants = constant [{len(constants)} x ptr] [{entries}]")
    return lines


def _escaped(data: bytes) -> str:
    return _ESCAPED[np.frombuffer(data, np.uint8)].tobytes().decode("ascii")


def _only_exported(module: Any, name: str) -> tuple[str, ...]:
    """Give what is exported its name and hide the rest; the symbols that are left to the program."""
    everything = [*module.functions, *module.global_variables]
    defined = [value for value in everything if not value.is_declaration]
    for value in defined:
        if value.name not in _EXPORTED:
            value.linkage = "internal"
            value.name = f"{name}.{value.name}"  # no name of C: it can meet no other
    for value in defined:
        if value.name in _EXPORTED:
            value.name = name + _EXPORTED[value.name]
    jit.strip_unused(module)
    left = [value for value in module.functions if value.is_declaration]
    external = [value for value in left if value.name.startswith(PREFIX)]
    own = {name + suffix for suffix in _EXPORTED.values()}
    for value in external:
        plain = value.name.removeprefix(PREFIX)
        if plain in own or plain in LIBRARY or is_word(plain):
            raise DescribeError(
                "export",
                f"cannot leave the microkernel {plain} to the program",
                because="a function of this name is in the header, or in the C library, or C keeps "
                "the word for itself",
                help=("another name for the kernel, or for the microkernel",),
            )
        value.name = plain
    return tuple(sorted(value.name for value in external))
