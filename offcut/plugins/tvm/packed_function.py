"""Kernels as packed functions of TVM: machine code that takes TVM's tensors and calls the kernel's C entry.

TVM calls ``int32_t f(void *self, const Any *arguments, int32_t count, Any *result)``, where an argument is 16 bytes: what it
is, and a word. A tensor is a counted object of 24 bytes and then a ``DLTensor``. The function solves the sizes from the
shapes, checks every array, and calls the entry: no Python runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import tvm_ffi

from offcut.backends.abi import Argument, Entry, Signature
from offcut.backends.cpu.machine import jit
from offcut.backends.cpu.machine.isa import host
from offcut.backends.host.dlpack import DLPACK_CODES
from offcut.backends.host.fast_entry import solving_order
from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter, extent_of, holds
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.extents import factor_of
from offcut.errors import DescribeError
from offcut.kernel import Kernel

_RAW, _TENSOR, _HEADER = 7, 70, 24  # kTVMFFIDLTensorPtr, kTVMFFITensor, sizeof(TVMFFIObject)
_DEVICE, _RANK, _DTYPE, _SHAPE, _STRIDES, _OFFSET = 8, 16, 20, 24, 32, 40  # in a DLTensor
_CPU = 1
_BOOL = (6, 8)


def to_packed_function(kernel: Kernel) -> Any:
    """Return a `tvm_ffi.Function` that fills its last arguments: ``f(inputs…, outputs…)``, in the order of ``kernel.signature``.

    Arrays are row major, on the CPU, and an output overlaps no other array. Another array raises ValueError in TVM.

    Raises DescribeError for a kernel with a size that no shape determines, or that updates an input.
    """
    signature = kernel.signature
    derived_sizes = {name for name, _, _ in solving_order(signature)}
    unknown = [facts.name for facts in signature.sizes if facts.name not in derived_sizes]
    if unknown or signature.updated:
        because = f"no shape determines {', '.join(unknown)}" if unknown else "it updates an input"
        raise DescribeError("tvm", f"cannot hand {signature.name} to TVM", because=because)
    code = jit.object_code(_CallerText(signature, kernel.entry).module, host(), passes=False)
    module = jit.load([code], host())
    address = module.address("offcut_called")
    owners = (kernel, kernel.entry, module)
    return tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=owners)


def register_kernel(name: str, kernel: Kernel) -> Any:
    """Register a kernel as the global function `name` of TVM; return the function."""
    return tvm_ffi.register_global_func(name, to_packed_function(kernel), override=True)


class _CallerText:
    """The LLVM IR of ``offcut_called``; a failed check branches to a block that raises an error with the reason."""

    def __init__(self, signature: Signature, entry: Entry) -> None:
        self.signature, self.entry = signature, entry
        self.f = FunctionWriter()
        self.refusals: list[tuple[str, str]] = []
        self.failure_label = ""
        self.sizes: dict[str, str] = {}
        arrays = (*signature.inputs, *signature.outputs)
        self.fail_with(f"{signature.name} takes {len(arrays)} arrays")
        self.require(f"icmp eq i32 %count, {len(arrays)}")
        shapes, starts, strides = [], [], []
        for number, array in enumerate(arrays):
            self.fail_with(
                f"argument {number + 1} of {signature.name} is not a {_describe_argument(array)}"
            )
            shape, steps, start = self.array(number, array)
            shapes.append(shape)
            strides += steps
            starts.append(start)
        self.fail_with(f"the shapes that {signature.name} was given do not fit each other")
        self.solve(shapes)
        for array, shape in zip(arrays, shapes, strict=True):
            for extent, actual in zip(array.shape, shape, strict=True):
                self.require(f"icmp eq i64 {actual}, {extent_of(self.f, extent, self.sizes)}")
        self.fail_with(f"a result of {signature.name} overlaps another array")
        self.check_no_overlap(arrays, shapes, starts)
        self.call_kernel([*starts, *map(str, entry.constants)], strides)
        self.module = self.module_text()

    def fail_with(self, message: str) -> None:
        self.failure_label = f"bad{len(self.refusals)}"
        self.refusals.append((self.failure_label, message))

    def require(self, condition: str) -> None:
        self.require_true(self.f.let(condition))

    def require_true(self, holds: str) -> None:
        next_label = self.f.name("on")
        self.f.do(f"br i1 {holds}, label {next_label}, label %{self.failure_label}")
        self.f.start(next_label)

    def load_field(self, kind: str, base: str, offset: int) -> str:
        at = self.f.let(f"getelementptr i8, ptr {base}, i64 {offset}")
        return self.f.let(f"load {kind}, ptr {at}")

    def array(self, number: int, array: Argument) -> tuple[list[str], list[str], str]:
        """Return an argument's extents, strides in elements, and address, an integer."""
        f = self.f
        kind = self.load_field("i32", "%arguments", 16 * number)
        is_tensor = f.let(f"icmp eq i32 {kind}, {_TENSOR}")
        is_raw = f.let(f"icmp eq i32 {kind}, {_RAW}")
        self.require(f"or i1 {is_tensor}, {is_raw}")
        word = self.load_field("ptr", "%arguments", 16 * number + 8)
        header = f.let(f"select i1 {is_tensor}, i64 {_HEADER}, i64 0")
        tensor = f.let(f"getelementptr i8, ptr {word}, i64 {header}")
        code, bits = _BOOL if array.dtype == "bool" else DLPACK_CODES[array.dtype]
        for offset, expected in (
            (_DEVICE, _CPU),
            (_RANK, len(array.shape)),
            (_DTYPE, code | bits << 8 | 1 << 16),
        ):
            self.require(f"icmp eq i32 {self.load_field('i32', tensor, offset)}, {expected}")
        start = ir.add(
            f, self.load_field("i64", tensor, 0), self.load_field("i64", tensor, _OFFSET)
        )
        misalignment = f.let(f"and i64 {start}, {ITEM_BYTES[array.dtype] - 1}")
        self.require(f"icmp eq i64 {misalignment}, 0")
        shape_pointer, strides_pointer = (
            self.load_field("ptr", tensor, _SHAPE),
            self.load_field("ptr", tensor, _STRIDES),
        )
        shape = [
            self.load_field("i64", shape_pointer, 8 * axis) for axis in range(len(array.shape))
        ]
        return shape, self.row_major(shape, shape_pointer, strides_pointer), start

    def row_major(
        self, shape: Sequence[str], shape_pointer: str, strides_pointer: str
    ) -> list[str]:
        """Return the strides of a row-major array; if TVM passes strides, check that they are equal."""
        f, steps, step = self.f, list[str](), "1"
        none = f.let(f"icmp eq ptr {strides_pointer}, null")
        strides = f.let(f"select i1 {none}, ptr {shape_pointer}, ptr {strides_pointer}")
        for axis in reversed(range(len(shape))):
            steps.insert(0, step)
            same = f.let(f"icmp eq i64 {self.load_field('i64', strides, 8 * axis)}, {step}")
            is_single = f.let(f"icmp sle i64 {shape[axis]}, 1")
            is_empty = f.let(f"icmp eq i64 {step}, 0")
            any_stride = f.let(f"or i1 {is_single}, {is_empty}")
            self.require(f"or i1 {none}, {f.let(f'or i1 {same}, {any_stride}')}")
            step = ir.mul(f, step, shape[axis])
        return steps

    def solve(self, shapes: Sequence[Sequence[str]]) -> None:
        """Compute the sizes, and check what every call promises of them."""
        f, signature = self.f, self.signature
        for name, number, axis in solving_order(signature):
            extent = signature.inputs[number].shape[axis]
            factor = factor_of(extent, name)
            rest = ir.sub(f, shapes[number][axis], extent_of(f, extent, self.sizes, without=name))
            self.require(f"icmp eq i64 {f.let(f'srem i64 {rest}, {factor}')}, 0")
            self.sizes[name] = f.let(f"sdiv i64 {rest}, {factor}")
        for facts in signature.sizes:
            size = self.sizes[facts.name]
            self.require(f"icmp sge i64 {size}, {facts.min}")
            self.require(f"icmp sle i64 {size}, {facts.max}")
            self.require(f"icmp eq i64 {f.let(f'srem i64 {size}, {facts.multiple_of}')}, 0")
        for relation in signature.relations:
            self.require_true(holds(f, relation, self.sizes))

    def check_no_overlap(
        self, arrays: Sequence[Argument], shapes: Sequence[Sequence[str]], starts: Sequence[str]
    ) -> None:
        """Check that no result overlaps another array."""
        f, ends = self.f, list[str]()
        for array, shape, start in zip(arrays, shapes, starts, strict=True):
            count = str(ITEM_BYTES[array.dtype])
            for extent in shape:
                count = ir.mul(f, count, extent)
            ends.append(ir.add(f, start, count))
        for result in range(len(self.signature.inputs), len(arrays)):
            for other in range(result):
                before = f.let(f"icmp ule i64 {ends[result]}, {starts[other]}")
                after = f.let(f"icmp ule i64 {ends[other]}, {starts[result]}")
                self.require(f"or i1 {before}, {after}")

    def call_kernel(self, pointers: Sequence[str], strides: Sequence[str]) -> None:
        """Call the kernel with a workspace."""
        f, python = self.f, ctypes.pythonapi
        sizes = [self.sizes[facts.name] for facts in self.signature.sizes]
        tables = [self.table(values) for values in (pointers, sizes, strides)]
        bytes_ = f.let(f"call i64 {_pointer(self.entry.workspace)}(ptr {tables[1]})")
        workspace_bytes = f.let(f"add i64 {bytes_}, 64")
        block = f.let(
            f"call ptr {_pointer(_address(python.PyMem_RawMalloc))}(i64 {workspace_bytes})"
        )
        self.fail_with(f"there is no memory for {self.signature.name}")
        self.require(f"icmp ne ptr {block}, null")
        above = f.let(f"add i64 {f.let(f'ptrtoint ptr {block} to i64')}, 63")
        workspace = f.let(f"inttoptr i64 {f.let(f'and i64 {above}, -64')} to ptr")
        arguments = ", ".join(f"ptr {table}" for table in (*tables, workspace))
        status = f.let(f"call i32 {_pointer(self.entry.address)}({arguments})")
        f.do(f"call void {_pointer(_address(python.PyMem_RawFree))}(ptr {block})")
        self.fail_with(f"an index of {self.signature.name} leaves an array")
        self.require(f"icmp eq i32 {status}, 0")
        f.do("store i64 0, ptr %result")
        second = f.let("getelementptr i8, ptr %result, i64 8")
        f.do(f"store i64 0, ptr {second}")
        f.do("ret i32 0")

    def table(self, values: Sequence[str]) -> str:
        base = self.f.slot(f"[{max(len(values), 1)} x i64]")
        for position, value in enumerate(values):
            at = self.f.let(f"getelementptr i64, ptr {base}, i64 {position}")
            self.f.do(f"store i64 {value}, ptr {at}")
        return base

    def module_text(self) -> str:
        set_error = _pointer(_address(tvm_ffi.LIB.TVMFFIErrorSetRaisedFromCStr))
        data = [_string_constant("kind", "ValueError")]
        for label, message in self.refusals:
            data.append(_string_constant(label, message))
            self.f.start(f"%{label}")
            self.f.do(f"call void {set_error}(ptr @kind, ptr @{label})")
            self.f.do("ret i32 -1")
        head = "define i32 @offcut_called(ptr %self, ptr %arguments, i32 %count, ptr %result)"
        return "\n".join([*data, f"{head} {{", self.f.text(), "}", ""])


def _describe_argument(array: Argument) -> str:
    return f"row-major {array.dtype}[{', '.join(array.extents)}] on the CPU"


def _pointer(address: int) -> str:
    return f"inttoptr (i64 {address} to ptr)"


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def _string_constant(name: str, text: str) -> str:
    data = text.encode() + b"\0"
    escaped = "".join(f"\\{byte:02X}" for byte in data)
    return f'@{name} = private constant [{len(data)} x i8] c"{escaped}"'
