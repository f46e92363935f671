"""What is known of a function of elements: the record of which `offcut.core.functions` holds one for each."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar


class _Typed(Protocol):
    @property
    def dtype(self) -> str: ...


V = TypeVar("V", bound=_Typed)
"""An expression, or a tensor."""


class Function(NamedTuple):
    """A function of one or two elements of one type, which gives one of this type.

    name       in the text of programs, ``name(a)``, and the `op` of `Unary` and `Binary`
    doc        of its arguments {x} and {y} and its bound {ulp}, for `help`
    public     as which `offcut` and `offcut.ops` have it; "": `name`. None: they have functions written by hand
    arity      of elements, 1 or 2
    integers   whether it takes integers, too, and not floats alone
    ulp        largest error in float32, in units in the last place; 16-bit floats are rounded once more, and of float64 it
               is that of the C library's function where no writer is
    numpy      numpy's function; "": of the name `name`, else that of `math` on each element
    mpmath     the function in mpmath that evaluates it exactly; "": of the name `name`
    range      the least and the greatest value that it takes
    cycles     of one element, on a machine whose description does not say it
    machine    the entry in [scalar] and [vector] of a machine; "": `name`
    intrinsic  LLVM's intrinsic, ``llvm.{intrinsic}``, for what targets have instructions
    libm       the C library's function of doubles, called where `offcut.backends.llvm` writes none; "": `name`
    aten, onnx, mlir, tirx, relax  the operators of others that mean the same; "": there is none
    """

    name: str
    doc: str
    public: str | None = ""
    arity: int = 1
    integers: bool = False
    ulp: float = 1
    numpy: str = ""
    mpmath: str = ""
    range: tuple[float, float] = (-inf, inf)
    cycles: float = 30
    machine: str = ""
    intrinsic: str = ""
    libm: str = ""
    aten: str = ""
    onnx: str = ""
    mlir: str = ""
    tirx: str = ""
    relax: str = ""

    @property
    def face(self) -> str:
        """The name in `offcut` and `offcut.ops`; empty where these have a function written by hand."""
        return self.name if self.public == "" else self.public or ""

    @property
    def entry(self) -> str:
        """The entry in the tables [scalar] and [vector] of a machine."""
        return self.machine or self.name

    @property
    def symbol(self) -> str:
        """The C library's function of doubles."""
        return self.libm or self.name

    @property
    def evaluate(self) -> Callable[..., Any]:
        """The function of numpy's arrays, of the precision of their elements; what `math` alone has is of float64."""
        import math

        import numpy as np

        called = self.numpy or self.name
        found: Callable[..., Any] | None = getattr(np, called, None)
        return found or np.vectorize(getattr(math, called), otypes=[np.float64])

    def exact(self, *arguments: float) -> Any:
        """Return the value of floats with 60 decimal digits, as a number of mpmath."""
        import mpmath

        with mpmath.workdps(60):
            return getattr(mpmath, self.mpmath or self.name)(*map(mpmath.mpf, arguments))

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
