"""A kernel as an object file and a C header: what a program without Python links.

The object (`Target.portable_code`) holds the packed constants as data and a function for dense arrays. It names the C library,
and the functions of external microkernels, which the program defines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from offcut.backends.abi import Argument, Exported, PortableCode, Signature
from offcut.backends.host.header import BROKEN_FACT, Facts, header
from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter, extent_of, holds
from offcut.core.text.c_keywords import LIBRARY, is_word
from offcut.errors import DescribeError

C_SUFFIXES = {
    "offcut_entry": "_entry",
    "offcut_workspace": "_workspace",
    "offcut_dense": "",
    "offcut_supported": "_supported",
    "offcut_constants": "_constants",
}
"""What follows the kernel's name in an exported object file, by the symbol of the module."""
_ESCAPED = np.frombuffer(b"".join(b"\\%02X" % byte for byte in range(256)), "S3")


def export(
    signature: Signature,
    code: PortableCode,
    constants: int,
    folder: str | os.PathLike[str],
    name: str,
    is_dense: bool = False,
) -> Exported:
    """Write ``NAME.o`` and ``NAME.h`` into `folder`.

    constants  how many the object holds
    is_dense   whether the entry takes dense arrays alone, whatever strides say

    Raises DescribeError for a folder that cannot be written to.
    """
    where = _folder(folder)
    facts = Facts(name, code.triple, code.features, constants, code.provided, is_dense)
    exported = Exported(where / f"{name}.o", where / f"{name}.h")
    try:
        where.mkdir(parents=True, exist_ok=True)
        exported.object.write_bytes(code.object)
        exported.header.write_text(header(signature, facts), encoding="utf-8")
    except OSError as error:
        raise DescribeError(
            "export",
            f"cannot write into {where}",
            at=error.filename or "",
            because=error.strerror or "the system refuses",
            help=("a folder that is yours, or that can be made",),
        ) from None
    return exported


def _folder(folder: object) -> Path:
    if not isinstance(folder, str | os.PathLike) or "\0" in os.fsdecode(folder):
        raise DescribeError(
            "export",
            f"cannot write into {folder!r}",
            because="it is no path of a folder",
            help=('kernel.export("build")',),
        )
    return Path(os.fsdecode(folder))


def c_functions(signature: Signature, constants: Sequence[bytes], is_dense: bool = False) -> str:
    """Return LLVM IR of what an exported object has beside the entry: the function for dense arrays, and the constants as data.

    constants  as packed, in the order of the entry's pointers
    """
    declared = (
        "declare i32 @offcut_entry(ptr, ptr, ptr, ptr)\ndeclare i64 @llvm.smax.i64(i64, i64)\n"
    )
    return "\n\n".join(
        [declared, dense(signature, len(constants), is_dense), *_embedded(constants)]
    )


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


def dense(signature: Signature, constants: int, is_dense: bool = False) -> str:
    """Return LLVM IR of ``offcut_dense(inputs…, outputs…, sizes…, workspace)``, for row-major arrays.

    is_dense  whether the entry reads no strides
    """
    f = FunctionWriter()
    arrays = [*signature.inputs, *signature.outputs]
    pointers = [f"%array{k}" for k in range(len(arrays))]
    sizes = {facts.name: f"%size{k}" for k, facts in enumerate(signature.sizes)}
    _checked(f, signature, sizes)
    table = _filled(f, "ptr", [*pointers, *(f"@offcut_constant{k}" for k in range(constants))])
    values = _filled(f, "i64", list(sizes.values()))
    strides = "null"
    if not is_dense:
        steps = [step for array in arrays for step in _row_major(f, array, sizes)]
        strides = _filled(f, "i64", steps)
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
