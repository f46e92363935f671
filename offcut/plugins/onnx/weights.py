"""The weights of a file of ONNX, read where they lie: the file without them is small, and is all that onnx parses."""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from offcut.describe.request import Array

LONG = 1 << 16
"""Bytes from which on the data of an initializer are read where they lie."""

# Of onnx.proto, by message: the numbers of fields.
_GRAPH = 7
_INITIALIZER = 5
_RAW_DATA = 9
_BYTES = 2  # the type of a field that has a length


class Apart(NamedTuple):
    """A serialized model in two parts.

    rest     the model, in which long data of initializers are empty
    weights  their bytes, by the places of the initializers in the graph
    """

    rest: bytes
    weights: dict[int, Array]


def arrays_in(proto: Any, weights: Mapping[int, Array]) -> dict[int, Array]:
    """The initializers, by their places, that are arrays as they lie; the bytes of others are put into `proto`, which was parsed
    without.
    """
    from onnx import helper  # not to map a file

    arrays: dict[int, Array] = {}
    for place, data in weights.items():
        tensor = proto.graph.initializer[place]
        try:
            kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        except KeyError:
            kind = None
        if kind is None or prod(tensor.dims) * kind.itemsize != data.nbytes:
            tensor.raw_data = data.tobytes()
        else:
            arrays[place] = data.view(kind).reshape(tensor.dims)
    return arrays


def restore(proto: Any, arrays: Mapping[int, Array]) -> None:
    """Put the initializers that lie elsewhere into `proto`."""
    for place, array in arrays.items():
        proto.graph.initializer[place].raw_data = array.tobytes()


def strip_weights(proto: Any, arrays: Mapping[int, Array]) -> Any:
    """A model that onnx's checker takes if it takes this one: initializers that lie elsewhere have no elements."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    for place in arrays:
        del copy.graph.initializer[place].dims[:]
        copy.graph.initializer[place].dims.append(0)
    return copy


def override_initializers(
    source: Any, names: Collection[str], arrays: Mapping[str, Array]
) -> bytes:
    """Return a model in which some initializers are plain inputs, whose arrays in the file are left out, and some are other constants.

    source  the path of a file, or its bytes
    names   of those that are inputs
    arrays  of those that are constants, by name: they are inputs no more

    Raises what onnx does for a file that it does not read, and ValueError for a model of 2 GiB or more.
    """
    import onnx

    proto = onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(source)
    graph = proto.graph
    tensors = [one for one in graph.initializer if one.name not in names and one.name not in arrays]
    tensors += [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    inputs = [one for one in graph.input if one.name not in arrays]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(tensors)
    graph.input.extend(inputs)
    content: bytes = proto.SerializeToString()
    return content


def apart(data: memoryview) -> Apart:
    """The two parts of a serialized model; all of it is the rest where it is none."""
    weights: dict[int, Array] = {}
    try:
        return Apart(b"".join(_model(data, weights)), weights)
    except (IndexError, ValueError):
        return Apart(bytes(data), {})


def map_file(path: Any) -> mmap.mmap | bytes:
    """Return the bytes of a file, in memory as far as they are read.

    Raises OSError for a file that cannot be read.
    """
    with open(path, "rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # it is empty
            return b""


def let_go(data: Array) -> None:
    """Give the memory of mapped bytes back to the system: they are read from the file where somebody asks again."""
    memory = data.base.obj if isinstance(data.base, memoryview) else None
    if isinstance(memory, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        start = data.__array_interface__["data"][0] - np.frombuffer(memory, np.uint8).ctypes.data
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = (start + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if whole > 0:
            memory.madvise(mmap.MADV_DONTNEED, first, whole)


def _model(data: memoryview, weights: dict[int, Array]) -> Iterator[bytes | memoryview]:
    count = 0
    for number, whole, value in _fields(data):
        if number != _GRAPH or value is None:
            yield whole
            continue
        parts = list[bytes | memoryview]()
        for inner, own, part in _fields(value):
            if inner != _INITIALIZER or part is None:
                parts.append(own)
                continue
            tensor = b"".join(_tensor(part, count, weights))
            parts += _frame(_INITIALIZER, tensor)
            count += 1
        yield from _frame(_GRAPH, b"".join(parts))


def _tensor(
    data: memoryview, place: int, weights: dict[int, Array]
) -> Iterator[bytes | memoryview]:
    for number, whole, value in _fields(data):
        if number == _RAW_DATA and value is not None and len(value) >= LONG:
            weights[place] = np.frombuffer(value, np.uint8)
            yield from _frame(_RAW_DATA, b"")
        else:
            yield whole


def _frame(number: int, content: bytes) -> tuple[bytes, bytes]:
    return _varint(number << 3 | _BYTES) + _varint(len(content)), content


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview, memoryview | None]]:
    """The fields of a message: the number, all bytes of the field, and those of its content where it has a length.

    Raises IndexError or ValueError where the message is none.
    """
    at = 0
    while at < len(data):
        start = at
        tag, at = _number(data, at)
        value = None
        match tag & 7:  # the wire types of protobuf
            case 0:
                _, at = _number(data, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:  # `_BYTES`
                length, at = _number(data, at)
                value = data[at : at + length]
                at += length
            case kind:
                raise ValueError(f"no field is of kind {kind}")
        if at > len(data):
            raise ValueError("a field ends after its message")
        yield tag >> 3, data[start:at], value


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _varint(number: int) -> bytes:
    content = bytearray()
    while number > 127:
        content.append(number & 127 | 128)
        number >>= 7
    return bytes((*content, number))
