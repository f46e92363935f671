"""Calling a compiled kernel: code and a signature go in, what a user calls comes out.

`make_callable` gives the generated fast entry where there is one, in front of a `SlowPath`, which
takes every call that the fast one does not like. The slow path is complete: it works alone, it
accepts every legal call, and all refusals are worded in `binding`. Neither holds state that a call
changes, so calls may run in several threads and after a fork.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from offcut.backends.abi import Signature
from offcut.backends.host import arrays, builtin_function
from offcut.backends.host.arrays import Array, ArrayView
from offcut.backends.host.binding import bind, out_names, tuple_text
from offcut.backends.host.call_sequence import ENTRY, WORKSPACE, check_status
from offcut.backends.host.fast_entry import free_sizes
from offcut.backends.host.scratch import ALIGNMENT_SLACK, scratch_address
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.errors import CallError, TargetError, trim_traceback

_TOO_MUCH = 1 << 61  # what `offcut_workspace` says where int64 does not hold the true number

NO_MEMORY = (MemoryError, ValueError, RuntimeError)
"""What numpy and torch raise where they cannot allocate an array."""

Runs = Callable[[Sequence[ArrayView], Mapping[str, int], Sequence[ArrayView]], None]
"""What computes: the inputs, the sizes by name, and the results to fill. All lie as code reads them."""


@dataclass(frozen=True, slots=True)
class SlowPath:
    """A kernel as a Python callable: every check, then `run`."""

    signature: Signature
    run: Runs

    @trim_traceback
    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        """Check the arguments, run the kernel, return the result: `out` where it is given."""
        signature, name = self.signature, self.signature.name
        call = bind(signature, args, kwargs)
        inputs = [
            arrays.readable(view, argument.name, op=name)
            for view, argument in zip(call.inputs, signature.inputs, strict=True)
        ]
        if call.outs:
            outs = [
                arrays.writable(view, label, op=name)
                for view, label in zip(call.outs, out_names(signature), strict=True)
            ]
            self.run(inputs, call.sizes, outs)
            for target, out in zip(call.outs, outs, strict=True):
                if out is not target:
                    arrays.window(target)[...] = arrays.window(out)
            return kwargs["out"]
        kind = call.inputs[0].kind if call.inputs else "numpy"
        results = [
            self._allocate(kind, shape, output.dtype)
            for shape, output in zip(call.shapes, signature.outputs, strict=True)
        ]
        views = [
            arrays.view(result, label, op=name)
            for result, label in zip(results, out_names(signature), strict=True)
        ]
        self.run(inputs, call.sizes, views)
        converted = tuple(
            arrays.convert_like(kind, call.arrays[0] if call.arrays else None, each)
            for each in results
        )
        return converted if len(converted) > 1 else converted[0]

    def _allocate(self, kind: str, shape: tuple[int, ...], dtype: str) -> object:
        try:
            return arrays.empty_of_kind(kind, shape, dtype)
        except NO_MEMORY as error:
            raise too_large(self.signature.name, shape, dtype) from error


def too_large(op: str, shape: tuple[int, ...], dtype: str) -> CallError:
    """Return the refusal of a result for which there is no memory."""
    return CallError(
        op,
        f"cannot allocate a result of shape {tuple_text(shape)}",
        because=f"it takes {math.prod(shape) * ITEM_BYTES[dtype]:,} bytes",
    )


@dataclass(frozen=True, slots=True)
class Native:
    """Machine code by its C entry points.

    entry       address of `offcut_entry`
    workspace   address of `offcut_workspace`
    constants   addresses of the packed constants
    owners      what keeps the code and the constants alive
    faults      why a call cannot run at its sizes, by the status that says so
    """

    signature: Signature
    entry: int
    workspace: int
    constants: tuple[int, ...] = ()
    owners: tuple[object, ...] = ()
    faults: Mapping[int, str] = field(default_factory=dict)

    def __call__(
        self, inputs: Sequence[ArrayView], sizes: Mapping[str, int], outs: Sequence[ArrayView]
    ) -> None:
        """Run it, with scratch of its own."""
        views = (*inputs, *outs)
        addresses = [*(view.address for view in views), *self.constants]
        steps = [step for view in views for step in view.strides]
        values = [sizes[facts.name] for facts in self.signature.sizes]
        pointers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        strides = (ctypes.c_int64 * max(len(steps), 1))(*steps)
        extents = (ctypes.c_int64 * max(len(values), 1))(*values)
        needed = WORKSPACE(self.workspace)(extents)
        try:
            scratch = ctypes.create_string_buffer(needed + ALIGNMENT_SLACK) if needed > 0 else None
        except (MemoryError, OverflowError) as error:
            raise CallError(
                self.signature.name,
                "cannot allocate scratch",
                because=f"intermediate tensors take {needed:,} bytes"
                + ("" if needed < _TOO_MUCH else " or more")
                + f" with {', '.join(f'{name} = {size}' for name, size in sizes.items())}",
            ) from error
        begins = None
        if scratch is not None:
            begins = scratch_address(ctypes.addressof(scratch), outs[0].address if outs else 0)
        status = ENTRY(self.entry)(pointers, extents, strides, begins)
        if status in self.faults:
            where = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise CallError(
                self.signature.name, f"cannot run at {where}", because=self.faults[status]
            )
        check_status(self.signature.name, status)


@dataclass(frozen=True, slots=True)
class DenseArrays:
    """What runs machine code that takes dense arrays alone: others are copied before it, and results behind it."""

    run: Runs

    def __call__(
        self, inputs: Sequence[ArrayView], sizes: Mapping[str, int], outs: Sequence[ArrayView]
    ) -> None:
        """Run it."""
        read = [view if arrays.is_dense(view) else arrays.dense_copy(view) for view in inputs]
        written = [view if arrays.is_dense(view) else arrays.dense_copy(view) for view in outs]
        self.run(read, sizes, written)
        for target, result in zip(outs, written, strict=True):
            if target is not result:
                arrays.window(target)[...] = arrays.window(result)


def make_callable(
    signature: Signature,
    entry_address: int,
    workspace_address: int,
    fastcall_address: int | None = None,
    constants: Sequence[tuple[int, object]] = (),
    owner: object = None,
    faults: Mapping[int, str] | None = None,
) -> Callable[..., Any]:
    """What `kernel(*arrays, out=..., size=...)` calls.

    fastcall_address   of `offcut_fastcall` of `entry.fast_entry_ir`, or None: the slow path only
    constants          (address, owner) of each packed constant
    owner              keeps the code alive, as do the owners of the constants
    faults             of code that takes dense arrays alone: why a call cannot run, by its status; None: it takes any strides

    The result is no descriptor: as the attribute `__call__` of a class it receives the call's
    arguments alone, without the instance.
    """
    addresses = tuple(address for address, _ in constants)
    owners = (owner, *(owner_of for _, owner_of in constants))
    native = Native(signature, entry_address, workspace_address, addresses, owners, faults or {})
    slow = SlowPath(signature, native if faults is None else DenseArrays(native))
    if fastcall_address is None or not builtin_function.layout_holds():
        return slow
    dtypes = [numpy_dtype(one.dtype) for one in (*signature.inputs, *signature.outputs)]
    free = [sys.intern(name) for name in free_sizes(signature)]
    words = [*builtin_function.fast_call_words(slow), *map(id, dtypes), *addresses]
    words += builtin_function.keyword_words(free)
    return builtin_function.builtin_callable(
        signature.name,
        [*(each.name for each in signature.inputs), "*", "out=None", *free],
        fastcall_address,
        words,
        (slow, dtypes, free, *owners),
    )


def _no_result(signature: Signature, because: str) -> TargetError:
    return TargetError(
        signature.name, "cannot take what the target's function gives", because=because
    )


def python_callable(
    signature: Signature,
    function: Callable[[Sequence[Array], Mapping[str, int]], Sequence[Array]],
) -> Callable[..., Any]:
    """What `kernel(*arrays, out=..., size=...)` calls where a Python function computes.

    function   from the inputs, read-only numpy arrays in the order of the signature, and the sizes by
               name, to the results in order: numpy arrays of their shapes and element types

    A call raises TargetError for anything else that it gives.
    """

    def run(
        inputs: Sequence[ArrayView], sizes: Mapping[str, int], outs: Sequence[ArrayView]
    ) -> None:
        arguments = [arrays.window(view).view() for view in inputs]
        for array in arguments:
            array.flags.writeable = False
        returned = function(arguments, sizes)
        results = returned if isinstance(returned, tuple | list) else (returned,)
        if len(results) != len(outs):
            raise _no_result(
                signature, f"it gives {len(results)} arrays, and there are {len(outs)}"
            )
        for target, result, label in zip(outs, results, out_names(signature), strict=True):
            window = arrays.window(target)
            if not isinstance(result, np.ndarray) or result.shape != window.shape:
                shape = getattr(result, "shape", type(result).__name__)
                raise _no_result(signature, f"{label} is {shape}, and the result is {window.shape}")
            if result.dtype != window.dtype:
                raise _no_result(signature, f"{label} is {result.dtype}, the result {window.dtype}")
            window[...] = result

    return SlowPath(signature, run)
