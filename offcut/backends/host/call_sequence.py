"""C entries called one after the other without Python in between: LLVM IR of the function that does it, and its caller.

A *batch* is what such calls need, laid out once; a run adds the addresses that memory has this time::

    int32_t offcut_in_turn(const int64_t *pointers, int64_t count,
                           const int64_t *calls, int64_t call_count,
                           const int64_t *bases, void *workspace);

    pointers  of each: where it is written, the number of its base, its offset from it in bytes
    calls     of each: the entry, its pointers, sizes and strides, and whether it takes the workspace
    status    of the first call that does not return 0, which is the last that is made

Calls share the workspace.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from offcut.backends.abi import STATUS_OUT_OF_BOUNDS
from offcut.backends.llvm import ir
from offcut.errors import InternalError, OutOfBoundsError

ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
"""`offcut_entry` of `offcut.backends.abi`."""
WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
"""`offcut_workspace`."""
SYMBOL = "offcut_in_turn"
_IN_TURN = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_POINTER, _CALL = 3, 5  # words of each


def call_sequence_ir() -> str:
    """LLVM IR of the function."""
    f = ir.FunctionWriter()

    def word(base: str, index: str, kind: str = "i64") -> str:
        at = f.let(f"getelementptr i64, ptr {base}, i64 {index}")
        return f.let(f"load {kind}, ptr {at}")

    with f.loop("0", "%count") as number:
        first = f.let(f"mul i64 {number}, {_POINTER}")
        row = f.let(f"getelementptr i64, ptr %pointers, i64 {first}")
        place, base, offset = word(row, "0", "ptr"), word(row, "1"), word(row, "2")
        start = word("%bases", base)
        f.do(f"store i64 {f.let(f'add i64 {start}, {offset}')}, ptr {place}")
    with f.loop("0", "%call_count") as number:
        first = f.let(f"mul i64 {number}, {_CALL}")
        row = f.let(f"getelementptr i64, ptr %calls, i64 {first}")
        entry, *given = (word(row, str(at), "ptr") for at in range(4))
        takes = f.let(f"icmp ne i64 {word(row, '4')}, 0")
        given.append(f.let(f"select i1 {takes}, ptr %workspace, ptr null"))
        status = f.let(f"call i32 {entry}({', '.join(f'ptr {one}' for one in given)})")
        with f.when(f.let(f"icmp ne i32 {status}, 0")):
            f.do(f"ret i32 {status}")
            f.start(f.name("after"))
    f.do("ret i32 0")
    parameters = (
        "ptr %pointers, i64 %count, ptr %calls, i64 %call_count, ptr %bases, ptr %workspace"
    )
    return f"define i32 @{SYMBOL}({parameters}) nounwind {{\n{f.text()}\n}}\n"


class CallSequence:
    """Calls of entries that a function of `call_sequence_ir` makes.

    address   of that function
    pointers  of each: the address that it is written to, the number of its base, its offset from it in bytes
    calls     of each: entry, address of its pointers, of its sizes, of its strides, whether it takes workspace
    owner     keeps what these addresses are of
    given     the first four arguments of the function
    """

    def __init__(
        self,
        address: int,
        pointers: np.ndarray[Any, Any],
        calls: np.ndarray[Any, Any] | Sequence[tuple[int, ...]],
        owner: object,
    ) -> None:
        self.owner = owner
        self._pointers = np.ascontiguousarray(pointers, np.int64)
        self._calls = np.ascontiguousarray(calls, np.int64).reshape(-1, _CALL)
        self._function = _IN_TURN(address)
        self.given = (
            self._pointers.__array_interface__["data"][0],
            len(self._pointers),
            self._calls.__array_interface__["data"][0],
            len(self._calls),
        )

    def __call__(self, bases: int, workspace: int) -> int:
        """The status.

        bases      address of the bases
        workspace  of as many bytes, 64-byte aligned, as the greediest call asks for
        """
        status: int = self._function(*self.given, bases, workspace)
        return status


def check_status(name: str, status: int) -> None:
    """Refuse what an entry did not finish.

    Raises OutOfBoundsError where an index that depends on data leads out of an array, InternalError for any other status.
    """
    if status == STATUS_OUT_OF_BOUNDS:
        raise OutOfBoundsError(
            name,
            "cannot run on these arrays",
            because="an index that it reads from them, or a guard that it computes, leads "
            "outside of an array",
        )
    if status:
        raise InternalError(f"{name}: the compiled code returned {status}")
