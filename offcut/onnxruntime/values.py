"""Arrays of a process, and what is bound to them, by onnxruntime's names."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.errors import CallError
from offcut.onnxruntime.capi.onnxruntime_pybind11_state import BindingError, Status, Unbound

if TYPE_CHECKING:
    from offcut.onnxruntime.options import RunOptions
    from offcut.onnxruntime.session import InferenceSession

TYPES = {"float32": "float", "float64": "double"}
"""What onnxruntime calls element types that have another name in numpy."""
_NUMBERS = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
}
_WITHOUT_ARRAYS = {
    8: "string",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
}
_WITHOUT_ARRAYS |= {21: "uint4", 22: "int4", 23: "float4e2m1"}
"""Element types of ONNX that no array of ours has."""
"""Of element types, in ONNX."""


class OrtValue:
    """An array of the process."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(array: Any, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """Return a value that has the memory of an array.

        Raises RuntimeError for anything but an array, and for an array of texts.
        """
        _check_device(device_type)
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OSU":
            raise RuntimeError(
                "Creation of OrtValues is currently only supported from non-string numpy arrays"
            )
        return OrtValue(np.asarray(array, order="C"))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """Return a value that is yet to be filled."""
        _check_device(device_type)
        return OrtValue(np.empty(tuple(shape), _dtype(element_type)))

    @staticmethod
    def from_dlpack(array: Any) -> OrtValue:
        """Return a value that has the memory of an array of another package."""
        return OrtValue(np.from_dlpack(array))

    def __dlpack__(self, **options: Any) -> Any:
        """Return the array for another package."""
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where it is, by the numbers of DLPack."""
        device: tuple[int, int] = self._array.__dlpack_device__()
        return device

    def numpy(self) -> Any:
        """Return the array."""
        return self._array

    def shape(self) -> list[int]:
        """Return its shape."""
        return [*self._array.shape]

    def data_type(self) -> str:
        """Return such as ``tensor(float)``."""
        return type_text(self._array.dtype.name)

    def element_type(self) -> int:
        """Return the number that ONNX has for its element type."""
        return _NUMBERS[self._array.dtype.name]

    def device_name(self) -> str:
        """Return the kind of device."""
        return "cpu"

    def data_ptr(self) -> int:
        """Return its address."""
        return int(self._array.__array_interface__["data"][0])

    def tensor_size_in_bytes(self) -> int:
        """Return its bytes."""
        return int(self._array.nbytes)

    def is_tensor(self) -> bool:
        """Return True."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Return False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return False."""
        return False

    def has_value(self) -> bool:
        """Return True."""
        return True

    def update_inplace(self, array: Any) -> None:
        """Copy the elements of an array with as many elements.

        Raises RuntimeError for another number of elements, TypeError for another element type.
        """
        if array.size != self._array.size:
            raise RuntimeError(
                "The input size of numpy arrays does not match the size of the OrtValue."
            )
        np.copyto(self._array, array.reshape(self._array.shape), casting="no")


class IOBinding:
    """The arrays that a run reads, and those that it fills."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Read an array.

        Raises Unbound for a name that there is not, and for what is no array.
        """
        if not isinstance(array, np.ndarray):
            text = "Unable to create OrtValue from the given python object"
            raise Unbound("bind", text, because=f"it is a {type(array).__name__}")
        _check_name(
            f"Failed to find NodeArg with name: {name} in the def list",
            name,
            (one.name for one in self._session.get_inputs()),
        )
        self._inputs[name] = array

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Read a value."""
        self.bind_cpu_input(name, value.numpy())

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Read what lies at an address, row by row."""
        _check_device(device_type)
        self.bind_cpu_input(name, _array_at(buffer_ptr, element_type, shape))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Give an output, in memory of its own, or at an address."""
        _check_device(device_type)
        there = buffer_ptr is not None and shape is not None
        self._outputs[name] = _array_at(buffer_ptr, element_type, shape) if there else None

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Fill a value with an output."""
        self.bind_output(name)
        self._outputs[name] = value.numpy()

    def synchronize_inputs(self) -> None:
        """Do nothing: what is bound is there."""

    def synchronize_outputs(self) -> None:
        """Do nothing: a run has ended when it returns."""

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()
        self._results = []

    def get_outputs(self) -> list[OrtValue]:
        """Return what the last run gave, in the order in which outputs were bound."""
        return self._results

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return likewise, as arrays."""
        return [one.numpy() for one in self._results]

    def run(self, run_options: RunOptions | None = None) -> None:
        """Run the session, and fill what is bound.

        Raises Unbound for no output, or one that there is not, BindingError for memory of another shape or element type, and for what `run`
        refuses.
        """
        outputs = [one.name for one in self._session.get_outputs()]
        if not self._outputs:
            text = "Error in execution: At least one output should be requested."
            raise Unbound("run_with_iobinding", text, because="no output is bound")
        for name in self._outputs:
            _check_name(f"Error in execution: Invalid output name: {name}", name, outputs)
        try:
            results = self._session.run([*self._outputs], self._inputs, run_options)
        except CallError as refused:
            text = refused.text if isinstance(refused, Status) else refused.refused
            because = refused.because
            raise BindingError("Error in execution", text, because=because) from refused
        self._results = []
        for (name, target), array in zip(self._outputs.items(), results, strict=True):
            if target is not None:
                if (target.shape, target.dtype) != (array.shape, array.dtype):
                    raise BindingError(
                        "run_with_iobinding",
                        f"cannot write {name} of shape {array.shape} to what is bound",
                        because=f"that is {target.dtype}{[*target.shape]}, and the output is {array.dtype}{[*array.shape]}",
                    )
                np.copyto(target, array)
            self._results.append(OrtValue(array if target is None else target))


def _check_name(text: str, name: str, names: Iterable[str]) -> None:
    if name not in (there := [*names]):
        raise Unbound("bind", text, because=f"there are {', '.join(there) or 'none'}")


def type_text(dtype: str) -> str:
    """Return such as ``tensor(float)``."""
    return f"tensor({TYPES.get(dtype, dtype)})"


def type_text_of_onnx(number: int) -> str:
    """Return the type text, such as ``tensor(float)``, of an ONNX element-type number; ``tensor(undefined)`` of one that is none."""
    names = {at: name for name, at in _NUMBERS.items()} | _WITHOUT_ARRAYS
    return type_text(names.get(number, "undefined"))


def _check_device(kind: str) -> None:
    if kind != "cpu":
        raise CallError(
            "OrtValue",
            f"cannot place an array on {kind!r}",
            because="models run on the processor",
            help=('"cpu"',),
        )


def _dtype(element_type: Any) -> Any:
    """Return the dtype of numpy for one of its own, a type, or a number of ONNX."""
    if isinstance(element_type, int):
        return numpy_dtype(next(n for n, at in _NUMBERS.items() if at == element_type))
    return np.dtype(element_type)


def _array_at(address: Any, element_type: Any, shape: Any) -> Any:
    dtype = _dtype(element_type)
    count = math.prod(shape) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * count).from_address(address), dtype).reshape(tuple(shape))


__all__ = ["IOBinding", "OrtValue", "type_text", "type_text_of_onnx"]
