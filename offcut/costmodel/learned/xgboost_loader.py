"""XGBoost, which is an extra: everything but learning works without it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from offcut.core.extras import installing, is_installed
from offcut.errors import TargetError

ABSENT = "xgboost is not installed"


def missing() -> str:
    """Why it cannot be used, that it is not installed or does not load; "" where it can. Its import takes some 0.4 s."""
    if not is_installed("xgboost"):
        return ABSENT
    try:
        import_module("xgboost")
    except Exception as error:  # whatever its own libraries lack
        line = str(error).strip().partition("\n")[0]
        return f"xgboost does not load: {type(error).__name__}: {line}"
    return ""


def there() -> bool:
    """Whether it is installed, and loads."""
    return not missing()


def load_xgboost(op: str) -> Any:
    """The module.

    Raises TargetError where it is not installed, or does not load.
    """
    because = missing()
    if because:
        raise TargetError(
            op, "cannot use a learned model", because=because, help=(installing("xgboost"),)
        )
    return import_module("xgboost")
