"""What is not ours: why an operator stays with torch."""

from __future__ import annotations


class Left(Exception):
    """An operator stays with torch; the text is the reason."""
