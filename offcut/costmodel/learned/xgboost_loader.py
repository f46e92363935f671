"""XGBoost, which is an extra: everything but learning works without it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offcut.core.extras import installing, is_installed
from offcut.core.names import renamed_names
from offcut.errors import TargetError

ABSENT = "xgboost is not installed"


def import_error() -> str:
    """Return why xgboost cannot be used: it is not installed, or it does not load; "" if it can. Its import takes some 0.4 s."""
    if not is_installed("xgboost"):
        return ABSENT
    try:
        import_module("xgboost")
    except Exception as error:  # whatever its own libraries lack
        line = str(error).strip().partition("\n")[0]
        return f"xgboost does not load: {type(error).__name__}: {line}"
    return ""


def is_available() -> bool:
    """Return whether xgboost is installed, and loads."""
    return not import_error()


def load_xgboost(op: str) -> Any:
    """Return the module xgboost.

    op  the operation that needs it, for the error

    Raises TargetError if xgboost is not installed, or does not load.
    """
    because = import_error()
    if because:
        raise TargetError(
            op, "cannot use a learned model", because=because, help=(installing("xgboost"),)
        )
    return import_module("xgboost")


if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, {"there": "is_available", "missing": "import_error"})
