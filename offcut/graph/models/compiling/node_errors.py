"""Errors of kernels in the words of a graph: the node that a kernel computes, and the names of its values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from offcut.errors import OffcutError

Error = TypeVar("Error", bound=OffcutError)


def of_node(
    error: Error, name: str, operators: Sequence[str], names: Mapping[str, str] | None = None
) -> Error:
    """Return an error of a kernel as one of the node that it computes.

    name, operators  of the node
    names            what the graph calls the values of the kernel
    """
    refused, at, because, *help = (
        with_names(text, names or {})
        for text in (error.refused, error.at, error.because, *error.help)
    )
    node = f"{name}: {' '.join(operators)}"
    at = node if at in ("", name) else f"{node}, {at}"
    return type(error)(error.op, refused, at=at, because=because, help=tuple(help))


def with_names(text: str, names: Mapping[str, str]) -> str:
    """Return a text in which values have the names that the graph has for them."""
    return re.sub(r"\b[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text)
