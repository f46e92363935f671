"""Sessions of one file in which calls give initializers: as inputs, or as constants if a node has to know them at import."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from offcut.core.process import ForkSafeLock
from offcut.describe.request import Array
from offcut.onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented
from offcut.plugins.onnx.weights import override_initializers

MAX_VALUES = 16
"""Sessions of one file that are kept for values of initializers; the one that was not called for longest goes."""

MAX_CONSTANT_ELEMENTS = 64
"""Elements of an initializer that may be compiled as a constant: shapes, axes, starts and scales have fewer."""

Session = TypeVar("Session")
Key: TypeAlias = "tuple[frozenset[str], tuple[tuple[str, str, tuple[int, ...], bytes], ...]]"


class OverrideSessions(Generic[Session]):
    """The sessions of a file for calls that give initializers, each opened by the first call that needs it.

    source  the path of the file, or its bytes
    open    a session of the bytes of a model
    """

    def __init__(self, source: Any, open: Callable[[bytes], Session]) -> None:
        self._source, self._open, self._lock = source, open, ForkSafeLock()
        self._constants: dict[frozenset[str], frozenset[str]] = {}
        self._sessions: OrderedDict[Key, Session] = OrderedDict()

    def session_of(self, arrays: Mapping[str, Array]) -> tuple[Session, frozenset[str]]:
        """Return the session for arrays of initializers, and the names of those that it takes as inputs.

        The others are constants of it, because a node has to know them at import.

        Raises NotImplemented, which names the node, if the file does not run with any of them as constants.
        """
        names = frozenset(arrays)
        with self._lock:
            if names in self._constants:
                return self._of_values(arrays, self._constants[names])
            *attempts, last = _constant_names(arrays)
            for constants in attempts:
                try:
                    result = self._of_values(arrays, constants)
                except NotImplemented:
                    continue
                self._constants[names] = constants
                return result
            result = self._of_values(arrays, last)
            self._constants[names] = last
            return result

    def _of_values(
        self, arrays: Mapping[str, Array], constants: frozenset[str]
    ) -> tuple[Session, frozenset[str]]:
        """Return the session in which some arrays are constants, opened now or before, and the names of the others."""
        names = frozenset(arrays)
        values = {name: np.ascontiguousarray(arrays[name]) for name in sorted(constants)}
        key = (
            names,
            tuple((name, str(x.dtype), x.shape, x.tobytes()) for name, x in values.items()),
        )
        if key not in self._sessions:
            content = override_initializers(self._source, names - constants, values)
            self._sessions[key] = self._open(content)
            while len(self._sessions) > MAX_VALUES:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(key)
        return self._sessions[key], names - constants


def _constant_names(arrays: Mapping[str, Array]) -> list[frozenset[str]]:
    """Return what is tried as constants: nothing, the short arrays that are no floats, all short ones."""
    short = {name: x for name, x in arrays.items() if x.size <= MAX_CONSTANT_ELEMENTS}
    whole = frozenset(name for name, x in short.items() if x.dtype.kind in "iub")
    return list(dict.fromkeys((frozenset[str](), whole, frozenset(short))))
