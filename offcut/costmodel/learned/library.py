"""XGBoost, which is an extra: everything but learning works without it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from offcut.errors import TargetError

ABSENT = "xgboost is not installed"
_HELP = ('pip install "offcut[learned]"',)


def there() -> bool:
    """Whether it can be imported; it is not loaded for that."""
    return find_spec("xgboost") is not None


def loaded(op: str) -> Any:
    """The module, whose import takes some 0.4 s.

    Raises TargetError where it is not installed.
    """
    if not there():
        raise TargetError(op, "cannot use a learned model", because=ABSENT, help=_HELP)
    return import_module("xgboost")
