"""The type of a call: arrays go in, and what comes out is of their type, one array or a tuple.

A type checker learns from `oc.compile` whether a kernel has one result, `Kernel[Array]`, or several,
`Kernel[tuple[Array, ...]]`, and from the first array of a call which package the results are of. A kernel whose
description does not say how many results there are, that of a program or of a list, is a bare `Kernel`: a call
gives an array or a tuple. Where ``out=`` is an array or a tuple, a call returns it. At run time there is nothing here:
a call goes to the code directly, without a Python frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

Array = np.ndarray[Any, Any]
OneArray = TypeVar("OneArray")
"""The type of an array, of any package that speaks DLPack."""
Out = TypeVar("Out")
"""The type of ``out=``: an array, or a tuple of several."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # of typing from Python 3.13 on

    Result = TypeVarWithDefault("Result", covariant=True, default=Array | tuple[Array, ...])
else:
    Result = TypeVar("Result", covariant=True)


class TypedCall(Generic[Result]):
    """A call that a type checker knows.

    Result  what a call with numpy arrays gives: `Array`, a tuple of them, or either

    That `out` may be an integer is for calls with sizes in a mapping, ``kernel(x, **sizes)``: a type checker takes any name to be in it.
    """

    if TYPE_CHECKING:

        @overload  # whose shape and element type are not those of the results
        def __call__(
            self, first: Array, /, *arrays: Any, out: int | None = None, **named: Any
        ) -> Result: ...

        @overload
        def __call__(
            self: TypedCall[Array],
            first: OneArray,
            /,
            *arrays: Any,
            out: int | None = None,
            **named: Any,
        ) -> OneArray: ...

        @overload
        def __call__(
            self: TypedCall[tuple[Array, ...]],
            first: OneArray,
            /,
            *arrays: Any,
            out: int | None = None,
            **named: Any,
        ) -> tuple[OneArray, ...]: ...

        @overload
        def __call__(
            self, first: OneArray, /, *arrays: Any, out: int | None = None, **named: Any
        ) -> OneArray | tuple[OneArray, ...]: ...

        @overload
        def __call__(self, /, *, out: int | None = None, **named: Array | int) -> Result: ...

        @overload
        def __call__(self, /, *arrays: Any, out: Out, **named: Any) -> Out: ...

        @overload
        def __call__(self, /, *, out: int | None = None, **named: Any) -> Any: ...

        def __call__(self: Any, /, *arrays: Any, **named: Any) -> Any:
            """Run the code."""
