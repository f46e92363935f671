"""What is known of a function of elements: the record of which `offcut.core.functions` holds one for each."""

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
    """A function of one or two elements of one type, which gives one of this type; `row` makes one.

    name       in the text of programs, ``name(a)``, and the `op` of `Unary` and `Binary`
    doc        of its arguments {x} and {y} and its bound {ulp}, for `help`
    public     as which `offcut` and `offcut.ops` have it; "": they have functions written by hand
    numpy      numpy's function, else that of `math` on each element
    mpmath     mpmath's function, which is exact
    machine    the entry in [scalar] and [vector] of a machine
    libm       the C library's function of doubles, called where `offcut.backends.llvm` writes none
    aten, onnx, mlir, tirx, relax  the operators of others that mean the same, where they have them; "": there is none
    arity      of elements, 1 or 2
    integers   whether it takes integers, too, and not floats alone
    ulp        largest error in float32, in units in the last place; 16-bit floats are rounded once more, and of float64 it
               is that of the C library's function where no writer is
    range      the least and the greatest value that it takes
    cycles     of one element, on a machine whose description does not say it
    intrinsic  LLVM's intrinsic, ``llvm.{intrinsic}``, for what targets have instructions
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
        """The function of numpy's arrays, of the precision of their elements; what `math` alone has is of float64."""
        import math

        import numpy as np

        found: Callable[..., Any] | None = getattr(np, self.numpy, None)
        return found or np.vectorize(getattr(math, self.numpy), otypes=[np.float64])

    def exact(self, *arguments: float) -> Any:
        """Return the value of floats with 60 decimal digits, as a number of mpmath."""
        import mpmath

        with mpmath.workdps(60):
            return getattr(mpmath, self.mpmath)(*map(mpmath.mpf, arguments))

    def help(self, *arguments: str) -> str:
        """Return the docstring, of arguments of these names."""
        x, y = (*arguments, "")[:2]
        return self.doc.format(x=x, y=y, ulp=self.ulp)

    def __call__(self, x: V, y: Any = None, /, *, name: str | None = None) -> V:
        """Return the values of numpy's arrays.

        An editor takes the row for the function of expressions that `offcut` has, and for the operator on tensors that
        `offcut.ops` has, which has a `name`.
        """
        values: V = self.evaluate(*(one for one in (x, y) if one is not None))
        return values


def row(name: str, doc: str, **fields: Any) -> Function:
    """Return the row of a function; what `fields` do not say is called `name`, as each of the others spells it."""
    own = ("public", "numpy", "mpmath", "machine", "libm", "aten", "tirx", "relax")
    usual = dict.fromkeys(own, name) | {"onnx": name.capitalize(), "mlir": f"math.{name}"}
    return Function(name, doc, **(usual | fields))
