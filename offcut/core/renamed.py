"""Names that were renamed: the old one works for two minor releases, and warns with the new one."""

from __future__ import annotations

import warnings


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that `old` is now called `new`, at the line that uses it."""
    message = f"{old} is now {new}; the old name will be removed in offcut 0.4"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)
