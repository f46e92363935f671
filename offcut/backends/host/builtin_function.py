"""The address of a compiled fast entry -> a builtin function of Python that runs it.

The entry's text holds no address, so that its object code may be cached on disk: CPython's functions,
numpy's types, the packed constants and the slow path come through a table, the contents of the `bytes`
object that Python passes as `self`. What is assumed here of CPython's and numpy's memory layout is
verified once by `layout_holds`; where it does not hold, there is no fast way, only the slow one.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from offcut.backends.host import dlpack

FIELDS = (
    "slow",
    "out_name",
    "ndarray",
    "true",
    "tuple",
    "exchange",
    "empty",
    "PyObject_Vectorcall",
    "PyObject_GetAttr",
    "Py_IncRef",
    "Py_DecRef",
    "PyErr_Clear",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyMem_RawMalloc",
    "PyMem_RawFree",
    "PyTuple_Size",
    "PyTuple_GetItem",
    "PyTuple_New",
    "PyTuple_SetItem",
)
TYPE_OF = 8  # offset of ob_type in every object
BYTES_OF = 32  # offset of the contents of a bytes object
DATA, RANK, SHAPE, STRIDES, DESCR, FLAGS = 16, 24, 32, 40, 56, 64  # of an ndarray's fields
ALIGNED, WRITEABLE = 0x100, 0x400
_NUMPY = {"PyArray_NewFromDescr": 94, "PyArray_Empty": 184}  # indices in numpy's function table
_FASTCALL_KEYWORDS = 0x0082
_OUT = sys.intern("out")
_METHOD = struct.Struct("PPiP")  # PyMethodDef: name, function, flags, doc


def fast_call_words(slow: Callable[..., object]) -> list[int]:
    """Return the first words of the table of the code of `fast_entry.fast_entry_ir`: those of `FIELDS`.

    slow  the callable that other calls are passed to; the owner of the builtin keeps it alive
    """
    objects = {
        "slow": id(slow),
        "out_name": id(_OUT),
        "ndarray": id(np.ndarray),
        "true": id(True),
        "tuple": id(tuple),
        "exchange": dlpack.exchange_table(),
        "empty": numpy_function("PyArray_Empty"),
    }
    return field_words(FIELDS, objects)


KEYWORD_FIELDS = ("int", "PyLong_AsLongLong")
"""What the code of a signature with sizes by keyword takes beside, behind the constants, before the names of these sizes."""


def keyword_words(names: Sequence[str]) -> list[int]:
    """Return the last words of the table: those of `KEYWORD_FIELDS`, the names, which are interned, and what compares texts; none
    without names.
    """
    if not names:
        return []
    fields = field_words(KEYWORD_FIELDS, {"int": id(int)})
    return [*fields, *map(id, names), _python_function("PyUnicode_Compare")]


def field_words(fields: Sequence[str], objects: Mapping[str, int]) -> list[int]:
    """Return a word for each field: of `objects`, or the address of CPython's function of that name."""
    return [objects[name] if name in objects else _python_function(name) for name in fields]


def builtin_callable(
    name: str,
    arguments: Sequence[str],
    address: int,
    words: Sequence[int],
    owners: Sequence[object],
) -> Callable[..., Any]:
    """A builtin function that runs the code at `address`, where `layout_holds`.

    name, arguments  as its documentation shows them
    words   of its table
    owners  what must live as long as the builtin: the code, and what the words are addresses of
    """
    # One bytes object holds the table and the PyMethodDef with its text: no garbage collection
    # can take them from a builtin that is still alive, as it could a Python attribute.
    label = name.encode() + b"\0"
    document = f"{name}({', '.join(arguments)})\n--\n\nA compiled kernel.\0".encode()
    table = struct.pack(f"{len(words)}P", *words)
    at = len(table) + _METHOD.size
    holder = _new_bytes(at + len(label) + len(document))
    start = id(holder) + BYTES_OF
    method = _METHOD.pack(start + at, address, _FASTCALL_KEYWORDS, start + at + len(label))
    content = table + method + label + document
    ctypes.memmove(start, content, len(content))
    keeper = _Keeper("offcut")
    keeper.kept = tuple(owners)
    builtin: Callable[..., Any] = _new_function(start + len(table), holder, keeper)
    return builtin


@cache
def layout_holds() -> bool:
    """Whether CPython's objects and numpy's arrays lie in memory as the generated code assumes."""
    if (
        sys.implementation.name != "cpython"
        or "t" in sys.abiflags  # without the interpreter's lock, objects begin otherwise
        or struct.calcsize("P") != 8
    ):
        return False
    sample = b"offcut: contents"
    if ctypes.string_at(id(sample) + BYTES_OF, len(sample)) != sample:
        return False
    array = np.zeros((3, 5, 7), np.float32)[:, 1:3]
    if not _is_laid_out(array):
        return False
    array.flags.writeable = False
    try:
        empty, strided = _array_functions()
    except (AttributeError, ImportError, ValueError):
        return False
    dtype = np.dtype(np.float32)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))  # PyArray_Empty takes the reference over
    empty_array = empty(2, (ctypes.c_int64 * 2)(4, 6), dtype, 0)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))
    shape, strides = (ctypes.c_int64 * 2)(4, 6), (ctypes.c_int64 * 2)(4, 16)
    columns = strided(np.ndarray, dtype, 2, shape, strides, None, 0, None)
    return (
        _is_laid_out(array)
        and empty_array.shape == columns.shape == (4, 6)
        and empty_array.dtype == columns.dtype == dtype
        and empty_array.flags.c_contiguous
        and columns.flags.f_contiguous
        and columns.flags.owndata
    )


def no_results(*arrays: object, **others: object) -> None:
    """Return None: the fallback of a builtin for the calls that it does not make."""


class _Keeper(str):
    """A builtin's module name that keeps what the builtin uses alive."""

    kept: tuple[object, ...]


def _is_laid_out(array: np.ndarray[Any, Any]) -> bool:
    """Whether the fields of this array stand where the generated code reads them."""
    at = id(array)
    word = ctypes.c_uint64.from_address
    rank, flags = (ctypes.c_int32.from_address(at + offset).value for offset in (RANK, FLAGS))
    shape, strides = (
        tuple((ctypes.c_int64 * array.ndim).from_address(word(at + offset).value))
        for offset in (SHAPE, STRIDES)
    )
    return (
        word(at + TYPE_OF).value == id(type(array))
        and word(at + DATA).value == array.__array_interface__["data"][0]
        and word(at + DESCR).value == id(array.dtype)
        and rank == array.ndim
        and shape == array.shape
        and strides == array.strides
        and bool(flags & WRITEABLE) == array.flags.writeable
        and bool(flags & ALIGNED) == array.flags.aligned
    )


@cache
def _python_function(name: str) -> int:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


@cache
def numpy_function(name: str) -> int:
    """Return the address of a function of numpy."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    capsule = np._core.multiarray._ARRAY_API  # type: ignore[attr-defined]
    return ctypes.c_uint64.from_address(get(capsule, None) + 8 * _NUMPY[name]).value


def _array_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return numpy's functions that allocate: row by row, and by strides."""
    words = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    new = (ctypes.py_object, ctypes.py_object, ctypes.c_int, *words, ctypes.c_int, ctypes.c_void_p)
    empty = (ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int)
    return (
        ctypes.PYFUNCTYPE(ctypes.py_object, *empty)(numpy_function("PyArray_Empty")),
        ctypes.PYFUNCTYPE(ctypes.py_object, *new)(numpy_function("PyArray_NewFromDescr")),
    )


def _new_bytes(size: int) -> bytes:
    """A bytes object of its own, yet to be filled."""
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)
    buffer: bytes = kind(("PyBytes_FromStringAndSize", ctypes.pythonapi))(None, size)
    return buffer


def _new_function(method: int, holder: bytes, module: str) -> Callable[..., Any]:
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    make = kind(("PyCFunction_NewEx", ctypes.pythonapi))
    builtin: Callable[..., Any] = make(method, holder, module)
    return builtin
