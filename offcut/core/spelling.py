"""What a misspelt name may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def similar_names(name: str, known: Iterable[str]) -> str:
    """Of the known names the three at most that are spelt most alike, as a question; empty where none is.

    >>> nearest("sofmax", ["softmax", "conv2d"])
    'did you mean softmax?'
    """
    from difflib import get_close_matches  # where something is misspelt

    matches = get_close_matches(name, known)
    return f"did you mean {' or '.join(matches)}?" if matches else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The same question behind a colon, to be put after a sentence."""
    return f": {found}" if (found := similar_names(name, known)) else ""
