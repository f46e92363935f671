"""offcut: loop partitioning for dynamic shapes.

Describe a tensor computation with symbolic sizes, compile it once, run it at every size. Names
are loaded when first used, so that ``import offcut`` itself costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from offcut.core.extras import base_imports
from offcut.core.function_table import PUBLIC

if TYPE_CHECKING:
    from offcut import ir as ir
    from offcut import ops as ops
    from offcut.backends.cpu.external.declaration import (
        external_microkernel as external_microkernel,
    )
    from offcut.backends.host.saved_file import load as load
    from offcut.backends.plan import Plan as Plan
    from offcut.backends.target import Target as Target
    from offcut.core.functions import *  # noqa: F403 - a name for each row
    from offcut.core.program import Program as Program
    from offcut.core.sizes import assume as assume
    from offcut.core.sizes import dim as dim
    from offcut.core.text.parser import parse as parse
    from offcut.costmodel import Cost as Cost
    from offcut.describe import external as external
    from offcut.describe.functions import index as index
    from offcut.describe.functions import max as max
    from offcut.describe.functions import maximum as maximum
    from offcut.describe.functions import min as min
    from offcut.describe.functions import minimum as minimum
    from offcut.describe.functions import power as power
    from offcut.describe.functions import reduce_axis as reduce_axis
    from offcut.describe.functions import sum as sum
    from offcut.describe.functions import where as where
    from offcut.describe.intrinsic import decl_tensor_intrin as decl_tensor_intrin
    from offcut.describe.intrinsic import hardware_intrinsic as hardware_intrinsic
    from offcut.describe.microkernel import Microkernel as Microkernel
    from offcut.describe.recurrence import recurrence as recurrence
    from offcut.describe.recurrence import update as update
    from offcut.describe.tensor import Tensor as Tensor
    from offcut.describe.tensor import compute as compute
    from offcut.describe.tensor import placeholder as placeholder
    from offcut.describe.value import cast as cast
    from offcut.errors import CallError as CallError
    from offcut.errors import DescribeError as DescribeError
    from offcut.errors import InternalError as InternalError
    from offcut.errors import OffcutError as OffcutError
    from offcut.errors import ParseError as ParseError
    from offcut.errors import PartitionError as PartitionError
    from offcut.errors import StreamError as StreamError
    from offcut.errors import TargetError as TargetError
    from offcut.kernel import Kernel as Kernel
    from offcut.partition import Partition as Partition
    from offcut.partition import TiledAxis as TiledAxis
    from offcut.partition import TileRun as TileRun
    from offcut.partition import strategy as strategy
    from offcut.pipeline import compile as compile
    from offcut.pipeline import partition as partition
    from offcut.pipeline import prove_equal as prove_equal
    from offcut.pipeline import target as target
    from offcut.pipeline import targets as targets
    from offcut.plugins.onnx import from_onnx as from_onnx
    from offcut.plugins.torch import from_torch as from_torch
    from offcut.polyhedral import sync as sync
    from offcut.proof import Certificate as Certificate
    from offcut.schedule import Schedule as Schedule
    from offcut.schedule import create_schedule as create_schedule
    from offcut.search import Outcome as Outcome
    from offcut.search import Record as Record
    from offcut.search import Records as Records
    from offcut.studies import study as study
    from offcut.tuning.tune import tune as tune

_HOME = {
    "offcut.costmodel": ("Cost",),
    "offcut.backends.cpu.external.declaration": ("external_microkernel",),
    "offcut.describe.intrinsic": ("decl_tensor_intrin", "hardware_intrinsic"),
    "offcut.backends.plan": ("Plan",),
    "offcut.backends.target": ("Target",),
    "offcut.describe.microkernel": ("Microkernel",),
    "offcut.core.text.parser": ("parse",),
    "offcut.core.program": ("Program",),
    "offcut.describe.recurrence": ("recurrence", "update"),
    "offcut.core.sizes": ("assume", "dim"),
    "offcut.describe.tensor": ("Tensor", "compute", "placeholder"),
    "offcut.describe.value": ("cast",),
    "offcut.describe.functions": (
        *PUBLIC,
        *("index", "max", "maximum", "min", "minimum", "power", "reduce_axis", "sum", "where"),
    ),
    "offcut.errors": (
        *("CallError", "DescribeError", "InternalError", "OffcutError"),
        *("ParseError", "PartitionError", "StreamError", "TargetError"),
    ),
    "offcut.backends.host.saved_file": ("load",),
    "offcut.kernel": ("Kernel",),
    "offcut.partition": ("Partition", "TileRun", "TiledAxis", "strategy"),
    "offcut.pipeline": ("compile", "partition", "prove_equal", "target", "targets"),
    "offcut.plugins.onnx": ("from_onnx",),
    "offcut.plugins.torch": ("from_torch",),
    "offcut.proof": ("Certificate",),
    "offcut.schedule": ("Schedule", "create_schedule"),
    "offcut.search": ("Outcome", "Record", "Records"),
    "offcut.studies": ("study",),
    "offcut.tuning.tune": ("tune",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

_PACKAGES = {
    **{name: f"offcut.{name}" for name in ("errors", "ir", "ops")},
    "external": "offcut.describe.external",
    "sync": "offcut.polyhedral.sync",
}  # each loaded alone, when first used
_RENAMED = {"Take": "TileRun"}
_CALLED = ("partition",)  # functions that have the name of a package

__all__ = sorted([*_MODULE_OF, *_PACKAGES])
__version__: str


if not TYPE_CHECKING:  # a name that is not there is an error in an editor, too
    try:
        from offcut._version import __version__
    except ImportError:  # sources that nobody installed
        __version__ = "0.1.0"

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            with base_imports(f"offcut.{name}"):
                return importlib.import_module(_PACKAGES[name])
        if name in _RENAMED:
            from offcut.core.names import warn_renamed

            warn_renamed(f"oc.{name}", f"oc.{_RENAMED[name]}")
            return getattr(sys.modules[__name__], _RENAMED[name])
        if name not in _MODULE_OF:
            from offcut.core.names import suggestion

            raise AttributeError(
                f"module 'offcut' has no attribute {name!r}{suggestion(name, __all__)}"
            )
        with base_imports(f"offcut.{name}"):
            loaded = importlib.import_module(_MODULE_OF[name])
        if name in _CALLED:
            importlib.import_module(f"offcut.{name}")  # which sets the attribute, as `_Face` has it
        else:
            globals()[name] = getattr(loaded, name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _public(name: str) -> Any:
    return getattr(sys.modules[__name__], name)


class _CallablePackage:
    # A package that is the function of its name as well: ``oc.partition(…)``, and
    # ``import offcut.partition.strategies.catalog``. Its docstring is the function's, for `help`.

    __slots__ = ("_package",)
    _package: ModuleType

    def __init__(self, package: ModuleType) -> None:
        object.__setattr__(self, "_package", package)

    @property
    def __wrapped__(self) -> Any:
        """The function, for `inspect.signature`."""
        name = self._package.__name__.rpartition(".")[2]
        return getattr(importlib.import_module(_MODULE_OF[name]), name)

    __call__ = __wrapped__  # the function itself is called: no frame is added

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self.__wrapped__.__doc__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._package, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._package, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._package, name)

    def __dir__(self) -> list[str]:
        return dir(self._package)

    def __get__(self, instance: object, owner: type | None = None) -> _CallablePackage:
        """Return the package itself; `inspect` takes what has `__get__` for a routine."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _public, (self._package.__name__.rpartition(".")[2],)

    def __repr__(self) -> str:
        return f"<function and package {self._package.__name__}>"


class _Face(ModuleType):
    """This module, whose packages that are functions can be called as soon as they are loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CALLED and isinstance(value, ModuleType):
            value = _CallablePackage(value)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
