"""A kernel as an object file and a C header: what a program without Python links.

The object (`Target.portable_code`) holds the packed constants as data and a function for dense arrays. It names the C library,
and the functions of external microkernels, which the program defines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import offcut
from offcut.backends.abi import STATUS_OUT_OF_BOUNDS, Argument, Exported, PortableCode, Signature
from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter, extent_of, holds
from offcut.core.dtypes import HALVES, INTEGERS
from offcut.core.text.c_expressions import LIBRARY, is_word
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
            because="it is not a path of a folder",
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
        [declared, dense(signature, len(constants), is_dense), *_embed_constants(constants)]
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
    _write_size_checks(f, signature, sizes)
    table = _stack_array(f, "ptr", [*pointers, *(f"@offcut_constant{k}" for k in range(constants))])
    values = _stack_array(f, "i64", list(sizes.values()))
    strides = "null"
    if not is_dense:
        steps = [step for array in arrays for step in _row_major(f, array, sizes)]
        strides = _stack_array(f, "i64", steps)
    arguments = f"ptr {table}, ptr {values}, ptr {strides}, ptr %workspace"
    f.do(f"ret i32 {f.let(f'call i32 @offcut_entry({arguments})')}")
    parameters = [*(f"ptr {p}" for p in pointers), *(f"i64 {s}" for s in sizes.values())]
    head = f"define i32 @offcut_dense({', '.join([*parameters, 'ptr %workspace'])}) nounwind"
    return f"{head} {{\n{f.text()}\n}}"


def _write_size_checks(f: FunctionWriter, signature: Signature, sizes: dict[str, str]) -> None:
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


def _stack_array(f: FunctionWriter, kind: str, values: Sequence[str]) -> str:
    """Return an array on the stack that holds `values`."""
    base = f.slot(f"[{max(len(values), 1)} x {kind}]")
    for position, value in enumerate(values):
        at = f.let(f"getelementptr {kind}, ptr {base}, i64 {position}")
        f.do(f"store {kind} {value}, ptr {at}")
    return base


def _embed_constants(constants: Sequence[bytes]) -> list[str]:
    """Data of the constants, at cache lines, and the table of where they are."""
    if not constants:
        return []
    lines = [
        f'@offcut_constant{k} = internal constant [{len(data)} x i8] c"{_escape(data)}", align 64'
        for k, data in enumerate(constants)
    ]
    entries = ", ".join(f"ptr @offcut_constant{k}" for k in range(len(constants)))
    lines.append(f"@offcut_constants = constant [{len(constants)} x ptr] [{entries}]")
    return lines


def _escape(data: bytes) -> str:
    return _ESCAPED[np.frombuffer(data, np.uint8)].tobytes().decode("ascii")


BROKEN_FACT = 2
"""What the function for dense arrays returns where a size breaks a fact of the signature."""

_OWN_MACROS = re.compile(
    r"OFFCUT_\w+_H|\w+_(LEFT_AN_ARRAY|BROKEN_FACT)"
)  # of this header, or another

_C_TYPE = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    **{name: f"{name}_t" for name in INTEGERS},
    "bool": "uint8_t",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What a header says beside the signature.

    features   of the processor, in LLVM's names
    constants  how many constants the object file holds
    provided   symbols that the program must define: microkernels that are not offcut's
    is_dense   whether the entry takes dense arrays alone
    """

    name: str
    triple: str
    features: tuple[str, ...]
    constants: int
    provided: tuple[str, ...] = ()
    is_dense: bool = False


def header(signature: Signature, facts: Facts) -> str:
    """Return the text of ``NAME.h``, for C99 and C++."""
    name = facts.name
    guard = f"OFFCUT_{name}_H"
    inputs, outputs, sizes = parameter_names(signature)
    arguments = [
        *(f"const {_C_TYPE[a.dtype]} *{c}" for a, c in zip(signature.inputs, inputs, strict=True)),
        *(f"{_C_TYPE[a.dtype]} *{c}" for a, c in zip(signature.outputs, outputs, strict=True)),
        *(f"int64_t {size}" for size in sizes),
        "void *workspace",
    ]
    constants = (
        "/* The constants, packed as the kernel reads them. */\n"
        f"extern const void *const {name}_constants[{facts.constants}];\n\n"
    )
    return f"""\
/* {name}: a kernel compiled by offcut {offcut.__version__} for {facts.triple}.
 *
{_contract_lines(signature, facts, (*inputs, *outputs), sizes)}
 */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {name}_LEFT_AN_ARRAY {STATUS_OUT_OF_BOUNDS} /* an index or a guard that depends on data led out of an array */
#define {name}_BROKEN_FACT {BROKEN_FACT} /* a size is not one that the kernel was compiled for */

/* 1 where this processor and this system can run the kernel, else 0; call it once, first: where the
 * kernel uses tile registers, it asks Linux for them. */
int32_t {name}_supported(void);

/* Bytes of scratch that a call needs, at an address that is a multiple of 64; 0: it may be NULL.
 * sizes  {_order(sizes)} */
int64_t {name}_workspace(const int64_t *sizes);

/* Runs the kernel on dense row-major arrays. 0: done. {name}_BROKEN_FACT: nothing was done.
 * {name}_LEFT_AN_ARRAY: the outputs are unfinished. */
int32_t {name}({", ".join(arguments)});

/* Runs the kernel on {"dense row-major arrays, and reads no strides" if facts.is_dense else "strided arrays"}; no size is checked.
 * pointers  {_order([*inputs, *outputs, *(f"{name}_constants[{k}]" for k in range(facts.constants))])}
 * sizes     {_order(sizes)}
 * strides   in elements, of every axis of the arrays in turn, none negative; 1 along the last axis
 *           of an array: {_order(_axes(signature, inputs, outputs))}
 * returns   as {name} does */
int32_t {name}_entry(void *const *pointers, const int64_t *sizes, const int64_t *strides, void *workspace);

{constants if facts.constants else ""}\
#ifdef __cplusplus
}}
#endif

#endif
"""


def parameter_names(
    signature: Signature,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """C identifiers of inputs, outputs and sizes, no two alike; an updated input is ``NAME_before``."""
    taken = {"workspace"}
    updated = {number for number, _ in signature.updated}

    def fresh(label: str) -> str:
        plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in label)
        name = plain if plain[:1].isalpha() else f"a{plain}"
        while name in taken or is_word(name) or _OWN_MACROS.fullmatch(name):
            name += "_"
        taken.add(name)
        return name

    outputs = tuple(fresh(argument.name) for argument in signature.outputs)
    inputs = tuple(
        fresh(f"{argument.name}_before" if number in updated else argument.name)
        for number, argument in enumerate(signature.inputs)
    )
    return inputs, outputs, tuple(fresh(facts.name) for facts in signature.sizes)


def _contract_lines(
    signature: Signature, facts: Facts, arrays: Sequence[str], sizes: Sequence[str]
) -> str:
    """Return the contract, line by line."""
    inputs, outputs, first = signature.inputs, signature.outputs, len(signature.inputs)
    rows = [
        *(("reads ", f"{c}: {_array(a)}") for c, a in zip(arrays, inputs, strict=False)),
        *(("writes", f"{c}: {_array(a)}") for c, a in zip(arrays[first:], outputs, strict=True)),
    ]
    for size, c in zip(signature.sizes, sizes, strict=True):
        multiple = f", a multiple of {size.multiple_of}" if size.multiple_of > 1 else ""
        was = f" ({size.name} in the shapes)" if size.name != c else ""
        rows.append(("size  ", f"{size.min} <= {c} <= {size.max}{multiple}{was}"))
    rows += [("facts ", relation.text) for relation in signature.relations]
    rows.append(("needs ", ", ".join(facts.features) or "no feature beyond the base of the target"))
    rows += [("links ", f"{symbol}, which the program defines") for symbol in facts.provided]
    lines = [f" *   {label}  {text}" for label, text in rows]
    if any(each.dtype in HALVES for each in (*inputs, *outputs)):
        lines.append(
            " *\n * An element of float16 or bfloat16 is passed as its bits, in a uint16_t."
        )
    if any(each.dtype == "bool" for each in (*inputs, *outputs)):
        lines.append(" *\n * An element of bool is 0 or 1, in a uint8_t.")
    apart = "No output overlaps another array"
    for number, result in signature.updated:
        before, after = arrays[number], arrays[first + result]
        apart += f", but {after} may be {before}: it begins as a copy of it"
    linked = "Link with the C library and its libm; nothing else is needed."
    if facts.provided:
        linked = "Link with the C library, its libm, and what is listed above."
    lines.append(
        f" *\n * {apart}. A call runs on the thread that makes it, and several may at once,\n"
        f" * each with a workspace of its own. {linked}"
    )
    return "\n".join(lines)


def _array(argument: Argument) -> str:
    return f"{argument.dtype}[{', '.join(argument.extents)}]"


def _axes(signature: Signature, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    arrays = zip((*signature.inputs, *signature.outputs), (*inputs, *outputs), strict=True)
    return [f"{c} axis {axis}" for a, c in arrays for axis in range(len(a.shape))]


def _order(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
