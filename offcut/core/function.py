"""The record of an elementwise function: its spellings, error and cost. `offcut.core.functions` holds one for each function."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar


class _Typed(Protocol):
    @property
    def dtype(self) -> str: ...


V = TypeVar("V", bound=_Typed)
"""An expression, a tensor, or an array."""


class Function(NamedTuple):
    """A function of one or two elements of one type, with a result of this type; `row` constructs one.

    name       in the text of programs, ``name(a)``, and the `op` of `Unary` and `Binary`
    doc        docstring over its arguments {x} and {y} and its bound {ulp}, for `help`
    public     the name in `offcut` and `offcut.ops`; "": they have functions written by hand
    numpy      numpy's function, else that of `math` on each element
    mpmath     mpmath's function, of any precision
    machine    the entry in [scalar] and [vector] of a machine
    libm       the C library's function of doubles, called where `offcut.backends.llvm` writes none
    aten, onnx, mlir, tirx, relax  the operators of others that mean the same; "": there is none
    arity      number of arguments, 1 or 2
    integers   whether it takes integers as well as floats
    ulp        largest error in float32, in units in the last place; a 16-bit float is that result rounded, and float64 has
               the error of the C library unless LLVM code is written for it
    range      least and greatest value
    cycles     cycles per element, on a machine whose description has no entry
    intrinsic  LLVM's intrinsic, ``llvm.{intrinsic}``, if targets have instructions for it; "": none
    """

    name: str
    doc: str
    public: str
    numpy: str
    mpmath: str
    machine: str
    libm: str
    aten: str
    onnx: str
    mlir: str
    tirx: str
    relax: str
    arity: int = 1
    integers: bool = False
    ulp: float = 1
    range: tuple[float, float] = (-inf, inf)
    cycles: float = 30
    intrinsic: str = ""

    @property
    def evaluate(self) -> Callable[..., Any]:
        """The function of numpy's arrays, in the precision of their elements; in float64 if only `math` has it."""
        import math

        import numpy as np

        ufunc: Callable[..., Any] | None = getattr(np, self.numpy, None)
        return ufunc or np.vectorize(getattr(math, self.numpy), otypes=[np.float64])

    def exact(self, *arguments: float) -> Any:
        """Return the value at floats to 60 decimal digits, as a number of mpmath."""
        import mpmath

        with mpmath.workdps(60):
            return getattr(mpmath, self.mpmath)(*map(mpmath.mpf, arguments))

    def help(self, *arguments: str) -> str:
        """Return the docstring for arguments of these names."""
        x, y = (*arguments, "")[:2]
        return self.doc.format(x=x, y=y, ulp=self.ulp)

    def __call__(self, x: V, y: Any = None, /, *, name: str | None = None) -> V:
        """Return the function of numpy's arrays.

        The signature is that of the function of expressions in `offcut`, and of the operator on tensors in `offcut.ops`, which
        has a `name`: editors show it for both.
        """
        values: V = self.evaluate(*(one for one in (x, y) if one is not None))
        return values


def row(name: str, doc: str, **fields: Any) -> Function:
    """Return the row of a function; a name that `fields` do not set is `name`, in the spelling of each system."""
    systems = ("public", "numpy", "mpmath", "machine", "libm", "aten", "tirx", "relax")
    names = dict.fromkeys(systems, name) | {"onnx": name.capitalize(), "mlir": f"math.{name}"}
    return Function(name, doc, **(names | fields))
