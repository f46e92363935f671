"""What the values of an ONNX graph are while it is imported: refs into our graph, or known; and their element types.

Element types: by ONNX's numbers, and by our names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from onnx import TensorProto

from offcut.core.dtypes import DTYPES
from offcut.core.expr import Expr
from offcut.core.text.printer import format_expr
from offcut.describe.request import Array
from offcut.graph import Ref

Element: TypeAlias = "int | Expr"
"""Of a shape: a number, or an index expression over sizes that is none."""


@dataclass(frozen=True, eq=False)
class KnownArray:
    """An array whose elements are known at import.

    array  of numbers; or of objects, ints and index expressions over sizes
    dtype  of the elements, numpy's name
    """

    array: Array
    dtype: str

    @property
    def symbolic(self) -> bool:
        """Whether an element is an index expression."""
        return self.array.dtype == object and self.dtype != "object"

    @property
    def elements(self) -> list[Any]:
        """All elements, flat: Python's numbers or index expressions."""
        result: list[Any] = self.array.ravel().tolist()
        return result


class SequenceValue(KnownArray):
    """A sequence of which it is known what it holds; as an array it is refused, for its elements."""

    def __init__(self, values: tuple[Operand, ...]) -> None:
        super().__init__(np.empty(0, dtype=object), "object")
        object.__setattr__(self, "values", values)

    values: tuple[Operand, ...]


Operand: TypeAlias = Ref | KnownArray
Results: TypeAlias = "Operand | tuple[Operand | None, ...]"


@dataclass(frozen=True, eq=False)
class Call:
    """A node whose inputs are at hand.

    op          its operator, of the standard set
    inputs      None where one is left out
    attributes  Python's numbers, texts and lists; tensors as numpy's arrays; graphs as they are
    outputs     how many
    version     of the operator set
    proto       the node
    read        names of attributes and places of inputs that a rule has looked at: it may overlook none
    """

    op: str
    inputs: tuple[Operand | None, ...]
    attributes: Mapping[str, Any]
    outputs: int
    version: int
    proto: Any
    read: set[str | int] = field(default_factory=set)

    def input(self, place: int) -> Operand | None:
        """An input; None where it is left out."""
        self.read.add(place)
        return self.inputs[place] if place < len(self.inputs) else None

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute; a default that is a float is one of float32, as attributes are."""
        self.read.add(name)
        if isinstance(default, float):
            default = float(np.float32(default))
        return self.attributes.get(name, default)

    def overlook(self, *names: str) -> None:
        """Attributes that change nothing here."""
        self.read.update(names)

    @property
    def present(self) -> list[Operand]:
        """All inputs that are there."""
        self.read.update(range(len(self.inputs)))
        return [one for one in self.inputs if one is not None]

    @property
    def overlooked(self) -> str:
        """What a rule has not looked at, though it is given."""
        names = [name for name in self.attributes if name not in self.read]
        places = [
            f"input {place}"
            for place, one in enumerate(self.inputs)
            if one is not None and place not in self.read
        ]
        return ", ".join((*names, *places))

    def __getitem__(self, place: int) -> Operand:
        """An input that must be there.

        Raises Refused where it is left out.
        """
        operand = self.input(place)
        if operand is None:
            raise UnsupportedNode(f"its input {place} is left out")
        return operand


def format_values(*values: Any) -> str:
    """Numbers and index expressions, as a reader writes them."""
    parts = (format_expr(one) if isinstance(one, Expr) else str(one) for one in values)
    return ", ".join(parts)


def check_count(values: Sequence[Any], count: int, what: str) -> None:
    """Check that there are as many numbers as a node needs.

    Raises Refused for more or less.
    """
    if len(values) != count:
        raise UnsupportedNode(f"its {what} are {len(values)} numbers, not {count}")


Equation: TypeAlias = tuple[Element, Element]
"""Two extents that must be equal."""


class UnsupportedNode(Exception):
    """A node that cannot be taken.

    because    why
    help       what would be
    equations  extents that must be equal for it to be taken; () if it needs something else
    """

    def __init__(self, because: str, help: str = "", equations: Sequence[Equation] = ()) -> None:
        super().__init__(because)
        self.because, self.help, self.equations = because, help, equations


def known_array(values: Any, dtype: str = "int64") -> KnownArray:
    """Numbers and index expressions as a known array.

    values  a list, nested or not, or one element
    """
    array = np.array(values, dtype=object)
    if not any(isinstance(one, Expr) for one in array.ravel()):
        array = array.astype(dtype)
    return KnownArray(array, dtype)


RENAMED: Mapping[str, str] = {"float": "float32", "double": "float64"}
"""The names of ONNX that are not numpy's."""


def name_of(code: int) -> str:
    """The name of an element type, ours or not."""
    name = str(TensorProto.DataType.Name(code)).lower()
    return RENAMED.get(name, name)


def dtype_of(code: int) -> str:
    """Our name of an element type.

    Raises Refused where it is not ours.
    """
    name = name_of(code)
    if name not in DTYPES:
        raise unsupported_dtype(name)
    return name


def unsupported_dtype(name: str) -> UnsupportedNode:
    """The refusal of an element type, or of what numpy has no type of its own for: sequences, and texts."""
    if name == "object":
        return UnsupportedNode(
            "it is not a tensor of numbers, but of texts, or a sequence", "tensors"
        )
    return UnsupportedNode(f"elements of {name}", f"element types are {', '.join(DTYPES)}")


def code_of(dtype: str) -> int:
    """ONNX's number of an element type of ours."""
    theirs = {own: name for name, own in RENAMED.items()}
    return int(TensorProto.DataType.Value(theirs.get(dtype, dtype).upper()))
