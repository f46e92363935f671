"""What Python and numpy do to numbers and arrays, and a description cannot: refused, saying what to write.

An element ``A[i, j]`` is an expression and a tensor ``A`` a name: neither has a value while it is
described. Without these methods Python answers with a TypeError, and numpy makes an array of objects.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

from sympy import SympifyError

from offcut.core.function_table import PUBLIC
from offcut.errors import DescribeError

ARRAY_AS_OPERAND = (
    "placeholder(…) stands for an array, and constants= of compile says what it holds"
)
_UNKNOWN = "its value is known only when the kernel runs"
_FUNCTIONS = (*PUBLIC, "maximum", "minimum", "where")
_OF_MATH = tuple(name for name, row in PUBLIC.items() if hasattr(math, name) and row.ulp)
_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
}
"""The functions that numpy's scalars and arrays call for an operator, and its two methods."""


_OF_ARRAYS = {
    "T": "ops.transpose({})",
    "ndim": "len({}.shape)",
    "astype": 'ops.cast({}, "float32")',
    "reshape": "ops.merge_axes({0}, …), ops.split_axis({0}, …)",
    **{name: f"ops.{name}({{}})" for name in ("transpose", "sum", "mean", "max", "min", "clip")},
}
"""What arrays have and tensors have not, and what there is in place of it."""


class NoAttribute(DescribeError, AttributeError):
    """Of a tensor that is taken for an array; `hasattr` says that it is not there."""


class NoArray(ABC):
    """What numpy would take for an array of objects: its operators work, its functions are refused."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__
        if name not in _OPERATORS or method != "__call__" or kwargs:
            raise self._no_function(name, inputs)
        (left, right), (a, b) = _OPERATORS[name], inputs
        return getattr(a, left)(b) if isinstance(a, NoArray) else getattr(b, right)(a)

    def _sympy_(self) -> NoReturn:
        """A size leaves an operator with an expression to the expression's own method."""
        raise SympifyError(self)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        raise self._no_function(function.__name__, args)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise self._no_function("array", (self,))

    @abstractmethod
    def _no_function(self, name: str, args: tuple[Any, ...]) -> DescribeError:
        """The refusal of a function of numpy's."""


class NoNumber(NoArray):
    """An expression where Python wants a number, a condition or a sequence."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise _refusal(
            f"decide {self} while describing",
            _UNKNOWN,
            "where(condition, a, b) chooses by element, in place of if",
            "maximum(a, b), minimum(a, b), in place of Python's max and min",
            "(0 <= i) & (i < n), a | b, ~a, in place of 0 <= i < n, and, or, not",
        )

    def __float__(self) -> float:
        raise self._no_number("float", "float64")

    def __int__(self) -> int:
        raise self._no_number("int", "int64")

    def __complex__(self) -> complex:
        raise _refusal(f"make a Python complex of {self}", "there are no complex elements")

    def __index__(self) -> int:
        raise _refusal(
            f"count or index with {self} in Python",
            _UNKNOWN,
            "reduce_axis(n) in place of range, placeholder(…) in place of a list or an array",
        )

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise self._no_rounding("round")

    def __trunc__(self) -> NoReturn:
        raise self._no_rounding("trunc")

    def __floor__(self) -> NoReturn:
        raise self._no_rounding("floor")

    def __ceil__(self) -> NoReturn:
        raise self._no_rounding("ceil")

    def __iter__(self) -> NoReturn:
        raise _refusal(f"iterate over {self}", "it is one element")

    def __getitem__(self, where: Any) -> NoReturn:
        raise _refusal(f"index {self}", "it is one element", "A[i, j] takes all indices at once")

    def __pow__(self, other: Any, modulus: Any = None) -> NoReturn:
        raise self._no_power(
            f"{self} ** {operand_text(other)}", f"power({self}, {operand_text(other)})"
        )

    def __rpow__(self, other: Any) -> NoReturn:
        raise self._no_power(
            f"{operand_text(other)} ** {self}", f"power({operand_text(other)}, {self})"
        )

    def __matmul__(self, other: Any) -> NoReturn:
        raise self._no_product(f"{self} @ {operand_text(other)}")

    def __rmatmul__(self, other: Any) -> NoReturn:
        raise self._no_product(f"{operand_text(other)} @ {self}")

    def _no_power(self, written: str, help: str) -> DescribeError:
        return _refusal(f"take {written}", "a power is written as a function", help)

    def _no_product(self, written: str) -> DescribeError:
        hint = "sum(A[i, k] * B[k, j], axis=k) is a product of matrices"
        return _refusal(f"take {written}", f"{self} is one element", hint)

    def _no_number(self, kind: str, dtype: str) -> DescribeError:
        return _refusal(
            f"make a Python {kind} of {self}",
            _UNKNOWN,
            f'cast({self}, "{dtype}") converts an element',
            f"offcut's {', '.join(_OF_MATH)}, in place of those of math",
        )

    def _no_rounding(self, name: str) -> DescribeError:
        return _refusal(
            f"take {name} of {self}",
            "Python's is of numbers",
            f'cast({self}, "int32") drops what follows the point',
            "offcut's round, floor, ceil give floats",
        )

    def _no_function(self, name: str, args: tuple[Any, ...]) -> DescribeError:
        call = f"{name}({', '.join(map(operand_text, args))})"
        known = name in _FUNCTIONS
        return _refusal(
            f"take numpy.{call}",
            f"{self} is one element, and no array",
            f"offcut.{call}" if known else f"offcut's {', '.join(_FUNCTIONS)}",
        )


def _by_element(form: str) -> Callable[..., Any]:
    """The method of an operator; `form` has {0} for the tensor, and {1} for the other operand."""

    def refuse(tensor: NoOperand, other: Any = None) -> NoReturn:
        raise tensor.no_operand(
            form.format(tensor.name, operand_text(other)), tensor._compute(form, other)
        )

    return refuse


def _by_choice(operator: str) -> Callable[..., Any]:
    """The method of a comparison."""

    def refuse(tensor: NoOperand, other: Any) -> NoReturn:
        chosen = f"where({tensor.element} {operator} {_element(tensor, other)}, a, b)"
        raise tensor.no_operand(
            f"{tensor.name} {operator} {operand_text(other)}", f"{chosen} chooses"
        )

    return refuse


class NoOperand(NoArray):
    """A tensor where an element of it is wanted: the refusal has the element, or the compute, to write."""

    __slots__ = ()
    name: str
    shape: tuple[Any, ...]

    __add__, __radd__ = _by_element("{0} + {1}"), _by_element("{1} + {0}")
    __sub__, __rsub__ = _by_element("{0} - {1}"), _by_element("{1} - {0}")
    __mul__, __rmul__ = _by_element("{0} * {1}"), _by_element("{1} * {0}")
    __truediv__, __rtruediv__ = _by_element("{0} / {1}"), _by_element("{1} / {0}")
    __floordiv__, __rfloordiv__ = _by_element("{0} // {1}"), _by_element("{1} // {0}")
    __mod__, __rmod__ = _by_element("{0} % {1}"), _by_element("{1} % {0}")
    __and__, __rand__ = _by_element("{0} & {1}"), _by_element("{1} & {0}")
    __or__, __ror__ = _by_element("{0} | {1}"), _by_element("{1} | {0}")
    __xor__, __rxor__ = _by_element("{0} ^ {1}"), _by_element("{1} ^ {0}")
    __lshift__, __rlshift__ = _by_element("{0} << {1}"), _by_element("{1} << {0}")
    __rshift__, __rrshift__ = _by_element("{0} >> {1}"), _by_element("{1} >> {0}")
    __invert__ = _by_element("~{0}")
    __neg__, __abs__ = _by_element("-{0}"), _by_element("absolute({0})")
    __lt__, __le__, __gt__, __ge__ = map(_by_choice, ("<", "<=", ">", ">="))

    def __pow__(self, other: Any, modulus: Any = None) -> NoReturn:
        raise self.no_operand(f"{self.name} ** {operand_text(other)}", self._compute("{0} * {0}"))

    def __matmul__(self, other: Any) -> NoReturn:
        raise self.no_operand(f"{self.name} @ {operand_text(other)}", f"ops.matmul({self.name}, …)")

    def __rmatmul__(self, other: Any) -> NoReturn:
        raise self.no_operand(f"{operand_text(other)} @ {self.name}", f"ops.matmul(…, {self.name})")

    def __float__(self) -> float:
        raise self.no_operand(f"float({self.name})")

    def __getattr__(self, name: str) -> NoReturn:
        if name not in _OF_ARRAYS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NoAttribute(
            "compute",
            f"cannot take {self.name}.{name}",
            at=self.tensor_text,
            because=f"{self.name} is a tensor, which has a name, a shape and a dtype",
            help=(_OF_ARRAYS[name].format(self.name),),
        )

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        raise self.no_operand(f"len({self.name})", f"{self.name}.shape[0]")

    def __iter__(self) -> NoReturn:
        raise DescribeError(
            "compute",
            f"cannot iterate over {self.name}",
            at=self.tensor_text,
            because="its shape has sizes that are known only when the kernel runs",
            help=("reduce_axis(n) is all of an axis",),
        )

    @property
    def tensor_text(self) -> str:
        """The tensor with its shape, as the place of a refusal."""
        return f"tensor {self.name}[{', '.join(map(str, self.shape))}]"

    @property
    def element(self) -> str:
        """How an element is written."""
        return _element(self, self)

    def no_operand(self, written: str, *help: str) -> DescribeError:
        """The refusal of `written`, which has the tensor where an element is wanted."""
        return DescribeError(
            "compute",
            f"cannot take {written}",
            at=self.tensor_text,
            because=f"{self.name} is a tensor, and expressions are about one element at a time",
            help=help or (f"{self.element} is an element",),
        )

    def _compute(self, form: str, other: Any = None) -> str:
        if _is_array(other):
            return ARRAY_AS_OPERAND
        whole = max((each for each in (self, other) if isinstance(each, NoOperand)), key=_rank)
        value = form.format(_element(whole, self), _element(whole, other))
        shape = f"({', '.join(map(str, whole.shape))}{',' * (_rank(whole) == 1)})"
        return f"compute({shape}, lambda {', '.join(_letters(_rank(whole)))}: {value})"

    def _no_function(self, name: str, args: tuple[Any, ...]) -> DescribeError:
        call = f"{name}({', '.join(map(operand_text, args))})"
        known = name in _FUNCTIONS and args[0] is self
        help = self._compute(f"{name}({', '.join(['{0}', '{1}'][: len(args)])})", args[-1])
        return self.no_operand(f"numpy.{call}", *([help] if known else []))


def operand_text(operand: Any) -> str:
    """An operand as a refusal shows it: an array by its shape alone."""
    if isinstance(operand, NoOperand):
        return operand.name
    if _is_array(operand):
        return f"an array of shape {operand.shape}"
    return repr(operand) if isinstance(operand, str) else str(operand)


def _is_array(operand: Any) -> bool:
    """Whether it is an array with axes, of whatever package, and so no tensor of offcut's."""
    return not isinstance(operand, NoOperand) and bool(getattr(operand, "shape", ()))


def _rank(tensor: NoOperand) -> int:
    return len(tensor.shape)


def _letters(rank: int) -> tuple[str, ...]:
    return tuple("ijklmnpq"[:rank]) if rank <= 8 else tuple(f"i{axis}" for axis in range(rank))


def _element(whole: NoOperand, operand: object) -> str:
    """An element of an operand at the axes of `whole`, the last with the last, as numpy pairs them."""
    if not isinstance(operand, NoOperand):
        return operand_text(operand)
    letters = _letters(_rank(whole))[_rank(whole) - _rank(operand) :]
    return f"{operand.name}[{', '.join(letters) or '()'}]"


def _refusal(refused: str, because: str, *help: str) -> DescribeError:
    return DescribeError("compute", f"cannot {refused}", because=because, help=help)
