"""The launches of a program as data, and the tensor maps of their arrays: no compiler and no proof is needed to read them.

Grids and extents are texts over the sizes, ``(n + 63)//64``, evaluated once for each vector of sizes.

Tensor maps of arrays, by the function of the driver that encodes them: for copies in boxes of 64 columns, swizzled.

Source: CUDA Driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

import ast
import ctypes
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Blocks along each axis of a grid, at most."""
INDEX_LIMIT = 2**31 - 1 - 2**16
"""The largest index that kernels compute, in 32 bits: they step past an end by less than 2**16."""
_FUNCTIONS: Mapping[str, Any] = {
    "min": min,
    "max": max,
    "float64": float,
    "where": lambda condition, a, b: a if condition else b,
    "true": True,
    "false": False,
}
_ARITHMETIC = (
    ast.Expression,
    ast.Tuple,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.BoolOp,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.boolop,
    ast.expr_context,
)


@dataclass(frozen=True, slots=True)
class ArrayParameter:
    """A pointer to an array in main memory, whose address is a multiple of `alignment` bytes."""

    buffer: str
    alignment: int


@dataclass(frozen=True, slots=True)
class SizeParameter:
    """A size, in 32 bits."""

    size: str


@dataclass(frozen=True, slots=True)
class TensorMapParameter:
    """A tensor map of an array in main memory, of elements of 16 bits stored by rows.

    box        elements of a box along each axis of the array; 64 along the last one, whose cells of 16 bytes are swizzled
    alignment  bytes that the address of the array is a multiple of
    """

    buffer: str
    box: tuple[int, ...]
    alignment: int = 16


Parameter: TypeAlias = ArrayParameter | SizeParameter | TensorMapParameter
"""A parameter of a kernel, of which `driver.argument_of` makes an argument."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a kernel.

    grid     blocks along x, y and z, as texts over the sizes
    indices  the largest values that it computes in 32 bits, if some allowed sizes make one larger than `INDEX_LIMIT`
    taken    whether a call takes it, as a text over the sizes: it is in an option; "": every call does
    """

    kernel: str
    grid: tuple[str, ...]
    threads: int
    shared_bytes: int
    parameters: tuple[Parameter, ...]
    indices: tuple[str, ...] = ()
    taken: str = ""


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """An array in main memory; `kind` is input, output, inout, constant or local, the extents are texts over the sizes."""

    name: str
    dtype: str
    kind: str
    extents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TooLarge:
    """What sizes exceed: the value of a text, of which a kernel takes `limit` at most."""

    what: str
    text: str
    value: int
    limit: int


@dataclass(frozen=True)
class LaunchPlan:
    """The launches of a program, one after the other, and the arrays that they take.

    sizes        by the program's names
    known_grids  by the values of the sizes: no need to check them again
    """

    name: str
    sizes: tuple[str, ...]
    arrays: tuple[DeviceArray, ...]
    launches: tuple[Launch, ...]
    known_grids: dict[tuple[int, ...], tuple[tuple[int, int, int], ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _functions: dict[str, Callable[..., Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def grids(self, sizes: Mapping[str, int]) -> tuple[tuple[int, int, int], ...]:
        """Return the grid of each launch, ``(x, y, z)``; a launch without blocks, or that is not taken, has a number below 1."""
        texts = ", ".join(f"({', '.join((*one.grid, '1', '1', '1')[:3])})" for one in self.launches)
        grids: tuple[tuple[int, int, int], ...] = self._evaluate(f"({texts},)", sizes)
        pairs = zip(self.launches, grids, strict=True)
        return tuple(grid if self.is_taken(one, sizes) else (0, 0, 0) for one, grid in pairs)

    def is_taken(self, launch: Launch, sizes: Mapping[str, int]) -> bool:
        """Return whether a call takes a launch."""
        return not launch.taken or bool(self._evaluate(launch.taken, sizes))

    def shape(self, array: DeviceArray, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of an array."""
        shape: tuple[int, ...] = self._evaluate(f"({''.join(f'{e}, ' for e in array.extents)})", sizes)  # fmt: skip
        return shape

    def too_large(self, launch: Launch, sizes: Mapping[str, int]) -> TooLarge | None:
        """Return what is larger at these sizes than the launch takes; None if nothing is, or the call takes another one."""
        if not self.is_taken(launch, sizes):
            return None
        for axis, (text, limit) in enumerate(zip(launch.grid, GRID_LIMITS, strict=False)):
            value = self._evaluate(text, sizes)
            if value > limit:
                return TooLarge(f"blocks along {'xyz'[axis]} of its grid", text, value, limit)
        for text in launch.indices:
            value = self._evaluate(text, sizes)
            if value > INDEX_LIMIT:
                return TooLarge("an index in 32 bits", text, value, INDEX_LIMIT)
        return None

    def smallest_too_large(self, launch: Launch, sizes: Mapping[str, int]) -> tuple[str, int]:
        """Return the size that is too large in `sizes`, and the smallest value of it that is, with the others as they are."""
        smallest: tuple[str, int] | None = None
        for name in self.sizes:
            low, high = -1, sizes[name]  # too large at `high`, and not at `low`
            if self.too_large(launch, {**sizes, name: 0}) is not None:
                continue  # it is another one
            while high - low > 1:
                middle = (low + high) // 2
                if self.too_large(launch, {**sizes, name: middle}) is None:
                    low = middle
                else:
                    high = middle
            if smallest is None or high < smallest[1]:
                smallest = name, high
        return smallest or (self.sizes[0], sizes[self.sizes[0]])

    def _evaluate(self, text: str, sizes: Mapping[str, int]) -> Any:
        """Return the value of a text, compiled once."""
        function = self._functions.get(text)
        if function is None:
            names = tuple(map(python_name, self.sizes))
            check_arithmetic(text, names)
            function = self._functions[text] = eval(
                f"lambda {', '.join(names)}: {text}", {"__builtins__": {}, **_FUNCTIONS}
            )
        return function(*(sizes[name] for name in self.sizes))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as dictionaries and lists."""
        return {
            "name": self.name,
            "sizes": list(self.sizes),
            "arrays": [asdict(array) for array in self.arrays],
            "launches": [asdict(launch) for launch in self.launches],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> LaunchPlan:
        """Return the plan that `to_json` gave."""
        arrays = tuple(DeviceArray(**{**one, "extents": tuple(one["extents"])}) for one in fields["arrays"])  # fmt: skip
        launches = tuple(
            Launch(
                one["kernel"],
                tuple(one["grid"]),
                one["threads"],
                one["shared_bytes"],
                tuple(map(_parameter, one["parameters"])),
                tuple(one["indices"]),
                one["taken"],
            )
            for one in fields["launches"]
        )
        return cls(fields["name"], tuple(fields["sizes"]), arrays, launches)


def python_name(name: str) -> str:
    """Return the name of a size as texts have it: no word of Python, and none of their functions."""
    return f"{name}_" if keyword.iskeyword(name) or name in _FUNCTIONS else name


def check_arithmetic(text: str, names: Sequence[str]) -> None:
    """Check that a text is arithmetic of names and numbers, before it is evaluated: it may have been read from a file.

    Raises ValueError if it is not.
    """
    for node in ast.walk(ast.parse(text, mode="eval")):
        match node:
            case ast.Name(name) if name in names or name in _FUNCTIONS:
                pass
            case ast.Constant(value) if isinstance(value, int | float):
                pass
            case ast.Call(ast.Name(), _, []):
                pass
            case _ if not isinstance(node, _ARITHMETIC):
                raise ValueError(f"{text!r} is not arithmetic of {', '.join(names)}")


def _parameter(fields: Mapping[str, Any]) -> Parameter:
    if "box" in fields:
        return TensorMapParameter(**{**fields, "box": tuple(fields["box"])})
    return ArrayParameter(**fields) if "buffer" in fields else SizeParameter(**fields)


BYTES, ALIGNMENT = 128, 64
_ITEM = 2
_UINT16, _NO_INTERLEAVE, _SWIZZLE_128B, _PROMOTE_256B, _ZEROS = 1, 0, 3, 3, 0
_NAME, _VERSION = b"cuTensorMapEncodeTiled", 12000
Encode = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    *[ctypes.c_int] * 4,
)
"""The type of the function: map, type, rank, address, extents, strides in bytes, box, steps; then four modes."""


class TensorMap:
    """A tensor map in memory of the host, at a multiple of 64 bytes."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(BYTES + ALIGNMENT)
        self.address = -(-ctypes.addressof(self.memory) // ALIGNMENT) * ALIGNMENT


def encode_function(api: Any) -> tuple[Any, Any]:
    """Return the status of asking the driver for its function, and the function."""
    status, address, *_ = api.cuGetProcAddress(_NAME, _VERSION, 0)
    return status, Encode(int(address)) if address else None


def encode(
    function: Any, address: int, shape: Sequence[int], box: Sequence[int]
) -> tuple[int, TensorMap]:
    """Return the status of encoding a tensor map, and the map.

    address     of the array, a multiple of 16
    shape, box  elements along its axes, the last one contiguous; an empty array, of which nothing is copied, counts as of one element
    """
    tensor_map, rank = TensorMap(), len(shape)
    extents = [max(extent, 1) for extent in reversed(shape)]
    strides, step = [], _ITEM
    for extent in extents[:-1]:
        step *= extent
        strides.append(-(-step // 16) * 16)  # of one element, where the array is empty
    status = function(
        tensor_map.address,
        _UINT16,
        rank,
        address,
        (ctypes.c_uint64 * rank)(*extents),
        (ctypes.c_uint64 * (rank - 1))(*strides),
        (ctypes.c_uint32 * rank)(*reversed(box)),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        _NO_INTERLEAVE,
        _SWIZZLE_128B,
        _PROMOTE_256B,
        _ZEROS,
    )
    return int(status), tensor_map
