"""The C header of an exported kernel: prototypes, and in words what they expect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import offcut
from offcut.backends.abi import STATUS_OUT_OF_BOUNDS, Argument, Signature
from offcut.core.dtypes import HALVES, INTEGERS
from offcut.core.text.c_keywords import is_word

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
{_described(signature, facts, (*inputs, *outputs), sizes)}
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
    used_names = {"workspace"}
    updated = {number for number, _ in signature.updated}

    def fresh(label: str) -> str:
        plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in label)
        name = plain if plain[:1].isalpha() else f"a{plain}"
        while name in used_names or is_word(name) or _OWN_MACROS.fullmatch(name):
            name += "_"
        used_names.add(name)
        return name

    outputs = tuple(fresh(argument.name) for argument in signature.outputs)
    inputs = tuple(
        fresh(f"{argument.name}_before" if number in updated else argument.name)
        for number, argument in enumerate(signature.inputs)
    )
    return inputs, outputs, tuple(fresh(facts.name) for facts in signature.sizes)


def _described(
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
