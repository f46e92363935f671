"""What is not ours: why an operator stays with torch."""

from __future__ import annotations

from offcut.debug import verifies
from offcut.errors import OffcutError


class Unsupported(Exception):
    """An operator stays with torch; the text is the reason."""


def unsupported_reason(failed: Exception) -> str:
    """Why operators stay with torch, in one line; what is no refusal is an error of ours, and is named so.

    Raises what is no refusal, where ``OFFCUT_VERIFY=1``.
    """
    text = " ".join(str(failed).split())
    if isinstance(failed, OffcutError):
        return text
    if verifies():
        raise failed
    return f"internal error: {type(failed).__name__}: {text}"
