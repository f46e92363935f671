"""CUDA C++ as a dialect of C: types, names, and the numbers of units."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offcut.backends.gpu.text.primitives import PRIMITIVE_NAMES
from offcut.core.expr import Load, Var
from offcut.core.text.c_expressions import CExpressions, Dialect
from offcut.core.text.c_keywords import LIBRARY, is_word
from offcut.errors import DescribeError

TYPES: Mapping[str, str] = {
    "float32": "float",
    "float64": "double",
    "bfloat16": "bf16",
    "float16": "f16",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "bool": "bool",
    "index": "int",
}
"""The types of elements, and of indices."""
WARP = Var("the warp")
"""The number of the warp, which iterators of loops over warps stand for; no program can name it so."""
GROUP = Var("the warpgroup")
"""The number of the warpgroup, which iterators of loops over warpgroups stand for."""
NUMBERS = {WARP.name: "warp", GROUP.name: "group"}
_OWN_NAMES = frozenset(
    [
        *("warp", "group", "lane", "bytes", "shared", "row_tile", "column_tile", "element"),
        *("barrier", "bf16", "f16", "min", "max", "tensor_map", "multiply_async"),
        *("blockIdx", "threadIdx", "gridDim", "blockDim"),
    ]
)
"""Names of the text and of CUDA, which names of a program may not equal, beside those of C++ and of its library."""


def name_of(name: str) -> str:
    """Return a name of a program as the text has it."""
    is_taken = name in _OWN_NAMES | PRIMITIVE_NAMES | LIBRARY or is_word(name)
    return f"{name}_" if is_taken else name


def no_text(at: str, because: str) -> DescribeError:
    """Return the error for a construct that has no text in CUDA C++."""
    return DescribeError(
        "source", 'cannot show "cuda"', at=at, because=because, help=('source("loops")',)
    )


CUDA = Dialect(
    TYPES, lambda name: NUMBERS.get(name) or name_of(name), "to_whole<{type}>({value})", no_text
)


def writer(element: Callable[[Load], str], signed: frozenset[str] = frozenset()) -> CExpressions:
    """Return a writer of expressions.

    element  from a load to the text of its value
    signed   the iterators that may be below 0
    """
    return CExpressions(CUDA, element, signed)
