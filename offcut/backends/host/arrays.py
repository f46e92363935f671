"""Arrays as a kernel sees them: numpy's, DLPack arrays in CPU memory, and those of other packages on a CUDA device.

A `ArrayView` borrows memory: it never copies. What a kernel cannot read in place (an innermost stride
other than 1, misaligned or byte-swapped elements) `readable` copies, and `OFFCUT_DEBUG=2` says so.

DLPack is read natively, from the structure inside the capsule: numpy's own reader refuses
bfloat16 and costs more than a small kernel. The capsule is held and never consumed, so its own
destructor gives the memory back. Types that offer DLPack's C exchange interface are entered into
a table (`dlpack.exchange_table`): their arrays then skip Python.

Arrays of other packages in the memory of a CUDA device: their streams, and what these packages allocate and copy there.

Nothing here imports a package: an array that is there has imported its own.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from offcut import debug
from offcut.backends.host import dlpack
from offcut.core.dtypes import DTYPES, ITEM_BYTES, numpy_dtype, to_dtype
from offcut.errors import CallError

DEVICES = (2, 13)
"""What DLPack calls CUDA memory, and memory that the driver moves between host and device."""


def _torch_stream(ordinal: int) -> int:
    return int(sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream)


def _cupy_stream(ordinal: int) -> int:
    cuda = sys.modules["cupy"].cuda
    with cuda.Device(ordinal):  # each device has a current stream of its own
        return int(cuda.get_current_stream().ptr)


_STREAMS: Mapping[str, Callable[[int], int]] = {"torch": _torch_stream, "cupy": _cupy_stream}


def current_stream(kind: str, ordinal: int) -> int:
    """Return the stream on which a package works on a device now; 0, the stream that all others wait for, if it has none."""
    find = _STREAMS.get(kind)
    return 0 if find is None else find(ordinal)


def dlpack_stream(kind: str) -> int:
    """Return the stream that a package hears of as the reader's: -1 on its own, where nothing has to wait; 1, the stream 0, of others."""
    return -1 if kind in _STREAMS else 1


def is_on_cuda(array: object) -> bool:
    """Return whether an object is an array in the memory of a CUDA device."""
    ask = getattr(type(array), "__dlpack_device__", None)
    return ask is not None and int(ask(array)[0]) in DEVICES


def empty_on_cuda(kind: str, shape: tuple[int, ...], dtype: str, ordinal: int, op: str) -> object:
    """Return an uninitialised array of a package on a device.

    Raises CallError for a package that cannot be asked for one.
    """
    package: Any = sys.modules.get(kind)
    if kind == "torch":
        return package.empty(shape, dtype=getattr(package, dtype), device=f"cuda:{ordinal}")
    if kind == "cupy":
        with package.cuda.Device(ordinal):
            return package.empty(shape, dtype=numpy_dtype(dtype))
    raise CallError(
        op,
        f"cannot allocate a result of {kind} on a device",
        at="out",
        because="torch and cupy are asked for memory of a device, and no other package",
        help=("out= of an array that is there",),
    )


def rows_of(array: Any) -> Any:
    """Return a copy of an array by rows, made by its package on its stream."""
    if hasattr(array, "clone"):
        return array.clone(memory_format=sys.modules["torch"].contiguous_format)
    return array.copy(order="C")


Array = npt.NDArray[Any]

_SHARE_WORK = 100_000  # steps of numpy's exact overlap test before two arrays count as overlapping


@dataclass(frozen=True, slots=True)
class ArrayView:
    """Memory that an array lends to one call.

    address     of element (0, …, 0), in bytes
    strides     in elements; the innermost is 1 where its extent is at most 1. Meaningful only
                where the array `fits`
    dtype       the element type's name, such as "float32"
    owner       keeps the memory alive; for the kind "numpy" the ndarray itself
    kind        "numpy", "torch", or the name of another array package
    fits        a kernel can use the memory in place: native byte order, aligned elements, strides
                in whole elements, innermost stride 1
    device      the number of the CUDA device that has the memory; None: the host
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    writeable: bool
    owner: object
    kind: str
    fits: bool
    device: int | None = None


def view(array: object, at: str, *, op: str, cuda: bool = False) -> ArrayView:
    """The memory of `array`, which is the argument `at` of the kernel `op`.

    cuda  whether it may lie in the memory of a CUDA device

    Raises CallError when it is no array, not in CPU memory, or must not be read behind its
    package's back (masked, recording gradients, negated lazily).
    """
    if type(array) is np.ndarray:
        return _numpy_view(array)
    if isinstance(array, np.ndarray):
        if isinstance(array, np.ma.MaskedArray):
            raise CallError(
                op,
                f"{at} is a masked array",
                at=at,
                because="a compiled kernel reads every element, masked or not",
                help=(f"{at}.filled(0)",),
            )
        return _numpy_view(array.view(np.ndarray))
    if hasattr(type(array), "__dlpack__") and hasattr(type(array), "__dlpack_device__"):
        return _dlpack_view(array, at, op, cuda)
    raise CallError(
        op,
        f"{at} is not an array",
        at=at,
        because=f"it is of type {type(array).__name__}; kernels take numpy and DLPack arrays",
        help=() if at.startswith("out") else (f"numpy.asarray({at}, dtype=...)",),
    )


def _address_of_field() -> Callable[[Array], int]:
    """Return what reads the address of an array's elements: where numpy keeps it, which takes a twentieth of the time of asking numpy, whose answer
    is a dictionary of all that there is.
    """
    word, data = ctypes.c_uint64.from_address, object.__basicsize__
    array = np.empty(3)
    address: int = array.__array_interface__["data"][0]
    if word(id(array) + data).value != address:
        return lambda array: int(array.__array_interface__["data"][0])
    return lambda array: word(id(array) + data).value


address_of = _address_of_field()
"""The address of the first element of an array of numpy."""


def contiguous_info(array: Any) -> tuple[int, tuple[int, ...], str] | None:
    """The address, the shape and the element type of an array of numpy or torch whose elements lie side by side.

    None where it is another, or a kernel may not read it in place: `view` says what it is, and takes longer.
    """
    kind = type(array)
    if kind is np.ndarray:
        flags = array.flags
        name = _COMPACT.get(array.dtype) or to_dtype(array.dtype)
        if name is None or not (flags.c_contiguous and flags.aligned):
            return None
        return address_of(array), array.shape, name
    torch = sys.modules.get("torch")
    if torch is None or kind is not torch.Tensor:
        return None
    try:
        name = _torch_names().get(array.dtype)
        plain = array.is_cpu and array.is_contiguous() and not array.requires_grad
        if name is None or not plain or array.is_neg():
            return None
        address = array.data_ptr()
    except RuntimeError:  # a tensor that stands for others
        return None
    dlpack.register(array)
    return None if address % ITEM_BYTES[name] else (address, array.shape, name)


_COMPACT = {np.dtype(name): name for name in DTYPES if name != "bfloat16"}
"""Names of numpy's own element types: the other one is known by its name, so that no array imports ml_dtypes."""


@cache
def _torch_types() -> dict[str, Any]:
    """Names of element types -> torch's."""
    return {name: element for element, name in _torch_names().items()}


@cache
def _torch_names() -> dict[Any, str]:
    """Element types of torch -> their names."""
    torch = sys.modules["torch"]
    return {getattr(torch, name): name for name in DTYPES}


def readable(source: ArrayView, at: str, *, op: str) -> ArrayView:
    """`source` where it fits, else a contiguous copy of it."""
    if source.fits:
        return source
    debug.note(
        2, f"{op}: {at} {_layout(source)} is copied to a contiguous temporary", logger="call"
    )
    return _numpy_view(np.array(window(source), dtype=numpy_dtype(source.dtype), order="C"))


def writable(target: ArrayView, at: str, *, op: str) -> ArrayView:
    """`target` where it fits, else an uninitialised temporary that `window(target)` takes later."""
    if target.fits:
        return target
    debug.note(
        2, f"{op}: {at} {_layout(target)} is computed in a contiguous temporary", logger="call"
    )
    return _numpy_view(np.empty(target.shape, numpy_dtype(target.dtype)))


def is_dense(source: ArrayView) -> bool:
    """Return whether the elements of an array that fits lie side by side, row by row; where it has none, or one, they do."""
    pairs = zip(source.shape, source.strides, c_strides(source.shape), strict=True)
    return source.fits and (
        0 in source.shape or all(extent == 1 or stride == own for extent, stride, own in pairs)
    )


def dense_copy(source: ArrayView) -> ArrayView:
    """Return a copy whose elements lie side by side, row by row."""
    return _numpy_view(np.array(window(source), dtype=numpy_dtype(source.dtype), order="C"))


def window(source: ArrayView) -> Array:
    """The memory of a view as a numpy array, nothing copied."""
    if isinstance(source.owner, np.ndarray):
        return source.owner
    dtype = numpy_dtype(source.dtype)
    return np.asarray(_Interface(source, dtype.itemsize)).view(dtype)


def may_overlap(one: ArrayView, other: ArrayView) -> bool:
    """Whether some byte belongs to both; also True where finding out would take too long."""
    try:
        work: Any = _SHARE_WORK  # the stub knows the two special values only
        return np.shares_memory(window(one), window(other), max_work=work)
    except np.exceptions.TooHardError:
        return True


def has_internal_overlap(target: ArrayView) -> bool:
    """Whether two elements of one view may share a place: a stride within the reach of smaller ones."""
    array = window(target)
    if 0 in array.shape:
        return False
    reach = array.itemsize
    for stride, extent in sorted(
        (abs(stride), extent) for stride, extent in zip(array.strides, array.shape, strict=True)
    ):
        if extent > 1 and stride < reach:
            return True
        reach += (extent - 1) * stride
    return False


def empty_of_kind(kind: str, shape: tuple[int, ...], dtype: str) -> object:
    """An uninitialised result: a torch tensor where that is the kind, else a numpy array.

    Results of the other kinds start as numpy arrays too; `convert_like` hands them over once computed.
    """
    if kind == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return np.empty(shape, numpy_dtype(dtype))


def allocate(
    kind: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: str
) -> tuple[Any, int]:
    """An uninitialised result as `empty_of_kind` makes it, and the address of its memory.

    strides  in elements, of elements side by side in another order of the axes; None: row by row
    """
    if kind == "torch":
        torch = sys.modules["torch"]
        element = _torch_types()[dtype]
        tensor: Any = (
            torch.empty(shape, dtype=element)
            if strides is None
            else torch.empty_strided(shape, strides, dtype=element)
        )
        return tensor, tensor.data_ptr()
    flat = np.empty(shape if strides is None else math.prod(shape), numpy_dtype(dtype))
    address = address_of(flat)
    if strides is None:
        return flat, address
    steps = tuple(stride * flat.itemsize for stride in strides)
    return np.ndarray(shape, flat.dtype, flat, 0, steps), address


def is_torch(array: object) -> bool:
    """Whether `array` is a torch tensor, of a subclass too."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def convert_like(kind: str, original: object, result: object) -> object:
    """The computed `result` as an array of the package that `original`, of that kind, is from.

    A package that reads no DLPack arrays gets the numpy array.
    """
    if kind in ("numpy", "torch") or not isinstance(result, np.ndarray):
        return result
    namespace: Any = (
        original.__array_namespace__()
        if hasattr(original, "__array_namespace__")
        else sys.modules.get(kind)
    )
    if not hasattr(namespace, "from_dlpack"):
        return result
    if result.dtype.name == "bfloat16":  # numpy cannot export it: hand over the bits
        return namespace.from_dlpack(result.view(np.uint16)).view(namespace.bfloat16)
    converted: object = namespace.from_dlpack(result)
    return converted


class _Interface:
    """A view offered through numpy's array interface, as bytes of the element's width."""

    def __init__(self, source: ArrayView, itemsize: int) -> None:
        self.source = source
        self.__array_interface__ = {
            "version": 3,
            "data": (source.address, not source.writeable),
            "shape": source.shape,
            "strides": tuple(stride * itemsize for stride in source.strides),
            "typestr": f"|V{itemsize}",
        }


def _numpy_view(array: Array) -> ArrayView:
    size = max(array.itemsize, 1)
    shape = array.shape
    whole = all(stride % size == 0 for stride in array.strides)
    strides = [stride // size for stride in array.strides]
    if 0 in shape:
        whole, strides = True, [*c_strides(shape)]
    elif shape and shape[-1] == 1:
        strides[-1] = 1
    fits = whole and array.flags.aligned and array.dtype.isnative
    return ArrayView(
        address=address_of(array),
        shape=shape,
        strides=tuple(strides),
        dtype=array.dtype.name,
        writeable=array.flags.writeable,
        owner=array,
        kind="numpy",
        fits=fits and (not strides or strides[-1] == 1),
    )


def _dlpack_view(array: Any, at: str, op: str, cuda: bool) -> ArrayView:
    kind = "torch" if is_torch(array) else type(array).__module__.partition(".")[0]
    if getattr(array, "requires_grad", False) is True:
        raise CallError(
            op,
            f"{at} requires grad",
            at=at,
            because="a compiled kernel records no gradient",
            help=(f"{at}.detach()",),
        )
    if hasattr(array, "is_neg") and array.is_neg():
        raise CallError(
            op,
            f"{at} is negated lazily",
            at=at,
            because="its memory holds the values before the sign is applied",
            help=(f"{at}.resolve_neg()",),
        )
    try:
        device, number = (int(part) for part in array.__dlpack_device__())
        on_device = cuda and device in DEVICES
        stream = dlpack_stream(kind) if on_device else None
        capsule = dlpack.capsule_of(array, stream) if on_device or device in dlpack.HOST else None
    except Exception as error:
        raise CallError(
            op,
            f"{at} cannot be read through DLPack",
            at=at,
            because=f"its {type(array).__name__} says: {str(error).partition(chr(10))[0]}",
        ) from error
    if capsule is None:
        raise CallError(
            op,
            f"{at} is not in CPU memory",
            at=at,
            because=f"it is on {dlpack.DEVICES.get(device, f'DLPack device {device}')}:{number}",
            help=(f"{at}.cpu()" if kind == "torch" else "copy it to CPU memory first",),
        )
    if not on_device:
        dlpack.register(array)
    if dlpack.capsule_is(capsule, b"dltensor_versioned"):
        versioned = dlpack.Versioned.from_address(dlpack.address_in(capsule, b"dltensor_versioned"))
        tensor, writeable = versioned.tensor, not versioned.flags & dlpack.READ_ONLY
    else:
        tensor, writeable = (
            dlpack.DLTensor.from_address(dlpack.address_in(capsule, b"dltensor")),
            True,
        )
    rank = tensor.ndim
    shape = tuple(tensor.shape[:rank])
    strides = list(tensor.strides[:rank]) if tensor.strides else [*c_strides(shape)]
    if 0 in shape:
        strides = [*c_strides(shape)]
    elif shape and shape[-1] == 1:
        strides[-1] = 1
    if not tensor.data and 0 not in shape:
        raise CallError(
            op,
            f"{at} has no memory",
            at=at,
            because=f"this {type(array).__name__} describes an array without holding its elements",
        )
    address = (tensor.data or 0) + tensor.byte_offset
    aligned = address % max(tensor.bits * tensor.lanes // 8, 1) == 0
    return ArrayView(
        address=address,
        shape=shape,
        strides=tuple(strides),
        dtype=dlpack.dtype_name(tensor),
        writeable=writeable,
        owner=(array, capsule),
        kind=kind,
        fits=aligned and (not strides or strides[-1] == 1),
        device=number if on_device else None,
    )


def is_by_rows(view: ArrayView) -> bool:
    """Return whether the elements lie side by side, the last axis innermost."""
    steps = zip(view.shape, view.strides, c_strides(view.shape), strict=True)
    return 0 in view.shape or all(extent <= 1 or own == other for extent, own, other in steps)


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array whose elements lie side by side, the last axis innermost."""
    return tuple(math.prod(shape[axis + 1 :]) or 1 for axis in range(len(shape)))


def _layout(source: ArrayView) -> str:
    strides = window(source).strides
    return f"(shape {source.shape}, strides {strides} bytes)"
