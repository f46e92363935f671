"""Pickles that are read as data: offcut's own values and numpy's, and no function is called."""

from __future__ import annotations

import io
import pickle
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from offcut.errors import OffcutError

_MODULES_OF_NUMPY = ("numpy", "numpy._core.multiarray", "numpy._core.numeric", "numpy.dtypes")
_REBUILD = ("_reconstruct", "scalar", "_frombuffer")
"""Functions by which numpy's pickles make arrays and scalars of bytes."""
_PLAIN = (set, frozenset, complex, slice, range, bytearray, partial)


class DataUnpickler(pickle.Unpickler):
    """Reads a pickle of classes of offcut, of arrays, and of Python's plain values; it raises UnpicklingError for all else.

    A pickle names what is called with what. So bytes from somebody else may run anything in `pickle.loads`; here they may make values of
    wrong contents, and no more.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle names.

        Raises UnpicklingError where that is no class of data.
        """
        if module.startswith("offcut.") or module in _MODULES_OF_NUMPY or module == "ml_dtypes":
            try:
                value = getattr(import_module(module), name, None)
            except (ImportError, OffcutError):  # no such module, or an extra that is not installed
                value = None
            if module in _MODULES_OF_NUMPY and (name in _REBUILD or value is np.ndarray):
                return value
            if isinstance(value, type) and value.__module__ == module and _is_data(module, value):
                return value
        for plain in _PLAIN:
            if (plain.__module__, plain.__qualname__) == (module, name):
                return plain
        raise pickle.UnpicklingError(f"{module}.{name} is not a class of data")


def _is_data(module: str, kind: type) -> bool:
    """Whether a class is offcut's own, or a type of elements of numpy."""
    return module.startswith("offcut.") or issubclass(kind, np.dtype | np.generic)


def unpickle(data: bytes) -> Any:
    """Return the value that a pickle holds.

    Raises UnpicklingError where it names what is no class of data.
    """
    return DataUnpickler(io.BytesIO(data)).load()
