"""A kernel called by its C entry: its scratch and its packed constants lie against pages that nobody may touch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import offcut as oc
from offcut.ir import Buffer, Kind
from tests.facade import (
    ENTRY,
    WORKSPACE,
    SlowPath,
    View,
    bytes_of,
    check_status,
    const,
    literal,
    simplify,
)

from .memory import Array, guarded

LINE = 64  # bytes that scratch and panels are aligned to


def flush(kernel: oc.Kernel, at_end: bool) -> Callable[..., Any]:
    """What calls `kernel` with scratch that ends where a page begins that faults, or begins where one ends.

    A kernel that asks for no scratch is given no address.
    """
    entry, signature = kernel.entry, kernel.signature
    buffers = kernel.loops.buffers if entry.constants else ()
    packed = [buffer for buffer in buffers if buffer.kind is Kind.CONSTANT]
    held = [_moved(at, b, at_end) for at, b in zip(entry.constants, packed, strict=True)]

    def run(inputs: Sequence[View], sizes: Mapping[str, int], outs: Sequence[View]) -> None:
        views = (*inputs, *outs)
        addresses = [view.address for view in views] + [array.ctypes.data for array in held]
        steps = [step for view in views for step in view.strides]
        values = [sizes[facts.name] for facts in signature.sizes]
        given = (ctypes.c_int64 * max(len(values), 1))(*values)
        needed = WORKSPACE(entry.workspace)(given)
        assert needed >= 0, f"{needed} bytes of scratch at {dict(sizes)}"
        scratch = guarded((needed,), "uint8", at_end)
        scratch[...] = 0xA5
        assert scratch.ctypes.data % LINE == 0, f"{needed} bytes are no whole lines"
        status = ENTRY(entry.address)(
            (ctypes.c_void_p * max(len(addresses), 1))(*addresses),
            given,
            (ctypes.c_int64 * max(len(steps), 1))(*steps),
            scratch.ctypes.data if needed else None,
        )
        check_status(signature.name, status)

    return SlowPath(signature, run)


def _moved(address: int, buffer: Buffer, at_end: bool) -> Array:
    """A packed constant elsewhere: at its end the bytes that its panels promise, of a row-major one none."""
    shape = tuple(const(_whole(extent)) for extent in buffer.shape)
    count = _whole(bytes_of(replace(buffer, shape=shape)))
    lines = math.ceil(count / LINE) * LINE if buffer.layout is not None else count
    array = guarded((lines,), "uint8", at_end)[:count]
    ctypes.memmove(array.ctypes.data, address, count)
    return array


def _whole(extent: Any) -> int:
    found = literal(simplify(extent))
    assert found is not None
    return found
